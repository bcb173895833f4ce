"""The bounds of memory and disk that the configuration names, judged at every step.

    journal.memory_bytes          of all batches that wait; and one batch
    limits.unacknowledged_bytes   of what one connection has in the journal; and one batch
    spool.max_bytes               of files and sealed segments; and what one roll adds
    spool.archive_bytes           of the files that were there when the archive was
                                  looked after

While the journal is full Lumberjack is not read.  Of the others, what a connection hands
to it then comes on top: one batch, but of RS.io, which has its own limit for that.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from twisted.internet.defer import Deferred

from gateway.event import BATCH_BYTES, Batch, Stored
from gateway.sdk.interfaces import Told
from gateway.store.journal import Journal
from gateway.store.spool import parse_file_name
from gateway.store.storage import Storage
from simulation.judge import Broken

if TYPE_CHECKING:
    from simulation.world import World

__all__ = ["Bounds", "CountedJournal"]

_AGAIN_SECONDS = 60.0
"""What can not be removed is looked at again after so long, or `spool.retention`."""
_COUNTING_SHARE = 50
_READ_WHEN_FULL = frozenset(("pomelo", "pravega", "rsio"))
_ONE_BATCH_WHEN_FULL = frozenset(("pomelo", "pravega"))


def _opens(batch: Batch) -> bool:
    """It says that a Pomelo session has opened."""
    return batch.origin.protocol == "pomelo" and b'{"event":"opened"' in batch.body


def _closes(batch: Batch) -> bool:
    """It says that one has closed; that waits while the journal is full."""
    return batch.origin.protocol == "pomelo" and b'{"event":"closed"' in batch.body


class _Handed(NamedTuple):
    """A batch that the journal has neither stored nor refused."""

    session: str
    bytes: int
    when_full: bool
    """It has events, and came while the journal was full."""


class CountedJournal:
    """The journal as servers and senders have it, with what each handed to it counted.

    Implements `gateway.sdk.interfaces.Journal`.
    """

    def __init__(self, journal: Journal, bounds: Bounds) -> None:
        self._journal = journal
        self._bounds = bounds
        self._handed: dict[int, _Handed] = {}
        self.held = 0
        """Bytes of all batches that wait, …"""
        self.unacknowledged: Counter[str] = Counter()
        """… those of each session, …"""
        self.when_full = 0
        """… and of those that came while the journal was full."""
        self.handed_when_full: set[str] = set()
        """Sessions that did so, since it is."""
        self.reserve = journal.reserve
        self.over_share, self.when_share = journal.over_share, journal.when_share

    @property
    def full(self) -> bool:
        """See `gateway.sdk.interfaces.Journal`."""
        return self._journal.full

    @property
    def why_full(self) -> str | None:
        """See `gateway.sdk.interfaces.Journal`."""
        return self._journal.why_full

    def when_room(self) -> Deferred[None]:
        """See `gateway.sdk.interfaces.Journal`."""
        return self._journal.when_room().addCallback(self._has_room)

    def _has_room(self, _: None) -> None:
        self.handed_when_full.clear()

    def submit_for(self, told: Told, batch: Batch) -> None:
        """See `gateway.sdk.interfaces.Journal`."""
        self.submit(batch).addCallbacks(told.callback, told.errback)

    def submit(self, batch: Batch) -> Deferred[Stored]:
        """See `gateway.sdk.interfaces.Journal`."""
        self._bounds.submits(self, batch)
        when_full = self._journal.full
        one = _Handed(batch.origin.session, len(batch.body), when_full)
        self._handed[id(batch)] = one
        self._count(one, 1)
        if when_full and batch.count and not _opens(batch):
            self.handed_when_full.add(one.session)
        done = self._journal.submit(batch)
        return done.addBoth(self._done, batch)

    def withdraw(self, batch: Batch) -> bool:
        """See `gateway.sdk.interfaces.Journal`."""
        withdrawn = self._journal.withdraw(batch)
        if withdrawn and id(batch) in self._handed:  # else the stop has refused it
            self._done(None, batch)
        return withdrawn

    def _done(self, result: object, batch: Batch) -> object:
        self._count(self._handed.pop(id(batch)), -1)
        return result

    def _count(self, one: _Handed, times: int) -> None:
        taken = one.bytes + BATCH_BYTES
        self.held += times * taken
        self.unacknowledged[one.session] += times * one.bytes
        if one.when_full:
            self.when_full += times * taken


class Bounds:
    """Raises `Broken` when more is held somewhere than the configuration allows."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._settings = world.settings
        self._largest_batch = 0
        self._largest_segment = 0
        self._taken = 0
        """Bytes that the journal took since the spool was at its limit."""
        self._looked: dict[str, int] | None = None
        """The archive when it was looked after last; None: it may have been passed over."""
        self._counts_from = 0.0

    def submits(self, journal: CountedJournal, batch: Batch) -> None:
        """Somebody hands it to the journal."""
        session, protocol = batch.origin.session, batch.origin.protocol
        if not batch.count:
            return  # of our own accord
        self._largest_batch = max(self._largest_batch, len(batch.body))
        if _opens(batch) or _closes(batch):
            return  # a few dozen bytes, once for each connection
        before = journal.unacknowledged[session]
        limit = self._settings.unacknowledged_bytes
        if limit is not None and protocol != "plain" and before >= limit:
            value = before + len(batch.body)
            bound = f"limits.unacknowledged_bytes of {session}"
            raise self._exceeded(bound, value, limit + len(batch.body))
        if not journal.full:
            self._check_spool(len(batch.body))
        elif protocol not in _READ_WHEN_FULL:
            raise Broken(f"{session} is read while the journal is full")
        elif protocol in _ONE_BATCH_WHEN_FULL and session in journal.handed_when_full:
            raise Broken(f"{session} hands the journal more while that is full")

    def look(self, journal: CountedJournal, storage: Storage) -> None:
        """At every step."""
        held = storage.journal.held_bytes
        self._largest_segment = max(self._largest_segment, storage.journal.open_bytes)
        if journal.handed_when_full and not journal.full:
            journal.handed_when_full.clear()
        if held != journal.held:
            raise Broken(f"{held} bytes count as held, and {journal.held} are")
        limit = self._settings.journal.memory_bytes + self._largest_batch + BATCH_BYTES
        if held > limit:
            self._judge_memory(held, limit + journal.when_full)

    def _judge_memory(self, held: int, limit: int) -> None:
        if held > limit:
            raise self._exceeded("journal.memory_bytes", held, limit)

    def _check_spool(self, size: int) -> None:
        """While it is at its limit, the journal takes what one roll adds, and not more.

        That is the segment that is open, what comes to it at once, and a file that was
        not counted yet.
        """
        life = self._world.life
        assert life is not None
        assert life.storage is not None
        spool = self._sizes(self._world.directories.spool)
        waits = sum(spool.values()) + life.storage.spool.backlog_bytes
        most = self._settings.spool.max_bytes
        if waits < most:
            self._taken = 0
            return
        self._taken += size
        roll = max(spool.values(), default=0) + self._largest_segment
        roll += self._largest_batch
        if self._taken > roll:
            raise self._exceeded("spool.max_bytes", waits + self._taken, most + roll)

    def lists_archive(self, took: float) -> None:
        """A thread has done so, in so many seconds; it is not often done then."""
        after = self._world.now + _COUNTING_SHARE * took
        self._counts_from = max(self._counts_from, after)

    def looks_after_archive(self, *, troubled: bool) -> None:
        """The spool's thread begins to; *troubled*: what it did before may have failed, or
        had no time for all.
        """
        most = self._settings.spool.archive_bytes
        if most is None:
            return
        files = self._sizes(self._world.directories.archive)
        if troubled:
            again = min(_AGAIN_SECONDS, self._settings.spool.retention)
            self._counts_from = max(self._counts_from, self._world.now + again)
        elif self._looked is not None:
            left = sum(size for name, size in files.items() if name in self._looked)
            if left > most:
                raise self._exceeded("spool.archive_bytes", left, most)
        self._looked = files if self._world.now >= self._counts_from else None

    def archived(self, name: str) -> None:
        """Spark has moved a file there; after a power cut perhaps for the second time."""
        if self._looked is not None:
            self._looked.pop(name, None)

    def starts(self) -> None:
        """A life begins."""
        self._taken, self._looked, self._counts_from = 0, None, 0.0

    def _sizes(self, directory: Path) -> dict[str, int]:
        disk = self._world.disk
        return {
            name: len(disk.contents[number])
            for name, number in disk.names.get(str(directory), {}).items()
            if parse_file_name(name)
        }

    def _exceeded(self, bound: str, value: int, limit: int) -> Broken:
        step = self._world.steps
        return Broken(f"{bound}: {value} is more than {limit}, at step {step}")
