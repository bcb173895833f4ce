"""The thread that publishes: in order, again until it works, never past the limits."""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gateway.config import model
from gateway.store.journal import Segment
from gateway.store.readers.consumers import Consumers, FileMarks
from gateway.store.spool import Published, Spool, file_name
from gateway.store.spool.backlog import Backlog
from gateway.store.spool.writing import Here, Task, WrittenFile
from gateway.store.system.disk import RealDisk
from gateway.store.system.machine import Machine
from gateway.store.system.room import SPARE_BYTES, Room
from gateway_testkit.reactor import QueuedReactor
from gateway_testkit.settings import options_of
from incarnations import A

from .archive import AsModified


class FakeJournal:
    """What the spool sees of the journal."""

    def __init__(self) -> None:
        self.roll_factor = 1.0
        self.pace = 0.0
        self.open_bytes = 0
        self.holds: dict[str, str | None] = {}
        self.last = 0

    def hold(self, who: str, why: str | None) -> None:
        self.holds[who] = why

    @property
    def reasons(self) -> dict[str, str]:
        return {who: why for who, why in self.holds.items() if why is not None}

    def published(self, last_lsn: int) -> None:
        self.last = last_lsn


class Full(RealDisk):
    """A disk whose free space and next rename the test decides."""

    free_bytes = 1 << 40
    fail_renames = 0

    def free(self, path: Path) -> int:
        return self.free_bytes

    def rename(self, old: Path, new: Path) -> None:
        if self.fail_renames:
            self.fail_renames -= 1
            raise OSError(errno.ENOSPC, "no room", str(new))
        super().rename(old, new)


class Slow(RealDisk):
    """A disk that publishes a file when the test says so."""

    def __init__(self) -> None:
        self.busy = threading.Event()
        self.going_on = threading.Event()

    def rename(self, old: Path, new: Path) -> None:
        self.busy.set()
        self.going_on.wait()
        super().rename(old, new)


class Told:
    """Whom the spool tells: a test that wants to know."""

    def __init__(
        self, on_done: Callable[[Segment], None], on_expired: Callable[[], None]
    ) -> None:
        self.done, self.expired = on_done, on_expired

    def published(self, file: Published) -> None:
        pass

    def uploaded(self) -> None:
        pass

    def looked(self) -> None:
        pass

    def expiring(self, names: Iterable[str]) -> None:
        pass


def start(
    place: Any,
    *,
    on_done: Callable[[Segment], None] = lambda _: None,
    on_expired: Callable[[], None] = lambda: None,
    also_reserved: int = 0,
    wanted: int = 0,
    **settings: Any,
) -> tuple[Any, FakeJournal, QueuedReactor]:
    turns, journal = QueuedReactor(), FakeJournal()
    publisher, machine = place.publisher(), Machine(place.disk)
    room = Room(SPARE_BYTES, state_bytes=also_reserved, wanted_bytes=wanted)
    spool = Spool(
        place.spool,
        place.archive,
        publisher,
        Backlog(machine.threads, publisher.file_bytes, room),
        journal,
        Told(on_done, on_expired),
        SimpleNamespace(is_ours=lambda _: True, is_only_copy=lambda _: False),  # type: ignore[arg-type]
        room,
        options_of(model.Spool, **settings),
        machine,
        turns,
        published_lsn=0,
        consumers=Consumers(
            lambda name: FileMarks(place.root / "consumers", name, place.disk),
            settings.get("consumers", ()),
        ),
    )
    return spool, journal, turns


def test_segments_are_published_in_order(place):
    """What the last run left comes first, then what is sealed now."""
    left, now = place.sealed(b"a,b"), place.sealed(b"c")
    spool, journal, turns = start(place)
    spool.start([left])
    spool._backlog.add(now)
    turns.run(lambda: journal.last == 3)
    turns.wait(spool.stop())
    assert len(place.public()) == 2
    assert spool.published_lsn == 3
    assert spool.backlog_bytes == 0


def test_the_end_of_every_segment_is_told(place):
    """In order, after the journal knows; of those without events too."""
    told: list[tuple[Segment, int]] = []
    spool, journal, turns = start(
        place, on_done=lambda s: told.append((s, journal.last))
    )
    one = place.sealed(b"a,b")
    place.log.commit([place.metadata()])
    two, three = place.log.seal(), place.sealed(b"c")
    spool.start([one, two, three])
    turns.run(lambda: len(told) == 3)
    turns.wait(spool.stop())
    assert told == [(one, 2), (two, 2), (three, 3)]
    assert len(place.public()) == 2
    assert spool.published_lsn == 3


def test_room_for_checkpoints_is_reserved_too(place):
    """State files that can not be written would keep the journal from shrinking."""
    place.disk = Full()
    place.disk.free_bytes = 50 << 20
    spool, journal, turns = start(place, also_reserved=60 << 20)
    spool.start([])
    turns.run(lambda: bool(journal.holds.get("disk")))
    assert spool.room.reserved_bytes > 60 << 20
    turns.wait(spool.stop())


def test_a_failure_is_tried_again(place):
    """No room for a file: the segment stays, and the next try publishes it once."""
    place.disk = Full()
    place.disk.fail_renames = 1
    spool, journal, turns = start(place)
    spool.start([place.sealed(b"a,b")])
    turns.run(lambda: journal.last == 2)
    assert spool.publish_error is None
    turns.wait(spool.stop())
    assert len(place.public()) == 1


class Crowded(Here):
    """On a disk with room for one file, whoever began it."""

    def __init__(self, place: Any) -> None:
        super().__init__(place.disk, place.decoders)
        self.begun: set[Task] = set()
        self.failed = 0

    def begin(self, task: Task) -> None:
        self.begun.add(task)

    def finish(self, task: Task, previous: str) -> WrittenFile:
        self.begun.add(task)
        if len(self.begun) > 1:
            self.failed += 1
            raise OSError(errno.ENOSPC, "no room", str(task.path))
        self.begun.remove(task)
        return super().finish(task, previous)

    def drop(self) -> None:
        self.begun.clear()


def test_files_that_are_begun_early_never_keep_the_one_in_hand_from_its_room(
    place, monkeypatch
):
    """On a full disk they are let go of, and begun again when that one is public."""
    monkeypatch.setattr("gateway.store.spool.spool._TICK_SECONDS", 0.05)
    segments = [place.sealed(b"a,b") for _ in range(4)]
    spool, journal, turns = start(place)
    writer = spool._publisher.writer = Crowded(place)
    spool.start(segments)
    turns.run(lambda: journal.last == 8 or writer.failed > 3)
    turns.wait(spool.stop())
    assert len(place.public()) == 4
    assert writer.failed == 3, "the last one has nobody behind it"


def test_stopping_with_a_sick_disk_leaves_the_segment(place):
    """A stop does not wait for a disk that fails; the next start finds everything."""
    place.disk = Full()
    place.disk.fail_renames = 10**9
    sealed = place.sealed(b"a,b")
    spool, _, turns = start(place)
    spool.start([sealed])
    turns.run(lambda: "no room" in str(spool.publish_error))
    turns.wait(spool.stop())
    assert sealed.path.exists()
    place.disk.fail_renames = 0
    assert place.publisher().recover([sealed]) == []
    assert len(place.public()) == 1


def test_a_full_spool_holds_the_journal(place):
    """At `spool.max_bytes` the journal takes nothing, until Spark has made room."""
    spool, journal, turns = start(place, max_bytes=10)
    spool.start([place.sealed(b"a,b")])
    turns.run(lambda: bool(journal.holds.get("spool")) and journal.last == 2)
    assert "spool.max_bytes" in (journal.holds["spool"] or "")
    for path in place.spool.iterdir():
        path.rename(place.archive / path.name)
    turns.run(lambda: journal.holds["spool"] is None)
    turns.wait(spool.stop())


def test_what_waits_to_be_published_counts_at_once(place):
    """Senders are held although the thread, busy with a file, has not looked again."""
    place.disk = Slow()
    one, two = place.sealed(b"a,b"), place.sealed(b"c")
    spool, journal, turns = start(place, max_bytes=one.bytes + two.bytes)
    spool.start([one])
    assert place.disk.busy.wait(30)
    assert not journal.holds.get("spool")
    spool._backlog.add(two)
    turns.run(lambda: bool(journal.holds.get("spool")))
    place.disk.going_on.set()
    turns.run(lambda: journal.last == 3)
    turns.wait(spool.stop())


def test_a_full_disk_holds_the_journal(place):
    """Without room for the files to come nothing more is taken; room heals it."""
    place.disk = Full()
    place.disk.free_bytes = 0
    spool, journal, turns = start(place)
    spool.start([])
    turns.run(lambda: bool(journal.holds.get("disk")))
    place.disk.free_bytes = 1 << 40
    turns.run(lambda: journal.holds["disk"] is None)
    turns.wait(spool.stop())


def test_a_backlog_makes_larger_files(place):
    """The further Spark is behind, the longer a segment stays open."""
    spool, journal, turns = start(place)
    spool.start([place.sealed(b"%d" % n) for n in range(40)])
    turns.run(lambda: journal.last == 40 and journal.roll_factor > 4)
    turns.wait(spool.stop())


def test_a_hub_that_is_behind_makes_larger_files(place):
    """As many files as wait there count as if they waited here; and it is the hub that a
    full spool waits for.
    """
    spool, journal, turns = start(place, after="forward", max_bytes=10)
    why = "the hub, https://hub:1, is away: reset"
    taker = SimpleNamespace(files=80, why_waiting=why, made_lsn=0)
    spool.forwarded_to(taker)
    sealed = place.sealed(b"a,b")
    sealed.path.write_bytes(b"?" * sealed.bytes)  # what is a hole the hub never gets
    spool.start([sealed, place.sealed(b"c" * 99)])
    turns.run(lambda: journal.roll_factor > 10 and bool(journal.holds.get("spool")))
    assert taker.made_lsn == 3
    assert (journal.holds["spool"] or "").endswith(f"(spool.max_bytes): {why}")
    turns.wait(spool.stop())


def test_what_others_bring_slows_no_sender(place):
    """Files that arrive and leave again are as much traffic as our own: the pace of our
    senders follows what leaves.
    """
    spool, _, turns = start(place, max_bytes=1 << 20)
    arrived = 0
    spool.arrived_bytes = lambda: arrived
    now = 0.0
    spool._clock = lambda: now
    spool._paced(0)
    found = []
    spool.levels.spool.bytes = 1 << 19
    for _ in range(40):  # 512 KiB come and go in each second
        now += 1.0
        arrived += 1 << 19
        found.append(spool._paced(0))
    assert min(found[20:]) > 1 << 19
    turns.wait(_ended(spool))


def _ended(spool: Any) -> Any:
    """It has run and stopped."""
    spool.start([])
    return spool.stop()


def test_the_archive_expires(place):
    """Files that Spark has had for `spool.retention` go, and it is said; others stay."""
    place.disk = AsModified()
    names = (file_name("gw", A, 1, 1), file_name("gw", A, 2, 2), "notes.txt")
    old, new, foreign = (place.archive / name for name in names)
    for path in (old, new, foreign):
        path.write_bytes(b"x")
    for path in (old, foreign):
        os.utime(path, (time.time() - 7200,) * 2)
    left: list[set[Path]] = []
    spool, _, turns = start(
        place,
        retention=3600.0,
        on_expired=lambda: left.append(set(place.archive.iterdir())),
    )
    spool.start([])
    turns.run(lambda: left)
    turns.wait(spool.stop())
    assert left == [{new, foreign}] == [set(place.archive.iterdir())]


class Freeing(Full):
    """Each file that goes leaves room for 1000 bytes."""

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.free_bytes += 1000


def old_files(place: Any, count: int = 3) -> list[Path]:
    """In the archive of a disk that has room again when they go."""
    files = [place.archive / file_name("gw", A, n + 1, n + 1) for n in range(count)]
    for file in files:
        file.write_bytes(b"old")
    place.disk = Freeing()
    return files


def test_a_full_disk_empties_the_archive_first(place):
    """What is in the tables goes before anybody is held back."""
    [old] = old_files(place, 1)
    spool, journal, turns = start(place)
    place.disk.free_bytes = spool.room.reserved_bytes - 1
    spool.start([])
    turns.run(lambda: "disk" in journal.holds)
    assert journal.holds["disk"] is None
    assert not old.exists()
    turns.wait(spool.stop())


def test_the_archive_makes_room_for_what_the_journal_wants(place):
    """A group that just does not fit would wait for as long as the archive is kept."""
    files = old_files(place)
    spool, journal, turns = start(place, wanted=1500)
    place.disk.free_bytes = spool.room.reserved_bytes
    spool.start([])
    turns.run(lambda: "disk" in journal.holds)
    assert journal.holds["disk"] is None
    assert [file.exists() for file in files].count(True) == 1
    assert spool.levels.archive.bytes == 3  # or what comes next would count as one more
    turns.wait(spool.stop())


def test_the_archive_makes_room_for_what_others_bring(place):
    """As for a group of the journal; not for more than the spool may have, which waits."""
    files = old_files(place)
    spool, _, turns = start(place, max_bytes=10_000)
    place.disk.free_bytes = spool.room.reserved_bytes
    spool.start([])
    turns.run(lambda: spool.levels.free_bytes is not None)
    assert "no more than 9.8 KiB (spool.max_bytes)" in (spool.why_not(10_001) or "")
    assert "is full: " in (spool.why_not(1500) or "")
    turns.run(lambda: spool.why_not(1500) is None)
    assert [file.exists() for file in files].count(True) == 1
    turns.wait(spool.stop())


def test_the_disk_is_full_for_as_long_as_the_journal_has_no_room_for_a_group(place):
    """Though what has to be written has room: the journal does not take that away."""
    place.disk = Full()
    spool, journal, turns = start(place, wanted=1500)
    place.disk.free_bytes = spool.room.reserved_bytes
    journal.hold("commit", "the journal can not be written: no space left")
    spool.start([])
    turns.run(lambda: "is full" in str(journal.holds.get("disk")))
    journal.hold("commit", None)  # it gave up, or wrote it
    turns.run(lambda: journal.holds["disk"] is None)
    turns.wait(spool.stop())


def test_spare_files_go_before_the_archive_makes_room(place):
    """They can be had again, and nobody reads them."""
    [old] = old_files(place, 1)
    spool, journal, turns = start(place, wanted=500)
    sealed = place.sealed(b"a,b")
    spares = spool._publisher.spares
    spares.keep(sealed.path)
    place.disk.free_bytes = spool.room.reserved_bytes
    spool.start([])
    turns.run(lambda: "disk" in journal.holds)
    assert journal.holds["disk"] is None
    assert not spares.give_room()
    assert old.exists()
    turns.wait(spool.stop())


def test_nothing_stops_the_thread(place):
    """Whatever is raised beside publishing, publishing goes on."""
    spool, journal, turns = start(place)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    spool._observer.published = fail
    spool._expiry.run = fail
    spool.start([place.sealed(b"a"), place.sealed(b"b")])
    turns.run(lambda: journal.last == 2)
    turns.wait(spool.stop())


def test_a_stop_ends_whatever_fails_in_it(place, monkeypatch):
    """Or the daemon would hang; what failed is in the log."""
    spool, journal, turns = start(place)

    def fail() -> None:
        raise OSError(errno.EINVAL, "invalid")

    monkeypatch.setattr(spool._publisher.writer, "close", fail)
    spool.start([place.sealed(b"a")])
    turns.wait(spool.stop())
    assert journal.last == 1


def test_without_a_job_files_are_archived_at_once(place):
    """With `after: keep` the spool does not fill: each file is moved when it is public,
    also one that was left there, and counts as published after that.
    """
    spool, journal, turns = start(place, after="keep", max_bytes=1 << 20)
    left = place.spool / file_name("other", A, 1, 2)
    left.touch()
    spool.start([])
    spool._backlog.add(place.sealed(b"a,b"))
    turns.run(lambda: journal.last == 2)
    turns.run(lambda: len(list(place.archive.iterdir())) == 2)
    turns.wait(spool.stop())
    assert not place.public()
    assert journal.holds["spool"] is None


def test_without_a_job_no_file_takes_the_place_of_another_one(place):
    """One that comes again goes: of the events in the archive's some may be redacted."""
    name = file_name("edge", A, 1, 2)
    (place.archive / name).write_bytes(b"redacted")
    (place.spool / name).write_bytes(b"clear")
    spool, _, turns = start(place, after="keep")
    spool.start([])
    turns.run(lambda: not (place.spool / name).exists())
    turns.wait(spool.stop())
    assert (place.archive / name).read_bytes() == b"redacted"


def test_without_a_job_a_short_disk_holds_senders(place):
    """Nothing leaves the archive for it: what is there is nowhere else."""
    place.disk = Full()
    place.disk.free_bytes = 0
    (place.archive / file_name("gw", A, 1, 2)).touch()
    spool, journal, turns = start(place, after="keep")
    spool.start([])
    turns.run(lambda: bool(journal.holds.get("disk")))
    turns.wait(spool.stop())
    assert len(list(place.archive.iterdir())) == 1


def test_without_a_job_what_consumers_have_read_makes_room(place):
    """With `after: keep` they are the readers: what all of them have goes for a short disk,
    and what one has not read is nowhere else, so senders wait for it.
    """
    place.disk = Full()
    place.disk.free_bytes = 0
    read, unread = file_name("gw", A, 1, 2), file_name("gw", A, 3, 4)
    for name in (read, unread):
        (place.archive / name).touch()
    spool, journal, turns = start(place, after="keep", consumers=["mine"])
    marks = FileMarks(place.root / "consumers", "mine", RealDisk())
    marks.change(lambda mark: mark.with_done([read]))
    spool.start([])
    turns.run(lambda: not (place.archive / read).exists())
    turns.run(lambda: bool(journal.holds.get("disk")))
    turns.wait(spool.stop())
    assert (place.archive / unread).exists()
    assert spool.consumers.behind["mine"].missed_files == 0


def test_a_move_that_fails_stops_no_look_at_the_disk(place):
    """With `after: keep`: senders are held back all the same, and files expire."""
    place.disk = Full()
    place.disk.free_bytes = 0
    place.disk.fail_renames = 10**9
    (place.spool / file_name("gw", A, 1, 2)).touch()
    spool, journal, turns = start(place, after="keep")
    looks: list[int] = []
    spool._expiry.run = lambda size: looks.append(size) or 0  # type: ignore[func-returns-value]
    spool.start([])
    turns.run(lambda: bool(looks and journal.holds.get("disk")))
    told = "files can not be moved to the archive: OSError: [Errno 28] no room"
    assert [one for one in spool.troubles if one.startswith(told)]
    place.disk.fail_renames = 0
    turns.run(lambda: not spool.troubles)
    turns.wait(spool.stop())
