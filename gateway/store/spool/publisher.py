"""Publishes journal segments: makes each a Parquet file that Spark can see, once.

    1. write `.events-….parquet` from the segment; sync it; sync the directory
    2. enter it in the catalog, synced         from here on it is never written again
    3. rename it to `events-….parquet`; sync the directory           Spark may read it
    4. remove the segment, unless a protocol's memory may need it: then
       `gateway.store.checkpoint` removes it later

A segment without events becomes no file.  Where some of its events are nowhere, it becomes
the file before them, a line of the catalog that calls them a hole, and the file behind.  It
does so in that order: a start goes on behind what it finds, and the disk may give back more.

A crash between any two steps is finished by the next start (`Publisher.recover`; the catalog
tells how far it had come).
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from attrs import Factory, define, field
from twisted.logger import Logger

from gateway.event import Batch
from gateway.sdk.disk import Disk
from gateway.store.digests import NOTHING, Link
from gateway.store.journal.log import Segment
from gateway.store.journal.recovery import set_aside
from gateway.store.journal.spares import Spares
from gateway.store.lsns import Lsns, spelled
from gateway.store.names import (
    SpoolFile,
    file_name,
    hidden_name,
    parse_file_name,
    parse_hidden_name,
)
from gateway.store.node.incarnation import Record
from gateway.store.spool.published import Entry, PublishedFiles
from gateway.store.spool.writing import Task, Writer, WrittenFile
from gateway.store.system.shared import SharedDict

_BESIDE_PAYLOAD = 5
"""Bytes that an event takes of a file beside its payload: above all four with its length."""
_TIMES_DIFFER = 0.01
"""Seconds by which times may differ: file systems keep less of a time than we do."""


@dataclass(slots=True)
class Published:
    """A file that has become public."""

    path: Path
    first_lsn: int
    last_lsn: int
    flaws: Counter[str]
    """How many of its events are flawed, by reason."""
    seconds: float


class _Missing(Exception):
    """Events of a segment are nowhere."""

    def __init__(self, lsns: Lsns) -> None:
        super().__init__()
        self.lsns = lsns


@define(eq=False, slots=False)
class Publisher:
    """Makes the files of one segment at a time.  Blocking; raises OSError.

    *keep*: leave published segments where they are.

    18 attributes: thirteen are given; the others are how far it is.
    """

    _log = Logger()

    _node: str
    _spool: Path
    _files: PublishedFiles
    _disk: Disk
    writer: Writer
    _compression: str
    _keep: bool = field(default=False, kw_only=True)
    _clock: Callable[[], float] = time.time
    _before_removal: Callable[[Path], None] = field(
        default=lambda _: None, kw_only=True
    )
    """Told of a segment without events: it leaves no trace in the catalog."""
    spares: Spares = field(
        default=Factory(lambda self: Spares(self._disk), takes_self=True), kw_only=True
    )
    """The place for files of segments that are not needed."""
    copies: SharedDict[int, Batch] = field(factory=SharedDict, kw_only=True)
    """Batches that are still in memory, by lsn: what the disk does not give back of them
    is not lost."""
    _record_of: Callable[[str], Record] = field(
        default=lambda _: Record(), kw_only=True
    )
    """The record of an incarnation in its files."""
    link: Link = field(default=Link(0, NOTHING), kw_only=True)
    """The link of the newest file that was published: what the next one refers to."""

    def __attrs_post_init__(self) -> None:
        self._newest = max((entry.modified for entry in self._files), default=0.0)
        self._damaged: set[Path] = set()
        """Segments that could not be read as they were written, or that have what their
        files have not; they are kept."""
        self._missing: dict[Path, Lsns] = {}
        """The lsns that are nowhere of a segment in hand."""
        self.lost_events = 0
        """Acknowledged events that were found to be nowhere; any thread may ask."""
        self._complete: tuple[Entry, Counter[str]] | None = None
        """The last hidden file that was written, and its flaws.  It is left alone if
        only its catalog entry failed: that line may be durable all the same, and would
        make of a half-written file a public one."""

    def recover(self, segments: Sequence[Segment]) -> list[Segment]:
        """Finish what a crash left half done; returns what is still to be published, and
        what has no events and lies behind that: a memory takes segments in their order.
        """
        known = {entry.hidden: entry for entry in self._files}
        # No sync has covered their times: a power cut may leave others.
        times = {entry.name: entry.modified for entry in self._files}
        for name in self._disk.names(self._spool):
            if name in known:
                if modified := known[name].modified:
                    self._disk.set_times(self._spool / name, modified)
                self._disk.rename(self._spool / name, self._spool / known[name].name)
            elif self._is_ours(parse_hidden_name(name)):
                self._disk.unlink(self._spool / name)
            elif self._is_ours(parse_file_name(name)):
                # Somebody may take it while we look.
                with contextlib.suppress(FileNotFoundError):
                    modified = self._disk.modified(self._spool / name)
                    if abs(modified - (times.get(name) or modified)) > _TIMES_DIFFER:
                        with contextlib.suppress(OSError):  # it is somebody else's
                            self._disk.set_times(self._spool / name, times[name])
                            modified = times[name]
                    self._newest = max(self._newest, modified)
        self._disk.sync_directory(self._spool)
        left: list[Segment] = []
        for sealed in segments:
            behind = left and not sealed.events
            part = sealed if behind else self._unpublished_part(sealed)
            if part is not None:
                left.append(part)
        return left

    @property
    def published_lsn(self) -> int:
        """The last lsn that the catalog has."""
        return self._files.last_lsn

    def close(self) -> None:
        """Publish no more."""
        self._files.close()
        self.spares.give_room()

    def give_room(self) -> None:
        """The disk is full: let go of what takes room and can be had again."""
        self.writer.drop()
        self.spares.give_room()

    def _unpublished_part(self, sealed: Segment) -> Segment | None:
        """The part of a segment that is not public yet.

        More than nothing and less than all of it only where a sync failed, its
        segment was published up to there, and the power went before the next one.
        """
        first = self._files.unpublished(sealed.first_lsn)
        if not self._files.has_all_of(sealed):
            self._damaged.add(sealed.path)
        if first > sealed.last_lsn or self._files.has_forgotten(sealed):
            # Its file was written by the run before.  Where it has no events, none is
            # lost, and what is set aside keeps a lsn for each of its bytes.
            if sealed.damaged and sealed.events:
                self._damaged.add(sealed.path)
            self._done(sealed)
            return None
        return replace(sealed, first_lsn=first)

    def publish(
        self, sealed: Segment, upcoming: Sequence[Segment] = ()
    ) -> list[Published]:
        """All four steps; after an exception the same segment may be tried again.

        No file if it has no events.  *upcoming* are next; their files may be begun.
        """
        if not sealed.events:
            self._done(sealed)
            return []
        done: list[Published] | None = None
        while done is None:
            missing = self._missing.get(sealed.path, Lsns())
            try:
                done = self._parts(sealed, missing, upcoming)
            except _Missing as why:
                self._missing[sealed.path] = missing | why.lsns
        self._missing.pop(sealed.path, None)
        self._done(sealed)
        return done

    def _parts(
        self, sealed: Segment, missing: Lsns, upcoming: Sequence[Segment]
    ) -> list[Published]:
        """Publish the files around what is *missing*, and note that, in the order of lsns.

        Raises `_Missing`.
        """
        done: list[Published] = []
        all_ = Lsns([(sealed.first_lsn, sealed.last_lsn)])
        to_note = missing - self._files.holes
        for first, last in sorted((*(all_ - missing), *to_note)):
            if missing.covers(first, last):
                self._files.note_hole(sealed.incarnation, first, last)
                self.lost_events += last - first + 1
            else:
                part = replace(sealed, first_lsn=first, last_lsn=last)
                done.append(self._published(part, upcoming))
        return done

    def _published(self, sealed: Segment, upcoming: Sequence[Segment]) -> Published:
        """Publish it as one file.  Raises `_Missing`."""
        begun = time.perf_counter()
        entry = self._files.find(sealed.first_lsn)
        flaws: Counter[str] = Counter()
        if entry is None:
            entry, flaws = self._written(sealed, upcoming)
            self._begin(*upcoming)
            self._files.add(entry)
            self.link = Link(entry.last, entry.link)
        if self._disk.exists(self._spool / entry.hidden):
            self._disk.rename(self._spool / entry.hidden, self._spool / entry.name)
        self._disk.sync_directory(self._spool)
        return Published(
            self._spool / entry.name,
            entry.first,
            entry.last,
            flaws,
            time.perf_counter() - begun,
        )

    def _begin(self, *segments: Segment) -> None:
        """Have their files written soon, by an idle writer."""
        for each in segments:
            if each.events and self._files.find(each.first_lsn) is None:
                self.writer.begin(self._task(each, hidden_name(self._file(each))))

    def _done(self, sealed: Segment) -> None:
        if self._keep:
            return
        try:
            self.remove(sealed)
        except OSError as why:
            if sealed.events:
                raise
            # Nothing needs it, and a full disk must not prevent a start, nor hold up
            # those behind it: the next start removes it.
            self._log.warn(
                "{path}: nothing needs it, and it can not be removed yet: {why}",
                path=sealed.path.name,
                why=f"{type(why).__name__}: {why}",
            )

    def remove(self, sealed: Segment) -> None:
        """Remove a published segment, or set it aside if it is damaged; once more is fine.

        Any thread may call it.
        """
        if not sealed.events:
            self._before_removal(sealed.path)
        if sealed.path in self._damaged:
            with contextlib.suppress(FileNotFoundError):
                set_aside(sealed.path, self._disk)
            self._damaged.discard(sealed.path)
        elif sealed.sound:
            self.spares.keep(sealed.path)
        else:
            self._disk.unlink(sealed.path)

    def _written(
        self, sealed: Segment, upcoming: Sequence[Segment]
    ) -> tuple[Entry, Counter[str]]:
        """The hidden file of a segment, complete, and its flaws."""
        name = self._file(sealed)
        if self._complete is None or self._complete[0].name != name:
            self._begin(sealed, *upcoming)
            self._complete = self._write(
                sealed, Entry(sealed.first_lsn, sealed.last_lsn, name)
            )
        return self._complete

    def file_bytes(self, stored: int, payload_bytes: int, events: int) -> int:
        """The most bytes of a file, about.

        It is of *stored* bytes of a segment, which may be compressed, with payloads of so many, in
        so many events.
        """
        if self._compression == "zstd":
            return stored  # only that makes them as small again as senders do
        return max(stored, payload_bytes + _BESIDE_PAYLOAD * events)

    def _file(self, sealed: Segment) -> str:
        return file_name(
            self._node, sealed.incarnation, sealed.first_lsn, sealed.last_lsn
        )

    def _task(self, sealed: Segment, name: str) -> Task:
        return Task(
            sealed.path,
            sealed.first_lsn,
            sealed.last_lsn,
            self._spool / name,
            self._node,
            self._compression,
            sealed.incarnation,
            self._record_of(sealed.incarnation),
        )

    def _write(self, sealed: Segment, entry: Entry) -> tuple[Entry, Counter[str]]:
        path = self._spool / entry.hidden
        task = self._task(sealed, entry.hidden)
        written = self._made(sealed, task)
        if written.missing:
            raise _Missing(Lsns(written.missing))
        self._newest = max(self._newest, self._clock())
        self._disk.set_times(path, self._newest)
        self._disk.sync_directory(self._spool)
        entry = msgspec.structs.replace(
            entry,
            events=written.events,
            link=written.link,
            octets=written.octets,
            modified=self._newest,
        )
        return entry, written.flaws

    def _made(self, sealed: Segment, task: Task) -> WrittenFile:
        """Write the file, with what memory has of a segment that the disk does not give
        back whole.
        """
        written = found = self.writer.finish(task, self.link.digest)
        lsns = range(sealed.first_lsn, sealed.last_lsn + 1)
        there = self.copies.snapshot()
        copies = {lsn: one for lsn, one in there.items() if lsn in lsns}
        if copies and not found.whole:
            task = replace(task, copies=copies)
            written = self.writer.finish(task, self.link.digest)
        self._tell(sealed, found, "acknowledged" if written.missing else "safe")
        return written

    def _tell(self, sealed: Segment, written: WrittenFile, fate: str) -> None:
        """Say what is wrong with a segment, if that was not said before.

        *fate* is that of its events.
        """
        for failure in written.failures:
            self._log.error("{why}", why=failure)
        if written.whole or sealed.path in self._damaged:
            return
        self._damaged.add(sealed.path)
        if written.unreadable:
            self._log.error(
                "{path}: {why}; its acknowledged events are {fate} ({lsns}); "
                "the file is kept as {path}.damaged",
                path=sealed.path.name,
                why=written.unreadable,
                fate="safe" if fate == "safe" else "lost",
                lsns=spelled(sealed.first_lsn, sealed.last_lsn),
            )
            return
        for one in written.damaged_bytes:
            self._log.error(
                "{path}: {what} (lsn {lsn}, {events} {fate} events); the file "
                "is kept as {path}.damaged",
                path=sealed.path.name,
                what=one,
                lsn=one.first_lsn,
                events=one.events,
                fate=fate,
            )

    def _is_ours(self, parsed: SpoolFile | None) -> bool:
        return parsed is not None and parsed.node == self._node
