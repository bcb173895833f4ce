"""Directories that were copied, moved, lost or put back, and what a start makes of them."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from gateway.audit import audit
from gateway.event import Batch, Origin, Rows
from gateway.sdk import summed
from gateway.sdk.disk import Disk, File
from gateway.store import incarnation, statefile
from gateway.store.directories import Directories
from gateway.store.disk import RealDisk
from gateway.store.incarnation import INCARNATION, KEY, Incarnation
from gateway.store.journal import Loss
from gateway.store.machine import Machine
from gateway.store.mark import NAME as MARK
from gateway.store.mark import Mark, Marker
from gateway.store.names import file_name
from gateway.store.opening import Opened, Start, open_node
from gateway.store.spool.catalog_lines import entries
from incarnations import A


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
    found, problem = incarnation.read(data / "journal/gw", RealDisk())
    assert found is not None, problem
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


def tables(data: Path, last: int | dict[str, list[list[int]]]) -> None:
    """The job's ledger says that they have everything up to there, or these by incarnation."""
    path = data / "lake/.gateway/events.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    spans = [[1, last]] if isinstance(last, int) else last
    path.write_text(json.dumps({"committed": {"gw": spans}, "holes": []}))


def test_one_directory_is_one_incarnation(tmp_path: Path) -> None:
    """Over all its starts, and under another name of its parent; journal, catalog and
    files have its id."""
    data = tmp_path / "data"
    assert publish(data, b"a").notice is None
    first = current(data)
    assert (first.since, first.earlier) == (1, ())
    data = data.rename(tmp_path / "renamed")
    assert publish(data, b"b").notice is None
    assert current(data) == first
    lines = entries((data / "journal/gw/catalog").read_bytes())
    assert {line.incarnation for line in lines} == {first.id}
    assert published(data) == {"1": first.id, "2": first.id}


def test_a_copy_is_another_incarnation(tmp_path: Path) -> None:
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
def test_a_lsn_belongs_to_the_incarnation_that_gave_it(
    tmp_path: Path, way: str
) -> None:
    """Whoever publishes it: a directory that was moved knows from which lsn on each of its
    incarnations began, and a copy gives no event a second name."""
    data = tmp_path / "data"
    publish(data, b"a")
    left(data, b"b,c")
    ids = [current(data).id]
    for number in range(2 if way == "moved twice" else 1):
        data = shutil.copytree(data, tmp_path / f"copy {number}")
        left(data, b"d")
        ids.append(current(data).id)
    if way == "moved":
        shutil.rmtree(tmp_path / "data")
    publish(data, b"z")
    own = [ids[0], ids[0], *ids[1:], ids[-1]]
    assert [*published(data).values()] == own
    lines = entries((data / "journal/gw/catalog").read_bytes())
    assert [line.incarnation for line in lines] == own
    assert current(data).begins == (1, 4)[: len(ids) - 1]
    if way == "copied":
        publish(tmp_path / "data")
        name = file_name("gw", A, 2, 3)
        one, other = (
            (each / "spool" / name).read_bytes() for each in (data, tmp_path / "data")
        )
        assert one == other
    assert audit(Directories.under(data), pause=lambda _: None).complete


class Before(msgspec.Struct):
    """What earlier versions wrote."""

    id: str
    since: int
    directory: int
    earlier: tuple[str, ...]
    generation: int


def test_an_id_without_the_lsns_of_those_before_it_is_read() -> None:
    """As earlier versions wrote it: whose what it has left is, is not known then."""
    first = statefile.decode(
        summed.encode(Before("c", 100, 1, ("a", "b"), 1)), Incarnation
    )
    assert first == Incarnation("c", 100, 1, ("a", "b"), 1)
    second = Incarnation.new(200, (2, 1), first)
    assert [second.of_lsn(lsn) for lsn in (1, 99, 100, 199, 200)] == [
        "",
        "",
        "c",
        "c",
        second.id,
    ]
    aware = second.aware_of(["x", "a"])
    assert aware.earlier == ("x", "a", "b", "c")
    assert aware.of_lsn(150) == "c"
    assert aware.givers(150) == ("c",)
    assert aware.givers(250) == (second.id,)
    assert aware.givers(50) == ("x", "a", "b")
    assert aware.aware_of(["b"]) is aware


def test_two_copies_under_one_name_are_found_out(tmp_path: Path) -> None:
    """Where their files meet: by the start, which goes on behind them, and the audit."""
    data = tmp_path / "data"
    publish(data, b"a")
    copy = shutil.copytree(data, tmp_path / "copy")
    publish(data, b"b")
    publish(copy, b"x", b"y")
    [theirs] = copy.glob("spool/events-*3.parquet")
    shutil.copy(theirs, data / "spool")
    report = audit(Directories.under(data), pause=lambda _: None)
    assert not report.complete
    [unknown] = report.unknown
    assert (unknown.incarnation, unknown.last) == (current(copy).id, 3)
    assert unknown.successor == current(data).id
    assert not report.problems
    opened = publish(data, b"c")
    assert opened.first_lsn == 4
    assert any(current(copy).id in repair for repair in opened.repairs)


def test_an_older_copy_beside_newer_tables_gives_no_lsn_again(tmp_path: Path) -> None:
    """It was put back: what it has unpublished is in the tables, under the same lsns."""
    data = tmp_path / "data"
    opened = publish(data, b"a", b"b")
    opened.log.commit([batch(b"c")])
    copy = shutil.copytree(data, tmp_path / "copy")
    tables(copy, 7)
    opened = publish(copy, b"h")
    assert opened.first_lsn == 8
    assert opened.unpublished == []
    assert [repair for repair in opened.repairs if "up to lsn 7" in repair]
    assert sorted(published(copy)) == ["1", "2", "8"]
    assert publish(copy).repairs == []


class Inodes(RealDisk):
    """Each directory's, as a file system gives it again once it is removed."""

    generation = 7

    def identity(self, path: Path) -> tuple[int, int]:
        return 11, self.generation


def test_a_copy_in_the_place_of_the_directory_is_another_incarnation(
    tmp_path: Path,
) -> None:
    """Though its inode has the number of the one that was removed."""
    disk = Inodes()
    assert start(tmp_path, disk).notice is None
    first = current(tmp_path)
    assert start(tmp_path, disk).notice is None
    assert current(tmp_path) == first
    disk.generation = 8
    notice = start(tmp_path, disk).notice
    assert notice is not None
    assert first.id in notice
    assert start(tmp_path, disk).notice is None


def test_an_earlier_version_did_not_know_which_of_those_with_a_number(
    tmp_path: Path,
) -> None:
    """From the first start on it does, and nothing is told."""
    disk = Inodes()
    start(tmp_path, disk)
    first = current(tmp_path)
    msgspec.structs.replace(first, generation=0).save(tmp_path / "journal/gw", disk)
    assert start(tmp_path, disk).notice is None
    assert current(tmp_path) == first
    disk.generation = 8
    assert start(tmp_path, disk).notice is not None


def test_the_real_one_tells_directories_with_one_number_apart(tmp_path: Path) -> None:
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


def test_what_the_tables_have_is_usually_known(tmp_path: Path) -> None:
    """Though no file is left, and the mark is late: nothing is told."""
    data = tmp_path / "data"
    mark = data / "state/gw" / MARK
    publish(data, b"a")
    late = mark.read_bytes()
    publish(data, b"b", b"c")
    shutil.rmtree(data / "spool")
    mark.write_bytes(late)
    tables(data, 3)
    opened = start(data)
    assert (opened.repairs, opened.notice, opened.first_lsn) == ([], None, 4)


def test_everything_but_the_tables_is_gone(tmp_path: Path) -> None:
    """They say how far the node had come."""
    tables(tmp_path, 5)
    opened = publish(tmp_path, b"a")
    assert opened.first_lsn == 6
    assert any("up to lsn 5" in repair for repair in opened.repairs)


def test_a_damaged_ledger_is_the_jobs_affair(tmp_path: Path) -> None:
    """The start does without."""
    tables(tmp_path, 5)
    (tmp_path / "lake/.gateway/events.json").write_bytes(b"{")
    assert start(tmp_path).first_lsn == 1


@pytest.mark.parametrize("damage", ["removed", "flipped"])
def test_a_lost_id_is_found_in_the_catalog(tmp_path: Path, damage: str) -> None:
    """Another one begins, which knows all before it."""
    publish(tmp_path, b"a")
    first = current(tmp_path)
    path = tmp_path / "journal/gw" / INCARNATION[0]
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b"id", b"if"))
    opened = publish(tmp_path, b"b")
    assert len(opened.repairs) == (damage == "flipped")
    assert current(tmp_path).earlier == (first.id,)
    assert audit(Directories.under(tmp_path), pause=lambda _: None).complete


def test_a_new_journal_beside_its_state_knows_who_was_before(tmp_path: Path) -> None:
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
def test_a_lost_journal_is_vouched_for_by_nobody(tmp_path: Path, again: bool) -> None:
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
    assert first.id not in current(tmp_path).earlier
    report = audit(Directories.under(tmp_path), pause=lambda _: None)
    [unknown] = report.unknown
    assert (unknown.incarnation, unknown.last) == (first.id, 1)
    assert not report.complete
    # It is told once, and who went on vouches for those before it.
    assert publish(tmp_path, b"c").notice is None
    third = publish(tmp_path, b"d")
    assert third.incarnation.id == current(tmp_path).id


def older_copy(data: Path, *bodies: bytes, exact: bool = False) -> Incarnation:
    """Put back *in the directory itself* as it was before *bodies* were acknowledged, beside
    the mark as it was some moments before the end; returns who lived there.
    """
    journal = data / "journal/gw"
    before = current(data)
    copy = shutil.copytree(journal, data / "copy")
    marked = statefile.look(data / "state/gw" / MARK, Mark)
    for body in bodies:
        opened = start(data)
        opened.log.commit([batch(body)])
        opened.marker.write(opened.mark(opened.log.next_lsn - 1, exact=exact), now=True)
    for path in journal.iterdir():
        path.unlink()
    shutil.copytree(copy, journal, dirs_exist_ok=True)
    shutil.rmtree(copy)
    assert current(data) == before, "its directory is the same"
    assert statefile.look(data / "state/gw" / MARK, Mark) != marked
    return before


def test_an_older_copy_beside_its_newer_mark_is_another_incarnation(
    tmp_path: Path,
) -> None:
    """What was acknowledged in the second behind the mark nobody knows, and its lsns are
    given again: under another name.  The audit is not complete before that is accepted.
    """
    publish(tmp_path, b"a", killed=True)
    before = older_copy(tmp_path, b"b", b"c")
    opened = publish(tmp_path, b"d", killed=True)
    assert opened.first_lsn == 4
    assert [(one.first_lsn, one.events) for one in opened.losses] == [(2, 2)]
    assert opened.notice is not None
    assert "does not know any more" in opened.notice
    assert "nobody knows how much" in opened.notice
    after = current(tmp_path)
    assert (after.since, after.earlier, after.lost) == (4, (before.id,), (before.id,))
    assert published(tmp_path) == {"1": before.id, "3": before.id, "4": after.id}
    report = audit(Directories.under(tmp_path), pause=lambda _: None)
    [unknown] = report.unknown
    assert (unknown.incarnation, unknown.last) == (before.id, 3)
    # It is told once, and who goes on is the same from here on.
    assert publish(tmp_path, b"e", killed=True).notice is None
    assert current(tmp_path) == after
    shutil.rmtree(tmp_path / "journal")
    publish(tmp_path, b"f")
    assert before.id not in current(tmp_path).earlier, (
        "nobody else vouches for it either"
    )


def test_an_older_copy_of_who_had_all_in_files_lost_nothing(tmp_path: Path) -> None:
    """It gives no lsn again under one name, and there is nothing to accept."""
    publish(tmp_path, b"a")
    away = shutil.copytree(tmp_path / "journal/gw", tmp_path / "away")
    publish(tmp_path, b"b")
    before = current(tmp_path)
    shutil.copytree(away, tmp_path / "journal/gw", dirs_exist_ok=True)
    opened = publish(tmp_path, b"c")
    assert opened.first_lsn == 3
    assert opened.losses == []
    assert opened.notice is not None
    assert "nobody knows" not in opened.notice
    after = current(tmp_path)
    assert (after.earlier, after.lost) == ((before.id,), ())
    assert published(tmp_path) == {"1": before.id, "2": before.id, "3": after.id}
    assert audit(Directories.under(tmp_path), pause=lambda _: None).complete


@pytest.mark.parametrize("newer", ["tables", "archive"])
def test_what_is_newer_than_a_copy_of_all_the_rest_vouches_for_nothing(
    tmp_path: Path, newer: str
) -> None:
    """Journal, mark and spool are of one moment: what was acknowledged since, and is in no
    table, is lost, and the audit knows that something may be.
    """
    data, archive = tmp_path / "data", tmp_path / "data/archive"
    publish(data, b"a", killed=True)
    before = current(data)
    copy = shutil.copytree(data, tmp_path / "copy")
    publish(data, b"b", killed=True)
    for path in (data / "spool").glob(f"*{2:020d}-*"):
        path.rename(archive / path.name)
    start(data).log.commit([batch(b"in no file")])
    for name in ("journal", "state", "spool"):
        shutil.rmtree(data / name)
        shutil.copytree(copy / name, data / name)
    if newer == "tables":
        tables(data, 2)
        shutil.rmtree(archive)
    opened = publish(data, b"c", killed=True)
    assert opened.first_lsn == 3
    assert opened.notice is not None
    assert "nobody knows how much" in opened.notice
    assert current(data).lost == (before.id,)
    report = audit(Directories.under(data), pause=lambda _: None)
    assert [one.incarnation for one in report.unknown] == [before.id]
    assert publish(data, b"d").notice is None


def test_a_lost_end_without_events_is_an_end_too(tmp_path: Path) -> None:
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
    assert current(tmp_path).lost == (before.id,)


def test_an_end_is_lost_once(tmp_path: Path) -> None:
    """A start that is killed at once is no other loss: who goes on is the same from then on."""
    opened = publish(tmp_path, b"a", killed=True)
    opened.log.commit([Batch(Origin("plain", "l", "s-1", "[::1]:9"), 1, 0, b"m", 0)])
    opened.marker.write(opened.mark(1), now=True)
    before = current(tmp_path)
    (tmp_path / "journal/gw" / opened.log.synced.name).unlink()
    opened = start(tmp_path)
    assert [one.events for one in opened.losses] == [0]
    after = current(tmp_path)
    assert after.lost == (before.id,)
    again = start(tmp_path)
    assert (again.losses, again.notice) == ([], None)
    assert current(tmp_path) == after


def test_a_disk_that_is_back_has_lost_nothing(tmp_path: Path) -> None:
    """Another one had its name, and has given the lsns that the tables have behind its own."""
    data, other = tmp_path / "data", tmp_path / "other"
    publish(data, b"a", killed=True)
    before = current(data)
    tables(other, 1)
    publish(other, b"b", b"c", killed=True)
    meanwhile = current(other)
    tables(data, {before.id: [[1, 1]], meanwhile.id: [[2, 3]]})
    opened = publish(data, b"d", killed=True)
    assert opened.first_lsn == 4
    assert opened.notice is not None
    assert "another gateway took this node's name over" in opened.notice
    assert "nobody knows" not in opened.notice
    after = current(data)
    assert (after.earlier, after.lost) == ((before.id,), ())
    report = audit(Directories.under(data), pause=lambda _: None)
    assert report.unknown == []
    assert publish(data, b"e").notice is None


@pytest.mark.parametrize("killed", [False, True])
def test_a_damaged_catalog_is_no_older_copy(tmp_path: Path, killed: bool) -> None:
    """The mark knows what its line said."""
    publish(tmp_path, b"a", b"b", killed=killed)
    before = current(tmp_path)
    catalog = tmp_path / "journal/gw/catalog"
    catalog.write_bytes(catalog.read_bytes()[:-9] + b"?" * 8 + b"\n")
    assert publish(tmp_path, b"c").notice is None
    assert current(tmp_path) == before


def test_a_journal_that_comes_back_knows_who_went_on_without_it(tmp_path: Path) -> None:
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
    assert (again.id, again.since, again.earlier) == (first.id, 1, (second.id,))
    assert audit(Directories.under(tmp_path), pause=lambda _: None).complete


@pytest.mark.parametrize("ahead", ["the tables", "somebody's file"])
def test_what_others_published_under_our_lsns_is_not_ours(
    tmp_path: Path, ahead: str
) -> None:
    """The journal has its own events under these lsns, and they are in no file: they are
    set aside, and told."""
    data = tmp_path / "data"
    publish(data, b"a")
    opened = publish(data)
    opened.log.commit([batch(b"ours")])
    opened.marker.write(opened.mark(2), now=True)
    [path] = data.glob("journal/gw/*.journal")
    whole = path.read_bytes()
    if ahead == "the tables":
        tables(data, 7)
    else:
        other = tmp_path / "other"
        publish(other, b"x", b"y,z")
        [theirs] = other.glob("spool/events-*3.parquet")
        shutil.copy(theirs, data / "spool")
    opened = publish(data)
    assert opened.unpublished == []
    assert [repair for repair in opened.repairs if "it is set aside" in repair]
    aside = path.with_name(f"{path.name}.damaged")
    assert aside.read_bytes() == whole
    assert publish(data, b"h").repairs == []


class FullDisk(RealDisk):
    """It has room for no new file."""

    def create(self, path: Path) -> File:
        raise OSError(errno.ENOSPC, "no room", str(path))


@pytest.mark.parametrize("how", ["no id", "copied"])
def test_a_full_disk_that_takes_no_id_refuses_no_start(
    tmp_path: Path, how: str
) -> None:
    """It goes on as earlier versions did; the next start gives it one."""
    data = tmp_path / "data"
    publish(data, b"a")
    first = current(data)
    if how == "no id":
        (data / "journal/gw" / INCARNATION[0]).unlink()
    else:
        data = shutil.copytree(data, tmp_path / "copy")
    opened = start(data, FullDisk())
    assert opened.first_lsn == 2
    Marker(data / "state/gw", RealDisk()).write(opened.mark(1), now=True)
    assert publish(data, b"b").first_lsn == 2
    assert current(data).earlier == (first.id,)
    assert audit(Directories.under(data), pause=lambda _: None).complete


def test_what_can_not_be_read_is_no_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever pyarrow makes of damaged bytes; others tell of them."""
    publish(tmp_path, b"a")
    (tmp_path / "journal/gw/catalog").unlink()

    def read(*_: object) -> None:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    monkeypatch.setattr(pq, "read_metadata", read)
    assert start(tmp_path).first_lsn == 2


def test_a_copy_is_told_before_anything_is_changed(tmp_path: Path) -> None:
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
