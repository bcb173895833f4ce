"""What readers of streams still need of files that leave the archive: their rows, in
files of their own, below `retained/<node>/`.

    archive ── expires ──► retained     only rows that a protocol still needs
    kept-<first lsn>-<last lsn>-<generation>.parquet

A file holds the needed rows of that range of lsns, with the columns that they had, and
nothing else has rows of it: so a stream that keeps its events for ever keeps its own
bytes on the disk, and not those of all that was stored beside it.  What is not needed any
more goes: a file without needed rows is removed, one that has mostly others is written
anew, and neighbours that are small become one.  A rewritten range has a higher generation,
so no name ever has other rows.

A crash between any two steps leaves rows twice, never in no place: a file gets its name
when it is on the disk, and then those go that it replaces.  `recover` finishes that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from attrs import define
from twisted.logger import Logger

from gateway.store.disk import Disk, RealDisk, replace_file
from gateway.store.names import kept_name, parse_file_name, parse_kept_name
from gateway.store.spool import selection
from gateway.store.spool.selection import Damaged, Needed

__all__ = ["Retained"]

_FILE_BYTES = 64 << 20
"""Neighbours become one file as long as they have no more."""
_SMALL = 8
"""So many small neighbours become one file."""
_MOVED = 0.7
"""A file of which so much is needed is moved as it is, if it is not small."""
_MOVED_BYTES = 4 << 20
_WORTHLESS = 0.5
"""A file of which no more is needed is written anew."""
_ROUND = 30
"""In so many looks every file is looked at, ten in a look at least."""


@dataclass(frozen=True, slots=True, order=True)
class _KeptFile:
    """One of them, as its name says."""

    first: int
    last: int
    generation: int
    path: Path


def _kept_files(directory: Path, names: Iterable[str]) -> list[_KeptFile]:
    """Those of these names, in order of lsn."""
    found = ((parse_kept_name(name), name) for name in names)
    return sorted(_KeptFile(*each, directory / name) for each, name in found if each)


@dataclass(slots=True)
class _Source:
    """A file whose needed rows are to be kept."""

    path: Path
    first: int
    last: int
    bytes: int
    generation: int = 0


@define(eq=False, slots=False)
class Retained:
    """Keeps what is needed of one node's files.  Blocks; raises OSError.

    *needed* by protocol: without any, nothing is kept.  *archive* holds files of other
    nodes as well; nobody reads those here.
    """

    _log = Logger()

    _node: str
    _directory: Path
    _spool: Path
    _archive: Path
    _disk: Disk
    _compression: str = "zstd"

    def __attrs_post_init__(self) -> None:
        self.needed: Needed = {}
        self.files = self.bytes = 0
        """How many there are, and their size; as of the last look."""
        self._told: set[str] = set()
        """Damaged files of which the log knows."""
        self._next = 0
        """The lsn at which the next look goes on."""

    # -- names ------------------------------------------------------------------------

    def _all(self) -> list[_KeptFile]:
        if not self._disk.exists(self._directory):
            return []
        return _kept_files(self._directory, self._disk.names(self._directory))

    def _not_kept(self) -> list[int]:
        """The first lsn of each of this node's files that has not left the archive.

        The job may take a later one sooner.
        """
        return [
            parsed[1]
            for directory in (self._spool, self._archive)  # as files move
            for name in self._disk.names(directory)
            if (parsed := parse_file_name(name)) and parsed[0] == self._node
        ]

    def recover(self) -> None:
        """Remove what a crash left over: half-written files, and what was replaced."""
        if not self._disk.exists(self._directory):
            return
        for name in self._disk.names(self._directory):
            if name.startswith(".kept-"):
                self._disk.unlink(self._directory / name)
        kept = self._all()
        for one in kept:
            if any(_replaces(other, one) for other in kept):
                self._disk.unlink(one.path)
        kept = self._all()
        for name in self._disk.names(self._archive):
            if self._is_own(Path(name)) and _has(kept, Path(name)):
                self._disk.unlink(self._archive / name)
        self._measure(kept)

    # -- files that expire --------------------------------------------------------------

    def keep(self, paths: Sequence[Path]) -> list[Path]:
        """Keep what is needed of these files of the archive.

        Returns those that may go now: not those that can not be read.
        """
        if not self.needed:
            return list(paths)
        kept = self._all()
        free = [path for path in paths if not self._is_own(path) or _has(kept, path)]
        own = sorted(set(paths) - set(free), key=lambda path: path.name)
        for group in self._neighbours(own):
            free += self._keep_together(group)
        return free

    def _is_own(self, path: Path) -> bool:
        parsed = parse_file_name(path.name)
        return parsed is not None and parsed[0] == self._node

    def _neighbours(self, paths: Sequence[Path]) -> Iterable[list[_Source]]:
        """Groups with no lsn between theirs, each of some bytes at most."""
        group: list[_Source] = []
        for path in paths:
            parsed = parse_file_name(path.name)
            assert parsed is not None
            if not self._disk.exists(path):
                continue
            size = self._disk.size(path)
            one = _Source(path, parsed[1], parsed[2], size)
            between = group and group[-1].last + 1 != one.first
            if between or sum(each.bytes for each in group) + size > _FILE_BYTES:
                yield group
                group = []
            group.append(one)
        yield group

    def _keep_together(self, group: list[_Source]) -> list[Path]:
        """Returns those of *group* that may go."""
        try:
            self._write(group)
        except Damaged:
            if len(group) > 1:
                return [path for one in group for path in self._keep_together([one])]
            self._tell_damaged(group)
            return []
        return [one.path for one in group]

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
        if not self.needed or not self._is_own(path):
            return True
        try:
            needed, rows = self._count(path)
        except (Damaged, FileNotFoundError):
            return False
        return 2 * needed <= rows

    # -- files that are kept --------------------------------------------------------------

    def tidy(self) -> bool:
        """Look at some of them: remove, write anew, join.  Whether one is gone now."""
        if not self.needed:
            return False  # nobody knows
        kept = self._all()
        if not kept:
            self.files = self.bytes = 0
            return False
        changed = self._join(kept)
        most = max(10, len(kept) // _ROUND)
        some = [one for one in kept if one.first >= self._next][:most]
        self._next = some[-1].last + 1 if len(some) == most else 0
        for one in some:
            if self._disk.exists(one.path):
                changed = self._drop(one) or changed
        self._measure(self._all())
        return changed

    def _measure(self, kept: Sequence[_KeptFile]) -> None:
        self.files = len(kept)
        self.bytes = sum(self._disk.size(one.path) for one in kept)

    def _drop(self, one: _KeptFile) -> bool:
        """Give back what nobody needs of a file; whether that was worth it."""
        source = self._source(one)
        try:
            needed, rows = self._count(one.path)
            if needed > _WORTHLESS * rows:
                return False
            self._write([source])
        except Damaged:
            self._tell_damaged([source])
            return False
        self._disk.unlink(one.path)
        return True

    def _join(self, kept: Sequence[_KeptFile]) -> bool:
        """Make one of neighbours: each is written again only when it has doubled."""
        others = self._not_kept()
        for group in _small(kept, self._disk, others):
            sources = [self._source(one) for one in group]
            try:
                self._write(sources)
            except Damaged:
                self._tell_damaged(sources)
                continue
            for one in group:
                self._disk.unlink(one.path)
            return True
        return False

    def _source(self, one: _KeptFile) -> _Source:
        size = self._disk.size(one.path)
        return _Source(one.path, one.first, one.last, size, one.generation + 1)

    # -- rows -----------------------------------------------------------------------------

    def _count(self, path: Path) -> tuple[int, int]:
        """How many rows of a file are needed, and how many it has."""
        if isinstance(self._disk, RealDisk):  # most of the file need not be read
            with pa.OSFile(str(path)) as file:
                return selection.count(file, self.needed)
        return selection.count(self._disk.read(path), self.needed)

    def _write(self, sources: Sequence[_Source]) -> None:
        """Put what is needed of neighbours into one file; into none if that is nothing."""
        if not sources:
            return
        first, last = sources[0].first, sources[-1].last
        generation = max(one.generation for one in sources)
        path = self._directory / kept_name(first, last, generation)
        only = sources[0] if len(sources) == 1 else None
        if only is not None and only.bytes >= _MOVED_BYTES and not generation:
            needed, rows = self._count(only.path)
            if needed >= _MOVED * rows:
                self._move(only.path, path)
                return
        files = (self._disk.read(one.path) for one in sources)
        data = selection.select(files, self.needed, self._compression)
        if data is not None:
            self._disk.make_directory(self._directory)
            replace_file(self._disk, path, [data]).close()

    def _move(self, old: Path, new: Path) -> None:
        self._disk.make_directory(self._directory)
        self._disk.rename(old, new)
        self._disk.sync_directory(self._directory)


def _has(kept: Sequence[_KeptFile], archived: Path) -> bool:
    """Whether what is needed of a file of the archive is kept already."""
    parsed = parse_file_name(archived.name)
    assert parsed is not None
    _, first, last = parsed
    at = bisect_right(kept, first, key=lambda one: one.first) - 1
    return at >= 0 and last <= kept[at].last


def _replaces(other: _KeptFile, one: _KeptFile) -> bool:
    """Whether *other* was written in the place of *one*."""
    return (
        other is not one
        and other.generation > one.generation
        and other.first <= one.first
        and one.last <= other.last
    )


def _small(
    kept: Sequence[_KeptFile], disk: Disk, others: Sequence[int]
) -> Iterable[list[_KeptFile]]:
    """Neighbours of which one file should be made.

    None of them is larger than all others together, so that each row is written again
    only as often as its file has doubled.  *others*: where files begin that are not kept
    yet, of which none may lie between.
    """
    group: list[_KeptFile] = []
    sizes: list[int] = []
    for one in kept:
        size = disk.size(one.path)
        between = group and any(group[-1].last < n < one.first for n in others)
        if between or sum(sizes) + size > _FILE_BYTES or 2 * size > _FILE_BYTES:
            if _worth(sizes):
                yield group
            group, sizes = [], []
        if 2 * size <= _FILE_BYTES:
            group.append(one)
            sizes.append(size)
        while len(sizes) > _SMALL and sizes[0] > sum(sizes[1:]):
            del group[0], sizes[0]
    if _worth(sizes):
        yield group


def _worth(sizes: Sequence[int]) -> bool:
    return len(sizes) >= _SMALL and 2 * max(sizes) <= sum(sizes)
