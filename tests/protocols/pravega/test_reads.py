"""Reads in version 17: what is given, what waits, what ends the wait.

Numbers in the names are those of the list of behaviours in docs/pravega.md.
"""

from array import array
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from gateway.protocols.pravega import wire_segments as ws
from gateway.protocols.pravega.snapshot import restore, save
from gateway.protocols.pravega.wire import (
    AppendBlockEnd,
    KeepAlive,
    NoSuchSegment,
    SegmentIsSealed,
    SegmentIsTruncated,
)
from making import Make

from .conftest import Block, W


def read(offset: int, size: int = 1000, request: int = 7) -> ws.ReadSegment:
    return ws.ReadSegment("s", offset, size, "", request)


class Writer:
    """Appends to `s`, durably."""

    def __init__(self, store: Any) -> None:
        self.peer = store.peer()
        self.peer.setup()
        self.last = 0

    def append(self, data: bytes, *, wait: bool = False) -> None:
        self.last += 1
        message = AppendBlockEnd(W, len(data), data, 1, self.last, 1)
        if wait:
            self.peer.send(message)
        else:
            self.peer.ask(message)


@pytest.fixture
def writer(store) -> Writer:
    return Writer(store)


def test_44_empty_sealed(peer):
    """The end, at once, and no data."""
    peer.ask(ws.SealSegment(1, "s"))
    peer.send(read(0))
    assert peer.got == [ws.SegmentRead("s", 0, False, True, b"", 7)]


def test_45_at_and_over_truncation(store, writer, block):
    """Before the start it is truncated, from the start on there is data."""
    data = block(b"a", b"b")
    writer.append(data)
    peer = store.peer()
    peer.ask(ws.TruncateSegment(1, "s", 9))
    peer.send(read(0), read(8), read(9))
    assert peer.got == [
        SegmentIsTruncated(7, "s", 9, "", 0),
        SegmentIsTruncated(7, "s", 9, "", 8),
        ws.SegmentRead("s", 9, True, False, data[9:], 7),
    ]
    assert peer.ask(ws.TruncateSegment(2, "s", 19)) == [
        SegmentIsTruncated(2, "s", 9, "", 19)
    ]


def test_46_woken_by_append(peer, store, writer, block):
    """A read at the tail waits until something durable is there."""
    peer.send(read(0))
    writer.append(block(b"a"), wait=True)
    assert peer.got == []
    store.store()
    assert peer.got == [ws.SegmentRead("s", 0, True, False, block(b"a"), 7)]
    assert store.container.reads.waiting == 0


def test_46_woken_by_seal(store, writer, block):
    """A read that waits is told of a seal, and at which offset."""
    writer.append(block(b"a"))
    peer = store.peer()
    peer.send(read(9))
    writer.peer.send(ws.SealSegment(1, "s"))
    assert peer.got == []
    store.store()
    assert peer.got == [SegmentIsSealed(7, "s", "", 9)]


def test_46_woken_by_truncation_and_delete(peer, store, writer, block):
    """What a waiting read asked for may be truncated, or go with its segment."""
    peer.send(read(0), read(18, request=8))
    state = store.container.state
    writer.append(block(b"a"), wait=True)
    store.container.submit(state.truncate("s", 9, 0))
    store.store()
    assert peer.got == [SegmentIsTruncated(7, "s", 9, "", 0)]
    peer.ask(ws.DeleteSegment(1, "s"))
    assert store.container.reads.waiting == 0


def test_46_deleted(store):
    """A segment that goes while somebody waits is missing."""
    peer, other = store.peer(), store.peer()
    peer.send(read(0))
    other.ask(ws.DeleteSegment(1, "s"))
    assert peer.got == [NoSuchSegment(7, "s", "", 0)]
    peer.send(read(0))
    assert peer.got == [NoSuchSegment(7, "s", "", 0)]


def test_46_shutdown(peer):
    """When the daemon stops, waiting reads get nothing, at the tail, and the FIN."""
    peer.send(read(0))
    assert peer.connection.waiting
    peer.server.drain()
    assert peer.got == [ws.SegmentRead("s", 0, True, False, b"", 7)]
    assert peer.connection.closed
    assert not peer.refused


def test_47_several_reads(peer, writer, block):
    """Reads wait side by side, and are answered as they can be."""
    peer.send(read(9, request=1), read(0, request=2), KeepAlive())
    assert peer.got == [KeepAlive()]
    writer.append(block(b"a"))
    assert [m.request_id for m in peer.got] == [2]
    writer.append(block(b"b"))
    assert peer.got == [ws.SegmentRead("s", 9, True, False, block(b"b"), 1)]
    assert not peer.connection.waiting


@pytest.mark.parametrize(
    ("asked", "given"), [(0, 8), (-5, 8), (8, 8), (20, 20), (2**31 - 1, 2 << 20)]
)
def test_48_suggested_length(store, writer, block, asked, given):
    """Eight bytes at least, two MiB at most."""
    writer.append(block(b"x" * (3 << 20)))
    peer = store.peer()
    peer.send(read(0, asked))
    [reply] = peer.got
    assert len(reply.data) == given
    assert not reply.at_tail


def test_49_across_blocks(store, writer, block):
    """A read is a range of bytes: neither blocks nor events matter to it."""
    data = b""
    for n in range(9):
        part = block(b"%d" % n * n)
        writer.append(part)
        data += part
    peer = store.peer()
    for offset in range(0, len(data), 5):
        peer.send(read(offset, 11))
        [reply] = peer.got
        assert reply.data == data[offset : offset + 11]
        assert reply.at_tail == (offset + 11 >= len(data))


def test_50_end_with_the_last_data(store, writer, block):
    """The last bytes of a sealed segment come with the end."""
    writer.append(block(b"abc"))
    peer = store.peer()
    peer.ask(ws.SealSegment(1, "s"))
    peer.send(read(0, 8), read(3), read(11))
    first, second, third = peer.got
    assert (first.data, first.at_tail, first.end_of_segment) == (
        block(b"abc")[:8],
        False,
        False,
    )
    assert (second.at_tail, second.end_of_segment) == (False, True)
    assert (third.data, third.end_of_segment) == (b"", True)


def test_51_beyond_the_end(peer, store, writer, block):
    """It waits while the segment is open, and closes when it is sealed or negative."""
    peer.send(read(100))
    assert peer.got == []
    assert not peer.refused
    other = store.peer()
    other.send(read(-1))
    assert "read at -1" in other.refused
    writer.peer.ask(ws.SealSegment(1, "s"))
    assert "read at 100" in peer.refused


def test_52_disconnect_frees(peer, store, writer, block):
    """Nobody is woken for a client that is gone."""
    peer.send(read(0), read(5))
    assert store.container.reads.waiting == 2
    peer.connection.lose()
    assert store.container.reads.waiting == 0
    writer.append(block(b"a"))
    assert peer.got == []


def test_too_many_reads(make_store):
    """One connection waits for so many and no more."""
    peer = make_store(reads=2).peer()
    peer.send(read(0), read(0), read(0))
    assert "options.reads" in peer.refused


class Files:
    """A reader whose files are the test."""

    def __init__(self) -> None:
        self.first_lsn = 1
        self.asked: list[tuple[str, int, int, int]] = []
        self.answers: list[Deferred[bytes]] = []

    def read(
        self, segment: str, offset: int, size: int, lsn: int, until: int
    ) -> Deferred[bytes]:
        self.asked.append((segment, offset, size, lsn))
        self.until = until
        self.answers.append(Deferred())
        return self.answers[-1]


class Archived:
    """A segment of some blocks of 256 KiB, of which the newest is in memory as well."""

    def __init__(self, make_store: Make, block: Block, blocks: int) -> None:
        self.files = Files()
        self.store = make_store(reader=self.files, recent_bytes=300_000)
        self.peer = self.store.peer()
        data = block(b"x" * (1 << 18))
        self.size = len(data)
        """Of each block, in bytes."""
        writer = Writer(self.store)
        for _ in range(blocks):
            writer.append(data)


def test_old_data_is_fetched(make_store, block):
    """What memory has no more is read from files, up to what memory has."""
    files = Files()
    store = make_store(reader=files, recent_bytes=1500)
    writer, peer = Writer(store), store.peer()
    data = block(b"x" * 392)
    writer.append(data)
    writer.append(data)
    peer.send(read(100))
    assert peer.got == []
    assert files.asked == [("s", 100, 300, 1)]
    assert files.until == 400
    files.answers[0].callback(data[100:])
    assert peer.got == [ws.SegmentRead("s", 100, False, False, data[100:], 7)]
    peer.send(read(400))
    assert peer.got == [ws.SegmentRead("s", 400, True, False, data, 7)]


def test_where_a_segment_begins(make_store, block):
    """Whoever is told that it is truncated asks where it begins, and is told the same;
    what memory still has is not gone, whatever became of its file.
    """
    archived = Archived(make_store, block, 3)
    files, peer = archived.files, archived.peer

    def begin() -> int:
        [info] = peer.ask(ws.GetStreamSegmentInfo(1, "s"))
        [located] = peer.ask(ws.LocateOffset(1, "s", 0))
        assert located.offset == info.start_offset
        return int(info.start_offset)

    assert begin() == 0
    files.first_lsn = 2
    assert begin() == archived.size
    files.first_lsn = 1000
    assert begin() == 2 * archived.size
    peer.send(read(0))
    assert peer.got == [SegmentIsTruncated(7, "s", 2 * archived.size, "", 0)]
    assert files.asked == []


def test_a_slow_segment(make_store, block):
    """Where little is written, retention takes little: what is an hour younger than the
    last file that is gone can be read, also after a restart.
    """
    files = Files()
    store = make_store(reader=files, recent_bytes=2000)
    writer, peer = Writer(store), store.peer()
    data = block(b"x" * 492)
    for _ in range(10):
        store.clock.advance(1200)
        writer.append(data)
    files.first_lsn = 3

    peer.send(read(0))
    assert peer.got == [SegmentIsTruncated(7, "s", 3 * len(data), "", 0)]
    peer.send(read(3 * len(data)))
    [(_, offset, _, lsn)] = files.asked
    assert (offset, lsn) == (3 * len(data), 4)
    saved = restore(save(store.container.state))
    assert saved.find("s").first_offset_from(3) == 3 * len(data)


def test_old_data_that_goes_meanwhile(make_store, block):
    """What retention takes while it is fetched is truncated, as if it had been before."""
    archived = Archived(make_store, block, 3)
    files, peer = archived.files, archived.peer
    gone = archived.store.peer()
    peer.send(read(0))
    gone.send(read(0))
    gone.connection.lose()
    files.first_lsn = 2
    for answer in files.answers:
        answer.errback(LookupError("in no file"))
    assert peer.got == [SegmentIsTruncated(7, "s", archived.size, "", 0)]
    assert not peer.refused
    assert gone.got == []
    assert len(files.answers) == 2


def test_old_data_that_can_not_be_read(make_store, block):
    """The connection is closed: another try may do better; a gone peer hears nothing."""
    files = Files()
    store = make_store(reader=files, recent_bytes=1500)
    writer, peer, gone = Writer(store), store.peer(), store.peer()
    for _ in range(2):
        writer.append(block(b"x" * 392))
    peer.send(read(0))
    gone.send(read(0))
    gone.connection.lose()
    files.answers[0].errback(OSError("bad disk"))
    files.answers[1].callback(b"late")
    assert "can not be read at 0" in peer.refused
    assert gone.got == []


def test_old_data_that_nobody_waits_for(make_store, block):
    """What a peer asked for that has gone is not looked for."""
    archived = Archived(make_store, block, 3)
    archived.peer.send(read(0))
    [answer] = archived.files.answers
    assert not answer.called
    archived.peer.connection.lose()
    assert answer.called
    assert archived.peer.got == []


def test_no_files_at_all(make_store, block):
    """Without a reader, what memory has dropped is truncated."""
    store = make_store(recent_bytes=1500)
    writer, peer = Writer(store), store.peer()
    for _ in range(2):
        writer.append(block(b"x" * 392))
    peer.send(read(0))
    assert peer.got == [SegmentIsTruncated(7, "s", 400, "", 0)]


def test_marks_of_what_is_gone_go(make_store, block):
    """Where events lay that retention took is not saved for ever; the rest is read."""
    archived = Archived(make_store, block, 9)
    files, peer = archived.files, archived.peer
    files.first_lsn = 7
    saved: list[bytes] = []
    archived.store.container.snapshot().addCallback(saved.append)
    archived.store.store()
    state = restore(saved[0])
    assert state.segments["s"].mark_lsns == array("q", (6, 7, 8, 9))
    peer.send(read(0))
    assert peer.got == [SegmentIsTruncated(7, "s", 6 * archived.size, "", 0)]
    peer.send(read(6 * archived.size))
    assert files.asked[-1][-1] == 7
