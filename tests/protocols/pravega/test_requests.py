"""Requests about segments and tables in version 17, and their replies.

Numbers in the names are those of the list of behaviours in docs/pravega.md.
"""

from typing import Any

import pytest

from gateway.protocols.pravega import wire
from gateway.protocols.pravega import wire_segments as ws
from gateway.protocols.pravega import wire_tables as wt
from gateway.protocols.pravega.codec import AttributeUpdate, Entry
from gateway.protocols.pravega.frames import frame
from gateway.protocols.pravega.segment import EVENT_COUNT

from .conftest import TXN, W, X


def test_53_twice(peer):
    """Each says what is, the second time."""
    assert peer.ask(ws.CreateSegment(1, "t", 0, 0), ws.CreateSegment(2, "t", 0, 0)) == [
        ws.SegmentCreated(1, "t"),
        wire.SegmentAlreadyExists(2, "t"),
    ]
    assert peer.ask(ws.TruncateSegment(3, "t", 0), ws.TruncateSegment(4, "t", 0)) == [
        ws.SegmentTruncated(3, "t"),
        ws.SegmentTruncated(4, "t"),
    ]
    assert peer.ask(ws.SealSegment(5, "t"), ws.SealSegment(6, "t")) == [
        ws.SegmentSealed(5, "t"),
        wire.SegmentIsSealed(6, "t"),
    ]
    assert peer.ask(ws.DeleteSegment(7, "t"), ws.DeleteSegment(8, "t")) == [
        ws.SegmentDeleted(7, "t"),
        wire.NoSuchSegment(8, "t"),
    ]


def test_replies_wait_for_the_disk(store):
    """Also those that only tell of what another connection has asked for."""
    peer, other = store.peer(), store.peer()
    peer.send(ws.CreateSegment(1, "t", 0, 0))
    other.send(ws.CreateSegment(2, "t", 0, 0))
    assert peer.got == other.got == []
    store.store()
    assert peer.got == [ws.SegmentCreated(1, "t")]
    assert other.got == [wire.SegmentAlreadyExists(2, "t")]


def test_54_merge(peer, store, block):
    """A merge moves data and count, and may be asked for again."""
    peer.ask(ws.CreateSegment(1, TXN, 0, 0))
    peer.setup(TXN)
    data = block(b"a", b"b")
    peer.ask(wire.AppendBlockEnd(W, len(data), data, 2, 2, 1))
    assert store.rows == []
    assert peer.ask(ws.MergeSegments(2, "s", TXN)) == [
        ws.SegmentsMerged(2, "s", TXN, 18)
    ]
    assert store.rows == [("s", b"a"), ("s", b"b")]
    assert peer.ask(ws.MergeSegments(3, "s", TXN)) == [
        ws.SegmentsMerged(3, "s", TXN, 18)
    ]
    assert peer.ask(ws.GetSegmentAttribute(4, "s", EVENT_COUNT)) == [
        ws.SegmentAttribute(4, 2)
    ]
    peer.send(ws.ReadSegment("s", 0, 99, "", 5))
    assert peer.got == [ws.SegmentRead("s", 0, True, False, data, 5)]
    again = store.restarted().peer()
    assert again.ask(ws.MergeSegments(6, "s", TXN)) == [
        ws.SegmentsMerged(6, "s", TXN, 18)
    ]


def test_54_merge_refused(peer):
    """No target, no source, a seal, a condition: each in its own words."""
    peer.ask(ws.CreateSegment(1, TXN, 0, 0))
    condition = [AttributeUpdate(X, 4, 1, 0)]
    assert peer.ask(
        ws.MergeSegments(2, "t", TXN),
        ws.MergeSegments(3, "s", "t"),
        ws.MergeSegments(4, "s", "s"),
        ws.MergeSegments(5, "s", TXN, "", condition),
        ws.SealSegment(6, "s"),
        ws.MergeSegments(7, "s", TXN),
    ) == [
        wire.NoSuchSegment(2, "t"),
        wire.NoSuchSegment(3, "t"),
        wire.OperationUnsupported(4, "MergeSegments"),
        ws.SegmentAttributeUpdated(5, False),
        ws.SegmentSealed(6, "s"),
        wire.SegmentIsSealed(7, "s"),
    ]


def test_55_info(writer):
    """How a segment is; of a missing one, that it is not there."""
    writer.ask(
        wire.AppendBlockEnd(W, 3, b"abc", 1, 1, 1), ws.TruncateSegment(1, "s", 2)
    )
    now = 1_700_000_000_000
    assert writer.ask(
        ws.GetStreamSegmentInfo(2, "s"), ws.GetStreamSegmentInfo(3, "t")
    ) == [
        ws.StreamSegmentInfo(2, "s", True, False, False, now, 3, 2),
        wire.NoSuchSegment(3, "t"),
    ]


def test_41_transients_go_with_their_connection(peer, store, block):
    """A large event that is not merged leaves nothing, nor after a crash."""
    [made] = peer.ask(ws.CreateTransientSegment(1, W, "s"))
    assert made.segment.startswith("s#transient.")
    assert len(made.segment) == len("s#transient.") + 32
    [other] = peer.ask(ws.CreateTransientSegment(2, X, "s"))
    peer.setup(made.segment)
    peer.setup(other.segment, X)
    peer.ask(
        wire.ConditionalBlockEnd(W, 1, 0, block(b"large")),
        wire.ConditionalBlockEnd(X, 1, 0, block(b"half of it")[:13]),
    )
    crashed = store.restarted()
    crashed.store()
    assert peer.ask(ws.MergeSegments(3, "s", made.segment)) == [
        ws.SegmentsMerged(3, "s", made.segment, 13)
    ]
    [third] = peer.ask(ws.CreateTransientSegment(5, X, "s"))
    peer.ask(ws.DeleteSegment(6, third.segment))
    assert [*peer.server._session._requests.transients] == [other.segment]
    peer.connection.lose()
    store.store()
    for one in (store, crashed):
        assert set(one.container.state.segments) == {"s"}
        assert one.container.state.staged_bytes == 0
    assert store.rows == [("s", b"large")]
    assert crashed.rows == []
    assert store.peer().ask(ws.CreateTransientSegment(4, W, "t")) == [
        wire.NoSuchSegment(4, "t")
    ]


def test_42_unsupported(peer):
    """What does not fit the segment."""
    peer.ask(wt.CreateTableSegment(0, "t"))
    assert peer.ask(wt.ReadTable(3, "s", "", []), ws.SealSegment(4, "t")) == [
        wire.OperationUnsupported(3, "ReadTable"),
        wire.OperationUnsupported(4, "SealSegment"),
    ]


def test_attributes(peer):
    """Numbers of a segment change on a condition."""
    assert peer.ask(
        ws.GetSegmentAttribute(1, "s", X),
        ws.UpdateSegmentAttribute(2, "s", X, 5, wire.NEVER),
        ws.UpdateSegmentAttribute(3, "s", X, 6, wire.NEVER),
        ws.GetSegmentAttribute(4, "s", X),
        ws.GetSegmentAttribute(6, "t", X),
    ) == [
        ws.SegmentAttribute(1, wire.NEVER),
        ws.SegmentAttributeUpdated(2, True),
        ws.SegmentAttributeUpdated(3, False),
        ws.SegmentAttribute(4, 5),
        wire.NoSuchSegment(6, "t"),
    ]


def test_a_merge_may_set_a_writers_number(peer, store):
    """Large events count as their writer's: its number is an attribute."""
    peer.ask(ws.CreateSegment(1, TXN, 0, 0))
    peer.ask(ws.MergeSegments(2, "s", TXN, "", [AttributeUpdate(W, 4, 7, wire.NEVER)]))
    assert peer.setup() == 7
    peer.ask(wire.AppendBlockEnd(W, 3, b"abc", 1, 8, 1))
    assert peer.ask(ws.GetSegmentAttribute(3, "s", W)) == [ws.SegmentAttribute(3, 8)]
    peer.ask(ws.UpdateSegmentAttribute(4, "s", W, 20, 8))
    assert store.restarted().peer().setup() == 20


def test_locate(writer, block):
    """An offset where an event begins, not before the one asked for."""
    data = block(b"x" * (1 << 18))
    for number in (1, 2):
        writer.ask(wire.AppendBlockEnd(W, len(data), data, 1, number, 1))
    assert writer.ask(
        ws.LocateOffset(1, "s", 0),
        ws.LocateOffset(2, "s", 1),
        ws.LocateOffset(3, "s", 1 << 40),
        ws.LocateOffset(4, "t", 0),
    ) == [
        ws.OffsetLocated(1, "s", 0),
        ws.OffsetLocated(2, "s", len(data)),
        ws.OffsetLocated(3, "s", 2 * len(data)),
        wire.NoSuchSegment(4, "t"),
    ]


def test_tables(peer):
    """The whole life of one, as Rust's reader groups lead it."""
    a, b = Entry(b"a", -1, b"1"), Entry(b"b", wire.NEVER, b"2")
    assert peer.ask(
        wt.CreateTableSegment(1, "t"),
        wt.CreateTableSegment(2, "t"),
        wt.UpdateTableEntries(3, "t", "", [a, b]),
        wt.UpdateTableEntries(4, "t", "", [a]),
        wt.UpdateTableEntries(5, "t", "", [Entry(b"c", 9, b"")]),
        wt.UpdateTableEntries(6, "t", "", [Entry(b"a", 0, b"3")], 2),
        wt.UpdateTableEntries(7, "t", "", [b], 2),
        wt.ReadTable(8, "t", "", [Entry(b"a", wire.NEVER), Entry(b"z", wire.NEVER)]),
        wt.GetTableSegmentInfo(9, "t"),
    ) == [
        ws.SegmentCreated(1, "t"),
        wire.SegmentAlreadyExists(2, "t"),
        wt.TableEntriesUpdated(3, [0, 1]),
        wire.TableKeyBadVersion(4, "t"),
        wire.TableKeyDoesNotExist(5, "t"),
        wt.TableEntriesUpdated(6, [2]),
        wire.SegmentIsTruncated(7, "t", 3, "", 2),
        wt.TableRead(8, "t", [Entry(b"a", 2, b"3"), Entry(b"z", -1, b"")]),
        wt.TableSegmentInfo(9, "t", 0, 3, 2, 0),
    ]
    assert peer.ask(
        wt.ReadTableEntriesDelta(1, "t", "", 0, 1),
        wt.ReadTableEntriesDelta(2, "t", "", 2, 9),
        wt.ReadTableEntriesDelta(3, "t", "", 3, 9),
    ) == [
        wt.TableEntriesDeltaRead(1, "t", [Entry(b"b", 1, b"2")], False, False, 2),
        wt.TableEntriesDeltaRead(2, "t", [Entry(b"a", 2, b"3")], False, True, 3),
        wt.TableEntriesDeltaRead(3, "t", [], False, True, 3),
    ]
    assert peer.ask(
        wt.DeleteTableSegment(1, "t", True),
        wt.RemoveTableKeys(2, "t", "", [Entry(b"a", 0)]),
        wt.RemoveTableKeys(3, "t", "", [Entry(b"a", 2), Entry(b"b", wire.NEVER)]),
        wt.DeleteTableSegment(4, "t", True),
        wt.ReadTable(5, "t", "", []),
    ) == [
        wire.TableSegmentNotEmpty(1, "t"),
        wire.TableKeyBadVersion(2, "t"),
        wt.TableKeysRemoved(3, "t"),
        ws.SegmentDeleted(4, "t"),
        wire.NoSuchSegment(5, "t"),
    ]


def test_iterating_over_tables(peer):
    """Each reply says where to go on, until there is nothing; odd tokens are no harm."""
    entries = [Entry(b"%d" % n, wire.NEVER, b"v") for n in range(5)]
    peer.ask(wt.CreateTableSegment(1, "t"), wt.UpdateTableEntries(2, "t", "", entries))
    seen: list[bytes] = []
    token = b""
    while True:
        [keys] = peer.ask(wt.ReadTableKeys(3, "t", "", 2, token))
        [found] = peer.ask(wt.ReadTableEntries(4, "t", "", 2, token))
        assert [k.key for k in keys.keys] == [e.key for e in found.entries]
        if not keys.keys:
            break
        seen += [k.key for k in keys.keys]
        token = keys.continuation
    assert seen == [b"0", b"1", b"2", b"3", b"4"]
    [odd] = peer.ask(wt.ReadTableKeys(5, "t", "", -1, b"\xff" * 40))
    assert odd.keys == []


def test_ranges_of_keys(peer, store):
    """Tables with keys of a fixed size are read by ranges of keys, both ends included,
    in their order; and so they are after updates, removals and a restart.
    """
    peer.ask(wt.CreateTableSegment(1, "t", "", key_bytes=2))

    def put(*keys: bytes) -> None:
        entries = [Entry(key, wire.NEVER, b"of " + key) for key in keys]
        peer.ask(wt.UpdateTableEntries(2, "t", "", entries))

    def read(first: bytes, last: bytes, count: int = 9, by: Any = peer) -> list[bytes]:
        ends = {"from_key": first, "to_key": last}
        [keys] = by.ask(wt.ReadTableKeys(3, "t", "", count, **ends))
        [found] = by.ask(wt.ReadTableEntries(4, "t", "", count, **ends))
        assert [each.key for each in keys.keys] == [each.key for each in found.entries]
        assert all(each.value == b"of " + each.key for each in found.entries)
        return [each.key for each in found.entries]

    put(b"03", b"01", b"05", b"02")
    assert read(b"01", b"03") == [b"01", b"02", b"03"]
    assert read(b"02", b"99", 2) == [b"02", b"03"]
    assert read(b"06", b"99") == []
    put(b"04", b"03")
    peer.ask(wt.RemoveTableKeys(5, "t", "", [Entry(b"02", wire.NEVER)]))
    peer.ask(wt.RemoveTableKeys(5, "t", "", [Entry(b"77", wire.NEVER)]))
    assert read(b"", b"") == [b"01", b"03", b"04", b"05"]
    assert read(b"", b"", by=store.restarted().peer()) == read(b"", b"")
    [refused] = peer.ask(
        wt.UpdateTableEntries(6, "t", "", [Entry(b"long", wire.NEVER, b"")])
    )
    assert refused == wire.TableKeyBadVersion(6, "t")


@pytest.mark.parametrize("name", ["", "x" * 1025])
def test_names_are_bounded(peer, name):
    """An empty name and an endless one are refused."""
    peer.send(ws.CreateSegment(1, name, 0, 0))
    assert "segment name" in peer.refused


def test_a_name_that_no_reply_can_have(peer):
    """As plain UTF-8 it is shorter than as replies are written: it is refused in words."""
    name = "\U0001f600".encode() * 16383
    sent = bytes(8) + len(name).to_bytes(2) + name + bytes(2)
    peer.connection.deliver(frame(11, sent))
    assert peer.refused == "text of 98298 bytes, limit 65535"


def test_segments_and_tables_are_bounded(make_store):
    """There are so many segments, and tables of such a size, and no more; of one that is
    there a client is told so all the same.
    """
    store = make_store(segments=2, table_bytes=5)
    peer = store.peer()
    peer.ask(wt.CreateTableSegment(1, "t"))
    other = store.peer()
    other.send(ws.CreateSegment(2, "u", 0, 0))
    assert "options.segments" in other.refused
    assert store.peer().ask(
        wt.CreateTableSegment(3, "t"), ws.CreateSegment(4, "s", 0, 0)
    ) == [
        wire.SegmentAlreadyExists(3, "t"),
        wire.SegmentAlreadyExists(4, "s"),
    ]
    peer.send(wt.UpdateTableEntries(3, "t", "", [Entry(b"key", wire.NEVER, b"abc")]))
    assert "options.table_bytes" in peer.refused


def large_value(peer: Any) -> Entry:
    """Put half a MiB into a new table `t`; returns its key."""
    large = Entry(b"k", wire.NEVER, bytes(1 << 19))
    peer.ask(wt.CreateTableSegment(1, "t"), wt.UpdateTableEntries(2, "t", "", [large]))
    return Entry(b"k", wire.NEVER)


def test_a_small_request_gets_no_endless_reply(peer):
    """One that asks for a large value many times is refused before it is put together."""
    key = large_value(peer)
    peer.send(wt.ReadTable(3, "t", "", [key] * 30_000))
    assert "reply of" in peer.refused


def test_replies_that_wait_are_bounded(peer):
    """While the disk does not answer, replies do not pile up; else all are given."""
    key = large_value(peer)
    many = [wt.ReadTable(3, "t", "", [key] * 8)] * 20
    assert len(peer.ask(*many)) == 20
    peer.ask(ws.CreateSegment(4, "u", 0, 0), *many)
    assert "replies that wait" in peer.refused


def test_tables_are_bounded_together(make_store):
    """Many tables hold no more than one, small entries count, what goes makes room, and
    what is put again takes none.
    """
    store = make_store(table_bytes=1000)
    peer = store.peer()
    small = [Entry(b"%d" % n, wire.NEVER, b"") for n in range(6)]
    peer.ask(wt.CreateTableSegment(1, "t"), wt.CreateTableSegment(2, "u"))
    peer.ask(wt.UpdateTableEntries(3, "t", "", small))
    peer.ask(wt.RemoveTableKeys(4, "t", "", small))
    peer.ask(wt.UpdateTableEntries(5, "t", "", small))
    peer.ask(wt.DeleteTableSegment(6, "t", False))
    peer.ask(wt.UpdateTableEntries(7, "u", "", small), wt.CreateTableSegment(8, "t"))
    [replaced] = peer.ask(wt.UpdateTableEntries(9, "u", "", small))
    assert replaced == wt.TableEntriesUpdated(9, [*range(6, 12)])
    assert store.restarted().container.state.table_bytes == 6 * 129
    peer.ask(wt.UpdateTableEntries(9, "t", "", small))
    assert "options.table_bytes" in peer.refused


def test_writers_and_attributes_are_bounded(make_store):
    """So many are remembered and no more; those that are known go on."""
    store = make_store(numbers=3)
    peer, other, third = store.peer(), store.peer(), store.peer()
    for writer in (W, X, b"y" * 16):
        peer.setup(writer=writer)
    peer.ask(
        wire.AppendBlockEnd(W, 0, b"", 1, 1, 1), wire.AppendBlockEnd(X, 0, b"", 1, 1, 2)
    )
    peer.ask(ws.UpdateSegmentAttribute(3, "s", b"a" * 16, 1, wire.NEVER))
    assert store.restarted().container.state.numbers == 3
    other.ask(ws.UpdateSegmentAttribute(4, "s", b"b" * 16, 1, wire.NEVER))
    assert "options.numbers" in other.refused
    updates = [AttributeUpdate(b"c" * 16, 1, 1, wire.NEVER)]
    third.ask(ws.MergeSegments(5, "s", "t", "", updates))
    assert "options.numbers" in third.refused
    assert peer.ask(
        wire.AppendBlockEnd(W, 0, b"", 1, 2, 6),
        ws.UpdateSegmentAttribute(7, "s", b"a" * 16, 2, 1),
    )[1:] == [ws.SegmentAttributeUpdated(7, success=True)]
    peer.ask(wire.AppendBlockEnd(b"y" * 16, 0, b"", 1, 1, 7))
    assert "options.numbers" in peer.refused
