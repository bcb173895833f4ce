"""The conformance tests over a socket, as `gateway rsio-check` runs them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.protocols.rsio.conformance import Outcome, Target, TcpTransport, run

_QUICK = (1, 6, 8, 13, 18, 36, 39, 44, 51, 52, 54)


class Carrier(asyncio.Protocol):
    """Carries a socket to a gate whose disk is quick."""

    def __init__(self, gate: Any) -> None:
        self._gate = gate
        self._connection, _ = gate.connect()
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._connection.deliver(data)
        self._gate.clock.advance(0)
        self._gate.journal.store_all()
        self._transport.write(self._connection.sent)
        self._connection.clear()
        if self._connection.closed:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.lose()


@pytest.fixture
def port(make_gate: Any) -> Iterator[int]:
    """Where a gate listens."""
    gate = make_gate(subscribe=("events", "more"), window=64)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(
        loop.create_server(lambda: Carrier(gate), "127.0.0.1", 0)
    )
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield server.sockets[0].getsockname()[1]
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_our_server_from_outside(port: int) -> None:
    """A selection that needs no clock passes as it does in memory."""
    results = list(run(Target(lambda: TcpTransport("127.0.0.1", port)), _QUICK))
    failed = [
        (one.test.name, one.why) for one in results if one.outcome.value == "failed"
    ]
    assert not failed
    assert sum(one.outcome is Outcome.PASSED for one in results) > 20


def test_nobody_there() -> None:
    """A target that does not listen fails each check with a reason."""
    for result in run(Target(lambda: TcpTransport("127.0.0.1", 1)), [39]):
        assert result.outcome is Outcome.FAILED
        assert "no connection" in result.why


def test_a_target_without_the_publishers(port: int) -> None:
    """… is put to the rest."""
    target = Target(lambda: TcpTransport("127.0.0.1", port), publishers=False)
    outcomes = {
        one.check.role.value: one.outcome for one in run(target, [1]) if one.check
    }
    assert outcomes == {"publisher": Outcome.SKIPPED, "subscriber": Outcome.PASSED}
