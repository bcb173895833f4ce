"""A process that a slow machine holds up is told from one that hangs."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadlines import eventually, next_line, rest
from gateway.store.system.bursts import Bursts, _trim, give_back
from gateway.store.system.silence import Silence


class Machine:
    """What a kernel tells of process 7, and a clock."""

    def __init__(self, proc: Path) -> None:
        self._directory = proc / "7"
        self.now = 0.0
        self.waited(main=0.0)
        self.moved(0)
        self.silence = Silence(7, proc, lambda: self.now)

    def waited(self, **seconds: float) -> None:
        """For how long each thread has waited for a CPU so far."""
        for thread, each in seconds.items():
            (self._directory / "task" / thread).mkdir(parents=True, exist_ok=True)
            told = f"1 {int(each * 1e9)} 5\n"
            (self._directory / "task" / thread / "schedstat").write_text(told)

    def moved(self, written: int, calls: int = 0) -> None:
        """How many bytes it has written so far, in how many calls."""
        lines = f"rchar: 0\nwchar: {written}\nsyscw: {calls}\nread_bytes: 0\n"
        (self._directory / "io").write_text(lines)


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


def test_who_does_nothing_gets_nowhere(machine):
    """Stopped, in the disk, or in a loop: each second counts, until it is heard of."""
    for machine.now in (1.0, 3.0):
        machine.moved(0, calls=int(machine.now))  # that fail
        assert machine.silence.look() == machine.now
    machine.silence.end()
    machine.now = 4.5
    assert machine.silence.look() == machine.silence.seconds == 1.5


def test_who_waits_for_a_processor_does_not_hang(machine):
    """What others take of the processors is no time of its own."""
    machine.now = 10.0
    machine.waited(main=9.0)
    assert machine.silence.look() == 1.0
    machine.now = 20.0
    machine.waited(main=9.0, writer=4.0)
    assert machine.silence.look() == 7.0


def test_several_that_wait_at_once_are_not_counted_twice(machine):
    """One that works beside those that wait hangs all the same, if it is in a loop."""
    machine.now = 10.0
    machine.waited(main=4.0, writer=4.0, encoder=4.0)
    assert machine.silence.look() == 6.0


def test_who_reads_or_writes_gets_on(machine):
    """As one that imports its modules, for however long."""
    machine.now = 10.0
    machine.silence.look()
    machine.moved(4096)
    assert machine.silence.look() == 0.0
    machine.now = 12.0
    assert machine.silence.look() == 2.0


def test_where_the_kernel_says_nothing(tmp_path):
    """Every second counts, then."""
    silence = Silence(7, tmp_path, iter([0.0, 5.0, 6.0]).__next__)
    assert [silence.look(), silence.look()] == [5.0, 6.0]


_READING = """
import time

print("started", flush=True)
while True:
    open(__file__).read()
    time.sleep(0.01)
"""


@pytest.fixture
def reading(tmp_path) -> Iterator[subprocess.Popen[str]]:
    """A process that reads a file a hundred times a second."""
    (tmp_path / "reading.py").write_text(_READING)
    command = [sys.executable, tmp_path / "reading.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert next_line(process) == "started\n"
        yield process
        process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_a_real_one(reading):
    """While it reads it is heard of at each look; once it is stopped, never more."""
    silence = Silence(reading.pid)
    for _ in range(3):
        rest(0.3)
        assert eventually(lambda: silence.look() == 0.0, "it has read")
    os.kill(reading.pid, signal.SIGSTOP)
    eventually(lambda: silence.look() > 1.0, "it gets nowhere")


MIB = 1 << 20


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def bursts(calls) -> Bursts:
    return Bursts(lambda: calls.append("back"))


def test_a_burst_is_over_when_half_of_it_is_gone(bursts, calls):
    """Not while it grows or wavers; then once, and once more when the rest has gone."""
    for in_use in (10, 150, 158, 120, 140, 80, 10, 158, 0, 158, 79):
        bursts.note(in_use * MIB)
    assert not calls
    bursts.note(78 * MIB)
    assert len(calls) == 1
    for in_use in (77, 70, 60, 0):
        bursts.note(in_use * MIB)
    assert len(calls) == 1
    for _ in range(9):
        bursts.note(0)
    assert len(calls) == 2


def test_small_bursts_are_not_worth_it(bursts, calls):
    """Nor is a daemon with nothing to do, or with little that stands still."""
    for in_use in (31, 0, 31, 31, 0, 0, 0):
        bursts.note(in_use * MIB)
    assert not calls


def test_what_stands_still_holds_no_more_than_it_needs(bursts, calls):
    """Before a disk that hangs nothing changes for long: once is enough."""
    for in_use in (100, 150, 150, 150, 150):
        bursts.note(in_use * MIB)
    assert len(calls) == 1
    for in_use in (151, 151):
        bursts.note(in_use * MIB)
    assert len(calls) == 2


def test_a_c_library_that_can_not_is_let_be(monkeypatch):
    """musl has no `malloc_trim`."""
    monkeypatch.setattr("gateway.store.system.bursts._trim", None)
    give_back()


@pytest.mark.skipif(_trim is None, reason="only glibc can")
def test_the_system_gets_what_lies_below_something_in_use():
    """Bodies of a burst, with one small object behind them."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    bodies = [bytes(100_000) + b"x" for _ in range(1_000)]
    behind = bytes(1_000)
    full = resident()
    del bodies
    give_back()
    assert resident() < full - 60 * MIB
    assert behind
