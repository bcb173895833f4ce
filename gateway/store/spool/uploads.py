"""Brings the spool's files somewhere else: into a bucket, or to a hub (`End`).

    spool/events-….parquet ── PUT that must not exist yet ──► s3://…/events-….parquet
           └───────────────── then, by renaming ────────────► archive/events-….parquet

So the spool on this machine has what is not there yet, and its limit holds senders back when
that is too much.  The archive has copies of what is, for readers of old events.  A crash
between the two steps is finished by doing both again: a file that is there with the same
events is the one that was wanted.

Requests block, so they are made in threads of their own.  What fails is tried again until
it works, with pauses that double.  Meanwhile one thread alone uploads one file after the
other.  So a server that is short of breath is asked for no more.  A link that is too slow
for several files at once gets one, and a file that alone is refused waits by itself.  Nodes
have their turns, a file each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa
from attrs import define, field
from twisted.logger import Logger

from gateway.sdk.disk import Disk
from gateway.store.digests import are_same
from gateway.store.hub.archiving import to_archive
from gateway.store.names import SpoolFile, parse_file_name
from gateway.store.objects.bucket import (
    Bucket,
    BucketError,
    Conflict,
    StoredObject,
    Unfit,
    commit,
    probe,
)
from gateway.store.spool.failures import Failures
from gateway.store.spool.parts import derived_part
from gateway.store.system.shared import SharedDict
from gateway.store.system.threads import RealThreads, Threads

_AWAY_FAILURES = 3
"""Failures in a row after which they are told; one is what any network does."""
_ASIDE_SECONDS = 60.0


class Put(NamedTuple):
    """A file that is at its end now."""

    bytes: int
    made: bool
    """False: it was there already."""


class Held(BucketError):
    """No file of its node is taken there for now; *code* is the status of HTTP."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


class SetAside(Exception):
    """A file can not be brought anywhere, and is out of the way; the text says why."""


class End(Protocol):
    """A place where files are brought.  Each call blocks, and raises `BucketError`."""

    @property
    def url(self) -> str:
        """The address, for people."""

    def prepare(self) -> None:
        """Called before the first file, until it raises nothing."""

    def put(self, file: SpoolFile, path: Path) -> Put:
        """Have that file there, which lies at *path*.  Raises `Conflict`, `Held`,
        `SetAside`, FileNotFoundError.
        """

    def size(self, file: SpoolFile) -> int | None:
        """The bytes of a file that is there, and lies here no more; None: it is not."""


@define(eq=False, slots=False)
class BucketEnd:
    """A bucket, as an `End`.

    A file whose name is there with other events goes under an incarnation that is derived of
    its own (`gateway.store.spool.parts`).
    """

    _log = Logger()

    bucket: Bucket
    _node: str
    _disk: Disk

    def __attrs_post_init__(self) -> None:
        self._met: dict[str, tuple[StoredObject | None, str]] = {}
        """The object in a file's way, once that is known, and what there is to say."""

    @property
    def url(self) -> str:
        return self.bucket.url

    def prepare(self) -> None:
        probe(self.bucket, self._node)

    def put(self, file: SpoolFile, path: Path) -> Put:
        name, there = file.name, None
        if (met := self._met.get(name)) is not None:
            self._disk.size(path)  # raises, if it is here no more
            there = self._found(name)
            if there is not None and there == met[0]:
                raise Conflict(met[1])  # neither is sent and fetched again to tell that
        data = self._disk.read(path)
        try:
            made = commit(self.bucket, name, data)
        except Conflict as why:
            if isinstance(why, Unfit) or not self._another_past(file, data, str(why)):
                self._met[name] = there, str(why)
                raise
            made = True
        self._met.pop(name, None)
        return Put(len(data), made)

    def size(self, file: SpoolFile) -> int | None:
        found = self._found(file.name)
        return None if found is None else found.bytes

    def _found(self, name: str) -> StoredObject | None:
        return next((one for one in self.bucket.list(name) if one.name == name), None)

    def _another_past(self, file: SpoolFile, data: bytes, why: str) -> bool:
        """Put the events of a file whose name another one has under an incarnation of their own.

        False for what is no spool file, or where that one is none.
        """
        there = self.bucket.read(file.name)
        if are_same(pa.BufferReader(there), pa.BufferReader(data)) is None:
            return False
        one, part = derived_part(pa.BufferReader(data), file)
        commit(self.bucket, one.name, part)
        self._log.error(
            "{why}.  Its events are there as incarnation {by}: {other}",
            why=why,
            by=one.incarnation,
            other=one.name,
        )
        return True


class _Gone(Exception):
    """A file is neither here nor in the bucket."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A file that is in the bucket now."""

    name: str
    bytes: int
    seconds: float
    """Seconds of the request that put it there."""
    again: bool
    """Whether it was there already: an earlier request had gone well, unknown to us."""


@define(eq=False, slots=False)
class Uploads:
    """The uploads of one spool to one *end*, in *number* threads.

    *node* is whose files acknowledgements wait for.  Those of others, which are here since a
    node was renamed, are uploaded, too, if they are *ours*.  *on_uploaded* is called in one of
    the threads, when a file is in the archive.  Files of a node that are *brought* here hold no
    other back.  *quiet*: it is told elsewhere that the end is away.

    33 attributes: 14 are given, the others are shared by its threads under one lock.
    """

    _log = Logger()

    end: End
    _node: str
    _directory: Path
    _archive: Path
    _disk: Disk
    _number: int
    _on_uploaded: Callable[[Uploaded], None] = lambda _: None
    _ours: Callable[[str], bool] = lambda _: True
    _brought: Callable[[str], bool] = lambda _: False
    _clock: Callable[[], float] = time.monotonic
    _threads: Threads = field(factory=RealThreads)
    _in_order: bool = field(default=False, kw_only=True)
    """Whether no file of ours may be there before those that come before it.

    A lost disk then takes nothing with it that the bucket lacks and that was acknowledged."""
    _quiet: bool = field(default=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        self._then: Callable[[], None] = lambda: None
        self._condition = self._threads.condition()
        # All of the following is shared between the threads, under its lock.
        self._waiting: dict[str, dict[str, SpoolFile]] = {}
        """Files that are not there, by node and name; the node whose turn it is comes first."""
        self.last: dict[str, int] = {}
        """The last lsn of each node that files were to be brought of."""
        self._held: dict[str, float] = {}
        """Nodes of which nothing is taken, and until when they wait."""
        self._busy: set[str] = set()
        """Names that a thread has in hand."""
        self._there: dict[str, Uploaded] = {}
        """Files whose request went well, and that are not in the archive yet."""
        self._later: dict[str, float] = {}
        """Files with which something is wrong, and when to try them again."""
        self._failures = Failures(self._number)
        self._fit = False
        """The bucket was tried; until then one thread asks it."""
        self._running = 0
        self._stopping = False
        self._ends_at = 0.0
        self.uploaded = self.failed = 0
        """Files, and attempts."""
        self.bytes = 0
        """Bytes of the files."""
        self.conflicts: SharedDict[str, str] = SharedDict()
        """Reasons, by name, why a file must not be there as it is; they hold senders back."""
        self.stuck: SharedDict[str, str] = SharedDict()
        """Why a file is not there, while all others go on, by its name."""
        self.why: str | None = None
        """Why nothing can be uploaded now, if that is so."""

    # -- any thread -------------------------------------------------------------------

    def find(self) -> None:
        """Take on what an earlier run left.  Raises OSError."""
        found = filter(None, map(parse_file_name, self._disk.names(self._directory)))
        for file in sorted(found, key=lambda one: (one.first, one)):
            if not self.has(file.name) and self._ours(file.node):
                self.add(file.name)

    def start(self, then: Callable[[], None]) -> None:
        """Start the threads; *then* is called after each file, in one of them."""
        self._then = then
        for number in range(self._number):
            self._running += 1
            self._threads.thread(f"upload-{number}", self._run).start()

    def add(self, name: str) -> None:
        """A file that is in the spool now, synced."""
        file = _parsed(name)
        with self._condition:
            self._waiting.setdefault(file.node, {})[name] = file
            self.last[file.node] = max(file.last, self.last.get(file.node, 0))
            self._condition.notify()

    def has(self, name: str) -> bool:
        """Whether that file is not there yet."""
        with self._condition:
            return name in self._waiting.get(_parsed(name).node, ())

    def waiting_of(self, node: str) -> list[SpoolFile]:
        """Files of that node that are not there yet."""
        with self._condition:
            return [*self._waiting.get(node, {}).values()]

    @property
    def nodes(self) -> list[str]:
        """Nodes with such files."""
        with self._condition:
            return [*self._waiting]

    def safe_lsn(self, made: int, node: str = "") -> int:
        """The lsn up to which all of ours is there, or of *node*'s, of files up to lsn *made*."""
        waiting = self.waiting_of(node or self._node)
        return min([made, *(file.first - 1 for file in waiting)])

    def go_on(self) -> None:
        """The end is there again: try at once."""
        with self._condition:
            self._failures.in_a_row = 0
            self._condition.notify(self._number)

    @property
    def problem(self) -> str | None:
        """Why files do not get into the bucket now, if so."""
        problems = self.conflicts.snapshot() or self.stuck.snapshot()
        return next(iter(problems.values()), self.why)

    def finish(self, seconds: float) -> None:
        """Upload what is left, but try nothing twice, for so long; then let it be.

        The next start goes on with it.  Blocks.
        """
        until = self._clock() + seconds
        with self._condition:
            self._stopping = True
            self._ends_at = until
            self._failures.in_a_row = 0
            self._condition.notify(self._number)
            while self._running and (left := until - self._clock()) > 0:
                self._condition.wait(left)

    # -- the threads ------------------------------------------------------------------

    def _run(self) -> None:
        while (name := self._next()) is not None:
            self._upload(name)
        with self._condition:
            self._running -= 1
            self._condition.notify(self._number + 1)

    def _next(self) -> str | None:
        """A file to upload, when there is one and it is time; None at the end."""
        with self._condition:
            while True:
                now = self._clock()
                if self._stopping and (self._failures.in_a_row or now >= self._ends_at):
                    return None
                name, at = self._due(now)
                if name is not None:
                    self._busy.add(name)
                    return name
                if self._stopping and at is None:
                    return None
                self._condition.wait(None if at is None else max(0.0, at - now))

    def _due(self, now: float) -> tuple[str | None, float | None]:
        """The first file that may be tried, or else when the next one may, if any."""
        failures, tried = self._failures, self._failures.tried
        if (failures.in_a_row or not self._fit) and self._busy:
            return None, None  # the thread that has it tries for all
        if len(self._busy) >= failures.most_at_once(now):
            return None, None
        if failures.in_a_row and now < failures.again_at:
            return None, failures.again_at
        at: float | None = None
        least: str | None = None
        behind = False  # one of ours that is not in the bucket
        for name, file in self._in_turn():
            if self._in_order and file.node == self._node:
                if behind:
                    continue
                behind = name not in self._there
            if name in self._busy:
                continue
            later = max(self._later.get(name, now), self._held.get(file.node, now))
            if later <= now:
                if name not in tried:
                    self._waiting[file.node] = self._waiting.pop(file.node)
                    return name, None
                if least is None or tried[name] < tried[least]:
                    least = name
            elif not self._stopping:
                at = later if at is None else min(at, later)
        return (None, at) if least is None else (least, None)

    def _in_turn(self) -> Iterator[tuple[str, SpoolFile]]:
        for files in self._waiting.values():
            yield from files.items()

    def _upload(self, name: str) -> None:
        begun = self._clock()
        try:
            if not self._fit:
                self.end.prepare()
                self._fit = True
            one = self._put(name, begun)
        except Conflict as why:
            brought = self._brought(_parsed(name).node) and not isinstance(why, Unfit)
            among = self.stuck if brought else self.conflicts
            self._set_aside(name, str(why), among)
        except Held as why:
            self._hold(name, str(why))
        except BucketError as why:
            self._failed(name, str(why), begun)
        except SetAside as why:
            self._log.error("{why}; it is in poison/ now, and nowhere else", why=why)
            self._take_out(name)
        except _Gone as why:
            self._set_aside(name, f"{name}: {why}", self.stuck)
        except Exception as why:  # it is this file's; the others may go on
            self._set_aside(name, f"{name}: {type(why).__name__}: {why}", self.stuck)
        else:
            self._done(one)

    def _put(self, name: str, begun: float) -> Uploaded:
        file = _parsed(name)
        try:
            one = self._there.get(name)
            if one is None:
                put = self.end.put(file, self._place(name))
                seconds = self._clock() - begun
                one = Uploaded(name, put.bytes, seconds, again=not put.made)
                with self._condition:  # the next one may be sent while this is moved
                    self._there[name] = one
                    self._condition.notify()
            self._move(name)
        except FileNotFoundError:
            if self._disk.exists(self._directory / name):
                raise  # the archive is what is not there
            if (size := self.end.size(file)) is None:
                raise _Gone(
                    f"somebody took it out of {self._directory}, and it is not at "
                    f"{self.end.url}. Put it back, or there under its name: that is looked "
                    "for every minute. A restart of the gateway gives it up"
                ) from None
            return Uploaded(name, size, self._clock() - begun, again=True)
        return one

    def _place(self, name: str) -> Path:
        """Where it is: in the archive already, if only the sync of its move failed."""
        path, moved = self._directory / name, self._archive / name
        return (
            moved if not self._disk.exists(path) and self._disk.exists(moved) else path
        )

    def _move(self, name: str) -> None:
        if (path := self._place(name)).parent == self._directory:
            to_archive(path, self._archive, self._disk)
        self._disk.sync_directory(self._archive)
        self._disk.sync_directory(self._directory)

    def _done(self, one: Uploaded) -> None:
        with self._condition:
            self._remove(one.name)
            self.uploaded += 1
            self.bytes += one.bytes
            fewer = self._failures.too_many(one.seconds, self._clock())
            refused = [
                why
                for name, why in self._failures.refusals(self._busy)
                if self._aside(name, why, self.stuck)
            ]
            away, self.why, self._failures.in_a_row = self.why, None, 0
            self._condition.notify(self._number)
        if away is not None and not self._quiet:
            self._log.info("{bucket} takes files again", bucket=self.end.url)
        if fewer is not None:
            self._log.warn(
                "{count} uploads to {bucket} have failed together, {why}, and one by "
                "itself went well: {most} at once from now on",
                **fewer,
                bucket=self.end.url,
            )
        for why in refused:
            self._tell_stuck(why)
        try:
            self._on_uploaded(one)
        except Exception:
            self._log.failure("{file} was uploaded", file=one.name)
        self._then()

    def _remove(self, name: str) -> None:
        """A file waits no more, under the lock."""
        node = _parsed(name).node
        self._busy.discard(name)
        self._waiting[node].pop(name)
        if not self._waiting[node]:
            del self._waiting[node]
        for each in (
            self._there,
            self._later,
            self.conflicts,
            self.stuck,
        ):
            each.pop(name, None)
        self._failures.forget(name)

    def _take_out(self, name: str) -> None:
        with self._condition:
            self._remove(name)
            self._condition.notify(self._number)

    def _hold(self, name: str, why: str) -> None:
        with self._condition:
            self._held[_parsed(name).node] = self._clock() + _ASIDE_SECONDS
        self._set_aside(name, f"{name}: {why}", self.stuck)

    def _failed(self, name: str, why: str, begun: float) -> None:
        with self._condition:
            self._busy.discard(name)
            self.failed += 1
            self._failures.failed(name, why, begun, self._clock())
            away = self._failures.in_a_row >= _AWAY_FAILURES
            tell = away and self.why is None
            if away:
                self.why = why
            self._condition.notify(self._number)
        if tell and not self._quiet:
            self._log.error(
                "{bucket} takes no files: {why}.  They wait in {spool}, up to "
                "spool.max_bytes; it is asked again until it does",
                bucket=self.end.url,
                why=why,
                spool=self._directory,
            )

    def _set_aside(self, name: str, why: str, among: dict[str, str]) -> None:
        with self._condition:
            self._busy.discard(name)
            self.failed += 1
            tell = self._aside(name, why, among)
            self._condition.notify(self._number)
        if not tell:
            return
        if among is self.stuck:
            self._tell_stuck(why)
            return
        self._log.error(
            "{why}.  Senders are held back until this is put right", why=why
        )

    def _aside(self, name: str, why: str, among: dict[str, str]) -> bool:
        """Leave a file alone for a while, under the lock; whether this is new."""
        new = name not in among
        self._later[name] = self._clock() + _ASIDE_SECONDS
        among[name] = why  # and then: at no time is nothing wrong with it
        (self.stuck if among is self.conflicts else self.conflicts).pop(name, None)
        return new

    def _tell_stuck(self, why: str) -> None:
        self._log.error("A file of the spool is not uploaded: {why}", why=why)


def _parsed(name: str) -> SpoolFile:
    parsed = parse_file_name(name)
    assert parsed is not None
    return parsed
