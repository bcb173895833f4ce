"""RS.io keeps what every protocol of the gateway promises."""

from __future__ import annotations

from gateway.plugins import installed
from gateway.protocols.rsio import wire
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import (
    ClientHello,
    OnNextPart,
    OnSubscribe,
    Request,
)
from gateway.testing.contract import ProtocolContract


class TestRsio(ProtocolContract):
    protocol = installed().protocols["rsio"]
    opening = wire.encode(ClientHello(0, ())) + wire.encode(OnSubscribe(1, 0))
    batches = [
        (wire.on_next(1, [b'{"a":1}']), 1),
        (wire.on_next(1, [b"no JSON"]), 1),
        (wire.on_next(1, [b'{"a":3}']), 1),
        (wire.on_next(1, [b"x" * 300]), 1),
    ]
    too_much = {"limits.message_bytes": b"\x21\x01\x81\x80\x04"}
    unfinished = wire.encode(OnNextPart(1, 1, b"x" * 1000))
    endless = wire.encode(OnNextPart(1, 1, b"x" * 10_000))

    def acknowledged(self, sent: bytes) -> int:
        """Demand, beyond that of the subscription."""
        requested = at = 0
        while at < len(sent):
            message, at = wire.parse(sent[at], sent, at + 1, Limits())
            if isinstance(message, Request):
                requested += message.demand
        return requested

    replies = acknowledged
