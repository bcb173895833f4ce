"""Events that their sender sent twice."""

import json
import os
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.spark.commit import fingerprints
from gateway.spark.commit.fingerprints import Fingerprints
from gateway.spark.commit.ledger import Ranges
from incarnations import A

NOON = "2026-11-27T12:00:00.000Z"


def put(path: Path, first: int, hashes: list[int | None]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    count = len(hashes)
    lsns = pa.array(range(first, first + count), pa.int64())
    place = pa.array(hashes, pa.int64())
    pq.write_table(
        pa.table(
            {
                "node": ["gw"] * count,
                "incarnation": [A] * count,
                "lsn": lsns,
                "place": place,
            }
        ),
        path,
    )
    return path


@pytest.fixture
def now() -> list[float]:
    """A clock that tests set."""
    return [1000.0]


@pytest.fixture
def known(tmp_path, now) -> Fingerprints:
    """Looks back for a minute."""
    return Fingerprints(tmp_path / "lake", 60.0, lambda: now[0])


def test_the_first_one_stays(known, tmp_path):
    """Within a file, between files of a batch, between batches; null is no place."""
    one = put(tmp_path / "1", 1, [7, 8, None, 7, None])
    two = put(tmp_path / "2", 11, [9, 8])
    assert known.resent([one, two]) == Ranges({"gw": {A: [(4, 4), (12, 12)]}})
    known.committed()
    assert known.resent([put(tmp_path / "3", 21, [9, 10, 7])]) == Ranges(
        {"gw": {A: [(21, 21), (23, 23)]}}
    )


def test_a_batch_that_failed_was_not_there(known, tmp_path):
    """It comes again, and is not its own double."""
    path = put(tmp_path / "1", 1, [7, 8])
    assert not list(known.resent([path]))
    assert not list(known.resent([path]))
    known.committed()
    assert len(known.resent([path])) == 2


def test_beyond_the_horizon(known, tmp_path, now):
    """What came long ago is forgotten."""
    path = put(tmp_path / "1", 1, [7])
    known.resent([path])
    known.committed()
    now[0] += 59
    assert len(known.resent([path])) == 1
    now[0] += 2
    assert len(known.resent([path])) == 0


def test_memory_is_bounded(known, tmp_path, monkeypatch):
    """The oldest batches are forgotten first."""
    monkeypatch.setattr(fingerprints, "MOST", 5)
    for first in (1, 11, 21):
        known.resent([put(tmp_path / str(first), first, [first, first + 1])])
        known.committed()
    assert len(known.resent([put(tmp_path / "x", 91, [1, 2, 11, 12, 21, 22])])) == 4


def test_a_start_remembers(tmp_path):
    """The tables are the memory."""
    folder = tmp_path / "lake" / "events" / "protocol=lumberjack" / "date=2026-03-01"
    put(folder / "part-0.parquet", 1, [7, 8])
    known = Fingerprints(tmp_path / "lake", 60.0)
    assert known.resent([put(tmp_path / "1", 11, [8, 9])]) == Ranges(
        {"gw": {A: [(11, 11)]}}
    )


def test_a_start_remembers_no_more_than_is_kept(tmp_path, monkeypatch):
    """The newest rows of the newest files; a day that is compacted meanwhile does no
    harm, and hidden files are none."""
    monkeypatch.setattr(fingerprints, "MOST", 3)
    folder = tmp_path / "lake" / "events" / "protocol=lumberjack" / "date=2026-03-01"
    for number in range(5):
        path = put(
            folder / f"part-{number}.parquet", number * 10, [number, number + 100]
        )
        os.utime(path, (1000 + number, 1000 + number))
    put(folder / ".part-9.parquet", 90, [0, 1])
    read = fingerprints._fingerprints
    opened: list[str] = []

    def gone_once(path: Path) -> Any:
        opened.append(path.name)
        if len(opened) == 1:
            raise FileNotFoundError(path)
        return read(path)

    monkeypatch.setattr(fingerprints, "_fingerprints", gone_once)
    known = Fingerprints(tmp_path / "lake", 60.0, lambda: 1010.0)
    known._known = known._load()
    assert opened == ["part-4.parquet", "part-4.parquet", "part-3.parquet"]
    assert [hashes.tolist() for _, hashes in known._known] == [[3, 103], [4, 104]]


def test_a_long_horizon_is_looked_through_in_parts(known, tmp_path, now):
    """A batch a second for as long as it reaches: no batch is looked for in thousands,
    and none is forgotten before its time."""
    now[0] = 100_000.0
    known._horizon, known._part = 3600.0, 3600.0 / fingerprints._PARTS
    known._known = deque()
    for second in range(3600):
        now[0] += 1
        known._new = np.array([second], np.int64)
        known.committed()
    assert len(known._known) <= fingerprints._PARTS + 2
    again = known.resent([put(tmp_path / "1", 1, [0, 1800, 3599, 3600])])
    assert again == Ranges({"gw": {A: [(1, 3)]}})
    now[0] += 3600 - 1800
    again = known.resent([put(tmp_path / "2", 11, [0, 1800, 3599, 3600])])
    assert again == Ranges({"gw": {A: [(12, 13)]}})


@pytest.mark.spark
@pytest.mark.parametrize(
    "by", ["contents", pytest.param("place", marks=pytest.mark.long)]
)
def test_a_window_that_came_twice(by, run_once, spool, config, table_rows, lake_events):
    """`events` has each line once, `quarantine` its double, though the shipper's maps are
    in another order; what only shares its place is left alone: a file that begins anew, an
    inode that another file has, other fields, another time of reading (which is a double
    where files are read again, by: place), and events without a place."""
    config.spark.deduplicate = True
    config.spark.deduplicate_by = by

    def line(offset: int, text: str, **more: Any) -> dict[str, Any]:
        log = {"offset": offset, "file": {"path": "/a.log", "inode": "5"}}
        return {
            "@timestamp": NOON,
            "message": text,
            "agent": {"id": "x"},
            "log": log,
            **more,
        }

    def sent(events: list[dict[str, Any]], *, turned: bool = False) -> list[bytes]:
        return [
            json.dumps(dict(reversed(one.items())) if turned else one).encode()
            for one in events
        ]

    window = [line(0, "a"), line(10, "b"), line(20, "c")]
    spool.put("gw", 1, sent(window))
    run_once()
    renamed = {"offset": 0, "file": {"path": "/a.log", "inode": "6"}}
    again = [*window, line(30, "d"), line(0, "a", log=renamed), line(10, "other")]
    read_again = line(20, "c", **{"@timestamp": NOON.replace("12", "13")})
    spool.put("gw", 4, [*sent([*again, read_again], turned=True), b'{"message": "a"}'])
    run_once()
    lake = config.data_dir / "lake"
    assert lake_events(lake) == spool.produced
    events = {row["lsn"]: row["message"] for row in table_rows(lake / "events")}
    once = ["a", "b", "c", "d", "a", "other", *["c"] * (by == "contents"), "a"]
    assert list(dict(sorted(events.items())).values()) == once
    set_aside = {row["lsn"]: row for row in table_rows(lake / "quarantine")}
    assert sorted(set_aside) == [4, 5, 6, *[10] * (by == "place")]
    assert {row["flaw"] for row in set_aside.values()} == {"resent"}
    assert json.loads(set_aside[4]["body"]) == window[0]
