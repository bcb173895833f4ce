"""What readers and consumers need of the archive stays, or is kept before a file goes."""

import errno
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from gateway.sdk.summed import encode
from gateway.store.names import file_name
from gateway.store.node.catalog import Catalog
from gateway.store.node.owners import kept_until
from gateway.store.node.removal_clock import Seen
from gateway.store.readers.consumers import Consumers, FileMarks
from gateway.store.spool.retained import Retained
from gateway.store.system.disk import RealDisk
from incarnations import A

from .archive import HOUR, World


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
