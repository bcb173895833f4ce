"""`gateway COMMAND | head -1`: every command ends, and quietly, when nobody reads on."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import warm
from deadlines import finish
from gateway import cli

CONFIG = """\
data_dir: data
admin: {listen: tcp:127.0.0.1:1}
listeners: [{name: beats, protocol: lumberjack, listen: tcp:127.0.0.1:0}]
"""
TRIAL = """\
config: gateway.yaml
tests:
  - {name: one, listener: beats, input: {events: [{message: a}]}, expect: [{}]}
  - {name: two, listener: beats, input: {events: [{message: b}]}, expect: []}
"""
#: Of each command words that have it say more than a line, or wait for something.
WORDS = {
    "demo": "--help",
    "run": "--config gateway.yaml",
    "init": "lumberjack --directory first",
    "check": "gateway.yaml",
    "test": "trial.yaml",
    "doctor": "--config gateway.yaml",
    "reload": "--config gateway.yaml",
    "schema": "",
    "status": "--config gateway.yaml",
    "top": "--config gateway.yaml",
    "send": "lumberjack 127.0.0.1:1 --patience 1",
    "spool": "ls --config gateway.yaml",
    "audit": "--config gateway.yaml",
    "restore": "--config gateway.yaml",
    "decommission": "gw-1 --config gateway.yaml",
    "spark": "--help",
    "table": "--no-wait --config gateway.yaml",
    "completion": "bash",
    "tap": "127.0.0.1:1",
    "rsio-check": "127.0.0.1:1",
    "pravega": "cut shop/orders --at 2026-01-01 --controller 127.0.0.1:1",
}


@pytest.fixture
def home(tmp_path) -> Path:
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    (tmp_path / "trial.yaml").write_text(TRIAL)
    (tmp_path / "data" / "journal" / "node").mkdir(parents=True)
    return tmp_path


def piped(home: Path, command: str, *, both: bool = False) -> str:
    """What is on standard error, if that goes elsewhere; fails if it does not end."""
    words = [sys.executable, "-m", "gateway.cli", *shlex.split(command)]
    with (home / "first").open("wb") as first:
        reader = subprocess.Popen(
            ["head", "-n", "1"], stdin=subprocess.PIPE, stdout=first
        )
    assert reader.stdin is not None
    with reader, reader.stdin as pipe, (home / "said").open("wb") as said:
        process = warm.start(
            words,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe if both else said,
            cwd=home,
        )
        pipe.close()
        finish(process, log=home / "said")
    return (home / "said").read_text()


@pytest.mark.parametrize("name", cli.commands())
def test_a_reader_that_goes(name, home):
    """Behind its first line, if it has one: no word of a pipe, no traceback."""
    said = piped(home, f"{name} {WORDS[name]}")
    assert not any(word in said for word in ("Traceback", "ipe", "ignored")), said


@pytest.mark.parametrize(
    "command",
    [
        "send lumberjack 127.0.0.1:1 --patience 1",
        "table --config gateway.yaml",
        "status --config gateway.yaml",
        "check gateway.yaml",
    ],
)
def test_a_reader_of_both_that_goes(command, home):
    """What it says of its trouble goes the same way, and it does not wait for more."""
    assert piped(home, command, both=True) == ""
