"""The mark: how far a node had come, kept beside its state, about a second late.

A journal whose end is cut, damaged or gone looks like one that was never longer, and so
does a catalog.  The mark says how far at least they reached: what is missing is told, and
no lsn is given twice.  Batches without events have no lsn that would be missed, so it has
the bytes of the newest segment, too.

A segment without events leaves no trace in the catalog.  So before one is removed that a
mark on the disk may name, `forget` writes the mark without it.  No later segment gets its
name (`gateway.store.journal.log`).

    state/NODE/mark     {"durable": …, …}, a `statefile`
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from attrs import define, field

from gateway.sdk.disk import Disk
from gateway.store.node.through import Through
from gateway.store.system.statefile import StateFile
from gateway.store.system.threads import Alone, RealThreads, Threads

NAME = "mark"
_SECONDS = 1.0


class Mark(msgspec.Struct, frozen=True):
    """How far it had come, in lsns."""

    given: int = 0
    """None up to here is given to another event."""
    durable: int = 0
    """Events up to here were acknowledged."""
    published: int = 0
    """Events up to here are in files, says the catalog."""
    link: str = ""
    """The link of the last of these files (`gateway.store.digests`), if it is known."""
    incarnation: str = ""
    """The incarnation of the journal that had come so far."""
    earlier: tuple[str, ...] = ()
    """The incarnations it vouched for, oldest first: a lost journal knows them no more."""
    segment: str = ""
    """The file name of the newest journal segment with a batch.  Empty if there is none."""
    synced: int = 0
    """The bytes of it that were synced: less is a loss, and no torn tail."""
    left_out: tuple[tuple[int, int], ...] = ()
    """First and last lsn of what a start left out behind damage, and is not published.  A
    damaged segment keeps a lsn for each of its bytes; hardly any of them was given."""
    exact: bool = False
    """Whether `incarnation` acknowledges nothing that is in no file: it has ended with all in
    files, or `ack: spool` holds.  Else its last second is known to its journal alone."""
    records: int = 0
    """How many node records this directory has written, in a bucket or at a hub.  One that is
    there and has a greater number was written by a later state of the directory."""
    through: Through | None = None
    """How far `incarnation` had told all, where a job on this machine asks for it."""

    def vouches(self, incarnation: str) -> bool:
        """Whether who wrote it knew that the *incarnation* had acknowledged nothing more."""
        ended = self.exact and self.incarnation == incarnation
        return ended or incarnation in self.earlier


@define(eq=False, slots=False)
class Marker:
    """Reads and writes the mark of one node, in its state directory.  Blocks; any thread
    may call it.
    """

    _directory: Path
    _disk: Disk
    _clock: Callable[[], float] = time.monotonic
    _threads: Threads = field(factory=RealThreads)

    def __attrs_post_init__(self) -> None:
        self.path = self._directory / NAME
        """Where it is."""
        self._file = StateFile(self.path, Mark, self._disk)
        self._written: Mark | None = None
        """The mark on the disk; None: it is unknown, or not there."""
        self._next = self._clock()
        self._newest = Mark()
        """The last one that was read or written."""
        self._named: set[str] = set()
        """The segments that the one on the disk may name: a write may fail late."""
        self._forgotten = (-1, -1)
        """First lsn and attempt of the newest segment that was removed without a trace:
        a mark that was made before that may name it, or an earlier one."""
        self._alone = Alone(self._threads)

    def read(self) -> tuple[Mark, str | None]:
        """Read the mark, and a sentence if it can not be told.  Raises OSError."""
        found, damaged = self._file.read()
        if found is None:
            return Mark(), damaged
        self._newest, self._named = found, {found.segment}
        return found, None

    def write(self, mark: Mark, *, now: bool = False) -> None:
        """Once a second, or *now*, if anything has changed.  Raises OSError."""
        with self._alone:
            mark = msgspec.structs.replace(mark, records=self._newest.records)
            if _order(mark.segment) <= self._forgotten:
                mark = _without_segment(mark)
            if mark == self._written or not (now or self._clock() >= self._next):
                return
            self._next = self._clock() + (0 if now else _SECONDS)
            self._replace(mark)

    def next_record(self) -> int:
        """Count one more node record, before it is written.  Raises OSError."""
        with self._alone:
            records = self._newest.records + 1
            self._replace(msgspec.structs.replace(self._newest, records=records))
            return records

    def forget(self, segment: str) -> None:
        """Forget a segment that is about to be removed without loss.  Raises OSError."""
        with self._alone:
            self._forgotten = max(self._forgotten, _order(segment))
            if segment in self._named:
                self._replace(_without_segment(self._newest))

    def _replace(self, mark: Mark) -> None:
        self._named.add(mark.segment)
        self._file.write(mark)
        self._written = self._newest = mark
        self._named = {mark.segment}


def _order(segment: str) -> tuple[int, int]:
    # Only here: the job reads marks, and the journal's package needs Twisted.
    from gateway.store.journal.segment import parse_name

    parsed = parse_name(segment)
    return (parsed.first_lsn, parsed.attempt) if parsed else (0, 0)


def _without_segment(mark: Mark) -> Mark:
    return msgspec.structs.replace(mark, segment="", synced=0)
