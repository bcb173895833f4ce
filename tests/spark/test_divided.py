"""Tables by rule that commit by themselves: one batch is in all of them, whatever is cut off.

Tables and Spark are played by this file, as in `test_commits.py`.  Delta's and Iceberg's own
tables: `commits/test_by_rule.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from gateway.config.tables import TableByRule
from gateway.spark.commit import divided
from gateway.spark.commit.commits import CommitSink
from gateway.spark.commit.divided import Divided
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken, Ledger, Ranges
from gateway.spark.commit.shared import Lost, Written
from gateway.spark.commit.sink import Plan
from gateway.store.names import Life
from gateway.store.readers.lake import tables_of
from played_spark import PowerCut, Stream

SIZE = 10
Row = tuple[Life, int, str]


def rules(*names: str) -> dict[str, TableByRule]:
    where = {name: {"where": {"path": "a", "equals": name}} for name in names}
    return TypeAdapter(dict[str, TableByRule]).validate_python(where)


#: Rules before and after a change: one table is added, and one is no longer there.
BEFORE, AFTER = rules("orders", "clicks"), rules("clicks", "chat")


def table_of(lsn: int, by: Any) -> str:
    """The first of a file is flawed; the others go by turns."""
    if lsn % SIZE == 1:
        return "quarantine"
    return (*by, "events")[lsn % (len(by) + 1)]


@dataclass
class Rows:
    """What Spark would have of these rows."""

    each: list[Row]
    columns = ("node", "table")
    schema = ()

    def persist(self) -> Rows:
        return self

    unpersist = persist

    def replace(self, old: str, new: str, _: list[str]) -> Rows:
        return Rows([(*row[:2], new if row[2] == old else row[2]) for row in self.each])

    def where(self, condition: str) -> Rows:
        names = re.findall("'([a-z]+)'", condition)
        return Rows([row for row in self.each if row[2] in names])

    def drop(self, *names: str) -> Rows:
        return self

    def unionByName(self, other: Rows, **_: Any) -> Rows:
        return Rows(self.each + other.each)

    def count(self) -> int:
        return len(self.each)


def ranges(rows: Rows) -> Ranges:
    found = Ranges()
    for life, lsn, _ in rows.each:
        found.add(life, lsn, lsn)
    return found


def within(rows: Rows, wanted: Ranges) -> Rows:
    return Rows(
        [row for row in rows.each if wanted.of_life(row[0]).covers(row[1], row[1])]
    )


@dataclass
class Table:
    """All that was committed to it."""

    name: str
    commits: list[tuple[Rows, Ledger]] = field(default_factory=list)
    said: dict[str, Any] = field(default_factory=dict)
    lost: bool = False
    kind: object = "alike"
    types: dict[str, str] = field(default_factory=dict)
    job = ""

    def others(self) -> dict[str, str]:
        return {}

    def there(self) -> bool:
        return bool(self.commits)

    @property
    def ledger(self) -> Ledger:
        return self.commits[-1][1] if self.commits else Ledger()

    def open(self) -> Ledger:
        if self.lost:
            raise Lost(self.ledger.sequence)
        return self.ledger

    def append(
        self, rows: Rows, ledger: Ledger, count: int | None = None, *,
        few: bool = False, beside: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        assert count in (None, len(rows.each))
        assert ledger.sequence > self.ledger.sequence
        self.commits.append((rows, ledger))
        self.said = dict(beside or {})
        self.lost = False

    def fit(self, rows: Rows) -> dict[str, str]:
        return self.types

    def alike(self) -> object:
        return self.kind

    def write(
        self, rows: Rows, tables: dict[str, Table], *, few: bool
    ) -> dict[str, Written]:
        assert {name for *_, name in rows.each} <= set(tables)
        assert all(one.kind == self.kind for one in tables.values())
        kinds = {kind for one in tables.values() for kind in one.types.items()}
        assert len(kinds) == len(dict(kinds))
        each = {name: rows.where(f"'{name}'").each for name in tables}
        return {name: Written(len(some), some) for name, some in each.items()}

    def commit(self, written: Written, ledger: Ledger, *, beside: Any) -> None:
        self.append(Rows([*written.files]), ledger, written.rows, beside=beside)

    def rows(self) -> Rows:
        return Rows([row for rows, _ in self.commits for row in rows.each])

    def added(self) -> Rows:
        return self.commits[-1][0]

    def spread(self, most: int) -> dict[str, set[str]]:
        return {}

    def state(self) -> dict[str, str]:
        return {}


@dataclass
class World(Stream):
    """A spool, a checkpoint, a table of events, those by rule, and the counts."""

    data: Path
    by: dict[str, TableByRule]
    tables: dict[str, Table] = field(default_factory=dict)
    stats: Table = field(default_factory=lambda: Table("stats"))

    def table(self, name: str) -> Table:
        return self.tables.setdefault(name, Table(name))

    def sink(self) -> CommitSink:
        def read(plan: Plan) -> Rows:
            by = self.by if plan.rules is None else plan.rules
            events = Ranges.of(plan.files).minus(plan.without)
            lsns = ((life, n) for life, a, b in events for n in range(a, b + 1))
            return Rows([(life, n, table_of(n, by)) for life, n in lsns])

        main = self.table("events")
        known = tables_of(self.data / "lake").with_all(self.by)
        return CommitSink(
            self.data / "lake",
            self.spool.path,
            self.checkpoint,
            Lake(),
            events=Divided(main, self.table, known.by_rule, self.by),
            stats=self.stats,
            read=read,
            count=lambda rows: rows,
            rules=self.by,
            point=self.point,
        )

    def check_complete(self) -> None:
        """Each event is in one table once, and counted once."""
        for found in (self.stats.rows(), *[self.all()]):
            assert Counter((life.node, lsn) for life, lsn, _ in found.each) == (
                self.spool.produced
            )

    def all(self) -> Rows:
        return Rows([row for one in self.tables.values() for row in one.rows().each])

    def placed(self, first: int) -> dict[str, set[int]]:
        """The lsns of a file in each table."""
        mine = range(first, first + SIZE)
        return {
            name: {lsn for _, lsn, _ in one.rows().each if lsn in mine}
            for name, one in self.tables.items()
        }


def expected(first: int, by: Any) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for lsn in range(first, first + SIZE):
        table = table_of(lsn, by)
        found.setdefault("events" if table == "quarantine" else table, set()).add(lsn)
    return found


@pytest.fixture
def world(tmp_path, logs, spool, monkeypatch) -> World:
    monkeypatch.setattr("os.fdatasync", lambda fd: None)
    monkeypatch.setattr("os.fsync", lambda fd: None)
    monkeypatch.setattr("gateway.spark.rows.tables.within", within)
    monkeypatch.setattr("gateway.spark.rows.tables.ranges", ranges)
    monkeypatch.setattr(divided, "_named", lambda name, rows: rows)
    for batch in range(3):
        spool.events("gw", 1 + batch * SIZE, SIZE)
    made = World(logs("events"), spool, tmp_path / "data", BEFORE)
    made.logs.begin()
    return made


POINTS = ("begun", "in orders", "in clicks", "committed", "counted")


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("checkpoint", ["kept", "lost"])
def test_killed_at_any_point_each_event_is_in_one_table_once(world, point, checkpoint):
    """Also where the checkpoint is lost, and other batches come."""
    world.survive(point, 3, lost=checkpoint == "lost")
    world.check_complete()


@pytest.mark.parametrize("point", POINTS)
def test_a_batch_is_finished_by_the_rules_that_it_was_begun_by(world, point):
    """The next start has others: a table is added, another one is no longer there.  What no
    table had follows the rules of today, and rows that are there stay.
    """
    world.run(1)
    world.cut = point
    with pytest.raises(PowerCut):
        world.run(2)
    world.cut, world.by = None, AFTER
    world.run(3)
    world.check_complete()
    rules_of = AFTER if point == "begun" else BEFORE
    for first, by in ((1, BEFORE), (1 + SIZE, rules_of), (1 + 2 * SIZE, AFTER)):
        placed = {name: some for name, some in world.placed(first).items() if some}
        assert placed == expected(first, by)


@pytest.mark.parametrize(
    "lost", [("events",), ("orders",), ("clicks",), ("events", "orders")]
)
@pytest.mark.parametrize("point", ["in orders", "in clicks", "counted"])
def test_a_ledger_that_is_lost_is_made_of_the_rows(world, lost, point):
    """Of all tables, where it is that of events; what is in any table does not come again."""
    world.run(1)
    world.cut = point
    with pytest.raises(PowerCut):
        world.run(2)
    world.cut = None
    for name in lost:
        world.table(name).lost = world.table(name).there()
    world.by = AFTER
    world.run(3)
    world.check_complete()
    assert world.table("events").ledger.tables.by_rule == ("orders", "clicks", "chat")


def test_a_batch_whose_files_are_elsewhere_comes_again(world):
    """On a machine that was rebuilt they come from the bucket later: what is in a table stays."""
    world.run(1)
    world.cut = "in orders"
    with pytest.raises(PowerCut):
        world.run(2)
    world.cut, world.by = None, AFTER
    away = world.spool.path.rename(world.spool.path.with_name("away"))
    world.spool.path.mkdir()
    sink = world.started()
    for path in away.iterdir():
        path.rename(world.spool.path / path.name)
    world.run(3, sink=sink)
    world.check_complete()
    assert world.placed(1 + SIZE)["orders"] == expected(1 + SIZE, BEFORE)["orders"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    ("kind", "types"),
    [(None, {}), ("other", {}), ("alike", {"n": "bigint"})],
    ids=["alone", "divided otherwise", "another type"],
)
def test_tables_that_no_one_pass_is_for(world, point, kind, types):
    """The rows are made once, and kept for another pass, or for what the format does alone."""
    world.table("clicks").types = {"n": "int"}
    world.table("orders").kind, world.table("orders").types = kind, types
    world.survive(point, 3, lost=False)
    world.check_complete()


def test_a_row_that_is_missing(world, monkeypatch):
    """No table is committed to where a batch has fewer rows than its files promise."""
    write = Table.write

    def fewer(table: Table, rows: Rows, *args: Any, **more: Any) -> Any:
        return write(table, Rows(rows.each[1:]), *args, **more)

    monkeypatch.setattr(Table, "write", fewer)
    with pytest.raises(Broken, match="9 rows were made of a batch of 10"):
        world.run(1)
    assert not world.all().each


def test_a_table_without_rows_has_no_commit(world):
    """The ledger of events names it all the same."""
    world.by = rules("never", "orders")
    world.run(1)
    world.by = rules("none")
    world.run(2)
    assert not world.table("none").commits or world.placed(1 + SIZE)["none"]
    assert len(world.table("never").commits) == len(world.table("orders").commits) == 1
    assert world.table("events").ledger.tables.by_rule == ("never", "orders", "none")


def test_a_ledger_that_is_written_down_meanwhile(world, monkeypatch):
    """It has a number of its own, as where days are not complete any more: the batch that was
    begun is finished all the same, also where that is cut off.
    """

    def taken_back(sink: CommitSink, _: Any) -> None:
        sink._write_down(sink.ledger)

    monkeypatch.setattr(CommitSink, "take_back", taken_back)
    world.run(1)
    world.cut = "in orders"
    with pytest.raises(PowerCut):
        world.run(2)
    world.cut, world.by = "in clicks", AFTER
    with pytest.raises(PowerCut):
        world.run(2)
    world.cut = None
    world.run(3)
    world.check_complete()
    placed = {name: some for name, some in world.placed(1 + SIZE).items() if some}
    assert placed == expected(1 + SIZE, BEFORE)
