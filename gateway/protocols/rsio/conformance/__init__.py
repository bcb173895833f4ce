"""Conformance tests for any implementation of RS.io, over a connection from outside.

    target = Target(lambda: TcpTransport("gw.example", 7400))
    for result in run(target):
        print(result.test.number, result.test.name, result.outcome, result.why)

Tests of the target as a publisher subscribe to `check/…` (`rsio.check_publishers`); a
target without those is put to the other tests (`serves_checks` finds out).
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
