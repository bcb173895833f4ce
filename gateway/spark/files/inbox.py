"""Copies of a bucket's spool files on this machine, for the job that reads a directory.

    s3://…/events-….parquet ── GET, sync, rename ──► data_dir/inbox/events-….parquet ─► tables
            └── once the ledger has all its events: removed, or moved to _archive/

What is copied and what may go is decided by the ledger, which counts events by their whole
names.  So a crash between any two steps does one of them again, an object that is uploaded
a second time is only removed, and an inbox that is lost is fetched afresh.  An object stays
while its copy is here: the tasks of a cluster read the bucket, until the batch is done.
One that was not fetched, and whose events the tables have by others, is fetched and compared
(`gateway.spark.files.overlaps`): a copy of a directory gives its past other bounds.

What incarnations say there of themselves (`gateway.store.objects.node_record`) is read once a minute: how
those have ended that are silent goes into the ledger.

Where tasks read the bucket, as those of a cluster do, nobody reads the copies, and only the
end of each file is fetched: its footer, behind zeros that take no place on the disk.  So it
has its size, and says which events it has, as a copy would.

A server answers after tens of milliseconds, and to many at once: a look asks for many files
at the same time, of each node in turn, so that nobody's backlog holds up the others, and
meanwhile takes out what is done.  A backlog of many pages is not listed at each look: a
listing leaps over it, to what is new.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Protocol, TypeVar

from attrs import define

from gateway.sdk.disk import Disk, replace_file
from gateway.spark.commit.ledger import Ledger
from gateway.spark.files import footers
from gateway.spark.later.gone import Gone
from gateway.store import digests
from gateway.store.lsns import Lsns
from gateway.store.names import FoundFile, Life, SpoolFile, found_file, parse_file_name
from gateway.store.objects import node_record
from gateway.store.objects.bucket import (
    ARCHIVE,
    Bucket,
    BucketError,
    NotThere,
)
from gateway.store.objects.node_record import Heard, NodeRecord
from gateway.store.readers.lake import End

_log = logging.getLogger("gateway.spark")

_T = TypeVar("_T")
_R = TypeVar("_R")

REQUESTS = 64
"""How many a job's inbox makes at once, to fetch, and as many to take out."""
_LOOK_SECONDS = 1.0
"""A look begins so long after the one before; later, if that took longer."""
_ROUND = 16 * REQUESTS
"""Files that are fetched before the job sees the first of them."""
_ROUND_BYTES = 128 << 20
"""No more is fetched then: all of it may be in memory at once.  A file may be as large."""
_LACKING_SECONDS = 600.0
"""Later files may be there for so long before earlier ones are missed: uploads go in
parallel, and one that fails is tried again."""
_LEAP_OBJECTS = 1000
"""A server tells so many names in one page: where more of a node were seen, the next page is
asked for behind the last of them."""
_ANEW_SECONDS = 300.0
"""So long what was leapt over is taken to be there still."""
_FOOTER_BYTES = 8192
"""What is asked for where only a footer is wanted, until one has more; …"""
_MOST_FOOTER_BYTES = 128 << 10
"""… no more than this at first, whatever one had: a damaged one may say anything."""
_STOP_SECONDS = 5.0
"""Whoever stops the job does not wait for a download; it is begun again."""


class AtOnce(Protocol):
    """Does the same with many things, in any order: the builtin `map`, or `by_threads`."""

    def __call__(self, work: Callable[[_T], _R], many: Sequence[_T], /) -> Iterable[_R]:
        """What *work* returns, in the order of *many*."""


def by_threads(work: Callable[[_T], _R], many: Sequence[_T]) -> list[_R]:
    """An `AtOnce` of up to `REQUESTS` threads, which have all ended when it returns; a
    process that ends waits for none of them.
    """
    futures: list[Future[_R]] = [Future() for _ in many]
    left = deque(zip(futures, many, strict=True))

    def run() -> None:
        while True:
            try:
                future, one = left.popleft()  # one step: each is one thread's
            except IndexError:
                return
            try:
                future.set_result(work(one))
            except BaseException as why:
                future.set_exception(why)

    for _ in range(min(REQUESTS, len(many))):
        threading.Thread(target=run, name="inbox-request", daemon=True).start()
    wait(futures)
    return [future.result() for future in futures]


@define(eq=False, slots=False)
class Inbox:
    """Of one bucket and the directory *folder*; its own thread uses both, and those of
    *at_once* for it.

    *ledger* says what is in the tables, and what could not be read.  Objects whose events
    are there move to the bucket's archive if *archived*, or are removed.  No more is
    fetched while the directory has *most_bytes*.  Requests are made by *at_once*.
    *tell_behind* is told after each look how many files of each node are in no table.
    Copies are *whole*, or have their footer alone.  *gone* are the lake's: the inbox's own,
    as it has a thread of its own.
    """

    _bucket: Bucket
    _folder: Path
    _disk: Disk
    _ledger: Callable[[], Ledger]
    _archived: bool
    _most_bytes: int
    _clock: Callable[[], float] = time.monotonic
    _at_once: AtOnce = by_threads
    _tell_behind: Callable[[Mapping[str, int]], None] = lambda _: None
    _whole: bool = True
    _gone: Gone | None = None

    def __attrs_post_init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inbox", daemon=True)
        self._away = False
        self._seen: dict[Life, dict[str, FoundFile]] = {}
        """Objects that the last look found, of each incarnation in order of lsn, by name."""
        self._seen_whole = -math.inf
        """When all of the prefix was listed."""
        self._took: dict[str, FoundFile] = {}
        """Which object of each name was fetched, as long as it is there."""
        self.again: set[str] = set()
        """Files that were fetched though the tables had their events: by others, perhaps."""
        self._odd: set[str] = set()
        """Objects that are not what the listing says, and were told."""
        self.ends: dict[Life, End | None] = {}
        """How incarnations have ended, as far as words tell; None: they have not after all."""
        self._heard: dict[str, tuple[Heard, float]] = {}
        """The words, by their objects' names, and when each was read."""
        self._heard_at = -math.inf
        self._held = 0
        """Bytes that the directory has, in a look, as its files' sizes say."""
        self._footer_bytes = _FOOTER_BYTES
        """What the largest footer took, or more; within a bound."""
        self._lacking: dict[tuple[str, int], float] = {}
        """Since when events are missed that are in no table and no file, by the first."""
        self._missed: set[tuple[str, int]] = set()
        """Those of them that were told."""

    def start(self) -> None:
        """Look again and again, in a thread, until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Fetch nothing more; a request that is under way may end by itself."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def recover(self) -> None:
        """Remove what a crash left half written.  Raises OSError."""
        self._disk.make_directory(self._folder)
        for name in self._disk.names(self._folder):
            if name.startswith("."):
                self._disk.unlink(self._folder / name)

    def newest(self) -> dict[str, int]:
        """The last lsn of each node that is in the bucket now.  Raises `BucketError`."""
        found: dict[str, int] = {}
        for one in self._bucket.list("events-"):
            if (file := parse_file_name(one.name)) is not None:
                found[file.node] = max(file.last, found.get(file.node, 0))
        return found

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
        here = {
            name
            for name in self._disk.names(self._folder)
            if parse_file_name(name) is not None
        }
        self._held = sum(self._size(name) for name in here)
        # After the directory: what the job took out in between is in the tables.
        ledger = self._ledger()
        look = _Look(ledger, here, most, upto)
        there = known(ledger)
        nodes = self._sorted(look, there)
        done = [name for node in nodes.values() for name in sorted(node.done)]
        brought = 0
        failures: list[OSError] = []

        def bring() -> None:
            nonlocal brought
            brought, failed = self._bring(look, nodes)
            failures.extend(failed)

        def clear() -> None:
            failures.extend(self._clear(done))

        stopped = self._stopping.is_set()  # then only what is done goes
        for _ in self._at_once(_call, [clear] if stopped else [clear, bring]):
            pass
        if self._stopping.is_set() and not stopped:
            return brought
        self._hear()
        self._miss(there, ledger)
        self._tell_behind({node: one.waiting for node, one in nodes.items()})
        if failures:
            raise failures[0]
        return brought

    def _sorted(self, look: _Look, there: dict[str, Lsns]) -> dict[str, _Node]:
        """What is to be done with each node's objects; *there* gets the lsns of all."""
        aside = {hole.file for hole in look.ledger.holes}
        nodes: dict[str, _Node] = {}
        taken: dict[Life, Lsns] = {}
        for each in filter(None, map(parse_file_name, look.here)):
            taken.setdefault(each.life, Lsns()).add(each.first, each.last)
        for one in sorted(self._objects(), key=lambda one: one.file.first):
            name, file = one.name, one.file
            node = nodes.setdefault(file.node, _Node())
            there.setdefault(file.node, Lsns()).add(file.first, file.last)
            in_tables = look.ledger.committed.covers(file)
            node.waiting += not in_tables and name not in aside
            if name in look.here:
                self._took.setdefault(name, one)
                continue
            if name in aside:
                continue
            if in_tables and self._took.get(name) == one:
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
            asked, failures = self._ask(self._fetch, some)
            came: dict[str, list[FoundFile]] = {}
            for one, here in asked:
                if not here:
                    self._held -= one.bytes
                else:
                    came.setdefault(one.file.node, []).append(one)
            if self._stopping.is_set():
                return brought, failures
            for fetched in came.values():
                try:
                    brought += self._admit(fetched)
                except OSError as why:  # of this node's files: those of others come
                    failures.append(why)
            if failures:
                return brought, failures
        return brought, []

    def _round(self, queue: Iterator[FoundFile], look: _Look) -> list[FoundFile]:
        """What is fetched next, at once."""
        some: list[FoundFile] = []
        together = 0
        for one in queue:
            if self._held >= look.most_bytes:
                break
            some.append(one)
            self._held += one.bytes
            together += one.bytes
            if len(some) >= _ROUND or together >= _ROUND_BYTES:
                break
        return some

    def _ask(
        self, work: Callable[[_T], _R], many: Sequence[_T]
    ) -> tuple[list[tuple[_T, _R]], list[OSError]]:
        """What *work* returns for each, where it raises no OSError; and what it raises."""

        def one(each: _T) -> _R | OSError:
            try:
                return work(each)
            except OSError as why:
                return why

        done: list[tuple[_T, _R]] = []
        failures: list[OSError] = []
        for each, result in zip(many, self._at_once(one, many), strict=True):
            if isinstance(result, OSError):
                failures.append(result)
            else:
                done.append((each, result))
        return done, failures

    def _clear(self, names: Sequence[str]) -> list[OSError]:
        """Take these out of the bucket; what failed."""
        failures: list[OSError] = []
        if self._archived and names:
            if self._gone is not None:
                files = filter(None, map(parse_file_name, names))
                self._gone.come_again(self._disk, files)
            kept, failures = self._ask(self._keep, names)
            names = [name for name, _ in kept]
        if not names:
            return failures
        try:
            self._bucket.remove_all(names)
        except BucketError:  # for one of them; or the server knows no such request
            gone, more = self._ask(self._bucket.remove, names)
            names = [name for name, _ in gone]
            failures += more
        for name in names:
            self._forget(name)
        return failures

    def _keep(self, name: str) -> None:
        keep(self._bucket, name)

    def _forget(self, name: str) -> None:
        """It is not in the bucket any more.  Any thread may say so."""
        if (file := parse_file_name(name)) is not None:
            self._seen.get(file.life, {}).pop(name, None)
        self._took.pop(name, None)
        self.again.discard(name)

    def _objects(self) -> Iterator[FoundFile]:
        """All files that are in the bucket now; those of an incarnation in order of lsn."""
        before, self._seen = self._seen, {}
        if self._clock() - self._seen_whole >= _ANEW_SECONDS:
            before, self._seen_whole = {}, self._clock()
        after: str | None = ""
        while after is not None:
            after = yield from self._until_seen(after, before)

    def _until_seen(
        self, after: str, before: dict[Life, dict[str, FoundFile]]
    ) -> Generator[FoundFile, None, str | None]:
        """The files whose names come after *after*, until one is met that many of its
        incarnation were seen with *before*: then those from it on, and the last of their names.
        """
        for one in self._bucket.list("events-", after):
            found = found_file(one.name, one.bytes, one.modified)
            if found is None:
                continue
            life = found.file.life
            mine = self._seen.setdefault(life, {})
            earlier = before.get(life, {})
            if len(earlier) >= _LEAP_OBJECTS and found == earlier.get(one.name):
                del before[life]
                # What comes before it was listed now, as it is.
                still = {
                    name: seen for name, seen in earlier.items() if name >= one.name
                }
                mine.update(still)
                yield from still.values()
                return max(still)
            mine[one.name] = found
            yield found
        return None

    def _miss(self, there: Mapping[str, Lsns], ledger: Ledger) -> None:
        """Tell what is missing before what is *there*, in a table or a file."""
        now = self._clock()
        before, self._lacking = self._lacking, {}
        told = {(life.node, end.acknowledged) for life, end in ledger.ends.items()}
        missing: dict[str, list[tuple[int, int]]] = {}
        for node, lsns in lacking(there).items():
            for first, last in lsns:
                if (node, last) not in told:  # when its incarnation ended
                    missing.setdefault(node, []).append((first, last))
        for node, spans in missing.items():
            first, last = spans[0]
            gap = node, first
            since = self._lacking[gap] = before.get(gap, now)
            if now - since < _LACKING_SECONDS or gap in self._missed:
                continue
            self._missed.add(gap)
            _log.error(
                "%d events of node %s, lsn %d to %d first, are in no table, and for %d s not"
                " in %s, which has later ones: somebody has removed them, or a lifecycle"
                " rule, or another job that reads this prefix; or their gateway can not"
                " upload them. gateway audit looks further",
                *(sum(end - begin + 1 for begin, end in spans), node, first, last),
                *(now - since, self._bucket.url),
            )
        self._missed &= self._lacking.keys()

    def complete(self, files: Iterable[SpoolFile]) -> list[str]:
        """Have all of *files* here of which only footers were: their names.

        One whose object is gone, or another one by now, goes; what is there instead comes
        with the next look.  Raises OSError, `BucketError`.
        """
        return self._changed(self._complete, files)

    def drop(self, name: str) -> None:
        """An object is replaced by others: remove it.  Raises `BucketError`."""
        self._bucket.remove(name)
        self._forget(name)

    def mend(self, files: Iterable[SpoolFile]) -> list[str]:
        """Put back the objects of *files* that are no longer what was fetched, where tasks
        read them; their names.

        Only of copies that are known to be sound: the object may be the only one that is.
        Raises OSError, `BucketError`.
        """
        return [] if self._whole else self._changed(self._mend, files)

    def _changed(
        self, work: Callable[[str], bool], files: Iterable[SpoolFile]
    ) -> list[str]:
        names = [
            one.name for one in files if self._disk.exists(self._folder / one.name)
        ]
        done, failures = self._ask(work, names)
        if failures:
            raise failures[0]
        return [name for name, changed in done if changed]

    def _complete(self, name: str) -> bool:
        path = self._folder / name
        if not footers.is_alone(path):
            return False
        there = self._there(name)
        if len(there) == self._disk.size(path):
            replace_file(self._disk, path, [there]).close()
            return True
        self._disk.unlink(path)
        self._forget(name)
        self._tell_changed(
            name, "had only been fetched in part: what it had is in no table"
        )
        return True

    def _mend(self, name: str) -> bool:
        path = self._folder / name
        if footers.is_alone(path):
            return False
        copy = self._disk.read(path)
        if self._there(name) == copy:
            return False
        put_back(self._bucket, name, copy)
        self._tell_changed(name, "is put back from what was fetched")
        return True

    def _there(self, name: str) -> bytes:
        """An object; nothing if it is gone."""
        try:
            return self._bucket.read(name)
        except NotThere:
            return b""

    def _tell_changed(self, name: str, done: str) -> None:
        _log.error(
            "%s/%s was gone, or was another than it was when it was fetched, and %s."
            " Somebody, or a lifecycle rule, changes what is there",
            *(self._bucket.url, name, done),
        )

    def _size(self, name: str) -> int:
        try:
            return self._disk.size(self._folder / name)
        except FileNotFoundError:  # the job has it
            return 0

    def _hidden(self, one: FoundFile) -> Path:
        return self._folder / f".{one.name}"

    def _fetch(self, one: FoundFile) -> bool:
        """Whether it is here now, under its hidden name.  Any thread may do it."""
        name = one.name
        if self._stopping.is_set():
            return False
        try:
            first, data = self._read(one)
        except NotThere:
            self._forget(name)
            return False
        if self._stopping.is_set():
            return False  # the folder may be another job's by now
        if first + len(data) != one.bytes:
            if name not in self._odd:
                self._odd.add(name)
                _log.error(
                    "%s/%s has %d bytes, says its listing, and %d came: it is asked for"
                    " again until they are the same",
                    *(self._bucket.url, name, one.bytes, first + len(data)),
                )
            return False
        self._odd.discard(name)
        hidden = self._hidden(one)
        self._disk.unlink(hidden)
        file = self._disk.create(hidden)
        try:
            if first:
                file.truncate(first)
            file.write([data])
            file.sync()
        finally:
            file.close()
        return True

    def _read(self, one: FoundFile) -> tuple[int, bytes]:
        """What is to be here of an object, and with which of its bytes that begins."""
        name, size = one.name, one.bytes
        if self._whole:
            return 0, self._bucket.read(name)
        first = size - self._footer_bytes
        if first < self._footer_bytes:
            return 0, self._bucket.read(name)
        data = self._bucket.read(name, first)
        if (length := digests.footer_bytes(data)) > len(data):
            likely = min(length + length // 8, _MOST_FOOTER_BYTES)
            self._footer_bytes = max(self._footer_bytes, likely)
            first = max(0, size - length)  # all of it, where that is more than there is
            data = self._bucket.read(name, first)
        return first, data

    def _drop(self, one: FoundFile) -> None:
        """The job does not get what was fetched."""
        self._held -= one.bytes
        self._disk.unlink(self._hidden(one))

    def _hear(self) -> None:
        """Read what incarnations say of themselves, once a minute.  Raises `BucketError`."""
        now = self._clock()
        if now - self._heard_at < node_record.EVERY_SECONDS:
            return
        there = {one.name: one for one in node_record.listed(self._bucket)}
        before, self._heard = self._heard, {}
        for name, one in there.items():
            if (known := before.get(name)) and known[0].modified == one.modified:
                self._heard[name] = known
        new = [one for name, one in there.items() if name not in self._heard]
        read, _ = self._ask(lambda one: node_record.read(self._bucket, one), new)
        self._heard |= {one.name: (heard, now) for one, heard in read}
        self._heard_at = now
        nodes: dict[str, dict[str, tuple[NodeRecord, float]]] = {}
        for heard, since in self._heard.values():
            if heard.record is not None:
                mine = nodes.setdefault(heard.node, {})
                mine[heard.record.incarnation] = heard.record, since
        for node, mine in nodes.items():
            silent = [
                by
                for by, (_, since) in mine.items()
                if now - since > node_record.SILENT_SECONDS
            ]
            ended = node_record.ended(
                [one for one, _ in mine.values()], silent, time.time()
            )
            for by in mine:
                life, end = Life(node, by), ended.get(by)
                told = self.ends.get(life)
                if told is not None and end is not None:  # as it was found first
                    end = replace(end, found=told.found)
                self.ends[life] = end

    def _admit(self, fetched: Sequence[FoundFile]) -> int:
        """Let the job see what was fetched of a node; how many files that are."""
        committed = self._ledger().committed
        for one in fetched:
            self._took[one.name] = one
            if committed.covers(one.file):
                self.again.add(one.name)
            self._disk.rename(self._hidden(one), self._folder / one.name)
        return len(fetched)

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
                _log.error("%s can not be read now: %s", self._bucket.url, why)
            self._away = True
        else:
            if self._away:
                _log.info("%s can be read again", self._bucket.url)
            self._away = False
        return brought


@dataclass(frozen=True)
class _Look:
    """What one look at the bucket goes by."""

    ledger: Ledger
    here: set[str]
    """The job's copies."""
    most_bytes: int
    upto: Mapping[str, int] | None

    def wants(self, one: FoundFile, node: _Node) -> bool:
        """Whether a new object may come: nobody gets more than the directory may have."""
        if self.upto is not None and one.file.last > self.upto.get(one.file.node, 0):
            return False
        return node.wanted_bytes < self.most_bytes


@dataclass
class _Node:
    """What a look finds of one node's objects."""

    done: set[str] = field(default_factory=set)
    """Their events are in the tables, and no copy is here."""
    wanted: list[FoundFile] = field(default_factory=list)
    """Those to fetch, in order of lsn."""
    wanted_bytes: int = 0
    """Theirs."""
    waiting: int = 0
    """Those whose events are in no table."""


def _in_turns(nodes: Iterable[list[FoundFile]]) -> Iterator[FoundFile]:
    """One of each, then the second of each, …; first who has waited longest."""
    waiting = sorted(filter(None, nodes), key=lambda one: one[0].since)
    turns = zip_longest(*waiting)
    return (one for turn in turns for one in turn if one is not None)


def known(ledger: Ledger) -> dict[str, Lsns]:
    """The lsns of each node that are in the tables, or noted or accepted to be in none."""
    found = ledger.committed.by_node()
    for hole in ledger.holes:
        found.setdefault(hole.node, Lsns()).add(hole.first, hole.last)
    for one in ledger.accepted:
        if one.last is not None:
            found.setdefault(one.node, Lsns()).add(one.first, one.last)
    return found


def lacking(there: Mapping[str, Lsns]) -> dict[str, Lsns]:
    """The lsns of each node that are not *there*, while later ones are."""
    return {node: Lsns([(1, lsns.last)]) - lsns for node, lsns in there.items()}


def keep(bucket: Bucket, name: str) -> None:
    """Have a file that is in the tables in the bucket's archive, too, before it goes."""
    with contextlib.suppress(NotThere):
        bucket.copy(name, f"{ARCHIVE}/{name}")


def put_back(bucket: Bucket, name: str, data: bytes) -> None:
    """Have the object of a spool file be *data*, where it is gone or damaged: a cluster's
    tasks read it, and it goes to the archive.

    Raises `BucketError`.
    """
    try:
        there, tag = bucket.read_tagged(name)
    except NotThere:
        bucket.create(name, data)
        return
    if there != data:
        bucket.swap(name, data, tag)


def _call(work: Callable[[], None]) -> None:
    work()
