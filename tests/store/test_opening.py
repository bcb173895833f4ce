"""What a start finds, before anything runs; and when it must not go on."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gateway.config import Config
from gateway.event import Batch, Origin, Rows
from gateway.store.checkpoint import Unreadable
from gateway.store.directories import Directories
from gateway.store.disk import RealDisk
from gateway.store.finder import Finder
from gateway.store.journal import Loss, segment
from gateway.store.lock import Locked
from gateway.store.mark import Mark
from gateway.store.opening import MissingJournal, MissingProtocol, Opened, open_node
from gateway.store.spool import file_name
from gateway.store.storage import Storage, StorageCallbacks


def split(body: bytes) -> Rows:
    return Rows(body.split(b","))


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    return Directories.under(tmp_path)


@pytest.fixture
def start(directories: Directories) -> Callable[..., Opened]:
    """Opens the node with decoders for some protocols."""

    def start(*protocols: str, remembering: bool = False) -> Opened:
        decoders = dict.fromkeys(protocols, split)
        return open_node(
            "gw", directories, RealDisk(), decoders, remembering=remembering
        )

    return start


def store(opened: Opened, protocol: str, *bodies: bytes, count: int = 1) -> None:
    """Make batches durable, in a segment of their own."""
    origin = Origin(protocol, "l", "s-1", "[::1]:9")
    opened.log.commit([Batch(origin, 1, count, each, len(each)) for each in bodies])
    opened.log.seal()


def public(directories: Directories) -> list[str]:
    return sorted(path.name for path in directories.spool.iterdir())


def test_nothing_is_there(start: Callable[..., Opened]) -> None:
    """The first start of all makes the directories, and begins with lsn 1."""
    opened = start()
    assert (opened.log.next_lsn, opened.published_lsn) == (1, 0)
    assert opened.segments == opened.unpublished == opened.losses == []
    assert opened.remembered == []


@pytest.mark.parametrize("where", ["spool", "archive"])
def test_file_names_outlive_the_journal(
    start: Callable[..., Opened], directories: Directories, where: str
) -> None:
    """Where the journal's directory was lost, no lsn is given twice."""
    start()
    (directories.root / where / file_name("gw", 5, 9)).touch()
    (directories.root / where / file_name("other", 5, 99)).touch()
    opened = start()
    assert (opened.log.next_lsn, opened.published_lsn) == (10, 9)


@pytest.mark.parametrize("count", [1, 0])
def test_batches_of_a_protocol_that_is_not_installed_stop_the_start(
    start: Callable[..., Opened], directories: Directories, count: int
) -> None:
    """With events or with metadata alone.  The sentence says which protocol, where, and
    what to do; with the package installed everything is still there."""
    opened = start("plain")
    store(opened, "syslog", b"a", b"b", count=count)
    store(opened, "mqtt", b"c", count=count)
    store(opened, "plain", b"d")
    for _ in range(2):
        with pytest.raises(MissingProtocol) as failed:
            start("plain")
    said = str(failed.value)
    assert str(directories.journal_of("gw")) in said
    assert re.search("install the package that brings protocol 'mqtt' and 'sys", said)
    assert "gateway.protocols" in said
    assert isinstance(failed.value, Unreadable), "the daemon says it, and ends"
    again = start("plain", "syslog", "mqtt")
    assert again.log.next_lsn == 3 * count + 2
    for sealed in again.unpublished:
        again.publisher.publish(sealed)
    assert len(public(directories)) == 2 * count + 1
    assert start("plain").segments == []


def test_losses_are_told_even_if_the_start_fails(
    start: Callable[..., Opened], directories: Directories
) -> None:
    """Before anything is changed; and the next start tells them again."""
    opened = start("plain")
    store(opened, "syslog", b"a")
    store(opened, "plain", b"b")
    opened.log.commit([Batch(Origin("plain", "l", "s", "p"), 1, 1, b"c", 1)])
    opened.marker.write(Mark(given=3, durable=3))
    journal = directories.journal_of("gw")
    (journal / segment.name(2)).unlink()
    (journal / segment.name(3)).write_bytes(b"")
    before = {path: path.read_bytes() for path in journal.iterdir()}
    told: list[int] = []

    def tell(losses: Sequence[Loss], _: Sequence[str]) -> None:
        told.extend(loss.first_lsn for loss in losses)

    for _ in range(2):
        with pytest.raises(MissingProtocol):
            open_node("gw", directories, RealDisk(), {}, remembering=False, tell=tell)
    assert told == [2, 2]
    assert {path: path.read_bytes() for path in journal.iterdir()} == before


def test_what_is_published_and_kept_is_needed_too(start: Callable[..., Opened]) -> None:
    """No checkpoint may have it: a memory that is not installed would forget it."""
    opened = start("syslog", remembering=True)
    store(opened, "syslog", b"a")
    again = start("syslog", remembering=True)
    again.publisher.publish(again.unpublished[0])
    assert start("syslog", remembering=True).unpublished == []
    with pytest.raises(MissingProtocol, match="'syslog'"):
        start("plain", remembering=True)
    assert start("plain").segments != [], "not needed, for nothing remembers"


def test_damage_is_no_protocol(
    start: Callable[..., Opened], directories: Directories
) -> None:
    """Batches whose origin the disk did not give back stop nothing."""
    opened = start("plain")
    store(opened, "plain", b"a")
    [path] = directories.journal_of("gw").glob("*.journal")
    path.write_bytes(path.read_bytes().replace(b"plain", b"plaim"))
    assert start("plain").log.next_lsn == 2
    assert start().log.next_lsn == 2


def test_the_mark_knows_how_far_the_journal_went(
    start: Callable[..., Opened], directories: Directories
) -> None:
    """Its end is cut, or all of it is gone: that is told, and no lsn is given twice."""
    opened = start("plain")
    store(opened, "plain", b"a", b"b")
    opened.log.commit([Batch(Origin("plain", "l", "s", "p"), 1, 3, b"c,d,e", 5)])
    opened.marker.write(Mark(given=5, durable=5))
    last = directories.journal_of("gw") / segment.name(3)
    last.write_bytes(last.read_bytes()[:-1])
    opened = start("plain")
    assert [(one.first_lsn, one.events) for one in opened.losses] == [(3, 3)]
    assert opened.log.next_lsn == 6
    for directory in (directories.journal, directories.spool):
        shutil.rmtree(directory)
    with pytest.raises(MissingJournal):
        start("plain")
    (directories.journal_of("gw") / "catalog").touch()
    opened = start("plain")
    assert [(one.first_lsn, one.events) for one in opened.losses] == [(1, 5)]
    assert opened.log.next_lsn == 6


def publish_all(opened: Opened) -> None:
    """As the spool's thread does; and the mark."""
    for sealed in opened.unpublished:
        opened.publisher.publish(sealed)
    opened.publisher.close()
    opened.marker.write(opened.mark(opened.first_lsn - 1), now=True)


def two_of_three_unpublished(start: Callable[..., Opened]) -> None:
    """lsn 1 is in a file; 2 and 3 are acknowledged, in a segment of their own."""
    opened = start("plain")
    store(opened, "plain", b"a")
    opened = start("plain")
    publish_all(opened)
    store(opened, "plain", b"b", b"c")
    opened.marker.write(Mark(3, 3, 1), now=True)


def test_a_journal_that_is_missing_stops_the_start(
    start: Callable[..., Opened], directories: Directories, tmp_path: Path
) -> None:
    """Its disk is not mounted, say; with it everything is there, as if nothing was."""
    two_of_three_unpublished(start)
    journal = directories.journal_of("gw")
    away = journal.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(
            MissingJournal, match=r"lsns 2 to 3 .* mount its disk"
        ) as why:
            start("plain")
        assert f"make an empty file {journal}/catalog" in str(why.value)
        assert list(journal.iterdir()) == []
    journal.rmdir()
    away.rename(journal)
    opened = start("plain")
    assert opened.losses == []
    assert [(one.first_lsn, one.last_lsn) for one in opened.unpublished] == [(2, 3)]


@pytest.mark.parametrize("what", ["the journal", "its last segment"])
@pytest.mark.parametrize("remembering", [True, False])
def test_what_was_published_as_lost_and_comes_back_is_kept(
    start: Callable[..., Opened],
    directories: Directories,
    tmp_path: Path,
    what: str,
    remembering: bool,
) -> None:
    """The start did without; what is put back is the only copy, so it is set aside."""
    two_of_three_unpublished(start)
    journal = directories.journal_of("gw")
    path = journal / segment.name(2)
    whole = path.read_bytes()
    if what == "the journal":
        away = journal.rename(tmp_path / "away")
        journal.mkdir()
        (journal / "catalog").touch()
    else:
        path.unlink()
    opened = start("plain", remembering=remembering)
    assert [(one.first_lsn, one.events) for one in opened.losses] == [(2, 2)]
    publish_all(opened)
    if what == "the journal":
        shutil.rmtree(journal)
        away.rename(journal)
    else:
        path.write_bytes(whole)
    for _ in range(2):  # as long as a memory needs it
        opened = start("plain", remembering=remembering)
        aside = path.with_name(f"{path.name}.damaged")
        assert any(str(aside.name) in repair for repair in opened.repairs)
        assert (opened.unpublished, opened.losses) == ([], [])
        if not remembering:
            break
        assert path.read_bytes() == whole
    for each in opened.segments:
        opened.publisher.remove(each)
        opened.publisher.remove(each)
    assert aside.read_bytes() == whole
    assert list(journal.glob("*.journal")) == []
    opened = start("plain", remembering=remembering)
    assert [one for one in opened.repairs if "set aside" in one] == []
    assert (opened.losses, opened.first_lsn) == ([], 4)


def test_a_segment_that_is_missing_between_others_is_published_as_lost(
    start: Callable[..., Opened], directories: Directories
) -> None:
    """A row for each of its events; put back, it is kept and not published again."""
    opened = start("plain")
    for bodies in ((b"a",), (b"b", b"c"), (b"d",)):
        store(opened, "plain", *bodies)
    path = directories.journal_of("gw") / segment.name(2)
    whole = path.read_bytes()
    path.unlink()
    opened = start("plain")
    assert [(one.first_lsn, one.events) for one in opened.losses] == [(2, 2)]
    publish_all(opened)
    files = [directories.spool / name for name in public(directories)]
    assert [path.name for path in files] == [
        file_name("gw", 1, 1),
        file_name("gw", 2, 3),
        file_name("gw", 4, 4),
    ]
    flaws = [pq.read_table(path)["flaw"].to_pylist() for path in files]
    assert flaws == [[None], ["lost", "lost"], [None]]
    assert start("plain").losses == []
    path.write_bytes(whole)
    opened = start("plain")
    assert (opened.unpublished, opened.losses) == ([], [])
    assert path.with_name(f"{path.name}.damaged").read_bytes() == whole
    assert opened.first_lsn == 5


@pytest.mark.parametrize("durable", [0, 2])
@pytest.mark.parametrize("starts", [1, 3])
def test_what_nobody_was_given_is_not_published_as_lost(
    start: Callable[..., Opened], directories: Directories, durable: int, starts: int
) -> None:
    """A damaged segment kept a lsn for each of its bytes, was removed by hand, and the
    daemon killed before what lies behind it was published: rows are for what the mark
    called durable."""
    opened = start("plain")
    store(opened, "plain", b"a", b"b")
    opened.marker.write(Mark(durable, durable), now=True)
    [path] = directories.journal_of("gw").glob("*.journal")
    whole = path.read_bytes()
    path.write_bytes(bytes(64) + whole[64:])
    for n in range(starts):
        opened = start("plain")
        assert opened.first_lsn == 1 + len(whole) + n
        if n:  # else it is killed within the second
            given = opened.first_lsn - 1
            opened.marker.write(opened.mark(given), now=True)
        store(opened, "plain", b"c")
    path.with_name(path.name + ".damaged").unlink()
    opened = start("plain")
    assert [(one.first_lsn, one.events) for one in opened.losses] == [(1, len(whole))]
    assert sum(each.lost for each in opened.unpublished) == durable
    assert sum(each.events for each in opened.unpublished) == durable + starts
    publish_all(opened)
    opened.marker.write(opened.mark(opened.first_lsn - 1), now=True)
    assert opened.marker.read()[0].left_out == ()
    assert start("plain").losses == []


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("remembering", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_what_a_damaged_line_named_is_neither_published_twice_nor_removed(
    start: Callable[..., Opened],
    directories: Directories,
    number: int,
    remembering: bool,
    late: bool,
) -> None:
    """Its segment was published, or published as lost: nobody knows.  Put back, it counts
    as published, and is kept, also if that is a start after the line was mended."""
    opened = start("plain", remembering=remembering)
    for body in (b"a", b"b", b"c", b"d"):
        store(opened, "plain", body)
    journal = directories.journal_of("gw")
    path = journal / segment.name(number)
    whole = path.read_bytes()
    opened = start("plain", remembering=remembering)
    publish_all(opened)
    for sealed in opened.segments:
        opened.publisher.remove(sealed)
    for each in directories.spool.iterdir():
        each.unlink()  # the job has taken them
    opened.marker.write(Mark(4, 4, 4), now=True)
    lines = (journal / "catalog").read_bytes().splitlines(keepends=True)
    bad = lines[number - 1]
    lines[number - 1] = bad[:20] + bytes([bad[20] ^ 1]) + bad[21:]
    (journal / "catalog").write_bytes(b"".join(lines))
    if late:
        assert len(start("plain", remembering=remembering).repairs) == 1
    path.write_bytes(whole)
    opened = start("plain", remembering=remembering)
    assert opened.unpublished == []
    assert any(f"{path.name}.damaged" in repair for repair in opened.repairs)
    for sealed in opened.segments:
        opened.publisher.remove(sealed)
        opened.publisher.remove(sealed)
    assert path.with_name(f"{path.name}.damaged").read_bytes() == whole
    assert public(directories) == []
    assert opened.first_lsn == 5


def test_a_damaged_first_line_does_not_vouch_for_lines_that_were_dropped(
    start: Callable[..., Opened],
    directories: Directories,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They were older; what they named is kept as well when it is put back."""
    monkeypatch.setattr("gateway.store.spool.catalog._KEEP", 3)
    opened = start("plain")
    for _ in range(10):
        store(opened, "plain", b"a")
    journal = directories.journal_of("gw")
    path = journal / segment.name(2)
    whole = path.read_bytes()
    publish_all(start("plain"))
    shutil.rmtree(directories.spool)
    lines = (journal / "catalog").read_bytes().splitlines(keepends=True)
    assert len(lines) < 9
    lines[0] = b"0" + lines[0][1:] if lines[0][:1] != b"0" else b"1" + lines[0][1:]
    (journal / "catalog").write_bytes(b"".join(lines))
    path.write_bytes(whole)
    opened = start("plain")
    assert opened.unpublished == []
    assert path.with_name(f"{path.name}.damaged").read_bytes() == whole
    assert opened.first_lsn == 11


@pytest.mark.parametrize("left", [0, 1, 3])
@pytest.mark.parametrize("remembering", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_what_a_missing_line_named_is_not_removed_either(
    start: Callable[..., Opened],
    directories: Directories,
    left: int,
    remembering: bool,
    late: bool,
) -> None:
    """The last lines were cut off, and the job has taken the files."""
    opened = start("plain", remembering=remembering)
    for body in (b"a", b"b", b"c", b"d"):
        store(opened, "plain", body)
    journal = directories.journal_of("gw")
    path = journal / segment.name(4)
    whole = path.read_bytes()
    opened = start("plain", remembering=remembering)
    publish_all(opened)
    for sealed in opened.segments:
        opened.publisher.remove(sealed)
    for each in directories.spool.iterdir():
        each.unlink()
    opened.marker.write(Mark(4, 4, 4), now=True)
    lines = (journal / "catalog").read_bytes().splitlines(keepends=True)
    (journal / "catalog").write_bytes(b"".join(lines[:left]))
    if late:
        assert len(start("plain", remembering=remembering).repairs) == 1
    path.write_bytes(whole)
    opened = start("plain", remembering=remembering)
    assert opened.unpublished == []
    assert any(f"{path.name}.damaged" in repair for repair in opened.repairs)
    for sealed in opened.segments:
        opened.publisher.remove(sealed)
    assert path.with_name(f"{path.name}.damaged").read_bytes() == whole


@pytest.mark.parametrize("where", ["spool", "archive"])
def test_a_public_file_behind_a_hole_is_not_written_again(
    start: Callable[..., Opened], directories: Directories, where: str
) -> None:
    """One bad sector took three lines, retention one of their files, and the mark is late:
    the file's name is there, and its segment was not removed yet."""
    opened = start("plain", remembering=True)
    for body in (b"a", b"b", b"c", b"d"):
        store(opened, "plain", body)
    publish_all(start("plain", remembering=True))
    file = directories.spool / file_name("gw", 4, 4)
    content = file.read_bytes()
    (directories.spool / file_name("gw", 3, 3)).unlink()
    file = file.rename(directories.root / where / file.name)
    opened.marker.write(Mark(4, 4, 1), now=True)
    journal = directories.journal_of("gw")
    for number in (1, 2, 3):
        (journal / segment.name(number)).unlink()
    first, *others = (journal / "catalog").read_bytes().splitlines(keepends=True)
    (journal / "catalog").write_bytes(first + bytes(sum(map(len, others))))
    opened = start("plain", remembering=True)
    assert opened.unpublished == []
    assert any(f"no line names {file.name}" in repair for repair in opened.repairs)
    publish_all(opened)
    assert file.read_bytes() == content
    opened = start("plain", remembering=True)
    assert (opened.unpublished, opened.repairs, opened.first_lsn) == ([], [], 5)


@pytest.mark.parametrize("fault", ["damaged", "cut"])
def test_a_damaged_segment_is_kept_after_a_crash_too(
    start: Callable[..., Opened], directories: Directories, fault: str
) -> None:
    """The power went when its file was public, and it was not set aside; of one that is
    cut nothing is left to keep."""
    opened = start("plain")
    opened.log.commit([Batch(Origin("plain", "l", "s", "p"), 1, 1, b"a" * 40, 40)])
    whole = opened.log.bytes
    store(opened, "plain", b"b" * 40)
    path = directories.journal_of("gw") / segment.name(1)
    data = path.read_bytes()
    opened.marker.write(Mark(2, 2, 0), now=True)
    if fault == "damaged":
        path.write_bytes(data.replace(b"aaa", b"aab", 1))
    else:
        path.write_bytes(data[:whole])
    opened = start("plain")
    left = path.read_bytes()
    publish_all(opened)
    path.write_bytes(left)
    path.with_name(f"{path.name}.damaged").unlink(missing_ok=True)
    opened = start("plain")
    assert (opened.unpublished, opened.repairs) == ([], [])
    aside = [left] if fault == "damaged" else []
    there = directories.journal_of("gw").glob("*.journal*")
    assert [each.read_bytes() for each in there] == aside


@pytest.mark.parametrize("remembering", [True, False])
def test_damaged_metadata_is_told_and_keeps_no_lsns(
    start: Callable[..., Opened], directories: Directories, remembering: bool
) -> None:
    """It has no events: a file that is set aside would hold a lsn for each of its bytes."""
    opened = start("plain", remembering=remembering)
    store(opened, "plain", b"m" * 40, b"n" * 40, count=0)
    [path] = directories.journal_of("gw").glob("*.journal")
    path.write_bytes(path.read_bytes().replace(b"mmm", b"mmn", 1))
    opened = start("plain", remembering=remembering)
    assert [(one.first_lsn, one.events) for one in opened.losses] == [(1, 0)]
    for each in opened.segments:
        opened.publisher.remove(each)
    opened = start("plain", remembering=remembering)
    assert (opened.losses, opened.first_lsn) == ([], 1)


class Forbidden(RealDisk):
    """`poison/` is the Spark job's alone."""

    def read(self, path: Path) -> bytes:
        if path.parent.name == "poison":
            raise PermissionError(errno.EACCES, "not ours", str(path))
        return super().read(path)


def test_poison_that_may_not_be_searched_refuses_no_start(
    start: Callable[..., Opened], directories: Directories
) -> None:
    """The newest file's link is unknown then."""
    opened = start("plain")
    store(opened, "plain", b"a")
    publish_all(start("plain"))
    (directories.journal_of("gw") / "catalog").unlink()
    opened.marker.write(Mark(1, 1, 1), now=True)
    shutil.rmtree(directories.spool)
    decoders = {"plain": split}
    opened = open_node("gw", directories, Forbidden(), decoders, remembering=False)
    assert opened.first_lsn == 2
    assert opened.publisher.link.sha256 == ""


def test_what_may_have_been_given_is_not_what_was_acknowledged(
    start: Callable[..., Opened], directories: Directories
) -> None:
    """A segment that is no segment any more keeps as many lsns as it has bytes; whoever
    puts it back misses nothing.
    """
    opened = start("plain")
    store(opened, "plain", b"a", b"b")
    [path] = directories.journal_of("gw").glob("*.journal")
    whole = path.read_bytes()
    path.write_bytes(bytes(64) + whole[64:])
    opened = start("plain")
    assert opened.first_lsn == 1 + len(whole)
    assert opened.durable_lsn == 0
    opened.marker.write(Mark(opened.first_lsn - 1, opened.durable_lsn))
    path.with_name(path.name + ".damaged").unlink()
    path.write_bytes(whole)
    opened = start("plain")
    assert opened.losses == []
    assert (opened.durable_lsn, opened.first_lsn) == (2, 1 + len(whole))


def test_the_mark_knows_what_was_published(
    start: Callable[..., Opened], directories: Directories
) -> None:
    """Where the catalog lost its last lines, nothing is published again."""
    opened = start("plain", remembering=True)
    for body in (b"a", b"b"):
        store(opened, "plain", body)
    opened = start("plain", remembering=True)
    catalog = directories.journal_of("gw") / "catalog"
    for sealed, lines in zip(opened.unpublished, (1, 2), strict=True):
        opened.publisher.publish(sealed)
        assert len(catalog.read_bytes().splitlines()) == lines
    opened.marker.write(Mark(2, 2, 2))
    shutil.rmtree(directories.spool)  # the job has taken them
    whole = catalog.read_bytes()
    first = whole.splitlines(keepends=True)[0]
    for rest in (b"", first, first + whole[len(first) :].replace(b"2", b"3")):
        catalog.write_bytes(rest)
        opened = start("plain", remembering=True)
        assert opened.unpublished == []
        assert (opened.published_lsn, opened.log.next_lsn) == (2, 3)
        # Of a line that is gone nobody knows what was lost: its segment is kept, too.
        mended, *kept = opened.repairs
        assert "count as published" in mended
        assert [one for one in kept if "set aside as" in one] == kept
        assert len(kept) == (1 if rest else 2)


def test_a_damaged_mark_is_told(
    start: Callable[..., Opened], directories: Directories
) -> None:
    """It is no reason not to start."""
    (directories.state_of("gw")).mkdir(parents=True)
    (directories.state_of("gw") / "mark").write_bytes(b"?")
    assert start().repairs == [
        f"{directories.state_of('gw')}/mark is damaged; it is written anew"
    ]


def test_files_that_are_not_ours_are_left_alone(
    directories: Directories, start: Callable[..., Opened]
) -> None:
    """And named: a FIFO is not waited for, an impossible lsn is not believed."""
    assert start().foreign == []
    journal = directories.journal_of("gw")
    pipe = journal / f"{7:020d}.journal"
    os.mkfifo(pipe)
    notes = journal / "notes.txt"
    notes.touch()
    huge = directories.spool / "events-gw-{0}-{0}.parquet".format("9" * 20)
    huge.touch()
    odd = directories.archive / "events-of-last-year.parquet"
    odd.touch()
    opened = start()
    assert set(opened.foreign) == {pipe, notes, huge, odd}
    assert opened.log.next_lsn == 1
    assert all(path.exists() for path in opened.foreign)
    finder = Finder(directories, "gw")
    assert finder.segments(1) == []
    assert finder.oldest() is None


def test_one_daemon_at_a_time(tmp_path: Path) -> None:
    """A data directory that is in use is left alone; who uses it is said."""
    listener = {"name": "l", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"}
    settings = Config.model_validate(
        {"node": "gw", "data_dir": str(tmp_path / "data"), "listeners": [listener]}
    )

    def start() -> Any:
        return Storage.open(
            settings,
            RealDisk(),
            None,
            {},
            StorageCallbacks(fatal=lambda _: None),
            remembering=False,
        )

    start()
    with pytest.raises(Locked, match="in use by gateway gw, pid"):
        start()
    (tmp_path / "data" / "lock").unlink()
    with pytest.raises(Locked, match="in use by another process"):
        start()


def test_the_open_segments_age_follows_no_clock_that_is_set(
    directories: Directories,
) -> None:
    """The wall clock set back an hour would keep events from the spool for that hour."""
    wall, passed = [7200.0], [10.0]
    opened = open_node(
        "gw",
        directories,
        RealDisk(),
        {"plain": split},
        remembering=False,
        clock=lambda: wall[0],
        monotonic=lambda: passed[0],
    )
    origin = Origin("plain", "l", "s-1", "[::1]:9")
    opened.log.commit([Batch(origin, 1, 1, b"a", 1)])
    wall[0], passed[0] = 3600.0, 12.5
    assert opened.log.age == 2.5
