"""Memory that a burst took goes back to the system."""

from pathlib import Path

import pytest

from gateway.store.system.bursts import Bursts, _trim, give_back

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
