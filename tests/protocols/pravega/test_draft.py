"""The 2016 draft: every message, in any slices, and the reply to it."""

import itertools
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.pravega import draft_wire as wire
from gateway.protocols.pravega.client import DraftWriter
from gateway.protocols.pravega.frames import Frames, frame
from gateway.protocols.pravega.wire import NEVER
from making import Make
from pravega_draft import decode_segment_read, partial, read_segment

from .blocks import content
from .conftest import Block, W, X

VECTORS = Path(__file__).parents[2] / "vectors" / "pravega-draft.jsonl"


def whole(data: bytes, offset: int = 0, writer: bytes = W) -> bytes:
    """A block that holds exactly its events."""
    return (
        wire.block(wire.BEGIN_BLOCK, writer, offset, len(data))
        + data
        + wire.block(wire.END_BLOCK, writer, offset + len(data), len(data))
    )


class Peer:
    """A client of the 2016 draft."""

    def __init__(self, store: Any) -> None:
        self.inner = store.peer(hello=False)
        self.store = store

    def send(self, data: bytes) -> None:
        self.inner.connection.deliver(data)

    def ask(self, data: bytes) -> list[tuple[int, bytes]]:
        self.send(data)
        self.store.store()
        return self.got

    @property
    def got(self) -> list[tuple[int, bytes]]:
        raw = self.inner.connection.sent
        self.inner.connection.clear()
        return list(Frames(wire.REPLIES).feed(raw))

    def setup(self, segment: str = "s", writer: bytes = W) -> int:
        [(kind, payload)] = self.ask(wire.setup_append(writer, segment))
        assert kind == wire.APPEND_SETUP
        assert wire.decode_append_setup(payload)[:2] == (segment, writer)
        return wire.decode_append_setup(payload)[2]

    @property
    def refused(self) -> str:
        return str(self.inner.refused)


@pytest.fixture
def peer(store) -> Peer:
    return Peer(store)


def level(reply: tuple[int, bytes]) -> int:
    assert reply[0] == wire.DATA_APPENDED
    return wire.decode_data_appended(reply[1])[1]


@pytest.mark.parametrize(
    "vector",
    [json.loads(line) for line in VECTORS.read_text().splitlines()],
    ids=lambda vector: vector["name"],
)
def test_vectors(make_store, vector):
    """What tests/vectors/pravega-draft.jsonl says: bytes there, bytes back, events."""
    store = make_store()
    peer = store.peer(hello=False)
    for step in vector["steps"]:
        peer.connection.clear()
        peer.connection.deliver(bytes.fromhex(step["send"]))
        store.store()
        assert peer.connection.sent.hex() == step["get"]
    assert [payload.hex() for _, payload in store.rows] == vector["events"]
    assert bool(peer.connection.refused) == vector["closed"]


def test_a_writers_life(store, peer, block):
    """Level 0, a block, its acknowledgement when it is durable, the next block."""
    assert peer.setup() == 0
    first, second = block(b"hello", b""), block(b"world")
    peer.send(whole(first))
    assert peer.got == []
    store.store()
    [ack] = peer.got
    assert level(ack) == len(first)
    assert level(peer.ask(whole(second, len(first)))[0]) == len(first + second)
    assert content(store) == first + second
    assert store.rows == [("s", b"hello"), ("s", b""), ("s", b"world")]


def test_the_level_survives(store, peer, block):
    """Another connection and another run know it; what is below is not stored twice."""
    data = block(b"1", b"2", b"3")
    peer.setup()
    peer.ask(whole(data))
    peer.inner.connection.lose()
    again = Peer(store)
    assert again.setup() == len(data)
    assert level(again.ask(whole(data))[0]) == len(data)
    later = store.restarted()
    after = Peer(later)
    assert after.setup() == len(data)
    overlap = block(b"3", b"4")
    assert level(after.ask(whole(overlap, 18))[0]) == len(data) + 9
    assert later.rows == [("s", b"4")]
    assert content(later) == block(b"1", b"2", b"3", b"4")


def test_acks_of_a_group_are_one(store, peer, block):
    """Blocks that become durable together are acknowledged together, per writer."""
    peer.setup()
    peer.setup(writer=X)
    data = block(b"a")
    peer.send(whole(data) + whole(data, 9) + whole(data, 0, X))
    store.store()
    assert [wire.decode_data_appended(p) for _, p in peer.got] == [(W, 18), (X, 9)]


def test_open_block(store, peer, block):
    """A block whose length is left open ends with its end; reads go on meanwhile."""
    peer.setup()
    data = block(b"one", b"two")
    peer.send(wire.block(wire.BEGIN_BLOCK, W, 0, wire.OPEN))
    peer.send(wire.event(b"one") + frame(wire.KEEP_ALIVE, b"?"))
    assert peer.got == [(wire.KEEP_ALIVE, b"?")]
    peer.send(wire.event(b"two") + read_segment("s", 0, 10))
    [ack, found] = peer.ask(wire.block(wire.END_BLOCK, W, len(data), len(data)))
    assert level(ack) == len(data)
    assert decode_segment_read(found[1]).data == data[:10]
    assert content(store) == data


@pytest.mark.parametrize("length", [wire.OPEN, 0])
@pytest.mark.parametrize("cut", [0, 1, 7, 8, 9, 12])
def test_split_tail(store, peer, block, length, cut):
    """An event begun in a block goes on behind its end, in as many parts as it likes."""
    peer.setup()
    head, tail = block(b"head"), block(b"tail")
    area = head + partial(wire.BEGIN, tail[:cut])
    total = len(head + tail)
    begin = wire.block(wire.BEGIN_BLOCK, W, 0, len(area) if length == 0 else length)
    peer.send(begin + area + wire.block(wire.END_BLOCK, W, total, total))
    store.store()
    assert store.rows == []
    peer.send(partial(wire.MIDDLE, tail[cut : cut + 1]))
    [ack] = peer.ask(partial(wire.END, tail[cut + 1 :]))
    assert level(ack) == total
    assert content(store) == head + tail


def test_padding(store, peer, block):
    """A block longer than its events is cut to what its end says."""
    peer.setup()
    data = block(b"abc")
    for size, offset in ((3, 0), (8, 11), (100, 22)):
        area = data + bytes(size)
        peer.ask(
            wire.block(wire.BEGIN_BLOCK, W, offset, len(area))
            + area
            + wire.block(wire.END_BLOCK, W, offset, len(data))
        )
    assert content(store) == data * 3
    peer.send(wire.block(wire.BEGIN_BLOCK, W, 33, wire.OPEN))
    peer.send(wire.event(b"abc") + wire.event(b"not counted"))
    peer.ask(wire.block(wire.END_BLOCK, W, 33, len(data)))
    assert content(store) == data * 4


def test_an_event_in_parts_inside_a_block(store, peer, block):
    peer.setup()
    data = block(b"abcdef")
    area = (
        partial(wire.BEGIN, data[:3])
        + partial(wire.MIDDLE, b"")
        + partial(wire.END, data[3:])
    )
    peer.ask(
        wire.block(wire.BEGIN_BLOCK, W, 0, len(area))
        + area
        + wire.block(wire.END_BLOCK, W, 0, len(data))
    )
    assert store.rows == [("s", b"abcdef")]


def scripted(block: Block) -> list[bytes]:
    """A session with every message that is one."""
    data = block(b"first", b"second")
    return [
        wire.setup_append(W, "s"),
        wire.setup_append(X, "t"),
        frame(wire.KEEP_ALIVE, b"still there"),
        whole(data),
        read_segment("s", 0, 1000),
        wire.block(wire.BEGIN_BLOCK, X, 0, wire.OPEN),
        wire.event(b"open"),
        wire.event(b""),
        wire.block(wire.END_BLOCK, X, 20, 20),
        read_segment("t", 12, 8),
    ]


def outcome(store: Any, peer: Peer) -> tuple[Any, ...]:
    store.store()
    return sorted(peer.got), store.rows, content(store, "s"), content(store, "t")


def pieces(block: Block) -> list[tuple[bytes, bool]]:
    """The same session message by message, and whether one may come in parts: what lies
    in a block of announced length may not, nor what is a part already or comes between.
    """
    tail = block(b"begun in the block", b"")
    out: list[tuple[bytes, bool]] = []
    for number, message in enumerate(scripted(block)):
        if number == 3:
            begin, end = message[:36], message[-36:]
            out += [(begin, True), (message[36:-36], False), (end, True)]
        else:
            out.append((message, True))
    return [
        *out,
        (wire.block(wire.BEGIN_BLOCK, X, 20, wire.OPEN), True),
        (partial(wire.BEGIN, tail[:11]), False),
        (wire.block(wire.END_BLOCK, X, 20, 26), False),
        (partial(wire.END, tail[11:26]), False),
        (wire.setup_append(b"y" * 16, "t"), True),
    ]


def in_parts(message: bytes, cut: int) -> bytes:
    first = partial(wire.BEGIN, message[:cut])
    middle = partial(wire.MIDDLE, message[cut : cut + 1])
    return first + middle + partial(wire.END, message[cut + 1 :])


def played(make_store: Make, *streams: bytes) -> tuple[Any, ...]:
    store = make_store()
    peer = Peer(store)
    for stream in streams:
        peer.send(stream)
    assert not peer.inner.refused, peer.refused
    return outcome(store, peer)


def test_every_message_in_parts(make_store, block):
    """Each message may be parted at each of its bytes, header and all."""
    session = pieces(block)
    plain = [message for message, _ in session]
    wanted = played(make_store, b"".join(plain))
    assert [payload for _, payload in wanted[1]][-1] == b"begun in the block"
    for number, (message, may) in enumerate(session):
        if not may:
            continue
        for cut in range(len(message) + 1):
            sent = [*plain[:number], in_parts(message, cut), *plain[number + 1 :]]
            assert played(make_store, b"".join(sent)) == wanted


@pytest.mark.parametrize("odd", [0, 1])
def test_partial_around_every_other_message(make_store, block, odd):
    """Every second message comes in parts, wherever the stream is cut as well."""
    session = pieces(block)
    wanted = played(make_store, b"".join(message for message, _ in session))
    able = itertools.count()
    stream = b"".join(
        in_parts(message, len(message) // 2)
        if may and next(able) % 2 == odd
        else message
        for message, may in session
    )
    for cut in range(len(stream) + 1):
        assert played(make_store, stream[:cut], stream[cut:]) == wanted
    assert played(make_store, *(bytes((byte,)) for byte in stream)) == wanted


def test_keepalive_between_two_parts(make_store, peer, block):
    """A peer that takes long for a message shows that it is there meanwhile: between the
    parts of any message, wherever it is parted, also within a block.
    """
    message = wire.setup_append(W, "s")
    peer.send(partial(wire.BEGIN, message[:9]))
    peer.send(frame(wire.KEEP_ALIVE, b"here"))
    assert peer.got == [(wire.KEEP_ALIVE, b"here")]
    [(kind, _)] = peer.ask(partial(wire.END, message[9:]))
    assert kind == wire.APPEND_SETUP
    session = pieces(block)
    plain = [message for message, _ in session]
    for number, (message, may) in enumerate(session):
        if not may:
            continue
        for cut in range(0, len(message) + 1, 5):
            first = partial(wire.BEGIN, message[:cut])
            rest = partial(wire.END, message[cut:])
            alive = frame(wire.KEEP_ALIVE, b"here")
            before, behind = b"".join(plain[:number]), b"".join(plain[number + 1 :])
            whole = played(make_store, before + alive + message + behind)
            assert played(make_store, before + first + alive + rest + behind) == whole


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (wire.event(b"x"), "outside of an append block"),
        (wire.block(wire.END_BLOCK, W, 0, 0), "has not begun"),
        (wire.block(wire.BEGIN_BLOCK, X, 0, 8), "not set up"),
        (wire.block(wire.BEGIN_BLOCK, W, 1, 8), "append block at 1 of 0"),
        (wire.block(wire.BEGIN_BLOCK, W, -1, 8), "append block at -1"),
        (wire.block(wire.BEGIN_BLOCK, W, 0, -2), "append block of -2"),
        (wire.block(wire.BEGIN_BLOCK, W, 0, 1 << 24), "limits.message_bytes"),
        (partial(wire.MIDDLE, b""), "has not begun"),
        (partial(3, b""), "part 3"),
        (frame(wire.PARTIAL), "part None"),
        (partial(wire.BEGIN, b"a") * 2, "before the end of the last"),
        (partial(wire.BEGIN, b"a") + frame(8), "before the end of a partial"),
        (partial(0, b"a") + partial(2, b"b"), "do not make one message"),
        (partial(0, frame(100) * 2) + partial(2, b""), "one message"),
        (read_segment("missing", 0, 1), "does not exist"),
        (read_segment("s", -1, 1), "read at -1"),
        (wire.setup_append(W, "s#transaction.00"), "segment name"),
        (wire.setup_append(W, ""), "segment name"),
        (frame(wire.SETUP_APPEND, W, b"\0\5ab"), "too short"),
        (frame(wire.SETUP_APPEND, W, b"\0\1sss"), "too many"),
        (frame(wire.SETUP_APPEND, W, b"\0\1\xff"), "not UTF-8"),
        (frame(wire.APPEND_SETUP), "unknown message type 2"),
        (struct.pack(">iI", 1, 1 << 24), "limits.message_bytes"),
    ],
)
def test_violations(store, peer, block, bad, why):
    """Each is refused in words, and nothing of it is stored."""
    peer.setup()
    peer.send(bad)
    store.store()
    assert why in peer.refused
    assert store.rows == []


@pytest.mark.parametrize(
    ("area", "end", "why"),
    [
        (b"\0" * 7, (W, 0, 7), "ends inside a message"),
        (struct.pack(">ii", 0, 9) + b"x", (W, 0, 17), "ends inside a message"),
        (frame(100), (W, 0, 8), "type 100 inside"),
        (wire.event(b"x"), (W, 0, 8), "of 8 bytes ends inside an event"),
        (wire.event(b"x"), (W, 0, 10), "of 9 bytes, not 10"),
        (wire.event(b"x"), (W, 3, 9), "ends at 3"),
        (wire.event(b"x"), (X, 0, 9), "another connection id"),
        (wire.event(b"x"), (W, 0, -9), "block of -9 bytes"),
        (partial(0, b"a") + wire.event(b""), (W, 0, 99), "end of a partial"),
        (partial(0, b"a") + partial(2, b""), (W, 0, 99), "make no event"),
    ],
)
def test_bad_blocks(store, peer, area, end, why):
    """A block whose end does not fit it is refused whole."""
    peer.setup()
    peer.setup(writer=X)
    peer.send(wire.block(wire.BEGIN_BLOCK, W, 0, len(area)) + area)
    peer.send(wire.block(wire.END_BLOCK, *end))
    store.store()
    assert why in peer.refused
    assert store.rows == []


def test_tails_that_do_not_fit(make_store, block):
    """A tail too long, too short, of no event, or two ends: refused."""
    data = block(b"abcdef")
    begin = wire.block(wire.BEGIN_BLOCK, W, 0, wire.OPEN)
    end = wire.block(wire.END_BLOCK, W, 14, 14)
    start = begin + partial(0, data[:10]) + end
    for rest in (
        partial(1, b"defgh"),
        partial(2, data[10:-1]),
        partial(2, data[10:] + b"x"),
        end,
        frame(wire.SETUP_APPEND),
        wire.event(b""),
    ):
        store = make_store()
        peer = Peer(store)
        peer.setup()
        peer.send(start + rest)
        store.store()
        assert peer.inner.refused
        assert store.rows == []


def test_inside_an_open_block(make_store):
    """No setup and no other block come between begin and end."""
    for bad in (wire.setup_append(X, "s"), wire.block(wire.BEGIN_BLOCK, W, 0, 0)):
        peer = Peer(make_store())
        peer.setup()
        peer.send(wire.block(wire.BEGIN_BLOCK, W, 0, wire.OPEN) + bad)
        assert "inside an append block" in peer.refused


def test_open_blocks_are_bounded(make_store):
    """An open block may not grow for ever, nor may a message in parts."""
    peer = Peer(make_store(message_bytes=100))
    peer.setup()
    peer.send(wire.block(wire.BEGIN_BLOCK, W, 0, wire.OPEN) + wire.event(bytes(90)) * 2)
    assert "limits.message_bytes" in peer.refused
    peer = Peer(make_store(message_bytes=100))
    peer.send(partial(0, bytes(90)) + partial(1, bytes(90)))
    assert "limits.message_bytes" in peer.refused


def test_sealed_and_kinds(store, peer, block):
    """A sealed segment takes no block, a table no setup; a read tells the end."""
    state = store.container.state
    peer.setup()
    peer.ask(whole(block(b"a")))
    for change in (state.seal("s", 0), state.create_table("t", 0)):
        store.container.submit(change)
    store.store()
    [(_, payload)] = peer.ask(read_segment("s", 0, 100))
    found = decode_segment_read(payload)
    assert (found.data, found.at_tail, found.end) == (block(b"a"), False, True)
    other = Peer(store)
    other.send(wire.setup_append(W, "t"))
    assert "takes no appends" in other.refused
    peer.send(whole(block(b"b"), 9))
    assert "sealed" in peer.refused


def test_reads(store, peer, block):
    """At the tail a read waits; a long one is answered in several pieces."""
    peer.setup()
    data = block(b"x" * 600_000)
    peer.send(read_segment("s", 0, 1 << 20))
    assert peer.got == []
    replies = peer.ask(whole(data))
    found = [decode_segment_read(p) for k, p in replies if k == wire.SEGMENT_READ]
    assert len(found) == 3
    assert b"".join(each.data for each in found) == data
    assert [each.at_tail for each in found] == [False, False, True]
    assert [each.offset for each in found] == [0, 1 << 18, 2 << 18]
    peer.send(read_segment("s", len(data), 10))
    assert store.container.reads.waiting == 1
    peer.inner.connection.lose()
    assert store.container.reads.waiting == 0


def test_no_way_around_tokens(make_store):
    """Where a token is required, clients of the draft, which has none, get nothing."""
    store = make_store(
        check=lambda token, segment, need: None if segment == "open" else 0
    )
    for message in (wire.setup_append(W, "s"), read_segment("s", 0, 10)):
        peer = Peer(store)
        peer.send(message)
        assert "'s' asks for a token" in peer.refused
    assert Peer(store).setup("open") == 0


def test_truncated_is_the_end(store, peer, block):
    """The draft has no message for truncation: such a read ends, with no data."""
    peer.setup()
    peer.ask(whole(block(b"a")))
    store.container.submit(store.container.state.truncate("s", 9, 0))
    store.store()
    [(_, payload)] = peer.ask(read_segment("s", 0, 10))
    assert decode_segment_read(payload).end


def test_limits(make_store):
    """So many segments, so many appends on one connection."""
    store = make_store(segments=2, writers=2)
    peer = Peer(store)
    peer.setup("t")
    peer.setup("t", X)
    peer.send(wire.setup_append(b"y" * 16, "t"))
    assert "options.writers" in peer.refused
    peer = Peer(store)
    peer.send(wire.setup_append(W, "u"))
    assert "options.segments" in peer.refused


def test_what_streams_keep_is_bounded(make_store, block):
    """With what is staged, which they will keep, as in version 17."""
    store = make_store(retained_bytes=30)
    state, name = store.container.state, "s#transaction." + 32 * "0"
    store.container.submit(state.create(name, 0))
    append = state.append(name, X, 1, bytes(25), 0, claimed=1, last=NEVER)
    store.container.submit(append)
    peer = Peer(store)
    peer.setup()
    peer.send(whole(block(b"a")))
    assert "options.retained_bytes" in peer.refused


@settings(max_examples=100)
@given(st.data())
def test_any_bytes(make_store, data):
    """Whatever comes, in whatever order: an answer or a refusal, nothing else."""
    store = make_store()
    peer = Peer(store)
    kinds = st.sampled_from(sorted(wire.REQUESTS))
    messages = st.one_of(
        st.builds(frame, kinds, st.binary(max_size=40)),
        st.builds(
            wire.block,
            st.sampled_from([wire.BEGIN_BLOCK, wire.END_BLOCK]),
            st.just(W),
            st.integers(-1, 30),
            st.integers(-2, 30),
        ),
        st.just(wire.setup_append(W, "s")),
        st.builds(wire.event, st.binary(max_size=9)),
        st.builds(partial, st.integers(0, 2), st.binary(max_size=12)),
        st.builds(read_segment, st.just("s"), st.integers(-1, 9), st.just(9)),
    )
    for message in data.draw(st.lists(messages, max_size=12)):
        peer.send(message)
    store.store()
    assert peer.inner.connection.failure is None
    peer.inner.connection.lose()
    assert store.journal.reserved == 0


def test_a_writer_believes_no_impossible_level():
    """A level that can not be closes the connection."""
    from gateway.sdk.interfaces import Refusal

    writer = DraftWriter(W, "s")
    with pytest.raises(Refusal):
        writer.received(wire.append_setup("s", W, 5))


def begun(peer: Peer) -> str:
    """What the log is told when the network finds that nothing more comes."""
    return str(peer.inner.server.begun())


def test_a_block_that_ends_early_is_named(peer, block):
    """Writer, segment, how many bytes were announced and how many came."""
    peer.setup("plant/hall/0")
    data = block(b"one", b"two")
    assert begun(peer) == ""
    peer.send(wire.block(wire.BEGIN_BLOCK, W, 0, 100))
    peer.send(data)
    who = f"append block of writer {W.hex()} to 'plant/hall/0'"
    assert begun(peer) == f"{who}: 100 bytes announced, {len(data)} came"
    peer.send(bytes(100 - len(data)))
    assert begun(peer) == f"{who}: 100 bytes came, and not its end"
    peer.send(wire.block(wire.END_BLOCK, W, 0, len(data)))
    assert begun(peer) == ""
    peer.store.store()
    assert content(peer.store, "plant/hall/0") == data


def test_an_end_that_counts_as_data_is_told(peer, block):
    """It came too early: the writer waits for an answer, and can not see why."""
    peer.setup()
    end = wire.block(wire.END_BLOCK, W, 0, 11)
    peer.send(wire.block(wire.BEGIN_BLOCK, W, 0, 100) + block(b"one") + end)
    told = f"100 bytes announced, {11 + len(end)} came, the last of them its EndAppend"
    assert told in begun(peer)
    peer.send(b"more")
    assert begun(peer).endswith(f"{15 + len(end)} came")


def test_an_open_block_without_an_end_is_named(peer, block):
    """With what came of it; and another message with what it announced."""
    peer.send(read_segment("s", 0, 8)[:10])
    assert begun(peer) == "message of type 8: 15 bytes announced, 2 came"
    peer.send(read_segment("s", 0, 8)[10:])
    peer.setup()
    peer.send(wire.block(wire.BEGIN_BLOCK, W, 0, wire.OPEN) + block(b"one"))
    who = f"append block of writer {W.hex()} to 's'"
    assert begun(peer) == f"{who}: 11 bytes came, and not its end"
    peer.send(partial(wire.BEGIN, b"four"))
    assert begun(peer) == f"{who}: 15 bytes came, and not its end"
