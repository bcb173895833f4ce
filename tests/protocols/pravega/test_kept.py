"""What streams still need of files that leave the archive is kept, and no more."""

import contextlib
import errno
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gateway.protocols.pravega.segments import Segments
from gateway.protocols.pravega.wire import NEVER
from gateway.store.names import file_name, parse_kept_name
from gateway.store.spool.retained import Retained
from gateway.store.system.disk import RealDisk
from incarnations import A

from .conftest import W
from .places import OTHER, Places, events, fill


def test_what_is_needed_outlives_its_file(places):
    """When files leave the archive, what is needed of them is kept: every byte of the
    streams can be read, those of other protocols are gone.
    """
    for _ in range(3):
        fill(places)
        other = Segments()
        other.create("s", 0)
        change = other.append("s", W, 1, events(b"x"), 0, claimed=1, last=NEVER)
        places.commit(change, OTHER)
        places.archive()
    places.expire()
    assert not [*places.directories.archive.iterdir()]
    [kept] = places.kept()
    channels = pq.read_table(kept)["protocol"].to_pylist()
    assert {*channels} == {"pravega"}
    fill(places)
    history = places.history()
    assert history.first_lsn == 1
    for name in ("s", "t"):
        assert places.whole(history, name) == places.bytes[name]


def test_truncated_it_is_let_go(places, monkeypatch):
    """What is truncated leaves the disk, what is not stays; a deleted segment leaves
    nothing, also of a file that others need.
    """
    monkeypatch.setattr("gateway.protocols.pravega.segment.MARK_BYTES", 1)
    fill(places, archive=True)
    retained = places.retained()
    places.expire(retained)
    before = places.kept()[0].stat().st_size
    state = places.state
    half = state.find("s").mark_offsets[10]  # type: ignore[index]
    for name in ("s", "t"):
        places.commit(
            state.truncate(name, half if name == "s" else state.find(name).length, 0)
        )
    assert retained.tidy()
    [kept] = places.kept()
    assert kept.stat().st_size < before
    rows = pq.read_table(kept)
    assert {*rows["channel"].to_pylist()} == {"s"}
    assert min(rows["seq"].to_pylist()) == half
    history = places.history()
    assert (
        history.fetch("s", half, 10, state.find("s").lsn_near(half))
        == places.bytes["s"][half : half + 10]
    )
    places.commit(state.delete("s", 0))
    assert retained.tidy()
    assert places.kept() == []
    assert retained.files == 0


def test_a_change_that_is_not_durable_lets_nothing_go(places):
    """A truncation or deletion may be undone by a crash, as long as it is not durable."""
    fill(places)
    state = places.state
    before = state.needed("s"), state.needed("t")
    cut = state.truncate("s", state.find("s").length, 0)
    gone = state.delete("t", 0)
    assert (state.needed("s"), state.needed("t")) == before == (1, 4)
    list(state.stored(cut.body, 0))
    list(state.stored(gone.body, 0))
    assert (state.needed("s"), state.needed("t")) == (None, None)


def test_one_event_of_a_quiet_stream(places):
    """One event beside very many that nobody needs takes the room of one event; small
    files become few.
    """
    retained = places.retained()
    for n in range(40):
        places.append(events(b"%d" % n))
        for _ in range(20):
            places.append(events(bytes(1000)), "t")
        length = places.state.find("t").length
        places.commit(places.state.truncate("t", length, 0))
        places.archive()
        places.expire(retained)
        retained.tidy()
    kept = places.kept()
    assert len(kept) < 16
    assert sum(len(pq.read_table(path)) for path in kept) == 40
    assert retained.bytes == sum(path.stat().st_size for path in kept)
    assert places.whole(places.history(), "s") == places.bytes["s"]


def _emptied(places: Places, retained: Any) -> None:
    """A start that has room lets the archive go, and keeps no row twice."""
    retained.recover()
    places.expire(retained)
    retained.tidy()
    assert not [*places.directories.archive.iterdir()]
    rows = [
        lsn for path in places.kept() for lsn in pq.read_table(path)["lsn"].to_pylist()
    ]
    assert len(rows) == len({*rows})


@pytest.mark.parametrize("step", range(8))
def test_a_crash_while_files_are_kept(places, monkeypatch, step):
    """Whatever is done when it comes, nothing is lost, and the next start clears up."""
    monkeypatch.setattr("gateway.store.spool.retained._SMALL", 2)
    fill(places, archive=True)
    places.expire()
    fill(places, archive=True)
    fill(places, archive=True)
    calls = 0

    def dies(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > step:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        for name in ("unlink", "rename", "sync_directory"):
            real = getattr(places.disk, name)
            patch.setattr(
                places.disk, name, lambda *args, real=real: (dies(), real(*args))
            )
        try:
            retained = places.retained()
            places.expire(retained)
            retained.tidy()
        except KeyboardInterrupt:
            pass
    for name in ("s", "t"):
        assert places.whole(places.history(), name) == places.bytes[name]
    retained = places.retained()
    _emptied(places, retained)
    for name in ("s", "t"):
        assert places.whole(places.history(), name) == places.bytes[name]


class _Written:
    """A file whose writes are told before they are done."""

    def __init__(self, file: Any, before: Callable[[], None]) -> None:
        self._file, self._before = file, before

    def write(self, chunks: Any) -> None:
        self._before()
        self._file.write(chunks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize(
    ("moved", "step"),
    [
        *(pytest.param(1, step, id=f"moved, {step}") for step in range(10)),
        *(pytest.param(1 << 40, step, id=f"written anew, {step}") for step in range(4)),
    ],
)
def test_a_full_disk_while_files_are_kept(places, monkeypatch, step, moved):
    """From whatever step on it has no room, every byte can be read all the while, also by
    who has looked before; with room again the archive is emptied, and no row is twice.
    """
    monkeypatch.setattr("gateway.store.spool.retained._MOVED_BYTES", moved)
    monkeypatch.setattr("gateway.store.spool.retained._SMALL", 2)
    for _ in range(4):
        fill(places, archive=True)
    before, calls = places.history(), count()

    def all_is_there() -> None:
        for history in (before, places.history()):
            for name in ("s", "t"):
                assert places.whole(history, name, size=997) == places.bytes[name]

    def takes(*_: Any) -> None:
        if next(calls) >= step:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    retained = places.retained()
    with monkeypatch.context() as full:
        for name in ("make_directory", "rename"):
            real = getattr(places.disk, name)
            full.setattr(
                places.disk, name, lambda *args, real=real: (takes(), real(*args))[1]
            )
        create = places.disk.create
        full.setattr(
            places.disk,
            "create",
            lambda path: (takes(), _Written(create(path), takes))[1],
        )
        for work in (lambda: places.expire(retained), retained.tidy) * 2:
            with contextlib.suppress(OSError):
                work()
            all_is_there()
    assert next(calls) > step, "it had room for everything"
    _emptied(places, retained)
    all_is_there()


def test_a_start_syncs_what_is_kept_before_the_archive_lets_go(places, monkeypatch):
    """The last run may have failed to: then a power cut would take both."""
    fill(places, archive=True)
    (archived,) = places.directories.archive.iterdir()
    list(places.retained().keep([archived]))
    kept = places.directories.retained_of("n")
    order: list[Path] = []
    for name in ("sync_directory", "unlink"):
        call = getattr(RealDisk, name)

        def noted(self: RealDisk, path: Path, call: Any = call) -> None:
            order.append(path)
            call(self, path)

        monkeypatch.setattr(RealDisk, name, noted)
    places.retained().recover()
    assert archived in order
    assert kept in order[: order.index(archived)]


def test_what_can_not_be_read_stays(places):
    """A damaged file of which something is needed stays in the archive; others go."""
    for _ in range(3):
        fill(places, archive=True)
    paths = sorted(places.directories.archive.iterdir())
    paths[1].write_bytes(b"damaged")
    places.expire()
    assert [*places.directories.archive.iterdir()] == [paths[1]]
    ranges = [parse_kept_name(path.name) for path in places.kept()]
    assert len(ranges) == 2


def test_files_that_leave_out_of_order(places):
    """The job may take a file late, when those around it have expired: it is kept then
    like any other, and nothing is counted as kept before.
    """
    fill(places, archive=True)
    fill(places)
    late = places.publish()
    fill(places, archive=True)
    retained = places.retained()
    places.expire(retained)
    assert len(places.kept()) == 2
    retained.tidy()
    late.rename(places.directories.archive / late.name)
    places.expire(retained)
    retained.recover()
    for name in ("s", "t"):
        assert places.whole(places.history(), name) == places.bytes[name]


def away(places: Places, count: int = 3) -> list[Path]:
    """Files in the archive, filled."""
    for _ in range(count):
        fill(places, archive=True)
    return sorted(places.directories.archive.iterdir())


def test_a_file_that_returns_is_kept(places, monkeypatch):
    """It lay in `poison/` while its neighbours expired: no kept file stands for it."""
    monkeypatch.setattr("gateway.store.spool.retained._SMALL", 3)
    paths = away(places, 5)
    poison = places.root / paths[2].name
    paths[2].rename(poison)
    retained = places.retained()
    with monkeypatch.context() as patch:
        patch.setattr("gateway.store.spool.retained._FILE_BYTES", 1)
        places.expire(retained)
    assert not retained.tidy()
    poison.rename(paths[2])
    retained.recover()
    places.expire(retained)
    assert retained.tidy()
    assert len(places.kept()) == 1
    for name in ("s", "t"):
        assert places.whole(places.history(), name) == places.bytes[name]


def test_files_of_which_nothing_is_needed_part_no_neighbours(places, monkeypatch):
    """Before, between and behind those with needed rows, whenever it is that these are
    not needed any more: the files become one in the end.
    """
    monkeypatch.setattr("gateway.store.spool.retained._SMALL", 2)
    retained = places.retained()
    state = places.state
    for n in range(7):
        places.append(events(b"%d" % n), "s" if n % 2 else "t")
        if n % 4 == 0:
            places.commit(state.truncate("t", state.find("t").length, 0))
        places.archive()
        places.expire(retained)
    places.commit(state.truncate("t", state.find("t").length, 0))
    for _ in range(4):
        retained.tidy()
    [kept] = places.kept()
    assert pq.read_table(kept)["lsn"].to_pylist() == [2, 4, 6]
    assert places.whole(places.history(), "s") == places.bytes["s"]


def fail(
    patch: pytest.MonkeyPatch,
    places: Places,
    call: str,
    number: int,
    of: Callable[[Path], bool],
) -> None:
    """This call of the disk has this error for some paths."""
    real = getattr(places.disk, call)

    def failing(path: Path, *more: Any) -> Any:
        if of(path):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *more)

    patch.setattr(places.disk, call, failing)


def bad_sector(patch: pytest.MonkeyPatch, places: Places, damaged: Path) -> None:
    fail(patch, places, "read", errno.EIO, damaged.__eq__)


def test_one_that_can_not_be_kept_holds_no_other(places, monkeypatch):
    """Without room for the rows of one, or with a bad sector in it, all others go as soon
    as they are kept; so do those that nobody needs.
    """
    monkeypatch.setattr("gateway.store.spool.retained._FILE_BYTES", 1)
    paths = away(places, 4)
    other = places.directories.archive / file_name("other", A, 1, 1)
    other.touch()
    bad_sector(monkeypatch, places, paths[1])

    def of_first(path: Path) -> bool:
        return parse_kept_name(path.name[1:])[0] == 1  # type: ignore[index]

    with monkeypatch.context() as full:
        fail(full, places, "create", errno.ENOSPC, of_first)
        with pytest.raises(OSError, match="No space"):
            places.expire()
    assert sorted(places.directories.archive.iterdir()) == paths[:2]
    places.expire()
    assert [*places.directories.archive.iterdir()] == [paths[1]]


def kept_one_by_one(places: Places, count: int) -> Retained:
    """So many files are away; what is needed of each is in a file of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gateway.store.spool.retained._FILE_BYTES", 1)
        away(places, count)
        retained = places.retained()
        places.expire(retained)
    return retained


def test_a_bad_sector_stops_no_tidying(places, monkeypatch):
    """The other files are looked at, and become one beside it."""
    retained = kept_one_by_one(places, 5)
    monkeypatch.setattr("gateway.store.spool.retained._SMALL", 2)
    damaged = places.kept()[0]
    bad_sector(monkeypatch, places, damaged)
    retained.tidy()  # finds it
    assert retained.tidy()
    assert len(places.kept()) == 2
    places.commit(places.state.delete("s", 0))
    places.commit(places.state.delete("t", 0))
    assert retained.tidy()
    assert places.kept() == [damaged]


def test_a_little_that_is_let_go(places, monkeypatch):
    """It leaves the disk, also where most of its file is needed; of many files one in each
    look that takes long, that with most to give back first.
    """
    monkeypatch.setattr("gateway.protocols.pravega.segment.MARK_BYTES", 1)
    monkeypatch.setattr("gateway.store.spool.retained._SMALL", 99)
    retained = kept_one_by_one(places, 3)
    retained._clock = count(step=10.0).__next__  # whatever is done takes long
    state = places.state
    offsets = state.find("t").mark_offsets
    assert offsets is not None
    places.commit(state.truncate("t", offsets[45], 0))

    def not_needed() -> int:
        counts = [retained._count(path) for path in places.kept()]
        return sum(rows - needed for needed, rows in counts)

    left = [not_needed()]
    while retained.tidy():
        left.append(not_needed())
    assert left == [45, 25, 5, 0]
    assert places.whole(places.history(), "s") == places.bytes["s"]


def test_an_empty_file_has_nothing(places):
    """Somebody put it in the place of one that is lost."""
    paths = away(places)
    paths[1].write_bytes(b"")
    places.expire()
    assert not [*places.directories.archive.iterdir()]
    assert len(places.kept()) == 1


def test_what_is_large_unpacked_is_moved_as_it_is(places):
    """However small it is on the disk, and beside others alike, to write it anew costs
    what is in it.
    """
    for _ in range(2):
        for _ in range(17):
            places.append(events(bytes(1 << 20)))
        places.archive()
    paths = sorted(places.directories.archive.iterdir())
    assert sum(path.stat().st_size for path in paths) < 1 << 20
    before = [path.stat().st_ino for path in paths]
    retained = places.retained()
    places.expire(retained)
    retained.tidy()
    assert [path.stat().st_ino for path in places.kept()] == before


def test_sizes_that_are_not_known_yet_are_asked_for_bit_by_bit(places, monkeypatch):
    """With very many files a look after a start takes no longer than others."""
    kept_one_by_one(places, 6)
    retained = places.retained()
    sized: list[Path] = []
    monkeypatch.setattr(retained, "_size", lambda path: (sized.append(path), 1)[1])
    monkeypatch.setattr(retained, "_clock", count(step=0.4).__next__)
    for most in (2, 4, 6, 6):
        retained.tidy()
        assert sized == places.kept()[:most]


def test_kept_on_another_file_system(places, monkeypatch):
    """A file that can not be moved there is written there."""
    monkeypatch.setattr("gateway.store.spool.retained._MOVED_BYTES", 1)
    archive = places.directories.archive
    fail(monkeypatch, places, "rename", errno.EXDEV, lambda old: old.parent == archive)
    away(places, 1)
    places.expire()
    assert not [*archive.iterdir()]
    assert places.whole(places.history(), "s") == places.bytes["s"]


def test_what_is_kept_already_frees_the_disk(places):
    """Though all of it is needed."""
    [path] = away(places, 1)
    retained = places.retained()
    assert not retained.frees(path)
    assert [*retained.keep([path])] == [path]
    assert retained.frees(path)


def test_a_look_reads_so_much_at_most(places, monkeypatch):
    """In the end all were looked at."""
    retained = kept_one_by_one(places, 6)
    size = places.kept()[0].stat().st_size
    monkeypatch.setattr("gateway.store.spool.retained._LOOK_BYTES", 1.5 * size)
    got: list[Path] = []
    retained._count = lambda path: (got.append(path), (1, 1))[1]  # type: ignore[func-returns-value, method-assign]
    for n in range(1, 4):
        retained.tidy()
        assert len(got) == 2 * n
    assert {*got} == {*places.kept()}
