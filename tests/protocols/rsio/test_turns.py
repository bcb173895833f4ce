"""Turns: no message, however cheap to send, keeps the event loop from other peers."""

import random
import zlib
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from gateway.protocols.rsio import wire
from gateway.protocols.rsio.events import decode
from gateway.protocols.rsio.messages import (
    ClientHello,
    Compress,
    CompressAck,
    OnSubscribe,
    Ping,
    Pong,
    Request,
    Subscribe,
    Token,
)
from gateway.protocols.rsio.offsets import Key, Offsets
from gateway.sdk.costs import PER_SECOND

_READ = 1 << 18
AT_ONCE = 1 << 14
_HELLO = ClientHello(0, (1, 5, 6))


def _turns(gate: Any, data: bytes) -> Iterable[None]:
    """Deliver, and go on turn by turn."""
    gate.connection.stepwise = True
    gate.connection.deliver(data)
    yield
    while gate.connection.turn_due and not gate.connection.closed:
        gate.connection.take_turn()
        yield


def _blocks(messages: bytes, step: int = 1 << 20) -> bytes:
    deflater = zlib.compressobj()
    return b"".join(
        wire.block(
            deflater.compress(messages[at : at + step])
            + deflater.flush(zlib.Z_SYNC_FLUSH)
        )
        for at in range(0, len(messages), step)
    )


def test_subscriptions_without_end(gate):
    """Each costs more than a ping, so fewer are taken in a turn."""
    gate.say(_HELLO)
    asked = [wire.encode(Subscribe("", number, 1)) for number in range(40_000)]
    turns = [gate.connection.sent.count(b"E404") for _ in _turns(gate, b"".join(asked))]
    assert max(after - before for before, after in pairwise(turns)) < 400
    assert gate.connection.refused is not None


def test_honest_control_messages_are_never_too_many(gate):
    """A ping each second, a request for each element."""
    gate.say(_HELLO)
    gate.heard()
    for _ in range(2 * AT_ONCE // PER_SECOND):
        gate.say(*[Ping(b"")] * PER_SECOND)
        assert gate.heard() == [Pong(b"")] * PER_SECOND
        gate.clock.advance(1)
    gate.say(Subscribe("check/endless", 1, 1))
    for _ in range(AT_ONCE // 100 + 2):
        gate.say(wire.encode(Request(1, 1)) * 100)
    assert gate.connection.refused is None


def test_a_block_is_inflated_in_steps(make_gate):
    """At most 1 MiB and 64 Ki elements in a turn; messages lie across the steps."""
    gate = make_gate(window=1 << 24)
    gate.say(_HELLO, OnSubscribe(1, 0), Compress(1))
    assert gate.heard()[-1] == CompressAck(1)
    wanted = [b"%d" % number * 3 for number in range(150_000)]
    stream = _blocks(wire.on_next(1, wanted), 16 << 20) + wire.encode(Ping(b"after"))
    events = size = 0
    for _ in _turns(gate, stream):
        batches = gate.journal.submitted
        assert sum(batch.count for batch in batches) - events <= 1 << 16
        assert sum(batch.payload_bytes for batch in batches) - size <= 1 << 20
        events = sum(batch.count for batch in batches)
        size = sum(batch.payload_bytes for batch in batches)
    got = [each for batch in batches for each in decode(batch.body).each()]
    assert got == wanted
    assert gate.heard() == [Pong(b"after")]


def test_bytes_that_come_within_a_block_come_behind_it(make_gate):
    """A transport that delivers before the next turn changes nothing."""
    gate = make_gate(window=1 << 24)
    gate.say(_HELLO, OnSubscribe(1, 0), Compress(1))
    gate.heard()
    turns = _turns(gate, _blocks(wire.on_next(1, [b"1"] * 100_000)))
    next(iter(turns))
    gate.server.received(wire.encode(Ping(b"behind")))
    for _ in turns:
        pass
    assert sum(batch.count for batch in gate.journal.submitted) == 100_000
    assert gate.heard() == [Pong(b"behind")]


def test_unacknowledged_bytes_end_a_connections_turns(make_gate):
    """What is left waits until half of them are stored."""
    gate = make_gate(window=1 << 24, unacknowledged_bytes=1 << 20)
    gate.say(_HELLO, OnSubscribe(1, 0), Compress(1))
    noise = random.Random(1)  # which is stored as large as it is
    elements = [noise.randbytes(1000) for _ in range(5000)]
    stream = _blocks(wire.on_next(1, elements), 500 * 1004)
    gate.connection.deliver(stream)
    assert gate.connection.paused
    assert sum(len(batch.body) for batch in gate.journal.pending) < 3 << 20
    gate.journal.store_all()
    assert sum(batch.count for batch in gate.journal.submitted) == 5000


def test_packed_elements_at_the_end_of_a_turn(make_gate):
    """Wherever turns end, none is left lying, and none is taken twice."""
    gate = make_gate(window=1 << 24)
    gate.say(_HELLO, OnSubscribe(1, 1))
    stream = b"".join(
        wire.on_next_packed(1, 1, b"%d" % (n % 10)) for n in range(20_000)
    )
    for _ in _turns(gate, stream):
        gate.journal.store_all()
    rows = [
        row
        for stored in gate.journal.stored
        for row in decode(stored.batch.body).each()
    ]
    assert b"".join(rows) == b"0123456789" * 2000


@pytest.mark.parametrize("size", [0, 8])
def test_elements_of_blocks_are_stored_compressed(make_gate, size):
    """And are read back as they were, with their numbers."""
    gate = make_gate(window=1 << 24)
    gate.say(_HELLO, OnSubscribe(1, size), Compress(1))
    elements = [b"%08d" % (number % 500) for number in range(30_000)]
    gate.connection.deliver(_blocks(wire.on_next(1, elements, fixed=size > 0)))
    gate.journal.store_all()
    bodies = [stored.batch.body for stored in gate.journal.stored]
    assert sum(map(len, bodies)) < 20_000
    rows = [decode(body) for body in bodies]
    assert [payload for each in rows for payload in each.each()] == elements
    assert [seq for each in rows for seq in each.seqs or ()] == [*range(1, 30_001)]


def test_compressed_batches_say_how_far_a_sender_is(make_gate):
    """Offsets are known after a restart without inflating what was stored."""
    gate = make_gate(window=1 << 24)
    hello = ClientHello(0, (2, 4, 6))
    gate.say(hello, Token("name", b"n"), OnSubscribe(1, 0), Compress(1))
    gate.connection.deliver(_blocks(wire.on_next(1, [b"{}"] * 5000)))
    gate.journal.store_all()
    again = Offsets()
    for stored in gate.journal.stored:
        assert stored.batch.body[0] == 2
        again.replay(stored)
    assert dict(again.known) == {Key("n", "events"): 5000}


def test_honest_streams_of_fixed_size_are_no_growth(make_gate):
    """However many a peer serves, each a batch of its own: bytes count once a read."""
    gate = make_gate(subscribe=("a", "b", "c"), window=1 << 20)
    gate.say(ClientHello(0, ()), *(OnSubscribe(n, 8) for n in (1, 2, 3)))
    read = b"".join(wire.on_next_packed(n, 7500, bytes(60_000)) for n in (1, 2, 3))
    for _ in range(100):
        gate.connection.deliver(read)
        gate.journal.store_all()
        assert gate.connection.refused is None
    assert gate.connection.counted == 100 * 3 * 7500
