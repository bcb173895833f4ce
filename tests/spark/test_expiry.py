"""Days that are too old leave the tables: whole, written down, under readers and kills."""

import itertools
import json
import signal
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

import script
from deadlines import eventually, run
from gateway.audit import audit
from gateway.cli import main
from gateway.config.tables import TableByRule
from gateway.spark import reading
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger, Ranges
from gateway.spark.commit.partition import Busy
from gateway.spark.later.deleted_ranges import DeletedRanges, add_lsns, mask_of
from gateway.spark.later.expiry import Expiry, expire, limits
from gateway.store.directories import Directories
from gateway.store.names import Life
from gateway.store.readers.deleted import deletions, folder_of
from gateway.tables import Tables
from played_spark import PowerCut
from programs import Script

SIZE = 10
DAYS = [date(2026, 3, 1) + timedelta(n) for n in range(6)]
FIRST = {"events": DAYS[3]}


def put(
    lake: Path, table: str, day: date, first: int, protocol: str = "pomelo"
) -> None:
    """*SIZE* events of one day."""
    folder = lake / table / f"protocol={protocol}" / f"date={day}"
    folder.mkdir(parents=True, exist_ok=True)
    lsns = list(range(first, first + SIZE))
    rows = {
        "node": ["gw"] * SIZE,
        "incarnation": ["a"] * SIZE,
        "lsn": lsns,
        "flaw": pa.array([None] * SIZE, pa.string()),
    }
    pq.write_table(pa.table(rows), folder / f"part-{first:010d}-0badcafe-0.parquet")


@pytest.fixture
def lake(tmp_path) -> Path:
    """Two protocols' events, and flawed ones, of six days; a ledger."""
    made = tmp_path / "lake"
    firsts = itertools.count(1, SIZE)
    committed = Ranges()
    for day in DAYS:
        for table, protocol in (
            ("events", "pomelo"),
            ("events", "rsio"),
            ("quarantine", "pomelo"),
        ):
            first = next(firsts)
            put(made, table, day, first, protocol)
            committed.add(Life("gw", "a"), first, first + SIZE - 1)
    (made / ".gateway").mkdir()
    ledger = Ledger(committed=committed, sequence=1000)
    ledger.save(Lake(), made / ".gateway" / "events.json")
    return made


def seen(lake: Path, table: str) -> Counter[tuple[date, str]]:
    """How many rows each folder has, as any reader finds them."""
    found = ds.dataset(lake / table, partitioning="hive", format="parquet")
    rows = found.to_table(columns=["date", "protocol", "lsn"]).to_pylist()
    assert len({row["lsn"] for row in rows}) == len(rows)
    return Counter((str(row["date"]), row["protocol"]) for row in rows)


def test_whole_days_go_and_the_audit_knows(lake, tmp_path, capsys):
    """Of the tables that are named, the days before the first that stays; the audit says how
    many days and events, and is complete."""
    done = list(expire(lake, Lake(), FIRST))
    assert [one.rows for one in done] == [SIZE] * 6
    assert seen(lake, "events") == Counter(
        {(str(day), name): SIZE for day in DAYS[3:] for name in ("pomelo", "rsio")}
    )
    assert sum(seen(lake, "quarantine").values()) == 6 * SIZE
    report = audit(Directories.under(tmp_path))
    assert report.complete
    assert (report.events, report.count("expired"), report.count("deleted")) == (
        180,
        60,
        0,
    )
    assert main(["audit", "--data-dir", str(tmp_path)]) == 0
    assert (
        "complete: 120 events, each exactly once; 3 days, 60 events expired by retention"
        in capsys.readouterr().out
    )
    assert list(expire(lake, Lake(), FIRST)) == []
    [written] = deletions(lake)
    assert written.reason == "spark.retention"
    gone = DeletedRanges(lake)
    assert len(gone()) == 60
    counts = gone.counts()
    assert (counts["expired_days"], counts["expired_events"]) == ({"events": 3}, 60)
    assert (counts["deleted_events"], counts["deletions_unfinished"]) == (0, 0)


def test_all_days_of_a_node_may_have_gone(lake, tmp_path):
    """What it gave is still asked for, and accounted for."""
    everything = dict.fromkeys(("events", "quarantine"), date(2027, 1, 1))
    list(expire(lake, Lake(), everything))
    report = audit(Directories.under(tmp_path))
    [node] = report.nodes
    assert report.complete
    assert (node.first, node.last, report.count("expired")) == (1, 180, 180)


def test_what_is_missing_beside_it_is_still_a_hole(lake, tmp_path):
    """Somebody has removed a day that was not to go."""
    list(expire(lake, Lake(), FIRST))
    for path in (lake / "events").glob(f"*/date={DAYS[4]}/*"):
        path.unlink()
    report = audit(Directories.under(tmp_path), pause=lambda _: None)
    assert not report.complete
    assert sum(node.holes.size for node in report.nodes) == 2 * SIZE


def test_what_came_late_is_written_down_too(lake):
    """A batch lands in a day that is on its way out: it goes with its name, or stays."""
    late = iter([lambda: put(lake, "events", DAYS[0], 501)])

    def point(name: str) -> None:
        if name == "written down":
            next(late, lambda: None)()

    list(expire(lake, Lake(), FIRST, point=point))
    assert len(DeletedRanges(lake)()) == 60 + SIZE
    assert str(DAYS[0]) not in {day for day, _ in seen(lake, "events")}


def test_a_batch_that_came_late_is_finished_first(lake):
    """Its files have their names, and the ledger is not told yet: without them no start could
    finish it."""
    put(lake, "events", DAYS[0], 901)
    [late] = (lake / "events").rglob("part-0000000901-*")
    manifest = lake / ".gateway" / "staging" / "events" / "7" / "manifest"
    manifest.parent.mkdir(parents=True)
    moves = [["0", str(late.relative_to(lake))]]
    manifest.write_text(json.dumps({"moves": moves}))
    with pytest.raises(Busy, match="is not finished"):
        list(expire(lake, Lake(), FIRST))
    assert late.exists()
    manifest.unlink()
    assert sum(one.rows for one in expire(lake, Lake(), FIRST)) == 7 * SIZE


@pytest.mark.parametrize("point", ["written down", "replaced", "removed"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_crash_leaves_whole_days(lake, tmp_path, point, times):
    """Whatever it has cut off, a folder is there whole or not at all, the audit is complete,
    and the next time goes on."""
    left = [times]

    def cut(name: str) -> None:
        left[0] -= name == point
        if not left[0]:
            raise PowerCut

    with pytest.raises(PowerCut):
        list(expire(lake, Lake(), FIRST, point=cut))
    assert set(seen(lake, "events").values()) == {SIZE}
    assert audit(Directories.under(tmp_path)).complete
    list(expire(lake, Lake(), FIRST))
    assert len(seen(lake, "events")) == 6
    assert not any((lake / ".gateway" / "compact").rglob("*.parquet"))
    assert audit(Directories.under(tmp_path)).count("expired") == 60


READER = """
import sys, time
from collections import Counter
from pathlib import Path
import pyarrow.dataset as ds
from gateway.spark.reading import files

lake, home = Path(sys.argv[1]), Path(sys.argv[2])

def plain():
    return ds.dataset(lake / "events", partitioning="hive", format="parquet")

def whole():
    return ds.dataset(files(lake, "events"), partitioning="hive", format="parquet")

with (home / "looks").open("a", 1) as looks, (home / "wrong").open("a", 1) as wrong:
    while True:
        for way in plain, whole:
            try:
                rows = way().to_table(columns=["protocol", "date", "lsn"]).to_pylist()
            except FileNotFoundError:
                continue
            days = Counter((str(row["date"]), row["protocol"]) for row in rows)
            if set(days.values()) - {20} or len({row["lsn"] for row in rows}) < len(rows):
                print(way.__name__, days, file=wrong)
        print(len(days), file=looks)
"""

KILLED = """
import os, signal, sys
from datetime import date
from pathlib import Path
from gateway.spark.later.expiry import expire
from gateway.spark.commit.lakedisk import Lake

lake, first, deadly = Path(sys.argv[1]), date.fromisoformat(sys.argv[2]), sys.argv[3]

def point(name):
    if name == deadly:
        os.kill(os.getpid(), signal.SIGKILL)

list(expire(lake, Lake(), {"events": first}, point=point))
"""


def test_killed_under_the_eyes_of_a_reader(lake, tmp_path):
    """Who looks all the while, by a listing or by `gateway.spark.reading`, sees each day of a
    protocol whole or not at all, and no row twice."""
    for day in DAYS:  # two files a day
        for number, protocol in enumerate(("pomelo", "rsio")):
            first = 1000 + 20 * day.toordinal() + 10 * number
            put(lake, "events", day, first, protocol)
    ledger = Ledger.load(Lake(), lake / ".gateway" / "events.json")
    Ledger(committed=ledger.committed, sequence=10**9).save(
        Lake(), lake / ".gateway" / "events.json"
    )
    reader = Script(READER, tmp_path / "reader", lake)
    try:
        deaths = itertools.cycle(("written down", "replaced", "removed"))
        for first in DAYS[1:]:
            before = len(reader.lines("looks"))
            eventually(lambda n=before: len(reader.lines("looks")) > n, "a look")
            deadly = next(deaths)
            killed = run(*script.words(KILLED, lake, first, deadly))
            assert killed.returncode == -signal.SIGKILL
        list(expire(lake, Lake(), {"events": DAYS[5]}))
        before = len(reader.lines("looks"))
        eventually(lambda: len(reader.lines("looks")) > before + 1, "a look")
    finally:
        reader.kill()
    assert reader.lines("wrong") == []
    assert len(seen(lake, "events")) == 2


def test_days_are_counted_from_their_end():
    """A day goes once all of it is older; what has no key stays for ever."""
    kept = SimpleNamespace(events=86_400.0, quarantine=None, stats=10 * 86_400.0)
    now = datetime(2026, 3, 11, 12, tzinfo=UTC)
    assert limits(kept, now) == {"events": date(2026, 3, 10), "stats": date(2026, 3, 1)}


def test_each_table_by_rule_has_its_own_retention():
    """One that says none has that of events.  One that is no longer configured, as where it was
    renamed, keeps the one that it had, also where the ledger is read again.
    """
    kept = SimpleNamespace(events=86_400.0, quarantine=None, stats=None)
    now = datetime(2026, 3, 11, 12, tzinfo=UTC)
    rules = {
        "orders": {"where": {"path": "a", "equals": 1}, "retention": "10d"},
        "audit": {"where": {"path": "a", "equals": 2}, "retention": "36500d"},
        "chat": {"where": {"path": "a", "equals": 3}},
    }
    tables = TypeAdapter(dict[str, TableByRule])
    before = Ledger().with_tables(tables.validate_python(rules))
    rules["sales"] = rules.pop("orders")
    rules["audit"] = {**rules["audit"], "retention": None}
    read = Ledger.parse(before.text(), "here")
    after = read.with_tables(tables.validate_python(rules))
    assert limits(kept, now, after.tables, after.retention) == {
        **dict.fromkeys(("orders", "sales"), date(2026, 3, 1)),
        **dict.fromkeys(("events", "chat", "audit"), date(2026, 3, 10)),
    }
    assert after.tables == Tables(("orders", "audit", "chat", "sales"))


def test_by_itself_when_a_day_ends():
    """Once for each day, at the start too, and again some minutes after it failed."""
    now, clock = [datetime(2026, 3, 11, 12, tzinfo=UTC)], [0.0]
    asked: list[Any] = []
    failed: list[Exception] = []

    def work(before: Any, stop: Callable[[], bool]) -> Any:
        asked.append(before["events"])
        if len(asked) == 2:
            raise OSError("full")
        yield "a day"

    done: list[object] = []
    kept = SimpleNamespace(events=86_400.0, quarantine=None, stats=None)
    expiry = Expiry(
        work, kept, done.append, failed.append, lambda: now[0], lambda: clock[0]
    )

    def tend() -> None:
        expiry.tend()
        eventually(lambda: not expiry.busy, "an end")

    tend()
    tend()
    assert asked == [date(2026, 3, 10)]
    now[0] += timedelta(1)
    tend()
    clock[0] += 599
    tend()
    assert len(asked) == 2
    clock[0] += 2
    tend()
    assert asked[1:] == [date(2026, 3, 11)] * 2
    assert (len(done), len(failed)) == (2, 1)
    expiry.finish()
    assert len(asked) == 4
    expiry.stop()


@given(st.lists(st.integers(1, 60)), st.lists(st.integers(1, 60)))
def test_ranges_and_rows_agree(lsns, wanted):
    """Lsns in any order, with doubles, are the same set as ranges; and a row is chosen if and
    only if its name is among those that are wanted, of its own incarnation."""
    life, other = Life("gw", "a"), Life("gw", "b")
    found = Ranges()
    if lsns:
        add_lsns(found, life, np.array(lsns))
    spans = [(first, last) for _, first, last in found]
    assert {n for first, last in spans for n in range(first, last + 1)} == set(lsns)
    assert all(one[1] + 1 < two[0] for one, two in itertools.pairwise(spans))
    asked = Ranges()
    for lsn in wanted:
        asked.add(life, lsn, lsn)
        asked.add(other, lsn + 100, lsn + 100)
    rows = pa.table(
        {
            "node": pa.array(["gw"] * 2 * len(lsns), pa.string()),
            "incarnation": pa.array(
                ["a"] * len(lsns) + [None] * len(lsns), pa.string()
            ),
            "lsn": pa.array([*lsns, *lsns], pa.int64()),
        }
    )
    mask = mask_of(rows, asked).tolist()
    assert mask == [lsn in wanted for lsn in lsns] + [False] * len(lsns)


def test_a_damaged_record_is_told(lake, tmp_path):
    """The audit says which file, and the job would not put events back."""
    list(expire(lake, Lake(), FIRST))
    path = folder_of(lake) / "expired.json"
    path.write_text("{")
    report = audit(Directories.under(tmp_path), pause=lambda _: None)
    assert any("expired.json" in problem.why for problem in report.problems)
    with pytest.raises(Exception, match=r"expired\.json"):
        DeletedRanges(lake)()
    assert len(reading.files(lake, "events")) == 6
