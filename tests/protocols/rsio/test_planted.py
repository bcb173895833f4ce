"""The kit notices faults of the gateway's own implementation of RS.io, in memory."""

import pytest

from planted import FAULTS, planted
from rsio_check import TESTS, Outcome, run
from rsio_check.checks import publisher
from rsio_check.transports import Transport


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


@pytest.fixture(autouse=True)
def _no_more_than_some_turns(monkeypatch) -> None:
    """Where nothing waits in a socket, all that is asked for comes in each."""
    monkeypatch.setattr(publisher, "_MANY", 100_000)
    monkeypatch.setattr(publisher, "_PATIENT", 40_000)


@pytest.mark.parametrize("fault", FAULTS["python"], ids=lambda fault: fault.tests[0])
def test_it_is_noticed(make_target, fault):
    """With the fault in our modules the tests that name it fail; without it they pass."""
    for name in fault.tests:
        outcomes = []
        for broken in (True, False):
            target = make_target()
            connect = target.connect_transport
            target.connect_transport = lambda connect=connect: Breakable(connect())
            target.offers = frozenset({1, 2, 3, 4, 5, 6, 7, 8})
            target.publishers = True
            target.subscriptions = 2
            if broken:
                with planted(fault):
                    [result] = run(target, [TESTS[name]])
            else:
                [result] = run(target, [TESTS[name]])
            outcomes.append(result.outcome)
        assert outcomes == [Outcome.FAILED, Outcome.PASSED]
