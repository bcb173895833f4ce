"""The Spark job as a process: stopped by SIGTERM, started twice, configured wrongly.

Killed it is in test_points.py, at each step, and with the daemon in tests/crash.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlines import environment, finish

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LakeEvents = Callable[[Path], Counter[tuple[str, int]]]


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """A configuration file for the program."""
    path = tmp_path / "gateway.yaml"
    path.write_text(
        f"""\
node: gw
data_dir: {tmp_path / "data"}
listeners: [{{name: beats, protocol: lumberjack, listen: "tcp:127.0.0.1:0"}}]
spark: {{trigger: 0s, stats_window: 1s}}
"""
    )
    return path


@pytest.fixture
def start(settings: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the job; whatever is left of it at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(*options: str) -> subprocess.Popen[str]:
        job = subprocess.Popen(
            [sys.executable, "-m", "gateway.spark.job", "--config", settings, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(),
        )
        started.append(job)
        return job

    yield begin
    for job in started:
        job.kill()
        job.wait()


def status(job: subprocess.Popen[str]) -> int | None:
    """The exit status, once it has ended."""
    finish(job, seconds=120)
    return job.returncode


def read_news(job: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """The job's progress, line by line."""
    assert job.stdout is not None
    for line in job.stdout:
        yield json.loads(line)


def test_a_signal_ends_it_cleanly(
    start: Callable[..., subprocess.Popen[str]],
    spool: Any,
    tmp_path: Path,
    lake_events: LakeEvents,
) -> None:
    """SIGTERM: exit status 0, whole batches, and on standard output JSON only.
    Meanwhile a second job is refused."""
    spool.events("gw", 1, 100)
    job = start("--json")
    news = read_news(job)
    assert next(news)["state"] == "starting"
    other = start("--json")
    assert status(other) == 1
    for one in news:
        if one.get("rows_total") == 100:
            break
    job.send_signal(signal.SIGTERM)
    assert [one.get("state") for one in news][-1] == "stopped"
    assert status(job) == 0
    assert lake_events(tmp_path / "data" / "lake") == spool.produced


def test_a_wrong_configuration_is_wrong_use(
    start: Callable[..., subprocess.Popen[str]], settings: Path
) -> None:
    """Exit status 2, before Spark is started."""
    settings.write_text("spark: {sink: oracle}")
    assert status(start()) == 2
