"""The conformance tests of `rsio_check` against our own server, in memory and over a socket,
and against that server with faults.
"""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from planted import FAULTS, planted
from rsio_check import TESTS, Needs, Outcome, Target, Token, over_tcp, run, survey
from rsio_check.checks import publisher
from rsio_check.transports import Transport

READ_BACK = "the target does not publish events"


def known(target: Target) -> Target:
    """What a survey would find out."""
    target.offers = frozenset({1, 2, 3, 4, 5, 6, 7, 8})
    target.publishers = True
    target.subscriptions = 2
    return target


@pytest.fixture(autouse=True)
def _no_more_than_some_turns(monkeypatch) -> None:
    """Where nothing waits in a socket, all that is asked for comes in each."""
    monkeypatch.setattr(publisher, "_MANY", 100_000)
    monkeypatch.setattr(publisher, "_PATIENT", 40_000)


@pytest.mark.parametrize(
    "name", [name for name, test in TESTS.items() if test.needs is not Needs.WEBSOCKET]
)
def test_conformance(make_target, name):
    """Our server passes, as publisher, as subscriber and as a connection.

    What it stores is read back from a daemon: tests/integration/test_senders.py.
    """
    test = TESTS[name]
    target = known(make_target())
    if test.needs is Needs.TOKEN:
        target = known(make_target(tokens={"check": "s3cret"}))
        target.identity = Token("bearer", b"s3cret")
    [result] = run(target, [test])
    if result.why == READ_BACK:
        return
    assert result.outcome is Outcome.PASSED, result.why


class Breakable:
    """A connection that is lost by whatever its server raises."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.close = transport.close
        self.reset = transport.reset

    def send(self, data: bytes) -> None:
        try:
            self._transport.send(data)
        except (ArithmeticError, LookupError, TypeError, ValueError) as why:
            raise ConnectionResetError(str(why)) from why

    def receive(self, seconds: float) -> bytes | None:
        return self._transport.receive(seconds)


@pytest.mark.parametrize("fault", FAULTS["python"], ids=lambda fault: fault.tests[0])
def test_it_is_noticed(make_target, fault):
    """With the fault in our modules the tests that name it fail; without it they pass."""
    for name in fault.tests:
        outcomes = []
        for broken in (True, False):
            target = known(make_target())
            connect = target.connect_transport
            target.connect_transport = lambda connect=connect: Breakable(connect())
            if broken:
                with planted(fault):
                    [result] = run(target, [TESTS[name]])
            else:
                [result] = run(target, [TESTS[name]])
            outcomes.append(result.outcome)
        assert outcomes == [Outcome.FAILED, Outcome.PASSED]


_QUICK = (
    "hello_comes_first", "other_version_is_refused", "names_are_utf8",
    "goodbye_is_answered", "demand_is_renewed_for_each_element",
    "overrun_cancels_the_stream", "second_overrun_ends", "packed_elements_need_a_size",
    "reset_within_an_element_harms_no_other", "spec205_second_on_subscribe_ends",
    "spec208_late_elements_are_dropped", "signals_for_unknown_ids_end",
)  # fmt: skip


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
def port(make_gate) -> Iterator[int]:
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


def test_our_server_from_outside(port):
    """A selection that needs no clock passes as it does in memory."""
    target = Target(lambda: over_tcp("127.0.0.1", port))
    survey(target)
    assert target.subscriptions == 2
    target.publishers = False  # they would be silent by a clock that stands still
    results = list(run(target, [TESTS[name] for name in _QUICK]))
    assert [
        (one.test.name, one.why) for one in results if one.outcome is not Outcome.PASSED
    ] == []


def test_a_target_without_the_publishers(port):
    """… is put to the rest."""
    target = Target(lambda: over_tcp("127.0.0.1", port))
    names = ("spec308_requests_add_up", "hello_is_answered")
    outcomes = [one.outcome for one in run(target, [TESTS[name] for name in names])]
    assert outcomes == [Outcome.NOT_JUDGED, Outcome.PASSED]
