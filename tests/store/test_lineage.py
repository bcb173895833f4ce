"""Directories that were copied, moved, lost or put back, and what a start makes of them."""

import errno
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogs import lines_of, published_in
from gateway.audit import audit
from gateway.event import Batch, Origin, Rows
from gateway.sdk.disk import Disk, File
from gateway.store.directories import Directories
from gateway.store.journal import Loss
from gateway.store.names import file_name, kept_name, parse_file_name
from gateway.store.node.catalog import look
from gateway.store.node.incarnation import CONTINUES_KEY, FIRST_KEY, KEY, Incarnation
from gateway.store.node.lives import Heard, Lives, Reason
from gateway.store.node.mark import Marker
from gateway.store.objects.node_record import Speaker, read_all
from gateway.store.opening import Opened, Start, open_node
from gateway.store.system.disk import RealDisk
from gateway.store.system.machine import Machine
from gateway_testkit.bucket import MemoryBucket
from incarnations import B


def start(data: Path, disk: Disk | None = None) -> Opened:
    decoders = {"plain": lambda body: Rows(body.split(b","))}
    return open_node(
        Start(
            "gw",
            Directories.under(data),
            Machine(disk or RealDisk()),
            decoders,
            remembering=False,
        )
    )


def publish(data: Path, *bodies: bytes, killed: bool = False) -> Opened:
    """One life, and a file for each body; it ends well, or it is *killed*."""
    opened = start(data)
    for sealed in opened.unpublished:
        opened.publisher.publish(sealed)
    for body in bodies:
        opened.log.commit([batch(body)])
        if (sealed := opened.log.seal()) is not None:
            opened.publisher.publish(sealed)
    last = opened.mark(opened.log.next_lsn - 1, exact=not killed)
    opened.marker.write(last, now=True)
    return opened


def batch(body: bytes) -> Batch:
    origin = Origin("plain", "l", "s-1", "[::1]:9")
    return Batch(origin, 1, body.count(b",") + 1, body, len(body))


def current(data: Path) -> Incarnation:
    found = look(data / "journal/gw").newest(Incarnation)
    assert found is not None
    return found


def published(data: Path) -> dict[str, str]:
    """Who published each file."""
    return {
        path.name[-31:-8].split("-")[-1].lstrip("0"): pq.read_metadata(path)
        .metadata.get(KEY, b"")
        .decode()
        for path in sorted(
            data.glob("spool/events-*"), key=lambda path: path.name[-30:]
        )
    }


def tables(data: Path, lsns: dict[str, list[list[int]]]) -> None:
    """The job's ledger says that they have these, by incarnation."""
    path = data / "lake/.gateway/events.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"format": 3, "committed": {"gw": lsns}, "holes": []}))


def test_each_start_is_an_incarnation(tmp_path):
    """Also under another name of its parent; lsns go on, and files say who gave theirs."""
    data = tmp_path / "data"
    assert publish(data, b"a").notice is None
    first = current(data)
    assert (first.since, first.earlier) == (1, ())
    data = data.rename(tmp_path / "renamed")
    assert publish(data, b"b").notice is None
    second = current(data)
    assert (second.since, second.earlier) == (2, (first.id,))
    lines = published_in(data / "journal/gw")
    assert [line.incarnation for line in lines] == [first.id, second.id]
    assert published(data) == {"1": first.id, "2": second.id}
    assert audit(Directories.under(data), pause=lambda _: None).complete


def test_files_say_where_their_incarnation_began_and_what_it_goes_on_from(tmp_path):
    """So that what is missing before them is known when their directory is lost."""
    publish(tmp_path, b"a,b")
    publish(tmp_path, b"c")
    publish(tmp_path)  # it gives no lsn
    left(tmp_path, b"d")
    publish(tmp_path, b"e")
    said = [
        (file.first, words.get(FIRST_KEY), words.get(CONTINUES_KEY))
        for path in (tmp_path / "spool").glob("events-*")
        if (file := parse_file_name(path.name)) is not None
        for words in [pq.read_metadata(path).metadata]
    ]
    assert sorted(said) == [
        (1, b"1", None),
        (3, b"3", b"a" * 10),
        (4, b"4", b"b" * 10),
        (5, b"5", b"d" * 10),
    ]


def test_a_copy_is_another_incarnation(tmp_path):
    """It says so once, goes on behind the lsns that it has, and knows whose they are."""
    data = tmp_path / "data"
    publish(data, b"a", b"b")
    first = current(data)
    copy = shutil.copytree(data, tmp_path / "copy")
    opened = publish(copy, b"c")
    assert opened.notice is not None
    assert "copied, moved or restored" in opened.notice
    assert first.id in opened.notice
    assert "from lsn 3 on" in opened.notice
    second = current(copy)
    assert (second.since, second.earlier) == (3, (first.id,))
    assert published(copy) == {"1": first.id, "2": first.id, "3": second.id}
    assert publish(copy).notice is None
    assert current(data) == first
    assert audit(Directories.under(copy), pause=lambda _: None).complete


def left(data: Path, *bodies: bytes) -> None:
    """Acknowledged in one life each, and in no file yet."""
    for body in bodies:
        opened = start(data)
        opened.log.commit([batch(body)])
        opened.marker.write(opened.mark(opened.log.next_lsn - 1), now=True)


@pytest.mark.parametrize("way", ["moved", "copied", "moved twice"])
def test_a_lsn_belongs_to_the_incarnation_that_gave_it(tmp_path, way):
    """Whoever publishes it: a directory that was moved knows from which lsn on each of its
    incarnations began, and a copy gives no event a second name.  Of who was copied while it
    ran nobody knows the end."""
    data = tmp_path / "data"
    publish(data, b"a")
    ids = [current(data).id]
    left(data, b"b,c")
    ids.append(current(data).id)
    for number in range(2 if way == "moved twice" else 1):
        data = shutil.copytree(data, tmp_path / f"copy {number}")
        left(data, b"d")
        ids.append(current(data).id)
    if way == "moved":
        shutil.rmtree(tmp_path / "data")
    publish(data, b"z")
    own = [*ids, current(data).id]
    assert [*published(data).values()] == own
    lines = published_in(data / "journal/gw")
    assert [line.incarnation for line in lines] == own
    assert current(data).begins == (1, 2, 4, 5)[: len(ids)]
    if way == "copied":
        publish(tmp_path / "data")
        name = file_name("gw", B, 2, 3)
        one, other = (
            (each / "spool" / name).read_bytes() for each in (data, tmp_path / "data")
        )
        assert one == other
    report = audit(Directories.under(data), pause=lambda _: None)
    assert [one.incarnation for one in report.unknown] == ids[1:-1]


class Inodes(RealDisk):
    """Each directory's, as a file system gives it again once it is removed."""

    generation = 7

    def identity(self, path: Path) -> tuple[int, int]:
        return 11, self.generation


def test_a_copy_in_the_place_of_the_directory_is_another_incarnation(tmp_path):
    """Though its inode has the number of the one that was removed."""
    disk = Inodes()
    assert start(tmp_path, disk).notice is None
    assert start(tmp_path, disk).notice is None
    before = current(tmp_path)
    disk.generation = 8
    notice = start(tmp_path, disk).notice
    assert notice is not None
    assert before.id in notice
    assert start(tmp_path, disk).notice is None


def test_the_real_one_tells_directories_with_one_number_apart(tmp_path):
    """Where the file system does."""
    disk, path, found = RealDisk(), tmp_path / "d", set()
    for _ in range(3):
        path.mkdir()
        assert disk.identity(path) == disk.identity(path)
        found.add(disk.identity(path))
        path.rmdir()
    if not all(generation for _, generation in found):
        pytest.skip("this file system keeps no generations of inodes")
    assert len(found) == 3


@pytest.mark.parametrize("damage", ["removed", "flipped"])
def test_a_lost_id_is_found_in_the_catalog(tmp_path, damage):
    """Another one begins, which knows all before it."""
    publish(tmp_path, b"a")
    first = current(tmp_path)
    path = tmp_path / "journal/gw/catalog"
    [line] = lines_of(path, b"incarnation")
    now = b"" if damage == "removed" else line.replace(b"id", b"if")
    path.write_bytes(path.read_bytes().replace(line, now))
    opened = publish(tmp_path, b"b")
    assert len(opened.repairs) == (damage == "flipped")
    assert current(tmp_path).earlier == (first.id,)
    assert audit(Directories.under(tmp_path), pause=lambda _: None).complete


def test_a_new_journal_beside_its_state_knows_who_was_before(tmp_path):
    """A container's own, at each of its starts: nobody else has this name."""
    ids = []
    for body in (b"a", b"b", b"c", b"d"):
        opened = publish(tmp_path, body) if body != b"c" else publish(tmp_path)
        assert not [repair for repair in opened.repairs if "knows nothing" in repair]
        assert opened.notice is None
        ids.append(current(tmp_path).id)
        assert current(tmp_path).earlier == tuple(ids[:-1])
        assert audit(Directories.under(tmp_path), pause=lambda _: None).complete
        shutil.rmtree(tmp_path / "journal")


@pytest.mark.parametrize("again", [False, True])
def test_a_lost_journal_is_vouched_for_by_nobody(tmp_path, again):
    """All that its mark knows is in files, and what it acknowledged in its last second is
    not: this is said, and the audit is not complete before somebody accepts that; also
    where the first start without it ended before it was done.
    """
    publish(tmp_path, b"a", killed=True)
    first = current(tmp_path)
    shutil.rmtree(tmp_path / "journal")
    if again:
        start(tmp_path)
    opened = publish(tmp_path, b"b")
    assert again or (opened.notice is not None and first.id in opened.notice)
    assert not [repair for repair in opened.repairs if "knows nothing" in repair]
    assert current(tmp_path).lost == {first.id: 1}
    report = audit(Directories.under(tmp_path), pause=lambda _: None)
    [unknown] = report.unknown
    assert (unknown.incarnation, unknown.last) == (first.id, 1)
    assert not report.complete
    # It is told once, and remembered.
    assert publish(tmp_path, b"c").notice is None
    assert current(tmp_path).lost == {first.id: 1}


def test_a_lost_journal_with_events_that_are_in_no_file(tmp_path):
    """The mark knows some of them.  What takes their place in the journal does not vouch for
    whoever gave them.
    """
    publish(tmp_path, b"a", killed=True)
    opened = start(tmp_path)
    opened.log.commit([batch(b"b,c")])
    opened.marker.write(opened.mark(3), now=True)
    gave = opened.lineage.now.id
    shutil.rmtree(tmp_path / "journal")
    (tmp_path / "journal/gw").mkdir(parents=True)
    (tmp_path / "journal/gw/catalog").touch()
    publish(tmp_path, b"d")
    assert current(tmp_path).lost == {gave: 3}
    report = audit(Directories.under(tmp_path), pause=lambda _: None)
    assert [(one.incarnation, one.last) for one in report.unknown] == [(gave, 3)]


def older_copy(data: Path, *bodies: bytes) -> tuple[Incarnation, Incarnation]:
    """Put back *in the directory itself* as it was before a start that acknowledged *bodies*,
    beside the mark as it was some moments before the end; returns who was there before that
    start, and who it was.
    """
    journal = data / "journal/gw"
    before = current(data)
    copy = shutil.copytree(journal, data / "copy")
    opened = start(data)
    for body in bodies:
        opened.log.commit([batch(body)])
    opened.marker.write(opened.mark(opened.log.next_lsn - 1), now=True)
    for path in journal.iterdir():
        path.unlink()
    shutil.copytree(copy, journal, dirs_exist_ok=True)
    shutil.rmtree(copy)
    assert current(data) == before, "its directory is the same"
    return before, opened.lineage.now


def test_an_older_copy_beside_its_newer_mark_is_another_incarnation(tmp_path):
    """What was acknowledged in the second behind the mark nobody knows, and its lsns are
    given again: under another name.  The audit is not complete before that is accepted.
    """
    publish(tmp_path, b"a", killed=True)
    before, since = older_copy(tmp_path, b"b", b"c")
    opened = publish(tmp_path, b"d", killed=True)
    assert opened.first_lsn == 4
    assert [(one.first_lsn, one.events) for one in opened.losses] == [(2, 2)]
    assert opened.notice is not None
    assert (
        f"incarnation {since.id} of this node had acknowledged lsns up to 3"
        in opened.notice
    )
    after = current(tmp_path)
    assert (after.since, after.lost) == (4, {since.id: 3})
    assert set(after.earlier) == {before.id, since.id}
    assert published(tmp_path) == {"1": before.id, "4": after.id}
    assert [*opened.lineage.holes[before.id]] == [(2, 3)]
    report = audit(Directories.under(tmp_path), pause=lambda _: None)
    [unknown] = report.unknown
    assert (unknown.incarnation, unknown.last) == (since.id, 3)
    # It is told once, and remembered.
    assert publish(tmp_path, b"e").notice is None
    assert current(tmp_path).lost == after.lost
    shutil.rmtree(tmp_path / "journal")
    publish(tmp_path, b"f")
    assert since.id not in current(tmp_path).earlier, (
        "nobody else vouches for it either"
    )


def test_an_older_copy_of_who_had_all_in_files_lost_nothing(tmp_path):
    """There is nothing to tell, and nothing to accept."""
    publish(tmp_path, b"a")
    before = current(tmp_path)
    away = shutil.copytree(tmp_path / "journal/gw", tmp_path / "away")
    since = publish(tmp_path, b"b").lineage.now
    shutil.copytree(away, tmp_path / "journal/gw", dirs_exist_ok=True)
    opened = publish(tmp_path, b"c")
    assert opened.first_lsn == 3
    assert opened.losses == []
    assert opened.notice is None
    after = current(tmp_path)
    assert (after.earlier, after.lost) == ((before.id, since.id), {})
    assert published(tmp_path) == {"1": before.id, "2": since.id, "3": after.id}
    assert audit(Directories.under(tmp_path), pause=lambda _: None).complete


@pytest.mark.parametrize("newer", ["tables", "archive", "retained"])
def test_what_is_newer_than_a_copy_of_all_the_rest_vouches_for_nothing(tmp_path, newer):
    """Journal, mark and spool are of one moment: what was acknowledged since, and is in no
    table, is lost, and the audit knows that something may be.
    """
    data, archive = tmp_path / "data", tmp_path / "data/archive"
    publish(data, b"a", killed=True)
    before = current(data)
    copy = shutil.copytree(data, tmp_path / "copy")
    since = publish(data, b"b", killed=True).lineage.now
    for path in (data / "spool").glob(f"*{2:020d}-*"):
        path.rename(archive / path.name)
    start(data).log.commit([batch(b"in no file")])
    for name in ("journal", "state", "spool"):
        shutil.rmtree(data / name)
        shutil.copytree(copy / name, data / name)
    if newer == "tables":
        rows = data / "lake/events/table=events/protocol=plain/date=2026-03-01"
        rows.mkdir(parents=True)
        for path in archive.iterdir():
            found = pq.ParquetFile(path).read()
            by = pa.array([since.id] * len(found))
            pq.write_table(found.append_column("incarnation", by), rows / path.name)
            path.unlink()
        tables(data, {since.id: [[2, 2]]})
    if newer == "retained":  # whose files do not say who gave their lsns
        kept = Directories.under(data).retained_of("gw")
        kept.mkdir(parents=True)
        for path in archive.iterdir():
            path.rename(kept / kept_name(2, 2, 0))
    opened = publish(data, b"c", killed=True)
    assert opened.first_lsn == (2 if newer == "tables" else 3)
    assert opened.notice is not None
    assert "nobody knows how much" in opened.notice
    assert current(data).lost == {before.id: opened.first_lsn - 1}
    report = audit(Directories.under(data), pause=lambda _: None)
    known = {before.id} if newer == "retained" else {before.id, since.id}
    assert {one.incarnation for one in report.unknown} == known
    assert publish(data, b"d").notice is None


def test_a_lost_end_without_events_is_an_end_too(tmp_path):
    """What protocols remember was acknowledged as well."""
    opened = publish(tmp_path, killed=True)
    opened.log.commit([batch(b"a")])
    first = opened.log.synced
    opened.log.commit([Batch(Origin("plain", "l", "s-1", "[::1]:9"), 1, 0, b"m", 0)])
    opened.marker.write(opened.mark(1), now=True)
    before = current(tmp_path)
    path = tmp_path / "journal/gw" / first.name
    path.write_bytes(path.read_bytes()[: first.bytes])
    opened = publish(tmp_path, b"b", killed=True)
    assert [one.events for one in opened.losses] == [0]
    assert current(tmp_path).lost == {before.id: 1}


def test_an_end_is_lost_once(tmp_path):
    """A start that is killed at once is no other loss, and remembers it."""
    opened = publish(tmp_path, b"a", killed=True)
    opened.log.commit([Batch(Origin("plain", "l", "s-1", "[::1]:9"), 1, 0, b"m", 0)])
    opened.marker.write(opened.mark(1), now=True)
    before = current(tmp_path)
    (tmp_path / "journal/gw" / opened.log.synced.name).unlink()
    opened = start(tmp_path)
    assert [one.events for one in opened.losses] == [0]
    assert current(tmp_path).lost == {before.id: 1}
    again = start(tmp_path)
    assert (again.losses, again.notice) == ([], None)
    assert current(tmp_path).lost == {before.id: 1}


def test_a_disk_that_is_back_goes_on_where_it_was(tmp_path):
    """Another one had its name, and has given some of its lsns: nobody asks for them, and
    that other one is who nobody knows the end of.
    """
    data, other = tmp_path / "data", tmp_path / "other"
    publish(data, b"a", killed=True)
    before = current(data)
    publish(other, b"b", b"c", killed=True)
    meanwhile = current(other)
    for path in other.glob("spool/events-*"):
        shutil.copy(path, data / "archive")
    (data / "spool" / file_name("gw", before.id, 1, 1)).unlink()
    assert before.id != meanwhile.id
    tables(data, {before.id: [[1, 1]], meanwhile.id: [[1, 2]]})
    opened = publish(data, b"d", killed=True)
    assert (opened.first_lsn, opened.notice) == (3, None)
    after = current(data)
    assert (after.earlier, after.lost) == ((before.id,), {})
    report = audit(Directories.under(data), pause=lambda _: None)
    assert [one.incarnation for one in report.unknown] == [meanwhile.id]


@pytest.mark.parametrize("older", [True, False])
def test_a_record_that_a_directory_has_not_written_yet(tmp_path, older):
    """It was said by a later state: the directory was put back from a copy, and what came
    behind that nobody knows, though the word names no lsn that is missing."""
    data, bucket = tmp_path / "data", MemoryBucket()

    def says(opened: Opened) -> None:
        Speaker(
            bucket, "gw", opened.lineage, "journal", lambda: 1, lambda: 1,
            count=opened.marker.next_record,
        ).say()  # fmt: skip

    opened = publish(data, b"a", killed=True)
    says(opened)
    copy = opened.marker.path.read_bytes()
    says(opened)
    if older:  # put back file by file, and no other file has changed since
        opened.marker.path.write_bytes(copy)
    says(start(data))
    heard = [
        Heard(each.record, 1.0, lately=each.record.incarnation != opened.lineage.now.id)
        for each in read_all(bucket, "gw")
        if each.record
    ]
    for journal in (False, True):
        lives = Lives("gw", heard)
        if journal:
            lives.journal(current(data))
        lives.node_records(heard)
        lives.settle()
        reason = lives.reason(opened.lineage.now.id, 1)
        assert reason is (Reason.COPIED if older else Reason.CONTINUED)


@pytest.mark.parametrize("killed", [False, True])
def test_a_damaged_catalog_is_no_older_copy(tmp_path, killed):
    """The mark knows what its line said."""
    publish(tmp_path, b"a", b"b", killed=killed)
    before = current(tmp_path)
    catalog = tmp_path / "journal/gw/catalog"
    catalog.write_bytes(catalog.read_bytes()[:-9] + b"?" * 8 + b"\n")
    assert publish(tmp_path, b"c").notice is None
    after = current(tmp_path)
    assert (after.earlier, after.lost) == ((before.id,), {})


@pytest.mark.parametrize("left", [None, b"", bytes(64)], ids=["gone", "empty", "zeros"])
@pytest.mark.parametrize("marked", [True, False], ids=["", "without its mark"])
def test_a_copy_without_its_catalog_is_vouched_for_by_nobody(tmp_path, left, marked):
    """Though its segments say who gave what they have: another one went on meanwhile."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    opened = start(data)
    opened.log.commit([batch(b"a")])
    opened.marker.write(opened.mark(1), now=True)
    first = current(data)
    shutil.copytree(data, copy)
    publish(data, b"acknowledged, and gone with its disk")
    shutil.rmtree(data)
    copy.rename(data)
    catalog = data / "journal/gw/catalog"
    catalog.unlink() if left is None else catalog.write_bytes(left)
    if not marked:
        shutil.rmtree(data / "state")
    assert f"{first.id} of this node had acknowledged lsns up to 1" in (
        publish(data).notice or ""
    )
    assert current(data).lost == {first.id: 1}
    assert not audit(Directories.under(data), pause=lambda _: None).complete


def test_a_journal_that_comes_back_knows_who_went_on_without_it(tmp_path):
    """Its state says who that was; the files of both are this node's."""
    publish(tmp_path, b"a")
    first = current(tmp_path)
    away = (tmp_path / "journal").rename(tmp_path / "away")
    publish(tmp_path, b"b")
    second = current(tmp_path)
    shutil.rmtree(tmp_path / "journal")
    away.rename(tmp_path / "journal")
    opened = publish(tmp_path, b"c")
    assert opened.notice is None
    assert not [repair for repair in opened.repairs if "knows nothing" in repair]
    again = current(tmp_path)
    assert (again.since, again.earlier, again.lost) == (3, (first.id, second.id), {})
    assert audit(Directories.under(tmp_path), pause=lambda _: None).complete


class FullDisk(RealDisk):
    """It has room for no new file."""

    full = True

    def create(self, path: Path) -> File:
        if self.full:
            raise OSError(errno.ENOSPC, "no room", str(path))
        return super().create(path)


@pytest.mark.parametrize("how", ["no id", "copied"])
def test_a_full_disk_that_takes_no_id_refuses_no_start(tmp_path, how):
    """Its files have one all the same, and the next start knows it."""
    data = tmp_path / "data"
    publish(data, b"a")
    first = current(data)
    if how == "no id":
        path = data / "journal/gw/catalog"
        path.write_bytes(b"".join(lines_of(path, b"file")))
    else:
        data = shutil.copytree(data, tmp_path / "copy")
    disk = FullDisk()
    opened = start(data, disk)
    assert opened.first_lsn == 2
    disk.full = False
    opened.log.commit([batch(b"b")])
    Marker(data / "state/gw", disk).write(opened.mark(2), now=True)
    assert publish(data, b"c").first_lsn == 3
    assert set(current(data).earlier) == {first.id, opened.lineage.now.id}
    assert current(data).lost == {}
    assert audit(Directories.under(data), pause=lambda _: None).complete


def test_a_copy_is_told_before_anything_is_changed(tmp_path):
    """Also where the start fails after that."""
    publish(tmp_path / "data", b"a")
    copy = shutil.copytree(tmp_path / "data", tmp_path / "copy")
    before = current(copy)
    told: list[str] = []

    def tell(losses: Sequence[Loss], repairs: Sequence[str]) -> None:
        assert (list(losses), list(repairs), current(copy)) == ([], [], before)

    def notice(what: str) -> None:
        assert current(copy) == before
        told.append(what)

    opened = open_node(
        Start(
            "gw",
            Directories.under(copy),
            Machine(),
            {},
            remembering=False,
            tell=tell,
            tell_notice=notice,
        )
    )
    assert told == [opened.notice]
    assert current(copy) != before
