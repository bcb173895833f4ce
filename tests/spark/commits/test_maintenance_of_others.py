"""Others compact the table, delete its rows, change its columns while the job runs."""

from collections import Counter

import pytest

from format_tables import (
    MARKS,
    ONLY_ICEBERG,
)
from gateway.audit import audit
from gateway.spark.commit.lakedisk import Lake
from gateway.store.directories import Directories

pytestmark = MARKS


#: A user's own maintenance, which leaves nothing but the table as it is.
NIGHTLY = {
    "iceberg": (
        (
            "CALL lake.system.rewrite_data_files(table => '{name}',"
            " options => map('rewrite-all', 'true'))"
        ),
        "CALL lake.system.rewrite_manifests('{name}')",
        (
            "CALL lake.system.expire_snapshots(table => '{name}',"
            " older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
        ),
    ),
    "delta": (
        "OPTIMIZE {name}",
        "SET spark.databricks.delta.retentionDurationCheck.enabled = false",
        "VACUUM {name} RETAIN 0 HOURS",
    ),
}


def test_others_may_look_after_the_table_while_the_job_runs(world):
    """They compact it, expire what was, delete rows; what comes after that is there once,
    also with no checkpoint.  The deleted rows are not taken for events that never came, if
    the ledger was carried on before all else was expired."""
    sink = world.sink()
    sink.recover()
    name = sink._events.name
    name = f"delta.`{name}`" if world.config.spark.sink == "delta" else name

    def nightly() -> None:
        for statement in NIGHTLY[world.config.spark.sink]:
            world.spark.sql(statement.format(name=name)).collect()

    world.run(1, sink=sink)
    nightly()
    world.run(2, sink=sink)
    world.spark.sql(f"DELETE FROM {name} WHERE lsn = 5")
    list(world.kind.maintain(world.config, world.spark, Lake(), 7))
    nightly()
    world.run(3, sink=sink)
    world.sink().recover()
    world.logs.lose()
    world.run(1, files=3)
    found = Counter((row.node, row.lsn) for row in world.events().rows().collect())
    assert found == world.spool.produced - Counter([("gw", 5)])


@pytest.mark.lowest
def test_rows_that_others_delete_are_said_by_the_audit(world):
    """Merged on read, they are in the files still: no false word that all is there."""
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[
        world.config.spark.sink
    ])  # fmt: skip
    world.run(3)
    name, key, value = world.events().name, "write.delete.mode", "merge-on-read"
    if world.config.spark.sink == "delta":
        name, key, value = f"delta.`{name}`", "delta.enableDeletionVectors", "true"
    world.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{key}' = '{value}')")
    world.spark.sql(f"DELETE FROM {name} WHERE lsn = 5")
    sink = world.sink()
    sink.recover()
    sink._tell()
    report = audit(Directories.under(world.config.data_dir))
    assert not report.complete
    assert "rows of it are deleted by others" in report.problems[0].why


@ONLY_ICEBERG
@pytest.mark.parametrize(
    "change",
    [
        "ADD COLUMN mine STRING FIRST",
        "DROP COLUMN flaw",
        "RENAME COLUMN host TO machine",
        "DROP COLUMN host",
    ],
)
def test_columns_that_others_change_while_the_job_runs(world, change):
    """Theirs are null in what comes; ours that are gone begin again.  A compaction sorts by
    those that are there."""
    sink = world.sink()
    sink.recover()
    world.run(1, sink=sink)
    world.spark.sql(f"ALTER TABLE {world.events().name} {change}")
    list(world.kind.maintain(world.config, world.spark, Lake(), 7))
    world.run(3, sink=sink)
    world.check_complete()
    found = world.events().rows()
    assert {"flaw", "host"} <= set(found.columns)
