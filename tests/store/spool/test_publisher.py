"""One segment becomes one file, once, under the name that its lsns give it."""

import errno
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest
from msgspec import structs

from catalogs import published_in
from gateway.event import SCHEMA, Rows
from gateway.store.node.catalog import look
from gateway.store.node.holes import holes_in
from gateway.store.spool import file_name, last_lsn, parse_file_name
from gateway.store.spool.mending import Entry
from gateway.store.system.shared import SharedDict
from incarnations import A, examine, settled

pytestmark = pytest.mark.lowest

FIRST = "events-gw_aaaaaaaaaa-00000000000000000001-00000000000000000003.parquet"


def rows(place: Any, name: str) -> list[dict[str, Any]]:
    table = pq.read_table(place.spool / name, page_checksum_verification=True)
    assert table.schema.equals(SCHEMA)
    return list(table.to_pylist())


def test_a_segment_becomes_a_file_and_goes(place):
    """The file holds every event in order with its lsn, and the segment is removed."""
    sealed = place.sealed(b"a,b", b"c")
    [done] = place.publisher().publish(sealed)
    assert place.public() == [FIRST]
    assert [(r["lsn"], r["payload"]) for r in rows(place, FIRST)] == [
        (1, b"a"),
        (2, b"b"),
        (3, b"c"),
    ]
    assert (done.first_lsn, done.last_lsn, done.flaws) == (1, 3, {})
    assert not sealed.path.exists()


def test_the_envelope_is_filled_in(place):
    """Columns carry what the connection, the batch and the decoder said."""
    place.decoders["rich"] = lambda body: Rows(
        [b"{}", b"x"],
        seqs=[7, 8],
        channel="orders",
        kind="request",
        attributes={"window": "1"},
        flaws={1: "invalid-json"},
        content_types={1: "text/plain"},
    )
    place.log.commit([])
    from gateway.event import Batch, Origin

    origin = Origin("rich", "games", "s", "p", "CN=x", {"tls": "TLSv1.3"})
    place.log.commit([Batch(origin, 1_700_000_000_000_001, 2, b"", 3)])
    place.publisher().publish(place.log.seal())
    one, two = rows(place, place.public()[0])
    assert one["received_at"].microsecond == 1
    assert (one["protocol"], one["listener"], one["principal"]) == (
        "rich",
        "games",
        "CN=x",
    )
    assert (one["channel"], one["kind"], one["seq"]) == ("orders", "request", 7)
    assert dict(one["attributes"]) == {"tls": "TLSv1.3", "window": "1"}
    assert (one["flaw"], two["flaw"]) == (None, "invalid-json")
    assert (one["content_type"], two["content_type"]) == (
        "application/json",
        "text/plain",
    )


@pytest.mark.parametrize("compression", ["none", "lz4", "snappy"])
@pytest.mark.parametrize(("events", "size"), [(20, 100_000), (100_000, 1)])
def test_a_file_may_be_larger_than_its_segment(place, compression, events, size):
    """What came compressed is not so small in a file: a segment knows its payloads, also
    one that a start has found, and their size and number are what a file is expected to
    take.
    """
    payload = random.Random(1).randbytes(size).hex().encode()[:size]
    place.decoders["zipped"] = lambda body: Rows([payload] * events)
    batch = structs.replace(place.batch(b"", "zipped"), count=events)
    batch.payload_bytes = events * size
    place.log.commit([batch])
    sealed = place.log.seal()
    [found] = examine(place.journal, place.disk).segments
    publisher = place.publisher(compression=compression)
    expected = publisher.file_bytes(found.bytes, found.payload_bytes, found.events)
    assert expected == publisher.file_bytes(
        sealed.bytes, sealed.payload_bytes, sealed.events
    )
    [done] = publisher.publish(sealed)
    assert done.path.stat().st_size > 20 * sealed.bytes
    assert done.path.stat().st_size < expected + 10_000


def test_what_can_not_be_decoded_is_kept_and_flawed(place):
    """A decoder that fails, or miscounts, stops nothing and loses no byte or lsn."""
    place.decoders["broken"] = lambda body: 1 / 0
    [done] = place.publisher().publish(place.sealed(b"raw,bytes", protocol="broken"))
    one, two = rows(place, place.public()[0])
    assert (one["payload"], two["payload"]) == (b"raw,bytes", b"")
    assert one["flaw"] == two["flaw"] == "undecodable"
    assert done.flaws == {"undecodable": 2}
    place.decoders["short"] = lambda body: Rows([b"only one"])
    place.publisher().publish(place.sealed(b"x,y,z", protocol="short"))
    assert [r["lsn"] for r in rows(place, place.public()[1])] == [3, 4, 5]


def holes(place: Any) -> list[tuple[int, int]]:
    """Those that the catalog has, as it lies on the disk."""
    return [span for lsns in holes_in(look(place.journal)).values() for span in lsns]


def test_a_file_ends_before_a_hole(place):
    """Acknowledged events that the disk does not give back are in no file and have no row:
    they are in the record, and all others in files that have what their names say.
    """
    place.log.commit([place.batch(b"a"), place.batch(b"b,c")])
    place.log.commit([place.batch(b"d")])
    sealed = place.log.seal()
    data = sealed.path.read_bytes()
    sealed.path.write_bytes(data.replace(b"b,c", b"b;c"))
    publisher = place.publisher()
    done = publisher.publish(sealed)
    assert place.public() == [file_name("gw", A, 1, 1), file_name("gw", A, 4, 4)]
    assert [one.path.name for one in done] == place.public()
    assert [one.flaws for one in done] == [{}, {}]
    found = [row for name in place.public() for row in rows(place, name)]
    assert [(r["lsn"], r["payload"], r["flaw"]) for r in found] == [
        (1, b"a", None),
        (4, b"d", None),
    ]
    assert (holes(place), publisher.lost_events) == ([(2, 3)], 2)
    kept = sealed.path.with_name(f"{sealed.path.name}.damaged")
    assert kept.read_bytes() == data.replace(b"b,c", b"b;c")
    assert not sealed.path.exists()


@pytest.mark.parametrize(
    ("what", "calls", "noted"), [("add", 1, [(2, 3)]), ("note_hole", 0, [])]
)
def test_what_lies_around_a_hole_is_published_once(
    place, monkeypatch, what, calls, noted
):
    """The disk is full before the second file, or before the line of the hole: a start goes
    on behind what is there, and who tries again is told of both files.
    """
    for body in (b"a", b"b,c", b"d"):
        place.log.commit([place.batch(body)])
    sealed = place.log.seal()
    sealed.path.write_bytes(sealed.path.read_bytes().replace(b"b,c", b"b;c"))
    publisher, really = place.publisher(keep=True), getattr(place.files, what)
    begun = []

    def full(*words: Any) -> None:
        begun.append(words)
        if len(begun) == calls + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        really(*words)

    monkeypatch.setattr(place.files, what, full)
    with pytest.raises(OSError, match="No space"):
        publisher.publish(sealed)
    public = [name for name in place.public() if name[0] != "."]
    assert (public, holes(place)) == ([file_name("gw", A, 1, 1)], noted)
    [left] = place.publisher(keep=True).recover([sealed])
    assert (left.first_lsn, left.last_lsn) == (4 if noted else 2, 4)
    done = publisher.publish(sealed)
    assert [(one.first_lsn, one.last_lsn) for one in done] == [(1, 1), (4, 4)]
    assert (holes(place), publisher.lost_events) == ([(2, 3)], 2)
    place.reread()
    assert place.publisher().recover([sealed]) == []


@pytest.mark.parametrize(
    ("what", "calls", "spans", "kept"),
    [("note_hole", 0, [(1, 1), (2, 4)], 0), ("add", 1, [(1, 1), (4, 4)], 1)],
)
def test_a_hole_that_is_given_back_after_a_crash(
    place, monkeypatch, what, calls, spans, kept
):
    """The daemon is killed before the line of the hole, or before the file behind it: what
    comes back is published, or set aside, and nothing is published twice.
    """
    for body in (b"a", b"b,c", b"d"):
        place.log.commit([place.batch(body)])
    sealed = place.log.seal()
    whole = sealed.path.read_bytes()
    sealed.path.write_bytes(whole.replace(b"b,c", b"b;c"))
    really, begun = getattr(place.files, what), []

    def killed(*words: Any) -> None:
        begun.append(words)
        if len(begun) > calls:
            raise KeyboardInterrupt
        really(*words)

    monkeypatch.setattr(place.files, what, killed)
    with pytest.raises(KeyboardInterrupt):
        place.publisher().publish(sealed)
    sealed.path.write_bytes(whole)
    place.reread()
    publisher = place.publisher()
    for left in publisher.recover(examine(place.journal, place.disk).segments):
        publisher.publish(left)
    assert place.public() == [file_name("gw", A, *span) for span in spans]
    assert len([*place.journal.glob("*.damaged")]) == kept
    assert [line.first for line in place.reread()] == [first for first, _ in spans]


def test_a_segment_without_its_beginning_stops_nothing(place):
    """A first sector that can not be read costs the segment, and not those behind it."""
    sealed = place.sealed(b"a,b", b"c")
    data = bytes(512) + sealed.path.read_bytes()[512:]
    sealed.path.write_bytes(data)
    publisher = place.publisher()
    assert publisher.publish(sealed) == []
    assert (place.public(), holes(place)) == ([], [(1, 3)])
    aside = sealed.path.with_name(f"{sealed.path.name}.damaged")
    assert aside.read_bytes() == data
    assert (publisher.published_lsn, place.reread().last_lsn) == (3, 3)
    publisher.publish(place.sealed(b"d"))
    assert place.public() == [file_name("gw", A, 4, 4)]


def test_a_segment_that_is_all_hole_needs_no_room(place, monkeypatch):
    """The disk is full: a file that is only taken away again is not synced."""
    sealed = place.sealed(b"a,b")
    sealed.path.write_bytes(sealed.path.read_bytes().replace(b"a,b", b"a;b"))
    really = place.disk.create

    def full(path: Path) -> Any:
        file = really(path)
        no_room = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        return Mock(wraps=file, sync=no_room) if path.parent == place.spool else file

    monkeypatch.setattr(place.disk, "create", full)
    assert place.publisher().publish(sealed) == []
    assert (place.public(), holes(place)) == ([], [(1, 2)])


@pytest.mark.parametrize("sound", [True, False])
def test_only_the_file_of_a_sound_segment_is_kept_for_another(place, sound):
    publisher = place.publisher()
    publisher.publish(replace(place.sealed(b"a"), sound=sound))
    assert publisher.spares.give_room() is sound


def test_a_segment_with_the_bytes_of_an_older_one_is_none(place):
    """Its file was the older one's, and the disk has lost what was written over that."""
    old, sealed = place.sealed(b"old"), place.sealed(b"a,b")
    sealed.path.write_bytes(old.path.read_bytes())
    publisher = place.publisher()
    publisher.publish(old)
    assert publisher.publish(sealed) == []
    assert holes(place) == [(2, 3)]
    assert sealed.path.with_name(f"{sealed.path.name}.damaged").exists()


@pytest.mark.parametrize("rot", [b"b,c", b"a", None])
def test_what_waits_for_its_file_is_not_lost(place, rot):
    """The disk does not give it back, memory does: all of it is in the file."""
    batches = [place.batch(b"a"), place.batch(b"b,c")]
    place.log.commit(batches)
    sealed = place.log.seal()
    data = sealed.path.read_bytes()
    damaged = data.replace(rot, b"?" * len(rot)) if rot else b"?" * len(data)
    sealed.path.write_bytes(damaged)
    publisher = place.publisher()
    publisher.copies = SharedDict(
        {1: batches[0], 2: batches[1], 4: place.batch(b"later")}
    )
    [done] = publisher.publish(sealed)
    assert done.flaws == {}
    assert [(r["lsn"], r["payload"]) for r in rows(place, FIRST)] == [
        (1, b"a"),
        (2, b"b"),
        (3, b"c"),
    ]
    assert sealed.path.with_name(f"{sealed.path.name}.damaged").exists()


def test_what_a_memory_needs_is_set_aside_later(place):
    """A damaged segment is kept, though only its checkpoint lets it go."""
    place.log.commit([place.batch(b"a"), place.batch(b"b,c")])
    place.log.commit([place.batch(b"d")])
    sealed = place.log.seal()
    damaged = sealed.path.read_bytes().replace(b"b,c", b"b;c")
    sealed.path.write_bytes(damaged)
    publisher = place.publisher(keep=True)
    publisher.publish(sealed)
    assert sealed.path.read_bytes() == damaged
    for _ in range(2):
        publisher.remove(sealed)
    assert not sealed.path.exists()
    aside = sealed.path.with_name(f"{sealed.path.name}.damaged")
    assert aside.read_bytes() == damaged


def test_a_published_segment_that_came_back_is_not_published_again(place):
    """A crash before the segment was removed changes nothing for Spark."""
    sealed = place.sealed(b"a,b,c")
    kept = sealed.path.read_bytes()
    place.publisher().publish(sealed)
    (place.spool / FIRST).rename(place.archive / FIRST)
    sealed.path.write_bytes(kept)
    place.reread()
    found = settled(place.journal, place.disk)
    assert place.publisher().recover(found.segments) == []
    assert place.public() == []
    assert not sealed.path.exists()


def test_of_a_segment_that_is_public_in_part_the_rest_is_published(place):
    """Its file said less when a failed sync had left it, and the power went then."""
    sealed = place.sealed(b"a,b,c", b"d,e")
    place.publisher(keep=True).publish(replace(sealed, last_lsn=3))
    place.reread()
    publisher = place.publisher()
    [left] = publisher.recover([sealed])
    assert (left.first_lsn, left.last_lsn) == (4, 5)
    publisher.publish(left)
    second = file_name("gw", A, 4, 5)
    assert place.public() == [FIRST, second]
    assert [row["lsn"] for row in rows(place, second)] == [4, 5]


def test_metadata_makes_no_file(place):
    """A segment without events goes, and one with some has only those in its file."""
    place.log.commit([place.metadata()])
    sealed = place.log.seal()
    assert place.publisher().publish(sealed) == []
    assert place.public() == []
    assert not sealed.path.exists()
    place.log.commit([place.metadata(), place.batch(b"a,b")])
    place.log.commit([place.metadata(), place.batch(b"c"), place.metadata()])
    place.publisher().publish(place.log.seal())
    assert [r["lsn"] for r in rows(place, FIRST)] == [1, 2, 3]


def test_metadata_that_a_start_finds_needs_nothing(place):
    """It is not published, and goes if nobody keeps it."""
    for keep in (True, False):
        place.log.commit([place.metadata()])
        sealed = place.log.seal()
        assert place.publisher(keep=keep).recover([sealed]) == []
        assert sealed.path.exists() == keep


def test_who_remembers_keeps_the_segments(place):
    """A published segment stays, and no start publishes it again."""
    sealed = place.sealed(b"a,b", b"c")
    publisher = place.publisher(keep=True)
    publisher.publish(sealed)
    assert place.public() == [FIRST]
    assert sealed.path.exists()
    (place.spool / FIRST).unlink()
    place.reread()
    found = settled(place.journal, place.disk)
    assert place.publisher(keep=True).recover(found.segments) == []
    assert place.public() == []
    assert sealed.path.exists()


def test_a_hidden_file_without_an_entry_is_written_anew(place):
    """Whatever a crash left of a half-written file, Spark never sees it."""
    sealed = place.sealed(b"a,b,c")
    (place.spool / f".{FIRST}").write_bytes(b"half")
    publisher = place.publisher()
    [left] = publisher.recover([sealed])
    assert place.public() == []
    publisher.publish(left)
    assert place.public() == [FIRST]
    assert len(rows(place, FIRST)) == 3


def test_modification_times_never_run_backwards(place):
    """A clock that was set back does not hide files from Spark."""
    publisher = place.publisher()
    publisher.publish(place.sealed(b"a"))
    place.now = 500.0
    publisher.publish(place.sealed(b"b"))
    times = [(place.spool / name).stat().st_mtime for name in place.public()]
    assert times == [1000.0, 1000.0]
    again = place.publisher()
    again.recover([])
    again.publish(place.sealed(b"c"))
    assert (place.spool / place.public()[2]).stat().st_mtime == 1000.0


def test_times_do_not_run_backwards_over_restarts(place):
    """Though every file was taken, and the machine boots in 1970; nor do they go on
    beyond what a wrong clock once said."""
    place.publisher().publish(place.sealed(b"a"))
    for now in (3.0, 4.0, 1001.0):
        for path in place.spool.iterdir():
            path.unlink()
        place.now = now
        place.reread()
        place.publisher().publish(place.sealed(b"b"))
        [path] = place.spool.iterdir()
        assert path.stat().st_mtime == max(1000.0, now)


@pytest.mark.parametrize("prefix", [".", ""])
def test_a_file_has_its_own_time_after_a_power_cut(place, prefix):
    """Which may keep the file, be it hidden still or public, and lose its time."""
    place.publisher().publish(place.sealed(b"a"))
    path = place.spool / FIRST.replace("3.parquet", "1.parquet")
    left = path.rename(place.spool / f"{prefix}{path.name}")
    os.utime(left, (5.0, 5.0))
    place.reread()
    place.publisher().recover([])
    assert path.stat().st_mtime == 1000.0


def test_the_time_of_somebody_elses_file_stops_no_start(place, monkeypatch):
    """It stays as it is: only its owner may set it."""

    def refuse(path: Any, seconds: float) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    place.publisher().publish(place.sealed(b"a"))
    path = place.spool / place.public()[0]
    os.utime(path, (2000.0, 2000.0))
    place.reread()
    with monkeypatch.context() as patch:
        patch.setattr(place.disk, "set_times", refuse)
        publisher = place.publisher()
        assert publisher.recover([]) == []
    assert path.stat().st_mtime == 2000.0
    publisher.publish(place.sealed(b"b"))
    assert (place.spool / place.public()[1]).stat().st_mtime == 2000.0


def test_the_catalog_stays_small(place):
    """After years of one file a second the catalog still is a few pages."""
    for _ in range(2100):
        lsn = place.files.last_lsn + 1
        place.files.add(Entry(lsn, lsn, f"f{lsn}"))
    again = place.reread()
    assert again.last_lsn == 2100
    assert 1000 <= len(list(again)) <= 2000


def test_the_catalog_keeps_what_has_a_segment(place, monkeypatch):
    """An entry is forgotten when its segment is gone, not for its age alone."""
    monkeypatch.setattr("gateway.store.spool.published._KEEP", 3)
    monkeypatch.setattr("gateway.store.node.catalog._SPARE", 0)
    place.reread()
    publisher = place.publisher(keep=True)
    segments = [place.sealed(b"a") for _ in range(20)]
    for n, sealed in enumerate(segments):
        publisher.publish(sealed)
        if n == 10:
            for gone in segments[:8]:
                gone.path.unlink()
    known = {entry.first for entry in published_in(place.journal)}
    assert known >= set(range(9, 21))
    assert len(known) < 20
    for sealed in segments[8:]:
        sealed.path.unlink()
    for n in range(9):
        publisher.publish(place.sealed(b"%d" % n))
    assert len(published_in(place.journal)) < 15
    assert place.reread().last_lsn == 29


def test_a_segment_whose_line_is_forgotten_is_not_published_again(place, monkeypatch):
    """Somebody put it back, and nobody can tell what its file had: it is set aside."""
    monkeypatch.setattr("gateway.store.spool.published._KEEP", 3)
    monkeypatch.setattr("gateway.store.node.catalog._SPARE", 0)
    place.reread()
    publisher = place.publisher()
    sealed = place.sealed(b"a")
    whole = sealed.path.read_bytes()
    publisher.publish(sealed)
    for _ in range(9):
        publisher.publish(place.sealed(b"b"))
    assert place.files.find(1) is None
    first = place.spool / file_name("gw", A, 1, 1)
    first.write_bytes(b"as it was published")
    sealed.path.write_bytes(whole)
    place.reread()
    assert not place.files.has_all_of(sealed)
    assert place.publisher().recover([sealed]) == []
    assert first.read_bytes() == b"as it was published"
    assert not sealed.path.exists()
    aside = sealed.path.with_name(f"{sealed.path.name}.damaged")
    assert aside.read_bytes() == whole


def test_what_is_set_aside_replaces_nothing(place):
    """A second segment of that name comes under the next."""
    place.log.commit([place.batch(b"a"), place.batch(b"b,c")])
    place.log.commit([place.batch(b"d")])
    sealed = place.log.seal()
    aside = sealed.path.with_name(f"{sealed.path.name}.damaged")
    aside.write_bytes(b"an earlier one")
    damaged = sealed.path.read_bytes().replace(b"b,c", b"b;c")
    sealed.path.write_bytes(damaged)
    place.publisher().publish(sealed)
    assert aside.read_bytes() == b"an earlier one"
    second = sealed.path.with_name(f"{sealed.path.stem}.1.journal.damaged")
    assert second.read_bytes() == damaged
    assert not sealed.path.exists()


@pytest.mark.parametrize(
    "name",
    [
        "events-gw-1-2.parquet",
        "x.parquet",
        f".{FIRST}",
        "events-GW-" + FIRST[10:],
        FIRST.replace("0", "\u0660"),  # the same lsns, in other digits
    ],
)
def test_other_names_are_nobodys(name):
    """Only names of the contract count as spool files."""
    assert parse_file_name(name) is None


def test_names_round_trip():
    """A name gives back its node and lsns; nodes may hold dots and dashes."""
    assert parse_file_name(file_name("a.b-1", A, 5, 12)) == ("a.b-1", A, 5, 12)


def test_names_tell_the_last_lsn():
    """Where the journal is gone, the files still say which lsns were given."""
    names = [
        file_name("gw", A, 1, 9),
        file_name("gw", A, 10, 12),
        file_name("other", A, 1, 99),
    ]
    assert last_lsn("gw", [*names, "notes.txt", f".{file_name('gw', A, 13, 20)}"]) == 12
    assert last_lsn("new", names) == 0
