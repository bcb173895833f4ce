"""Several jobs on one table, and two of one name."""

from collections import Counter
from datetime import date
from typing import Any

import pytest

from format_tables import (
    MARKS,
    SIZE,
    check_both,
)
from gateway.audit import audit
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken
from gateway.spark.commit.partition import Busy
from gateway.spark.later.deletion import Asked, delete
from gateway.store.directories import Directories
from played_spark import PowerCut

pytestmark = MARKS


@pytest.mark.lowest
def test_of_two_jobs_one_commits(world):
    """The other is told, stops, and finds nothing left to do when it starts again."""
    one, other = world.sink(), world.sink()
    one.recover()
    other.recover()
    world.run(1, files=3, sink=one)
    with pytest.raises(Broken, match="another job has made commit 1 of this table"):
        other(None, 0)
    other.recover()
    other(None, 0)
    world.check_complete()


def test_several_jobs_on_one_table(world, beside, monkeypatch):
    """One that was alone goes on as it was; each is killed while the other commits, each
    maintains, and then both lose their checkpoints, and one the commits it had made."""
    world.run(1)
    for one, point, batches in ((beside, "begun", 1), (world, "committed", 2)):
        one.cut = point
        with pytest.raises(PowerCut):
            one.run(batches)
        one.cut = None
    beside.run(1)
    one, other = (each.sink() for each in (world, beside))
    one.recover()
    other.recover()
    if world.config.spark.sink == "iceberg":  # as it publishes, the other was there
        publish = one._events.publish

        def late(*how: Any) -> None:
            beside.run(2, sink=other)
            publish(*how)

        one._events.publish = late
    world.run(3, sink=one)
    beside.run(3, sink=other)
    check_both(world, beside)
    monkeypatch.setattr("gateway.sinks.iceberg_snapshots._MOST_SNAPSHOTS", 1)
    for each in (world, beside):
        list(each.kind.maintain(each.config, each.spark, Lake(), 7))
    for each in (world, beside):
        assert len(each.events().open().committed) == 3 * SIZE
        each.spool.events("gw" if each is world else "far", 1 + 3 * SIZE, SIZE)
        each.logs.lose()
        each.run(1, files=4)
    check_both(world, beside)


def test_jobs_of_one_name_or_node_refuse_each_other(world, beside):
    """Whichever commits first; nothing is doubled.  A name is one job's for good."""
    world.run(1)
    one, same = beside.sink(), beside.sink()
    one.recover()
    same.recover()
    beside.run(1, sink=one)
    with pytest.raises(Broken, match="another job has made commit 1 of this table"):
        same(None, 0)
    beside.spool.events("gw", 1, SIZE)
    with pytest.raises(Broken, match=r"node gw is one of the job without a name"):
        beside.run(4, sink=one)
    beside.config.spark.job = "c"
    with pytest.raises(Broken, match=r"is that of spark.sink: .*, b\), not of .*, c\)"):
        beside.sink()
    rows = world.events()._all_rows()
    assert rows.where("node = 'gw'").count() == SIZE


def test_a_job_deletes_and_expires_its_own_rows(world, beside):
    """And no other's, whose audit stays complete; nobody purges beside others."""
    for each in (world, beside):
        each.config.spool.s3 = None
        each.run(3)
        for name in each.spool.names():
            (each.spool.path / name).unlink()
    list(delete(world.config, world.spark, Lake(), Asked("lsn <= 5", "case 1")))
    said = Asked("lsn <= 6", "case 2")
    with pytest.raises(Busy, match=r"other jobs write it, too \(b\)"):
        list(delete(world.config, world.spark, Lake(), said, purge=True))
    rows = world.events()._all_rows()
    assert rows.count() == 6 * SIZE - 5
    beside.check_complete()
    sink = world.sink()
    sink.recover()
    list(sink.expire({"events": date(2026, 12, 1)}, lambda: False))
    left = Counter(row.node for row in world.events()._all_rows().collect())
    assert left == {"far": 3 * SIZE}
    world.sink().recover()
    beside.check_complete()
    report = audit(Directories.under(world.config.data_dir))
    assert report.complete, report
