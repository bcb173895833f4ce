"""Windows of a Lumberjack writer, whole and in part."""

from gateway.protocols.lumberjack import wire

__all__ = ["KEEPALIVE", "V1", "V2", "part", "window"]

V1, V2 = b"12"
KEEPALIVE = b"2A\0\0\0\0"


def window(*seqs: int, version: int = V2, body: bytes = b"{}") -> bytes:
    frames = b"".join(wire.json(version, seq, body) for seq in seqs)
    return wire.window(version, len(seqs)) + wire.compressed(version, frames)


def part(*seqs: int, of: int = 1000, version: int = V1) -> bytes:
    """The begin of a window of so many events."""
    frames = [wire.data(version, seq, [(b"line", b"hello")]) for seq in seqs]
    return wire.window(version, of) + b"".join(frames)
