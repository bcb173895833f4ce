"""Pomelo keeps what every protocol of the gateway promises."""

import json

from gateway.plugins import installed
from gateway.protocols.pomelo import wire
from gateway_testkit.contract import ProtocolContract

_HELLO = {"sys": {"type": "test", "version": "0.0.1"}, "user": {}}


class TestPomelo(ProtocolContract):
    protocol = installed().protocols["pomelo"]
    options = {"session_events": False}
    opening = b"".join(
        (
            wire.package(wire.HANDSHAKE, json.dumps(_HELLO).encode()),
            wire.package(wire.ACK),
        )
    )
    batches = [
        (wire.request(1, "chat.room.say", b'{"text":"a"}'), 1),
        (wire.request(2, "chat.room.say", b"no JSON"), 1),
        (wire.request(300, "area.player.move", b'{"to":[1,2]}'), 1),
        (wire.request(301, "chat.room.say", b'{"text":"b"}'), 1),
    ]
    too_much = {
        "limits.message_bytes": b"\x04\x01\x00\x01",
        "options.handshake_bytes": b"\x03\x01\x00\x01",
    }
    unfinished = b"\x04\x00\xff\xff" + b"\x02" + bytes(1000)
    endless = None

    def acknowledged(self, sent: bytes) -> int:
        """Responses with code 200, here in the order of their requests."""
        packages = wire.Packages(wire.MOST_BYTES, wire.MOST_BYTES)
        packages.feed(sent)
        answered = []
        while (package := packages.next()) is not None:
            if package.kind == wire.DATA:
                response = wire.message(package.body)
                if json.loads(response.body)["code"] == 200:
                    answered.append(response.id)
        assert answered == sorted(answered)
        return len(answered)
