"""Finds the file that holds an event: journal segments, spool and archive files are
named by the lsns in them.  `gateway.sdk.files` says how files move while we look.

Everything here reads only, blocks, and may be used beside a running gateway and job.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from io import FileIO
from itertools import accumulate
from pathlib import Path

import pyarrow.parquet as pq

from gateway.sdk.files import PublishedFile
from gateway.store.directories import Directories
from gateway.store.journal import segment
from gateway.store.names import is_node_name, parse_file_name, parse_kept_name
from gateway.store.node.catalog import look
from gateway.store.spool.published import behind, settled_in

_READS = 4
"""Reads of a segment that grows, until two tell the same of it."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A journal segment, as its name and the next one's say."""

    path: Path
    first: int
    """The lsn of its first event, if it has any."""
    before: int | None
    """Where the next segment begins: events from there on count there, not here."""

    @property
    def name(self) -> str:
        return self.path.name

    def scan(
        self,
        before: int | None = None,
        *,
        durable: int = 0,
        synced: int = 0,
        growing: bool = False,
    ) -> segment.Scan:
        """Scan its batches.

        *before* may end them sooner, *durable* and *synced* say how far it reached at least, and
        *growing* that it is written in this process, as for `segment.Scan`.  The newest one may be
        written meanwhile by any: it is damaged if it is so twice, in the same places.

        Raises `segment.InvalidSegment`, OSError.
        """
        ends = [end for end in (self.before, before) if end is not None]
        scan = partial(
            segment.Scan,
            name=self.path.name,
            before=min(ends, default=None),
            durable=durable,
            synced=synced,
        )
        if self.before is not None or growing:
            return scan(self._read(), growing=growing and self.before is None)
        damage: list[segment.Damage] | None = None
        for _ in range(_READS):
            data = self._read()
            found = scan(data).survey().damage
            if not found or found == damage:
                return scan(data)
            damage = found
        return scan(data, growing=True)

    def goes_on(self, end: int, salt: int) -> bool:
        """Whether a record follows at *end*, as `JournalFile` says.

        The file may be no longer for that: it may be written over an old one.
        """
        with self.open() as file:
            return segment.begins(
                os.pread(file.fileno(), segment.RECORD_BYTES, end), salt
            )

    def open(self) -> FileIO:
        return self.path.open("rb", buffering=0)

    def _read(self) -> bytes:
        data = self.path.read_bytes()
        self.path.stat()  # once its name is gone it may be written over (`spares`)
        return data


@dataclass(frozen=True, slots=True)
class SpoolFile:
    """A published file in spool or archive, as its name says."""

    path: Path
    node: str
    incarnation: str
    first: int
    last: int

    @property
    def name(self) -> str:
        return self.path.name

    def overlaps(self, first: int, last: int) -> bool:
        """Whether it holds events of this range."""
        return self.first <= last and first <= self.last


def journals_in(directory: Path) -> list[Path]:
    """The journals of nodes, by name; a file system that is mounted there may have `lost+found`."""
    paths = [directory / name for name in sorted(list_names(directory))]
    return [path for path in paths if is_node_name(path.name) and path.is_dir()]


def segment_files(directory: Path) -> list[SegmentFile]:
    """The segments in a node's journal directory, oldest first."""
    return [
        SegmentFile(directory / name, first, before)
        for first, before, name in segment.in_order(list_names(directory))
        if not (directory / name).is_fifo()
    ]


def scans(
    directory: Path, refused: Callable[[Path, segment.InvalidSegment], object]
) -> Iterator[tuple[Path, segment.Scan]]:
    """A node's segments, each with a scan that has not begun; oldest first.

    What is no segment is *refused*.  Raises OSError.
    """
    for file in segment_files(directory):
        with contextlib.suppress(FileNotFoundError):
            # One with less than a header is being made, and holds no event yet.
            if file.path.stat().st_size <= segment.HEADER_BYTES:
                continue
            try:
                scan = file.scan()
            except segment.InvalidSegment as why:
                refused(file.path, why)
                continue
            yield file.path, scan


def waiting(journal: Path) -> Iterator[tuple[Path, segment.Scan, int, int]]:
    """A node's segments with events that are in no file: of each the scan, the first such
    lsn, and how many there are.  What can not be read is passed over.  Raises OSError.
    """
    settled = settled_in(look(journal))
    for path, scan in scans(journal, lambda path, why: None):
        first = behind(settled, scan.header.first_lsn)
        if (count := scan.survey().next_lsn - first) > 0:
            yield path, scan, first, count


def spool_files(directory: Path) -> dict[str, list[SpoolFile]]:
    """The published files of a spool or an archive, by node, in order of lsn."""
    found = defaultdict(list)
    for name in list_names(directory):
        if parsed := parse_file_name(name):
            found[parsed.node].append(SpoolFile(directory / name, *parsed))
    for files in found.values():
        files.sort(key=lambda file: (file.first, file.last))
    return dict(found)


def list_names(directory: Path) -> list[str]:
    """The names in a directory; none if it is not there."""
    try:
        return [entry.name for entry in directory.iterdir()]
    except FileNotFoundError:
        return []


class Finder:
    """The files of one node: implements `gateway.sdk.files.Files`.  It remembers the last listing of spool and archive, and
    lists the journal each time.  Any thread may call: a new listing takes the place of
    the old one at once, and who goes through the old one has all of that.
    """

    def __init__(
        self, directories: Directories, node: str, *, retained: bool = False
    ) -> None:
        """*retained*: with what is kept of files that left the archive, where some lsns
        are missing, and so may be whole files.
        """
        self.node = node
        self._journal = directories.journal_of(node)
        self._published = (directories.spool, directories.archive)  # as files move
        self._retained = directories.retained_of(node) if retained else None
        self._listed: tuple[list[SpoolFile], list[int]] = [], []
        """All files, and of each the last lsn of it and of those before it."""

    def refresh(self) -> None:
        """List spool and archive afresh."""
        found: dict[str, SpoolFile] = {}
        for directory in self._published:
            for file in spool_files(directory).get(self.node, []):
                found[file.path.name] = file
        if self._retained is not None:
            for name in list_names(self._retained):
                if (kept := parse_kept_name(name)) is not None:
                    path = self._retained / name
                    found[name] = SpoolFile(path, self.node, "", kept[0], kept[1])
        files = sorted(found.values(), key=lambda file: (file.first, file.last))
        reach = list(accumulate((file.last for file in files), max))
        self._listed = files, reach

    def oldest(self, lsn: int = 0) -> int | None:
        """The first lsn of the oldest file that begins at *lsn* or later, if any does.

        Refreshes.
        """
        firsts = [file.first for file in segment_files(self._journal)]
        self.refresh()
        firsts += [file.first for file in self._listed[0]]
        return min((first for first in firsts if first >= lsn), default=None)

    def files(self, lsn: int) -> Iterator[SpoolFile]:
        """Published files from the one with *lsn* on, up to the first hole, unless
        retained ones are among them.
        """
        files, reach = self._listed
        at = bisect_right(files, lsn, key=lambda file: file.first) - 1
        while at > 0 and files[at].last < lsn <= reach[at]:
            at -= 1  # it is part of an older one that has not been removed yet
        for file in files[max(at, 0) :]:
            if file.first > lsn and self._retained is None:
                return  # in between is what is not published yet, or gone
            if file.last >= lsn:
                yield file
                lsn = file.last + 1

    def file(self, lsn: int) -> SpoolFile | None:
        return next(self.files(lsn), None)

    def reaches(self, lsn: int) -> bool:
        """Whether a published file has this lsn, or later ones."""
        _, reach = self._listed
        return bool(reach) and reach[-1] >= lsn

    def segment(self, lsn: int) -> SegmentFile | None:
        files = self.segments(lsn)[:1]
        return files[0] if files and files[0].first <= lsn else None

    def segments(self, lsn: int) -> list[SegmentFile]:
        """Journal segments from the last one that begins at *lsn* or before on."""
        files = segment_files(self._journal)
        at = bisect_right(files, lsn, key=lambda file: file.first) - 1
        return files[max(at, 0) :]

    def open(
        self, file: PublishedFile, metadata: pq.FileMetaData | None = None
    ) -> pq.ParquetFile:
        """Open it wherever it is by now.  Raises FileNotFoundError, OSError."""
        for directory in (*self._published, self._retained):
            if directory is None:
                continue
            with contextlib.suppress(FileNotFoundError):
                path = directory / file.name
                return pq.ParquetFile(
                    path,
                    metadata=metadata if _is_footer_of(metadata, path) else None,
                    memory_map=True,
                    page_checksum_verification=True,
                )
        raise FileNotFoundError(file.name)


def _is_footer_of(metadata: pq.FileMetaData | None, path: Path) -> bool:
    """Whether it still is: a file of the archive has another one, of another length, once
    events were redacted of it (`gateway.spark.later.redact`).  Raises FileNotFoundError.
    """
    if metadata is None:
        return False
    with path.open("rb", buffering=0) as file:
        file.seek(-8, os.SEEK_END)
        return int.from_bytes(file.read(4), "little") == int(metadata.serialized_size)
