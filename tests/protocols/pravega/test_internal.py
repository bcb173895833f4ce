"""Internal segments, of reader groups and state synchronizers: kept in the state."""

from typing import Any

import pytest

from gateway.protocols.pravega import records, snapshot
from gateway.protocols.pravega import wire_segments as ws
from gateway.protocols.pravega.segment import is_internal
from gateway.protocols.pravega.segments import Segments
from gateway.protocols.pravega.wire import (
    AppendBlockEnd,
    ConditionalAppend,
    ConditionalBlockEnd,
    DataAppended,
    OperationUnsupported,
)

from .conftest import W

GROUP = "sc/_RGbilling/0.#epoch.0"
USERS = "sc/settings/0.#epoch.0"


class NoFiles:
    """Retention has deleted every file."""

    first_lsn = 1 << 40

    def read(self, *_: Any) -> Any:
        raise AssertionError("nothing is read from files")


def update(peer: Any, name: str, payload: bytes, at: int, number: int = 1) -> Any:
    """A conditional append, as state synchronizers make them."""
    [reply] = peer.ask(ConditionalAppend(W, number, at, payload, number))
    assert reply.last_event == number
    return reply


def synchronizer(store: Any, name: str, updates: int) -> tuple[Any, bytes]:
    """A peer that has made so many updates, and their bytes."""
    peer = store.peer()
    peer.ask(ws.CreateSegment(1, name, 0, 0))
    peer.setup(name)
    whole = b""
    for number in range(updates):
        payload = b"update %d" % number
        update(peer, name, payload, len(whole), number)
        whole += len(payload).to_bytes(8) + payload
    return peer, whole


def read(peer: Any, name: str, offset: int = 0) -> bytes:
    [reply] = peer.ask(ws.ReadSegment(name, offset, 1 << 20, "", 1))
    assert isinstance(reply, ws.SegmentRead)
    return reply.data


def test_which_are_internal_by_their_names():
    """Those of `_RG…` and `_MARK…` are; those of a user's stream, a transaction, are not."""
    assert is_internal(GROUP)
    assert is_internal("sc/_MARKorders/0.#epoch.0")
    assert not is_internal("sc/orders/0.#epoch.0")
    assert not is_internal("sc/_rg/0.#epoch.0")
    assert not is_internal("_RG/orders/0.#epoch.0")
    assert not is_internal(GROUP + "#transaction." + 32 * "0")


@pytest.mark.parametrize("name", [GROUP, USERS])
def test_updates_are_read_and_are_no_rows(store, name):
    """What a synchronizer wrote is read back; it has no lsn and is no row."""
    peer, whole = synchronizer(store, name, 20)
    assert read(peer, name) == whole
    assert read(peer, name, 16) == whole[16:]
    assert store.rows == []
    assert store.container.state.kept_bytes == len(whole)


@pytest.mark.parametrize("name", [GROUP, USERS])
def test_nothing_expires(store, make_store, name):
    """After retention has deleted every file, and a restart, from the journal or from a
    snapshot, all of it is still there, from the first byte on.
    """
    _, whole = synchronizer(store, name, 20)
    replayed = store.restarted().container.state
    saved = snapshot.restore(snapshot.save(store.container.state))
    for state in (replayed, saved):
        again = make_store(state=state, reader=NoFiles(), recent_bytes=1)
        peer = again.peer()
        [info] = peer.ask(ws.GetStreamSegmentInfo(1, name))
        assert (info.start_offset, info.write_offset) == (0, len(whole))
        assert read(peer, name) == whole
        assert state.kept_bytes == len(whole)


def test_truncated_and_deleted_it_takes_no_room(store):
    """A synchronizer that is compacted, and one that is deleted, give back their bytes."""
    peer, whole = synchronizer(store, GROUP, 20)
    peer.ask(ws.TruncateSegment(1, GROUP, 34))
    assert store.container.state.kept_bytes == len(whole) - 34
    assert read(peer, GROUP, 34) == whole[34:]
    saved = snapshot.restore(snapshot.save(store.container.state))
    kept = saved.find(GROUP).kept
    assert kept is not None
    assert (kept.begin, bytes(kept.data)) == (34, whole[34:])
    peer.ask(ws.DeleteSegment(1, GROUP))
    assert store.container.state.kept_bytes == 0


def test_a_snapshot_while_it_is_truncated(store):
    """A snapshot has the state of one moment, whatever is truncated while it is made."""
    peer, whole = synchronizer(store, USERS, 20)
    state = store.container.state
    writer = snapshot.SnapshotWriter(state)
    peer.ask(ws.TruncateSegment(1, USERS, 34))
    while writer.step():
        pass
    kept = snapshot.restore(writer.finish()).find(USERS).kept
    assert kept is not None
    assert (kept.begin, bytes(kept.data)) == (0, whole)


def test_events_first_are_events_for_ever(writer, store, block):
    """A stream that has events is a stream of events, whoever sends it an update; and a
    byte stream is no synchronizer, though its appends are conditional.
    """
    writer.ask(AppendBlockEnd(W, 12, block(b"evnt"), 1, 1, 1))
    update(writer, "s", b"more", 12, 2)
    assert [payload for _, payload in store.rows] == [b"evnt", b"more"]
    writer.ask(ws.CreateSegment(1, "b", 0, 0))
    writer.setup("b", b"x" * 16)
    writer.ask(ConditionalBlockEnd(b"x" * 16, 1, 0, b"bytes", 1))
    assert store.rows[-1] == ("b", b"bytes")
    assert store.container.state.kept_bytes == 0


def test_other_appends_to_it_are_kept_too(store, block):
    """What is appended to it without a condition is part of it."""
    peer, whole = synchronizer(store, USERS, 2)
    more = block(b"unconditional")
    [reply] = peer.ask(AppendBlockEnd(W, len(more), more, 1, 9, 1))
    assert isinstance(reply, DataAppended)
    assert read(peer, USERS) == whole + more
    assert store.rows == []


def test_updates_are_rows_for_who_wants_them(store):
    """With `synchronizers: rows` updates of a user's synchronizer are rows, too; the
    state of reader groups never is.
    """
    store.container.state.synchronizers_are_rows = True
    _, whole = synchronizer(store, USERS, 2)
    synchronizer(store, GROUP, 2)
    assert store.rows == [(USERS, b"update 0"), (USERS, b"update 1")]
    kept = store.container.state.find(USERS).kept
    assert bytes(kept.data) == whole


def test_too_much_is_refused_at_the_append(make_store):
    """One that nobody truncates is refused at a quarter of the limit, by name, limit and
    key; others go on; all together have the limit.
    """
    store = make_store(internal_bytes=400)
    peer = store.peer()
    peer.ask(ws.CreateSegment(1, GROUP, 0, 0))
    peer.setup(GROUP)
    update(peer, GROUP, bytes(80), 0)
    peer.send(ConditionalAppend(W, 2, 88, bytes(80), 2))
    assert peer.refused == (
        f"{GROUP!r}, of a reader group or synchronizer, has 176 bytes, and may have a "
        "quarter of the limit, limit 400 (options.internal_bytes)"
    )
    for other in range(4):
        peer = store.peer()
        name = f"sc/_RG{other}/0.#epoch.0"
        peer.ask(ws.CreateSegment(1, name, 0, 0))
        peer.setup(name)
        peer.ask(ConditionalAppend(W, 1, 0, bytes(80), 1))
    assert "440 bytes with an append to" in peer.refused
    assert store.container.state.kept_bytes == 352


def test_nothing_is_merged_into_it(store, block):
    """Transactions are for events: into an internal segment none can be merged."""
    peer, _ = synchronizer(store, USERS, 1)
    name = USERS + "#transaction." + 32 * "0"
    peer.ask(ws.CreateSegment(1, name, 0, 0))
    [reply] = peer.ask(ws.MergeSegments(1, USERS, name, "", ()))
    assert isinstance(reply, OperationUnsupported)


def test_one_of_an_earlier_version(store, block):
    """The state of a group that an earlier version stored as rows is read from there;
    what is appended since is kept, and is all once that is truncated.
    """
    state = Segments()
    old = block(b"old")
    for body in (
        records.pack(1, [records.Create(GROUP)]),
        records.pack(2, [records.Append(GROUP, 0, W, 1, 1, 1, memoryview(old))]),
    ):
        list(state.replay(body, 1, 0))
    segment = state.find(GROUP)
    assert segment.kept is None
    assert segment.lsn_near(0) == 1
    change = state.append(GROUP, W, 2, block(b"new"), 0, claimed=1, last=1)
    assert change.count == 0
    assert segment.kept is not None
    assert (segment.kept.begin, bytes(segment.kept.data)) == (len(old), block(b"new"))


def test_what_streams_keep_is_bounded(make_store, block):
    """With `retained_bytes` an append beyond that is refused, with segment, limit and key;
    what is truncated or deleted makes room.
    """
    store = make_store(retained_bytes=100)
    for number, offset in ((1, 0), (2, 80)):
        peer = store.peer()
        peer.setup()
        data = block(bytes(72))
        peer.send(AppendBlockEnd(W, len(data), data, 1, number, 1))
        store.store()
        if number == 1:
            peer.send(AppendBlockEnd(W, len(data), data, 1, 9, 1))
            assert peer.refused == (
                "160 bytes of events that streams keep, with an append to 's', limit "
                "100 (options.retained_bytes)"
            )
            store.peer().ask(ws.TruncateSegment(1, "s", 80))
        assert store.container.state.find("s").length == offset + 80
    state = store.container.state
    assert (state.retained_bytes, state.retained) == (80, {"s": 80})
    assert snapshot.restore(snapshot.save(state)).retained == {"s": 80}
    store.peer().ask(ws.DeleteSegment(1, "s"))
    assert (state.retained_bytes, state.retained) == (0, {})


def test_what_lies_behind_lost_bytes_has_its_own_offsets():
    """An update that a damaged journal lost leaves a gap: what follows is read where it
    was written, and nothing is read in the gap as if it was.
    """
    whole, damaged = Segments(), Segments()
    bodies = [whole.create(GROUP, 0).body]
    for number, data in enumerate((b"aaaa", b"bb", b"cccc", b"dd"), 1):
        last = number - 1 or -(1 << 63)
        change = whole.append(GROUP, W, number, data, 0, claimed=1, last=last)
        bodies.append(change.body)
    for at, body in enumerate(bodies):
        if at != 2:
            list(damaged.replay(body, 0, 0))
    kept = damaged.find(GROUP).kept
    assert kept is not None
    assert (kept.begin, kept.read(6, 9)) == (6, b"ccccdd")
    assert damaged.kept_bytes == 6
