"""Syslog keeps what every protocol of the gateway promises."""

from __future__ import annotations

import json
from collections.abc import Sequence

from gateway_syslog import protocol
from gateway_testkit.contract import ProtocolContract
from gateway_testkit.killed import KilledContract

RFC5424 = b"<165>1 2026-11-22T08:00:00Z web1 app 12 ID47 - it begins"
RFC3164 = b"<34>Nov 22 08:00:01 web1 su[77]: it goes on"


class TestByTrailer(ProtocolContract):
    protocol = protocol
    acknowledges = False
    batches = [(RFC5424 + b"\n", 1), (RFC3164 + b"\0", 1), (b"\r\n<13>\xff\n", 1)]
    too_much = {}  # nothing is declared
    unfinished = b"<13>" + b"x" * 1000
    endless = b"x" * 1000


class TestByCount(TestByTrailer):
    batches = [(b"%d %b" % (len(each), each), 1) for each in (RFC5424, RFC3164, b"so")]
    too_much = {"limits.message_bytes": b"70000 "}
    unfinished = b"60000 <13>" + b"x" * 1000
    endless = None


class TestKilled(KilledContract):
    protocol = protocol
    acknowledges = False
    events = 1

    def batch(self, names: Sequence[str]) -> bytes:
        return b"".join(b"<13>1 - - - - - - %b\n" % name.encode() for name in names)

    def name(self, payload: bytes) -> str:
        message: str = json.loads(payload)["message"]
        return message
