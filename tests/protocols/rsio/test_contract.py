"""RS.io keeps what every protocol of the gateway promises."""

from gateway.plugins import installed
from gateway.protocols.rsio import wire
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import (
    ClientHello,
    OnNextPart,
    OnSubscribe,
    Request,
)
from gateway_testkit.contract import ProtocolContract


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

    def test_a_full_journal_stops_reading(self, tmp_path):
        """Demand does it instead: the peer is heard, and is asked for nothing more."""
        daemon = self._daemon(tmp_path)
        connection = self._opened(daemon)
        daemon.journal.full = True
        for data, _ in self.batches:
            connection.deliver(data)
        daemon.store()
        assert not connection.paused
        assert self.acknowledged(connection.sent) == 0
        daemon.journal.full = False
        daemon.store()
        assert self.acknowledged(connection.sent) == len(self.batches)
        self._end(daemon, connection)
