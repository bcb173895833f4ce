"""What was set aside is put through again."""

import os
import shutil
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from gateway.cli import main
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.parquet import give_names
from gateway.spark.commit.partition import Busy, finish
from gateway.spark.later import requeue
from gateway.spark.later.compact import compact
from gateway.store.readers.complete import requeued_days
from gateway_testkit.bucket import MemoryBucket
from played_spark import PowerCut


class Fuse(Lake):
    """Stops before its *left*th change of a name outside of staging."""

    left = 0

    def rename(self, old: Path, new: Path) -> None:
        if ".gateway" not in str(new):
            self._count()
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        if ".gateway" not in str(path):
            self._count()
        super().unlink(path)

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise PowerCut


@pytest.mark.spark
@pytest.mark.parametrize(
    "cut", [None, 2, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 3))]
)
def test_rows_that_are_fine_after_all(
    run_once, spark, spool, config, table_rows, lake_events, cut
):
    """They move to `events`, each once, wherever a crash falls; the counts follow; what
    is no JSON stays unless its flaw is accepted."""
    payloads = [b'{"message": "fine"}', b"{nope", b'{"message": "big"}', b"", b"x"]
    flaws = dict(enumerate(("invalid-json", "invalid-json", "oversized")))
    flaws |= {3: "deleted", 4: "unframed"}
    spool.put("gw", 1, payloads, flaws=flaws)
    run_once()
    lake = config.data_dir / "lake"
    if cut is not None:
        disk = Fuse()
        disk.left = cut
        with pytest.raises(PowerCut):
            requeue.rows(spark, config, disk, ["unframed"])
        assert set(lake_events(lake).values()) <= {1}
        finish(lake, Lake())
    else:
        done = requeue.rows(spark, config, Lake(), ["unframed"])
        assert (done.rows, done.fine) == (5, 3)
    assert lake_events(lake) == spool.produced
    events = {row["lsn"]: row for row in table_rows(lake / "events")}
    assert {lsn: row["message"] for lsn, row in events.items()} == {
        1: "fine",
        3: "big",
        5: None,
    }
    assert all(row["flaw"] is None for row in events.values())
    assert len(requeued_days(lake)) == 1
    counted = table_rows(lake / "stats")
    assert sum(row["events"] for row in counted) == 5
    assert sum(row["flawed"] for row in counted) == 2
    assert requeue.rows(spark, config, Lake()).fine == 0
    assert lake_events(lake) == spool.produced


def test_a_day_of_which_nothing_is_left(tmp_path):
    """Its folder goes with its last file; a crash may have cut that off."""
    day, goal = tmp_path / "quarantine/protocol=a/date=2026-03-01", "events/b.parquet"
    for folder in (day, tmp_path / "staged", tmp_path / ".gateway"):
        folder.mkdir(parents=True)
    for name in ("a", "b"):
        (day / f"{name}.parquet").touch()
    (tmp_path / "staged" / "0").touch()
    for name in ("a", "b", "b"):
        gone = str((day / f"{name}.parquet").relative_to(tmp_path))
        give_names(tmp_path, Lake(), tmp_path / "staged", [("0", goal)], [gone])
        assert day.exists() is (name == "a")
    assert (tmp_path / goal).exists()


@pytest.mark.spark
@pytest.mark.long
def test_large_rows_take_little_of_the_heap(
    run_once, spark, spool, config, monkeypatch
):
    """As in the job: what came through that must come through this."""
    monkeypatch.setattr(requeue.heap, "fit", Mock(side_effect=requeue.heap.fit))
    size = 5_000_000
    large = [b'{"message": "%s"}' % os.urandom(size // 2).hex().encode()] * 2
    spool.put("gw", 1, large, flaws=dict.fromkeys(range(2), "oversized"))
    run_once()
    requeue.heap.fit.reset_mock()
    assert requeue.rows(spark, config, Lake()).fine == 2
    (told,) = requeue.heap.fit.call_args_list
    assert told.args[1] >= size // 2
    assert spark.conf.get("spark.sql.parquet.columnarReaderBatchSize") in (
        "1",
        "2",
        "3",
    )


@pytest.mark.spark
def test_nobody_compacts_or_requeues_meanwhile(
    run_once, spark, spool, config, lake_events, monkeypatch
):
    """Rows that moved into another file while they are read would be there again, and
    what one of two has staged is not the other's to remove."""
    for first in (1, 11):
        flaws = dict.fromkeys(range(10), "oversized")
        spool.put(
            "gw", first, [b"{}"] * 10, flaws=flaws, received_at=1_772_366_400_000_000
        )
        run_once()
    lake = config.data_dir / "lake"
    refused: list[str] = []
    collect = requeue._collect

    def meanwhile(*arguments: Any) -> Any:
        for other in (
            lambda: list(compact(lake, Lake(), before=date(2027, 1, 1))),
            lambda: requeue.rows(spark, config, Lake()),
        ):
            with pytest.raises(Busy, match="rewritten already") as why:
                other()
            refused.append(str(why.value))
        return collect(*arguments)

    monkeypatch.setattr(requeue, "_collect", meanwhile)
    assert requeue.rows(spark, config, Lake()).fine == 20
    assert len(refused) == 2
    assert lake_events(lake) == spool.produced
    assert [done.before for done in compact(lake, Lake(), before=date(2027, 1, 1))] == [
        3
    ]
    assert lake_events(lake) == spool.produced


def test_counts_take_a_flaw_back_and_add_no_event():
    """Whoever sums the rows of a window has each event once, and no flaw of it."""
    at = datetime(2026, 3, 1, tzinfo=UTC)
    keys = {"window_start": [at], "window_end": [at], "listener": ["a"]}
    sums = {"events": [3], "payload_bytes": [9], "flawed": [0]}
    counted = pa.table({**keys, "channel": ["c"], **sums})
    (row,) = requeue._flawed_no_more(counted).to_pylist()
    assert (row["events"], row["payload_bytes"], row["flawed"]) == (0, 0, -3)


def test_files_that_were_mended(spool, tmp_path):
    """They go back into the spool; the others stay."""
    good, bad = spool.events("gw", 1, 10), spool.events("gw", 11, 10)
    poison = tmp_path / "poison"
    poison.mkdir()
    for path in (good, bad):
        shutil.move(path, poison / path.name)
        (poison / f"{path.name}.json").write_text("{}")
    (poison / bad.name).write_bytes(b"")
    moved, kept = requeue.files(poison, spool.path, Lake())
    assert (moved, list(kept)) == ([good.name], [bad.name])
    assert spool.names() == [good.name]
    assert sorted(path.name for path in poison.iterdir()) == [
        bad.name,
        f"{bad.name}.json",
    ]


def test_the_command_says_whether_files_stay(spool, settings_file, tmp_path):
    """By its exit status, which a script goes by."""
    file = tmp_path / "data" / "poison" / spool.events("gw", 1, 10).name
    file.parent.mkdir(parents=True)
    good = (spool.path / file.name).read_bytes()
    (spool.path / file.name).unlink()
    words = ["spark", "requeue", "--config", str(settings_file())]
    file.write_bytes(good[:-4])
    assert main(words) == 1
    assert file.exists()
    file.write_bytes(good)
    assert main(words) == 0
    assert not file.exists()


def test_a_mended_file_takes_no_other_ones_place(spool, tmp_path):
    """It was published again, and that file waits for the job."""
    old = spool.put("gw", 1, [b"old"])
    poison = tmp_path / "poison"
    poison.mkdir()
    shutil.move(old, poison / old.name)
    waiting = spool.put("gw", 1, [b"new"]).read_bytes()
    moved, kept = requeue.files(poison, spool.path, Lake())
    assert (moved, list(kept)) == ([], [old.name])
    assert old.read_bytes() == waiting
    old.unlink()
    assert requeue.files(poison, spool.path, Lake()) == ([old.name], {})


def test_a_mended_file_is_mended_in_the_bucket(spool, tmp_path):
    """The tasks of a cluster read that, and the archive gets it."""
    poison, bucket = tmp_path / "poison", MemoryBucket()
    poison.mkdir()
    mended = [spool.put("gw", lsn, [b"one"]) for lsn in (1, 2, 3)]
    there = (b"PAR1 cut short", mended[1].read_bytes())
    for path, data in zip(mended, there, strict=False):
        bucket.objects[path.name] = data
    for path in mended:
        shutil.move(path, poison / path.name)
    moved, kept = requeue.files(poison, spool.path, Lake(), bucket)
    assert (moved, kept) == ([path.name for path in mended], {})
    for name in moved:
        assert bucket.objects[name] == (spool.path / name).read_bytes()
