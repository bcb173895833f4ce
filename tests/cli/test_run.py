"""What `gateway run` says before it starts anybody; with children it is in
tests/integration/test_run.py.
"""

import json
import re
import tempfile
from pathlib import Path

import pytest

from gateway import cli, config
from gateway.cli import run
from gateway.config import Config
from gateway.plugins import installed
from gateway.sdk.command import WrongUse
from gateway.store.system.lock import lock
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


def test_data_that_can_not_be_there(tmp_path, capsys):
    """A folder that can not be made, for whatever reason, is a sentence and wrong use."""
    (tmp_path / "data").write_text("a file")
    file = configuration(tmp_path)
    assert cli.main(["run", "--config", str(file)]) == 2
    assert capsys.readouterr().err == (
        f"gateway: {tmp_path}/data/run: Not a directory\n"
    )


def test_a_temporary_folder_that_is_too_deep(tmp_path, capsys, monkeypatch):
    """For the socket in it, by which the daemon says that it is there."""
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert cli.main(["run", "--config", str(configuration(tmp_path))]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"gateway: {deep}/gateway-run-")
    assert err.endswith("/notify: AF_UNIX path too long (TMPDIR)\n")
    assert not [*deep.iterdir()]


@pytest.mark.parametrize("folder", ["data", "data/lake/.gateway"])
def test_a_daemon_or_a_job_that_runs_is_named(tmp_path, capsys, monkeypatch, folder):
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


@pytest.mark.parametrize(("named", "opened"), [([], "lumberjack"), (["rsio"], "rsio")])
def test_it_begins_with_what_is_named(named, opened, tmp_path, monkeypatch):
    """Or with what Beats speak; the others are there to be uncommented."""

    def began(loaded: Config, file: Path, log: Log) -> Together:
        assert [one.protocol for one in loaded.listeners] == [opened]
        raise WrongUse("enough")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "_both", began)
    monkeypatch.setattr(run, "_free", lambda _: True)  # others may run one here
    assert cli.main(["run", *named]) == 2
    commented = (tmp_path / "gateway.yaml").read_text()
    head, _, rest = commented.partition("\n  #- ")
    others, _, tail = rest.partition("\n\n# ")
    whole = re.sub("^( *)#", r"\1", f"  #- {others}", flags=re.MULTILINE)
    (tmp_path / "gateway.yaml").write_text(f"{head}\n{whole}\n\n# {tail}")
    found = config.load(tmp_path / "gateway.yaml").listeners
    assert {one.protocol for one in found} == {*installed().protocols}


def test_what_is_named_beside_a_configuration(tmp_path, capsys):
    """That says which protocols there are."""
    file = configuration(tmp_path)
    assert cli.main(["run", "rsio", "--config", str(file)]) == 2
    assert "add rsio to its listeners" in capsys.readouterr().err
