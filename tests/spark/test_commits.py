"""Delta and Iceberg: each event once, whatever is killed, lost, doubled, compacted.

These need a Spark that fits the formats' jars, which are on Maven Central: `make lowest`
has one, in a process of its own.  Checkpoints are played, as in `test_parquet.py`.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

from deadlines import eventually
from gateway.audit import audit
from gateway.config import model
from gateway.config.bucket import BucketUrl
from gateway.config.columns import Column
from gateway.sinks.delta import kind as delta
from gateway.sinks.iceberg import kind as iceberg
from gateway.spark import footers, job, s3a, session
from gateway.spark.commits import CommitSink, opened
from gateway.spark.deletion import Asked, delete
from gateway.spark.formats import Format, merged
from gateway.spark.lakedisk import Lake
from gateway.spark.ledger import Broken, Hole, Ranges
from gateway.spark.partition import Busy
from gateway.spark.sink import Committed, Parts
from gateway.store.directories import Directories
from gateway_testkit.settings import options_of
from played_spark import PowerCut, SparkLogs, Stream
from small_s3 import SmallS3, small_s3

KINDS: dict[str, Format] = {"delta": delta, "iceberg": iceberg}

pytestmark = [
    pytest.mark.spark,
    pytest.mark.needs_maven,
    pytest.mark.skipif(
        not all(one.fits(pyspark.__version__) for one in KINDS.values()),
        reason=f"no jars fit Spark {pyspark.__version__}; `make lowest` has one they fit",
    ),
]

SIZE = 10

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.explainMode": "simple",
}
"""Here are many plans of few rows: compiling each took a third of the CPU.  What a job has
compiled commits in `test_earlier_tables.py` and `test_lost_executors.py`."""


def lost(_table: Any) -> dict[str, Any]:
    """What a table says whose ledgers somebody's maintenance has removed."""
    return {}


@pytest.fixture(scope="module")
def server() -> Iterator[SmallS3]:
    """A bucket that the session reaches."""
    with small_s3() as server:
        yield server


def reached(server: SmallS3) -> model.S3:
    return options_of(
        model.S3,
        endpoint=server.url,
        region="eu",
        access_key_id="k",
        secret_access_key="s",
    )


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory, server: SmallS3) -> Iterator[Any]:
    """One session for both formats, and a catalog in SQLite."""
    home = tmp_path_factory.mktemp("catalog")
    more: dict[str, str] = {}
    for name, kind in KINDS.items():
        asked = SimpleNamespace(sink=name, jars_directory=None, conf={})
        more = merged(more, kind.settings(asked, home, pyspark.__version__))
    catalog = "spark.sql.catalog.sqlite"
    more = merged(
        more,
        {
            "spark.jars.packages": "org.xerial:sqlite-jdbc:3.50.3.0",
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.type": "jdbc",
            f"{catalog}.uri": f"jdbc:sqlite:{home}/catalog.db",
            f"{catalog}.jdbc.schema-version": "V1",
            f"{catalog}.warehouse": f"file://{home}/sqlite",
        },
    )
    spool = options_of(
        model.Spool,
        directory=BucketUrl("bucket", "spool"),
        s3=reached(server),
    )
    more = merged(more, s3a.settings(spool, pyspark.__version__))
    asked = SimpleNamespace(
        master="local[2]", driver_memory="1g", ui=False, conf=INTERPRETED
    )
    try:
        running = session.start(asked, home / "warehouse", more)
    except Exception as why:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"Spark did not start; are its jars out of reach? {why}")
    yield running
    running.stop()


@dataclass
class World(Stream):
    """A spool, a checkpoint, and tables of one format."""

    spark: Any
    config: SimpleNamespace
    done: list[Committed] = field(default_factory=list)

    @property
    def kind(self) -> Format:
        return KINDS[self.config.spark.sink]

    def sink(self) -> Any:
        made = self.kind.make(
            Parts(self.config, self.spark, self.checkpoint, Lake(), self.done.append)
        )
        assert isinstance(made, CommitSink)
        made._point = self.point
        return made

    def events(self) -> Any:
        return self.kind.tables(self.config, self.spark)[0]

    def check_complete(self) -> None:
        """The table has each event of the spool once, says the audit, too; so has `stats`."""
        events, stats = self.kind.tables(self.config, self.spark)
        found = Counter((r.node, r.lsn) for r in events.rows().collect())
        assert found == self.spool.produced
        assert events.open().committed == stats.open().committed
        counted = stats.rows().groupBy().sum("events").collect()[0][0]
        assert counted == len(self.spool.produced)
        reader = {"delta": "deltalake", "iceberg": "pyiceberg"}[self.config.spark.sink]
        if importlib.util.find_spec(reader) is not None:
            report = audit(Directories.under(self.config.data_dir))
            assert report.complete, report


def of(name: str) -> Any:
    """The format *name*: of its tests one process has all, and one session for them."""
    return pytest.param(name, marks=pytest.mark.xdist_group(name))


@pytest.fixture(params=[of(name) for name in sorted(KINDS)])
def world(
    request: pytest.FixtureRequest,
    spark: Any,
    config: SimpleNamespace,
    logs: Callable[[str], Any],
    spool: Any,
    tmp_path: Path,
) -> World:
    config.spark.sink = request.param
    config.spark.table = None
    if request.param == "iceberg":
        config.spark.table = f"lake.{tmp_path.name.replace('-', '_')}.events"
    for batch in range(3):
        spool.events("gw", 1 + batch * SIZE, SIZE)
    made = World(logs("events"), spool, spark, config)
    made.logs.begin()
    return made


def test_the_whole_job(world: World, tmp_path: Path) -> None:
    """Spark's own stream, killed checkpoints and new columns included."""
    world.spool.put("gw", 31, [b'{"status": 200}', b"{"], flaws={1: "invalid-json"})
    job.run(world.config, world.spark, available_now=True)
    shutil.rmtree(world.config.data_dir / "checkpoint")
    world.config.spark.columns = {"status": Column(path="status", type="int")}
    world.spool.put("gw", 33, [b'{"status": 404}'])
    job.run(world.config, world.spark, available_now=True)
    world.check_complete()
    rows = {row.lsn: row for row in world.events().rows().collect()}
    assert (rows[32].flaw, bytes(rows[32].payload)) == ("invalid-json", b"{")
    assert (rows[31].status, rows[33].status) == (None, 404)
    assert rows[1].host == "host-1"
    assert world.spool.names() == []


def test_a_cluster_reads_each_file_of_a_bucket_once(
    world: World, server: SmallS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events and counts of a batch by one read of its files, whose names and sizes are known:
    no request but those of the tasks, and nobody looks at what else is there.  Of the files
    the driver has nothing but the footers."""
    monkeypatch.setattr("gateway.spark.s3a._elsewhere", lambda config, master: True)
    world.spool.path = world.spool.path.rename(tmp_path / "data" / "inbox")
    world.config.spool.bucket = BucketUrl("bucket", "spool")
    for path in world.spool.path.iterdir():
        server.objects[f"bucket/spool/{path.name}"] = data = path.read_bytes()
        footer = data[-footers.length(data) :]
        path.write_bytes(footer.rjust(len(data), b"\0"))
    server.objects["bucket/spool/events-gw-1-1.parquet"] = b"nobody asks for it"
    asked: Counter[tuple[str, str]] = Counter()
    server.before = lambda method, path: asked.update([(method, path)])
    world.run(1, files=3)
    names = [f"/bucket/spool/{name}" for name in world.spool.names()]
    assert asked == {(method, name): 1 for name in names for method in ("HEAD", "GET")}
    world.config.spool.bucket = None
    world.check_complete()


def test_a_damaged_object_of_a_cluster_is_moved_aside(
    world: World, server: SmallS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, though the driver had nothing but its footer, which is not damaged; what else
    the batch has is in the table."""
    monkeypatch.setattr("gateway.spark.s3a._elsewhere", lambda config, master: True)
    monkeypatch.setattr("gateway.spark.inbox._FOOTER_BYTES", 64)
    world.config.spool.bucket = BucketUrl("bucket", "spool")
    world.config.spool.s3 = reached(server)
    server.objects.clear()
    for path in sorted(world.spool.path.iterdir()):
        data = bytearray(path.read_bytes())
        if "-00000000000000000011-" in path.name:
            data[100] ^= 1
        server.objects[f"bucket/spool/{path.name}"] = bytes(data)
        path.unlink()
    job.run(world.config, world.spark, available_now=True)
    rows = sorted(row.lsn for row in world.events().rows().collect())
    assert rows == [*range(1, SIZE + 1), *range(2 * SIZE + 1, 3 * SIZE + 1)]
    [aside] = (world.config.data_dir / "poison").glob("*.parquet")
    assert server.objects[f"bucket/spool/{aside.name}"] == aside.read_bytes()
    assert "-00000000000000000011-" in aside.name


def test_rows_of_before_get_the_columns_that_came_later(world: World) -> None:
    """A day a commit, while the job goes on; what else is in these rows stays, the ledger
    is carried on, and the audit is complete.  Columns must be named, and keep their type."""
    world.spool.put(
        "gw", 31, [b'{"status": 200, "message": "m"}', b"{"], flaws={1: "bad"}
    )
    sink = world.sink()
    sink.recover()
    world.run(4, sink=sink)
    before = {row.lsn: row.asDict() for row in world.events().rows().collect()}
    world.config.spark.columns = {"status": Column(path="status", type="int")}

    def backfill(*names: str) -> list[str]:
        return list(world.kind.backfill(world.config, world.spark, Lake(), names))

    assert len(backfill("status")) == 1
    world.spool.put("gw", 33, [b'{"status": 404}'])
    world.run(5, sink=sink)
    world.check_complete()
    after = {row.lsn: row.asDict() for row in world.events().rows().collect()}
    assert {lsn: after[lsn]["status"] for lsn in (1, 31, 32)} == {
        1: None,
        31: 200,
        32: None,
    }
    for lsn, row in before.items():
        assert row.items() <= after[lsn].items()
    world.logs.lose()
    world.run(1, files=5)
    world.check_complete()
    with pytest.raises(Broken, match="say which columns"):
        backfill()
    world.config.spark.columns = {"status": Column(path="status", type="string")}
    with pytest.raises(Broken, match=r"status of .* is int and stays so"):
        backfill("status")


def test_partitions_and_filters_of_ones_own(world: World) -> None:
    """As the configuration has them when the table begins; filters also later."""
    asked = world.config.spark
    asked.partition_by = ["date", "host"]
    if asked.sink == "iceberg":
        asked.partition_by = ["date", "hours(event_time)", "bucket(4, host)"]
    world.run(1)
    asked.partition_by = ["protocol", "date"]
    asked.bloom_filters = ["agent_id"]
    world.run(3)
    world.check_complete()
    if asked.sink == "iceberg":
        table = world.events()._table()
        found = [str(one.name()) for one in table.spec().fields()]
        assert found == ["date", "event_time_hour", "host_bucket"]
        key = "write.parquet.bloom-filter-enabled.column.agent_id"
        assert table.properties().get(key) == "true"
    else:
        name = world.events().name
        detail = world.spark.sql(f"DESCRIBE DETAIL delta.`{name}`").collect()[0]
        assert detail["partitionColumns"] == ["date", "host"]


def test_what_is_known_of_commits_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there were, few are kept, and their words have no columns' types: the
    next start finds them in the table, and the whole ledger."""
    monkeypatch.setattr("gateway.sinks.iceberg._MOST_SNAPSHOTS", 3)
    monkeypatch.setattr("gateway.sinks.iceberg._MANY_MANIFESTS", 2)
    for batch in range(3, 8):
        world.spool.events("gw", 1 + batch * SIZE, SIZE)
    sink = world.sink()
    sink.recover()
    world.run(6, sink=sink)
    said = list(
        world.kind.maintain(world.config, world.spark, Lake(), 7, thorough=False)
    )
    if world.config.spark.sink == "iceberg":
        table = world.events()._table()
        assert len(list(table.snapshots())) <= 3 + 1
        assert table.currentSnapshot().allManifests(table.io()).size() <= 2
        words = [one.summary().get("gateway.ledger") for one in table.snapshots()]
        assert all(json.loads(text)["types"] == {} for text in words if text)
        assert any("manifests, now" in line for line in said)
    world.run(7, sink=sink)
    found = opened(world.events())
    assert found.types["lsn"] == "bigint"
    assert found.types["attributes"] == "map<string,string>"
    world.logs.lose()
    world.run(1, files=8)
    world.check_complete()


@pytest.mark.parametrize("world", [of("delta")], indirect=True)
def test_delta_files_are_found_by_what_readers_look_for(world: World) -> None:
    """Least and greatest of these columns, and of no others, which cost to find."""
    world.run(1)
    table = Path(world.events().name.removeprefix("file://"))
    log = (table / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    [stats] = [json.loads(line)["add"]["stats"] for line in log if "add" in line[:6]]
    found = json.loads(stats)
    assert set(found["nullCount"]) == {"event_time", "received_at", "lsn"}
    assert (found["minValues"]["lsn"], found["maxValues"]["lsn"]) == (1, SIZE)


@pytest.mark.parametrize("world", [of("delta")], indirect=True)
def test_deltas_own_compaction_has_nothing_counted_twice(world: World) -> None:
    """It is a commit of the same session, right behind that of a batch, and of all batches."""
    own = "spark.databricks.delta.autoCompact"
    settings = {f"{own}.enabled": "true", f"{own}.minNumFiles": "2"}
    for key, value in settings.items():
        world.spark.conf.set(key, value)
    try:
        world.run(3)
    finally:
        for key in settings:
            world.spark.conf.unset(key)
    history = world.spark.sql(f"DESCRIBE HISTORY delta.`{world.events().name}`")
    assert "OPTIMIZE" in {row.operation for row in history.collect()}
    world.check_complete()


@pytest.mark.parametrize(
    ("point", "checkpoint"), [("committed", "lost"), ("counted", "kept")]
)
def test_killed_at_any_point(world: World, point: str, checkpoint: str) -> None:
    """What was committed is not committed again, and what was not is."""
    world.survive(point, 3, lost=checkpoint == "lost")
    world.check_complete()


class Reader(threading.Thread):
    """Reads a table again and again; keeps what it must not see."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._over = threading.Event()
        self.looks = 0
        self.wrong: list[Any] = []

    def run(self) -> None:
        before: Counter[Any] = Counter()
        events = self._world.events()
        while not self._over.wait(0.01):
            rows = events.rows().select("node", "lsn").collect()
            seen = Counter((row.node, row.lsn) for row in rows)
            self.looks += 1
            if set(seen.values()) != {1} or len(seen) % SIZE or before - seen:
                self.wrong.append(seen)
            before = seen

    def look_again(self) -> None:
        """Wait until it has."""
        seen = self.looks
        eventually(lambda: self.looks > seen + 1 or not self.is_alive(), "a look")
        assert self.is_alive()

    def stop(self) -> None:
        self._over.set()
        self.join()


def test_a_reader_that_looks_all_the_while(world: World) -> None:
    """Cut off at every point, started again, compacted: it sees whole batches, each event
    once, and never less than before."""
    batches = 6
    for batch in range(3, batches):
        world.spool.events("gw", 1 + batch * SIZE, SIZE)
    world.run(1)
    reader = Reader(world)
    reader.start()
    try:
        points = itertools.cycle(("begun", "committed", "counted"))
        for batch in range(1, batches - 1):
            world.cut = next(points)
            with pytest.raises(PowerCut):
                world.run(batch + 1)
            world.cut = None
            if batch % 3 == 0:
                list(world.kind.maintain(world.config, world.spark, Lake(), 7))
            reader.look_again()
        world.run(batches)
        reader.look_again()
    finally:
        reader.stop()
    assert reader.wrong == []
    world.check_complete()


def test_columns_of_ones_own(world: World) -> None:
    """Called as SQL's own words, and without one that a compaction would sort by."""
    names = ("null", "order", "text", "current_date")
    world.config.spark.columns = {name: Column(path=name) for name in names}
    world.config.spark.columns["host"] = None
    world.spool.put("gw", 1 + 3 * SIZE, [b'{"null": "a", "order": "b", "text": "c"}'])
    world.run(1)
    world.run(2)
    world.run(1 + 3)
    list(world.kind.maintain(world.config, world.spark, Lake(), 7))
    world.check_complete()
    (row,) = world.events().rows().where(f"lsn = {1 + 3 * SIZE}").collect()
    assert [row[name] for name in names] == ["a", "b", "c", None]
    assert "host" not in row.asDict()


def test_of_two_jobs_one_commits(world: World) -> None:
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


@pytest.fixture
def beside(
    world: World,
    make_config: Callable[[Path], SimpleNamespace],
    make_spool: Callable[[Path], Any],
    tmp_path: Path,
) -> World:
    """Another job on its table, with a data directory, a prefix and a name of its own."""
    data, spark = tmp_path / "beside", world.config.spark
    config = make_config(data)
    config.spark.sink = spark.sink
    config.spark.table = spark.table or str(tmp_path / "data/lake/delta/events")
    config.spark.job = "b"
    spool = make_spool(data / "spool")
    for batch in range(3):
        spool.events("far", 1 + batch * SIZE, SIZE)
    made = World(SparkLogs(data / "checkpoint/events"), spool, world.spark, config)
    made.logs.begin()
    return made


def check_both(world: World, beside: World) -> None:
    """Every event of both jobs is in the one table, once, and the audit of each complete."""
    rows = world.events()._all_rows().select("node", "lsn").collect()
    found = Counter((row.node, row.lsn) for row in rows)
    assert found == world.spool.produced + beside.spool.produced
    world.check_complete()
    beside.check_complete()


def test_several_jobs_on_one_table(
    world: World, beside: World, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setattr("gateway.sinks.iceberg._MOST_SNAPSHOTS", 1)
    for each in (world, beside):
        list(each.kind.maintain(each.config, each.spark, Lake(), 7))
    for each in (world, beside):
        assert len(each.events().open().committed) == 3 * SIZE
        each.spool.events("gw" if each is world else "far", 1 + 3 * SIZE, SIZE)
        each.logs.lose()
        each.run(1, files=4)
    check_both(world, beside)


def test_jobs_of_one_name_or_node_refuse_each_other(
    world: World, beside: World
) -> None:
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


def test_a_job_deletes_and_expires_its_own_rows(world: World, beside: World) -> None:
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


def test_a_compaction_carries_the_ledger_on(world: World) -> None:
    """So that the next start knows it, with no checkpoint; the job goes on meanwhile, under
    the settings that its session had."""

    def settings() -> dict[str, str | None]:
        return {key: world.spark.conf.get(key, None) for key in world.kind.conf}

    sink = world.sink()
    sink.recover()
    world.run(2, sink=sink)
    before = settings()
    said = list(world.kind.maintain(world.config, world.spark, Lake(), 7))
    assert settings() == before
    assert any("2 data files, now 1" in line for line in said)
    world.run(3, sink=sink)
    list(world.kind.maintain(world.config, world.spark, Lake(), 7))
    world.logs.lose()
    world.run(1, files=3)
    world.check_complete()


def test_a_ledger_that_is_gone_is_made_of_the_rows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's maintenance may remove the commits that had it."""
    world.run(2)
    world.logs.lose()
    events = world.events()
    with monkeypatch.context() as patch:
        patch.setattr(type(events), "_newest", lost)
        assert opened(events).committed == Ranges({"gw": [(1, 2 * SIZE)]})
        sink = world.sink()
        sink.recover()
    world.run(1, files=3, sink=sink)
    world.check_complete()


def test_what_rows_do_not_say_is_in_the_copy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that is made of the rows has the holes that the last one had, and the
    columns' types: or nobody would know of the ones, and another type would be taken."""
    name = world.spool.names()[2]
    sink = world.sink()
    sink.recover()
    sink.note(Hole("gw", 1 + 2 * SIZE, 3 * SIZE, name, "cut short", 1.0))
    world.run(2, sink=sink)
    before = sink.ledger
    with monkeypatch.context() as patch:
        patch.setattr(type(world.events()), "_newest", lost)
        sink = world.sink()
        sink.recover()
        assert sink.ledger.holes == before.holes
        types = {"lsn": "bigint", "event_time": "timestamp", "body": "string"}
        assert types.items() <= sink.ledger.types.items()
        (world.config.data_dir / "lake" / ".gateway" / "events.json").unlink()
        sink.recover()
        assert sink.ledger.holes == ()


def set_back(world: World, name: str, to: int = 0) -> None:
    """To its first commit, or to one behind it."""
    if world.config.spark.sink == "delta":
        world.spark.sql(f"RESTORE TABLE delta.`{name}` TO VERSION AS OF {to}")
        return
    history = f"SELECT snapshot_id FROM {name}.history ORDER BY made_current_at"
    wanted = world.spark.sql(history).collect()[to][0]
    catalog, _, table = name.partition(".")
    world.spark.sql(
        f"CALL {catalog}.system.rollback_to_snapshot('{table}', {wanted})"
    ).collect()


def test_a_table_that_was_set_back_stops_the_job(world: World) -> None:
    """While it runs, and at its start: what the table lacks is not taken for committed.
    Put back into the spool it is there again, once."""
    sink = world.sink()
    sink.recover()
    world.run(2, sink=sink)
    for table in world.kind.tables(world.config, world.spark):
        set_back(world, table.name)
    with pytest.raises(Broken, match="was set back"):
        world.run(3, sink=sink)
    with pytest.raises(Broken, match=r"older than .*lacks 1 files"):
        world.sink().recover()
    if world.config.spark.sink == "iceberg":  # nothing of it is dropped
        kept = f"SELECT count(*) FROM {world.events().name}.snapshots"
        assert world.spark.sql(kept).collect()[0][0] == 2
    world.logs.lose()
    world.run(1, files=3)
    world.check_complete()
    world.logs.lose()
    world.run(1, files=3)
    world.check_complete()


def test_a_table_of_several_jobs_that_was_set_back(world: World, beside: World) -> None:
    """Each job goes on with what the table has of its own nodes, whichever starts first: it
    takes no other's rows for its own, and what is put back into the spool is there again.
    """
    both = world, beside
    for each in both:
        each.run(1)
    events = world.events().name
    whole = world.spark.sql(
        f"DESCRIBE HISTORY delta.`{events}`"
        if world.config.spark.sink == "delta"
        else f"SELECT * FROM {events}.history"
    ).count()
    for each in both:
        each.run(2)
    set_back(world, events, whole - 1)
    for each in both:
        for table in each.kind.tables(each.config, each.spark):
            if table.name != events:
                set_back(each, table.name)
    for each in both:
        with pytest.raises(Broken, match=r"older than .*lacks 1 files"):
            each.sink().recover()
        each.logs.lose()
        each.run(1, files=3)
    check_both(world, beside)


def test_a_table_that_was_set_back_to_a_compaction(world: World) -> None:
    """Where maintenance removed all that was before it."""
    if world.config.spark.sink != "iceberg":
        pytest.skip("Delta counts versions")
    sink = world.sink()
    sink.recover()
    world.run(2, sink=sink)
    list(world.kind.maintain(world.config, world.spark, Lake(), 7))
    events = sink._events
    table = events._table()
    events._expire(table, [*events._line(table)][1:])
    set_to = table.currentSnapshot().snapshotId()
    world.run(3, sink=sink)
    events._table().manageSnapshots().rollbackTo(set_to).commit()
    world.spool.events("gw", 1 + 3 * SIZE, SIZE)
    with pytest.raises(Broken, match="was set back"):
        world.run(4, sink=sink)
    assert events.rows().count() == 2 * SIZE


def test_a_table_that_is_set_back_as_a_batch_is_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit says what its writer had seen: the next start believes the rows."""
    if world.config.spark.sink != "delta":
        pytest.skip("Iceberg looks as it publishes")
    sink = world.sink()
    sink.recover()
    world.run(2, sink=sink)
    name = sink._events.name
    set_back(world, name)
    state = type(sink._events)._state

    def earlier(self: Any) -> tuple[int, int | None]:
        version, number = state(self)
        return (1 if self.name == name else version), number

    with monkeypatch.context() as patch:
        patch.setattr(type(sink._events), "_state", earlier)
        world.run(3, sink=sink)
    assert opened(world.events()).committed == Ranges(
        {"gw": [(1, SIZE), (1 + 2 * SIZE, 3 * SIZE)]}
    )


def test_a_table_that_is_set_back_just_before_anothers_commit(
    world: World, beside: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that looks what has come since its last look misses nothing of it, though more
    comes as it looks."""
    if world.config.spark.sink != "delta":
        pytest.skip("Iceberg looks as it publishes")
    sink, other = world.sink(), beside.sink()
    sink.recover()
    world.run(2, sink=sink)
    set_back(world, sink._events.name)
    other.recover()
    whole = type(sink._events)._history

    def late(self: Any, most: int | None) -> list[Any]:
        if self is sink._events and not beside.events()._numbers().get("b"):
            beside.run(1, sink=other)
        return whole(self, most)

    with monkeypatch.context() as patch:
        patch.setattr(type(sink._events), "_history", late)
        with pytest.raises(Broken, match="was set back"):
            world.run(3, sink=sink)


def test_what_was_read_of_a_history_is_not_read_again(
    world: World, beside: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long ago the last commit of a job is that is away."""
    if world.config.spark.sink != "delta":
        pytest.skip("its snapshots are in one file")
    monkeypatch.setattr("gateway.sinks.delta._FEW_COMMITS", (1, 2))
    beside.run(1)
    world.run(3)
    events, read = world.events(), list[Any]()
    whole = type(events)._history

    def noted(self: Any, most: int | None) -> list[Any]:
        read.append(most)
        return whole(self, most)

    monkeypatch.setattr(type(events), "_history", noted)
    there = events._newest()
    assert there.keys() == {"", "b"}
    assert read == [1, 2, None]
    assert events._newest() == there
    assert read == [1, 2, None]
    world.spool.events("gw", 1 + 3 * SIZE, SIZE)
    world.run(4)
    read.clear()
    now = events._newest()
    assert (now["b"], now[""]["sequence"]) == (there["b"], 4)
    assert read == [1]
    set_back(world, events.name)
    assert events._newest() == {}
    assert read == [1, 1, 1, 2, None]


def test_what_a_commit_added_is_known_without_a_look_at_the_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a bucket with a week of commits such a look is a hundred requests."""
    if world.config.spark.sink != "delta":
        pytest.skip("its snapshots are in one file")
    sink = world.sink()
    sink.recover()
    added = type(sink._events).added

    def unseen(self: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(type(self), "_now", lost)
            return added(self)

    monkeypatch.setattr(type(sink._events), "added", unseen)
    world.run(3, sink=sink)
    world.check_complete()


def test_rows_that_others_delete_are_said_by_the_audit(world: World) -> None:
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


def test_others_may_look_after_the_table_while_the_job_runs(world: World) -> None:
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


@pytest.mark.parametrize(
    "change",
    [
        "ADD COLUMN mine STRING FIRST",
        "DROP COLUMN flaw",
        "RENAME COLUMN host TO machine",
        "DROP COLUMN host",
    ],
)
def test_columns_that_others_change_while_the_job_runs(
    iceberg: World, change: str
) -> None:
    """Theirs are null in what comes; ours that are gone begin again.  A compaction sorts by
    those that are there."""
    world = iceberg
    sink = world.sink()
    sink.recover()
    world.run(1, sink=sink)
    world.spark.sql(f"ALTER TABLE {world.events().name} {change}")
    list(world.kind.maintain(world.config, world.spark, Lake(), 7))
    world.run(3, sink=sink)
    world.check_complete()
    found = world.events().rows()
    assert {"flaw", "host"} <= set(found.columns)


def test_what_can_not_be_read_is_noted_with_the_table(world: World) -> None:
    """Also before there is a table; a hole that is mended is none any more."""
    name = world.spool.names()[0]
    sink = world.sink()
    sink.recover()
    sink.note(Hole("gw", 1, SIZE, name, "cut short", 1.0))
    assert [one.file for one in opened(world.events()).holes] == [name]
    world.run(1, files=3)
    assert opened(world.events()).holes == ()
    world.check_complete()


def test_the_audit_reads_the_table(world: World) -> None:
    """Without Spark: from the files that the format names, compacted ones too."""
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[
        world.config.spark.sink
    ])  # fmt: skip
    world.run(2)
    list(world.kind.maintain(world.config, world.spark, Lake(), 7))
    report = audit(Directories.under(world.config.data_dir))
    assert report.complete
    assert not report.told
    (node,) = report.nodes
    assert (node.in_lake, node.in_spool) == (2 * SIZE, SIZE)


@pytest.fixture
def iceberg(world: World) -> World:
    if world.config.spark.sink != "iceberg":
        pytest.skip("its own fence")
    return world


@pytest.mark.parametrize("then", ["start", "compaction", "other job"])
def test_killed_between_staging_and_publishing(iceberg: World, then: str) -> None:
    """What is staged is seen by nobody, and never published beside its repetition."""
    world = iceberg
    world.run(1)
    sink = world.sink()
    sink.recover()
    table, publish = sink._events, sink._events.publish
    asked: list[Any] = []

    def killed(*how: Any) -> None:
        asked.append(how)
        raise PowerCut

    def late(*how: Any) -> None:
        list(world.kind.maintain(world.config, world.spark, Lake(), 7))
        publish(*how)

    if then == "compaction":
        table.publish = late
        world.run(3, sink=sink)
    else:
        other = world.sink()
        other.recover()
        table.publish = killed
        with pytest.raises(PowerCut):
            world.run(2, sink=sink)
        assert world.events().rows().count() == SIZE
    if then == "other job":
        other(None, 1)
        with pytest.raises(Broken, match="another job has made commit 2"):
            publish(*asked[0])
    world.logs.lose()
    world.run(1, files=3)
    world.check_complete()


def test_a_catalog_that_is_away(iceberg: World) -> None:
    """A start and a batch fail with its reason, and change nothing; once it answers
    again, all goes on."""
    world = iceberg
    world.config.spark.table = "sqlite.away.events"
    world.run(1)
    sink = world.sink()
    sink.recover()
    uri = world.spark.conf.get("spark.sql.catalog.sqlite.uri")
    other = sqlite3.connect(uri.removeprefix("jdbc:sqlite:"), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")  # nobody else is answered
    try:
        with pytest.raises(Exception, match=r"locked|SQLITE_BUSY|Failed to"):
            world.run(2, sink=sink)
        with pytest.raises(Exception, match=r"locked|SQLITE_BUSY|Failed to"):
            world.sink().recover()
    finally:
        other.execute("ROLLBACK")
        other.close()
    world.run(3)
    world.check_complete()


def test_a_catalog_of_ones_own(iceberg: World) -> None:
    """By plain Spark configuration, here JDBC with SQLite."""
    world = iceberg
    world.config.spark.table = "sqlite.company.events"
    job.run(world.config, world.spark, available_now=True)
    world.check_complete()
    list(world.kind.maintain(world.config, world.spark, Lake(), 7))
    world.check_complete()


@pytest.mark.parametrize("cut", [None, "written down"])
def test_days_expire(world: World, cut: str | None) -> None:
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
    done = sum(one.events for one in sink.expire(asked, lambda: False))
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
        assert report.expired == 2 * SIZE - 1
    assert events.rows().count() == 7 * SIZE - 2 * SIZE + 1


def test_a_lost_ledger_of_counts_that_stay_longer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_counts_are_taken_back_of_the_rows_that_go(world: World) -> None:
    """Though the condition is true of other rows a moment later, as one with the time of day."""
    world.config.spool.s3 = None
    world.run(3)
    said = Asked("rand() < 0.5", "case 1")
    list(delete(world.config, world.spark, Lake(), said))
    events, stats = world.kind.tables(world.config, world.spark)
    counted = stats.rows().groupBy().sum("events").collect()[0][0]
    assert counted == events.rows().count() < 3 * SIZE


@pytest.mark.parametrize("cut", [None, "deleted", "counted"])
def test_rows_are_deleted_on_purpose(world: World, cut: str | None) -> None:
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
    asked: Any = world.config
    folder = world.kind.folder(asked)
    assert folder is not None
    for path in folder.rglob("*.parquet"):
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
        assert report.deleted == 2


def test_what_is_not_counted_yet_is_not_deleted(world: World) -> None:
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


def test_counts_are_taken_back_after_a_job_in_between(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    for _ in range(2):
        list(delete(world.config, world.spark, Lake(), None))
        check_counted(world)


def check_counted(world: World) -> None:
    """`stats` counts just the rows."""
    events, stats = world.kind.tables(world.config, world.spark)
    counted = stats.rows().groupBy().sum("events").collect()[0][0]
    assert counted == events.rows().count()
