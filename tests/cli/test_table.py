"""`gateway table`: the newest rows, what is said while there are none, and whether a day is
whole.
"""

import argparse
import json
import os
import threading
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway import cli
from gateway.cli import _complete, table
from gateway.figures.reported import BEAT
from gateway.sdk.command import WrongUse
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger
from gateway.store.names import Life
from gateway.store.readers.complete import Completeness
from gateway.store.readers.lake import FORM, health_path, leave_word
from gateway_testkit.daemon import listener
from incarnations import A


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


def test_the_newest_rows(system, gateway):
    """Over files, row groups and days; the newest last; hidden files are not there, and a day
    that is over is none of today, though its files were written anew."""
    os.utime(write(system.root, "a.parquet", range(1, 8)))
    write(system.root, "b.parquet", range(8, 10), "2026-01-02")
    write(system.root, ".c.parquet", range(10, 12))
    status, out, err = gateway("table", "-n", 4, "--json", "--columns", "lsn,date")
    assert (status, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["lsn"] for row in rows] == [6, 7, 8, 9]
    assert [row["date"][-2:] for row in rows] == ["01", "01", "02", "02"]


def test_paths_without_a_column_are_named(system, gateway):
    """Of those that half of the events have; programs are told nothing."""
    path = write(system.root, "a.parquet", range(1, 5))
    bodies = ['{"message": "m", "status\\u001b": 1}'] * 3 + ['{"odd": 1}']
    rows = [
        {**row, "listener": "in", "content_type": "application/json", "body": body}
        for row, body in zip(pq.read_table(path).to_pylist(), bodies, strict=True)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    told = {"data_dir": str(system.root), "listeners": [listener("in", "lumberjack")]}
    config = system.root / "gateway.yaml"
    config.write_text(json.dumps(told))
    _, _, err = gateway("table", "--config", config, where=False)
    assert err.startswith(
        "In many events, and in no column: status\\u001b; gateway spark"
    )
    assert gateway("table", "--json", "--config", config, where=False)[2] == ""


def test_for_people(says, system):
    """Columns under their names; what is not printable plays no tricks."""
    write(system.root, "a.parquet", range(1, 3))
    out = says(0, "table")
    head, *rows = out.splitlines()
    assert head.split() == ["time", "protocol", "listener", "what", "who", "body"]
    at = datetime.fromtimestamp(2).strftime("%Y-%m-%d %H:%M:%S")  # noqa: DTZ006
    assert rows[1].split() == [*at.split(), "plain", "data", "no.", "2"]


def test_a_column_that_is_not_there(system, gateway):
    """Is wrong use; those that are there are named."""
    write(system.root, "a.parquet", range(1, 3))
    status, out, err = gateway("table", "--columns", "lsn,mesage")
    assert (status, out) == (2, "")
    assert err.startswith("gateway: no column 'mesage'; there is: node, lsn,")


def test_a_file_that_can_not_be_read(system, warns, monkeypatch):
    """Damaged, or not for this user: it is named, and there is no traceback."""
    path = write(system.root, "a.parquet", range(1, 3))
    whole = path.read_bytes()
    path.write_bytes(b"nonsense")
    assert f"{path}: it can not be read: " in warns(2, "table")
    path.write_bytes(whole)

    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(pq, "ParquetFile", denied)
    assert f"{path}: permission denied; run this as" in warns(2, "table")


def test_it_waits_for_the_first_batch(system, gateway, monkeypatch):
    """No traceback: it says what it waits for, and shows the rows when they come."""
    system.node()
    looked = threading.Event()

    waiting = threading.current_thread()

    def sleep(_: float) -> None:
        if threading.current_thread() is waiting:  # and none that another test has left
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
    [(None, "start one"), (1.0, "first batch"), (20 * BEAT, "said nothing for 1 min")],
)
def test_what_is_missing(tmp_path, silent, says):
    """The job did not start, does not run any more, or has its first batch to come."""
    if silent is not None:
        health = health_path(tmp_path)
        health.parent.mkdir(parents=True)
        health.touch()
        os.utime(health, (1e9 - silent, 1e9 - silent))
    assert says in str(table.missing(tmp_path, "stats", now=1e9))


def test_nothing_in_quarantine_is_fine(system, gateway):
    """It is not waited for where other tables have rows."""
    write(system.root, "a.parquet", range(1, 3))
    status, out, err = gateway("table", "quarantine")
    assert (status, out) == (0, "")
    assert err == f"no rows in {system.root}/lake/quarantine\n"


def test_no_event_of_a_rule_is_fine(system, gateway):
    """Nor is one waited for that no rule takes, where rules take all."""
    write(system.root, "a.parquet", range(1, 3))
    lake = system.root / "lake"
    (lake / ".gateway").mkdir()
    (lake / ".gateway/events.json").write_text('{"form": 1, "tables": ["orders"]}')
    _, out, err = gateway("table", "orders")
    assert (out, err) == ("", f"no rows in {lake}/orders\n")
    (lake / "events").rename(lake / "orders")
    _, out, err = gateway("table", "events")
    assert (out, err) == ("", f"no rows in {lake}/events\n")


def test_each_protocol_in_its_own_words():
    """What was done, by whom, and what came of it, wherever its columns have that."""
    rows = [
        {
            "kind": "data",
            "log_file_path": "/var/log/a",
            "host": "web-1",
            "message": "m",
        },
        {"kind": "request", "channel": "area.say", "uid": "ann", "body": '{"a":1}'},
        {"kind": "data", "channel": "game/moves/0", "peer": "::1", "payload": b"\xff"},
        {"kind": "data"},
    ]
    args = argparse.Namespace(name="events", columns=None)
    shown = table._shown(args, rows)
    assert shown["what"] == ["/var/log/a", "request area.say", "game/moves/0", "data"]
    assert shown["who"] == ["web-1", "ann", "::1", None]
    assert table._cells(shown["body"]) == ["m", '{"a":1}', "\\xff", ""]


def test_times_of_today_are_short():
    """By this machine's clock; with the day where one is of another day."""
    now = datetime.now(UTC).replace(microsecond=0)
    here = now.astimezone()
    assert table._cells([now, None]) == [here.strftime("%H:%M:%S"), ""]
    both = table._cells([datetime.fromtimestamp(0, UTC), now])
    assert both[1] == here.strftime("%Y-%m-%d %H:%M:%S")


def test_the_body_is_what_is_cut(system, gateway):
    """However long it is, times and names are whole."""
    path = system.root / "lake/events/protocol=plain/date=2026-01-01/a.parquet"
    path.parent.mkdir(parents=True)
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    row = {"received_at": at, "event_time": at, "listener": "beats", "host": "web-1"}
    pq.write_table(pa.Table.from_pylist([{**row, "message": "m" * 500}]), path)
    _, out, _ = gateway("table")
    [_, line] = out.splitlines()
    day, clock, *names, body = line.split()
    assert f"{day} {clock}" == at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert names == ["plain", "beats", "data", "web-1"]
    assert set(body) == {"m", "…"}


def test_a_line_for_each_reason(tmp_path, capsys, monkeypatch):
    """Where no terminal is, a silence that gets longer is no news."""
    health = health_path(tmp_path)
    health.parent.mkdir(parents=True)
    health.touch()
    os.utime(health, (1e9, 1e9))
    clock = iter([1e9 + 100, 1e9 + 200, 1e9 + 300])
    monkeypatch.setattr(table.time, "time", lambda: next(clock))
    with pytest.raises(StopIteration):
        table._wait(tmp_path, "events", lambda _: None)
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("after", ["keep", "forward"])
def test_no_table_comes_without_a_job(after, system, tmp_path, capsys):
    """Nobody is let wait for one; those that an earlier job left are shown."""
    settings = {
        "data_dir": str(system.root),
        "listeners": [{"name": "a", "protocol": "lumberjack", "listen": "tcp:0"}],
        "spool": {"after": after},
    }
    if after == "forward":
        settings["forward"] = {"to": "http://127.0.0.1:1"}
    file = tmp_path / "after.yaml"
    file.write_text(json.dumps(settings))
    system.node().publish(count=1)
    words = ["table", "--config", str(file)]
    assert cli.main(words) == 2
    said = f"gateway: no tables here: spool.after is {after}, so no Spark job makes any"
    assert capsys.readouterr().err.startswith(said)
    write(system.root, "a.parquet", range(1, 3))
    assert cli.main(words) == 0
    assert "no. 2" in capsys.readouterr().out


def test_newer_events_are_told_of(node, system, gateway):
    """Those of journal and spool that no batch has taken yet."""
    node.take(node.publish(count=3))
    ledger = system.root / "lake/.gateway/events.json"
    ledger.parent.mkdir(parents=True)
    done = {"gw-1": {node.incarnation: [[1, 3]]}}
    ledger.write_text(json.dumps({"form": FORM, "committed": done}))
    assert gateway("table")[2] == ""
    node.store(count=1_200)
    assert gateway("table")[2] == "1,200 newer events are on their way\n"
    node.publisher.publish(node.seal())
    assert gateway("table", "--json")[2] == "1,200 newer events are on their way\n"


NOW = 1_795_910_400.0 + 600
"""Ten minutes into 2026-11-29."""
YESTERDAY = date(2026, 11, 28)


@pytest.fixture
def lake(tmp_path) -> Path:
    return tmp_path / "lake"


def keep(lake: Path, through: float | None, *days: date, **words: object) -> None:
    """What the job has in its ledger, and says."""
    (lake / ".gateway").mkdir(parents=True, exist_ok=True)
    micros = None if through is None else int(through * 1e6)
    known = Completeness(micros, {Life("gw", A): micros} if micros else {})
    known = known.saying([day.toordinal() for day in days])
    ledger = replace(Ledger(), complete=known)
    ledger.save(Lake(), lake / ".gateway" / "events.json")
    said = {"at": NOW, "state": "running", "complete_through": through, **words}
    leave_word(health_path(lake), json.dumps(said).encode())


def ask(
    lake: Path, *, day: date | None = None, wait: bool = False, as_json: bool = False
) -> int:
    args = argparse.Namespace(day=day, wait=wait, json=as_json)
    return _complete.run(args, lake, lambda: NOW, lambda _: keep(lake, NOW, YESTERDAY))


def test_yesterday_is_complete(lake, capsys):
    """By the ledger, in UTC; and so is each day before the first one that was said."""
    keep(lake, NOW - 20, YESTERDAY)
    assert ask(lake) == 0
    assert capsys.readouterr().out == "2026-11-28 is complete\n"
    assert ask(lake, day=date(2026, 5, 1)) == 0
    assert ask(lake, day=date(2026, 11, 29)) == 1


def test_who_holds_it_is_named(lake, capsys):
    """And since when; for programs, too."""
    held = {"node": "shop-17", "incarnation": A, "why": "is silent since 07:12"}
    keep(lake, NOW - 7200, held_by=[held])
    assert ask(lake) == 1
    assert capsys.readouterr().out == (
        "2026-11-28 is not complete: the tables are, through 2026-11-28 22:10:00 UTC\n"
        "  shop-17 is silent since 07:12\n"
    )
    assert ask(lake, as_json=True) == 1
    assert json.loads(capsys.readouterr().out) == {
        "day": "2026-11-28",
        "complete": False,
        "through": "2026-11-28 22:10:00 UTC",
        "taken_back": 0,
        "held_by": [{"node": "shop-17", "why": "is silent since 07:12"}],
    }


def test_a_job_that_is_down_is_named(lake, capsys):
    """It says nothing any more, or was stopped."""
    keep(lake, None, state="stopped")
    assert ask(lake) == 1
    assert "the Spark job does not run (stopped)" in capsys.readouterr().out


def test_another_job_of_the_table_counts(lake, capsys):
    """The table's moment is the least; a day is complete where all jobs have said so."""
    keep(lake, NOW - 20, YESTERDAY)
    other = Completeness(int((NOW - 90_000) * 1e6)).saying([YESTERDAY.toordinal() - 1])
    shared = json.dumps({"north": other.plain(), "south": None})
    words = {"sink": "delta", "table": "t", "shared": "yes", "complete": shared}
    (lake / ".gateway" / "sink.json").write_text(json.dumps(words))
    assert ask(lake) == 1
    out = capsys.readouterr().out
    assert "nobody knows since when" in out
    assert "job north has not said that it is complete, since 2026-11-27 23:10" in out
    assert "job south has not said that it is complete, yet" in out


def test_it_waits(lake):
    """For a scheduler; until it is."""
    keep(lake, NOW - 7200)
    assert ask(lake, wait=True) == 0


@pytest.mark.parametrize(
    "words", ["table complete --day yesterday", "spark compact --before 2026-13-01"]
)
def test_what_is_no_day(words, capsys):
    """The form of one is said."""
    assert cli.main(words.split()) == 2
    assert "not a day as YYYY-MM-DD: " in capsys.readouterr().err


def test_where_there_are_no_tables(lake):
    """Status 2."""
    with pytest.raises(WrongUse, match="no tables"):
        ask(lake)
