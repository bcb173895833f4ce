"""The conformance tests of `rsio_check` against our own server, in memory, and
against that server with faults.  Over sockets they run in tests/cli/test_rsio_check.py.
"""

import pytest

from planted import FAULTS, planted
from rsio_check import TESTS, Needs, Outcome, Target, Token, run
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
    """With the fault in our modules the tests that name it fail."""
    for name in fault.tests:
        target = known(make_target())
        connect = target.connect_transport
        target.connect_transport = lambda connect=connect: Breakable(connect())
        with planted(fault):
            [result] = run(target, [TESTS[name]])
        assert result.outcome is Outcome.FAILED, name
