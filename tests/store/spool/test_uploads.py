"""Files of the spool get into a bucket, each once, whatever fails on the way."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from twisted.internet.task import Clock

from gateway.event import Rows
from gateway.store.names import SpoolFile, file_name
from gateway.store.objects.bucket import BucketError
from gateway.store.spool import uploads as module
from gateway.store.spool.uploads import BucketEnd, Put, SetAside, Uploaded, Uploads
from gateway.store.system.disk import RealDisk
from gateway.store.system.shared import SharedDict
from gateway_testkit.bucket import MemoryBucket
from incarnations import A
from spools import spool_file

pytestmark = pytest.mark.usefixtures("short_pauses")


class Killed(BaseException):
    """kill -9."""


class Steps(RealDisk):
    """A disk whose steps the test may end at."""

    step: Callable[[str], None] = staticmethod(lambda name: None)

    def read(self, path: Path) -> bytes:
        self.step("read")
        return super().read(path)

    def rename(self, old: Path, new: Path) -> None:
        self.step("rename")
        super().rename(old, new)

    def sync_directory(self, path: Path) -> None:
        self.step("sync")
        super().sync_directory(path)


class World:
    """A spool with files, and a bucket."""

    def __init__(self, root: Path) -> None:
        self.spool, self.archive = root / "spool", root / "archive"
        self.disk = Steps()
        self.bucket = MemoryBucket()
        for path in (self.spool, self.archive):
            path.mkdir()

    def file(self, first: int, last: int, node: str = "gw") -> str:
        name = file_name(node, A, first, last)
        (self.spool / name).write_bytes(f"{node} {first} {last}".encode())
        return name

    def uploads(self, number: int = 2, **more: Any) -> Uploads:
        where = self.spool, self.archive, self.disk
        end = BucketEnd(self.bucket, "gw", self.disk)
        found = Uploads(end, "gw", *where, number, **more)
        found.find()
        return found

    @property
    def files(self) -> dict[str, bytes]:
        """Of the bucket, without what is no file of the spool."""
        return {n: d for n, d in self.bucket.objects.items() if n.startswith("events")}

    def here(self, directory: Path) -> list[str]:
        return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path)


def until(uploads: Uploads, so: Callable[[], object]) -> None:
    """Start, and wait for progress."""
    news = threading.Semaphore(0)
    uploads.start(news.release)
    while not so():
        assert news.acquire(timeout=60)
    uploads.finish(60)


def test_a_file_is_in_the_bucket_and_then_in_the_archive(world):
    """Under its name, with its bytes; of nodes that ran here before, too."""
    names = [world.file(1, 5), world.file(6, 7), world.file(1, 3, "old")]
    told: list[Uploaded] = []
    uploads = world.uploads(on_uploaded=told.append)
    assert uploads.safe_lsn(7) == 0
    until(uploads, lambda: uploads.uploaded == 3)
    assert uploads.safe_lsn(7) == 7
    assert sorted(world.files) == world.here(world.archive) == sorted(names)
    assert world.files[names[1]] == b"gw 6 7"
    assert world.here(world.spool) == []
    assert not any(one.again for one in told)
    assert sorted(one.bytes for one in told) == [6, 6, 7]


def test_what_is_behind_a_file_that_waits_is_not_safe(world):
    """Acknowledgements follow the files in order, though these do not go in order."""
    first, second = world.file(1, 5), world.file(6, 9)

    def fault(request: str, name: str) -> None:
        if request == "create" and name == first:
            raise OSError(errno.EIO, "not the bucket's fault")

    world.bucket.fault = fault
    uploads = world.uploads(1)  # so that the first comes first
    until(uploads, lambda: uploads.uploaded == 1)
    assert first in uploads.stuck
    assert list(world.files) == [second]
    assert uploads.safe_lsn(9) == 0
    assert uploads.safe_lsn(0) == 0


def test_in_order_the_bucket_has_no_holes_at_any_moment(world):
    """Whatever fails: what a lost disk takes with it is then the newest.  Others' files go
    beside ours."""
    names = [world.file(n, n) for n in range(1, 7)]
    world.file(1, 3, "old")
    failing = list(range(9))
    seen: list[list[str]] = []

    def fault(request: str, name: str) -> None:
        if request == "create" and name in names:
            seen.append([*sorted(world.files.keys() & set(names)), name])
            if failing:
                failing.pop()
                raise BucketError("503 SlowDown")

    world.bucket.fault = fault
    uploads = world.uploads(4, in_order=True)
    until(uploads, lambda: uploads.uploaded == 7)
    assert len(seen) == 6 + 9
    for each in seen:
        assert each == names[: len(each)]


@pytest.mark.parametrize("why", ["500", "503 SlowDown", "403 ExpiredToken"])
def test_a_bucket_that_is_away_is_told_once_and_asked_again(world, lines, why):
    """One line when it goes, one when it is back; nothing is lost meanwhile."""
    names = [world.file(n, n) for n in range(1, 6)]
    world.bucket.away(why)
    uploads = world.uploads(4)
    asked = [0]
    away = world.bucket.fault

    def fault(request: str, name: str) -> None:
        asked[0] += 1
        if asked[0] == 20:
            assert why in (uploads.why or "")
            assert uploads.safe_lsn(5) == 0
            world.bucket.back()
        away(request, name)

    world.bucket.fault = fault
    until(uploads, lambda: uploads.uploaded == 5)
    assert sorted(world.files) == names
    assert uploads.why is None
    assert uploads.failed >= 20
    told = [line for line in lines if "bucket" in line]
    assert len(told) == 2
    assert why in told[0]
    assert "takes files again" in told[1]


def test_one_failure_is_not_told(world):
    """Any network has those."""
    world.file(1, 1)
    failed: list[str] = []

    def fault(request: str, name: str) -> None:
        if not failed:
            failed.append(name)
            raise BucketError("reset by peer")

    world.bucket.fault = fault
    uploads = world.uploads()
    until(uploads, lambda: uploads.uploaded)
    assert (uploads.failed, uploads.why) == (1, None)


def test_while_it_is_away_one_thread_asks(world):
    """A server that is short of breath is not asked by all of them."""
    for n in range(1, 9):
        world.file(n, n)
    now, most, count = [0], [0], [0]
    lock = threading.Lock()

    def fault(request: str, name: str) -> None:
        with lock:
            count[0] += 1
            now[0] += 1
            if count[0] > 6:
                most[0] = max(most[0], now[0])
        with lock:
            now[0] -= 1
            if count[0] == 30:
                world.bucket.back()
        raise BucketError("503 SlowDown")

    world.bucket.fault = fault
    uploads = world.uploads(4)
    until(uploads, lambda: uploads.uploaded == 8)
    assert most[0] == 1


@pytest.mark.parametrize("point", range(18))
def test_a_kill_between_any_two_steps_loses_and_doubles_nothing(world, point):
    """The next start does all of it again, and finds what was done."""
    names = [world.file(1, 5), world.file(6, 7)]
    contents = {name: (world.spool / name).read_bytes() for name in names}
    steps: list[str] = []

    def step(name: str, *_: str) -> None:
        if len(steps) == point:
            raise Killed
        steps.append(name)

    world.disk.step = step  # type: ignore[method-assign]
    world.bucket.fault = lambda request, name: step(f"before {request}")
    world.bucket.after = lambda request, name: step(f"after {request}")
    killed = world.uploads()
    try:
        for name in names:
            killed._upload(name)
    except Killed:
        pass
    else:
        pytest.fail(f"only {len(steps)} steps")
    for name in names:  # in spool or archive, never nowhere
        assert (world.spool / name).exists() != (world.archive / name).exists()
    world.disk.step = lambda name: None  # type: ignore[method-assign]
    world.bucket.back()
    again = world.uploads()
    left = len(world.here(world.spool))
    until(again, lambda: again.uploaded == left)
    assert world.files == contents
    assert world.here(world.archive) == names
    assert world.here(world.spool) == []


def test_other_bytes_under_the_same_name_hold_senders_back(world):
    """Two machines go on as one incarnation: neither file is lost, and both are told."""
    name, other = world.file(1, 5), world.file(6, 7)
    world.bucket.objects[name] = b"another gateway's"
    uploads = world.uploads(1)
    until(uploads, lambda: uploads.uploaded == 1)
    assert world.files == {name: b"another gateway's", other: b"gw 6 7"}
    [why] = uploads.conflicts.values()
    assert f"{name} is there with other events: 17 bytes, SHA-256 " in why
    assert "here it is 6 bytes, SHA-256 " in why
    assert "a machine was copied as it ran" in why
    assert world.here(world.spool) == [name]


def test_another_past_is_in_the_bucket_under_a_name_of_its_own(world):
    """Two machines of one snapshot have published other events under one name: both are
    there, and the job compares them.  Nobody is held back; and once more it is the same."""
    name = world.file(1, 3)
    mine, theirs = (
        [Rows([b"%d" % n for n in some])] for some in ((1, 2, 3), (1, 8, 9))
    )
    for _ in range(2):
        (world.spool / name).write_bytes(spool_file("gw", 1, mine))
        world.bucket.objects[name] = spool_file("gw", 1, theirs)
        uploads = world.uploads(1)
        uploads._upload(name)
        assert (uploads.uploaded, uploads.problem) == (1, None)
        [other] = world.files.keys() - {name}
        data = pa.BufferReader(world.files[other])
        assert pq.read_table(data)["payload"].to_pylist() == [b"1", b"2", b"3"]
        words = pq.read_metadata(data).metadata
        assert (words[b"gateway.of"], words[b"gateway.first"]) == (A.encode(), b"1")
        assert f"_{words[b'gateway.incarnation'].decode()}-" in other
        assert world.files[name] == spool_file("gw", 1, theirs)
        assert world.here(world.spool) == []
        (world.archive / name).unlink()


def test_senders_are_held_back_without_a_gap(world, monkeypatch):
    """Also while it is looked again whether the other file is there still."""
    name = world.file(1, 5)
    world.bucket.objects[name] = b"another gateway's"
    uploads = world.uploads(1)
    seen: list[object] = []

    class Watched(SharedDict[str, str]):
        def pop(self, *words: Any) -> Any:
            found = super().pop(*words)
            seen.append(uploads.problem)
            return found

    monkeypatch.setattr(uploads, "conflicts", Watched())
    monkeypatch.setattr(uploads, "stuck", Watched())
    for _ in range(3):
        uploads._upload(name)
    assert seen
    assert all(seen)


def test_a_server_that_is_unfit_gets_no_file(world):
    """One that passes If-None-Match over would put two files under one name."""
    name = world.file(1, 5)
    world.bucket.conditional = False
    uploads = world.uploads(1)
    uploads._upload(name)
    assert world.files == {}
    assert "If-None-Match" in uploads.conflicts[name]


def test_a_file_in_whose_way_another_one_is_stays_here(world):
    """As nothing but damage puts it there, that is told; it holds nobody else back."""
    name = world.file(1, 5, "edge")
    world.bucket.objects[name] = b"damaged"
    uploads = world.uploads(1, brought=lambda node: node == "edge")
    uploads._upload(name)
    assert f"{name} is there with other events" in (uploads.problem or "")
    assert not uploads.conflicts.snapshot()
    assert uploads.has(name)


def test_at_the_stop_a_bucket_that_is_away_is_asked_once(world):
    """What is left waits for the next start."""
    names = [world.file(n, n) for n in range(1, 4)]
    world.bucket.away()
    uploads = world.uploads(1)
    uploads.finish(60)  # nothing runs: nothing to wait for
    uploads = world.uploads(1)
    uploads._stopping, uploads._ends_at = True, float("inf")
    uploads.start(lambda: None)
    uploads.finish(60)
    assert uploads.failed == 1
    assert world.here(world.spool) == names


def test_at_the_stop_a_bucket_that_hangs_is_left(world):
    """The request ends with the process; it is repeated after the next start."""
    world.file(1, 1)
    asked, going_on = threading.Event(), threading.Event()

    def fault(request: str, name: str) -> None:
        asked.set()
        going_on.wait()

    world.bucket.fault = fault
    uploads = world.uploads(1)
    uploads.start(lambda: None)
    asked.wait()
    uploads.finish(0)
    assert uploads.uploaded == 0
    going_on.set()
    uploads.finish(60)


def test_files_of_a_gateway_that_runs_are_left_to_it(world):
    """Gateways may share a directory."""
    ours, theirs = world.file(1, 1), world.file(1, 1, "other")
    uploads = world.uploads(ours=lambda node: node == "gw")
    until(uploads, lambda: uploads.uploaded)
    assert list(world.files) == [ours]
    assert world.here(world.spool) == [theirs]


def test_a_move_whose_sync_failed_is_ended(world, monkeypatch):
    """The file is in the archive by then, and what lies behind it waits for it."""
    monkeypatch.setattr(module, "_ASIDE_SECONDS", 0.001)
    name = world.file(1, 5)
    fails = ["sync"]

    def step(what: str) -> None:
        if what in fails:
            fails.remove(what)
            raise OSError(errno.EIO, "the test says no")

    world.disk.step = step
    uploads = world.uploads()
    until(uploads, lambda: uploads.uploaded)
    assert uploads.safe_lsn(5) == 5
    assert not uploads.stuck
    assert world.here(world.archive) == [*world.files] == [name]


def test_an_archive_that_somebody_removed(world, monkeypatch):
    """The file stays here, it is said why, and it goes there when there is one."""
    monkeypatch.setattr(module, "_ASIDE_SECONDS", 0.001)
    name = world.file(1, 5)
    uploads = world.uploads(1)
    world.archive.rmdir()
    for _ in range(2):
        uploads._upload(name)
    assert str(world.archive) in uploads.stuck[name]
    assert (uploads.uploaded, uploads.safe_lsn(5)) == (0, 0)
    assert world.here(world.spool) == [name]
    world.archive.mkdir()
    until(uploads, lambda: uploads.uploaded)
    assert world.here(world.archive) == [*world.files] == [name]
    assert world.here(world.spool) == []
    assert uploads.problem is None


def taken(uploads: Uploads, most: int) -> list[str]:
    """What so many threads would have in hand now."""
    found = []
    for _ in range(most):
        name, _at = uploads._due(uploads._clock())
        if name is None:
            break
        uploads._busy.add(name)
        found.append(name)
    return found


def test_uploads_that_are_too_slow_together_become_fewer(world, lines):
    """A link that carries one file in the time-out, and not four, is told of, and asked
    for as many as it carries; now and then for one more."""
    clock = Clock()
    for n in range(1, 30):
        world.file(n, n)
    uploads = world.uploads(4, clock=clock.seconds)

    def together(most: int) -> int:
        """So many begin; each takes 20 s by itself, and 30 s are the time-out."""
        names = taken(uploads, 4)
        begun = clock.seconds()
        clock.advance(min(30, 20 * len(names)))
        for name in names:
            if len(names) > most:
                uploads._failed(name, "operation timed out", begun)
            else:
                world.bucket.create(name, b"")
                seconds = clock.seconds() - begun
                uploads._done(Uploaded(name, 0, seconds, again=False))
        clock.advance(1)  # the pause
        return len(names)

    uploads._fit = True
    assert [together(1) for _ in range(8)] == [4, 1, 2, 1, 1, 1, 1, 1]
    told = [line for line in lines if "together" in line]
    assert len(told) == 2
    assert "4 uploads" in told[0]
    assert "operation timed out" in told[0]
    assert told[0].endswith("2 at once from now on")
    assert uploads.why is None
    clock.advance(600)
    assert [together(2) for _ in range(3)] == [2, 2, 2]


def test_a_bucket_that_was_away_gets_as_many_as_before(world):
    """Refused at once is not too slow: the backlog of an outage needs all threads."""
    clock = Clock()
    for n in range(1, 30):
        world.file(n, n)
    uploads = world.uploads(4, clock=clock.seconds)
    uploads._fit = True
    for name in taken(uploads, 4):
        uploads._failed(name, "503 SlowDown", clock.seconds())
    clock.advance(1)
    [alone] = taken(uploads, 4)
    uploads._done(Uploaded(alone, 0, 0.1, again=False))
    assert len(taken(uploads, 4)) == 4


@pytest.mark.parametrize("why", ["413 EntityTooLarge", "403 AccessDenied"])
def test_a_file_that_alone_is_refused_stops_no_other(world, lines, why):
    """It is named, and tried again now and then; what lies behind it is in the bucket."""
    names = [world.file(n, n) for n in range(1, 9)]
    bad = names[0]

    def fault(request: str, name: str) -> None:
        if name == bad:
            raise BucketError(f"{name}: {why}")

    world.bucket.fault = fault
    uploads = world.uploads(1)
    until(uploads, lambda: uploads.uploaded == 7)
    assert sorted(world.files) == names[1:]
    assert why in uploads.stuck[bad]
    assert uploads.problem == uploads.stuck[bad]
    assert uploads.safe_lsn(8) == 0
    told = [line for line in lines if bad in line]
    assert len(told) == 1
    assert why in told[0]


def test_a_file_that_was_refused_and_is_set_aside_is_not_told_for_ever(
    world, monkeypatch
):
    """It waits no more: nothing is wrong with it."""
    bad, *others = (world.file(n, n) for n in range(1, 6))
    uploads = world.uploads(1)
    put, tries = uploads.end.put, [BucketError("no")] * 3

    def refuses(file: SpoolFile, path: Path) -> Put:
        if file.name == bad:
            raise tries.pop() if tries else SetAside("damaged")
        return put(file, path)

    monkeypatch.setattr(uploads.end, "put", refuses)
    for other in others[:2]:
        uploads._upload(bad)
        uploads._upload(other)
    uploads._upload(bad)
    uploads._upload(bad)
    uploads._upload(others[2])
    assert bad not in uploads.stuck
    assert uploads.problem is None


def test_an_outage_is_no_files_fault(world):
    """All of them fail, one after the other, and none is left alone for it."""
    names = [world.file(n, n) for n in range(1, 6)]
    asked = [0]

    def fault(request: str, name: str) -> None:
        asked[0] += 1
        if asked[0] == 40:
            world.bucket.back()
        raise BucketError("503")

    world.bucket.fault = fault
    uploads = world.uploads(2)
    uploads._fit = True
    until(uploads, lambda: uploads.uploaded == 5)
    assert sorted(world.files) == names
    assert not uploads.stuck
    assert asked[0] == 40


@pytest.mark.parametrize("then", ["put back", "uploaded"])
def test_a_file_that_somebody_took_out_by_hand(world, monkeypatch, lines, then):
    """It is said what is missing; nothing behind it is safe until it is put right, and
    then no restart is needed."""
    monkeypatch.setattr(module, "_ASIDE_SECONDS", 0.001)
    name = world.file(1, 5)
    uploads = world.uploads(1)
    aside = world.spool.parent / name
    (world.spool / name).rename(aside)
    uploads._upload(name)
    assert uploads.safe_lsn(5) == 0
    assert [line for line in lines if f"{name}: somebody took it out of" in line]
    if then == "put back":
        aside.rename(world.spool / name)
    else:
        world.bucket.objects[name] = aside.read_bytes()
    until(uploads, lambda: uploads.uploaded == 1)
    assert uploads.safe_lsn(5) == 5
    assert uploads.problem is None


def test_a_file_that_somebody_took_out_of_another_ones_way(world):
    """No restart is needed either, however often that one was met."""
    name = world.file(1, 5)
    world.bucket.objects[name] = b"another gateway's"
    uploads = world.uploads(1)
    for _ in range(3):
        uploads._upload(name)
    (world.spool / name).unlink()
    uploads._upload(name)
    assert uploads.safe_lsn(5) == 5
    assert uploads.problem is None
