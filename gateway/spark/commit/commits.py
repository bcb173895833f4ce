"""Batches as commits of a table format: rows and ledger in one step, or neither.

A commit of Delta or Iceberg has words of its own beside its rows.  Ours are the whole
ledger: which events are in the table, up to and with this commit.  So there is no second
phase, for who sees the rows sees the ledger.  A batch that Spark repeats finds itself in
it, and no checkpoint is needed to know what is there.

Each commit also has a number, the ledger's `sequence`, which the format admits once
(`Table.append`).  Of two jobs that begin at the same ledger one commits; the other is
refused, and stops.

One table has all events: flawed ones are the rows with a `flaw`.  `stats` is a table of
its own with a ledger of its own.  It is made of the events after their commit, out of few
columns of the files that the commit has made: those of the spool are read once.
What a crash has left out is counted at the next start, in the table itself.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import define, field
from pydantic import TypeAdapter

from gateway.config.tables import TableByRule, TableName
from gateway.spark.commit.closing import Closing
from gateway.spark.commit.divided import Begun, Divided
from gateway.spark.commit.ledger import Broken, Ledger, Ranges
from gateway.spark.commit.marks import Root, Said
from gateway.spark.commit.shared import WIDEN, Lost, Table, promoted
from gateway.spark.commit.sink import Committed, Plan, Sink, check_behind, shortfall
from gateway.spark.files.overlaps import Prints, number_of
from gateway.spark.later.deleted_ranges import DeletedRanges
from gateway.spark.rows import tables
from gateway.store.lsns import Lsns
from gateway.store.names import Life, SpoolFile, parse_file_name
from gateway.store.readers import deleted
from gateway.tables import EVENTS, QUARANTINE, STATS

if TYPE_CHECKING:
    from gateway.spark.files.footers import Footers
    from gateway.spark.later.days import Rewritten


RULES = TypeAdapter(dict[TableName, TableByRule])
"""Rules as the words of a commit have them."""

_log = logging.getLogger("gateway.spark")

_OTHERS_SECONDS = 60.0
"""Seconds from one look at what other jobs of a table say to the next."""
_FEW_DAYS = 10
"""Days of a batch, in each table, that may be written at once: on each, five protocols have an
open file."""


def taken(name: str, ledger: Ledger) -> Broken:
    """The error that another job has committed under the number of *ledger*."""
    return Broken(
        f"{name}: another job has made commit {ledger.sequence} of this table, so ours is"
        " not made and nothing is doubled. Stop one of the two jobs, or give it a prefix"
        " (spool.directory) and a name (spark.job) of its own"
    )


def opened(
    table: Table,
    closing: Closing,
    kept: Ledger | None = None,
    gone: Ranges | None = None,
) -> Ledger:
    """The ledger of *table*, with what *closing* has of it; made of its rows where it is lost,
    and of what has *gone* from it on purpose.

    What rows do not say, *kept* does, an earlier copy: what was moved aside or accepted,
    and how incarnations have ended.
    """
    try:
        ledger = closing.whole(table.open())
    except Lost as why:
        kept = kept or Ledger()
        committed = tables.ranges(table.rows())
        committed.update(gone or Ranges())
        ledger = replace(
            Ledger(committed=committed, sequence=why.sequence),
            holes=tuple(hole for hole in kept.holes if not hole.is_in(committed)),
            accepted=kept.accepted,
            ends=kept.ends,
            tables=kept.tables,
            retention=kept.retention,
            complete=kept.complete,
        )
    if not ledger.sequence and not table.others():  # there is no table yet
        return ledger
    types = {field.name: field.dataType.simpleString() for field in table.rows().schema}
    return replace(ledger, types=types)


@define(eq=False, slots=False)
class CommitSink(Sink):
    """Commits each batch to *events*, and then its counts to *stats*.

    *read* makes the rows of spool files, without some events; *count* those of `stats`
    of such rows.  *rules* say which table by rule has a row, where *events* has some.
    """

    retype: ClassVar = WIDEN
    takes = staticmethod(promoted)

    _events: Table
    _stats: Table
    _read: Callable[[Plan], Any]
    _count: Callable[[Any], Any]
    _settle: Callable[[Mapping[str, str]], None] = lambda state: None
    _most_partitions: int = 1000
    _rules: Mapping[str, TableByRule] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._counted = Ledger()
        self._uncounted = True
        """Whether events may be there that are not counted yet."""
        self._asked_others = -math.inf
        """When it was looked last what other jobs say."""
        self.deleted = DeletedRanges(self._lake)

    def recover(self) -> None:
        self._disk.make_directory(self._path.parent)
        self.ledger = opened(self._events, self.closing, self._kept(), self.deleted())
        if isinstance(self._events, Divided):
            self._events.point = self._point
            self.ledger, begun = self._events.begun(self.ledger)
            if begun is not None:
                self._finish(begun)
            self._know(self._rules)
        self._counted = self._open_stats()
        counted = self._counted.committed
        if counted.minus(self.ledger.committed):
            raise Broken(
                f"{self._stats.name} counts events that {self._events.name} does not"
                " have: where that was dropped or set back, drop this table, too, and"
                " the next start counts all events anew"
            )
        gap = self.ledger.committed.minus(counted)
        if gap:
            self._add_counts(tables.within(self._events.rows(), gap), gap)
        self._uncounted = False
        self._tell()
        self.failure = None
        check_behind(self._events.name, self._checkpoint, self.ledger)

    def _finish(self, begun: Begun) -> None:
        """Finish a batch that some table has, by its own rules; or else have the rest of it come
        again.
        """
        assert isinstance(self._events, Divided)
        names = [parse_file_name(name) for name in begun.files]
        files = [file for file in names if file is not None]
        if all(self._disk.exists(self._spool / file.name) for file in files):
            rules = RULES.validate_python(begun.rules)
            query, batch = begun.ledger.query, begun.ledger.batch
            self._commit_batch(files, self.looked_at(files), query, batch, rules)
        else:
            self.ledger = self._events.leave(self.ledger, begun)

    def _kept(self) -> Ledger | None:
        """The copy here, if it is one."""
        try:
            return Ledger.load(self._disk, self._path)
        except Broken:
            return None

    def _open_stats(self) -> Ledger:
        """The ledger of `stats`, whose rows say how many events they count, and not which."""
        try:
            return self.closing.whole(self._stats.open())
        except Lost as why:
            both = self._in_both()
            counts = self._stats.rows().where(both).groupBy().sum("events").collect()
            total, there = counts[0][0] or 0, self._events.rows().where(both).count()
            if total != there:
                raise Broken(
                    f"{self._stats.name}: its ledger is gone, and it counts {total} events of"
                    f" {there}, on days that both tables have: drop this table, and the next"
                    " start counts all events that are there anew"
                ) from None
            return Ledger(committed=self.ledger.committed, sequence=why.sequence)

    def _in_both(self) -> str:
        """A condition that is true on days that have expired from neither table."""
        expired = deleted.load(self._disk, self._lake, deleted.EXPIRED)
        days = Lsns.joined(map(Lsns, expired.days.values() if expired else ()))
        gone = (
            f"date BETWEEN DATE'{date.fromordinal(first)}' AND DATE'{date.fromordinal(last)}'"
            for first, last in days
        )
        return f"NOT ({' OR '.join(gone) or 'false'})"

    def expire(
        self, before: Mapping[str, date], stop: Callable[[], bool]
    ) -> Iterator[Rewritten]:
        firsts = {
            day: [t for t in before if before[t] == day] for day in before.values()
        }
        for first, names in sorted(firsts.items()):
            if not stop():
                with self._alone:
                    done = self._expire(first, names)
                yield from done

    def _expire(self, first: date, names: Collection[str]) -> list[Rewritten]:
        from gateway.spark.later.days import Rewritten
        from gateway.spark.later.expiry import written_down

        too_old = f"date < DATE'{first.isoformat()}'"
        done = []
        events, by_rule = self._events, {}
        if isinstance(events, Divided):
            by_rule = {name: one for name, one in events.each() if name in names}
            events = by_rule.pop(EVENTS, events.main)
        for name, table in by_rule.items():
            done += self._expire_all(name, table, too_old)
        mine = [name for name in names if name in (EVENTS, QUARANTINE)]
        if mine and self.ledger.committed:
            kinds = {
                EVENTS: " AND flaw IS NULL",
                QUARANTINE: " AND flaw IS NOT NULL",
            }
            gone = too_old + (kinds[mine[0]] if len(mine) == 1 else "")
            rows = events.rows().where(gone)
            days = [row["date"] for row in rows.select("date").distinct().collect()]
            if days:
                gone_by_name = tables.ranges(rows)
                written = dict.fromkeys(mine, days)
                written_down(self._lake, self._disk, written, gone_by_name)
                self._point("written down")
                events.delete(gone)
                self._point("expired")
                self._tell()
                said = f"{len(gone_by_name)} events"
                done.append(
                    Rewritten(f"{events.name}: {gone}", len(gone_by_name), said=said)
                )
        if STATS in names and self._counted.committed:
            rows = self._stats.rows().where(too_old)
            days = [row["date"] for row in rows.select("date").distinct().collect()]
            if days:
                written_down(self._lake, self._disk, {STATS: days}, Ranges())
                self._stats.delete(too_old)
                done.append(
                    Rewritten(f"{self._stats.name}: {too_old}", 0, said="counts")
                )
        return done

    def _expire_all(self, name: str, table: Table, too_old: str) -> list[Rewritten]:
        """Expire days of a table by rule."""
        from gateway.spark.later.days import Rewritten
        from gateway.spark.later.expiry import written_down

        rows = table.rows().where(too_old)
        days = [row["date"] for row in rows.select("date").distinct().collect()]
        if not days:
            return []
        gone = tables.ranges(rows)
        written_down(self._lake, self._disk, {name: days}, gone)
        self._point("written down")
        table.delete(too_old)
        self._point("expired")
        self._tell()
        said = f"{len(gone)} events"
        return [Rewritten(f"{table.name}: {too_old}", len(gone), said=said)]

    def _write_down(self, ledger: Ledger) -> None:
        numbered = replace(ledger, sequence=ledger.sequence + 1)
        self._commit(self._read(Plan()), numbered, 0)

    def say_complete(self) -> Sequence[int]:
        """Say it as `Sink` does, once each event is counted, too."""
        return () if self._uncounted else super().say_complete()

    def roots(self) -> Iterator[Root]:
        for table in (self._events, self._stats):
            yield from table.roots(self._disk)

    def said(self, *, anew: bool = False) -> list[Said]:
        """Say as `Sink` does; a job that commits nothing hears of the others by this alone."""
        due = time.monotonic() - self._asked_others >= _OTHERS_SECONDS
        if due or anew:
            if self._events.others():
                self._settle(self._events.state())
            self._asked_others = time.monotonic()
        return [*super().said(), *self._events.said_by_others()]

    def _take(self, rows: Any, batch: int) -> Committed:
        self._point("begun")
        self._uncounted = True
        files = self._checkpoint.batch_files(batch)
        found = self.looked_at(files)
        if not self.is_repeated(batch):
            self.check_apart(files)
        query = self._checkpoint.query
        fresh = self._commit_batch(files, found, query, batch, self._rules)
        if fresh is not None:
            self._add_counts(self._events.added(), fresh)
            self._point("counted")
            self._tell_spread(batch, files)
        self._uncounted = False
        return Committed(batch, len(fresh or ()), len(files))

    def _commit_batch(
        self,
        files: Sequence[SpoolFile],
        said: Footers,
        query: str | None,
        batch: int,
        rules: Mapping[str, TableByRule],
    ) -> Ranges | None:
        """Commit what the tables lack of a batch, whose footers have *said* that; which events
        that is, and None if they lack nothing.
        """
        found, row_bytes, records, days, *_ = said
        took = Ranges.of(files)
        without = self.left_out(took)
        fresh = took.minus(without)
        if took.minus(self.ledger.committed):
            if found != len(took):
                raise shortfall(batch, len(took), found)
            plan = Plan(files, without, row_bytes=row_bytes, rules=rules)
            self.take_back(self.arrived(files, without))
            after = self.after(query, batch, took, records)
            types = {**self.ledger.types, **self.types}
            after = replace(after, types=types)
            few = days * (1 + len(rules)) <= _FEW_DAYS
            if isinstance(self._events, Divided):
                self._events.plan([file.name for file in files], rules)
            self._commit(self._read(plan), after, len(fresh), few=few)
            return fresh
        return None

    def known(self, wanted: Mapping[Life, Lsns]) -> Iterator[tuple[Life, Prints]]:
        ranges = Ranges()
        for life, lsns in wanted.items():
            ranges.add_all(life, lsns)
        if not ranges:
            return
        rows = tables.within(self._events.rows(), ranges)
        found: dict[Life, list[tuple[int, int, int]]] = {}
        for node, by, lsn, at, sha256 in rows.select(
            "node", "incarnation", "lsn", *_prints(rows)
        ).toLocalIterator():
            mine = found.setdefault(Life(node, by), [])
            mine.append((lsn, at, number_of(sha256)))
        for life, some in found.items():
            yield life, Prints.of(some)

    def _tell_spread(self, batch: int, files: Sequence[SpoolFile]) -> None:
        """Tell of a batch whose rows went into more partitions than they should."""
        found = self._events.spread(self._most_partitions)
        if not found:
            return
        most = max(found, key=lambda name: len(found[name]))
        _log.warning(
            "batch %d (%d spool files, %s first) went into more than %d partitions of %s"
            " (spark.most_partitions), each with a file of its own: %s. What brings that is"
            " %s: late or wrong timestamps have many hours, so divide by days, and by no"
            " column that has a value for each user or host (spark.partition_by)",
            *(batch, len(files), files[0].name, self._most_partitions),
            self._events.name,
            "; ".join(
                f"{name} has {len(values)} values, {min(values)} to {max(values)}"
                for name, values in found.items()
            ),
            most,
        )

    def _commit(
        self, rows: Any, ledger: Ledger, count: int, *, few: bool = False
    ) -> None:
        ledger = self.closing.close(ledger)
        self._events.append(rows, ledger, count, few=few)
        self._point("committed")
        self.ledger = ledger
        self._tell()

    def _add_counts(self, rows: Any, added: Ranges) -> None:
        query, batch = self.ledger.query, self.ledger.batch
        after = self._counted.after(query, batch, added, {})
        # By the same names: it counts just these.
        after = replace(after, committed=self.ledger.committed)
        self._stats.append(self._count(rows), after)
        self._counted = after

    def _tell(self) -> None:
        """Daemon and audit, by a copy; the table's own ledger is the one that counts."""
        self.ledger.save(self._disk, self._path)
        self._settle(self._events.state())


def _prints(rows: Any) -> list[Any]:
    """When each event came, and a digest of its payload, if that can be told."""
    from pyspark.sql import functions as f

    body = dict(rows.dtypes).get("body") == "string"
    sent = "coalesce(cast(body AS binary), payload)" if body else "payload"
    return [f.expr("unix_micros(received_at)"), f.expr(f"sha2({sent}, 256)")]
