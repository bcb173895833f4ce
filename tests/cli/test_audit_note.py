"""`gateway audit --note`: what it leaves, and that it ends at its limits."""

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from deadlines import run
from gateway.cli import _audit_note
from gateway.sdk.command import WrongUse
from gateway.store.readers.audited import Audited
from making import Make


@pytest.fixture
def config(system, tmp_path) -> Make[Path]:
    """A file for the system's directories, with this section `spark.audit`."""

    def written(**audit: object) -> Path:
        path = tmp_path / "gateway.yaml"
        path.write_text(
            f"node: gw-1\ndata_dir: {system.root}\n"
            "listeners: [{name: beats, protocol: lumberjack, listen: tcp:127.0.0.1:0}]\n"
            f"spark: {{audit: {audit or {}}}}\n"
        )
        return path

    return written


def noted(config: Path, *more: str) -> tuple[int, str]:
    """In a process of its own: it lowers its priority for good."""
    words = ("audit", "--note", "--config", config, *more)
    done = run(sys.executable, "-m", "gateway", *words)
    return done.returncode, done.stdout + done.stderr


def test_what_it_found_lies_beside_the_tables(system, config):
    """Complete, then with events that are nowhere and one that is there twice; when one is
    to come, and how often, stays as it was.
    """
    lake = system.root / "lake"
    system.lake([1, 2, 3], "a.parquet")
    Audited(since=5.0, every=86400.0, unfinished="it took 1 h").write(lake)
    status, said = noted(config())
    assert (status, said.splitlines()[-1]) == (
        0,
        "complete: 3 events, each exactly once",
    )
    found = Audited.read(lake)
    assert (found.complete, found.events, found.missing, found.unfinished) == (
        True, 3, 0, None,
    )  # fmt: skip
    assert (found.since, found.every) == (5.0, 86400.0)
    assert found.at is not None
    assert found.tried is not None
    system.lake([6, 9, 9], "b.parquet")
    status, said = noted(config())
    assert status == 1
    assert "INCOMPLETE" in said
    found = Audited.read(lake)
    assert not found.complete
    assert (found.missing, found.holes, found.doubled) == (4, 2, 1)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"time_limit": "1s"}, "it took 1.0 s (spark.audit.time_limit)"),
        ({"read_bytes": "1MiB"}, "it read 1.0 MiB (spark.audit.read_bytes)"),
    ],
)
def test_it_ends_at_its_limits(limits, why, system, config, monkeypatch, capsys):
    """Without a verdict; what the last one found is still what is known."""
    monkeypatch.setattr(_audit_note, "_give_way", lambda: None)
    lake = system.root / "lake"
    before = Audited(since=1.0, every=60.0, at=7.0, events=12)
    before.write(lake)

    def endless(args: object, heard: object) -> int:
        while True:
            time.sleep(0.01)
            Path("/proc/self/maps").read_bytes()
            try:
                Path(sys.executable).resolve().read_bytes()
            except Exception:
                pytest.fail("its end was taken for a bad file")

    assert _audit_note.run(asked(config(**limits)), endless) == 1
    assert capsys.readouterr().out == f"unfinished: {why}\n"
    found = Audited.read(lake)
    assert found.unfinished == why
    assert (found.at, found.events, found.every) == (7.0, 12, 60.0)
    assert found.tried is not None


def test_it_ends_when_it_is_asked_to_and_leaves_signals_as_they_were(
    system, config, monkeypatch
):
    monkeypatch.setattr(_audit_note, "_give_way", lambda: None)
    handler = signal.getsignal(signal.SIGTERM)

    def stopped(args: object, heard: object) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            time.sleep(0.01)

    assert _audit_note.run(asked(config()), stopped) == 1
    assert Audited.read(system.root / "lake").unfinished == "it was ended"
    assert signal.getsignal(signal.SIGTERM) == handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_an_error_is_noted_and_told(system, config, monkeypatch):
    """As it would be without."""
    monkeypatch.setattr(_audit_note, "_give_way", lambda: None)

    def broken(args: object, heard: object) -> int:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        _audit_note.run(asked(config()), broken)
    assert Audited.read(system.root / "lake").unfinished == "the disk is gone"


@pytest.mark.parametrize(
    "more", [{"data_dir": [Path("x")]}, {"node": "gw-1"}, {"first": 7}]
)
def test_a_part_is_not_noted_as_the_whole(more, config):
    with pytest.raises(WrongUse, match="--note is about all"):
        _audit_note.run(asked(config(), **more), lambda args, heard: 0)


def test_a_word_that_can_not_be_read_is_none(tmp_path):
    """Cut off, of another kind, or with fields of a later version."""
    path = Audited.path(tmp_path)
    path.parent.mkdir()
    for text in ("", "{", "[]", '{"at": "yesterday"}'):
        path.write_text(text)
        assert Audited.read(tmp_path) == Audited()
    path.write_text('{"at": 7, "missing": 2, "of_later": true}')
    assert Audited.read(tmp_path) == Audited(at=7.0, missing=2)


def asked(config: Path, **more: Any) -> argparse.Namespace:
    given = {"config": [str(config)], "data_dir": [], "node": None, "first": 1}
    return argparse.Namespace(**{**given, **more})
