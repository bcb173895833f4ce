"""What `gateway run` says before it starts anybody; with children it is in
tests/integration/test_run.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway import cli
from gateway.cli import run
from gateway.config import Config
from gateway.store.lock import lock
from gateway.supervisor.log import Log
from gateway.supervisor.together import Together


def configuration(tmp_path: Path) -> Path:
    """With its data beside it, and no job of its own."""
    beats = {"name": "beats", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"}
    settings = {
        "listeners": [beats],
        "data_dir": str(tmp_path / "data"),
        "spool": {"after": "keep"},
    }
    file = tmp_path / "gateway.yaml"
    file.write_text(json.dumps(settings))
    return file


def test_data_that_can_not_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that can not be made, for whatever reason, is a sentence and wrong use."""
    (tmp_path / "data").write_text("a file")
    file = configuration(tmp_path)
    assert cli.main(["run", "--config", str(file)]) == 2
    assert capsys.readouterr().err == (
        f"gateway: {tmp_path}/data/run: Not a directory\n"
    )


@pytest.mark.parametrize("folder", ["data", "data/lake/.gateway"])
def test_a_daemon_or_a_job_that_runs_is_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
) -> None:
    """Another one would wait for its lock for ever, or fail after a start of its own."""

    def began(loaded: Config, file: Path, log: Log) -> Together:
        raise AssertionError("it begins")

    monkeypatch.setattr(run, "_both", began)
    file = configuration(tmp_path)
    held = lock(tmp_path / folder / "lock", "the other one")
    try:
        assert cli.main(["run", "--config", str(file)]) == 2
    finally:
        held.release()
    assert "the other one" in capsys.readouterr().err
