"""What a segment gives back, whole, torn and damaged."""

import contextlib
import struct
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.event import Batch, Origin
from gateway.store.journal import segment
from incarnations import A, segment_name


def build(*groups: list[Batch], seal: bool = False) -> tuple[bytes, list[int]]:
    """A segment from lsn 5 on, and where each group ends in it."""
    header = segment.Header(5, 1, 0xDEAD)
    encoder = segment.Encoder(header)
    data, lsn, ends = header.encode(), 5, []
    for group in groups:
        synced = len(data)
        for batch in group:
            data += b"".join(encoder.batch(batch, lsn, synced))
            lsn += batch.count
        ends.append(len(data))
    if seal:
        data += b"".join(encoder.seal(lsn, len(data)))
    return data, ends


def bodies(data: bytes, **options: int) -> list[bytes]:
    return [stored.batch.body for stored in segment.Scan(data, **options)]


def test_everything_that_went_in_comes_out(make, origin):
    """A batch read back equals the one written, its origin and lsn included."""
    other = Origin("pomelo", "games", "s-2", "[::1]:7")
    data, _ = build([make(b"one", 3), make(b"", 1, other)], [make(b"two")], seal=True)
    scan = segment.Scan(data)
    first, second, third = list(scan)
    assert [s.lsn for s in (first, second, third)] == [5, 8, 9]
    assert first.batch.body == b"one"
    assert first.batch.count == 3
    assert first.batch.received_at == 1_763_700_000_000_000
    for name in ("protocol", "listener", "session", "peer", "principal", "attributes"):
        assert getattr(first.batch.origin, name) == getattr(origin, name)
    assert second.batch.origin.principal is None
    assert third.batch.origin is first.batch.origin
    assert (scan.next_lsn, scan.sealed, scan.damage) == (10, True, [])


def test_what_a_plug_in_says_of_an_origin_is_text_or_becomes_it(make):
    """Else the journal's thread, and so the daemon, would end, or no file be written."""
    said: Any = {"agent": "caf\udce9", "version": 3}
    data, _ = build([make(b"", 1, Origin("p", "l", "s", "[::1]:7", "\udcff", said))])
    [stored] = segment.Scan(data)
    text = Origin("p", "l", "s", "[::1]:7", "?", {"agent": "caf?", "version": "3"})
    assert asdict(stored.batch.origin) == asdict(text)


def test_what_was_read_is_let_go_of(make):
    """A file's end is written and synced while the next segment is in memory."""
    data, _ = build([make(b"one" * 1000)], seal=True)
    scan = segment.Scan(data)
    held = sys.getrefcount(data)
    assert len(list(scan)) == 1
    assert sys.getrefcount(data) == held - 1
    assert (scan.next_lsn, scan.sealed) == (6, True)


def test_cut_anywhere_keeps_exactly_the_whole_batches(make):
    """A tail torn at any byte loses the batch it tears, and nothing before it."""
    data, ends = build([make(b"a" * 9)], [make(b"b" * 9)], [make(b"c" * 9)])
    for size in range(segment.HEADER_BYTES, len(data) + 1):
        whole = sum(size >= end for end in ends)
        scan = segment.Scan(data[:size])
        found = [stored.batch.body[:1] for stored in scan]
        assert found == [b"a", b"b", b"c"][:whole]
        assert scan.next_lsn == 5 + whole
        assert not scan.damage


def test_zeros_behind_the_end_are_the_end(make):
    """A tail of zeros, as some file systems leave, is not damage."""
    data, ends = build([make()])
    scan = segment.Scan(data + bytes(4096)).survey()
    assert (scan.end, scan.damage) == (ends[-1], [])


def each_flip(data: bytes, end: int) -> Iterator[bytes]:
    """*data* with one bit flipped, for each one from the header to *end*."""
    for bit in range(segment.HEADER_BYTES * 8, end * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)


def test_no_flipped_bit_gives_a_wrong_body(make):
    """Whatever bit flips, what comes out was put in, and a loss in the middle shows."""
    data, ends = build(
        [make(b"a" * 20)], [make(b"b" * 20)], [make(b"c" * 20)], seal=True
    )
    wanted = [b"a" * 20, b"b" * 20, b"c" * 20]
    for flipped in each_flip(data, ends[-1]):
        scan = segment.Scan(flipped)
        found = [s.batch.body for s in scan]
        assert set(found) <= set(wanted)
        assert len(found) >= 2
        assert scan.damage
        assert sum(d.events for d in scan.damage) == 3 - len(found)
        assert scan.next_lsn == 8


def test_no_batch_without_events_is_lost_unseen(make):
    """Metadata takes no lsn, and its damage shows like that of events."""
    data, ends = build(
        [make(b"a" * 20, 0)], [make(b"b" * 20, 0)], [make(b"c" * 20, 0)], seal=True
    )
    wanted = [b"a" * 20, b"b" * 20, b"c" * 20]
    assert bodies(data) == wanted
    for flipped in each_flip(data, ends[-1]):
        scan = segment.Scan(flipped)
        found = [s.batch.body for s in scan]
        assert set(found) <= set(wanted)
        assert len(found) >= 2
        assert scan.batches == len(found)
        assert scan.damage
        assert [d.events for d in scan.damage] == [0]
        assert scan.next_lsn == 5


def test_metadata_torn_at_the_end_is_not_damage(make):
    """A group that was never synced leaves no trace, whole or with a hole in it."""
    data, ends = build([make(b"a", 0)], [make(b"b" * 9, 0), make(b"c" * 9, 0)])
    for size in range(ends[0], len(data)):
        scan = segment.Scan(data[:size])
        assert [s.batch.body[:1] for s in scan] in ([b"a"], [b"a", b"b"])
        assert not scan.damage
    at = data.index(b"bbb")
    scan = segment.Scan(data[:at] + bytes(9) + data[at + 9 :])
    assert [s.batch.body for s in scan] == [b"a"]
    assert not scan.damage


def test_unsynced_batches_behind_a_hole_do_not_count(make):
    """Where a group's first batch never reached the disk, its second is not damage."""
    data, _ = build([make(b"kept")], [make(b"lost" * 9), make(b"late")])
    hole = data.index(b"lostlost")
    scan = segment.Scan(data[:hole] + bytes(8) + data[hole + 8 :])
    assert [s.batch.body for s in scan] == [b"kept"]
    assert not scan.damage
    assert scan.next_lsn == 6


def test_a_lost_origin_still_gives_the_bodies(make):
    """An origin record that is damaged costs the names, never the payload."""
    data, _ = build([make(b"one")], [make(b"two")], seal=True)
    at = data.index(b"s-1")
    scan = segment.Scan(data[:at] + b"???" + data[at + 3 :])
    assert [s.batch.body for s in scan] == [b"one", b"two"]
    assert {s.batch.origin.protocol for s in segment.Scan(data)} == {"plain"}
    assert scan.damage


def test_events_written_again_elsewhere_do_not_count(make):
    """What a later segment took over after a failed sync is read there only."""
    data, _ = build([make(b"a")], [make(b"b")], [make(b"c")])
    assert bodies(data, before=6) == [b"a"]


def test_metadata_where_a_later_segment_begins_counts(make):
    """It may have been acknowledged there, before the sync that failed."""
    data, _ = build([make(b"a"), make(b"m", 0)], [make(b"n", 0), make(b"b")])
    assert bodies(data, before=6) == [b"a", b"m", b"n"]
    data, _ = build([make(b"a")], [make(b"b"), make(b"m", 0)])
    assert bodies(data, before=6) == [b"a"]


def test_a_hole_between_batches_that_no_lsn_tells_is_damage(make):
    """Metadata has no lsn: what says that it was there is how much had been synced."""
    data, ends = build([make(b"a")], [make(b"m", 0)], [make(b"b")], seal=True)
    scan = segment.Scan(data[: ends[0]] + data[ends[1] :])
    assert [stored.batch.body for stored in scan] == [b"a", b"b"]
    [damage] = scan.damage[:1]
    assert (damage.offset, damage.events) == (ends[0], 0)


def test_a_body_that_looks_like_a_record_is_not_one(make):
    """A peer can not forge events by sending the journal's own format."""
    forged, _ = build([make(b"forged", 7)])
    data, _ = build([make(forged)], [make(b"b")], seal=True)
    other = segment.Header(5, 1, 0xBEEF)
    encoder = segment.Encoder(other)
    real = other.encode()
    for n, body in enumerate([forged, b"b"]):
        real += b"".join(encoder.batch(make(body), 5 + n, len(real)))
    at = real.index(forged) - 1
    damaged = real[:at] + b"\xff" + real[at + 1 :]
    assert b"forged" not in bodies(damaged)
    assert bodies(damaged) == [b"b"]
    assert bodies(data) == [forged, b"b"]


def test_records_of_another_segment_are_not_looked_at(make, monkeypatch):
    """There may be millions of them behind the end of one that is written over it."""
    looked: list[int] = []
    look = segment.Scan._record

    def counted(scan: segment.Scan, at: int) -> Any:
        looked.append(at)
        return look(scan, at)

    monkeypatch.setattr(segment.Scan, "_record", counted)
    old, _ = build([make(b"old", 0)] * 1000)
    other = segment.Header(5, 1, 0xBEEF)
    new = b"".join([other.encode(), *segment.Encoder(other).batch(make(b"new"), 5, 36)])
    scan = segment.Scan(new + old[len(new) :]).survey()
    assert (scan.batches, scan.end, scan.damage) == (1, len(new), [])
    assert len(looked) < 10


@given(st.binary(max_size=300))
def test_no_garbage_raises_anything_else(data):
    """Any bytes behind a good header are read as nothing, or as a torn tail."""
    header = segment.Header(1, 1, 7).encode()
    assert list(segment.Scan(header + data)) == []
    with contextlib.suppress(segment.InvalidSegment):
        segment.Scan(data)


@pytest.mark.parametrize("version", [0, 2])
def test_another_format_is_named(version):
    """A segment of another version says so, instead of looking damaged."""
    head = bytearray(segment.Header(1, 1, 7).encode())
    head[8] = version
    head[-4:] = google_crc32c.extend(7, bytes(head[:-4])).to_bytes(4, "little")
    with pytest.raises(segment.OtherFormat, match=f"{version}; this version reads 1"):
        segment.Header.decode(bytes(head))


def test_a_body_of_records_costs_no_more_than_its_bytes(make, monkeypatch):
    """Behind damage every byte is summed a few times at most, whatever a peer sent."""
    record = struct.pack("<IBBHIIqQII", 0x9C5AE7D1, 2, 0, 0, 1 << 16, 1, 99, 0, 0, 0)
    data, _ = build([make(b"kept")], [make(record * 4000)])
    torn = data[:-1]
    summed = 0

    def crc(start: int, chunk: bytes) -> int:
        nonlocal summed
        summed += len(chunk)
        return google_crc32c.extend(start, chunk)

    monkeypatch.setattr(segment, "_crc", crc)
    scan = segment.Scan(torn).survey()
    assert (scan.batches, scan.damage) == (1, [])
    assert summed < 3 * len(torn)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (f"00000000000000000012-{A}.journal", (12, 0, A)),
        (f"00000000000000000012-{A}.3.journal", (12, 3, A)),
        ("00000000000000000012.journal", None),
        ("00000000000000000012-short.journal", None),
        ("12.journal", None),
        ("catalog", None),
        (f"00000000000000000012-{A}.x.journal", None),
        (f"00000000000000000012-{A}.journal.damaged", None),
    ],
)
def test_names(text, parsed):
    """A segment's name gives its first lsn and who gave it; nothing else looks like one."""
    assert segment.parse_name(text) == parsed
    if parsed:
        assert segment_name(*parsed[:2]) == text
