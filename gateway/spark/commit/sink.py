"""The sink, which puts micro-batches into tables, as the job sees it.

    parquet    folders of Parquet files that any reader opens; the default
    commits    a commit of the table has a batch and the ledger
    handover   a function of the user's own

`gateway.sink` makes one of them.

The job calls `recover` before each start of the query, and the sink itself for each batch.  It
calls `note` for events that can not be read, and `learn` for those that never come.  Each sink
knows by its ledger, which counts events and not batches, what is in its tables already.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import define
from attrs import field as attribute

from gateway.spark.commit.closing import Closing
from gateway.spark.commit.lakedisk import LakeDisk
from gateway.spark.commit.ledger import Broken, Hole, Ledger, Ranges
from gateway.spark.commit.marks import Marks, Root, Said
from gateway.spark.commit.taken import Taken
from gateway.spark.files import footers
from gateway.spark.files.footers import Footers
from gateway.spark.files.overlaps import Overlap, Prints, overlapping
from gateway.spark.run.checkpoint import Checkpoint
from gateway.store import digests
from gateway.store.lsns import Lsns, spelled
from gateway.store.names import Life, SpoolFile
from gateway.store.node.incarnation import Record
from gateway.store.readers import complete
from gateway.store.readers.complete import Completeness
from gateway.store.readers.lake import INTERNAL, Accepted, End
from gateway.tables import EVENTS

if TYPE_CHECKING:
    from gateway.config.tables import TableByRule
    from gateway.spark.later.days import Rewritten

#: Parquet can have no larger one.
_MOST_ROW_BYTES = 1 << 31

_log = logging.getLogger("gateway.spark")


@dataclass(frozen=True)
class Committed:
    """A batch that is in the tables now."""

    batch: int
    rows: int
    """Rows in its tables, all together."""
    files: int
    """Files that it took from the spool."""
    misfits: int = 0
    """Rows with a value that did not fit its column."""


@dataclass(frozen=True)
class Parts:
    """The parts that a job has for its sink."""

    config: Any
    spark: Any
    checkpoint: Checkpoint
    disk: LakeDisk
    done: Callable[[Committed], None]
    """Called for each batch that is in the tables."""
    find_resent: Callable[[list[Path]], Ranges] | None = None
    """Finds the events of files that were there before; None: not asked for."""


@dataclass(frozen=True)
class Plan:
    """How a batch is to be written."""

    files: Sequence[SpoolFile] = ()
    """Files that it takes from the spool."""
    without: Ranges = field(default_factory=Ranges)
    """Events that are in the tables already."""
    resent: Ranges = field(default_factory=Ranges)
    """Events that their sender sent twice."""
    row_bytes: int = 0
    """Bytes that one row may have in memory."""
    known: Sequence[SpoolFile] = ()
    """Files of nodes that a plan of its rows should know as well."""
    rules: Mapping[str, TableByRule] | None = None
    """The rules that divide its rows; None: those of the configuration."""


@define(eq=False, slots=False)
class Sink(ABC):
    """Takes the batches of the query: what `foreachBatch` calls.

    Its attributes are many, as all that is known of the last batch is asked of it: the files,
    why they failed, and how they were compared.
    After any exception the query must end, and `recover` comes before the next start.
    *done* is told of each batch that is in the tables; *point* is called at each step, by
    name.
    """

    name: ClassVar = EVENTS
    repeats: ClassVar = False
    """Whether a batch that has begun comes again as it was, and in no parts."""

    retype: ClassVar = (
        "make it anew in all rows (gateway spark backfill, with the job stopped)"
    )
    """How a column gets another type."""

    _lake: Path
    _spool: Path
    _checkpoint: Checkpoint
    _disk: LakeDisk
    _done: Callable[[Committed], None] = attribute(
        default=lambda committed: None, kw_only=True
    )
    _point: Callable[[str], None] = attribute(default=lambda name: None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        self._path = self._lake / INTERNAL / f"{self.name}.json"
        self.ledger = Ledger()
        self.failure: Exception | None = None
        """Why the last batch failed, as we know it (Spark wraps it in Java)."""
        self.busy = False
        """Whether a batch is on its way into the tables right now."""
        self.batch_files: list[SpoolFile] = []
        """Files that the last batch took, failed or not."""
        self.careful = False
        """Whether batches are of one file, and take as little of the heap as they can."""
        self.anew: dict[Life, list[Life]] = {}
        """Incarnations that gave lsns which others of their node had given before, and
        these others, since the job began."""
        self._alone = threading.Lock()
        """The lock of those that change the ledger while the query runs."""
        self.seconds = 0.0
        """How long the last batch took."""
        self.deleted: Callable[[], Ranges] = Ranges
        """Events that were taken out of the tables on purpose."""
        self.closing = Closing(self._lake, self._disk)
        """Where incarnations go that have ended."""
        self.taken = Taken(self._lake)
        self._digests: Mapping[str, str] = {}
        """Digests of the files of the last batch, by name."""
        self._records: Mapping[Life, Record] = {}
        """Facts that these files say of their incarnations."""
        self._arrived: Mapping[str, Collection[float]] = {}
        """The days on which events of these files came."""
        self.through: Completeness | None = None
        """The moment through which the tables are complete, once the job has looked."""
        self.others: Sequence[Said] = ()
        """The last words of other jobs of its tables."""
        self._marks = Marks()
        self._marked: Any = None
        """The last commit, and what all jobs had said, when marks were settled."""
        self._unmarked = ""
        """Why marks could not be written, as it was told."""
        self._compared: dict[str, tuple[str | None, Mapping[Life, Lsns]]] = {}
        """Files of which what the tables have, too, was looked at: the digest of the events, and
        which lsns that was, by the incarnation that has them there."""
        self.types: Mapping[str, str] = {}
        """Columns that the next batch has; see `Ledger.types`."""

    @abstractmethod
    def recover(self) -> None:
        """Finish what a crash has left, and get ready for the query's start.

        After this the tables are whole and `ledger` is theirs.  Raises `Broken`,
        OSError, and what Spark raises.
        """

    @staticmethod
    def takes(kind: str, there: str) -> bool:
        """Whether values of type *kind* may go into a column that is *there*."""
        return kind == there

    def _write_down(self, ledger: Ledger) -> None:
        """Make *ledger*, which has no other events, durable in place of the one there is."""
        ledger = self.closing.close(ledger)
        ledger.save(self._disk, self._path)
        self.ledger = ledger

    def _know(self, rules: Mapping[str, TableByRule]) -> None:
        """Write down, durably, the tables by rule that there are now."""
        known = self.ledger.with_tables(rules)
        if known != self.ledger:
            self._write_down(known)

    def note(self, hole: Hole) -> None:
        """Write down, durably, that the events of a file will be in no table."""
        self._write_down(self.ledger.with_hole(hole))

    def learn(
        self, accepted: Iterable[Accepted], ends: Mapping[Life, End | None]
    ) -> bool:
        """Write down, durably, which holes are accepted and how incarnations have ended.

        False: a batch is on its way into the tables; ask again.
        """
        if not self._alone.acquire(blocking=False):
            return False
        try:
            known = self.ledger.with_accepted(accepted).with_ends(ends)
            if known != self.ledger:
                self._write_down(known)
        finally:
            self._alone.release()
        return True

    def after(
        self,
        query: str | None,
        batch: int,
        took: Ranges,
        records: Mapping[Life, Record],
    ) -> Ledger:
        """The ledger once a batch is in the tables (`Ledger.after`), with the moment through
        which they are complete as it is known now.
        """
        after = self.ledger.after(query, batch, took, records)
        return replace(after, complete=after.complete.now(self.through))

    def arrived(self, files: Iterable[SpoolFile], without: Ranges) -> set[float]:
        """The days on which events of these files came, or more, as footers say (`Footers`)."""
        new = Ranges.of(files).minus(without)
        days = (self._arrived.get(file.name, ()) for file in files if new.touches(file))
        return set[float]().union(*days)

    def say_complete(self) -> Sequence[int]:
        """Write down, durably, which days are complete that were not said to be, and mark them.
        The first of all is not among those given, where the tables have nothing of it.

        None where a batch is on its way into the tables, or rows leave quarantine; ask again.
        """
        from gateway.spark.commit import partition

        if not self._alone.acquire(blocking=False):
            return ()
        try:
            with partition.requeued(self._lake, self._disk) as again:
                back = self.ledger.complete.late(again)
                if back:
                    self._tell_late("rows of quarantine were put through again", back)
                    self._marks.remove(self.roots(), back)
                known = self.ledger.complete.now(self.through).without(back)
                first = not known.since
                if (days := known.due()) or back:
                    ledger = replace(self.ledger, complete=known.saying(days))
                    self._write_down(ledger)
                    self._point("said complete")
            with partition.not_requeued(self._lake) as going:
                self._mark(going)
        except partition.Busy:
            return ()
        finally:
            self._alone.release()
        return () if days and first and not self._has_rows(days) else days

    def _has_rows(self, days: Collection[int]) -> bool:
        """Whether the tables have rows of one of these *days*."""
        return any(any(root.rows(days).values()) for root in self.roots())

    def _mark(self, going: Collection[int]) -> None:
        """Have marks at the tables' roots, but of days of which rows are *going* to other tables;
        where that fails it is told once, and tried again.
        """
        said = self.said()
        self.others = said[1:]
        state = self.ledger.sequence, [one.complete for one in said], going
        if state == self._marked:
            return
        roots = [*self.roots()]
        try:
            if self._marks.lack(roots, said):
                # Another job may take a day back at this moment.
                self._marks.settle(roots, self.said(anew=True), going)
                said = self.said(anew=True)
            self._marks.settle(roots, said, going)
            self._marked = state
        except OSError as why:
            if str(why) != self._unmarked:
                _log.warning("marks of complete days can not be written: %s", why)
            self._unmarked = str(why)

    def roots(self) -> Iterable[Root]:
        """The roots of its tables, where marks may lie."""
        return ()

    def said(self, *, anew: bool = False) -> Sequence[Said]:
        """The words of this job and others on its tables; the others are asked now and then, or
        *anew*.
        """
        del anew
        return [Said.by(self.ledger)]

    def take_back(self, arrived: Collection[float]) -> None:
        """Take back, durably, what was said of the days on which events *arrived* that are about
        to get into the tables: they come late.

        Marks of days that were taken back before go, too: a first try may have ended behind that,
        or another job have written one since.
        """
        known, nobody_knows = self.ledger.complete, math.inf in arrived
        before = [day for day in known.held_back if nobody_knows or day in arrived]
        if not ((days := known.late(arrived)) or before):
            return
        roots = [*self.roots()]
        self._marks.remove(roots, [*before, *days])
        if days:
            self._tell_late("events have come late", days)
            self._write_down(replace(self.ledger, complete=known.without(days)))
            # Another job may have written one again before it could see that.
            self._marks.remove(roots, days)
        self._point("taken back")

    def _tell_late(self, what: str, days: Sequence[int]) -> None:
        _log.warning(
            "%s, of %s: what was said to be complete is taken back, and is said again once"
            " nothing else is to come (gateway table complete)",
            *(what, ", ".join(map(complete.spelled, days))),
        )

    @contextlib.contextmanager
    def between_batches(self) -> Iterator[None]:
        """Wait until none is on its way into the tables; meanwhile none begins."""
        with self._alone:
            yield

    def looked_at(self, files: Sequence[SpoolFile]) -> Footers:
        """The footers of a batch's *files*.

        Raises `Broken`, and what pyarrow raises for a file that is damaged.
        """
        self.batch_files = list(files)
        found = footers.read(self._spool, files)
        self._digests, self._records = found.digests, found.records
        self._arrived = found.arrived
        self._tell_anew(files)
        return found._replace(
            row_bytes=_MOST_ROW_BYTES if self.careful else found.row_bytes
        )

    def is_repeated(self, batch: int) -> bool:
        """Whether the tables have this batch, and Spark does not know it."""
        query = self._checkpoint.query
        return query == self.ledger.query and batch <= self.ledger.batch

    def check_apart(self, files: Sequence[SpoolFile]) -> None:
        """Raise `Overlap` where files of a batch have events that others have, too, and which
        were not compared.
        """
        found = overlapping(files, self.ledger, self._records)
        if any(not self._is_compared(file, there) for file, there in found.items()):
            raise Overlap(found)

    def known(self, wanted: Mapping[Life, Lsns]) -> Iterable[tuple[Life, Prints]]:
        """Prints of these events, as far as the tables have them.  Raises what Spark raises."""
        del wanted
        return ()

    def note_compared(self, file: SpoolFile) -> None:
        """Note that the events which a file and the tables have in common are the same."""
        self._compared[file.name] = self._which(file), self._overlap(file)

    def is_compared(self, file: SpoolFile) -> bool:
        """Whether that is known of the file that is there now, and of all that it has."""
        return self._is_compared(file, self._overlap(file))

    def _overlap(self, file: SpoolFile) -> Mapping[Life, Lsns]:
        said = footers.read(self._spool, [file]).records
        return overlapping([file], self.ledger, said).get(file, {})

    def _is_compared(self, file: SpoolFile, there: Mapping[Life, Lsns]) -> bool:
        if (which := self._which(file)) is None:
            return False
        if self.ledger.committed.covers(file) and self.taken.has(file.name, which):
            return True
        compared, known = self._compared.get(file.name, (None, {}))
        return compared == which and not any(
            lsns - known.get(life, Lsns()) for life, lsns in there.items()
        )

    def _which(self, file: SpoolFile) -> str | None:
        """The digest of the events of the file that has that name now; None if there is none.

        Not its inode and its time: the next file may get both of one that is gone.
        """
        path = self._spool / file.name
        with contextlib.suppress(FileNotFoundError):
            said = digests.said(digests.metadata_of(path), digests.EVENTS_KEY)
            return said or digests.of_octets(path)
        return None

    def drop_holes(self, name: str) -> None:
        """A file of that name, which was moved aside, is settled."""
        holes = tuple(hole for hole in self.ledger.holes if hole.file != name)
        if holes != self.ledger.holes:
            self._write_down(replace(self.ledger, holes=holes))

    def left_out(self, took: Ranges) -> Ranges:
        """Events of *took* that a batch leaves out: the tables have them, or shall not have them."""
        without = took.common(self.ledger.committed)
        without.update(took.common(self.deleted()))
        return without

    def has_all(self, file: SpoolFile) -> bool:
        """Whether all events of a file in the spool are in the tables."""
        return self.ledger.committed.covers(file)

    def _tell_anew(self, files: Iterable[SpoolFile]) -> None:
        """Tell of incarnations that gave lsns which another one of their node gave."""
        for file in files:
            if file.life in self.anew or self.ledger.committed.has(file.life):
                continue
            if not (others := self.ledger.committed.others(file)):
                continue
            self.anew[file.life] = others
            _log.error(
                "node %s began anew: %s has %s by incarnation %s, and incarnation"
                " %s gave such lsns before it. They are other events, and go into the tables"
                " under their own incarnation. The machine of the node was rebuilt, or two"
                " gateways have its name; what the one before had acknowledged, and is in"
                " no table, gateway audit says",
                *(file.node, file.name, spelled(file.first, file.last)),
                *(file.incarnation, _spelled(others)),
            )

    def expire(
        self, before: Mapping[str, date], stop: Callable[[], bool]
    ) -> Iterator[Rewritten]:
        """Remove the days before those of *before*, by table; on any thread.

        *stop* is asked now and then.  Raises as `expiry.expire`, and what Spark raises.
        """
        raise NotImplementedError

    @abstractmethod
    def _take(self, rows: Any, batch: int) -> Committed | None:
        """Put a batch into the tables; None: Spark repeats it, and it is there already."""

    def __call__(self, rows: Any, batch: int) -> None:
        """Take a batch; why that failed is in `failure`, too."""
        self.busy = True
        try:
            with self._alone:
                begun = time.monotonic()
                committed = self._take(rows, batch)
                self.taken.note(self._digests)
                if committed is not None:
                    self.seconds = time.monotonic() - begun
                    self._done(committed)
        except Exception as why:
            self.failure = why
            raise
        finally:
            self.busy = False


def shortfall(batch: int, expected: int, count: int) -> Broken:
    """Spark skips a file that is gone, and says nothing."""
    return Broken(
        f"batch {batch} of {Sink.name}: the names of its spool files promise"
        f" {expected} events, Spark made {count} rows of them. Is a file"
        " missing from the spool?"
    )


def check_behind(tables: object, checkpoint: Checkpoint, ledger: Ledger) -> None:
    """Raise `Broken` unless *ledger* has every event that Spark takes for committed.

    Whose they are its log does not say, and most of the files are gone.
    """
    batch = checkpoint.committed
    if batch < 0:
        return
    noted = {hole.file for hole in ledger.holes}
    in_tables = ledger.committed
    lacking = [
        file.name
        for file in checkpoint.files(-1, checkpoint.offset(batch))
        if file.name not in noted and not in_tables.covers(file)
    ]
    if lacking:
        raise Broken(
            f"{tables} is older than {checkpoint.path}: it lacks {len(lacking)} files"
            f" that Spark has committed, {lacking[0]} first. If the tables were deleted"
            " or restored, remove the checkpoint too and put what is missing from"
            " archive back into spool"
        )


def _spelled(lives: Iterable[Life]) -> str:
    return " and ".join(life.incarnation or "unknown" for life in lives)
