"""Conformance tests for any implementation of Reactive Streams IO (RS.io), version 0.

    target = Target(lambda: over_tcp("gw.example", 7400))
    survey(target)
    for result in run(target, chosen(target)):
        print(result.test.name, result.outcome, result.why)

They judge from outside, over a connection: docs/rsio-v0.md says MUST by MUST which test
does.  Tests of the target as a publisher subscribe to `check/…`, which that page
defines; a target without those is put to the other tests.

Nothing but the standard library (and h2 for HTTP/2), and no code of any implementation.
"""

from rsio_check.probe import Failed, NotJudged, Target
from rsio_check.registry import TESTS, Needs, Role, Test
from rsio_check.runner import Outcome, Result, chosen, run, survey
from rsio_check.transports import (
    Http2Transport,
    SocketTransport,
    Transport,
    WebSocketTransport,
    over_tcp,
    over_unix,
)
from rsio_check.wire import Token

__all__ = [
    "TESTS",
    "Failed",
    "Http2Transport",
    "Needs",
    "NotJudged",
    "Outcome",
    "Result",
    "Role",
    "SocketTransport",
    "Target",
    "Test",
    "Token",
    "Transport",
    "WebSocketTransport",
    "chosen",
    "over_tcp",
    "over_unix",
    "run",
    "survey",
]
