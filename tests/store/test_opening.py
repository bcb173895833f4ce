"""What a start finds, before anything runs; and when it must not go on."""

import errno
import os
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from catalogs import lines_of
from gateway.config import Config
from gateway.event import Batch, Origin
from gateway.store.checkpoint import Unreadable
from gateway.store.finder import Finder
from gateway.store.journal import Loss
from gateway.store.names import kept_name
from gateway.store.node.mark import Mark
from gateway.store.opening import MissingJournal, MissingProtocol, Start, open_node
from gateway.store.spool import file_name
from gateway.store.storage import OpenedStorage, StorageCallbacks
from gateway.store.system.disk import RealDisk
from gateway.store.system.lock import Locked
from gateway.store.system.machine import Machine
from incarnations import A, segment_name
from losses import damage, losses

from .conftest import public, publish_all, split, store


def test_nothing_is_there(start):
    """The first start of all makes the directories, and begins with lsn 1."""
    opened = start()
    assert (opened.log.next_lsn, opened.published_lsn) == (1, 0)
    assert opened.segments == opened.unpublished == opened.losses == []
    assert opened.remembered == []


@pytest.mark.parametrize("where", ["spool", "archive", "retained"])
def test_file_names_outlive_the_journal(start, directories, where):
    """Where the journal's directory was lost, no lsn is given twice."""
    start()
    for node, last in ("gw", 9), ("other", 99):
        name = file_name(node, A, 5, last)
        if where == "retained":
            name = f"{node}/{kept_name(5, last, 0)}"
        path = directories.root / where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    opened = start()
    assert (opened.log.next_lsn, opened.published_lsn) == (10, 9)


@pytest.mark.parametrize("count", [1, 0])
def test_batches_of_a_protocol_that_is_not_installed_stop_the_start(
    opened, start, directories, count
):
    """With events or with metadata alone.  The sentence says which protocol, where, and
    what to do; with the package installed everything is still there."""
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


def test_losses_are_told_even_if_the_start_fails(opened, directories):
    """Before anything is changed; and the next start tells them again."""
    store(opened, "syslog", b"a")
    store(opened, "plain", b"b")
    opened.log.commit([Batch(Origin("plain", "l", "s", "p"), 1, 1, b"c", 1)])
    opened.marker.write(Mark(given=3, durable=3))
    journal = directories.journal_of("gw")
    (journal / segment_name(2)).unlink()
    (journal / segment_name(3)).write_bytes(b"")
    before = {path: path.read_bytes() for path in journal.iterdir()}
    told: list[int] = []

    def tell(losses: Sequence[Loss], _: Sequence[str]) -> None:
        told.extend(loss.first_lsn for loss in losses)

    for _ in range(2):
        with pytest.raises(MissingProtocol):
            open_node(
                Start("gw", directories, Machine(), {}, remembering=False, tell=tell)
            )
    assert told == [2, 2]
    assert {path: path.read_bytes() for path in journal.iterdir()} == before


def test_what_is_published_and_kept_is_needed_too(start):
    """No checkpoint may have it: a memory that is not installed would forget it."""
    opened = start("syslog", remembering=True)
    store(opened, "syslog", b"a")
    again = start("syslog", remembering=True)
    again.publisher.publish(again.unpublished[0])
    assert start("syslog", remembering=True).unpublished == []
    with pytest.raises(MissingProtocol, match="'syslog'"):
        start("plain", remembering=True)
    assert start("plain").segments != [], "not needed, for nothing remembers"


def test_metadata_goes_behind_the_events_before_it(start):
    """A checkpoint is told of segments in their order after a start, too: what is rebuilt
    of the second alone is a state that takes nothing of the first any more."""
    opened = start("syslog", remembering=True)
    for body, count in ((b"a", 0), (b"b", 1), (b"c", 0), (b"d", 1), (b"e", 0)):
        store(opened, "syslog", body, count=count)
    again = start("syslog", remembering=True)
    assert again.unpublished == again.segments[1:]
    for sealed in again.unpublished[:2]:
        again.publisher.publish(sealed)
    again = start("syslog", remembering=True)
    assert again.unpublished == again.segments[3:]


def test_damage_is_no_protocol(opened, start, directories):
    """Batches whose origin the disk did not give back stop nothing."""
    store(opened, "plain", b"a")
    [path] = directories.journal_of("gw").glob("*.journal")
    path.write_bytes(path.read_bytes().replace(b"plain", b"plaim"))
    assert start("plain").log.next_lsn == 2
    assert start().log.next_lsn == 2


def test_the_mark_knows_how_far_the_journal_went(opened, start, directories):
    """Its end is cut, or all of it is gone: that is told, and no lsn is given twice."""
    store(opened, "plain", b"a", b"b")
    opened.log.commit([Batch(Origin("plain", "l", "s", "p"), 1, 3, b"c,d,e", 5)])
    opened.marker.write(Mark(given=5, durable=5))
    last = directories.journal_of("gw") / segment_name(3)
    last.write_bytes(last.read_bytes()[:-1])
    opened = start("plain")
    assert losses(opened) == [(3, 3)]
    assert opened.log.next_lsn == 6
    for directory in (directories.journal, directories.spool):
        shutil.rmtree(directory)
    with pytest.raises(MissingJournal):
        start("plain")
    (directories.journal_of("gw") / "catalog").touch()
    opened = start("plain")
    assert losses(opened) == [(1, 5)]
    assert opened.log.next_lsn == 6


class Forbidden(RealDisk):
    """`poison/` is the Spark job's alone."""

    def read(self, path: Path) -> bytes:
        if path.parent.name == "poison":
            raise PermissionError(errno.EACCES, "not ours", str(path))
        return super().read(path)


def test_poison_that_may_not_be_searched_refuses_no_start(opened, start, directories):
    """The newest file's link is unknown then."""
    store(opened, "plain", b"a")
    publish_all(start("plain"))
    (directories.journal_of("gw") / "catalog").unlink()
    opened.marker.write(Mark(1, 1, 1), now=True)
    shutil.rmtree(directories.spool)
    decoders = {"plain": split}
    opened = open_node(
        Start("gw", directories, Machine(Forbidden()), decoders, remembering=False)
    )
    assert opened.first_lsn == 2
    assert opened.publisher.link.digest == ""


def test_what_may_have_been_given_is_not_what_was_acknowledged(
    opened, start, directories
):
    """A segment that is no segment any more keeps as many lsns as it has bytes; whoever
    puts it back misses nothing.
    """
    store(opened, "plain", b"a", b"b")
    [path] = directories.journal_of("gw").glob("*.journal")
    whole = path.read_bytes()
    damage(path)
    opened = start("plain")
    assert opened.first_lsn == 1 + len(whole)
    assert opened.durable_lsn == 0
    opened.marker.write(Mark(opened.first_lsn - 1, opened.durable_lsn))
    path.with_name(path.name + ".damaged").unlink()
    path.write_bytes(whole)
    opened = start("plain")
    assert opened.losses == []
    assert (opened.durable_lsn, opened.first_lsn) == (2, 1 + len(whole))


def test_the_mark_knows_what_was_published(start, directories):
    """Where the catalog lost its last lines, nothing is published again."""
    opened = start("plain", remembering=True)
    for body in (b"a", b"b"):
        store(opened, "plain", body)
    opened = start("plain", remembering=True)
    catalog = directories.journal_of("gw") / "catalog"
    for sealed, lines in zip(opened.unpublished, (1, 2), strict=True):
        opened.publisher.publish(sealed)
        assert len(lines_of(catalog, b"file")) == lines
    opened.marker.write(Mark(2, 2, 2), now=True)
    shutil.rmtree(directories.spool)  # the job has taken them
    whole = catalog.read_bytes()
    [other], [first, _] = lines_of(catalog, b"incarnation"), lines_of(catalog, b"file")
    first = other + first
    for rest in (other, first, first + whole[len(first) :].replace(b"2", b"3")):
        catalog.write_bytes(rest)
        opened = start("plain", remembering=True)
        assert opened.unpublished == []
        assert (opened.published_lsn, opened.log.next_lsn) == (2, 3)
        # Of a line that is gone nobody knows what was lost: its segment is kept, too.
        mended, *kept = opened.repairs
        assert "taken for published" in mended
        assert [one for one in kept if "set aside as" in one] == kept
        assert len(kept) == (2 if rest == other else 1)


def test_a_damaged_mark_is_told(start, directories):
    """It is no reason not to start."""
    (directories.state_of("gw")).mkdir(parents=True)
    (directories.state_of("gw") / "mark").write_bytes(b"?")
    assert start().repairs == [
        f"{directories.state_of('gw')}/mark is damaged; it is written anew"
    ]


def test_files_that_are_not_ours_are_left_alone(directories, start):
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


class Listed(RealDisk):
    """Counts how often each directory is."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()

    def names(self, directory: Path) -> list[str]:
        self.times[directory.name] += 1
        return super().names(directory)


def test_the_archive_is_listed_once(directories, opened, start):
    """It may have millions of files."""
    store(opened, "plain", b"a")
    publish_all(start("plain"))
    disk = Listed()
    open_node(Start("gw", directories, Machine(disk), {}, remembering=False))
    assert disk.times["archive"] == 1


def test_one_daemon_at_a_time(tmp_path):
    """A data directory that is in use is left alone; who uses it is said."""
    listener = {"name": "l", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"}
    settings = Config.model_validate(
        {"node": "gw", "data_dir": str(tmp_path / "data"), "listeners": [listener]}
    )

    def start() -> Any:
        return OpenedStorage.locked(
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


def test_the_open_segments_age_follows_no_clock_that_is_set(directories):
    """The wall clock set back an hour would keep events from the spool for that hour."""
    wall, passed = [7200.0], [10.0]
    opened = open_node(
        Start(
            "gw",
            directories,
            Machine(clock=lambda: wall[0], monotonic=lambda: passed[0]),
            {"plain": split},
            remembering=False,
        )
    )
    origin = Origin("plain", "l", "s-1", "[::1]:9")
    opened.log.commit([Batch(origin, 1, 1, b"a", 1)])
    wall[0], passed[0] = 3600.0, 12.5
    assert opened.log.age == 2.5
