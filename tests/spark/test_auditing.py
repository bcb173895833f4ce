"""Audits beside the job: when the next one is, and what becomes of it."""

import logging
import sys
import threading
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deadlines import eventually
from gateway.spark.run.auditing import Auditor, running
from gateway.store.readers.audited import Audited

DAY = 86400.0


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def auditor(
    lake: Path, clock: Clock, program: str = "", every: float | None = DAY
) -> Auditor:
    """One whose audit is this *program*."""
    command = (sys.executable, "-c", program)
    return Auditor(Path("gateway.yaml"), lake, every, clock=clock, command=command)


def test_the_first_is_soon_and_the_next_a_day_later(tmp_path, clock):
    """However often the job is started anew meanwhile."""
    for _ in range(3):
        auditor(tmp_path, clock).begin()
        clock.now += 100
    assert auditor(tmp_path, clock).due_in() == 300
    begun = clock.now - 300
    Audited(since=begun, every=DAY, tried=begun + 600, at=begun + 700).write(tmp_path)
    again = auditor(tmp_path, clock)
    again.begin()
    assert Audited.read(tmp_path).since == begun
    clock.now = begun + 600 + DAY - 1
    assert again.due_in() == 1


def test_what_did_not_come_to_its_end_is_tried_again_in_an_hour(tmp_path, clock):
    Audited(since=1.0, tried=clock.now, unfinished="it took 1 h").write(tmp_path)
    assert auditor(tmp_path, clock).due_in() == 3600
    assert auditor(tmp_path, clock, every=600.0).due_in() == 600


def test_a_clock_that_is_set_back_puts_none_off(tmp_path, clock):
    """At most for the time from one to the next."""
    Audited(since=1.0, tried=clock.now + 9 * DAY, at=clock.now).write(tmp_path)
    assert auditor(tmp_path, clock).due_in() == DAY
    Audited(since=clock.now + 9 * DAY).write(tmp_path)
    assert auditor(tmp_path, clock).due_in() == 600


def test_none_is_to_come(tmp_path, clock):
    """`every: null`: nothing is written, and what was known says so."""
    none = auditor(tmp_path, clock, every=None)
    none.begin()
    assert none.due_in() is None
    assert not Audited.path(tmp_path).exists()
    Audited(since=1.0, every=DAY, at=2.0).write(tmp_path)
    none.begin()
    assert Audited.read(tmp_path) == Audited(since=1.0, every=None, at=2.0)


def test_one_that_leaves_no_word_is_noted(tmp_path, clock, caplog):
    """Killed for its memory, say; its last words are told, and it is not tried at once."""
    one = auditor(tmp_path, clock, "import sys; print('no such node'); sys.exit(2)")
    one.begin()
    clock.now += 600
    assert one.due_in() == 0
    with caplog.at_level(logging.INFO, "gateway.spark"):
        one.run(threading.Event())
    assert Audited.read(tmp_path).unfinished == "no such node"
    assert "no such node; gateway audit --config gateway.yaml says more" in caplog.text
    assert one.due_in() == 3600


def test_a_good_one_is_a_line(tmp_path, clock, caplog):
    with caplog.at_level(logging.INFO, "gateway.spark"):
        auditor(tmp_path, clock, "print('x'); print('complete: 3 events')").run(
            threading.Event()
        )
    assert "The audit says: complete: 3 events" in caplog.text


def test_the_job_does_not_wait_for_it(tmp_path, clock):
    """It is ended with the job, also one that does not listen."""
    heard = tmp_path / "heard"
    deaf = (
        "import pathlib, signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        f"pathlib.Path({str(heard)!r}).touch()\n"
        "while True: time.sleep(1)"
    )
    stop = threading.Event()
    one = auditor(tmp_path, clock, deaf)
    one._patience = 0.1
    thread = threading.Thread(target=one.run, args=[stop])
    thread.start()
    eventually(heard.exists, "it runs")
    stop.set()
    thread.join()
    assert Audited.read(tmp_path) == Audited()


@pytest.fixture
def config(tmp_path) -> Any:
    audit = SimpleNamespace(every=DAY)
    return SimpleNamespace(data_dir=tmp_path, spark=SimpleNamespace(audit=audit))


def test_a_job_that_runs_once_audits_nothing(tmp_path, config):
    once = Namespace(once=True, config=tmp_path / "gateway.yaml")
    with running(config, once):
        pass
    assert not Audited.path(tmp_path / "lake").exists()


def test_a_job_notes_that_one_is_to_come_and_ends_at_once(tmp_path, config):
    with running(config, Namespace(once=False, config=tmp_path / "gateway.yaml")):
        found = Audited.read(tmp_path / "lake")
    assert found.every == DAY
    assert found.since is not None
