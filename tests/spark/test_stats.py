"""Counts and times of a batch's files, for `stats`."""

import math
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.spark.files import footers
from gateway.spark.rows import stats
from gateway.store.names import parse_file_name

MINUTE = timedelta(minutes=1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_events_are_counted_by_window_listener_and_channel(tmp_path):
    """A window ends where the next begins; flaws, bytes and misfits are summed beside."""
    came = [NOON, NOON + MINUTE / 2, NOON + MINUTE, NOON + timedelta(hours=12)]
    rows = pa.table(
        {
            "received_at": pa.array(came, pa.timestamp("us", tz="UTC")),
            "listener": ["beats"] * 4,
            "channel": pa.array(["a", "a", "a", None], pa.string()),
            "payload_bytes": [5, 6, 7, 8],
            "flaw": pa.array(["invalid-json", None, None, None], pa.string()),
            "misfits": pa.array([None, "status", None, None], pa.string()),
        }
    )
    pq.write_table(rows, tmp_path / "a.parquet")
    counted = stats.count([("protocol=lumberjack", tmp_path / "a.parquet")], MINUTE)
    assert counted.misfits == 1
    today, tomorrow = (f"protocol=lumberjack/date=2026-03-0{day}" for day in (1, 2))
    assert counted.tables.keys() == {today, tomorrow}
    first, second = counted.tables[today].sort_by("window_start").to_pylist()
    assert first == {
        "window_start": NOON,
        "window_end": NOON + MINUTE,
        "listener": "beats",
        "channel": "a",
        "events": 2,
        "payload_bytes": 11,
        "flawed": 1,
    }
    assert (second["window_start"], second["events"]) == (NOON + MINUTE, 1)
    assert (second["flawed"], second["payload_bytes"]) == (0, 7)
    assert counted.tables[tomorrow].to_pylist()[0]["channel"] is None


_DAY = 86_400_000_000


def test_the_days_on_which_events_came_are_counted(spool):
    """By which a batch may have a file open for each; where statistics lack, they may be
    any."""
    for number, day in enumerate((0, 0, 5, 400)):
        spool.put("gw", 1 + number, [b"{}"], received_at=day * _DAY + number)
    files = list(map(parse_file_name, spool.names()))
    assert footers.read(spool.path, files).days == 3
    assert footers.read(spool.path, files[:2]).days == 1
    path = spool.path / spool.names()[0]
    pq.write_table(pq.ParquetFile(path).read(), path, write_statistics=False)
    assert footers.read(spool.path, files).days == math.inf
