"""Rows that expire or are deleted on purpose, and what counts them."""

import importlib.util
import os
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest

from format_tables import (
    MARKS,
    SIZE,
    World,
    lost,
)
from gateway.audit import audit
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken
from gateway.spark.commit.partition import Busy
from gateway.spark.later.deletion import Asked, delete
from gateway.store.directories import Directories
from played_spark import PowerCut

pytestmark = MARKS


@pytest.mark.parametrize("cut", [None, "written down"])
def test_days_expire(world, cut):
    """The format deletes them, the audit says so, counts included, and the job goes on; what
    a crash has left is done the next time."""
    day = 86_400_000_000
    for number in range(1, 4):
        first = 1 + (2 + number) * SIZE
        at = 1_772_366_400_000_000 - number * day
        world.spool.events("gw", first, SIZE, received_at=at, flaws={3: "invalid-json"})
    world.run(6)
    before = date(2026, 2, 28)
    sink = world.sink()
    sink.recover()
    asked = {"events": before, "quarantine": date(2026, 2, 27), "stats": before}
    if cut is not None:
        world.cut = cut
        with pytest.raises(PowerCut):
            list(sink.expire(asked, lambda: False))
        world.cut = None
        sink = world.sink()
        sink.recover()
    done = sum(one.rows for one in sink.expire(asked, lambda: False))
    assert list(sink.expire(asked, lambda: False)) == []
    events, stats = world.kind.tables(world.config, world.spark)
    assert done == 2 * SIZE - 1
    left = Counter(str(row.date) for row in events.rows().collect())
    assert left["2026-02-26"] == 0
    assert left["2026-02-27"] == 1
    assert min(str(row.date) for row in stats.rows().collect()) >= "2026-02-28"
    reader = {"delta": "deltalake", "iceberg": "pyiceberg"}[world.config.spark.sink]
    world.spool.events("gw", 61, SIZE)
    world.run(7, sink=sink)
    world.sink().recover()
    for name in world.spool.names():
        (world.spool.path / name).unlink()
    if importlib.util.find_spec(reader) is not None:
        report = audit(Directories.under(world.config.data_dir))
        assert report.complete, report
        assert report.count("expired") == 2 * SIZE - 1
    assert events.rows().count() == 7 * SIZE - 2 * SIZE + 1


def test_a_lost_ledger_of_counts_that_stay_longer(world, monkeypatch):
    """It is made of the days that both tables have, as long as they agree; else the start says
    which table to drop."""
    old = 1_772_366_400_000_000 - 86_400_000_000
    world.spool.events("gw", 31, SIZE, received_at=old)
    world.run(4)
    sink = world.sink()
    sink.recover()
    list(sink.expire({"events": date(2026, 3, 1)}, lambda: False))
    _, stats = world.kind.tables(world.config, world.spark)
    committed = stats.open().committed
    whole = type(stats)._newest

    def of_stats(self: Any) -> Any:
        return lost(self) if self.name == stats.name else whole(self)

    with monkeypatch.context() as patch:
        patch.setattr(type(stats), "_newest", of_stats)
        sink = world.sink()
        sink.recover()
        assert sink._counted.committed == committed
    stats.delete("date >= DATE'2026-03-01'")
    with monkeypatch.context() as patch:
        patch.setattr(type(stats), "_newest", of_stats)
        with pytest.raises(Broken, match="it counts 0 events of 30, on days that both"):
            world.sink().recover()


def test_counts_are_taken_back_of_the_rows_that_go(world):
    """Though the condition is true of other rows a moment later, as one with the time of day."""
    world.config.spool.s3 = None
    world.run(3)
    said = Asked("rand() < 0.5", "case 1")
    list(delete(world.config, world.spark, Lake(), said))
    events, stats = world.kind.tables(world.config, world.spark)
    counted = stats.rows().groupBy().sum("events").collect()[0][0]
    assert counted == events.rows().count() < 3 * SIZE


@pytest.mark.parametrize("cut", [None, "deleted", "counted"])
def test_rows_are_deleted_on_purpose(world, cut):
    """By the format's own DELETE, counts included and once, whatever is cut off; the job goes
    on, the audit knows, and a purge leaves no byte of them."""
    world.config.spool.s3 = None
    texts = [b'{"message": "%s secret"}' % name for name in (b"ann", b"bob", b"ann")]
    world.spool.put("gw", 31, texts, flaws={2: "odd"})
    world.run(4)
    for name in world.spool.names():
        (world.spool.path / name).unlink()
    said = Asked("coalesce(body, cast(payload AS string)) LIKE '%ann%'", "case 1")
    events, stats = world.kind.tables(world.config, world.spark)
    [(_, dry)] = delete(world.config, world.spark, Lake(), said, dry_run=True)
    assert (dry["events"], dry["counts"]) == (2, {"events": 1, "quarantine": 1})
    with pytest.MonkeyPatch.context() as patch:
        if cut is not None:
            table = type(events)
            name = {"deleted": "delete", "counted": "append"}[cut]
            whole = getattr(table, name)

            def killed(self: Any, *how: Any, **more: Any) -> None:
                whole(self, *how, **more)
                raise PowerCut

            patch.setattr(table, name, killed)
            with pytest.raises(PowerCut):
                list(delete(world.config, world.spark, Lake(), said))
    told = list(
        delete(
            *(world.config, world.spark, Lake(), None if cut else said),
            purge=True,
        )
    )
    assert told[0][1]["done"] is True
    assert {row.lsn for row in events.rows().collect()} == {*range(1, 31), 32}
    counted = stats.rows().groupBy().sum("events", "flawed").collect()[0]
    assert tuple(counted) == (31, 0)
    files = events.rows().inputFiles()  # of Iceberg none
    files = files or [
        row.file_path for row in world.spark.table(f"{events.name}.files").collect()
    ]
    places = [urlsplit(one).path for one in files]
    for path in Path(os.path.commonpath(places)).parent.rglob("*.parquet"):
        content = str(pq.ParquetFile(path).read().to_pylist())
        assert "ann secret" not in content, path
    world.spool.events("gw", 34, SIZE)
    world.logs.lose()
    world.run(1)
    world.sink().recover()
    assert events.rows().count() == 31 + SIZE
    reader = {"delta": "deltalake", "iceberg": "pyiceberg"}[world.config.spark.sink]
    if importlib.util.find_spec(reader) is not None:
        report = audit(Directories.under(world.config.data_dir))
        assert report.complete, report
        assert report.count("deleted") == 2


@pytest.mark.lowest
def test_what_is_not_counted_yet_is_not_deleted(world):
    """Or counts would be taken back that are none: the next start counts first."""
    world.config.spool.s3 = None
    world.cut = "committed"
    with pytest.raises(PowerCut):
        world.run(1)
    world.cut = None
    said = Asked("lsn = 3", "case 1")
    with pytest.raises(Busy, match="does not count just what"):
        list(delete(world.config, world.spark, Lake(), said))
    world.sink().recover()
    list(delete(world.config, world.spark, Lake(), said))
    check_counted(world)


def test_counts_are_taken_back_after_a_job_in_between(world, monkeypatch):
    """Of a deletion that was cut off before it: once, when the next call goes on."""
    world.config.spool.s3 = None
    world.run(3)
    events, _ = world.kind.tables(world.config, world.spark)

    def killed(*_: Any, **__: Any) -> None:
        raise PowerCut

    said = Asked("lsn = 3", "case 1")
    with monkeypatch.context() as patch:
        patch.setattr(type(events), "append", killed)
        with pytest.raises(PowerCut):
            list(delete(world.config, world.spark, Lake(), said))
    world.spool.events("gw", 31, SIZE)
    world.run(4)
    for name in world.spool.names():  # as the job's cleaner does it
        (world.spool.path / name).unlink()
    for _ in range(2):
        list(delete(world.config, world.spark, Lake(), None))
        check_counted(world)


def check_counted(world: World) -> None:
    """`stats` counts just the rows."""
    events, stats = world.kind.tables(world.config, world.spark)
    counted = stats.rows().groupBy().sum("events").collect()[0][0]
    assert counted == events.rows().count()
