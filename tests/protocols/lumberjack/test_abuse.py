"""What little input can be made to cost: counted for every turn, never timed."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.protocols.lumberjack import wire
from gateway.protocols.lumberjack.events import decode
from gateway.protocols.lumberjack.session import Session

_V1, _V2 = b"12"
_RECEIVED = 1 << 18


def _c(frames: bytes) -> bytes:
    return wire.compressed(_V2, frames, 9)


def _window(*bodies: bytes) -> bytes:
    frames = b"".join(wire.json(_V2, n, body) for n, body in enumerate(bodies, 1))
    return wire.window(_V2, len(bodies)) + frames


def _long() -> bytes:
    """An event of 15 MiB that zlib makes small."""
    return b'{"a":"%s"}' % (b"x" * (15 << 20))


ATTACKS: dict[str, Callable[[], bytes]] = {
    "arrays of empty objects": lambda: (
        wire.window(_V2, 1) + _c(wire.json(_V2, 1, b"[" + b"{}," * 32_767 + b"{}]"))
    ),
    "larger arrays of empty objects": lambda: (
        wire.window(_V2, 1) + _c(wire.json(_V2, 1, b"[" + b"{}," * 65_000 + b"{}]"))
    ),
    "arrays of numbers": lambda: (
        wire.window(_V2, 1) + _c(wire.json(_V2, 1, b"[" + b"1," * 524_000 + b"1]"))
    ),
    "windows of none": lambda: _c(wire.window(_V2, 0) * 60_000),
    "windows of one": lambda: _c(_window(b"{}") * 30_000),
    "data of empty pairs": lambda: (
        wire.window(_V1, 1000) + _c(wire.data(_V1, 1, [(b"", b"")] * 1024) * 1000)
    ),
    "data of empty pairs, bare": lambda: (
        wire.window(_V1, 1) + wire.data(_V1, 1, [(b"", b"")] * 1024)
    ),
    "a long event": lambda: _c(_window(_long())),
    "a window of tiny events": lambda: (
        wire.window(_V2, 65_536) + _c(wire.json(_V2, 1, b"{}") * 65_536)
    ),
    "tiny events outside of windows": lambda: _c(wire.json(_V2, 1, b"{}") * 60_000),
    "windows over two frames": lambda: (
        wire.window(_V2, 3)
        + wire.json(_V2, 1, b"{}")
        + _c(wire.json(_V2, 2, b"{}") + wire.json(_V2, 3, b"{}"))
    ),
}


class Metered:
    """A server whose turns are taken one by one, and what the present one did."""

    def __init__(self, reader: Any) -> None:
        self.reader = reader
        self.inflated = self.events = 0
        reader.connection.stepwise = True

    def turns(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Events and inflated bytes of each turn; all is durable after each."""
        connection, journal = self.reader.connection, self.reader.journal
        connection.deliver(data)
        while True:
            yield self.events, self.inflated
            journal.store_all()
            self.events = self.inflated = 0
            if not connection.turn_due:
                return
            connection.take_turn()


@pytest.fixture
def metered(make_reader, monkeypatch) -> Metered:
    """With the default limits."""
    found = Metered(
        make_reader(
            message_bytes=16 << 20,
            inflated_bytes=100 << 20,
            unacknowledged_bytes=32 << 20,
            compressed_bytes=64 << 20,
        )
    )
    take, advance = Session._events, wire._Inflation.advance

    def taken(self: Session, token: Any, count: int, *args: Any) -> None:
        found.events += count
        take(self, token, count, *args)

    def advanced(self: Any, source: Any) -> float | None:
        before = self.inflated
        step = advance(self, source)
        found.inflated += self.inflated - before
        return step

    monkeypatch.setattr(Session, "_events", taken)
    monkeypatch.setattr(wire._Inflation, "advance", advanced)
    return found


@pytest.mark.parametrize("attack", ATTACKS)
def test_turns_and_the_journal_are_bounded(metered, attack):
    """64 Ki events and 1 MiB a turn at most, and a journal of four times the input."""
    reader = metered.reader
    unit = ATTACKS[attack]()
    sent = 0
    while sent < _RECEIVED and not reader.connection.closed:
        data = unit * 2
        sent += len(data)
        for events, inflated in metered.turns(data):
            assert inflated <= 1 << 20
            assert events <= 1 << 16
        if reader.connection.turns > 50 and reader.sent:
            break  # the rest is like it
    assert reader.connection.failure is None
    stored = sum(len(each.batch.body) for each in reader.journal.stored)
    assert stored <= 4 * sent + (1 << 16)
    for each in reader.journal.stored[:1]:
        assert decode(each.batch.body).count == each.batch.count <= 1 << 16
    assert reader.server.held_bytes <= len(unit) + (16 << 20)


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
