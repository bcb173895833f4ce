"""Tables by rule of Delta and Iceberg, with `events` one table for the sink.

No format commits to two tables at once.  So the files of all are written in one pass over the
rows (`shared.OneTable`).  Then each table commits its own by itself, and `events` last: its
ledger is the one that counts.  Words of a commit have that ledger as it
will be, the batch's files, its rules, and the table's number of rows.  A start that finds
a table ahead of `events` finishes that batch, by the rules of its words.  A table without rows
in a batch gets no commit.

Where its files are not at hand, or the ledger of a table is lost, the rows that are there stay.
The rest of the batch comes again.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from gateway.spark.commit.ledger import Broken, Ledger, Ranges
from gateway.spark.commit.shared import Lost, OneTable, Words, Written, fitted
from gateway.spark.rows import tables
from gateway.tables import EVENTS, QUARANTINE, TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from gateway.config.tables import TableByRule
    from gateway.spark.commit.lakedisk import LakeDisk
    from gateway.spark.commit.marks import Root, Said

_ROWS, _FILES, _RULES = "rows", "files", "rules"
"""Words of a commit beside its ledger."""


@dataclass(frozen=True)
class Begun:
    """A batch that some table has, and `events` has not."""

    ledger: Ledger
    """The ledger once it is in all tables; without what is closed."""
    files: list[str]
    rules: Mapping[str, Any]


class Divided:
    """The table *main*, which is `events`, and those by rule, which *make* makes by name.

    It has the methods of a table that commits are made to (`shared.Table`).  Rows have a column
    `table`.  *point* is called behind the commit of each table by rule.
    """

    def __init__(
        self,
        main: OneTable,
        make: Callable[[str], OneTable],
        names: Iterable[str],
        rules: Mapping[str, TableByRule],
    ) -> None:
        """*names* are the tables that there are, or are to be by *rules*."""
        self.main = main
        self.name = main.name
        self.job = main.job
        self._make = make
        self.by_rule: dict[str, OneTable] = {name: make(name) for name in names}
        self.point: Callable[[str], None] = lambda name: None
        self._own = _own(rules)
        self._plan: Mapping[str, Any] = {}
        self._rows: dict[str, int] = {}
        """How many each has had, those that went since among them."""
        self._ahead: dict[str, Ranges] = {}
        """Tables that are ahead of `events`, and by which events."""
        self._added: list[str] = []

    def others(self) -> Mapping[str, str]:
        return self.main.others()

    def each(self) -> Iterator[tuple[str, OneTable]]:
        """The tables that are there, by name."""
        for name, table in {EVENTS: self.main, **self.by_rule}.items():
            if table.there():
                yield name, table

    def open(self) -> Ledger:
        """The ledger of `events`.  Raises `Lost`."""
        self._rows = {}
        ledger = self.main.open()
        self._rows[EVENTS] = int(self.main.said.get(_ROWS, len(ledger.committed)))
        for name in ledger.tables.by_rule:
            if name not in self.by_rule:
                self.by_rule[name] = self._make(name)
        return ledger

    def begun(self, ledger: Ledger) -> tuple[Ledger, Begun | None]:
        """The *ledger* of `events`, with what tables have whose own is lost; and a batch that was
        begun.
        """
        found: Begun | None = None
        had = ledger.committed
        self._ahead = {}
        if EVENTS not in self._rows:  # its own ledger is lost
            self._rows[EVENTS] = self.main.rows().count()
        for name, table in self.by_rule.items():
            try:
                theirs = table.open()
            except Lost as why:
                ledger = _with(ledger, tables.ranges(table.rows()), why.sequence)
                self._rows[name] = table.rows().count()
                continue
            self._rows[name] = int(table.said.get(_ROWS, 0))
            if ahead := theirs.latest.minus(had):
                self._ahead[name] = ahead
                words = table.said
                found = Begun(theirs, list(words[_FILES]), words[_RULES])
        return ledger, found

    def leave(self, ledger: Ledger, begun: Begun) -> Ledger:
        """The *ledger* with the rows that are there of a batch that can not be finished."""
        for name in self._ahead:
            rows = tables.within(self.by_rule[name].rows(), begun.ledger.latest)
            ledger = _with(ledger, tables.ranges(rows), begun.ledger.sequence)
        self._ahead = {}
        return ledger

    def plan(self, files: Iterable[str], rules: Mapping[str, TableByRule]) -> None:
        """Say of which files the next batch is made, and by which rules."""
        said = {
            name: one.model_dump(
                mode="json", include={"where", "columns"}, exclude_none=True
            )
            for name, one in rules.items()
        }
        self._plan = {_FILES: [*files], _RULES: said}
        self._own = _own(rules)

    def append(
        self,
        rows: DataFrame,
        ledger: Ledger,
        count: int | None = None,
        *,
        few: bool = False,
    ) -> None:
        """Commit *rows* to their tables, `events` last; what a batch that was begun has committed
        is there already.  Raises as `shared.Table` does.
        """
        self._added = []
        if TABLE not in rows.columns or count == 0:
            there, words = self._words(EVENTS, count or 0)
            mine = self._without(rows, EVENTS)
            self.main.append(mine, ledger, count, few=few, beside=words)
            self._committed(EVENTS, there)
            return
        # Flawed rows are in the table of events.
        rows = rows.replace(QUARANTINE, EVENTS, [TABLE])
        parts = {
            name: self._without(rows, name)
            for name in (*self._own, EVENTS)
            if name not in self._ahead
        }
        groups = self._groups(parts)
        if kept := len(groups) > 1:
            rows = rows.persist()
        try:
            written: dict[str, Written] = {}
            for alike, names, types in groups:
                mine = rows
                if kept or self._ahead:
                    mine = rows.where(_is_one_of(names))
                if alike is None:
                    written[names[0]] = Written(mine.count(), [mine])
                else:
                    of = {name: self._table(name) for name in names}
                    done = of[names[0]].write(fitted(mine, types), of, few=few)
                    written.update(done)
            self._check(written, count)
            alone = {names[0] for alike, names, _ in groups if alike is None}
            for name in parts:
                self._commit(name, written[name], ledger, alone=name in alone)
        finally:
            if kept:
                rows.unpersist()
        self._ahead = {}

    def _groups(
        self, parts: Mapping[str, DataFrame]
    ) -> list[tuple[Hashable, list[str], dict[str, str]]]:
        """Tables of one pass each, made to fit: what is alike, their names, types of columns."""
        found: list[tuple[Hashable, list[str], dict[str, str]]] = []
        for name, part in parts.items():
            table = self._table(name)
            types, alike = table.fit(part), table.alike()
            for other, names, known in found:
                same = all(known.get(one, kind) == kind for one, kind in types.items())
                if alike is not None and alike == other and same:
                    names.append(name)
                    known.update(types)
                    break
            else:
                found.append((alike, [name], dict(types)))
        return found

    def _check(self, written: Mapping[str, Written], count: int | None) -> None:
        """Raise `Broken` unless all *count* rows of a batch were written, or are there already."""
        there = sum(one.rows for one in written.values())
        for name, events in self._ahead.items():
            there += tables.within(self.by_rule[name].rows(), events).count()
        if count is not None and there != count:
            raise Broken(
                f"{self.name}: {there} rows were made of a batch of {count}; none"
                " is committed. Is a file missing from the spool?"
            )

    def _commit(
        self, name: str, written: Written, ledger: Ledger, *, alone: bool
    ) -> None:
        """Commit what was *written*; but of a table by rule nothing where there is none."""
        if name != EVENTS and not written.rows:
            return
        table = self._table(name)
        there, words = self._words(name, written.rows)
        if alone:
            mine = self._without(written.files[0], name)
            table.append(mine, ledger, written.rows, beside=words)
        else:
            table.commit(written, ledger, beside=words)
        self._committed(name, there)
        if name != EVENTS:
            self.point(f"in {name}")

    def _table(self, name: str) -> OneTable:
        return self.main if name == EVENTS else self.by_rule[name]

    def _words(self, name: str, more: int) -> tuple[int, Words]:
        """How many rows it has had with so many *more*, and what its commit says beside the
        ledger.
        """
        there = self._rows.get(name, 0) + more
        return there, {_ROWS: there, **self._plan}

    def _committed(self, name: str, there: int) -> None:
        self._rows[name] = there
        self._added.append(name)

    def _without(self, rows: DataFrame, name: str) -> DataFrame:
        """The rows of a table without the columns that are others' own."""
        mine = self._own.get(name, ())
        others = {one for each in self._own.values() for one in each} - {*mine}
        return rows.drop(TABLE, *others)

    def rows(self) -> DataFrame:
        return _union(_named(name, table.rows()) for name, table in self.each())

    def added(self) -> DataFrame:
        return _union(_named(name, self._table(name).added()) for name in self._added)

    def spread(self, most: int) -> Mapping[str, Collection[str]]:
        found = (self._table(name).spread(most) for name in self._added)
        return next(filter(None, found), {})

    def state(self) -> Mapping[str, str]:
        found = dict(self.main.state())
        for name, table in self.by_rule.items():
            if table.there():
                found[f"table:{name}"] = table.name
                found |= {f"{key}:{name}": one for key, one in table.state().items()}
        return found

    def said_by_others(self) -> list[Said]:
        return self.main.said_by_others()

    def roots(self, disk: LakeDisk) -> Iterator[Root]:
        for _, table in self.each():
            yield from table.roots(disk)

    def overwrite(self, day: str, make: Callable[[DataFrame], DataFrame]) -> None:
        for _, table in self.each():
            table.overwrite(day, make)

    def delete(self, condition: str) -> None:
        for _, table in self.each():
            table.delete(condition)

    def purge(self) -> Iterator[str]:
        for _, table in self.each():
            yield from table.purge()

    def maintain(self, *, days: float, thorough: bool = True) -> Iterator[str]:
        for _, table in self.each():
            yield from table.maintain(days=days, thorough=thorough)


def _own(rules: Mapping[str, TableByRule]) -> Mapping[str, Collection[str]]:
    """The columns that are each table's own."""
    return {name: one.columns for name, one in rules.items()}


def _with(ledger: Ledger, more: Ranges, sequence: int) -> Ledger:
    committed = ledger.committed.with_all(more.minus(ledger.committed))
    number = max(ledger.sequence, sequence)
    return replace(ledger, committed=committed, sequence=number)


def _is_one_of(names: Iterable[str]) -> str:
    listed = ", ".join(f"'{name}'" for name in names)
    return f"`{TABLE}` IN ({listed})"


def _named(name: str, rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    said = f.lit(name)
    if name == EVENTS:
        said = f.when(f.col("flaw").isNull(), said).otherwise(f.lit(QUARANTINE))
    return rows.withColumn(TABLE, said)


def _union(parts: Iterable[DataFrame]) -> DataFrame:
    return reduce(
        lambda one, other: one.unionByName(other, allowMissingColumns=True), parts
    )
