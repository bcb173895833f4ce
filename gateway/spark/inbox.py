"""Copies of a bucket's spool files on this machine, for the job that reads a directory.

    s3://…/events-….parquet ── GET, sync, rename ──► data_dir/inbox/events-….parquet ─► tables
            └── once the ledger has all its events: removed, or moved to _archive/

What is copied and what may go is decided by the ledger, which counts events by their whole
names.  So a crash between any two steps does one of them again, an object that is uploaded
a second time is only removed, and an inbox that is lost is fetched afresh.  An object's name
does not say which incarnation gave its lsns: over lsns that the tables have, it is looked at.
An object stays while its copy is here: the tasks of a cluster read the bucket, until the
batch is done.

A gateway that stood still for so long that its name was taken over may put a file there
afterwards, under lsns that are another's by then.  So after files were fetched, and before
the job sees them, it is asked whose the name is: what comes too late is moved to _fenced/
(`gateway.store.word`).  What is said there of incarnations that have ended is told, too.

The newest object of each node stays where it is: a gateway that lost its disk goes on
behind it.  Only what the job may have counts as newer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from attrs import define

from gateway.spark import footers
from gateway.spark.ledger import Ledger, Life, Ranges, SpoolFile
from gateway.store import word
from gateway.store.bucket import ARCHIVE, FENCED, Bucket, NotThere, StoredObject
from gateway.store.disk import Disk
from gateway.store.lake import End
from gateway.store.word import UNDECIDED, Word

__all__ = ["Inbox", "known", "lacking", "take_out"]

_log = logging.getLogger("gateway.spark")

_LOOK_SECONDS = 1.0
_ADMITTED = 100
"""Files that are fetched before it is asked whose their node's name is."""
_UNDECIDED_SECONDS = 600.0
"""Who has taken a name over and does not say for so long from where it goes on has ended."""
_LACKING_SECONDS = 600.0
"""Later files may be there for so long before earlier ones are missed: uploads go in
parallel, and one that fails is tried again."""
_STOP_SECONDS = 5.0
"""Whoever stops the job does not wait for a download; it is begun again."""


@define(eq=False, slots=False)
class Inbox:
    """Of one bucket and the directory *folder*; its own thread uses both.

    *ledger* says what is in the tables, and what could not be read.  Objects whose events
    are there move to the bucket's archive if *archived*, or are removed.  No more is
    fetched while the directory has *most_bytes*.
    """

    _bucket: Bucket
    _folder: Path
    _disk: Disk
    _ledger: Callable[[], Ledger]
    _archived: bool
    _most_bytes: int
    _clock: Callable[[], float] = time.monotonic

    def __attrs_post_init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inbox", daemon=True)
        self._away = False
        self._fetched: list[_Object] = []
        """Here under hidden names, of one node: the job sees them once that is asked."""
        self._taken: dict[str, _Object] = {}
        """Objects of which the job has, or had, the copy, by name, or which were found to
        be in the tables."""
        self._odd: set[str] = set()
        """Objects that are not what the listing says, and were told."""
        self.ends: dict[Life, End | None] = {}
        """How incarnations have ended, say the gateways that came after them; None: they
        have not, their disk is back.
        """
        self._undecided: dict[str, float] = {}
        """Since when files of an incarnation wait for a word of who has taken over."""
        self._held = 0
        """Bytes that the directory has, in a look."""
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
            if (file := SpoolFile.parse(one.name)) is not None:
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
        lsns.  Raises `BucketError`, OSError.
        """
        most = self._most_bytes if most_bytes is None else most_bytes
        here = {
            name
            for name in self._disk.names(self._folder)
            if SpoolFile.parse(name) is not None
        }
        self._held = sum(self._size(name) for name in here)
        # After the directory: what the job took out in between is in the tables.
        ledger = self._ledger()
        in_tables = ledger.committed.nameless()
        aside = {hole.file for hole in ledger.holes}
        there = known(ledger)
        before, self._taken = self._taken, {}
        self._fetched.clear()
        fetched = 0
        for node, found in groupby(self._objects(), key=lambda one: one.file.node):
            done: set[str] = set()
            valid: set[str] = set()
            for one in found:
                name = one.file.name
                there.add(Life(node), one.file.first, one.file.last)
                if one.is_same(before.get(name)):
                    self._taken[name] = before[name]
                    if name not in here | aside and in_tables.covers(one.file):
                        done.add(name)
                        continue
                if name in here:
                    valid.add(name)
                    continue
                if name in aside:
                    continue
                if self._stopping.is_set():
                    return fetched
                if in_tables.covers(one.file):
                    if self._is_in(ledger, one):
                        done.add(name)
                elif self._held < most and one.is_in(upto):
                    self._fetch(one)
                if len(self._fetched) >= _ADMITTED:
                    valid |= self._admit()
            valid |= self._admit()
            fetched += len(valid - here)
            newest = max(done | valid, default="")
            for name in sorted(done - {newest}):
                take_out(self._bucket, name, archived=self._archived)
                del self._taken[name]
        self._miss(there, ledger)
        return fetched

    def _objects(self) -> Iterator[_Object]:
        """All files that are in the bucket now; those of a node in order of lsn."""
        for one in self._bucket.list("events-"):
            if (file := SpoolFile.parse(one.name)) is not None:
                yield _Object(file, one)

    def _is_in(self, ledger: Ledger, one: _Object) -> bool:
        """Whether the tables have all of it; if not, it is fetched now."""
        self._fetch(one)
        if not (self._fetched and self._fetched[-1] is one):
            return False  # it is gone
        hidden = self._folder / f".{one.file.name}"
        by = footers.incarnation_of(hidden)
        if not ledger.committed.covers(replace(one.file, incarnation=by)):
            return False
        self._drop(self._fetched.pop())
        self._taken[one.file.name] = one
        return True

    def _miss(self, there: Ranges, ledger: Ledger) -> None:
        """Tell what is missing before what is *there*, in a table or a file."""
        now = self._clock()
        before, self._lacking = self._lacking, {}
        told = {(life.node, end.acknowledged) for life, end in ledger.ends.items()}
        for node in there.last():
            missing = Ranges()
            for life, first, last in lacking(there, node):
                if (node, last) not in told:  # when its incarnation ended
                    missing.add(life, first, last)
            if not missing:
                continue
            _, first, last = next(iter(missing))
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
                *(len(missing), node, first, last, now - since, self._bucket.url),
            )
        self._missed &= self._lacking.keys()

    def _size(self, name: str) -> int:
        try:
            return self._disk.size(self._folder / name)
        except FileNotFoundError:  # the job has it
            return 0

    def _fetch(self, one: _Object) -> None:
        name = one.file.name
        try:
            data = self._bucket.read(name)
        except NotThere:
            return
        if self._stopping.is_set():
            return  # the folder may be another job's by now
        if len(data) != one.stored.bytes:
            if name not in self._odd:
                self._odd.add(name)
                _log.error(
                    "%s/%s has %d bytes, says its listing, and %d came: it is asked for"
                    " again until they are the same",
                    *(self._bucket.url, name, one.stored.bytes, len(data)),
                )
            return
        self._odd.discard(name)
        hidden = self._folder / f".{name}"
        self._disk.unlink(hidden)
        file = self._disk.create(hidden)
        try:
            file.write([data])
            file.sync()
        finally:
            file.close()
        self._fetched.append(one)
        self._held += len(data)

    def _drop(self, one: _Object) -> None:
        """The job does not get what was fetched."""
        hidden = self._folder / f".{one.file.name}"
        self._held -= self._disk.size(hidden)
        self._disk.unlink(hidden)

    def _admit(self) -> set[str]:
        """Let the job see what was fetched, but for what comes too late; what it sees."""
        if not self._fetched or self._stopping.is_set():
            return set()
        # After they were fetched: whoever takes the name over after this request sees them.
        node = self._fetched[0].file.node
        found = word.read(self._bucket, node)
        said = Word() if found is None else found[0]
        if (now := said.reached) is not None:
            for by in (now.incarnation, *now.earlier):
                self.ends[Life(node, by)] = None
        for by, end in said.ended.items():
            self.ends[Life(node, by)] = end
        seen = set()
        for one in self._fetched:
            name = one.file.name
            hidden = self._folder / f".{name}"
            if self._is_late(said, one.file, hidden):
                self._drop(one)
            else:
                self._disk.rename(hidden, self._folder / name)
                self._taken[name] = one
                seen.add(name)
        self._fetched.clear()
        return seen

    def _is_late(self, said: Word, file: SpoolFile, path: Path) -> bool:
        """Whether the job must not have it; it is out of the way then, or undecided yet."""
        if said.forgotten is None and not said.fenced:
            return False
        by = footers.incarnation_of(path)
        last = said.last_lsn_of(by)
        if last is None or (last != UNDECIDED and file.last <= last):
            return False
        if last == UNDECIDED:
            since = self._undecided.setdefault(by, self._clock())
            return self._clock() - since < _UNDECIDED_SECONDS
        self._bucket.copy(file.name, f"{FENCED}/{file.name}")
        self._bucket.remove(file.name)
        _log.error(
            "%s was put into %s by incarnation %s of node %s after another gateway had"
            " taken that name over, behind lsn %d, or after the node was forgotten: it is in"
            " no table, and now in %s/ there. With `ack: spool` it was not acknowledged",
            *(file.name, self._bucket.url, by or "unknown", file.node, last, FENCED),
        )
        return True

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            self.tend()

    def tend(self, *, most_bytes: int | None = None) -> None:
        """`look`; what fails is told in the log, once until it works."""
        try:
            self.look(most_bytes=most_bytes)
        except Exception as why:  # the job has what was fetched; it goes on
            if not self._away:
                _log.error("%s can not be read now: %s", self._bucket.url, why)
            self._away = True
        else:
            if self._away:
                _log.info("%s can be read again", self._bucket.url)
            self._away = False


@define(frozen=True, eq=False)
class _Object:
    """A spool file in the bucket."""

    file: SpoolFile
    stored: StoredObject

    def is_in(self, upto: Mapping[str, int] | None) -> bool:
        """Whether it is of what is to be read."""
        return upto is None or self.file.last <= upto.get(self.file.node, 0)

    def is_same(self, other: _Object | None) -> bool:
        """Whether *other*, of this name, is what is there now: a node that was rebuilt may
        give a name again that was removed.
        """
        return other is not None and other.stored == self.stored


def known(ledger: Ledger) -> Ranges:
    """Lsns that are in the tables, or noted or accepted to be in none, whoever gave them."""
    found = ledger.committed.nameless()
    for hole in ledger.holes:
        found.add(Life(hole.node), hole.first, hole.last)
    for one in ledger.accepted:
        if one.last is not None:
            found.add(Life(one.node), one.first, one.last)
    return found


def lacking(there: Ranges, node: str) -> Ranges:
    """Events of a node that are not *there*, while later ones are."""
    last = there.last().get(node, 0)
    return Ranges({node: [(1, last)]}).minus(there) if last else Ranges()


def take_out(bucket: Bucket, name: str, *, archived: bool) -> None:
    """Remove a file that is in the tables, or move it to the bucket's archive."""
    if archived:
        try:
            bucket.copy(name, f"{ARCHIVE}/{name}")
        except NotThere:
            return
    bucket.remove(name)
