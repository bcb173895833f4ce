"""The conformance kit: 57 tests that any implementation of RS.io can be put to.

    target = Target(lambda: TcpTransport("gw.example", 7400))
    for result in run(target):
        print(result.test.number, result.test.name, result.outcome, result.why)

Tests of a target's publishers subscribe to `check/…` (see `gateway.protocols.rsio.check_publishers`); a
target without them is tested in the rest (`serves_checks` finds out).
"""

from gateway.protocols.rsio.conformance.probe import Failed, Target, Transport
from gateway.protocols.rsio.conformance.registry import TESTS, Check, Role, Test
from gateway.protocols.rsio.conformance.runner import (
    Outcome,
    Result,
    run,
    serves_checks,
)
from gateway.protocols.rsio.conformance.transports import (
    TcpTransport,
    UnixTransport,
    WebSocketTransport,
)

__all__ = [
    "TESTS",
    "Check",
    "Failed",
    "Outcome",
    "Result",
    "Role",
    "Target",
    "TcpTransport",
    "Test",
    "Transport",
    "UnixTransport",
    "WebSocketTransport",
    "run",
    "serves_checks",
]
