"""Copies of a bucket's spool files on this machine, for the job that reads a directory.

    s3://…/events-….parquet ── GET, sync, rename ──► data_dir/inbox/events-….parquet ─► tables
            └── once the ledger has all its events: removed, or moved to _archive/

What is copied and what may go is decided by the ledger, which counts events.  So a
crash between any two steps does one of them again, an object that is uploaded a second
time is only removed, and an inbox that is lost is fetched afresh.  An object stays while
its copy is here: the tasks of a cluster read the bucket, until the batch is done.

The newest object of each node stays where it is: a gateway that lost its disk goes on
behind it.

A gateway that stood still for so long that its name was taken over may put a file there
afterwards, under lsns that are another's by then.  So after files were fetched, and before
the job sees them, it is asked whose the name is: what comes too late is moved to _fenced/
(`gateway.store.word`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import define

from gateway.spark.ledger import Ledger, Ranges, SpoolFile
from gateway.store import digests, incarnation, word
from gateway.store.bucket import ARCHIVE, FENCED, Bucket, NotThere
from gateway.store.disk import Disk
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
        self._fetched: list[SpoolFile] = []
        """Here under hidden names, of one node: the job sees them once that is asked."""
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
        aside = {hole.file for hole in ledger.holes}
        fetched = 0
        self._fetched.clear()
        there = known(ledger)
        waiting: SpoolFile | None = None
        for one in self._bucket.list("events-"):
            file = SpoolFile.parse(one.name)
            if file is None:
                continue
            there.add(file.node, file.first, file.last)
            if self._fetched and (
                self._fetched[0].node != file.node or len(self._fetched) >= _ADMITTED
            ):
                fetched += self._admit()
            # Names sort by node and lsn: one that another of its node follows is not
            # the newest.
            if waiting is not None and waiting.node == file.node:
                take_out(self._bucket, waiting.name, archived=self._archived)
            waiting = None
            if ledger.committed.covers(file):
                waiting = None if one.name in here else file
            elif one.name in here or one.name in aside or self._held >= most:
                continue
            elif upto is None or file.last <= upto.get(file.node, 0):
                if self._stopping.is_set():
                    break
                self._fetch(file)
        else:  # not stopped: all was listed
            self._miss(there)
        return fetched + self._admit()

    def _miss(self, there: Ranges) -> None:
        """Tell what is missing before what is *there*, in a table or a file."""
        now = self._clock()
        before, self._lacking = self._lacking, {}
        for node in there.last():
            missing = lacking(there, node)
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

    def _fetch(self, wanted: SpoolFile) -> None:
        name = wanted.name
        try:
            data = self._bucket.read(name)
        except NotThere:
            return
        if self._stopping.is_set():
            return  # the folder may be another job's by now
        hidden = self._folder / f".{name}"
        self._disk.unlink(hidden)
        file = self._disk.create(hidden)
        try:
            file.write([data])
            file.sync()
        finally:
            file.close()
        self._fetched.append(wanted)
        self._held += len(data)

    def _admit(self) -> int:
        """Let the job see what was fetched, but for what comes too late; how many it sees."""
        if not self._fetched or self._stopping.is_set():
            return 0
        # After they were fetched: whoever takes the name over after this request sees them.
        found = word.read(self._bucket, self._fetched[0].node)
        said = Word() if found is None else found[0]
        seen = 0
        for file in self._fetched:
            hidden = self._folder / f".{file.name}"
            if self._is_late(said, file, hidden):
                self._held -= self._disk.size(hidden)
                self._disk.unlink(hidden)
            else:
                self._disk.rename(hidden, self._folder / file.name)
                seen += 1
        self._fetched.clear()
        return seen

    def _is_late(self, said: Word, file: SpoolFile, path: Path) -> bool:
        """Whether the job must not have it; it is out of the way then, or undecided yet."""
        if said.forgotten is None and not said.fenced:
            return False
        by = ""
        with contextlib.suppress(pa.ArrowException):  # the job will say what is damaged
            metadata = pq.read_metadata(pa.BufferReader(self._disk.read(path))).metadata
            by = digests.said(metadata, incarnation.KEY) or ""
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


def known(ledger: Ledger) -> Ranges:
    """Events that are in the tables, or noted to be in none."""
    found = Ranges(ledger.committed.plain())
    for hole in ledger.holes:
        found.add(hole.node, hole.first, hole.last)
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
