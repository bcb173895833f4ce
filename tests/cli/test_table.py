"""`gateway table`: the newest rows, and what is said while there are none."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.cli import table
from gateway.store.lake import BEAT, health_path

Gateway = Callable[..., tuple[int, str, str]]


def write(root: Path, name: str, lsns: range, date: str = "2026-01-01") -> Path:
    """A file of a table; those written later are newer."""
    path = root / f"lake/events/protocol=plain/date={date}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "node": "gw-1",
            "lsn": lsn,
            "received_at": datetime.fromtimestamp(lsn, UTC),
            "event_time": datetime.fromtimestamp(lsn, UTC),
            "message": f"no. {lsn}",
        }
        for lsn in lsns
    ]
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=3)
    os.utime(path, (lsns.stop, lsns.stop))
    return path


def test_the_newest_rows(system: Any, gateway: Gateway) -> None:
    """Over files, row groups and days; the newest last; hidden files are not there."""
    write(system.root, "a.parquet", range(1, 8))
    write(system.root, "b.parquet", range(8, 10), "2026-01-02")
    write(system.root, ".c.parquet", range(10, 12))
    status, out, err = gateway("table", "-n", 4, "--json", "--columns", "lsn,date")
    assert (status, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["lsn"] for row in rows] == [6, 7, 8, 9]
    assert [row["date"][-2:] for row in rows] == ["01", "01", "02", "02"]


def test_for_people(system: Any, gateway: Gateway) -> None:
    """Columns under their names; what is not printable plays no tricks."""
    write(system.root, "a.parquet", range(1, 3))
    status, out, _ = gateway("table")
    assert status == 0
    head, *rows = out.splitlines()
    assert head.split() == ["event_time", "protocol", "message"]
    assert rows[1].split() == ["1970-01-01T00:00:02.000Z", "plain", "no.", "2"]
    assert table._cell("\x1b[2J") == "\\u001b[2J"


def test_a_column_that_is_not_there(system: Any, gateway: Gateway) -> None:
    """Is wrong use; those that are there are named."""
    write(system.root, "a.parquet", range(1, 3))
    status, out, err = gateway("table", "--columns", "lsn,mesage")
    assert (status, out) == (2, "")
    assert err.startswith("gateway: no column 'mesage'; there is: node, lsn,")


def test_it_waits_for_the_first_batch(
    system: Any, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback: it says what it waits for, and shows the rows when they come."""
    system.node()
    looked = threading.Event()

    def sleep(_: float) -> None:
        looked.set()
        write(system.root, "a.parquet", range(1, 2))

    monkeypatch.setattr(table.time, "sleep", sleep)
    status, out, err = gateway("table", "--json")
    assert looked.is_set()
    assert status == 0
    assert json.loads(out)["message"] == "no. 1"
    lake = system.root / "lake" / "events"
    assert err == (
        f"gateway table: nothing in {lake} yet: no Spark job has run here; "
        "start one: gateway spark …\n"
    )


@pytest.mark.parametrize(
    ("silent", "says"),
    [(None, "start one"), (1.0, "first batch"), (20 * BEAT, "1 min; does it run?")],
)
def test_what_is_missing(tmp_path: Path, silent: float | None, says: str) -> None:
    """The job did not start, does not run any more, or has its first batch to come."""
    if silent is not None:
        health = health_path(tmp_path)
        health.parent.mkdir(parents=True)
        health.touch()
        os.utime(health, (1e9 - silent, 1e9 - silent))
    assert says in table.missing(tmp_path, "stats", now=1e9)


def test_nothing_in_quarantine_is_fine(system: Any, gateway: Gateway) -> None:
    """It is not waited for where other tables have rows."""
    write(system.root, "a.parquet", range(1, 3))
    status, out, err = gateway("table", "quarantine")
    assert (status, out) == (0, "")
    assert err == f"no rows in {system.root}/lake/quarantine\n"
