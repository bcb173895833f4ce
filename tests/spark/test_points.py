"""Killed at every named point of a commit, with a reader that looks all the while.

The processes are real and so is kill -9; Spark is played by `test_parquet.py`'s rules: it
writes files, and after a kill repeats the batch that it has not committed.  Java and
all are killed in test_lost_executors.py.
"""

import itertools
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import script
from deadlines import eventually, run
from gateway.store.readers.lake import tables_of
from programs import Script
from watched_lake import Watch

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
from types import SimpleNamespace
import pyarrow as pa, pyarrow.parquet as pq
from gateway.spark.rows import stats
from gateway.spark.run.checkpoint import Checkpoint
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.parquet import ParquetSink

data, batches, deadly, times = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
tables = [one for one in sys.argv[5].split(",") if one]
SIZE, log = 10, data / "checkpoint" / "events"

def put(name, text):
    path = log / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)

def name(batch):
    return f"events-gw_aaaaaaaaaa-{batch * SIZE + 1:020d}-{(batch + 1) * SIZE:020d}.parquet"

def write(batch, folder, plan):
    first, *lsns = range(batch * SIZE + 1, (batch + 1) * SIZE + 1)
    by = {"quarantine": [first]}
    for lsn in lsns:
        by.setdefault([*tables, "events"][lsn % (len(tables) + 1)], []).append(lsn)
    for table, mine in by.items():
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
sink = ParquetSink(data / "lake", data / "spool", checkpoint, Lake(), write=write, point=point,
            rules=dict.fromkeys(tables, SimpleNamespace(retention=None)),
            count=lambda files: stats.count(files, timedelta(minutes=1)))
sink.recover()
for batch in range(checkpoint.committed + 1, batches):
    put(f"sources/0/{batch}", "v1\\n" + json.dumps({"path": "file:///s/" + name(batch), "batchId": batch}))
    put(f"offsets/{batch}", "v1\\n{}\\n" + json.dumps({"logOffset": batch}))
    sink(batch, batch)
    put(f"commits/{batch}", "v1\\n{}")
"""


#: Compacts whatever day there is, again and again, as one that is over and as the current
#: one, of which two files of a tier are enough; a kill comes before or after the
#: swap of every seventh folder.
COMPACTOR = """
import os, signal, sys, time
from datetime import date
from itertools import chain
from pathlib import Path
from gateway.spark.later import compact as module
from gateway.spark.later.compact import compact, compact_open
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.partition import Busy

module.TIERS = (2, 2)
lake, deadly, home, swaps = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), 0

class Disk(Lake):
    def exchange(self, one, other):
        global swaps
        swaps += 1
        last = swaps == 7 and deadly != "never"
        if last and deadly == "before the swap":
            os.kill(os.getpid(), signal.SIGKILL)
        super().exchange(one, other)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

with (home / "done").open("a", 1) as said, (home / "rounds").open("a", 1) as rounds:
    while True:
        try:
            days = [date(2026, 3, 1), date(2026, 3, 2)]
            of_days = [compact_open(lake, Disk(), day, upto=1 << 40) for day in days]
            for done in chain(*of_days, compact(lake, Disk(), before=date(2027, 1, 1))):
                print(done.before, done.after, file=said)
        except Busy:
            pass
        print(file=rounds)
        time.sleep(0.05)
"""


class Compacting:
    """The compactor, which is killed and started again as long as the test is not over."""

    def __init__(self, lake: Path, home: Path) -> None:
        self._lake = lake
        self._home = home
        self._deaths = itertools.cycle(("before the swap", "after the swap"))
        self._scripts: list[Script] = []

    def tend(self) -> None:
        """Start it, if it is dead, and wait until it has gone over all once more, or died."""
        if not self._scripts or self._dead:
            home = self._home / f"compactor-{len(self._scripts)}"
            self._scripts.append(
                Script(COMPACTOR, home, self._lake, next(self._deaths))
            )
        newest = self._scripts[-1]
        seen = len(newest.lines("rounds"))
        eventually(
            lambda: self._dead or len(newest.lines("rounds")) > seen + 1, "a round"
        )

    @property
    def _dead(self) -> bool:
        return self._scripts[-1].process.poll() is not None

    @property
    def killed(self) -> int:
        """How often."""
        return sum(one.process.poll() is not None for one in self._scripts)

    @property
    def done(self) -> int:
        """How many folders it has made anew."""
        return sum(len(one.lines("done")) for one in self._scripts)

    def end(self) -> None:
        self._scripts[-1].kill()


@pytest.fixture
def watch(tmp_path) -> Iterator[Watch]:
    made = Watch(tmp_path / "lake", tmp_path / "watch", SIZE)
    yield made
    made.kill()


@pytest.fixture
def compacting(tmp_path) -> Iterator[Compacting]:
    made = Compacting(tmp_path / "lake", tmp_path)
    made.tend()
    yield made
    made.end()


def job(
    data: Path, batches: int, deadly: str, times: int, tables: Iterable[str] = ()
) -> int:
    """Up to so many batches, killed the *times*th time that it is at a point; *tables* are
    those by rule.
    """
    words = script.words(JOB, data, batches, deadly, times, ",".join(tables))
    return run(*words).returncode


@pytest.mark.slow
def test_killed_at_every_point(tmp_path, watch, compacting, lake_events, table_rows):
    """Twenty-four kills, two or more at each point, while another process compacts the
    tables and is killed, too: a reader that never stops sees no row twice, none less than
    before, and no part of a batch where it asks for whole ones; in the end every event and
    every count is there once."""
    killed = 0
    batches = 0
    deaths = [(point, times) for point in POINTS for times in (1, 2)]
    deaths += [("named", times) for times in (3, 4, 5, 6)]
    for point, times in deaths:
        batches += 2
        assert job(tmp_path, batches, point, times) == -signal.SIGKILL, point
        killed += 1
        watch.look_again()
        compacting.tend()
    assert job(tmp_path, batches + 1, "never", 1) == 0
    assert killed >= 20
    assert watch.end() == []
    assert compacting.killed >= 2
    assert compacting.done > killed
    compacting.end()
    lake = tmp_path / "lake"
    everything = Counter(("gw", lsn) for lsn in range(1, (batches + 1) * SIZE + 1))
    assert lake_events(lake) == everything
    counted = sum(row["events"] for row in table_rows(lake / "stats"))
    assert counted == len(everything)
    assert watch.looks[-1] == len(everything) - (batches + 1)


#: What each start finds in the configuration: a table is added, taken out, put elsewhere.
RULES = (("orders", "clicks"), ("orders", "clicks", "chat"), ("chat", "orders"), ())
DEATHS = [("begun", 1), ("decided", 1), ("named", 3), ("published", 1)]


@pytest.mark.parametrize(
    "deaths",
    [
        DEATHS,
        pytest.param(
            [*DEATHS, *((point, n) for point in POINTS for n in (1, 2))],
            marks=pytest.mark.long,
        ),
    ],
    ids=["few", "all"],
)
def test_killed_with_tables_by_rule(tmp_path, lake_events, table_rows, deaths):
    """Each start has other rules: every event is in one table once, and the counts of a table
    are its rows.
    """
    batches, rules = 0, itertools.cycle(RULES)
    for point, times in deaths:
        batches += 2
        died = job(tmp_path, batches, point, times, next(rules))
        assert died == -signal.SIGKILL, point
    assert job(tmp_path, batches + 1, "never", 1, next(rules)) == 0
    lake = tmp_path / "lake"
    size = (batches + 1) * SIZE
    assert lake_events(lake) == Counter(("gw", lsn) for lsn in range(1, size + 1))
    counted: Counter[str] = Counter()
    for row in table_rows(lake / "stats"):
        counted[row["table"]] += row["events"]
    names = tables_of(lake)
    assert set(names.by_rule) == {"orders", "clicks", "chat"}
    there = {name: len(table_rows(lake / name, "lsn")) for name in names.of_events}
    assert counted == there
