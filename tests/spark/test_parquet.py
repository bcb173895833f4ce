"""Two phases on a file system: never a hole, never a double, wherever it stops.

Spark is played by this file: it writes a batch into staging and, after a crash,
repeats the last batch that it has not committed.
"""

import errno
import io
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken, Hole, Ledger, Ranges
from gateway.spark.commit.parquet import ParquetSink
from gateway.spark.commit.sink import Committed, Plan
from gateway.spark.files.overlaps import Overlap
from gateway.spark.reading import files
from gateway.spark.run.checkpoint import Checkpoint
from gateway.store.digests import EVENTS_KEY
from gateway.store.names import SpoolFile
from gateway.store.node.incarnation import Record
from gateway.store.readers.lake import Accepted
from incarnations import A
from played_spark import PowerCut
from samples import some_of

SIZE = 10


@dataclass
class Fuse(Lake):
    """A disk that is cut off before its *left*th call changes anything."""

    left: int = 10**9
    calls: int = 0
    publishing: int | None = None
    """How many calls came before the first file got its name."""
    full: bool = False
    """It is no power cut, but a disk that is full, at this one call."""

    def _count(self) -> None:
        self.calls += 1
        if self.full and self.calls == self.left + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if not self.full and self.calls > self.left:
            raise PowerCut

    def create(self, path: Path) -> Any:
        self._count()
        return super().create(path)

    def open(self, path: Path) -> Any:
        self._count()
        return super().open(path)

    def rename(self, old: Path, new: Path) -> None:
        if "protocol=" in str(new) and self.publishing is None:
            self.publishing = self.calls
        self._count()
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self._count()
        super().unlink(path)

    def sync_directory(self, path: Path) -> None:
        self._count()
        super().sync_directory(path)

    def make_directory(self, path: Path) -> None:
        self._count()
        super().make_directory(path)

    def remove_tree(self, path: Path) -> None:
        """Even a tree goes file by file."""
        for file in reversed(self.tree(path)):
            self._count()
            file.unlink()
        self._count()
        super().remove_tree(path)


def name(batch: int) -> str:
    """The spool file of a batch."""
    return f"events-gw_aaaaaaaaaa-{batch * SIZE + 1:020d}-{(batch + 1) * SIZE:020d}.parquet"


def write(
    batch: int, folder: Path, rule: Callable[[int], str] = lambda lsn: "events"
) -> None:
    """What Spark leaves of a batch: rows, and all that is not rows; *rule* says which table an
    event is for that is fine.
    """
    first, *lsns = range(batch * SIZE + 1, (batch + 1) * SIZE + 1)
    tables = {"quarantine": [first]}
    for lsn in lsns:
        tables.setdefault(rule(lsn), []).append(lsn)
    for table, mine in tables.items():
        for date in ("2026-03-01", "2026-03-02"):
            place = folder / f"table={table}/protocol=lumberjack/date={date}"
            place.mkdir(parents=True)
            half = mine[::2] if date.endswith("1") else mine[1::2]
            rows = pa.table({"node": ["gw"] * len(half), "lsn": list(half)})
            pq.write_table(rows, place / "part-00000-x.zstd.parquet")
            (place / ".part-00000-x.zstd.parquet.crc").write_bytes(b"crc")
            (place / "part-00001-x.zstd.parquet").touch()
    (folder / "_SUCCESS").touch()
    (folder / "_temporary").mkdir()
    (folder / "_temporary" / "part-00002.parquet").write_bytes(b"PAR1 half")


@dataclass
class World:
    """A lake, a checkpoint and a Spark that plays by its rules."""

    data: Path
    logs: Any
    written: list[int] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    done: list[Committed] = field(default_factory=list)
    rule: Callable[[int], str] = lambda lsn: "events"
    tables: tuple[str, ...] = ()

    def sink(self, disk: Lake | None = None, **options: Any) -> ParquetSink:
        using = disk or Fuse()

        def tracked(batch: int, folder: Path, plan: Plan) -> None:
            self.written.append(batch)
            self.plans.append(plan)
            write(batch, folder, self.rule)

        return ParquetSink(
            self.data / "lake",
            self.data / "spool",
            Checkpoint(self.logs.path, using),
            using,
            write=tracked,
            done=self.done.append,
            rules=dict.fromkeys(self.tables, SimpleNamespace(retention=None)),
            **options,
        )

    def started(self) -> ParquetSink:
        """A sink that has recovered."""
        sink = self.sink()
        sink.recover()
        return sink

    def without_checkpoint(self) -> ParquetSink:
        """The sink after its checkpoint was lost: Spark begins a new query."""
        self.logs.lose()
        sink = self.started()
        # Spark makes the new id when the query starts, after `recover`.
        self.logs.begin()
        return sink

    def run(self, disk: Lake, batches: int, **options: Any) -> None:
        """Start, go on after the last commit, commit what the sink has taken."""
        sink = self.sink(disk, **options)
        sink.recover()
        done = Checkpoint(self.logs.path, Lake()).committed
        for batch in range(done + 1, batches):
            self.logs.source(batch, [name(batch)])
            self.logs.offset(batch, batch)
            sink(batch, batch)
            self.logs.commit(batch)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch) -> None:
    """Nobody pulls a real plug here, so nothing need reach a real disk."""
    monkeypatch.setattr("os.fdatasync", lambda fd: None)
    monkeypatch.setattr("os.fsync", lambda fd: None)


@pytest.fixture
def world(tmp_path, logs) -> World:
    """Before the first batch."""
    made = World(tmp_path / "data", logs("events"))
    made.logs.begin()
    return made


def empty(world: World) -> None:
    """Back to the beginning."""
    shutil.rmtree(world.data)
    world.logs.begin()


def publishing(world: World) -> int:
    """How many changes to the disk come before the first file has its name."""
    counter = Fuse()
    world.run(counter, 1)
    assert counter.publishing is not None
    return counter.publishing


def whole(batches: int) -> Counter[tuple[str, int]]:
    """Every event of these batches once."""
    return Counter(("gw", lsn) for lsn in range(1, batches * SIZE + 1))


def test_any_reader_sees_the_rows(world, lake_events):
    """Plain Parquet files with rows under the table's name, and nothing else there."""
    world.run(Fuse(), 3)
    assert lake_events() == whole(3)
    names = [
        path.relative_to(world.data / "lake")
        for table in ("events", "quarantine")
        for path in Lake().tree(world.data / "lake" / table)
    ]
    assert len(names) == 3 * 3
    assert names[0].parts == (
        "events",
        "protocol=lumberjack",
        "date=2026-03-01",
        "part-0000000001-0badcafe-0.parquet",
    )


def test_a_reader_can_ask_for_whole_batches(world):
    """At every step of a commit it gets all files of a batch or none of them."""
    seen: list[int] = []
    sink = world.sink(
        point=lambda step: seen.append(len(files(world.data / "lake", "events")))
    )
    sink.recover()
    for batch in range(2):
        world.logs.source(batch, [name(batch)])
        world.logs.offset(batch, batch)
        sink(batch, batch)
        world.logs.commit(batch)
    assert sorted(set(seen)) == [0, 2, 4]
    assert seen == sorted(seen)


def test_it_tells_what_it_committed(world):
    """Rows and spool files of each batch, for the job's progress."""
    world.run(Fuse(), 1)
    assert world.done == [Committed(0, SIZE, 1)]


@dataclass
class Noting(Lake):
    """A disk that knows by their numbers which files and folders were synced."""

    synced: set[int] = field(default_factory=set)

    def open(self, path: Path) -> Any:
        self.synced.add(path.stat().st_ino)
        return super().open(path)

    def sync_directory(self, path: Path) -> None:
        self.synced.add(path.stat().st_ino)
        super().sync_directory(path)


def test_files_and_their_folders_are_durable_before_they_are_counted_on(world):
    """A power cut after the ledger's line loses no row of it."""
    disk, looks = Noting(), []

    def point(step: str) -> None:
        if step == "published":
            for path in (world.data / "lake").glob("*/protocol=*/date=*/*.parquet"):
                looks.append(path.name)
                for one in (path, path.parent):
                    assert one.stat().st_ino in disk.synced, one

    world.run(disk, 2, point=point)
    assert len(looks) == 3 + 6


@pytest.mark.slow
def test_a_crash_at_any_step_leaves_whole_batches(world, lake_events, tmp_path):
    """Cut off before every single change to the disk, then started again.

    After `recover` the tables hold whole batches only; after Spark has repeated what
    it must, they hold every event once.
    """
    counter = Fuse()
    world.run(counter, 2)
    assert counter.calls > 60
    for cut in range(counter.calls):
        empty(world)
        with pytest.raises(PowerCut):
            world.run(Fuse(left=cut), 2)
        world.sink().recover()
        seen = lake_events()
        assert seen == whole(len(seen) // SIZE), f"after a cut at {cut}"
        world.run(Fuse(), 2)
        assert lake_events() == whole(2), f"after a cut at {cut}"
        staging = world.data / "lake" / ".gateway" / "staging" / "events"
        assert list(staging.iterdir()) == []


def start_with_a_batch(sink: ParquetSink) -> None:
    sink.recover()
    sink(0, 0)


@pytest.mark.slow
def test_a_full_disk_at_any_step_leaves_whole_batches(world, lake_events):
    """The process lives on: what it remembers is no more than what the disk has, and with
    room again the same sink or a new one goes on."""
    counter = Fuse()
    world.run(counter, 1)
    for left in range(0, counter.calls, some_of(1, 3)):
        empty(world)
        sink = world.sink(Fuse(left=left, full=True))
        world.logs.source(0, [name(0)])
        world.logs.offset(0, 0)
        with pytest.raises(OSError, match="No space left"):
            start_with_a_batch(sink)
        assert set(lake_events().values()) <= {1}
        if left % 2:
            sink = world.sink()
        sink.recover()
        assert lake_events() == (whole(1) if sink.ledger.sequence else Counter()), left
        sink(0, 0)
        world.logs.commit(0)
        world.run(Fuse(), 2)
        assert lake_events() == whole(2), left


def test_a_crash_during_recovery_leaves_whole_batches(world, lake_events):
    """Cut off twice: while a batch gets its names, and anywhere in the next start."""
    first = publishing(world)
    for second in range(1000):
        empty(world)
        with pytest.raises(PowerCut):
            world.run(Fuse(left=first + 1), 1)
        try:
            world.run(Fuse(left=second), 1)
        except PowerCut:
            world.run(Fuse(), 1)
            assert lake_events() == whole(1), second
        else:
            break
    assert second > 15


def test_a_crash_while_spark_writes_leaves_nothing(world, lake_events, monkeypatch):
    """Half a batch in staging is wiped and written again."""

    def dies(batch: int, folder: Path, plan: Plan) -> None:
        write(batch, folder)
        raise PowerCut

    sink = world.started()
    monkeypatch.setattr(sink, "_write", dies)
    world.logs.source(0, [name(0)])
    world.logs.offset(0, 0)
    with pytest.raises(PowerCut):
        sink(0, 0)
    assert lake_events() == Counter()
    world.run(Fuse(), 1)
    assert lake_events() == whole(1)


def test_a_repeated_batch_is_not_written(world):
    """Spark had no time to commit: it repeats its batch, which is there already."""
    world.run(Fuse(), 1)
    (world.logs.path / "commits" / "0").unlink()
    world.run(Fuse(), 1)
    assert world.written == [0]


def test_a_lost_checkpoint_doubles_nothing(world):
    """A new query knows which events the tables have, so that it can leave them out."""
    world.run(Fuse(), 2)
    sink = world.without_checkpoint()
    world.logs.source(0, [name(2)])
    world.logs.offset(0, 0)
    sink(2, 0)
    kept = Ledger.load(Lake(), world.data / "lake" / ".gateway" / "events.json")
    assert kept.query == world.logs.query
    assert kept.committed == Ranges({"gw": {A: [(1, 3 * SIZE)]}})
    assert kept.sequence == 3


def test_what_is_in_the_tables_is_left_out(world):
    """A batch that brings events again, under whatever name, is told which, once they were
    compared."""
    world.run(Fuse(), 2)
    sink = world.without_checkpoint()
    again = f"events-gw_aaaaaaaaaa-{SIZE + 6:020d}-{2 * SIZE + 5:020d}.parquet"
    world.logs.source(0, [again])
    world.logs.offset(0, 0)
    (world.data / "spool").mkdir()
    pq.write_table(
        pa.table({"received_at": pa.array([1], pa.timestamp("us", "UTC"))}),
        world.data / "spool" / again,
    )
    with pytest.raises(Overlap, match=again):
        sink(2, 0)
    [file] = sink.batch_files
    sink.note_compared(file)
    with pytest.raises(Broken, match="promise 5 events, Spark made 10 rows"):
        sink(2, 0)  # this file's Spark leaves nothing out
    assert world.plans[-1].without == Ranges({"gw": {A: [(SIZE + 6, 2 * SIZE)]}})


@pytest.mark.parametrize("says", [True, False])
def test_a_file_that_has_the_inode_and_time_of_one_before_is_compared(world, says):
    """The first one went, another past of its incarnation came under its name, and the file
    system gave it the same inode, within one tick of its clock: nobody has compared that one.
    """
    world.run(Fuse(), 1)
    sink = world.without_checkpoint()
    file = SpoolFile("gw", A, 6, SIZE + 5)
    path = world.data / "spool" / file.name
    path.parent.mkdir()

    def put(*payloads: bytes) -> None:
        sink_of = io.BytesIO()
        times = pa.array([1] * len(payloads), pa.timestamp("us", "UTC"))
        rows = pa.table({"payload": payloads, "received_at": times})
        if says:  # as a gateway's files do
            digest = b"".join(payloads).hex()
            rows = rows.replace_schema_metadata({EVENTS_KEY: digest})
        pq.write_table(rows, sink_of)
        path.write_bytes(sink_of.getvalue())  # into the same inode
        os.utime(path, (1_000.0, 1_000.0))

    put(b"a", b"b")
    inode = path.stat().st_ino
    sink.note_compared(file)
    assert sink.is_compared(file)
    put(b"a", b"c")
    assert (path.stat().st_ino, path.stat().st_mtime) == (inode, 1_000.0)
    assert not sink.is_compared(file)
    put(b"a", b"b")
    assert sink.is_compared(file)
    path.unlink()
    assert not sink.is_compared(file)


def test_a_file_is_compared_with_each_incarnation_of_its_family(world):
    """What came into the tables behind that is another one's, though the lsns are the same."""
    world.run(Fuse(), 1)
    sink = world.without_checkpoint()
    one, other = (SpoolFile("gw", each * 10, 2, 9) for each in "bc")
    records = {file.life: Record(2, of=A) for file in (one, other)}
    sink.ledger = replace(sink.ledger, records=records)
    path = world.data / "spool" / one.name
    path.parent.mkdir()
    times = pa.array([1], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"payload": [b"a"], "received_at": times}), path)
    sink.note_compared(one)
    assert sink.is_compared(one)
    sink.ledger.committed.add(other.life, 2, 9)
    assert not sink.is_compared(one)
    sink.note_compared(one)
    assert sink.is_compared(one)


def test_a_manifest_outlives_its_checkpoint(world, lake_events):
    """A batch that was decided is published even if the checkpoint is gone since."""
    decided = publishing(world)
    empty(world)
    with pytest.raises(PowerCut):
        world.run(Fuse(left=decided), 1)
    assert lake_events() == Counter()
    shutil.rmtree(world.logs.path)
    sink = world.started()
    assert lake_events() == whole(1)
    assert sink.ledger.committed == Ranges({"gw": {A: [(1, SIZE)]}})


@pytest.mark.parametrize("other", ["older", "same number, other files"])
def test_a_checkpoint_from_a_backup_is_refused(world, other):
    """It would take other files for a batch that the tables have: better stop."""
    world.run(Fuse(), 2)
    sink = world.started()
    batch = 0 if other == "older" else 1
    if other != "older":
        world.logs.source(1, [name(7)])
    with pytest.raises(Broken, match="older than the tables"):
        sink(batch, batch)
    assert sink.failure is not None


def test_a_batch_that_lost_a_file_is_refused(world, lake_events):
    """Spark says nothing of a spool file that vanished; counting does."""
    sink = world.started()
    world.logs.source(0, [name(0), name(1)])
    world.logs.offset(0, 0)
    with pytest.raises(Broken, match="promise 20 events, Spark made 10 rows"):
        sink(0, 0)
    assert lake_events() == Counter()


def test_a_batch_without_files_counts_too(world):
    """Spark may run one; it has no rows then."""
    sink = world.started()
    world.logs.offset(0, -1)
    sink._write = lambda rows, folder, plan: None
    sink(0, 0)
    assert sink.ledger.batch == 0
    assert world.done == [Committed(0, 0, 0)]


def test_tables_without_their_ledger_are_refused(world):
    """Nobody would know what is in them, and a new query would double it."""
    world.run(Fuse(), 1)
    shutil.rmtree(world.data / "lake" / ".gateway")
    with pytest.raises(Broken, match=r"events\.json is gone"):
        world.sink().recover()


@pytest.mark.parametrize("lost", ["all tables", "the last batch"])
def test_tables_behind_their_checkpoint_are_refused(world, lost):
    """Spark would never read again what was in them."""
    world.run(Fuse(), 1)
    ledger = world.data / "lake" / ".gateway" / "events.json"
    before = ledger.read_bytes()
    world.run(Fuse(), 2)
    if lost == "all tables":
        shutil.rmtree(world.data / "lake")
    else:
        ledger.write_bytes(before)
    with pytest.raises(Broken, match=r"is older than .*checkpoint"):
        world.sink().recover()


def test_a_hole_is_noted_once(world):
    """It survives, and a file that fails again does not make a second one."""
    sink = world.started()
    for why in ("it is empty", "it is still empty"):
        sink.note(Hole("gw", 1, SIZE, name(0), why, 1.0, A))
    again = world.sink()
    again.recover()
    assert [hole.why for hole in again.ledger.holes] == ["it is still empty"]


def test_what_could_not_be_written_down_is_not_known(world):
    """The disk is full: the word of who accepted a loss stays until it is in the ledger."""
    sink = world.started()
    full = Fuse(left=0, full=True)
    sink._disk = full
    one = Accepted("gw", "", 1, SIZE, "gone", "me", 1.0)
    with pytest.raises(OSError, match="No space"):
        sink.learn([one], {})
    assert sink.ledger.accepted == ()
    assert sink.learn([one], {})
    again = world.sink()
    again.recover()
    assert again.ledger.accepted == (one,)


def test_types_are_kept_with_the_batch(world):
    """Also if only `recover` finishes it."""
    decided = publishing(world)
    empty(world)
    sink = world.sink(Fuse(left=decided))
    sink.recover()
    sink.types = {"status": "int"}
    world.logs.source(0, [name(0)])
    world.logs.offset(0, 0)
    with pytest.raises(PowerCut):
        sink(0, 0)
    again = world.sink()
    again.recover()
    assert again.ledger.types == {"status": "int"}


def test_someone_elses_hand_in_the_lake_is_noticed(world):
    """A decided file that is nowhere would be a hole: it is said, not skipped."""
    decided = publishing(world)
    empty(world)
    with pytest.raises(PowerCut):
        world.run(Fuse(left=decided + 1), 1)
    staging = world.data / "lake" / ".gateway" / "staging"
    for place in (staging, world.data / "lake" / "events"):
        for path in Lake().tree(place):
            if path.name != "manifest":
                path.unlink()
    with pytest.raises(Broken, match="neither there nor in staging"):
        world.sink().recover()


#: Rules before and after a change: one table is added, and one is no longer there.
BEFORE = ("orders", "clicks")
AFTER = ("clicks", "chat")


def by(tables: tuple[str, ...]) -> Callable[[int], str]:
    """A rule for each of *tables*, and for what is left."""
    return lambda lsn: (*tables, "events")[lsn % 3]


@pytest.mark.slow
def test_rules_that_change_between_a_kill_and_the_start(world, lake_events):
    """Cut off before every single change to the disk: the next start has other rules.

    Each event is in one table once, and a batch is by one set of rules: by that of before, if
    its manifest was written, whatever the configuration says now.
    """
    counter = Fuse()
    world.rule, world.tables = by(BEFORE), BEFORE
    world.run(counter, 1)
    lake, changed = world.data / "lake", set()
    for cut in range(0, counter.calls, some_of(1, 3)):
        empty(world)
        world.rule, world.tables = by(BEFORE), BEFORE
        with pytest.raises(PowerCut):
            world.run(Fuse(left=cut), 1)
        world.rule, world.tables = by(AFTER), AFTER
        world.run(Fuse(), 2)
        assert lake_events() == whole(2), f"after a cut at {cut}"
        ledger = Ledger.load(Lake(), lake / ".gateway" / "events.json")
        assert set(ledger.tables.by_rule) >= {"clicks", "chat"}
        changed.add(orders := bool(files(lake, "orders")))
        first = by(BEFORE) if orders else by(AFTER)
        for table in ledger.tables.fine:
            found = {
                lsn
                for path in files(lake, table)
                for lsn in pq.ParquetFile(path).read(["lsn"])["lsn"].to_pylist()
            }
            batches = ((first, range(2, 11)), (by(AFTER), range(12, 21)))
            assert found == {
                n for rule, some in batches for n in some if rule(n) == table
            }
    assert changed == {True, False}


def test_a_table_is_known_before_it_has_rows(world):
    """Who deletes, expires or audits learns its name from the ledger; it stays there once the
    configuration has it no more.
    """
    path = world.data / "lake" / ".gateway" / "events.json"
    seen: list[tuple[str, ...]] = []
    world.rule, world.tables = by(BEFORE), BEFORE

    def point(step: str) -> None:
        seen.append(Ledger.load(Lake(), path).tables.by_rule)

    world.run(Fuse(), 1, point=point)
    assert set(seen) == {BEFORE}
    world.rule, world.tables = by(("events", "events")), ()
    world.run(Fuse(), 2)
    assert Ledger.load(Lake(), path).tables.by_rule == BEFORE


def test_without_rules_the_ledger_is_as_it_was(world):
    """An older version reads it."""
    world.run(Fuse(), 1)
    assert (
        b"tables" not in (world.data / "lake" / ".gateway" / "events.json").read_bytes()
    )
