"""Lumberjack keeps what every protocol of the gateway promises."""

from itertools import count

from gateway.plugins import installed
from gateway.protocols.lumberjack import wire
from gateway_testkit.contract import ProtocolContract

_V1, _V2 = b"12"
_SEQ = count(1)


def window(version: int, *bodies: bytes, compressed: bool = False) -> tuple[bytes, int]:
    """Events in a window; their numbers go on from window to window."""
    frames = b"".join(wire.json(version, next(_SEQ), body) for body in bodies)
    if compressed:
        frames = wire.compressed(version, frames)
    return wire.window(version, len(bodies)) + frames, len(bodies)


class TestLumberjack(ProtocolContract):
    protocol = installed().protocols["lumberjack"]
    batches = [
        window(_V2, b'{"message":"a"}', b'{"message":"b"}'),
        window(_V2, *[b'{"message":"%d"}' % n for n in range(9)], compressed=True),
        window(_V1, b'{"message":"c"}', b"no JSON"),
        window(_V2, b'{"message":"d"}'),
    ]
    too_much = {
        "limits.inflated_bytes": b"2W\0\0\0\x09" + b"2J\0\0\0\x01\x10\0\0\0",
        "options.window_events": b"2W\x7f\0\0\0",
        "options.compressed_bytes": b"2C\x7f\0\0\0",
    }
    unfinished = b"2W\0\0\x0f\xff" + wire.json(_V2, 1, b"x" * 1000)
    endless = wire.json(_V2, 1, b"x" * 10_000)

    def acknowledged(self, sent: bytes) -> int:
        """Acknowledgements have the number of a window's last event."""
        seqs = [int.from_bytes(sent[at + 2 : at + 6]) for at in range(0, len(sent), 6)]
        assert seqs == sorted(seqs)
        return seqs[-1] if seqs else 0
