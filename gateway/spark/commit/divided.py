"""Tables by rule of Delta and Iceberg, with `events` one table for the sink.

No format commits to two tables at once.  So each table commits by itself, and `events` last:
its ledger is the one that counts.  Words of a commit have that ledger as it
will be, the batch's files, its rules, and the table's number of rows.  A start that finds
a table ahead of `events` finishes that batch, by the rules of its words.  A table without rows
in a batch gets no commit.

Where its files are not at hand, or the ledger of a table is lost, the rows that are there stay.
The rest of the batch comes again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from gateway.spark.commit.ledger import Broken, Ledger, Ranges
from gateway.spark.commit.shared import Lost, OneTable
from gateway.spark.rows import tables
from gateway.tables import EVENTS, QUARANTINE

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
        self._ahead: set[str] = set()
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
        self._ahead = set()
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
            if theirs.latest.minus(had):
                self._ahead.add(name)
                words = table.said
                found = Begun(theirs, list(words[_FILES]), words[_RULES])
        return ledger, found

    def leave(self, ledger: Ledger, begun: Begun) -> Ledger:
        """The *ledger* with the rows that are there of a batch that can not be finished."""
        for name in self._ahead:
            rows = tables.within(self.by_rule[name].rows(), begun.ledger.latest)
            ledger = _with(ledger, tables.ranges(rows), begun.ledger.sequence)
        self._ahead = set()
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
        if tables.TABLE not in rows.columns or count == 0:
            self._commit(EVENTS, self._without(rows, EVENTS), ledger, count, few=few)
            return
        rows = rows.persist()
        try:
            self._divide(rows, ledger, count, few=few)
        finally:
            rows.unpersist()

    def _divide(
        self, rows: DataFrame, ledger: Ledger, count: int | None, *, few: bool
    ) -> None:
        found = {
            row[0]: int(row[1]) for row in rows.groupBy(tables.TABLE).count().collect()
        }
        if count is not None and sum(found.values()) != count:
            raise Broken(
                f"{self.name}: {sum(found.values())} rows were made of a batch of {count}; none"
                " is committed. Is a file missing from the spool?"
            )
        for name in self.by_rule:
            mine = found.pop(name, 0)
            if mine and name not in self._ahead:
                part = rows.where(f"`{tables.TABLE}` = '{name}'")
                self._commit(name, self._without(part, name), ledger, mine, few=few)
                self.point(f"in {name}")
        names = ", ".join(f"'{name}'" for name in (EVENTS, QUARANTINE))
        rest = self._without(rows.where(f"`{tables.TABLE}` IN ({names})"), EVENTS)
        self._commit(EVENTS, rest, ledger, sum(found.values()), few=few)
        self._ahead = set()

    def _commit(
        self,
        name: str,
        rows: DataFrame,
        ledger: Ledger,
        count: int | None,
        *,
        few: bool,
    ) -> None:
        table = self.main if name == EVENTS else self.by_rule[name]
        there = self._rows.get(name, 0) + (count or 0)
        beside = {_ROWS: there, **self._plan}
        table.append(rows, ledger, count, few=few, beside=beside)
        self._rows[name] = there
        self._added.append(name)

    def _without(self, rows: DataFrame, name: str) -> DataFrame:
        """The rows of a table without the columns that are others' own."""
        mine = self._own.get(name, ())
        others = {one for each in self._own.values() for one in each} - {*mine}
        return rows.drop(tables.TABLE, *others)

    def rows(self) -> DataFrame:
        return _union(_named(name, table.rows()) for name, table in self.each())

    def added(self) -> DataFrame:
        of = {EVENTS: self.main, **self.by_rule}
        return _union(_named(name, of[name].added()) for name in self._added)

    def spread(self, most: int) -> Mapping[str, Collection[str]]:
        of = {EVENTS: self.main, **self.by_rule}
        found = (of[name].spread(most) for name in self._added)
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


def _named(name: str, rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    said = f.lit(name)
    if name == EVENTS:
        said = f.when(f.col("flaw").isNull(), said).otherwise(f.lit(QUARANTINE))
    return rows.withColumn(tables.TABLE, said)


def _union(parts: Iterable[DataFrame]) -> DataFrame:
    return reduce(
        lambda one, other: one.unionByName(other, allowMissingColumns=True), parts
    )
