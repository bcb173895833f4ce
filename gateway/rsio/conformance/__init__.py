"""The conformance kit: 57 tests that any implementation of RS.io can be put to.

    bench = Bench(lambda: TcpLink("gw.example", 7400))
    for result in run(bench):
        print(result.test.number, result.test.name, result.outcome, result.why)

Tests of a target's publishers subscribe to `check/…` (see `gateway.rsio.checks`); a
target without them is tested in the rest.
"""

from gateway.rsio.conformance.probe import Bench, Link
from gateway.rsio.conformance.register import TESTS, Check, Role, Test
from gateway.rsio.conformance.run import Outcome, Result, run
from gateway.rsio.conformance.tcp import TcpLink

__all__ = [
    "TESTS",
    "Bench",
    "Check",
    "Link",
    "Outcome",
    "Result",
    "Role",
    "TcpLink",
    "Test",
    "run",
]
