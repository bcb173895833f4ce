"""How a job ends, as whoever started it hears, and whoever looks at it."""

import argparse
import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.spark import job
from gateway.spark.run import admin, auditing, progress
from gateway.spark.run.failure import Failed
from gateway.spark.run.health import Health
from gateway.store.readers.lake import health_path


@pytest.mark.parametrize(
    ("why", "status"),
    [(None, 0), (job.Stopped(), 0), (KeyboardInterrupt(), 0), (Failed("no disk"), 1)],
)
def test_its_exit_status(settings_file, monkeypatch, why, status):
    """0 where it was stopped, or is done; a unit that is to restart it goes by this."""

    def run(config: Any, *_: Any, **__: Any) -> None:
        if why is not None:
            raise why

    monkeypatch.setattr(job, "run", run)
    monkeypatch.setattr(job, "_stop_on_signals", lambda stop, started: None)
    monkeypatch.setattr(progress, "start_logging", lambda settings: None)
    monkeypatch.setattr(admin, "serving", lambda config: nullcontext())
    monkeypatch.setattr(auditing, "running", lambda config, options: nullcontext())
    options = argparse.Namespace(config=settings_file(), once=True, json=True)
    assert job.start(options) == status


@pytest.mark.parametrize(
    ("why", "state", "failures"),
    [
        (job.Stopped(), "stopped", 0),
        (KeyboardInterrupt(), "stopped", 0),
        (Failed("no disk"), "failed", 1),
        (OSError("no disk"), "failed", 1),
    ],
)
def test_what_it_leaves_word_of(tmp_path, why, state, failures):
    """Who was asked to stop has not failed, wherever in its start it was."""
    said: list[Any] = []

    def work() -> None:
        raise why

    config = SimpleNamespace(data_dir=tmp_path)
    with pytest.raises((type(why), Failed)):
        job._told(config, Health(tmp_path), said.append, work)
    told = json.loads(health_path(tmp_path).read_text())
    assert (told["state"], told["failures"]) == (state, failures)
    assert [one["state"] for one in said] == ["stopped"] * (state == "stopped")
