"""The whole job, with its Java, killed at named points, and a reader that never stops.

test_points.py has more kills, at every point; there Spark is played.
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import script
from deadlines import eventually, finish
from programs import running
from watched_lake import Watch

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

SIZE = 20
DAY = 86_400_000_000
FIRST_DAY = 1_772_366_400_000_000

#: The job, which ends with kill -9 the so-manieth time that it is at a point.
JOB = """
import functools, itertools, os, signal, sys
from datetime import date
from gateway.spark.run import housekeeping, running
from gateway.spark import job
from gateway.spark.commit import lakedisk, parquet

deadly, times = sys.argv.pop(1), int(sys.argv.pop(1))

def point(step):
    global times
    if step == deadly:
        times -= 1
        if not times:
            os.kill(os.getpid(), signal.SIGKILL)

class Lake(lakedisk.Lake):
    def exchange(self, one, other):
        point("before a swap")
        super().exchange(one, other)
        point("after a swap")

parquet.ParquetSink = functools.partial(parquet.ParquetSink, point=point)
running.Lake = Lake
# A day is over each second.
days = map(date.fromordinal, itertools.count(date(2027, 1, 1).toordinal()))
housekeeping.Compactor = functools.partial(housekeeping.Compactor, today=lambda: next(days))
sys.exit(job.main())
"""

DEATHS = (
    ("written", 1),
    ("decided", 1),
    ("named", 1),
    ("before a swap", 1),
    ("named", 4),
    ("published", 1),
    ("after a swap", 2),
    ("in ledger", 1),
)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    made = Watch(tmp_path / "data" / "lake", tmp_path / "watch", SIZE)
    yield made
    made.kill()


@pytest.fixture
def put(spool: Any) -> Callable[[], None]:
    """Puts two files into the spool, of two days that are over."""
    firsts = itertools.count(1, SIZE)

    def two() -> None:
        for day in range(2):
            first = next(firsts)
            texts = [b'{"message": "line %d"}' % n for n in range(first, first + SIZE)]
            at = FIRST_DAY + day * DAY
            spool.put("gw", first, texts, received_at=at, flaws={3: "invalid-json"})

    return two


def test_killed_under_the_eyes_of_a_reader(
    settings_file, put, spool, tmp_path, watch, lake_events, table_rows
):
    """Through kill, start, what is left of a batch, and compaction by the job itself: no
    read has a row twice, or less than one before, or a part of a batch where it asks for
    whole ones; in the end all is there once, and each file is archived."""
    words = "--config", settings_file(trigger="0s", compact=True)
    with running() as start:
        for point, times in DEATHS:
            put()
            job = start(*script.words(JOB, point, times, *words))
            while job.poll() is None:
                if not spool.names():
                    put()
                time.sleep(0.2)
            assert job.returncode == -signal.SIGKILL, point
            watch.look_again()
        job = start(*script.words(JOB, "never", 1, *words))
        eventually(lambda: spool.names() == [], "an empty spool", 120)
        eventually(lambda: compacted(tmp_path / "data" / "lake"), "few files", 120)
        job.send_signal(signal.SIGTERM)
        finish(job, seconds=120)
        assert job.returncode == 0
    assert watch.end() == []
    assert lake_events() == spool.produced
    archived = list((tmp_path / "data" / "archive").iterdir())
    assert len(archived) == len(spool.produced) // SIZE
    counted = table_rows(tmp_path / "data" / "lake" / "stats")
    assert sum(row["events"] for row in counted) == len(spool.produced)
    assert watch.looks[-1] == len(spool.produced) // SIZE * (SIZE - 1)


def compacted(lake: Path) -> bool:
    """Whether some day has become one file."""
    return any(
        "-compact-" in path.name for path in (lake / "events").rglob("*.parquet")
    )
