"""The 57 tests, against our own server, in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.rsio.conformance import TESTS, Bench, Outcome, run


class MemoryLink:
    """A connection to a listener in this process; waiting moves its clock."""

    def __init__(self, gate: Any) -> None:
        self._gate = gate
        self._connection, _ = gate.connect()
        self._told = False

    def send(self, data: bytes) -> None:
        """Deliver."""
        if not self._connection.closed:
            self._connection.deliver(data)
            if self._connection.failure is not None:
                raise self._connection.failure

    def receive(self, seconds: float) -> bytes | None:
        """What was written until something is, or the time is over."""
        left = seconds
        while True:
            self._gate.journal.store_all()
            if data := self._connection.sent:
                self._connection.clear()
                return data
            if self._connection.closed or self._connection.aborted:
                return b""
            if left <= 0:
                return None
            self._gate.clock.advance(0.05)
            left -= 0.05

    def close(self) -> None:
        """The peer goes."""
        if not self._told:
            self._told = True
            self._connection.lose()

    reset = close


@pytest.fixture
def bench(make_gate: Callable[..., Any]) -> Bench:
    """A listener that also serves what the tests subscribe to."""
    gate = make_gate(subscribe=("events", "more"), window=64)
    return Bench(lambda: MemoryLink(gate))


def test_there_are_57() -> None:
    """By number; each has checks, or says where it is tested."""
    assert list(TESTS) == list(range(1, 58))
    for test in TESTS.values():
        assert bool(test.checks) != bool(test.inside), test.name
        assert all(each.promise for each in test.checks), test.name


@pytest.mark.parametrize(
    "number", [number for number, test in TESTS.items() if test.checks]
)
def test_conformance(bench: Bench, number: int) -> None:
    """Our server passes, as publisher, as subscriber and as such."""
    for result in run(bench, [number]):
        assert result.outcome is Outcome.PASSED, (result.check, result.why)
