"""Turns of the segment store: cheap messages delay nobody else for long."""

from typing import Any

import pytest

from gateway.protocols.pravega.codec import encode
from gateway.protocols.pravega.events import MOST_EVENTS, STEP_EVENTS
from gateway.protocols.pravega.records import decode
from gateway.protocols.pravega.wire import (
    NEVER,
    AppendBlockEnd,
    ConditionalBlockEnd,
    KeepAlive,
    SetupAppend,
)
from gateway.protocols.pravega.wire_segments import (
    CreateSegment,
    GetStreamSegmentInfo,
    MergeSegments,
    ReadSegment,
)
from gateway.protocols.pravega.wire_tables import ReadTable

from .conftest import TXN, W


def _append(number: int, data: bytes = b"") -> AppendBlockEnd:
    return AppendBlockEnd(W, len(data), data, 1, number, 9)


@pytest.mark.parametrize(
    "message",
    [
        lambda _: KeepAlive(),
        lambda _: ReadSegment("", 0, 0, "", 1),
        lambda _: GetStreamSegmentInfo(1, "", ""),
        lambda _: SetupAppend(1, W, "s"),
        lambda _: ReadTable(1, "", "", []),
        lambda n: CreateSegment(n, f"t{n}", 0, 0),
        lambda n: _append(n + 1),
    ],
    ids=["keepalive", "read", "info", "setup", "table", "create", "append"],
)
def test_messages_of_a_few_bytes(make_store, message):
    """No turn takes more than 500 of them; in the end all are taken."""
    store = make_store(unacknowledged_bytes=1 << 25, segments=5000)
    peer = store.peer()
    peer.setup()
    connection = peer.connection
    connection.stepwise = True
    connection.deliver(b"".join(encode(message(number)) for number in range(3000)))
    done = len(store.journal.submitted)
    while connection.turn_due:
        connection.take_turn()
        assert len(store.journal.submitted) - done <= 500
        done = len(store.journal.submitted)
    assert connection.turns >= 5
    assert connection.refused is None
    store.store()
    assert peer.got != []


def test_the_limit_holds_within_a_read(make_store):
    """What is over it stays, and is taken when there is room."""
    store = make_store(unacknowledged_bytes=10_000)
    peer = store.peer()
    peer.setup()
    event = bytes(4) + (1000).to_bytes(4) + bytes(1000)
    sent = b"".join(encode(_append(number, event)) for number in range(1, 101))
    peer.connection.deliver(sent)
    assert peer.connection.paused
    assert len(store.journal.pending) < 10
    while store.journal.pending:
        assert len(store.journal.pending) < 10
        store.journal.store()
        store.clock.advance(0)
    store.store()
    assert peer.got[-1].last_event == 100


def test_so_many_changes_at_once(make_store):
    """Everybody waits for the number of somebody's changes, and not for their bytes."""
    store = make_store(unacknowledged_bytes=8 << 20, segments=5000)
    peer = store.peer()
    for number in range(4000):
        peer.send(CreateSegment(number, f"t{number}", 0, 0))
    assert peer.connection.paused
    assert 1000 < len(store.journal.pending) <= 2048
    while store.journal.pending:
        store.store()
    assert len(store.container.state.segments) == 4001


def _zeros(count: int) -> bytes:
    """As many empty events."""
    return bytes(8 * count)


def test_many_events_are_stored_in_parts(make_store):
    """Each is acknowledged, in turns of its own, and begins where the last one ended."""
    store = make_store(unacknowledged_bytes=1 << 25)
    peer = store.peer()
    peer.setup()
    data = _zeros(70_000) + (bytes(7) + b"\1x") * 5
    connection = peer.connection
    connection.stepwise = True
    connection.deliver(encode(AppendBlockEnd(W, len(data), data, 70_005, 70_005, 9)))
    seen = len(store.journal.submitted)
    while connection.turn_due:
        connection.take_turn()
        assert len(store.journal.submitted) - seen <= 1
        seen = len(store.journal.submitted)
    store.store()
    batches = [one.batch for one in store.journal.stored if one.batch.count]
    assert [batch.count for batch in batches] == [32_768, 32_768, 4469]
    rows = [decode(batch.body) for batch in batches]
    assert [seq for each in rows for seq in each.seqs or ()][65_535::4464] == [
        65_535 * 8, 69_999 * 8,
    ]  # fmt: skip
    assert [row for each in rows for row in each.each()][-6:] == [b"", *[b"x"] * 5]
    last = peer.got[-1]
    assert (last.last_event, last.previous) == (70_005, NEVER)


def test_an_append_that_was_stored_in_part(make_store):
    """Its writer is told how far it got, and what is sent again is stored once."""
    store = make_store(unacknowledged_bytes=1 << 25)
    peer = store.peer()
    peer.setup()
    append = AppendBlockEnd(W, 560_000, _zeros(70_000), 70_000, 70_000, 9)
    peer.connection.stepwise = True
    peer.connection.deliver(encode(append))
    peer.connection.lose()
    store.store()
    again = store.peer()
    assert again.setup() == 32_768
    *_, last = again.ask(append)
    counts = [one.batch.count for one in store.journal.stored if one.batch.count]
    assert sum(counts) == 70_000
    assert last.last_event == 70_000


def test_zeros_that_are_no_events(make_store):
    """Much that looks like events, and was announced as one, is one row."""
    store = make_store(unacknowledged_bytes=1 << 25)
    peer = store.peer()
    peer.setup()
    data = _zeros(40_000)
    peer.ask(AppendBlockEnd(W, len(data), data, 1, 1, 9))
    [batch] = [one.batch for one in store.journal.stored if one.batch.count]
    rows = decode(batch.body)
    assert list(rows.each()) == [data]
    assert rows.flaws == {0: "unframed"}


def test_messages_without_end(make_store):
    """Whoever only asks is refused; whoever appends may ask, too."""
    store = make_store(control_messages=100)
    asks, works = store.peer(), store.peer()
    works.setup()
    for number in range(1, 200):
        works.ask(KeepAlive(), GetStreamSegmentInfo(1, "s", ""), _append(number, b"x"))
    assert works.refused == ""
    asks.send(*[KeepAlive()] * 200)
    assert "limit 100 at once, then 100 a second (limits.control_messages)" in (
        asks.refused
    )


def test_small_appends_to_a_long_name(make_store):
    """Few are taken, some each second, and no end of them is refused."""
    store = make_store(unacknowledged_bytes=1 << 25)
    name = "n" * 1000
    peer = store.peer()
    peer.ask(CreateSegment(1, name, 0, 0))
    peer.setup(name)
    for number in range(1, 60):
        peer.ask(_append(number, b"x"))
    store.clock.advance(10)
    for number in range(60, 120):
        peer.ask(_append(number, b"x"))
    assert peer.refused == ""
    peer.send(*(_append(number, b"x") for number in range(120, 300)))
    store.store()
    assert "long name" in peer.refused


@pytest.mark.parametrize("claimed", [1, 200_000])
def test_a_large_append_is_counted_in_turns(make_store, claimed):
    """Events of different sizes are walked one by one: some thousands in each turn.

    These steps are no messages of their own.
    """
    store = make_store(unacknowledged_bytes=1 << 25, control_messages=3)
    peer = store.peer()
    peer.setup()
    data = (bytes(8) + bytes(7) + b"\1x") * 100_000
    connection = peer.connection
    connection.stepwise = True
    connection.deliver(encode(AppendBlockEnd(W, len(data), data, claimed, claimed, 9)))
    while connection.turn_due:
        connection.take_turn()
    walked = 200_000 if claimed > 1 else MOST_EVENTS
    assert connection.turns >= walked // (2 * STEP_EVENTS)
    assert connection.refused is None
    store.store()
    batches = [one.batch for one in store.journal.stored if one.batch.count]
    assert sum(batch.count for batch in batches) == claimed
    assert peer.got[-1].last_event == claimed


def test_a_message_of_many_megabytes_is_taken_in_turns(make_store):
    """It is copied more than once, and no turn has two of these copies."""
    store = make_store(unacknowledged_bytes=1 << 25)
    peer = store.peer()
    peer.setup()
    connection = peer.connection
    connection.stepwise = True
    data = bytes(1 << 23)
    connection.deliver(encode(AppendBlockEnd(W, len(data), data, 1, 1, 9)))
    before = len(store.journal.submitted)
    while len(store.journal.submitted) == before:
        connection.take_turn()
    assert connection.turns == 2  # beyond the one that brought it
    store.store()
    assert peer.got[-1].last_event == 1


@pytest.mark.parametrize("conditional", [False, True])
def test_what_is_staged_is_counted_in_turns(make_store, conditional):
    """By whoever appends it; a merge that comes before that is done does the rest."""
    store = make_store(
        unacknowledged_bytes=1 << 25, transaction_bytes=1 << 25, control_messages=20
    )
    peer, other = store.peer(), store.peer()
    peer.ask(CreateSegment(1, TXN, 0, 0))
    peer.setup(TXN)
    data = (bytes(8) + bytes(7) + b"\1x") * 100_000
    append: Any = AppendBlockEnd(W, len(data), data, 1, 1, 9)
    if conditional:
        append = ConditionalBlockEnd(W, 1, 0, data, 9)
    peer.connection.stepwise = other.connection.stepwise = True
    peer.connection.deliver(encode(append))
    staged = store.container.state.segments[TXN].staged
    while not staged.data:
        peer.connection.take_turn()
    other.connection.deliver(encode(MergeSegments(2, "s", TXN)))
    while other.connection.turn_due:
        other.connection.take_turn()
    assert other.connection.turns >= 200_000 // (3 * STEP_EVENTS)
    while peer.connection.turn_due:
        peer.connection.take_turn()
    store.clock.advance(0)
    store.store()
    assert store.journal.stored[-1].batch.count == 200_000
    assert peer.connection.refused is None
