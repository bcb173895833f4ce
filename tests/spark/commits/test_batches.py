"""Delta and Iceberg: each event once, whatever is killed, damaged, doubled, compacted."""

import itertools
import json
import shutil
import threading
from collections import Counter
from typing import Any

import pytest

from deadlines import eventually
from format_tables import (
    MARKS,
    ONLY_DELTA,
    ONLY_ICEBERG,
    SIZE,
    World,
    lost,
    reached,
)
from gateway.audit import audit
from gateway.config.bucket import BucketUrl
from gateway.config.columns import Column
from gateway.spark import job
from gateway.spark.commit.closing import Closing
from gateway.spark.commit.commits import opened
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken, Hole
from gateway.store import digests
from gateway.store.directories import Directories
from incarnations import A
from played_spark import PowerCut

pytestmark = MARKS


@pytest.mark.lowest
def test_the_whole_job(world, tmp_path):
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


@pytest.mark.parametrize(
    ("point", "checkpoint"), [("committed", "lost"), ("counted", "kept")]
)
def test_killed_at_any_point(world, point, checkpoint):
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


def test_a_reader_that_looks_all_the_while(world):
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


@ONLY_ICEBERG  # its own fence
@pytest.mark.parametrize("then", ["start", "compaction", "other job"])
def test_killed_between_staging_and_publishing(world, then):
    """What is staged is seen by nobody, and never published beside its repetition."""
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


def test_a_cluster_reads_each_file_of_a_bucket_once(
    world, server, tmp_path, monkeypatch
):
    """Events and counts of a batch by one read of its files, whose names and sizes are known:
    no request but those of the tasks, and nobody looks at what else is there.  Of the files
    the driver has nothing but the footers."""
    monkeypatch.setattr(
        "gateway.spark.files.s3a._elsewhere", lambda config, master: True
    )
    world.spool.path = world.spool.path.rename(tmp_path / "data" / "inbox")
    world.config.spool.bucket = BucketUrl("bucket", "spool")
    for path in world.spool.path.iterdir():
        server.objects[f"bucket/spool/{path.name}"] = data = path.read_bytes()
        footer = data[-digests.footer_bytes(data) :]
        path.write_bytes(footer.rjust(len(data), b"\0"))
    server.objects["bucket/spool/events-gw-1-1.parquet"] = b"nobody asks for it"
    asked: Counter[tuple[str, str]] = Counter()
    server.before = lambda method, path: asked.update([(method, path)])
    world.run(1, files=3)
    names = [f"/bucket/spool/{name}" for name in world.spool.names()]
    assert asked == {(method, name): 1 for name in names for method in ("HEAD", "GET")}
    world.config.spool.bucket = None
    world.check_complete()


def test_a_damaged_object_of_a_cluster_is_moved_aside(world, server, monkeypatch):
    """Whole, though the driver had nothing but its footer, which is not damaged; what else
    the batch has is in the table."""
    monkeypatch.setattr(
        "gateway.spark.files.s3a._elsewhere", lambda config, master: True
    )
    monkeypatch.setattr("gateway.spark.bucket.copies.FOOTER_BYTES", 64)
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


def test_what_can_not_be_read_is_noted_with_the_table(world):
    """Also before there is a table; a hole that is mended is none any more."""
    name = world.spool.names()[0]
    sink = world.sink()
    sink.recover()
    sink.note(Hole("gw", 1, SIZE, name, "cut short", 1.0, A))
    assert [
        one.file
        for one in opened(
            world.events(), Closing(world.config.data_dir / "lake", Lake())
        ).holes
    ] == [name]
    world.run(1, files=3)
    assert (
        opened(world.events(), Closing(world.config.data_dir / "lake", Lake())).holes
        == ()
    )
    world.check_complete()


@pytest.mark.lowest
def test_the_audit_reads_the_table(world):
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


def test_what_is_known_of_commits_is_bounded(world, monkeypatch):
    """However many there were, few are kept, and their words have no columns' types: the
    next start finds them in the table, and the whole ledger."""
    monkeypatch.setattr("gateway.sinks.iceberg_snapshots._MOST_SNAPSHOTS", 3)
    monkeypatch.setattr("gateway.sinks.iceberg_snapshots._MANY_MANIFESTS", 2)
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
    found = opened(world.events(), Closing(world.config.data_dir / "lake", Lake()))
    assert found.types["lsn"] == "bigint"
    assert found.types["attributes"] == "map<string,string>"
    world.logs.lose()
    world.run(1, files=8)
    world.check_complete()


@ONLY_DELTA  # its snapshots are in one file
def test_what_a_commit_added_is_known_without_a_look_at_the_log(world, monkeypatch):
    """Of a bucket with a week of commits such a look is a hundred requests."""
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


@ONLY_DELTA
def test_deltas_own_compaction_has_nothing_counted_twice(world):
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
