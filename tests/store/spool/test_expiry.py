"""The archive keeps files for so long, whatever is done to the wall clock."""

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.sdk.summed import encode
from gateway.store.lsns import Lsns
from gateway.store.names import file_name
from gateway.store.node.catalog import Catalog, look
from gateway.store.node.expired import Expired, ExpiredRecord
from gateway.store.node.owners import kept_until
from gateway.store.node.removal_clock import RemovalClock, Seen
from gateway.store.readers.consumers import Consumers, FileMarks
from gateway.store.spool.expiry import Expiry
from gateway.store.spool.retained import Retained
from gateway.store.system.disk import RealDisk
from incarnations import A, B

from .archive import HOUR, AsModified, World


def test_a_file_stays_for_its_time(world):
    """Then it goes, and whoever reads the archive is told."""
    world.add(1)
    assert world.pass_time(HOUR) == [1]
    assert world.told == 0
    assert world.pass_time(120) == []
    assert world.told == 1


def test_an_hour_forward_expires_nothing(world):
    """What is old by the clock only stays; what comes after goes in its own time."""
    world.add(1)
    assert world.pass_time(600) == [1]
    world.set_clock(HOUR)
    world.add(2)
    assert world.pass_time(HOUR - 660) == [1, 2]
    assert world.pass_time(180) == [2]
    assert world.pass_time(HOUR) == []


def test_an_hour_back_stops_nothing(world):
    """The archive is looked at all the same; nothing goes before its time."""
    world.add(1)
    world.pass_time(600)
    world.set_clock(-HOUR)
    world.add(2)
    assert world.pass_time(HOUR) == [1, 2]
    assert world.pass_time(120) == [1]
    assert world.pass_time(HOUR) == []


@pytest.mark.parametrize("set_right", [True, False])
def test_a_start_with_a_clock_that_is_a_year_ahead(world, tmp_path, set_right):
    """Expires nothing before its time, whether a time server sets it right or it stays so."""
    state = tmp_path / "state"
    state.mkdir()
    catalog = Catalog(state, RealDisk())

    def start() -> None:
        clock = RemovalClock(
            partial(catalog.newest, Seen),
            catalog.put,
            lambda _: None,
            clock=lambda: world.wall,
            monotonic=lambda: world.monotonic,
        )
        world.expiry = Expiry(
            world.archive, AsModified(), HOUR, None, world._expired,
            clock=lambda: world.monotonic, wall_clock=clock,
        )  # fmt: skip

    world.archive = tmp_path / "archive"
    world.archive.mkdir()
    start()
    world.add(1)
    assert world.pass_time(600) == [1]
    world.set_clock(365 * 24 * HOUR)
    start()
    world.add(2)
    assert world.pass_time(600) == [1, 2]
    if set_right:
        world.set_clock(-365 * 24 * HOUR)
        world.add(2)
    world.add(3)
    assert world.pass_time(HOUR - 1260) == [1, 2, 3]
    # What the clock showed before is known to the hour.
    assert 1 not in world.pass_time(HOUR)
    assert world.pass_time(HOUR if set_right else 25 * HOUR) == []


def test_too_many_bytes_expire_the_oldest(tmp_path):
    """At once when it is known that there are too many, and no more than needed."""
    world = World(tmp_path, most_bytes=25)
    for lsn in (3, 1, 2):  # archived in this order
        world.add(lsn, 10)
        world.pass_time(60)
    assert world.left() == [1, 2]
    assert world.told == 1
    world.add(4, 10)
    world.expiry.run(30)
    assert world.left() == [2, 4]


def test_what_came_since_a_look_that_failed_counts(tmp_path, monkeypatch):
    """The next look does the rest of the last one, and then its own."""
    world = World(tmp_path, most_bytes=250)
    for lsn in range(1, 5):
        world.add(lsn, 100)
        world.wall += 1

    def fail(names: Iterable[str]) -> bool:
        raise OSError(errno.EIO, "the test says no")

    with monkeypatch.context() as broken:
        broken.setattr(world.expiry, "_note", fail)
        with pytest.raises(OSError, match="says no"):
            world.expiry.run(400)
    for lsn in range(5, 9):
        world.add(lsn, 100)
        world.wall += 1
    assert world.left() == [1, 2, 3, 4, 5, 6, 7, 8]
    world.monotonic += 1
    world.expiry.run(800)
    assert world.left() == [7, 8]


def test_room_is_made_by_the_oldest(world):
    """File by file, until there is enough; then all others stay."""
    for lsn in (1, 2, 3):
        world.add(lsn)
        world.wall += 1
    assert len(world.expiry.make_room(lambda: len(world.left()) == 2)) == 1
    assert world.left() == [2, 3]
    assert world.told == 1
    assert len(world.expiry.make_room(lambda: False)) == 2
    assert world.left() == []


def test_the_time_counts_from_archiving(tmp_path):
    """What the job takes late is in the archive for as long as all else."""
    path = tmp_path / file_name("gw", A, 1, 1)
    old = path.with_name("published")
    old.write_bytes(b"")
    os.utime(old, (1.0, 1.0))
    old.rename(path)
    Expiry(tmp_path, RealDisk(), HOUR, None, lambda: None).run(0)
    assert path.exists()


def test_an_archive_that_takes_long_to_list_is_listed_seldom(tmp_path):
    """It costs a twentieth of the thread's time at most, however many files it has."""
    world = World(tmp_path)
    listed: list[float] = []

    class Slow(AsModified):
        def names(self, directory: Path) -> list[str]:
            listed.append(world.monotonic)
            world.wait(30)
            return super().names(directory)

    world.expiry._disk = Slow()
    for _ in range(60):
        world.pass_time(60)
    assert len(listed) > 4
    assert all(later - one >= 20 * 30 for one, later in pairwise(listed))


def test_what_goes_is_written_down_before(tmp_path):
    """By node, so that it is told from what somebody removes; also when the disk is full,
    which must not keep a file."""
    archive, state = tmp_path / "archive", tmp_path / "state"
    archive.mkdir()
    state.mkdir()
    record = ExpiredRecord(Catalog(state, RealDisk()), archive, RealDisk())
    said: list[tuple[list[str], int]] = []

    def before(names: Iterable[str]) -> None:
        said.append((sorted(names), len(list(archive.iterdir()))))
        if len(said) == 1:
            raise OSError(errno.ENOSPC, "no room")
        record.note(said[-1][0])

    names = [file_name(node, A, lsn, lsn + 9) for node, lsn in (("a", 1), ("a", 11))]
    names.append(file_name("b", A, 5, 6))
    for name in names:
        (archive / name).write_bytes(b"x")
    expiry = Expiry(archive, RealDisk(), HOUR, None, lambda: None, before=before)
    left = iter([False, False, False, True])
    assert len(expiry.make_room(lambda: next(left))) == 3
    assert [count for _, count in said] == [3, 2]
    known = [Expired(f"a_{A}", Lsns([(1, 20)])), Expired(f"b_{A}", Lsns([(5, 6)]))]
    assert look(state).all(Expired) == known
    before_that = (state / "catalog").read_bytes()
    again = ExpiredRecord(Catalog(state, RealDisk()), archive, RealDisk())
    again.note(names)
    again.note(["no name of ours"])
    assert (state / "catalog").read_bytes() == before_that


def test_of_each_incarnation_it_is_known_what_has_left(tmp_path):
    """What has left of the one before says nothing of a rebuilt machine's events."""
    record = ExpiredRecord(Catalog(tmp_path, RealDisk()), tmp_path, RealDisk())
    record.note([file_name("gw", A, 10, 29)])
    record.note([file_name("gw", B, 1, 5), file_name("gw", A, 3, 4)])
    assert look(tmp_path).all(Expired) == [
        Expired(f"gw_{A}", Lsns([(3, 4), (10, 29)])),
        Expired(f"gw_{B}", Lsns([(1, 5)])),
    ]


def numbered(at: int) -> str:
    """An incarnation."""
    return f"{at:010}".translate(str.maketrans("0123456789", "abcdefghij"))


def test_what_has_left_does_not_grow_with_each_start(tmp_path):
    """Incarnations that go on from one another, as their files say, have a hundred lines at
    most, and no lsn is forgotten; a rebuilt machine's stay apart."""
    folder = Catalog(tmp_path, RealDisk())
    record = ExpiredRecord(folder, tmp_path, RealDisk())
    rows = pa.table({"lsn": pa.array([1])})

    def leaves(number: int, first: int, before: str = "") -> None:
        name = file_name("gw", numbered(number), first, first + 1)
        meta = {"gateway.continues": before} if before else {}
        pq.write_table(rows.replace_schema_metadata(meta), tmp_path / name)
        record.note([name])

    for at in range(130):
        leaves(at, 1 + 3 * at, numbered(at - 1) if at else "")
    leaves(500, 1)
    leaves(501, 3, numbered(500))
    again = ExpiredRecord(Catalog(tmp_path, RealDisk()), tmp_path, RealDisk())
    again.note([file_name("gw", numbered(129), 500, 500)])
    lines = {one.life: one for one in look(tmp_path).all(Expired)}
    assert len(lines) == 101
    assert f"gw_{numbered(0)}" not in lines
    oldest = lines[f"gw_{numbered(31)}"]
    assert (oldest.continues, oldest.lsns.size, len(oldest.lsns)) == ("", 64, 32)
    assert lines[f"gw_{numbered(500)}"].lsns == Lsns([(1, 2)])
    every = Lsns.joined(one.lsns for key, one in lines.items() if key < "gw_aaaaaaafaa")
    assert every == Lsns([*((1 + 3 * at, 2 + 3 * at) for at in range(130)), (500, 500)])


@pytest.mark.parametrize(
    ("number", "left"), [(errno.ENOSPC, []), (errno.EDQUOT, []), (errno.EIO, [1])]
)
def test_what_goes_is_written_down_for_certain(tmp_path, number, left):
    """A disk that fails keeps its files until it can; one without room says it later."""
    world, said = World(tmp_path), list[list[str]]()
    fails = True

    def note(names: Iterable[str]) -> None:
        if fails:
            raise OSError(number, "the test says no")
        said.append(list(names))

    world.expiry._before = note
    world.add(1)
    world.monotonic += HOUR + 120
    world.wall += HOUR + 120
    with contextlib.suppress(OSError):
        world.expiry.run(0)
    assert world.left() == left
    fails = False
    world.monotonic += 1
    world.expiry.run(0)
    assert world.left() == []
    assert said == [[file_name("gw", A, 1, 1)]]


def test_room_is_made_without_a_note_for_each_file(tmp_path):
    """On a disk that is full each would be synced; what is noted covers what goes."""
    noted: set[str] = set()
    calls = 0
    names = [file_name("gw", A, lsn, lsn) for lsn in range(1, 251)]
    for number, name in enumerate(names):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (number, number))

    def before(some: Iterable[str]) -> None:
        nonlocal calls
        calls += 1
        noted.update(some)

    def enough() -> bool:
        left = {path.name for path in tmp_path.iterdir()}
        assert noted.issuperset(set(names) - left)
        return len(left) == 40

    expiry = Expiry(
        tmp_path,
        AsModified(),
        HOUR,
        None,
        lambda: None,
        clock=lambda: 50.0,
        before=before,
    )  # a second is not over, however busy the machine is
    assert len(expiry.make_room(enough)) == 210
    assert calls == 3
    assert len(noted) == 250


def let_many_be_due(world: World) -> None:
    """500 files, of which no more than some can be removed in a second."""
    for lsn in range(1, 501):
        world.add(lsn)
    world.wait(HOUR + 60)

    def slow(_: Iterable[str]) -> None:
        world.monotonic += 0.6

    world.expiry._before = slow


def test_a_look_takes_a_second(world):
    """What is to be removed beyond that goes in the next ones: publishing waits for it.
    So where room is made.
    """
    let_many_be_due(world)
    for left in (300, 100, 0):
        world.expiry.run(0)
        assert len(world.left()) == left
        world.expiry.run(0)
        assert len(world.left()) == left  # publishing has as much time
        world.wait(1.2)
    for lsn in range(1, 501):
        world.add(lsn)
    world.monotonic += 60
    assert len(world.expiry.make_room(lambda: False)) < 200


def test_what_was_due_by_other_limits_is_judged_by_the_new_ones(world):
    """Somebody who sees the archive go, and has it kept for longer, keeps what is left."""
    let_many_be_due(world)
    world.expiry.run(0)
    assert len(world.left()) == 300
    world.expiry.configure(24 * HOUR, None)
    for _ in range(3):
        world.wait(2)
        world.expiry.run(0)
    assert len(world.left()) == 300

    def changed_meanwhile(_: Iterable[str]) -> None:
        world.expiry.configure(24 * HOUR, None)

    world.expiry.configure(HOUR, None)
    world.expiry._before = changed_meanwhile
    world.expiry.run(0)
    assert len(world.left()) == 200  # those of which it was said that they go
    world.expiry.run(0)
    assert len(world.left()) == 200


def test_other_daemons_files_stay(world):
    """Whoever shares the archive removes its own, and knows what its readers need."""
    world.expiry._ours = "gw".__eq__
    world.add(1)
    foreign = world.archive / file_name("other", A, 2, 2)
    foreign.write_bytes(b"x")
    os.utime(foreign, (1, 1))
    assert world.pass_time(HOUR + 120) == [2]
    assert len(world.expiry.make_room(lambda: False)) == 0


def test_too_many_bytes_that_stay_are_looked_at_by_the_minute(tmp_path):
    """Not every second, where readers need all of them, or they are others'."""
    world = World(tmp_path, most_bytes=25)
    world.expiry._ours = lambda node: False
    world.add(1, 30)
    world.expiry.run(30)
    looks = []
    world.expiry._oldest_first = lambda: looks.append(1) or []  # type: ignore[method-assign, func-returns-value]
    for _ in range(59):
        world.monotonic += 1
        world.expiry.run(30)
    assert not looks
    world.expiry.run(31)
    assert looks == [1]


class Read:
    """What the only consumer of a world has read."""

    def __init__(self, directory: Path) -> None:
        self._marks = FileMarks(directory, "mine", RealDisk())
        self.consumers = Consumers(lambda _: self._marks, ["mine"])

    def __call__(self, *lsns: int) -> None:
        names = [file_name("gw", A, lsn, lsn) for lsn in lsns]
        self._marks.change(lambda mark: mark.with_done(names))


@pytest.fixture
def read(tmp_path) -> Read:
    (tmp_path / "archive").mkdir()
    return Read(tmp_path / "consumers")


def test_a_file_stays_until_its_consumers_have_it(tmp_path, read):
    """Beyond its time, and without a word of theirs; whatever is newer goes before it."""
    world = World(tmp_path / "archive", consumers=read.consumers)
    for lsn in (1, 2, 3):
        world.add(lsn)
    assert world.pass_time(2 * HOUR) == [1, 2, 3]
    assert read.consumers.behind["mine"].held_files == 3
    read(2)
    assert world.pass_time(120) == [1, 3]
    read(1, 3)
    assert world.pass_time(120) == []
    assert read.consumers.behind["mine"].missed_files == 0


def test_what_was_read_stays_for_its_time_too(tmp_path, read):
    """Other readers of the archive have what they always had."""
    world = World(tmp_path / "archive", consumers=read.consumers)
    world.add(1)
    read(1)
    assert world.pass_time(HOUR) == [1]
    assert world.pass_time(120) == []


def test_what_was_read_goes_first_where_there_is_too_much(tmp_path, read, logged):
    """Then the oldest that a consumer still needs, which is counted, and the first of them
    logged: a consumer that never comes does not fill the disk.
    """
    world = World(tmp_path / "archive", most_bytes=20, consumers=read.consumers)
    for lsn in (1, 2, 3, 4):
        world.wait(1)
        world.add(lsn, 10)
    read(3)
    world.expiry.run(40)
    assert world.left() == [2, 4]
    assert read.consumers.behind["mine"].missed_files == 1
    assert [one["file"] for one in logged] == [file_name("gw", A, 1, 1)]


def test_what_was_read_makes_room_first(tmp_path, read):
    """Likewise where the disk is short."""
    world = World(tmp_path / "archive", consumers=read.consumers)
    for lsn in (1, 2, 3):
        world.wait(1)
        world.add(lsn, 10)
    read(3)
    read.consumers.look()
    left = iter([False, True])
    assert world.expiry.make_room(lambda: next(left)) == [10]
    assert world.left() == [1, 2]
    assert world.expiry.make_room(lambda: world.left() == [2]) == [10]
    assert read.consumers.behind["mine"].missed_files == 1


class Keeping(Retained):
    """Knows by lsn what readers need: all of a file, or none of it; fails, if it shall."""

    def __init__(self, archive: Path) -> None:
        super().__init__("gw", archive.with_name("kept"), archive, RealDisk())
        self.whole: set[int] = set()
        self.unreadable: set[int] = set()
        self.kept: list[int] = []
        self.asked = 0

    def keep(self, paths: Iterable[Path]) -> Iterator[Path]:
        for path in paths:
            lsn = int(path.stem.split("-")[-1])
            self.kept.append(lsn)
            if lsn not in self.unreadable:
                yield path

    def frees(self, path: Path) -> bool:
        self.asked += 1
        return int(path.stem.split("-")[-1]) not in self.whole


@pytest.fixture
def keeping(tmp_path) -> tuple[World, Keeping]:
    """An archive of five files, and what is kept of them."""
    archive = tmp_path / "archive"
    archive.mkdir()
    world = World(archive)
    retained = Keeping(archive)
    world.expiry._retained = retained
    for lsn in range(1, 6):
        world.add(lsn)
    return world, retained


def test_what_readers_need_is_kept_before(keeping):
    """Each file is asked about before it goes; one that can not be read stays."""
    world, retained = keeping
    retained.unreadable = {3}
    assert world.pass_time(HOUR + 120) == [3]
    assert retained.kept[:5] == [1, 2, 3, 4, 5]


def test_room_is_made_of_what_frees_it(keeping):
    """A file that is needed whole would free nothing: it stays, and is not looked at
    again within a minute.
    """
    world, retained = keeping
    retained.whole = {1, 2, 4}
    assert len(world.expiry.make_room(lambda: False)) == 2
    assert world.left() == [1, 2, 4]
    assert retained.asked == 5
    assert len(world.expiry.make_room(lambda: False)) == 0
    assert retained.asked == 5


def look_without_room(world: World) -> None:
    """Once all are due; it fails."""
    world.wait(HOUR + 60)
    with pytest.raises(OSError, match="no room"):
        world.expiry.run(0)


def test_files_go_one_by_one(keeping):
    """Each as soon as it is kept, which makes room for what is kept of the next; where
    there is none for that, those before have gone.
    """
    world, retained = keeping
    seen = []

    def keep(paths: Iterable[Path]) -> Iterator[Path]:
        for path in sorted(paths)[:3]:
            yield path
            seen.append(world.left())
        raise OSError(errno.ENOSPC, "no room")

    retained.keep = keep  # type: ignore[method-assign]
    look_without_room(world)
    assert seen == [[2, 3, 4, 5], [3, 4, 5], [4, 5]]
    assert world.told == 1


def test_what_is_kept_gives_back_first(keeping):
    """There may be no room for more without it; and if that fails, files expire."""
    world, retained = keeping
    left = []

    def tidy() -> bool:
        left.append(world.left())
        raise OSError(errno.ENOSPC, "no room")

    retained.tidy = tidy  # type: ignore[method-assign]
    look_without_room(world)
    assert left == [[1, 2, 3, 4, 5]]
    assert world.left() == []


def test_the_only_copy_makes_no_room(world):
    """It stays for its time, as long as any file."""
    first = file_name("gw", A, 1, 1)
    world.expiry._only_copy = lambda file: file.name == first
    world.add(1)
    world.add(2)
    assert len(world.expiry.make_room(lambda: False)) == 1
    assert world.left() == [1]
    assert world.pass_time(HOUR + 120) == []


def test_how_far_files_are_the_only_copy(tmp_path):
    """From the first start with `keep` on, until a start without; then up to where the
    node was, for ever."""

    def start(published: int, *, keeps: bool) -> int:
        catalog = Catalog(tmp_path, RealDisk())
        return kept_until(catalog, published, keeps=keeps)

    assert start(3, keeps=False) == 0
    assert not (tmp_path / "catalog").exists()
    assert start(5, keeps=True) == 5
    assert start(7, keeps=True) == 7
    assert start(9, keeps=False) == 9
    assert start(20, keeps=False) == 9
    assert start(30, keeps=True) == 30
    assert start(40, keeps=False) == 40
    path = tmp_path / "catalog"
    path.write_bytes(path.read_bytes().replace(b'"last":40', b'"last":41'))
    assert start(50, keeps=False) == 50
    path.write_bytes(path.read_bytes().replace(b'"type"', b'"tyqe"') + encode(Seen(1)))
    assert start(60, keeps=False) == 60


def test_what_takes_long_to_keep_waits_for_the_next_looks(world):
    """Each file is asked for until it has gone, and publishing comes in between."""
    asked: list[list[int]] = []

    class Slow(Retained):
        def tidy(self) -> bool:
            return False

        def keep(self, paths: Iterable[Path]) -> Iterator[Path]:
            some = [*paths]
            asked.append([int(path.stem.split("-")[-1]) for path in some])
            for path in some:
                world.monotonic += 0.6
                yield path

    retained = Slow("gw", world.archive / "retained", world.archive, RealDisk())
    world.expiry._retained = retained
    for lsn in range(1, 6):
        world.add(lsn)
    world.wait(HOUR + 60)
    left = []
    while world.left():
        world.expiry.run(0)
        left.append(world.left())
        world.wait(2)
    assert asked == [[1, 2, 3, 4, 5], [3, 4, 5], [5]]
    assert left == [[3, 4, 5], [5], []]
