"""Rows that are in the tables already get the columns that came later."""

import datetime as dt
import threading
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from deadlines import eventually
from gateway.audit import audit
from gateway.spark import job
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken
from gateway.spark.later.backfill import Folders, check_names
from gateway.spark.rows.columns import Columns
from gateway.store.finder import Directories
from gateway.store.system.lock import lock
from incarnations import A
from played_spark import PowerCut
from watched_lake import Steady

pytestmark = pytest.mark.spark

DAY = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
PAYLOADS = [
    b'{"message": "a", "status": 200, "host": {"name": "h"}, "n": 1e400}',
    b'{"message": "b", "status": "many", "n": "x", "at": "2026-03-01T10:00:00Z"}',
    b'{"message": "c", "log": {"offset": "x"}, "other": 7}',
    b"",
    b"{nope",
]
FLAWS = {3: "empty", 4: "invalid-json"}


def column(path: str, kind: str = "string", **more: Any) -> SimpleNamespace:
    given = {"default": None, "protocol": None, "listener": None, **more}
    return SimpleNamespace(path=path, type=kind, **given)


@pytest.fixture
def stored(spool, run_once, config) -> Callable[..., None]:
    """Puts so many days into the tables, with the columns of now, a file each."""
    first = 1

    def store(days: int, flaws: dict[int, str] = FLAWS) -> None:
        nonlocal first
        for day in range(days):
            at = int((DAY + dt.timedelta(day)).timestamp() * 1e6)
            spool.put("gw", first, PAYLOADS, received_at=at, flaws=flaws, incarnation=A)
            first += len(PAYLOADS)
        run_once()

    return store


def files_of(lake: Path) -> list[Path]:
    return sorted(
        path
        for table in ("events", "quarantine")
        for path in (lake / table).rglob("*.parquet")
    )


def rows_of(lake: Path) -> dict[int, dict[str, Any]]:
    """What is in the files, one by one, by lsn: each once."""
    rows = [
        row
        for path in files_of(lake)
        for row in pq.ParquetFile(path).read().to_pylist()
    ]
    found = {row["lsn"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def schemas(lake: Path) -> set[tuple[Any, ...]]:
    return {
        tuple((field.name, str(field.type)) for field in pq.read_schema(path))
        for path in files_of(lake)
    }


def test_columns_that_came_later_are_made_out_of_the_body(
    stored, config, spark, tmp_path
):
    """In events and in quarantine, of their type, with misfits, day after day; all else in
    these rows stays as it was, and all files have the same columns.  Meanwhile a reader sees
    each row once, and the audit is complete.  A second time there is nothing to do."""
    lake = config.data_dir / "lake"
    stored(2)
    before = rows_of(lake)
    config.spark.columns = {
        "status": column("status", "int"),
        "level": column("level", default="info"),
        "at": column("at", "timestamp"),
        "day": column("at", "date"),
        "price": column("status", "decimal(12,2)"),
        "many": column("status", "list<string>"),
        "kept": column("status"),  # as a step on the way could be called
    }
    stored(1)
    assert len(schemas(lake)) == 2
    over, wrong, looks = threading.Event(), list[Any](), list[int]()

    def look() -> None:
        while not over.wait(0.25):
            report = audit(Directories.under(config.data_dir))
            if not report.complete:
                wrong.append(report)
            try:
                table = ds.dataset(lake / "events", format="parquet").to_table(["lsn"])
            except FileNotFoundError:
                continue
            looks.append(table.num_rows)
            if set(Counter(table["lsn"].to_pylist()).values()) != {1}:
                wrong.append(table)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        done = list(Folders(spark, config, Lake()).run())
    finally:
        over.set()
        reader.join()
    assert wrong == []
    assert set(looks) == {9}
    assert len(done) == 4
    assert {one.rows for one in done} == {2, 3}
    new = "at, day, kept, level, many, price, status"
    assert {one.said.partition(" rows, ")[2] for one in done} == {new}
    assert len(schemas(lake)) == 1
    after = rows_of(lake)
    for lsn, row in before.items():
        kept = {name: value for name, value in row.items() if name != "misfits"}
        assert kept.items() <= after[lsn].items()
    assert [after[lsn]["status"] for lsn in range(1, 6)] == [200, *[None] * 4]
    assert after[2]["at"] == DAY.replace(hour=10)
    others = [after[1][name] for name in ("price", "many", "kept")]
    assert [after[2]["day"], *others] == [DAY.date(), Decimal(200), ["200"], "200"]
    assert [after[lsn]["misfits"] for lsn in (1, 2, 3)] == [
        None,
        "status,price",
        "log_offset",
    ]
    assert {row["level"] for row in after.values()} == {"info"}
    assert list(Folders(spark, config, Lake()).run()) == []


class Fuse(Lake):
    """Stops before, or after, its second swap."""

    def __init__(self, *, after: bool) -> None:
        self._after = after
        self._swaps = 0

    def exchange(self, one: Path, other: Path) -> None:
        self._swaps += 1
        if self._swaps == 2 and not self._after:
            raise PowerCut
        super().exchange(one, other)
        if self._swaps == 2:
            raise PowerCut


@pytest.mark.long
def test_killed_at_a_swap_it_goes_on_where_it_was(stored, config, spark, tmp_path):
    """The days before are done, this one is as it was or as it is to be, and the next start
    does the rest and no more.  A reader in a process of its own sees each row once, all the
    while."""
    lake = config.data_dir / "lake"
    stored(2)
    everything = rows_of(lake).keys()
    todo = 4
    events = ds.dataset(lake / "events", format="parquet").to_table(["lsn"])
    reader = Steady(lake, tmp_path / "reader", events["lsn"].to_pylist())
    try:
        for after in (False, True):
            reader.look_again()
            config.spark.columns = {f"status_{after}".lower(): column("status", "int")}
            with pytest.raises(PowerCut):
                list(Folders(spark, config, Fuse(after=after)).run())
            assert rows_of(lake).keys() == everything
            reader.look_again()
            left = list(Folders(spark, config, Lake()).run())
            assert len(left) == todo - (2 if after else 1)
            assert rows_of(lake).keys() == everything
        assert reader.end() == []
    finally:
        reader.kill()


@pytest.mark.long
def test_a_column_whose_type_or_path_has_changed(stored, config, spark, run_once):
    """Another type is refused by the job until all days have it; meanwhile no job may run.
    A path is only taken where the column is named; one that is named and not configured
    any more is taken out, and its name is free."""
    lake = config.data_dir / "lake"
    config.spark.columns = {
        "status": column("status", "int"),
        "n": column("n", "double"),
    }
    stored(1, {})
    config.spark.columns = {"status": column("status"), "n": column("other", "double")}
    with pytest.raises(job.Failed, match=r"status .* is int.*gateway spark backfill"):
        run_once()
    held = lock(lake / ".gateway" / "lock", "gateway spark")
    with pytest.raises(Broken, match="status: stop the job first"):
        list(Folders(spark, config, Lake()).run())
    held.release()
    assert len(list(Folders(spark, config, Lake()).run())) == 1
    stored(1, {})
    assert len(schemas(lake)) == 1
    found = rows_of(lake)
    assert [found[lsn]["status"] for lsn in (1, 2, 3)] == ["200", "many", None]
    assert [found[lsn]["misfits"] for lsn in (1, 2)] == [None, "n"]
    assert [found[lsn]["n"] for lsn in (3, 8)] == [None, 7.0]
    done = list(Folders(spark, config, Lake(), ["n"]).run())
    assert {one.said for one in done} == {"10 rows, n"}
    found = rows_of(lake)
    assert [found[lsn]["n"] for lsn in (3, 8)] == [7.0, 7.0]
    assert found[2]["misfits"] is None
    config.spark.columns = {"status": column("status")}
    list(Folders(spark, config, Lake(), ["n"]).run())
    assert not any("n" in row for row in rows_of(lake).values())
    config.spark.columns |= {"n": column("n")}
    stored(1, {})
    assert rows_of(lake)[11]["n"] == "1e400"


def test_the_job_fills_the_current_day_as_it_starts(spool, run_once, config, spark):
    """With new columns: rows that came today before have them, too, without a command."""
    lake = config.data_dir / "lake"
    # Of two days, or there is none of today at midnight.
    for first, more in ((1, 0), (3, 1)):
        at = dt.datetime.now(dt.UTC) + dt.timedelta(more)
        payloads = [b'{"status": 200}', b'{"status": "many"}']
        spool.put("gw", first, payloads, received_at=int(at.timestamp() * 1e6))
    run_once()
    config.spark.columns = {"status": column("status", "int")}
    config.spark.compact = True
    stop = threading.Event()
    running = threading.Thread(
        target=job.run, args=(config, spark), kwargs={"stop_event": stop}
    )
    running.start()
    try:
        eventually(
            lambda: any("-backfill" in path.name for path in files_of(lake)),
            "a file with the new column",
            120,
        )
    finally:
        stop.set()
        running.join()
    found = {
        lsn: row["status"] for lsn, row in rows_of(lake).items() if "status" in row
    }
    assert found in ({1: 200, 2: None}, {3: 200, 4: None})


@pytest.mark.long
def test_only_the_current_day_is_filled_by_itself(stored, config, spark):
    """The others wait for the command."""
    stored(2)
    config.spark.columns = {"status": column("status", "int")}
    day = (DAY + dt.timedelta(1)).date()
    done = list(Folders(spark, config, Lake()).fill_day(day, lambda: False))
    assert {one.day.rpartition("=")[2] for one in done} == {day.isoformat()}
    assert len(schemas(config.data_dir / "lake")) == 2


def test_names_that_are_none():
    """A slip of the pen rewrites no year of files."""
    columns = Columns({"status": column("status")})
    check_names(["status", "event_time", "host", "route", "old"], columns, ["old"])
    with pytest.raises(Broken, match=r"staus: no column of spark\.columns, nor of"):
        check_names(["staus"], columns, ["old"])
    with pytest.raises(Broken, match=r"payload: not a column of spark\.columns"):
        check_names(["payload"], columns, ["payload"])
