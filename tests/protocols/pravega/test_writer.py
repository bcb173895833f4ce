"""The writer of `gateway send`, in both versions of the protocol, against our server."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.pravega.client import DraftWriter, V17Writer
from gateway.protocols.pravega.codec import REQUESTS, decode, encode
from gateway.protocols.pravega.errors import Denied, Need
from gateway.protocols.pravega.frames import Frames
from gateway.protocols.pravega.wire import (
    AppendBlockEnd,
    AppendSetup,
    DataAppended,
    SegmentAlreadyExists,
    SegmentIsSealed,
    SetupAppend,
)
from gateway.protocols.pravega.writer import Writer
from gateway.sdk.interfaces import Refusal
from gateway.sdk.sender import Batch

from .conftest import W

KINDS = pytest.mark.parametrize("kind", [DraftWriter, V17Writer])


class Link:
    """One connection of a writer to a store."""

    def __init__(self, store: Any, writer: Writer) -> None:
        self.store = store
        self.writer = writer
        self.peer = store.peer(hello=False)
        self.say(writer.connected())

    def say(self, data: bytes) -> None:
        if data:
            self.peer.connection.deliver(data)

    def turn(self, *, store: bool = True) -> list[Batch]:
        """The writer writes, the disk does its work, the answers arrive."""
        self.say(self.writer.take())
        if store:
            self.store.store()
        answer = self.peer.connection.sent
        self.peer.connection.clear()
        return list(self.writer.received(answer))

    def lose(self) -> None:
        self.peer.connection.lose()
        self.writer.disconnected()


def batches(*sizes: int) -> list[Batch]:
    """Lots of events that differ."""
    numbers = iter(range(10_000))
    return [Batch([b"event %d" % next(numbers) for _ in range(n)]) for n in sizes]


@KINDS
def test_lots_are_acknowledged_as_a_whole(store, kind):
    """In their order, when the last event of each is durable."""
    writer = Writer(kind(W, "s"))
    mine = batches(3, 1, 5)
    for batch in mine:
        writer.add(batch)
    link = Link(store, writer)
    done: list[Batch] = []
    while not done:
        done += link.turn()
    assert done == mine
    assert not writer.waiting
    assert [payload for _, payload in store.rows] == [b"event %d" % n for n in range(9)]


@KINDS
def test_the_window(store, kind):
    """Lots wait while as many events are on their way as may be."""
    writer = Writer(kind(W, "s"), window=4)
    for batch in batches(3, 3, 3):
        writer.add(batch)
    link = Link(store, writer)
    link.turn()
    link.turn()
    link.turn(store=False)
    assert len(store.rows) <= 6
    assert len(writer.batches) >= 1
    while writer.batches:
        link.turn()
    assert len(store.rows) == 9


@KINDS
@settings(max_examples=40, deadline=None)
@given(turns=st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 5))))
def test_exactly_once(make_store, kind, turns):
    """Whenever the connection breaks, before the store or behind it, nothing is twice."""
    store = make_store()
    writer = Writer(kind(W, "s"), window=6)
    given_lots = batches(*[more for _, _, more in turns if more], 1)
    waiting = iter(given_lots)
    link = Link(store, writer)
    for stored, breaks, more in turns:
        if more:
            writer.add(next(waiting))
        link.turn(store=stored)
        if breaks:
            link.lose()
            link = Link(store, writer)
    writer.add(next(waiting))
    while writer.batches:
        link.turn()
    events = [event for batch in given_lots for event in batch.events]
    assert [payload for _, payload in store.rows] == events
    assert all(batch.done for batch in given_lots)


def test_a_segment_that_is_not_there(store):
    """Today's wire makes it first, and appends to it then."""
    writer = Writer(V17Writer(W, "new/stream/0.#epoch.0"))
    writer.add(batches(2)[0])
    link = Link(store, writer)
    while writer.batches:
        link.turn()
    assert {channel for channel, _ in store.rows} == {"new/stream/0.#epoch.0"}


def test_who_may_write_and_create_nothing(make_store):
    """It writes to a segment that is there."""
    denied = Denied(Refusal("no"))
    store = make_store(check=lambda *asked: denied if Need.MANAGE in asked else None)
    writer = Writer(V17Writer(W, "s"))
    writer.add(batches(2)[0])
    link = Link(store, writer)
    while writer.batches:
        link.turn()
    assert len(store.rows) == 2


def test_its_token():
    """What the controller gave goes with everything that asks for it."""
    writer = V17Writer(W, "s", token="t0k")
    writer.connected()
    writer.received(encode(SegmentAlreadyExists(0, "s")))
    [setup] = [decode(*one) for one in Frames(REQUESTS).feed(b"".join(writer.blocks()))]
    assert isinstance(setup, SetupAppend)
    assert setup.token == "t0k"


def test_blocks_have_a_size():
    """An event that is larger than a block is one of its own."""
    writer = V17Writer(W, "s")
    writer.connected()
    writer.add([b"x" * 10] * 5 + [b"y" * 500] + [b"z"])
    writer.received(encode(AppendSetup(1, "s", W, 0)))
    ends = [
        message
        for data in writer.blocks(most=60)
        for message in (decode(*one) for one in Frames(REQUESTS).feed(data))
        if isinstance(message, AppendBlockEnd)
    ]
    assert [end.events for end in ends] == [3, 2, 1, 1]
    assert [end.last_event for end in ends] == [3, 5, 6, 7]


@pytest.mark.parametrize(
    "answer", [SegmentIsSealed(1, "s"), DataAppended(W, 5), AppendSetup(1, "s", W, 5)]
)
def test_what_can_not_be(answer):
    """A refusal, or an acknowledgement of what was not sent, ends the connection."""
    writer = V17Writer(W, "s")
    writer.connected()
    with pytest.raises(Refusal):
        writer.received(encode(answer))


@KINDS
@settings(max_examples=60, deadline=None)
@given(
    turns=st.lists(
        st.tuples(st.booleans(), st.sampled_from(["", "loses", "sets aside"])),
        min_size=1,
        max_size=40,
    )
)
def test_what_is_set_aside(make_store, kind, turns):
    """It is stored or told to be refused, never both; all others are stored once, in order."""
    store = make_store()
    writer = Writer(kind(W, "s"), window=8)
    lots = batches(3, 1, 4, 2)
    for batch in lots:
        writer.add(batch)
    link = Link(store, writer)
    suspects = set()
    for stored, breaks in turns:
        writer.at_once = 1
        link.turn(store=stored)
        if breaks:
            alone = writer.in_flight == 1
            link.lose()
            if alone and breaks == "sets aside":
                oldest = writer.batches[0]
                suspects.add(oldest.events[oldest.acknowledged])
                writer.set_aside()
            link = Link(store, writer)
    writer.at_once = None
    while writer.batches:
        link.turn()
    kept = [
        event
        for batch in lots
        for place, event in enumerate(batch.events)
        if place not in batch.refused
    ]
    assert [payload for _, payload in store.rows] == kept
    assert {each for batch in lots for each in batch.events} - {*kept} <= suspects
    assert all(batch.done for batch in lots)
    assert sum(batch.stored for batch in lots) == len(kept)
