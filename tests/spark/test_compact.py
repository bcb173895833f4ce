"""Days become few files, the current one too, while readers and the audit go on."""

import errno
import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from compaction import BEFORE, LAST, SIZE, Fuse, files, put, rows, seen
from gateway.audit import audit
from gateway.audit import lake as audited
from gateway.spark import reading
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.parquet import publishing
from gateway.spark.commit.partition import Busy, alone, compression, finish
from gateway.spark.files import pieces as pieces_module
from gateway.spark.files.pieces import PIECE_BYTES, pieces
from gateway.spark.later import compact as compact_module
from gateway.spark.later.compact import Compactor, compact, compact_open
from gateway.spark.rows import stats
from gateway.store.finder import Directories
from played_spark import PowerCut
from samples import some_of


def counts(seconds: int) -> pa.Table:
    """A row of `stats`."""
    at = datetime(2026, 3, 1, 12, 0, seconds, tzinfo=UTC)
    instant = pa.timestamp("us", tz="UTC")
    return pa.table(
        {
            "window_start": pa.array([at], instant),
            "window_end": pa.array([at + timedelta(seconds=10)], instant),
            "listener": pa.array(["beats"]),
            "channel": pa.array([None], pa.string()),
            "events": pa.array([5]),
            "payload_bytes": pa.array([50]),
            "flawed": pa.array([1]),
        }
    )


@pytest.fixture
def lake(tmp_path) -> Path:
    """Twenty batches of one day and one of the next."""
    made = tmp_path / "lake"
    (made / ".gateway").mkdir(parents=True)
    for batch in range(20):
        put(made, batch, rows(batch))
    put(made, 20, rows(20), day="2026-03-02")
    return made


def test_a_day_becomes_one_file(lake):
    """Every row once, in order; the open day is left alone; a second time does nothing."""
    before = seen(lake)
    (done,) = compact(lake, Lake(), before=BEFORE)
    assert (done.before, done.after, done.rows) == (20, 1, 200)
    assert seen(lake) == before
    (one,) = files(lake)
    assert one.name.startswith("part-0000000019-")
    assert pq.read_table(one, columns=["lsn"])["lsn"].to_pylist() == list(range(1, 201))
    assert len(files(lake, "2026-03-02")) == 1
    assert list(compact(lake, Lake(), before=BEFORE)) == []
    assert not any((lake / ".gateway" / "compact").rglob("*.parquet"))


@pytest.mark.parametrize("kind", ["zstd", "snappy", "gzip", "none"])
def test_the_new_file_is_compressed_as_the_old_ones(tmp_path, kind):
    """So a job that was told of another codec has it in all files of its tables."""
    lake = tmp_path / "lake"
    (lake / ".gateway").mkdir(parents=True)
    for batch in range(2):
        put(lake, batch, rows(batch), compression=kind)
    assert len(list(compact(lake, Lake(), before=BEFORE))) == 1
    (one,) = files(lake)
    assert compression(pq.read_metadata(one)) == kind


@pytest.mark.spark
def test_what_pyarrow_can_not_write_becomes_zstd(spark, tmp_path):
    """As Hadoop's LZ4, which Spark writes where `spark.conf` has the codec `lz4`."""
    lake = tmp_path / "lake"
    (lake / ".gateway").mkdir(parents=True)
    rows = spark.range(10).selectExpr("id AS lsn").repartition(2)
    folder = lake / "events" / "protocol=lumberjack" / "date=2026-03-01"
    rows.write.parquet(f"file://{folder}", compression="lz4")
    assert len(list(compact(lake, Lake(), before=BEFORE))) == 1
    (one,) = folder.glob("*.parquet")
    assert compression(pq.read_metadata(one)) == "zstd"
    assert seen(lake) == Counter(range(10))


def test_large_values_that_repeat_are_read_a_few_at_a_time(tmp_path):
    """The file has each once, and the memory each row's."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"message": ["x" * 50_000] * 2000}), path)
    with pq.ParquetFile(path) as file:
        read = list(pieces(file))
    assert max(table.nbytes for table in read) <= PIECE_BYTES
    assert sum(map(len, read)) == 2000


def test_large_rows_are_read_and_written_a_few_at_a_time(lake, monkeypatch):
    """Row groups go by bytes: one of 65,536 rows of 38 KB would be 2 GiB in memory."""
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", 8_000)
    monkeypatch.setattr(pieces_module, "GROUP_BYTES", 32_000)
    for batch in range(20):
        large = [f"{batch} {n}".ljust(2000) for n in range(SIZE)]
        put(lake, batch, rows(batch, message=large))
    first = pq.ParquetFile(files(lake)[0])
    assert max(table.nbytes for table in pieces(first)) < 9_000
    assert [len(table) for table in pieces(first, ["node", "lsn"])] == [SIZE]
    assert len(list(compact(lake, Lake(), before=BEFORE))) == 1
    (made,) = files(lake)
    found = pq.read_metadata(made)
    sizes = [found.row_group(n).total_byte_size for n in range(found.num_row_groups)]
    assert len(sizes) == 13
    assert max(sizes) < 40_000


@pytest.mark.slow
def test_files_of_a_day_are_few_however_many_batches(tmp_path):
    """A batch a second makes a file a second, table and protocol; once the day is over there
    is one of each, and every row and count as before."""
    batches, lake = some_of(1500, 240), tmp_path / "lake"
    for batch in range(batches):
        for protocol in ("lumberjack", "pomelo"):
            for table, content in (
                ("events", rows(batch)),
                ("stats", counts(batch % 60)),
            ):
                folder = lake / table / f"protocol={protocol}" / "date=2026-03-01"
                folder.mkdir(parents=True, exist_ok=True)
                pq.write_table(
                    content, folder / f"part-{batch:010d}-0badcafe-0.parquet"
                )
    done = list(compact(lake, Lake(), before=BEFORE))
    assert [(one.before, one.after) for one in done] == [(batches, 1)] * 4
    assert len(list(lake.rglob("*.parquet"))) == 4
    assert seen(lake) == Counter(dict.fromkeys(range(1, batches * SIZE + 1), 2))
    counted = ds.dataset(lake / "stats", partitioning="hive").to_table()
    assert counted.num_rows == 2 * 60
    assert sum(counted["events"].to_pylist()) == 2 * batches * 5


def test_files_with_other_columns_stay_apart(lake):
    """A day in which `spark.columns` changed has a file for each set of columns: which rows
    never had one must be seen, or nobody could make it for them."""
    for batch in (21, 22):
        put(lake, batch, rows(batch, status=pa.array([200] * SIZE, pa.int32())))
    (done,) = compact(lake, Lake(), before=BEFORE)
    assert (done.before, done.after, done.rows) == (22, 2, 220)
    old, new = map(pq.ParquetFile, files(lake))
    assert (old.metadata.num_rows, new.metadata.num_rows) == (200, 20)
    assert "status" not in old.schema_arrow.names
    assert new.read()["status"].null_count == 0
    assert list(compact(lake, Lake(), before=BEFORE)) == []


def test_large_files_stay(lake, monkeypatch):
    """They are not read again, only the small ones beside them."""
    large = put(lake, 30, pa.concat_tables([rows(n) for n in range(30, 90)]))
    monkeypatch.setattr("gateway.spark.later.compact.LARGE", large.stat().st_size)
    inode = large.stat().st_ino
    before = seen(lake)
    list(compact(lake, Lake(), before=BEFORE))
    assert seen(lake) == before
    assert len(files(lake)) == 2
    assert large.stat().st_ino == inode


def test_counts_are_added_up(lake):
    """A row for each window is left, with the same sums."""
    folder = lake / "stats" / "protocol=lumberjack" / "date=2026-03-01"
    folder.mkdir(parents=True)
    for batch, seconds in enumerate((0, 10, 0)):
        pq.write_table(counts(seconds), folder / f"part-{batch:010d}-x-0.parquet")
    list(compact(lake, Lake(), before=BEFORE))
    (one,) = folder.iterdir()
    table = pq.read_table(one)
    assert sorted(table["events"].to_pylist()) == [5, 10]
    assert sum(table["flawed"].to_pylist()) == 3
    assert table.schema.equals(counts(0).schema)


def test_what_arrives_meanwhile_is_kept(lake, monkeypatch):
    """The last batch of a day, or one of a late gateway, lands in a day that is being
    rewritten: it stays beside what was made of the rest, which was not done in vain."""
    from gateway.spark.later import compact as module

    rewrite = module._rewrite

    def slow(*arguments: Any, **options: Any) -> int:
        put(lake, 40, rows(40))
        return rewrite(*arguments, **options)

    monkeypatch.setattr(module, "_rewrite", slow)
    (done,) = compact(lake, Lake(), before=BEFORE)
    assert (done.before, done.after, done.rows) == (21, 2, 200)
    assert set(seen(lake).values()) == {1}
    assert len(seen(lake)) == 220
    monkeypatch.undo()
    assert [done.before for done in compact(lake, Lake(), before=BEFORE)] == [2]


def test_what_is_taken_away_meanwhile_stays_away(lake, monkeypatch):
    """Rows that were put through again are in another table by now."""
    from gateway.spark.later import compact as module

    rewrite = module._rewrite

    def slow(*arguments: Any, **options: Any) -> int:
        done = rewrite(*arguments, **options)
        files(lake)[0].unlink()
        return done

    monkeypatch.setattr(module, "_rewrite", slow)
    assert list(compact(lake, Lake(), before=BEFORE)) == []
    assert len(files(lake)) == 19


@pytest.mark.parametrize("kind", ["moves", "remove", "damaged"])
def test_an_unfinished_batch_comes_first(lake, kind):
    """Its manifest says names that must still be there; of one with files elsewhere
    nobody need wait, or a job that is always at a batch would never let it begin."""
    staged = lake / ".gateway" / "staging" / "events" / "7"
    staged.mkdir(parents=True)
    other = str(files(lake, "2026-03-02")[0].relative_to(lake))
    mine = str(files(lake)[3].relative_to(lake))
    manifest = staged / "manifest"
    manifest.write_text(
        {
            "moves": json.dumps({"moves": [["0", other], ["1", mine]]}),
            "remove": json.dumps({"moves": [["0", other]], "remove": [mine]}),
            "damaged": "",
        }[kind]
    )
    with pytest.raises(Busy, match="is not finished"):
        list(compact(lake, Lake(), before=BEFORE))
    assert len(files(lake)) == 20
    manifest.write_text(json.dumps({"moves": [["0", other]]}))
    assert [done.before for done in compact(lake, Lake(), before=BEFORE)] == [20]


def test_a_file_ends_once_it_is_large(lake, monkeypatch):
    """A day of a terabyte is no one file; the large ones are not read again."""
    monkeypatch.setattr("gateway.spark.files.pieces.GROUP_BYTES", 1)
    monkeypatch.setattr("gateway.spark.later.compact.LARGE", 5_000)
    before = seen(lake)
    (done,) = compact(lake, Lake(), before=BEFORE)
    made = files(lake)
    assert 1 < len(made) == done.after < done.before
    assert seen(lake) == before
    large = {path.stat().st_ino for path in made if path.stat().st_size >= 5_000}
    assert len(large) >= len(made) - 1
    list(compact(lake, Lake(), before=BEFORE))
    assert large <= {path.stat().st_ino for path in files(lake)}


def test_counts_of_ten_thousand_channels(lake, monkeypatch):
    """More rows than are held at once: some windows get a few rows, and the sums stay."""
    monkeypatch.setattr("gateway.spark.later.compact._COUNTS", 150)
    folder = lake / "stats" / "protocol=lumberjack" / "date=2026-03-01"
    folder.mkdir(parents=True)
    for batch in range(40):
        channels = [f"c{batch % 2}-{n}" for n in range(50)]
        table = pa.concat_tables([counts(0)] * 50)
        at = table.schema.get_field_index("channel")
        table = table.set_column(at, "channel", pa.array(channels))
        pq.write_table(table, folder / f"part-{batch:010d}-x-0.parquet")
    held: list[int] = []
    fold = stats.fold

    def watched(tables: list[pa.Table]) -> pa.Table:
        held.append(sum(table.num_rows for table in tables))
        return fold(tables)

    monkeypatch.setattr(stats, "fold", watched)
    list(compact(lake, Lake(), before=BEFORE))
    (one,) = folder.iterdir()
    table = pq.read_table(one)
    assert sum(table["events"].to_pylist()) == 40 * 50 * 5
    assert sum(table["flawed"].to_pylist()) == 40 * 50
    assert 100 <= table.num_rows < 40 * 50
    assert max(held) <= 150 + 50


def test_a_file_is_as_old_as_its_rows(lake):
    """Whoever looks for the newest rows by the files' times is told no new ones."""
    for age, path in enumerate(files(lake)):
        os.utime(path, (1e9 - age, 1e9 - age))
    list(compact(lake, Lake(), before=BEFORE))
    (one,) = files(lake)
    assert one.stat().st_mtime == 1e9


@pytest.mark.parametrize("left", range(3))
@pytest.mark.parametrize("late", [False, True])
def test_a_swap_that_a_crash_has_cut_in_two(lake, left, late):
    """On a file system that takes steps for it: a start of the job puts back what is not in
    place, also where a batch that came late has made the day's folder anew."""
    before = seen(lake)
    # Of the first folder: two trees are removed, and then names change three times.
    with pytest.raises(PowerCut):
        list(compact(lake, Fuse(3 + left, exchanges=False), before=BEFORE))
    assert (seen(lake) == before) is (left != 1)
    if late:
        put(lake, 50, rows(50))
        before.update(rows(50)["lsn"].to_pylist())
    finish(lake, Lake())
    assert seen(lake) == before
    list(compact(lake, Lake(), before=BEFORE))
    assert seen(lake) == before
    assert len(files(lake)) == 1


class SmallDisk(Lake):
    """Has as much room as a test says."""

    room = 0

    def free(self, path: Path) -> int:
        return self.room


def test_a_disk_that_is_nearly_full_is_left_alone(lake):
    """The gateway needs it; as soon as there is room it is done."""
    disk, now = SmallDisk(), [0.0]
    done: list[Any] = []
    failed: list[Exception] = []
    compactor = Compactor(
        lake, disk, done.append, failed.append, lambda: BEFORE, lambda: now[0]
    )

    def tend() -> None:
        compactor.tend()
        assert compactor._thread is not None
        compactor._thread.join()

    tend()
    (why,) = failed
    assert isinstance(why, OSError)
    assert "needs twice as much room" in str(why)
    assert not list((lake / ".gateway" / "compact").rglob("*.parquet"))
    disk.room = 1 << 30
    now[0] += 599
    tend()
    assert done == []
    now[0] += 2
    tend()
    tend()
    assert [one.before for one in done] == [20]
    assert len(failed) == 1


def test_a_full_disk_keeps_nobody_from_making_room(lake, monkeypatch):
    """Whoever deletes rows or days has the files for itself without writing a byte."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    for _ in range(2):
        with alone(lake), pytest.raises(Busy, match="already"), alone(lake):
            pass


def test_variants_are_left_alone(lake):
    """pyarrow would forget that they are VARIANT."""
    for path in files(lake):
        table = pq.read_table(path)
        body = pa.array([{"value": b"", "metadata": b""}] * SIZE)
        at = table.schema.get_field_index("body")
        pq.write_table(table.set_column(at, "body", body), path)
    assert list(compact(lake, Lake(), before=BEFORE)) == []


def test_variants_behind_other_files_are_left_alone(lake):
    """As on the day when `spark.body` has become another."""
    *_, one, last = files(lake)
    for path in (one, last):
        table = pq.read_table(path)
        body = pa.array([{"value": b"", "metadata": b""}] * SIZE)
        at = table.schema.get_field_index("body")
        pq.write_table(table.set_column(at, "body", body), path)
    before = one.read_bytes(), last.read_bytes()
    assert list(compact(lake, Lake(), before=BEFORE))
    assert (one.read_bytes(), last.read_bytes()) == before


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("left", range(8))
def test_a_crash_leaves_the_old_or_the_new(lake, left, exchanges):
    """And the next time it is done, on file systems that can swap and on others."""
    before = seen(lake)
    try:
        list(compact(lake, Fuse(left, exchanges=exchanges), before=BEFORE))
    except PowerCut:
        if exchanges:
            assert seen(lake) == before
    list(compact(lake, Lake(), before=BEFORE))
    assert seen(lake) == before
    assert len(files(lake)) == 1


def test_readers_and_the_audit_go_on(lake, tmp_path):
    """A reader meanwhile sees every row once, or a file that is gone and lists again; the
    audit is complete at every moment."""
    over = threading.Event()
    wrong: list[Any] = []
    looks: list[int] = []
    places = Directories.under(tmp_path)

    def read() -> None:
        while not over.is_set():
            try:
                found = seen(lake)
            except FileNotFoundError:
                continue
            looks.append(len(found))
            if set(found.values()) != {1} or len(found) % SIZE or len(found) < 210:
                wrong.append(found)

    def check() -> None:
        while not over.is_set():
            report = audit(places)
            if not report.complete:
                wrong.append(report)

    threads = [threading.Thread(target=run) for run in (read, check)]
    for thread in threads:
        thread.start()
    try:
        for again in range(15):
            list(compact(lake, Lake(), before=BEFORE))
            with publishing(lake):
                put(lake, 21 + again, rows(21 + again))
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert looks


def test_the_audit_looks_at_the_current_day_first(lake, tmp_path, monkeypatch):
    """What is rewritten while it reads the days before it has read by then: one look is
    enough, however long they take."""
    for batch in range(21, 26):
        put(lake, batch, rows(batch), day="2026-03-02")
    monkeypatch.setattr("gateway.spark.later.compact.TIERS", (6, 3))
    read, columns = list[str](), audited.columns

    def slow(path: Any, *more: Any) -> Any:
        read.append(path.parent.name)
        if len(read) == 7:
            assert len(list(compact_open(lake, Lake(), BEFORE, upto=LAST))) == 1
        return columns(path, *more)

    monkeypatch.setattr(audited, "columns", slow)
    report = audit(Directories.under(tmp_path))
    assert report.complete
    assert report.looks == 1
    assert read == ["date=2026-03-02"] * 6 + ["date=2026-03-01"] * 20


def test_a_listing_in_the_moment_of_the_swap(lake, monkeypatch):
    """Whoever opened the old folder, and reads its names when it is gone, finds none: whole
    batches are listed again."""
    (lake / ".gateway" / "events.json").write_text('{"form": 1, "sequence": 99}')
    (old, *_) = {path.parent for path in files(lake)}

    def late(folder: Path) -> list[Path]:
        monkeypatch.undo()
        assert folder == old
        handle = os.open(folder, os.O_RDONLY)
        try:
            list(compact(lake, Lake(), before=BEFORE))
            return [folder / name for name in os.listdir(handle)]  # noqa: PTH208
        finally:
            os.close(handle)

    monkeypatch.setattr(Path, "iterdir", late)
    found = reading.files(lake, "events")
    assert sum(pq.read_metadata(path).num_rows for path in found) == 210


def test_it_begins_when_a_day_is_over(lake):
    """Once a day, and at the start for what was left."""
    days = [BEFORE]
    done: list[Any] = []
    failed: list[Exception] = []
    compactor = Compactor(lake, Lake(), done.append, failed.append, lambda: days[0])
    compactor.tend()
    assert compactor._thread is not None
    compactor._thread.join()
    put(lake, 22, rows(22))
    compactor.tend()
    compactor._thread.join()
    assert len(done) == 1
    days[0] = date(2026, 3, 3)
    compactor.tend()
    compactor._thread.join()
    assert [one.day[-10:] for one in done] == ["2026-03-01", "2026-03-01"]
    compactor.stop()
    assert failed == []


def test_the_command(lake, tmp_path, settings_file, capsys):
    """`gateway spark compact` needs no Spark and says what it did."""
    from gateway.cli import main

    config = settings_file(data_dir=tmp_path)
    assert main(["spark", "compact", "--config", str(config)]) == 0
    said = capsys.readouterr().out
    assert "events/protocol=lumberjack/date=2026-03-01: 20 files, now 1" in said
    assert len(files(lake)) == 1


TODAY = date(2026, 3, 1)


def test_the_current_day_has_few_files_at_any_hour():
    """At a batch a second, looked at every five seconds: never more than 200 in a folder,
    and no row is in more than three files over the day."""
    names: list[Path] = []
    most, tiers = 0, Counter[str]()
    for second in range(86_400):
        names.append(Path(f"part-{second:010d}-0badcafe-0.parquet"))
        if second % 5:
            continue
        for word, ripe in compact_module._ripe(names, second - 1).items():
            names = [path for path in names if path not in set(ripe)]
            newest = ripe[-1].name[: len("part-0123456789")]
            names.append(Path(f"{newest}-{word}-{len(ripe)}-0-0.parquet"))
            names.sort()
            tiers[word] += 1
        most = max(most, len(names))
    assert most < 200
    assert set(tiers) == {"tier1", "tier2"}
    assert tiers["tier1"] > 86_400 / 200


@pytest.fixture
def few(monkeypatch) -> None:
    """Six files of a tier are enough, and then three."""
    monkeypatch.setattr("gateway.spark.later.compact.TIERS", (6, 3))


@pytest.mark.usefixtures("few")
def test_files_of_the_current_day_go_from_tier_to_tier(tmp_path):
    """Every row once at each look, and each file of a tier is left alone until there are
    enough; once the day is over they are one, in order."""
    lake = tmp_path / "lake"
    (lake / ".gateway").mkdir(parents=True)
    most = 0
    for batch in range(60):
        put(lake, batch, rows(batch))
        list(compact_open(lake, Lake(), TODAY, upto=batch - 1))
        most = max(most, len(files(lake)))
        assert set(seen(lake).values()) == {1}
    assert len(seen(lake)) == 60 * SIZE
    assert most <= 7 + 3 + 60 // 18
    assert len([path for path in files(lake) if "-tier2-" in path.name]) == 3
    list(compact(lake, Lake(), before=BEFORE))
    (one,) = files(lake)
    assert pq.read_table(one)["lsn"].to_pylist() == list(range(1, 601))


@pytest.mark.usefixtures("few")
def test_what_is_not_committed_yet_is_not_rewritten(lake):
    """The files of a batch may be on their way to their names."""
    (done,) = compact_open(lake, Lake(), TODAY, upto=8)
    assert (done.before, done.after, done.rows) == (20, 12, 90)
    assert not list(compact_open(lake, Lake(), TODAY, upto=12))
    assert set(seen(lake).values()) == {1}


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("left", range(8))
def test_a_crash_in_the_current_day(lake, left, exchanges):
    """Leaves the old files or the new ones, and the next time goes on."""
    before = seen(lake)
    try:
        disk = Fuse(left, exchanges=exchanges)
        list(compact_open(lake, disk, TODAY, upto=LAST))
    except PowerCut:
        if exchanges:
            assert seen(lake) == before
    list(compact_open(lake, Lake(), TODAY, upto=LAST))
    assert seen(lake) == before
    assert len(files(lake)) == 1


@pytest.mark.usefixtures("few")
def test_the_job_looks_at_the_current_day(lake):
    """As soon as there are enough files, and not only when a day has ended; while somebody
    else rewrites files it waits for the next look."""
    now, done, failed = [0.0], list[Any](), list[Exception]()
    compactor = Compactor(
        lake,
        Lake(),
        done.append,
        failed.append,
        today=lambda: date(2026, 3, 2),
        clock=lambda: now[0],
        upto=lambda: LAST,
    )

    def tend() -> None:
        now[0] += 5
        compactor.tend()
        assert compactor._thread is not None
        compactor._thread.join()

    tend()
    assert [one.before for one in done] == [20]
    for batch in range(21, 26):
        put(lake, batch, rows(batch), day="2026-03-02")
    with alone(lake):
        tend()
    assert len(done) == 1
    tend()
    tend()
    assert [(one.before, one.after) for one in done[1:]] == [(6, 1)]
    assert failed == []


class _Filler:
    def __init__(self) -> None:
        self.days: list[date] = []

    def fill_day(self, day: date, stop: Callable[[], bool]) -> Any:
        self.days.append(day)
        if len(self.days) == 1:
            raise OSError(28, "no room")
        yield f"made in {day}"


def test_the_current_day_gets_its_columns_at_the_start(lake):
    """Once, after what could not be done was tried again: all that comes later has them."""
    now, done, failed, filler = [0.0], list[Any](), list[Exception](), _Filler()
    compactor = Compactor(
        lake,
        Lake(),
        done.append,
        failed.append,
        lambda: BEFORE,
        lambda: now[0],
        filler=lambda: filler,
    )
    for _ in range(4):
        compactor.tend()
        assert compactor._thread is not None
        compactor._thread.join()
        now[0] += 601
    assert filler.days == [BEFORE] * 2
    assert done[-1] == "made in 2026-03-02"
    assert len(failed) == 1
