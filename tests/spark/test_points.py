"""Killed at every named point of a commit, with a reader that looks all the while.

The process is real and so is kill -9; Spark is played by `test_parquet.py`'s rules: it
writes files, and after a kill repeats the batch that it has not committed.  Java and
all are killed in test_kill.py.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlines import run
from gateway.spark.reading import files

SIZE = 10

#: Every step of a commit, in order; `named` comes once for each file.
POINTS = (
    *("begun", "written", "synced", "staged", "logs synced", "decided"),
    *("named", "published", "in ledger", "done"),
)

#: A job whose Spark is this text: batch N takes file N, and has rows in two tables.
JOB = """
import json, os, signal, sys
from datetime import timedelta
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from gateway.spark import stats
from gateway.spark.checkpoint import Checkpoint
from gateway.spark.lakedisk import Lake
from gateway.spark.parquet import ParquetSink

data, batches, deadly, times = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
SIZE, log = 10, data / "checkpoint" / "events"

def put(name, text):
    path = log / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)

def name(batch):
    return f"events-gw-{batch * SIZE + 1:020d}-{(batch + 1) * SIZE:020d}.parquet"

def write(batch, folder, plan):
    lsns = list(range(batch * SIZE + 1, (batch + 1) * SIZE + 1))
    for table, mine in (("events", lsns[1:]), ("quarantine", lsns[:1])):
        for day in ("2026-03-01", "2026-03-02"):
            place = folder / f"table={table}/protocol=lumberjack/date={day}"
            place.mkdir(parents=True)
            half = mine[::2] if day.endswith("1") else mine[1::2]
            n = len(half)
            pq.write_table(pa.table({
                "node": pa.array(["gw"] * n, pa.string()), "lsn": pa.array(half, pa.int64()),
                "received_at": pa.array([10**15] * n, pa.timestamp("us", tz="UTC")),
                "listener": pa.array(["b"] * n, pa.string()),
                "channel": pa.array([None] * n, pa.string()),
                "payload_bytes": pa.array([1] * n, pa.int32()),
                "flaw": pa.array([None] * n, pa.string()),
                "misfits": pa.array([None] * n, pa.string()),
            }), place / "part-00000.parquet")

def point(step):
    global times
    if step == deadly:
        times -= 1
        if not times:
            os.kill(os.getpid(), signal.SIGKILL)

if not (log / "metadata").exists():
    put("metadata", json.dumps({"id": "0badcafe-0000-4000-8000-000000000001"}))
checkpoint = Checkpoint(log, Lake())
sink = ParquetSink(data / "lake", checkpoint, Lake(), write=write, point=point,
            count=lambda files: stats.count(files, timedelta(minutes=1)))
sink.recover()
for batch in range(checkpoint.committed + 1, batches):
    put(f"sources/0/{batch}", "v1\\n" + json.dumps({"path": "file:///s/" + name(batch), "batchId": batch}))
    put(f"offsets/{batch}", "v1\\n{}\\n" + json.dumps({"logOffset": batch}))
    sink(batch, batch)
    put(f"commits/{batch}", "v1\\n{}")
"""


class Reader(threading.Thread):
    """Reads all tables again and again; keeps what it must never see."""

    def __init__(self, lake: Path, events_of: Callable[[Path], Counter[Any]]) -> None:
        super().__init__()
        self._lake = lake
        self._events_of = events_of
        self._over = threading.Event()
        self.looks = 0
        self.wrong: list[Any] = []

    def run(self) -> None:
        while not self._over.is_set():
            time.sleep(0.02)
            seen = self._events_of(self._lake)
            self.looks += 1
            if set(seen.values()) - {1}:
                self.wrong.append(seen)
            try:
                whole = [
                    len(files(self._lake, table)) for table in ("events", "quarantine")
                ]
            except FileNotFoundError:
                continue
            # Two files of events in each batch, one with rows in quarantine.
            if whole[0] % 2:
                self.wrong.append(whole)

    def stop(self) -> None:
        self._over.set()
        self.join()


@pytest.fixture
def reader(
    tmp_path: Path, lake_events: Callable[..., Counter[tuple[str, int]]]
) -> Iterator[Reader]:
    made = Reader(tmp_path / "lake", lake_events)
    made.start()
    yield made
    made.stop()


def job(data: Path, batches: int, deadly: str, times: int) -> int:
    """Up to so many batches, killed the *times*th time that it is at a point."""
    return run(sys.executable, "-c", JOB, data, batches, deadly, times).returncode


@pytest.mark.slow
def test_killed_at_every_point(
    tmp_path: Path,
    reader: Reader,
    lake_events: Callable[..., Counter[tuple[str, int]]],
    table_rows: Callable[..., list[dict[str, Any]]],
) -> None:
    """Twenty-four kills, two or more at each point: no reader sees a row twice or a part
    of a batch that it asked not to see; in the end every event and every count is there
    once."""
    killed = 0
    batches = 0
    deaths = [(point, times) for point in POINTS for times in (1, 2)]
    deaths += [("named", times) for times in (3, 4, 5, 6)]
    for point, times in deaths:
        batches += 2
        assert job(tmp_path, batches, point, times) == -signal.SIGKILL, point
        killed += 1
        seen = lake_events(tmp_path / "lake")
        assert set(seen.values()) <= {1}
    assert job(tmp_path, batches + 1, "never", 1) == 0
    assert killed >= 20
    lake = tmp_path / "lake"
    everything = Counter(("gw", lsn) for lsn in range(1, (batches + 1) * SIZE + 1))
    assert lake_events(lake) == everything
    counted = sum(row["events"] for row in table_rows(lake / "stats"))
    assert counted == len(everything)
    reader.stop()
    assert reader.looks > killed
    assert reader.wrong == []
