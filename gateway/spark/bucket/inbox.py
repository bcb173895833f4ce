"""Copies of a bucket's spool files on this machine, for the job that reads a directory.

    s3://…/events-….parquet ── GET, sync, rename ──► data_dir/inbox/events-….parquet ─► tables
            └── once the ledger has all its events: removed, or moved to _archive/

The ledger, which counts events by their whole names, decides what is copied and what may go.
So a crash between any two steps does one of them again.  An object that is uploaded a second
time is only removed, and an inbox that is lost is fetched afresh.  An object stays
while its copy is here: the tasks of a cluster read the bucket, until the batch is done.
An object that was not fetched, and whose events the tables have by others, is fetched and
compared (`gateway.spark.files.overlaps`): a copy of a directory gives its past other bounds.

A look takes out what is done, and meanwhile asks for many files at the same time.  It does so
of each node in turn, so that one node's backlog holds up no other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from gateway.sdk.disk import Disk
from gateway.spark.bucket.clearing import Clearing
from gateway.spark.bucket.copies import Copies
from gateway.spark.bucket.endings import Endings
from gateway.spark.bucket.listing import Listing
from gateway.spark.bucket.missing import Missing, known
from gateway.spark.bucket.requests import REQUESTS, AtOnce, asked, by_threads
from gateway.spark.commit.ledger import Ledger
from gateway.spark.later.deleted_ranges import DeletedRanges
from gateway.store.lsns import Lsns
from gateway.store.names import FoundFile, Life, SpoolFile, parse_file_name
from gateway.store.objects.bucket import Bucket

_log = logging.getLogger("gateway.spark")

_LOOK_SECONDS = 1.0
"""A look begins so long after the one before; later, if that took longer."""
_ROUND = 16 * REQUESTS
"""Files that are fetched before the job sees the first of them."""
_ROUND_BYTES = 128 << 20
"""No more is fetched then: all of it may be in memory at once.  A file may be as large."""
_STOP_SECONDS = 5.0
"""A job that stops does not wait longer for a download; it is begun again."""


class Inbox:
    """The copies in *folder* of the objects of one bucket; a thread of its own keeps them.

    *ledger* says what is in the tables, and what could not be read.  Objects whose events
    are there move to the bucket's archive if *archived*, or are removed.  No more is
    fetched while the directory has *most_bytes*.  Requests are made by *at_once*.
    *tell_behind* is told after each look how many files of each node are in no table.
    Copies are *whole*, or have their footer alone.  *deleted* are the lake's ranges, for
    this thread alone.
    """

    def __init__(
        self,
        bucket: Bucket,
        folder: Path,
        disk: Disk,
        ledger: Callable[[], Ledger],
        *,
        archived: bool,
        most_bytes: int,
        clock: Callable[[], float] = time.monotonic,
        at_once: AtOnce = by_threads,
        tell_behind: Callable[[Mapping[str, int]], None] = lambda _: None,
        whole: bool = True,
        deleted: DeletedRanges | None = None,
    ) -> None:
        self._url = bucket.url
        self._ledger = ledger
        self._most_bytes = most_bytes
        self._clock = clock
        self._at_once = at_once
        self._tell_behind = tell_behind
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inbox", daemon=True)
        self._away = False
        self.listing = Listing(bucket, clock)
        self.copies = Copies(
            bucket, folder, disk, self._stopping.is_set, self._forget, whole=whole
        )
        self._clearing = Clearing(
            bucket, disk, self._forget, archived=archived, deleted=deleted
        )
        self._missing = Missing(bucket.url, clock)
        self.endings = Endings(bucket, clock)
        self.waiting: Sequence[SpoolFile] = ()
        """The files in the bucket that were in no table at the last look, and not aside."""

    def _forget(self, name: str) -> None:
        """Forget an object that is not in the bucket any more.  Any thread may say so."""
        self.listing.forget(name)
        self.copies.forgotten(name)

    def start(self) -> None:
        """Look again and again, in a thread, until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Fetch nothing more; a request that is under way may end by itself."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def look(
        self,
        *,
        most_bytes: int | None = None,
        upto: Mapping[str, int] | None = None,
    ) -> int:
        """Take what is done out of the bucket, and fetch what is new; how many came.

        *most_bytes* is another limit for once; *upto*: nothing comes that is behind these
        lsns.  Raises `BucketError`, OSError, after what other requests brought is here, and
        what is done has gone.
        """
        most = self._most_bytes if most_bytes is None else most_bytes
        here = self.copies.here()
        # After the directory: what the job took out in between is in the tables.
        ledger = self._ledger()
        look = _Look(ledger, set(here), most, upto, sum(here.values()))
        there = known(ledger)
        nodes = self._sorted(look, there)
        done = [name for node in nodes.values() for name in sorted(node.done)]
        self.waiting = [file for node in nodes.values() for file in node.waiting]
        brought = 0
        failures: list[OSError] = []

        def bring() -> None:
            nonlocal brought
            brought, failed = self._bring(look, nodes)
            failures.extend(failed)

        def clear() -> None:
            failures.extend(self._clearing.clear(done, self._at_once))

        stopped = self._stopping.is_set()  # then only what is done goes
        for _ in self._at_once(_call, [clear] if stopped else [clear, bring]):
            pass
        if self._stopping.is_set() and not stopped:
            return brought
        self.endings.hear(self._at_once)
        self._missing.tell(there, ledger)
        self._tell_behind({node: len(one.waiting) for node, one in nodes.items()})
        if failures:
            raise failures[0]
        return brought

    def _sorted(self, look: _Look, there: dict[str, Lsns]) -> dict[str, _Node]:
        """The work on each node's objects; *there* gets the lsns of all."""
        aside = {hole.file for hole in look.ledger.holes}
        nodes: dict[str, _Node] = {}
        took = self.copies.took
        taken: dict[Life, Lsns] = {}
        for each in filter(None, map(parse_file_name, look.here)):
            taken.setdefault(each.life, Lsns()).add(each.first, each.last)
        for one in sorted(self.listing.files(), key=lambda one: one.file.first):
            name, file = one.name, one.file
            node = nodes.setdefault(file.node, _Node())
            there.setdefault(file.node, Lsns()).add(file.first, file.last)
            in_tables = look.ledger.committed.covers(file)
            if not in_tables and name not in aside:
                node.waiting.append(file)
            if name in look.here:
                took.setdefault(name, one)
                continue
            if name in aside:
                continue
            if in_tables and took.get(name) == one:
                node.done.add(name)
            elif look.wants(one, node):
                # Two copies of a directory give one past other bounds: in turns.
                mine = taken.setdefault(file.life, Lsns())
                if mine.touches(file.first, file.last):
                    continue
                mine.add(file.first, file.last)
                node.wanted.append(one)
                node.wanted_bytes += one.bytes
        return nodes

    def _bring(
        self, look: _Look, nodes: Mapping[str, _Node]
    ) -> tuple[int, list[OSError]]:
        """Fetch what is wanted; how many came, and what failed.

        Where requests fail, the job sees what came by the others, and this is the last round.
        """
        queue = _in_turns(node.wanted for node in nodes.values())
        brought = 0
        while some := self._round(queue, look):
            fetched, failures = asked(self._at_once, self.copies.fetch, some)
            came: dict[str, list[FoundFile]] = {}
            for one, here in fetched:
                if not here:
                    look.held -= one.bytes
                else:
                    came.setdefault(one.file.node, []).append(one)
            if self._stopping.is_set():
                return brought, failures
            for files in came.values():
                try:
                    brought += self.copies.admit(files, self._ledger().committed)
                except OSError as why:  # of this node's files: those of others come
                    failures.append(why)
            if failures:
                return brought, failures
        return brought, []

    def _round(self, queue: Iterator[FoundFile], look: _Look) -> list[FoundFile]:
        """The files that are fetched next, at once."""
        some: list[FoundFile] = []
        together = 0
        for one in queue:
            if look.held >= look.most_bytes:
                break
            some.append(one)
            look.held += one.bytes
            together += one.bytes
            if len(some) >= _ROUND or together >= _ROUND_BYTES:
                break
        return some

    def complete(self, files: Iterable[SpoolFile]) -> list[str]:
        """Have all of *files* here of which only footers were: their names.

        One whose object is gone, or another one by now, goes; what is there instead comes
        with the next look.  Raises OSError, `BucketError`.
        """
        return self._changed(self.copies.complete, files)

    def drop(self, name: str) -> None:
        """Remove an object that is replaced by others.  Raises `BucketError`."""
        self._clearing.drop(name)

    def mend(self, files: Iterable[SpoolFile]) -> list[str]:
        """Put back the objects of *files* that are no longer what was fetched, where tasks
        read them; their names.

        Only of copies that are known to be sound: the object may be the only one that is.
        Raises OSError, `BucketError`.
        """
        return [] if self.copies.whole else self._changed(self.copies.mend, files)

    def _changed(
        self, work: Callable[[str], bool], files: Iterable[SpoolFile]
    ) -> list[str]:
        names = [one.name for one in files]
        done, failures = asked(self._at_once, work, names)
        if failures:
            raise failures[0]
        return [name for name, changed in done if changed]

    def _run(self) -> None:
        pause = _LOOK_SECONDS
        while not self._stopping.wait(pause):
            begun = self._clock()
            brought = self.tend()
            spent = self._clock() - begun
            # One that brings nothing may have listed a long backlog, and is in no hurry.
            pause = max(0.0, _LOOK_SECONDS - spent) if brought else _LOOK_SECONDS

    def tend(self, *, most_bytes: int | None = None) -> int:
        """`look`; what fails is told in the log, once until it works."""
        brought = 0
        try:
            brought = self.look(most_bytes=most_bytes)
        except Exception as why:  # the job has what was fetched; it goes on
            if not self._away:
                _log.error("%s can not be read now: %s", self._url, why)
            self._away = True
        else:
            if self._away:
                _log.info("%s can be read again", self._url)
            self._away = False
        return brought


@dataclass
class _Look:
    """The facts that one look at the bucket goes by."""

    ledger: Ledger
    here: set[str]
    """The job's copies."""
    most_bytes: int
    upto: Mapping[str, int] | None
    held: int
    """Bytes that the directory has, as its files' sizes say."""

    def wants(self, one: FoundFile, node: _Node) -> bool:
        """Whether a new object may come: no node gets more than the directory may have."""
        if self.upto is not None and one.file.last > self.upto.get(one.file.node, 0):
            return False
        return node.wanted_bytes < self.most_bytes


@dataclass
class _Node:
    """One node's objects, as a look finds them."""

    done: set[str] = field(default_factory=set)
    """Objects whose events are in the tables, and of which no copy is here."""
    wanted: list[FoundFile] = field(default_factory=list)
    """Objects to fetch, in order of lsn."""
    wanted_bytes: int = 0
    waiting: list[SpoolFile] = field(default_factory=list)
    """Objects whose events are in no table."""


def _in_turns(nodes: Iterable[list[FoundFile]]) -> Iterator[FoundFile]:
    """The first of each, then the second of each, and so on; the oldest node first."""
    waiting = sorted(filter(None, nodes), key=lambda one: one[0].since)
    turns = zip_longest(*waiting)
    return (one for turn in turns for one in turn if one is not None)


def _call(work: Callable[[], None]) -> None:
    work()
