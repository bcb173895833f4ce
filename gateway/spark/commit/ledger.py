"""The ledger: which events have been committed to the lake, by name.

Spark's checkpoint says which batches are done.  This file says which *events* are in
the tables, so a checkpoint may be lost or thrown away and nothing is doubled.  It is
tiny: lsns have no holes, so an incarnation of a node is one interval.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gateway.sdk.disk import Disk, replace_file
from gateway.store.lsns import Lsns
from gateway.store.names import Life, SpoolFile
from gateway.store.node.incarnation import Record
from gateway.store.readers.complete import Completeness
from gateway.store.readers.lake import FORM, Accepted, End, read_accepted, why_not_read
from gateway.tables import Tables

_NONE = Lsns()


class Broken(Exception):
    """Lake, checkpoint and spool contradict each other; says how and what to do."""


class Closed:
    """Events of incarnations of which hardly any comes any more, and of which each file of
    `gateway.spark.commit.closing` has some; never changed.
    """

    def __init__(self, files: Mapping[str, int], by: Mapping[Life, Lsns]) -> None:
        self.files = files
        """How many events each has, by name."""
        self.by = by
        self.of: dict[str, list[Life]] = {}
        """The incarnations of each node."""
        for life in by:
            self.of.setdefault(life.node, []).append(life)

    @cached_property
    def by_node(self) -> Mapping[str, Lsns]:
        return {
            node: Lsns.joined(self.by[life] for life in lives)
            for node, lives in self.of.items()
        }

    @cached_property
    def last_by(self) -> Mapping[str, Mapping[str, int]]:
        """The greatest lsn of each node's incarnations."""
        return {
            node: {life.incarnation: self.by[life].last for life in lives}
            for node, lives in self.of.items()
        }


_OPEN = Closed({}, {})
"""None are closed."""


class Ranges:
    """A set of events by name, (node, incarnation, lsn), as few intervals as possible.

    It has more methods than other classes, as those of a set do not go apart.  Events of two
    incarnations are never the same.  It may have all that are *closed*, which
    sets share, beside its own.
    """

    def __init__(
        self, plain: Mapping[str, Any] | None = None, closed: Closed = _OPEN
    ) -> None:
        """*plain* is what `plain` gives."""
        self.closed = closed
        self._by: dict[Life, Lsns] = {}
        """Others than those."""
        self._of: dict[str, set[Life]] = {}
        """The incarnations that gave these lsns, by node."""
        for node, lives in (plain or {}).items():
            for incarnation, intervals in lives.items():
                self._keep(Life(node, incarnation), Lsns(intervals))

    @classmethod
    def of(cls, files: Iterable[SpoolFile]) -> Ranges:
        """The events of these files."""
        ranges = cls()
        for file in files:
            ranges.add(file.life, file.first, file.last)
        return ranges

    def add(self, life: Life, first: int, last: int) -> None:
        """Add an interval, both ends included."""
        if life in self.closed.by:
            self.add_all(life, Lsns([(first, last)]))
        elif (known := self._by.get(life)) is not None:
            known.add(first, last)
        else:
            self._keep(life, Lsns([(first, last)]))

    def add_all(self, life: Life, lsns: Lsns) -> None:
        if life in self.closed.by:  # it is reopened
            lsns = lsns - self.closed.by[life]
        if (known := self._by.get(life)) is not None:
            known.update(lsns)
        else:
            self._keep(life, lsns.copy())

    def _keep(self, life: Life, lsns: Lsns) -> None:
        """Add the set of an incarnation that is not here yet; it is changed nowhere else."""
        if lsns:
            self._of.setdefault(life.node, set()).add(life)
            self._by[life] = lsns

    def update(self, other: Ranges) -> None:
        """Add all of *other*, whose lives are the newest then."""
        for life in other._by:
            if life in self._by:
                self._by[life] = self._by.pop(life)
        for life, lsns in other.each():
            self.add_all(life, lsns)

    def with_all(self, other: Ranges) -> Ranges:
        """This and *other*, whose lives are the newest then; in time that grows with that."""
        found = Ranges(closed=self.closed)
        found._by, found._of = dict(self._by), dict(self._of)
        for life, lsns in other.each():
            found._of[life.node] = set(found._of.get(life.node, ()))
            mine = found._by.pop(life, None)
            if mine is not None:
                found._by[life] = mine.copy()
            found.add_all(life, lsns)
        return found

    def each(self) -> Iterator[tuple[Life, Lsns]]:
        """Incarnations in order, and the lsns of each."""
        for life in sorted({*self._by, *self.closed.by}):
            yield life, self._lsns(life)

    @property
    def lives_open(self) -> int:
        """How many `open` gives."""
        return len(self._by)

    def open(self) -> Iterator[tuple[Life, Lsns]]:
        """The incarnations that are not closed, and lsns that came since of such as were."""
        yield from self._by.items()

    def __iter__(self) -> Iterator[tuple[Life, int, int]]:
        for life, lsns in self.each():
            for first, last in lsns:
                yield life, first, last

    def __len__(self) -> int:
        closed = sum(self.closed.files.values())
        return closed + sum(lsns.size for lsns in self._by.values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ranges):
            return False
        if self.closed is other.closed:
            return self._by == other._by
        return dict(self.each()) == dict(other.each())

    def __hash__(self) -> int:
        return hash(tuple(self))

    def lives(self) -> Collection[Life]:
        """The incarnations, those that came last at the end."""
        return [*self.closed.by, *self._by]

    def common(self, other: Ranges) -> Ranges:
        """The events that are in both."""
        both = Ranges()
        for life, lsns in self.each():
            both._keep(life, lsns & other._lsns(life))
        return both

    def minus(self, other: Ranges) -> Ranges:
        """The events that *other* does not have."""
        left = Ranges()
        for life, lsns in self.each():
            left._keep(life, lsns - other._lsns(life))
        return left

    def last(self) -> dict[str, int]:
        """The greatest lsn of each node, of any incarnation."""
        return {node: max(lives.values()) for node, lives in self.last_by().items()}

    def last_by(self) -> dict[str, dict[str, int]]:
        """The greatest lsn of each node's incarnations."""
        found = {node: dict(lives) for node, lives in self.closed.last_by.items()}
        for node, incarnation in sorted(self._by):
            last = self._lsns(Life(node, incarnation)).last
            found.setdefault(node, {})[incarnation] = last
        return found

    def by_node(self) -> dict[str, Lsns]:
        """The lsns of each node, whichever of its incarnations gave them."""
        found = {node: lsns.copy() for node, lsns in self.closed.by_node.items()}
        for life, lsns in self._by.items():
            found.setdefault(life.node, Lsns()).update(lsns)
        return found

    def covers(self, file: SpoolFile) -> bool:
        """Whether every event of *file* is in here."""
        return self._lsns(file.life).covers(file.first, file.last)

    def of_life(self, life: Life) -> Lsns:
        """The lsns of an incarnation; not to be changed."""
        return self._lsns(life)

    def last_of(self, life: Life) -> int:
        """The greatest lsn of an incarnation; 0 if there is none."""
        return self._lsns(life).last

    def touches(self, file: SpoolFile) -> bool:
        """Whether an lsn that *file* has is in here, of any incarnation."""
        return any(self._giving(file))

    def others(self, file: SpoolFile) -> list[Life]:
        """Other lives of its node which gave an lsn that *file* has."""
        return sorted(life for life in self._giving(file) if life != file.life)

    def has(self, life: Life) -> bool:
        """Whether anything of an incarnation is in here."""
        return life in self._by or life in self.closed.by

    def plain(self) -> dict[str, dict[str, list[tuple[int, int]]]]:
        """The lsns for JSON, as the constructor takes them.  Without what is closed."""
        found: dict[str, dict[str, list[tuple[int, int]]]] = {}
        for (node, incarnation), lsns in self._by.items():
            found.setdefault(node, {})[incarnation] = list(lsns)
        return dict(sorted(found.items()))

    def _lsns(self, life: Life) -> Lsns:
        mine, closed = self._by.get(life), self.closed.by.get(life)
        if mine is not None and closed is not None:
            return mine | closed
        return mine or closed or _NONE

    def _giving(self, file: SpoolFile) -> Iterator[Life]:
        """The incarnations of its node that gave an lsn that *file* has."""
        for life in (*self.closed.of.get(file.node, ()), *self._of.get(file.node, ())):
            if self._lsns(life).touches(file.first, file.last):
                yield life


def write_json(disk: Disk, path: Path, content: Any) -> None:
    """Make *path* hold *content* as JSON, durably and in one step."""
    replace_file(disk, path, [json.dumps(content, indent=1).encode(), b"\n"]).close()


@dataclass(frozen=True)
class Hole:
    """Events that are in no table because their spool file could not be read."""

    node: str
    first: int
    last: int
    file: str
    """The spool file's name; it was moved aside under it."""
    why: str
    at: float
    """When, in seconds since the epoch."""
    incarnation: str = ""

    @property
    def of(self) -> SpoolFile:
        return SpoolFile(self.node, self.incarnation, self.first, self.last)

    def is_in(self, committed: Ranges) -> bool:
        """Whether its events are in the tables after all."""
        return committed.covers(self.of)


_UNSAID = Record()


@dataclass(frozen=True)
class Ledger:
    """The commits of all batches, and the last one."""

    query: str | None = None
    """Spark's id of the last query: it lives in the checkpoint and dies with it."""
    batch: int = -1
    """The query's last batch that is in the tables."""
    latest: Ranges = field(default_factory=Ranges)
    """The events that that batch took from the spool."""
    committed: Ranges = field(default_factory=Ranges)
    """The events that all batches of all queries took."""
    sequence: int = 0
    """How many batches there were, over all queries; part of the files' names."""
    holes: tuple[Hole, ...] = ()
    """The events that were moved aside."""
    accepted: tuple[Accepted, ...] = ()
    """The events that may be missing."""
    ends: Mapping[Life, End] = field(default_factory=dict)
    """Incarnations of which nothing more comes from their own disk."""
    records: Mapping[Life, Record] = field(default_factory=dict)
    """The files' records of their incarnations."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Columns of `events` so far, and their types as Spark names them."""
    tables: Tables = field(default_factory=Tables)
    """Tables by rule that there ever were."""
    retention: Mapping[str, float] = field(default_factory=dict)
    """Seconds that rows of a table by rule stay, as it was configured last; else those of
    `events` count."""
    complete: Completeness = field(default_factory=Completeness)
    """The moment through which the tables are complete, and the days that were said to be."""
    taken_back: str = ""
    """The last deletion whose counts `stats` has taken back, where that is a table with a
    ledger of its own: each does so once."""

    @classmethod
    def load(cls, disk: Disk, path: Path) -> Ledger:
        """An empty one if there is no file.  Raises `Broken`, OSError."""
        if not disk.exists(path):
            return cls()
        return cls.parse(disk.read(path), str(path))

    @classmethod
    def parse(cls, text: str | bytes, where: str) -> Ledger:
        """The ledger whose `text` this is.  Raises `Broken`, which names *where* it was found."""
        try:
            return cls.of(json.loads(text), where)
        except ValueError as why:
            raise Broken(f"{where}: {why!r}") from None

    @classmethod
    def of(cls, kept: Any, where: str) -> Ledger:
        """The same of what JSON made of it."""
        try:
            if (why := why_not_read(kept)) is not None:
                raise Broken(
                    f"{where}: {why}. Nothing is written over it: install the version that"
                    " wrote it, or a newer one"
                )
            return cls(
                kept["query"],
                kept["batch"],
                Ranges(kept["latest"]),
                Ranges(kept["committed"], Closed(kept.get("closed", {}), {})),
                kept["sequence"],
                tuple(Hole(**hole) for hole in kept["holes"]),
                tuple(map(read_accepted, kept.get("accepted", ()))),
                {
                    Life(node, incarnation): End(**end)
                    for node, ends in kept.get("ends", {}).items()
                    for incarnation, end in ends.items()
                },
                {
                    Life(node, incarnation): Record(*record)
                    for node, records in kept.get("records", {}).items()
                    for incarnation, record in records.items()
                },
                kept["types"],
                Tables(tuple(map(str, kept.get("tables", ())))),
                {str(n): float(s) for n, s in kept.get("retention", {}).items()},
                Completeness.read(kept["complete"])
                if "complete" in kept
                else Completeness(),
                str(kept.get("taken_back", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as why:
            raise Broken(f"{where}: {why!r}") from None

    def with_tables(self, rules: Mapping[str, Any]) -> Ledger:
        """The same with the tables by rule that are configured now, by name."""
        said = {name: one.retention for name, one in rules.items()}
        both = {**self.retention, **said}
        kept = {name: one for name, one in both.items() if one is not None}
        return replace(self, tables=self.tables.with_all(rules), retention=kept)

    def after(
        self,
        query: str | None,
        batch: int,
        took: Ranges,
        records: Mapping[Life, Record],
    ) -> Ledger:
        """This, once *batch* of *query* is in the tables, which *took* these events, of files
        that say this of their incarnations.
        """
        committed = self.committed.with_all(took)
        holes = tuple(hole for hole in self.holes if not hole.is_in(committed))
        return replace(
            self,
            query=query,
            batch=batch,
            latest=took,
            committed=committed,
            sequence=self.sequence + 1,
            holes=holes,
            records={**self.records, **records},
        )

    def ended(self) -> list[Life]:
        """Incarnations of which another one goes on, and all is in the tables that its files
        say there is; not those that are derived.
        """
        ends = {
            Life(life.node, record.continues): record.first - 1
            for life, record in self.records.items()
            if record.continues
        }
        return [
            life
            for life, lsns in self.committed.open()
            if life in self.committed.closed.by  # more of it came since
            or (
                life in ends
                and lsns.last >= ends[life]
                and not self.records.get(life, _UNSAID).of
            )
        ]

    def without(self, lives: Collection[Life], closed: Closed) -> Ledger:
        """This, with these among what is *closed*."""
        committed = Ranges(closed=closed)
        for life, lsns in self.committed.open():
            if life not in lives:
                committed.add_all(life, lsns)
        records = {life: one for life, one in self.records.items() if life not in lives}
        return replace(self, committed=committed, records=records)

    def with_hole(self, hole: Hole) -> Ledger:
        """This, and the events of one more file in no table."""
        others = [one for one in self.holes if one.file != hole.file]
        return replace(self, holes=(*others, hole))

    def with_accepted(self, more: Iterable[Accepted]) -> Ledger:
        """This, and what may be missing as well; what is known already changes nothing."""
        return replace(self, accepted=tuple(dict.fromkeys((*self.accepted, *more))))

    def with_ends(self, more: Mapping[Life, End | None]) -> Ledger:
        """This, and how more incarnations have ended, or that they have not after all."""
        known = {**self.ends, **more}
        ends = {life: end for life, end in known.items() if end is not None}
        return replace(self, ends=ends)

    def left_behind(self) -> list[Life]:
        """Ended incarnations with events that are, or may be, in no table, and not accepted so."""
        return [
            life
            for life, end in self.ends.items()
            if not self.accepts(life, end)
            and not (end.exact and self.committed.last_of(life) >= end.acknowledged)
        ]

    def accepts(self, life: Life, end: End) -> bool:
        """Whether it was accepted what an incarnation left behind."""
        return any(
            one.has_end_of(life.node, life.incarnation, end.acknowledged)
            for one in self.accepted
        )

    def save(self, disk: Disk, path: Path) -> None:
        """Durably.  Raises OSError."""
        write_json(disk, path, self._plain())

    def text(self, **beside: Any) -> str:
        """The whole ledger in a line, for the words of a table's commit.

        But for the columns' types: a table keeps the words of hundreds of commits, and has
        its columns itself.  *beside* are words of the committer; `parse` passes them over.
        """
        plain = {**self._plain(), "types": {}, **beside}
        return json.dumps(plain, separators=(",", ":"))

    def _plain(self) -> dict[str, Any]:
        return {
            "form": FORM,
            "query": self.query,
            "batch": self.batch,
            "latest": self.latest.plain(),
            "committed": self.committed.plain(),
            "closed": dict(self.committed.closed.files),
            "sequence": self.sequence,
            "holes": [asdict(hole) for hole in self.holes],
            "accepted": [asdict(one) for one in self.accepted],
            "ends": _by_node(self.ends),
            "records": _records(self.records),
            "types": dict(self.types),
            **({"tables": [*self.tables.by_rule]} if self.tables.by_rule else {}),
            **({"retention": dict(self.retention)} if self.retention else {}),
            **(
                {"complete": self.complete.plain()}
                if self.complete != Completeness()
                else {}
            ),
            **({"taken_back": self.taken_back} if self.taken_back else {}),
        }


def _by_node(ends: Mapping[Life, End]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for life, end in ends.items():
        found.setdefault(life.node, {})[life.incarnation] = asdict(end)
    return found


def _records(records: Mapping[Life, Record]) -> dict[str, dict[str, Record]]:
    found: dict[str, dict[str, Record]] = {}
    for life, record in records.items():
        found.setdefault(life.node, {})[life.incarnation] = record
    return found
