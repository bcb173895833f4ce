"""The journal's files: groups of batches appended to the open segment, one `fdatasync`
for each group.

Blocking and single-threaded; `journal.Journal` gives it a thread and a queue.

Relied on: data for which `fdatasync` returned 0 survives a power cut, and a name does
once its directory was synced.  *Not* relied on: that a failed sync can be repeated.
After one the segment is never written to again.  Its synced part stays good; whatever
was not acknowledged goes to a new segment, whose first lsn tells recovery to ignore the
old one's tail.

    append group:  write records → fdatasync → these batches are durable
    no room:       a group is refused if it would take the room that the Parquet files
                   of earlier ones will need
    write or sync  leave the segment (remove it if nothing in it is durable); the next
    fails:         group opens another, `<first lsn>-<incarnation>[.attempt]`, of another
                   incarnation: a copy of the disk may have what was written
    clocks part:   the same, before the group is acknowledged: see `Lineage`
    metadata:      batches without events take room in a segment and no lsn, so several
                   segments may begin with the same one: their attempts order them
    new segment:   create → write header → sync → sync directory, as soon as the one before
                   is sealed → first group, which says how far that was synced; or over
                   the file of an old one (`spares`), whose rest is cut off in the end
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from attrs import Factory, define

from gateway.event import Batch
from gateway.sdk.disk import Disk, File
from gateway.store.journal import segment
from gateway.store.journal.spares import Spares
from gateway.store.node.incarnation import new_id
from gateway.store.system.disk import NO_ROOM
from gateway.store.system.room import Room

_CLOCKS_DIFFER_SECONDS = 1.0
"""Seconds that one clock may get ahead of the other from group to group."""
_CLOCKS_DIFFER = 0.001
"""The part of the time between that it may get ahead in addition: twice the kernel's slewing."""


class SyncFailed(OSError):
    """`fdatasync` failed: what was written since the last one may be durable or not."""


@dataclass(slots=True)
class Segment:
    """A segment that takes no more; `first_lsn` to `last_lsn` are durable in it.

    One that holds metadata only has no events, and `last_lsn` is before `first_lsn`.
    """

    path: Path
    first_lsn: int
    last_lsn: int
    bytes: int
    payload_bytes: int = 0
    """Decoded size of its events."""
    lost: int = 0
    """Events of these that recovery could not read."""
    damaged: bool = False
    """Whether recovery found bytes in it that are not what was written."""
    sound: bool = False
    """This run began and ended it, and all its syncs succeeded: see `spares`."""

    @property
    def incarnation(self) -> str:
        """The incarnation that gave its lsns, as its name says."""
        return segment.incarnation_of(self.path.name)

    @property
    def events(self) -> int:
        return self.last_lsn - self.first_lsn + 1


@dataclass(frozen=True, slots=True)
class Synced:
    """How much of the newest segment is durable: what a start must find of it."""

    name: str = ""
    """The file's name; empty if there is none."""
    bytes: int = 0


@dataclass(slots=True)
class Growing:
    """The segment that is appended to, as far as it is durable."""

    path: Path
    file: File
    encoder: segment.Encoder
    first_lsn: int
    bytes: int = segment.HEADER_BYTES
    """Bytes of it that are durable."""
    batches: int = 0
    events: int = 0
    payload_bytes: int = 0
    """Decoded size of its events."""
    since: float = 0.0
    """When its first event came, if it has any."""
    over: bool = False
    """Whether it is written over an old one, of which something may be behind it."""


@define(eq=False, slots=False)
class Log:
    """Appends groups of batches, each durable when `commit` returns.

    Make it before any segment of an earlier run is removed: what comes later begins
    under a later name.

    *room*: to leave free for files of what is already durable.  *file_bytes*:
    how much a file may take, given the size of its segment, that of its payloads, and
    their number.  *spares*: what new segments are written over.

    16 attributes: ten are given; the others are the open segment, and what it may take.
    """

    directory: Path
    _disk: Disk
    next_lsn: int
    """The lsn of the next event; everything before it is durable."""
    incarnation: str
    """The incarnation that gives the lsns from here on (`gateway.store.node.incarnation`)."""
    _renew: Callable[[int], str] = lambda _: new_id()
    """Begins another incarnation at an lsn, and returns its id."""
    _room: Room = Factory(Room)
    _file_bytes: Callable[[int, int, int], int] = max
    _clock: Callable[[], float] = time.monotonic
    _wall_clock: Callable[[], float] = time.time
    _spares: Spares = Factory(lambda self: Spares(self._disk), takes_self=True)

    def __attrs_post_init__(self) -> None:
        self.growing: Growing | None = None
        """The segment that is appended to; None: the next group begins one."""
        self._last = max(self._there(), default=(0, 0))
        """First lsn and attempt of the newest segment, whether it is still there or not:
        no name means two segments."""
        self._left: list[Segment] = []
        self._tried = False
        """Whether `next_lsn` and those behind may stand somewhere under `incarnation`."""
        self._clocks = self._clock(), self._wall_clock()
        self.synced = Synced()
        """The synced part of the newest segment with a batch, whether it is still open or not."""

    @property
    def bytes(self) -> int:
        """Size of the open segment."""
        growing = self.growing  # another thread may ask
        return growing.bytes if growing else 0

    @property
    def age(self) -> float:
        """Seconds since the open segment got its first event."""
        growing = self.growing
        return self._clock() - growing.since if growing and growing.events else 0.0

    @property
    def short(self) -> bool:
        """The disk had no room for the last group."""
        return self._room.wanted_bytes > 0

    def commit(self, batches: Sequence[Batch]) -> int:
        """Make *batches* durable together; returns the lsn of their first event.

        Raises OSError having stored none of them (`SyncFailed` if it was the sync);
        the same batches may be committed again.
        """
        events = size = payload_bytes = 0
        for batch in batches:
            events += batch.count
            size += len(batch.body)
            payload_bytes += batch.payload_bytes
        self._check_room(size, payload_bytes, events)
        current = self.growing or self._begin()
        first, encoder = self.next_lsn, current.encoder
        chunks: list[bytes] = []
        if not current.batches and self.synced.name:
            chunks = encoder.before(self.synced.name, self.synced.bytes, first)
        chunks += encoder.group(batches, first, current.bytes)
        try:
            current.file.write(chunks)
        except OSError as why:
            self._abandon(current)
            if why.errno in NO_ROOM:  # a quota, which nobody has told of
                self._spares.give_room()
            raise
        try:
            current.file.sync()
        except OSError as why:
            self._abandon(current)
            raise SyncFailed(why.errno, why.strerror, str(current.path)) from why
        if self._clocks_parted():
            self._abandon(current)
            return self.commit(batches)
        current.bytes += sum(map(len, chunks))
        current.batches += len(batches)
        if events and not current.events:
            current.since = self._clock()
        current.events += events
        current.payload_bytes += payload_bytes
        self.next_lsn = first + events
        self.synced = Synced(current.path.name, current.bytes)
        return first

    def seal(self) -> Segment | None:
        """Close the open segment; None if it holds nothing.

        The seal itself needs no sync: without it the segment is just as good.
        """
        current, self.growing = self.growing, None
        if current is None:
            return None
        if not current.batches:
            self._discard(current)
            return None
        end = current.bytes
        with contextlib.suppress(OSError):
            seal = current.encoder.seal(self.next_lsn, end)
            current.file.write(seal)
            end += sum(map(len, seal))
        if current.over:
            with contextlib.suppress(OSError):
                current.file.truncate(end)
        current.file.close()
        return self._finished(current, sound=True)

    def begin(self) -> None:
        """Have the next segment ready, so that no group waits for it.

        One that can not be made now is made, or fails, with the group that needs it.
        """
        if self.growing is None:
            with contextlib.suppress(OSError):
                self._begin()

    def abandoned(self) -> list[Segment]:
        """Segments left behind by a failed sync since the last call, oldest first."""
        left, self._left = self._left, []
        return left

    def _check_room(self, size: int, payload_bytes: int, events: int) -> None:
        # With its last byte taken by segments, a disk has no room for the files that
        # they must become, and nothing would ever free it.
        stored, room = size, self._room
        if (growing := self.growing) is not None:
            stored += growing.bytes
            payload_bytes += growing.payload_bytes
            events += growing.events
        needed = size + self._file_bytes(stored, payload_bytes, events)
        wanted = needed + room.reserved_bytes
        if self._disk.free(self.directory) < wanted and not (
            self._spares.give_room() and self._disk.free(self.directory) >= wanted
        ):
            room.wanted_bytes = needed
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.directory))
        room.wanted_bytes = 0

    def _clocks_parted(self) -> bool:
        """Whether one of them went on without the other since the last group."""
        before, now = self._clocks, (self._clock(), self._wall_clock())
        self._clocks = now
        ran, told = now[0] - before[0], now[1] - before[1]
        return abs(told - ran) > _CLOCKS_DIFFER_SECONDS + ran * _CLOCKS_DIFFER

    def _begin(self) -> Growing:
        if self._tried:
            self.incarnation, self._tried = self._renew(self.next_lsn), False
        header = segment.Header(
            self.next_lsn, int(self._wall_clock() * 1e6), secrets.randbits(32)
        )
        attempt = self._attempt()
        path = self.directory / segment.name(self.next_lsn, self.incarnation, attempt)
        spare = self._spares.take()
        old, file = spare or (path, self._disk.create(path))
        try:
            if spare is not None:  # no record is to stand behind a header without one
                file.rewrite(bytes(segment.HEADER_BYTES + segment.RECORD_BYTES))
            file.write([header.encode()])
            with _syncing(path):
                file.sync()
            if spare is not None:
                self._disk.rename(old, path)
            with _syncing(path):
                self._disk.sync_directory(self.directory)
        except OSError:
            file.close()
            for name in {old, path}:
                with contextlib.suppress(OSError):
                    self._disk.unlink(name)
            raise
        self._last = self.next_lsn, attempt
        encoder = segment.Encoder(header)
        self.growing = Growing(
            path, file, encoder, self.next_lsn, over=spare is not None
        )
        return self.growing

    def _attempt(self) -> int:
        """A number behind all that ever began with this lsn, so that names tell the order."""
        taken = (*self._there(), self._last)
        return 1 + max((n for lsn, n in taken if lsn == self.next_lsn), default=-1)

    def _there(self) -> Iterator[tuple[int, int]]:
        """First lsn and attempt of each segment that is there."""
        for name in self._disk.names(self.directory):
            if (parsed := segment.parse_name(name)) is not None:
                yield parsed.first_lsn, parsed.attempt

    def _abandon(self, current: Growing) -> None:
        self.growing, self._tried = None, True
        if not current.batches:
            self._discard(current)
            return
        # Not relied on; it spares recovery a tail that will be written again.
        with contextlib.suppress(OSError):
            current.file.truncate(current.bytes)
        current.file.close()
        self._left.append(self._finished(current))

    def _discard(self, current: Growing) -> None:
        current.file.close()
        with contextlib.suppress(OSError):
            self._disk.unlink(current.path)

    def _finished(self, current: Growing, *, sound: bool = False) -> Segment:
        return Segment(
            current.path,
            current.first_lsn,
            self.next_lsn - 1,
            current.bytes,
            current.payload_bytes,
            sound=sound,
        )


@contextlib.contextmanager
def _syncing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as why:
        raise SyncFailed(why.errno, why.strerror, str(path)) from why
