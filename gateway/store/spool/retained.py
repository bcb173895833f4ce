"""Rows that readers of streams still need of files that leave the archive.

They are in files of their own, below `retained/<node>/`.

    archive ── expires ──► retained     only rows that a protocol still needs
    kept-<first lsn>-<last lsn>-<generation>.parquet

A file holds the needed rows of that range of lsns, with the columns that they had, and
nothing else has rows of it.  So a stream that keeps its events for ever keeps its own
bytes on the disk, and not those of all that was stored beside it.  What is not needed any
more goes: a file without needed rows is removed, one that has others as well is written
anew, and neighbours that are small become one.  A rewritten range has a higher generation,
so no name ever has other rows.

Every lsn of a range was looked at: files become one only if no lsn is between theirs.  One
that lies elsewhere, in `poison/` say, may come back and must be kept then.  So that files
with needed rows stay neighbours, the name of one takes in a range beside it of which
nothing is needed.

A crash between any two steps leaves rows twice, never in no place.  A file gets its name
when it is on the disk, and then those go that it replaces.  `recover` finishes that.
"""

from __future__ import annotations

import contextlib
import errno
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from attrs import define, field
from twisted.logger import Logger

from gateway.sdk.disk import Disk, replace_file
from gateway.store.names import kept_name, parse_file_name, parse_kept_name
from gateway.store.spool import selection
from gateway.store.spool.selection import Damaged, Needed
from gateway.store.system.disk import RealDisk

_FILE_BYTES = 128 << 20
"""Neighbours become one file as long as they have no more.  This, like `_MOVED_BYTES`,
is of rows as they are unpacked, which is what it costs to write them anew.  The same bytes
on the disk may be thirty times as many.
"""
_SMALL = 8
"""Small neighbours that become one file."""
_MOVED = 0.7
"""A file of which so much is needed is moved as it is, if it is not small."""
_MOVED_BYTES = 16 << 20
_WORTHLESS = 0.5
"""The needed part below which a file is written anew at once."""
_SECONDS = 1.0
"""Seconds of a look in which others are written anew: one at least.

Files whose size is not known yet are opened for so long as well."""
_ROUND = 30
"""Looks in which every file is looked at, ten in a look at least."""
_LOOK_BYTES = 1 << 30
"""No more files are read in a look when they had so much."""


@dataclass(frozen=True, slots=True, order=True)
class _KeptFile:
    """One of them, as its name says."""

    first: int
    last: int
    generation: int
    path: Path


def _kept_files(directory: Path, names: Iterable[str]) -> list[_KeptFile]:
    """The files of these names, in order of lsn."""
    found = ((parse_kept_name(name), name) for name in names)
    return sorted(_KeptFile(*each, directory / name) for each, name in found if each)


class _Gone(Exception):
    """A file was removed by others."""


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise _Gone from None
    except OSError as why:
        if why.errno != errno.EIO:
            raise
        raise Damaged(str(why)) from None


@contextlib.contextmanager
def _noted(failed: list[OSError]) -> Iterator[None]:
    """Note a failure and go on: it is tried for the others."""
    try:
        yield
    except OSError as why:
        failed.append(why)


@dataclass(slots=True)
class _Source:
    """A file whose needed rows are to be kept."""

    path: Path
    first: int
    last: int
    generation: int = 0
    bytes: int = 1
    """Unpacked; known of files of the archive."""


@define(eq=False, slots=False)
class Retained:
    """Keeps what is needed of one node's files.  Blocks; raises OSError.

    *needed* by protocol: without any, nothing is kept.  *archive* holds files of other
    nodes as well, which are not read here.

    27 methods, most of them short: all change one list of files.
    """

    _log = Logger()

    _node: str
    _directory: Path
    _archive: Path
    _disk: Disk
    _compression: str = "zstd"
    _clock: Callable[[], float] = time.monotonic
    needed: Needed = field(factory=dict, kw_only=True)

    def __attrs_post_init__(self) -> None:
        self.files = self.bytes = 0
        """How many there are, and their size; as of the last look."""
        self._unsure = False
        """A name was made, and it may go with the power."""
        self._told: set[str] = set()
        """Damaged files of which the log knows."""
        self._unpacked: dict[str, int] = {}
        """The unpacked bytes of kept files by name, once they were asked for."""
        self._next = 0
        """The lsn at which the next look goes on."""

    # -- names ------------------------------------------------------------------------

    def _all(self) -> list[_KeptFile]:
        if not self._disk.exists(self._directory):
            return []
        if self._unsure:  # else the archive would let go of what a power cut takes
            self._disk.sync_directory(self._directory)
            self._unsure = False
        return _kept_files(self._directory, self._disk.names(self._directory))

    def recover(self) -> None:
        """Remove what a crash left over: half-written files, and what was replaced."""
        if not self._disk.exists(self._directory):
            return
        for name in self._disk.names(self._directory):
            if name.startswith(".kept-"):
                self._disk.unlink(self._directory / name)
        self._unsure = True  # of names that the last run may not have synced
        for one in _replaced(self._all()):
            self._disk.unlink(one.path)
        kept = self._all()
        for name in self._disk.names(self._archive) if kept else ():
            if self._is_own(name) and _has(kept, name):
                self._disk.unlink(self._archive / name)
        self._measure(kept)

    # -- files that expire --------------------------------------------------------------

    def keep(self, paths: Iterable[Path]) -> Iterator[Path]:
        """Keep what is needed of these files of the archive.

        Yields each as soon as it may go: what can not be read may not.  Where some can
        not be kept for want of room, the others are all the same; raises the first
        OSError after that.
        """
        if not self.needed:
            yield from paths
            return
        kept = self._all()
        own: list[Path] = []
        for path in paths:
            if self._is_own(path.name) and not _has(kept, path.name):
                own.append(path)
            else:
                yield path
        failed: OSError | None = None
        for group in self._neighbours(sorted(own)):
            try:
                free = self._keep_together(group)
            except OSError as why:
                failed = failed or why
            else:
                yield from free
        if failed is not None:
            raise failed

    def _is_own(self, name: str) -> bool:
        parsed = parse_file_name(name)
        return parsed is not None and parsed.node == self._node

    def _neighbours(self, paths: Iterable[Path]) -> Iterator[list[_Source]]:
        """Groups with no lsn between theirs, each of some bytes at most; one that may be
        moved as it is, is alone.
        """
        group: list[_Source] = []
        total = 0
        for path in paths:
            parsed = parse_file_name(path.name)
            assert parsed is not None
            try:
                size = self._size(path)
            except _Gone:
                continue
            except Damaged:  # if it can not be read now either, that is told
                size = 1
            one = _Source(path, parsed.first, parsed.last, bytes=size)
            alone = max(size, group[-1].bytes if group else 0) >= _MOVED_BYTES
            fits = group and group[-1].last + 1 == one.first and not alone
            if group and not (fits and total + size <= _FILE_BYTES):
                yield group
                group, total = [], 0
            group.append(one)
            total += size
        if group:
            yield group

    def _keep_together(self, group: list[_Source]) -> list[Path]:
        """Returns those of *group* that may go."""
        try:
            if not self._write(group):
                self._take_in(group[0].first, group[-1].last)
        except (Damaged, _Gone) as why:
            if len(group) > 1:
                return [path for one in group for path in self._keep_together([one])]
            if isinstance(why, Damaged):
                self._tell_damaged(group)
                return []
        return [one.path for one in group]

    def _take_in(
        self, first: int, last: int, replaced: _KeptFile | None = None
    ) -> None:
        """Let a neighbour's name tell that nothing is needed of this range.

        *replaced* is the file that had it.
        """
        for one in self._all():
            beside = one.last + 1 == first or last + 1 == one.first
            if one == replaced or not beside or one.path.name in self._told:
                continue
            generation = one.generation
            if replaced is not None:
                generation = 1 + max(generation, replaced.generation)
            name = kept_name(min(one.first, first), max(one.last, last), generation)
            self._move(one.path, self._directory / name)
            return

    def _tell_damaged(self, group: Iterable[_Source]) -> None:
        for one in group:
            if one.path.name not in self._told:
                self._told.add(one.path.name)
                self._log.error(
                    "{path} can not be read, and has events that readers may need; it "
                    "stays there",
                    path=one.path,
                )

    def frees(self, path: Path) -> bool:
        """Whether the disk has more room when this file leaves the archive."""
        if not self.needed or not self._is_own(path.name):
            return True
        if _has(self._all(), path.name):
            return True
        try:
            needed, rows = self._count(path)
        except (Damaged, _Gone):
            return False
        return 2 * needed <= rows

    # -- files that are kept --------------------------------------------------------------

    def tidy(self) -> bool:
        """Look at some of them: remove, write anew, join.  Whether one is gone now.

        Raises the first OSError after all that goes.
        """
        if not self.needed:
            return False  # nobody knows
        kept = self._all()
        failed: list[OSError] = []
        partly: list[tuple[float, _KeptFile]] = []
        changed = went_on = False
        until = self._clock() + _SECONDS
        for one in self._some(kept):
            with _noted(failed):
                share = self._share(one)
                if share is None:
                    changed = True
                elif share < 1:
                    partly.append((share, one))
        for share, one in sorted(partly):
            if share > _WORTHLESS:
                if went_on and self._clock() >= until:
                    break  # it is found again
                went_on = True
            with _noted(failed):
                changed = self._drop(one) or changed
        with _noted(failed):
            changed = self._join(self._all()) or changed
        if kept or self.files:
            self._measure(self._all())
        if failed:
            raise failed[0]
        return changed

    def _some(self, kept: Sequence[_KeptFile]) -> list[_KeptFile]:
        """The files whose turn it is."""
        most = max(10, len(kept) // _ROUND)
        begin = bisect_right(kept, self._next - 1, key=lambda one: one.first)
        some: list[_KeptFile] = []
        read = 0
        for one in kept[begin : begin + most]:
            if read >= _LOOK_BYTES:
                break
            some.append(one)
            read += self._disk.size(one.path)
        behind = begin + len(some)
        self._next = kept[behind].first if behind < len(kept) else 0
        return some

    def _measure(self, kept: Sequence[_KeptFile]) -> None:
        self.files = len(kept)
        self.bytes = sum(self._disk.size(one.path) for one in kept)

    def _share(self, one: _KeptFile) -> float | None:
        """How much of its rows is needed, as far as is known; None: it has gone."""
        try:
            needed, rows = self._count(one.path)
        except _Gone:
            return None
        except Damaged:
            self._tell_damaged([self._source(one)])
            return 1.0
        return needed / rows

    def _drop(self, one: _KeptFile) -> bool:
        """Give back what is not needed of a file; false: it is not there, or damaged."""
        if not self._disk.exists(one.path):
            return False  # its name has taken in what lay beside it
        source = self._source(one)
        try:
            if not self._write([source]):
                self._take_in(one.first, one.last, one)
        except Damaged:
            self._tell_damaged([source])
            return False
        except _Gone:
            return True
        self._disk.unlink(one.path)
        return True

    def _join(self, kept: Sequence[_KeptFile]) -> bool:
        """Make one of neighbours: each is written again only when it has doubled."""
        for group in _small(self._with_sizes(kept)):
            sources = [self._source(one) for one in group]
            try:
                written = self._write(sources)
            except Damaged:
                self._find_damaged(sources)
                continue
            except _Gone:
                continue
            if not written:
                continue  # they go one by one
            for one in group:
                self._disk.unlink(one.path)
            return True
        return False

    def _with_sizes(self, kept: Sequence[_KeptFile]) -> Iterator[tuple[_KeptFile, int]]:
        """Each with its bytes unpacked; the rest of them in the next look if that takes
        long.  None of those that can not be read is small.
        """
        known, self._unpacked = self._unpacked, {}
        until = self._clock() + _SECONDS
        for one in kept:
            name = one.path.name
            if name in known:
                self._unpacked[name] = known[name]
        for one in kept:
            name = one.path.name
            if name not in self._unpacked:
                if self._clock() >= until:
                    return
                with contextlib.suppress(Damaged, _Gone):
                    self._unpacked[name] = self._size(one.path)
            damaged = name in self._told
            yield one, _FILE_BYTES if damaged else self._unpacked.get(name, _FILE_BYTES)

    def _find_damaged(self, sources: Iterable[_Source]) -> None:
        for one in sources:
            try:
                self._select([one])
            except Damaged:
                self._tell_damaged([one])
            except _Gone:
                continue

    def _source(self, one: _KeptFile) -> _Source:
        return _Source(one.path, one.first, one.last, one.generation + 1)

    # -- rows -----------------------------------------------------------------------------

    def _read(self, path: Path) -> bytes:
        with _reading():
            return self._disk.read(path)

    def _size(self, path: Path) -> int:
        """How many bytes a file has unpacked; none of which nothing is left."""
        with _reading():
            if not self._disk.size(path):
                return 0
        if isinstance(self._disk, RealDisk):
            with _reading(), pa.OSFile(str(path)) as file:
                return selection.unpacked(file)
        return selection.unpacked(self._read(path))

    def _count(self, path: Path) -> tuple[int, int]:
        """How many rows of a file are needed, and how many it has."""
        if isinstance(self._disk, RealDisk):  # most of the file need not be read
            with _reading(), pa.OSFile(str(path)) as file:
                return selection.count(file, self.needed)
        return selection.count(self._read(path), self.needed)

    def _select(self, sources: Iterable[_Source]) -> bytes | None:
        """A file with what is needed of these, of which one without a byte has nothing."""
        files = (self._read(one.path) for one in sources if one.bytes)
        return selection.select(files, self.needed, self._compression)

    def _write(self, sources: Sequence[_Source]) -> bool:
        """Put what is needed of neighbours into one file; into none if that is nothing.

        Returns whether anything is.
        """
        first, last = sources[0].first, sources[-1].last
        generation = max(one.generation for one in sources)
        path = self._directory / kept_name(first, last, generation)
        only = sources[0] if len(sources) == 1 else None
        if only is not None and only.bytes >= _MOVED_BYTES and not generation:
            needed, rows = self._count(only.path)
            if needed >= _MOVED * rows and self._moved(only.path, path):
                return True
        data = self._select(sources)
        if data is None:
            return False
        self._disk.make_directory(self._directory)
        with self._naming():
            replace_file(self._disk, path, [data]).close()
        return True

    def _moved(self, old: Path, new: Path) -> bool:
        """False if they lie on different file systems."""
        self._disk.make_directory(self._directory)
        try:
            self._move(old, new)
        except FileNotFoundError:
            raise _Gone from None
        except OSError as why:
            if why.errno != errno.EXDEV:
                raise
            return False
        return True

    def _move(self, old: Path, new: Path) -> None:
        with self._naming():
            self._disk.rename(old, new)
            self._disk.sync_directory(self._directory)

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Make a name and sync it; if that fails, nothing relies on it before it is."""
        self._unsure = True
        yield
        self._unsure = False


def _has(kept: Sequence[_KeptFile], archived: str) -> bool:
    """Whether what is needed of a file of the archive, by its name, is kept already."""
    parsed = parse_file_name(archived)
    assert parsed is not None
    _, _, first, last = parsed
    at = bisect_right(kept, first, key=lambda one: one.first) - 1
    return at >= 0 and last <= kept[at].last


def _replaced(kept: Iterable[_KeptFile]) -> Iterator[_KeptFile]:
    """The files in whose place another was written."""
    around: list[_KeptFile] = []
    for one in sorted(kept, key=lambda one: (one.first, -one.last, -one.generation)):
        while around and around[-1].last < one.first:
            around.pop()
        if any(_replaces(other, one) for other in around):
            yield one
        else:
            around.append(one)


def _replaces(other: _KeptFile, one: _KeptFile) -> bool:
    return other.generation > one.generation and one.last <= other.last


def _small(kept: Iterable[tuple[_KeptFile, int]]) -> Iterator[list[_KeptFile]]:
    """Neighbours of which one file should be made, with no lsn between theirs.

    None of them is larger than all others together, so that each row is written again
    only as often as its file has doubled.  *kept*: each with its size.
    """
    group: list[_KeptFile] = []
    sizes: list[int] = []
    total = 0
    for one, size in kept:
        fits = 2 * size <= _FILE_BYTES
        if group and not (
            fits and group[-1].last + 1 == one.first and total + size <= _FILE_BYTES
        ):
            if _worth(sizes):
                yield group
            group, sizes, total = [], [], 0
        if fits:
            group.append(one)
            sizes.append(size)
            total += size
        while len(sizes) > _SMALL and 2 * sizes[0] > total:
            total -= sizes[0]
            del group[0], sizes[0]
    if _worth(sizes):
        yield group


def _worth(sizes: Sequence[int]) -> bool:
    return len(sizes) >= _SMALL and 2 * max(sizes) <= sum(sizes)
