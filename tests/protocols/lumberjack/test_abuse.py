"""Messages that bring nothing, and windows of next to nothing."""

from gateway.protocols.lumberjack import wire
from gateway.protocols.lumberjack.events import decode

_V2 = b"2"[0]


def _c(frames: bytes) -> bytes:
    return wire.compressed(_V2, frames, 9)


def _window(*bodies: bytes) -> bytes:
    frames = b"".join(wire.json(_V2, n, body) for n, body in enumerate(bodies, 1))
    return wire.window(_V2, len(bodies)) + frames


def test_windows_without_events(make_reader):
    """So many are answered; whoever sends no end of them is refused, with the key."""
    reader = make_reader(control_messages=100)
    for _ in range(50):
        reader.deliver(_window(b'{"n":1}') + wire.window(_V2, 0))
        reader.journal.store_all()
        reader.clock.advance(1)
    reader.deliver(wire.window(_V2, 0) * 60)
    assert reader.connection.refused is None
    assert reader.connection.sent.count(wire.ack(_V2, 0)) == 110
    reader.deliver(_c(wire.window(_V2, 0) * 20 + wire.json(_V2, 1, b"[]") * 150))
    refused = reader.connection.refused
    assert refused.limit == "100 at once, then 100 a second"
    assert refused.key == "limits.control_messages"


def test_tiny_windows_are_one_batch(make_reader):
    """Each is acknowledged, once all are stored; larger ones keep their own, and order."""
    reader = make_reader()
    reader.deliver(_window(b"{}") * 10 + _window(b'{"n":1}') + _window(b"[]", b"1"))
    batches = reader.journal.submitted
    assert [batch.count for batch in batches] == [10, 1, 1]
    assert reader.connection.sent == b""
    reader.journal.store_all()
    acks = [wire.ack(_V2, 1)] * 11 + [wire.ack(_V2, 2)]
    assert reader.connection.sent == b"".join(acks)
    numbers = [decode(batch.body).attributes["window"] for batch in batches]
    assert numbers == ["0", "11", "0"]
