"""The conformance kit: 57 tests that any implementation of RS.io can be put to.

    bench = Bench(lambda: TcpLink("gw.example", 7400))
    for result in run(bench):
        print(result.test.number, result.test.name, result.outcome, result.why)

Tests of a target's publishers subscribe to `check/…` (see `gateway.protocols.rsio.checks`); a
target without them is tested in the rest (`serves_checks` finds out).
"""

from gateway.protocols.rsio.conformance.links import TcpLink, UnixLink, WebSocketLink
from gateway.protocols.rsio.conformance.probe import Bench, Failed, Link
from gateway.protocols.rsio.conformance.register import TESTS, Check, Role, Test
from gateway.protocols.rsio.conformance.run import Outcome, Result, run, serves_checks

__all__ = [
    "TESTS",
    "Bench",
    "Check",
    "Failed",
    "Link",
    "Outcome",
    "Result",
    "Role",
    "TcpLink",
    "Test",
    "UnixLink",
    "WebSocketLink",
    "run",
    "serves_checks",
]
