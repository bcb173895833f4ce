"""An event's name is (node, incarnation, lsn): the tables of a node that was rebuilt."""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from gateway.spark import job, parquet
from gateway.spark.lakedisk import Lake
from gateway.spark.ledger import Ledger, Life, Ranges, SpoolFile
from gateway.spark.tables import which_has
from gateway.store.lake import Accepted, End, accepted_folder, committed
from gateway.store.lsns import Lsns

pytestmark = pytest.mark.spark

Rows = Callable[..., list[dict[str, Any]]]
LakeEvents = Callable[..., Counter[tuple[str, int]]]
RunOnce = Callable[[], list[Mapping[str, Any]]]


def told(rows: Rows, lake: Path) -> list[tuple[str | None, int, str]]:
    """Incarnation, lsn and message of all events."""
    found = rows(lake / "events", "incarnation", "lsn", "message")
    keys = ("incarnation", "lsn", "message")
    return sorted((tuple(row[key] for key in keys) for row in found), key=str)


def lines(first: int, count: int, word: str) -> list[bytes]:
    return [
        b'{"message":"%b %d"}' % (word.encode(), n) for n in range(first, first + count)
    ]


def test_a_rebuilt_node_loses_nothing(
    run_once: RunOnce,
    spool: Any,
    config: SimpleNamespace,
    table_rows: Rows,
    lake_events: LakeEvents,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its disk is gone, and it gives lsns again: its events are new ones, under their own
    incarnation, also where a file has the very name of one that Spark has taken before.
    """
    spool.put("gw", 1, lines(1, 10, "old"), incarnation="aaaa")
    run_once()
    spool.put("gw", 1, lines(1, 10, "new"), incarnation="bbbb")
    spool.put("gw", 11, lines(11, 5, "new"), incarnation="bbbb")
    with caplog.at_level(logging.ERROR, "gateway.spark"):
        run_once()
    assert lake_events() == spool.produced
    assert told(table_rows, config.data_dir / "lake") == sorted(
        [("aaaa", n, f"old {n}") for n in range(1, 11)]
        + [("bbbb", n, f"new {n}") for n in range(1, 16)],
        key=str,
    )
    assert committed(config.data_dir / "lake") == {
        "gw": {"aaaa": Lsns([(1, 10)]), "bbbb": Lsns([(1, 15)])}
    }
    (line,) = [one for one in caplog.messages if "began anew" in one]
    assert "bbbb" in line
    assert "aaaa" in line
    assert spool.names() == []


def test_two_incarnations_in_one_batch(
    run_once: RunOnce,
    spool: Any,
    config: SimpleNamespace,
    table_rows: Rows,
    lake_events: LakeEvents,
) -> None:
    """The job was away while the machine was rebuilt: each event has its own name."""
    spool.put("gw", 1, lines(1, 10, "old"), incarnation="aaaa")
    spool.put("gw", 11, lines(11, 10, "old"), incarnation="aaaa")
    spool.put("gw", 5, lines(5, 10, "new"), incarnation="bbbb")
    spool.put("gw-2", 5, lines(5, 3, "other"), incarnation="cccc")
    run_once()
    assert lake_events() == spool.produced
    assert told(table_rows, config.data_dir / "lake") == sorted(
        [("aaaa", n, f"old {n}") for n in range(1, 21)]
        + [("bbbb", n, f"new {n}") for n in range(5, 15)]
        + [("cccc", n, f"other {n}") for n in range(5, 8)],
        key=str,
    )


@pytest.mark.long
def test_what_came_before_is_left_out_by_its_whole_name(
    run_once: RunOnce, spool: Any, config: SimpleNamespace, lake_events: LakeEvents
) -> None:
    """A file that is there again is not doubled, whichever incarnation came between."""
    again = spool.put("gw", 1, lines(1, 10, "old"), incarnation="aaaa")
    kept = again.read_bytes()
    run_once()
    spool.put("gw", 1, lines(1, 12, "new"), incarnation="bbbb")
    run_once()
    shutil.rmtree(config.data_dir / "checkpoint")
    again.write_bytes(kept)
    run_once()
    assert lake_events() == spool.produced
    assert spool.names() == []


def forget_incarnations(lake: Path) -> None:
    """Make of tables and ledger what an earlier version would have written."""
    for path in [
        *lake.glob("events/*/*/*.parquet"),
        *lake.glob("quarantine/*/*/*.parquet"),
    ]:
        table = pq.ParquetFile(path).read()
        pq.write_table(table.drop_columns(["incarnation"]), path)
    path = lake / ".gateway" / "events.json"
    ledger = json.loads(path.read_bytes())
    for key in ("latest", "committed"):
        ledger[key] = {
            node: [span for spans in lives.values() for span in spans]
            for node, lives in ledger[key].items()
        }
    for key in ("accepted", "ends"):
        del ledger[key]
    del ledger["types"]["incarnation"]
    path.write_text(json.dumps({**ledger, "format": 2}))


@pytest.mark.long
def test_what_an_earlier_version_dropped_can_be_put_back(
    run_once: RunOnce, spool: Any, config: SimpleNamespace, lake_events: LakeEvents
) -> None:
    """It took the first files of a rebuilt node for what the tables had, and the later ones
    into them.  All of them put back from the archive: each file is told by itself.
    """
    spool.put("gw", 1, lines(1, 10, "old"), incarnation="aaaa", received_at=1_000)
    later = [
        spool.put("gw", n, lines(n, 5, "new"), incarnation="bbbb", received_at=n * 1000)
        for n in (11, 16)
    ]
    kept = {path: path.read_bytes() for path in later}
    run_once()
    forget_incarnations(config.data_dir / "lake")
    shutil.rmtree(config.data_dir / "checkpoint")
    spool.put("gw", 1, lines(1, 5, "new"), incarnation="bbbb", received_at=5_000)
    spool.put("gw", 6, lines(6, 5, "new"), incarnation="bbbb", received_at=6_000)
    for path, data in kept.items():
        path.write_bytes(data)
    run_once()
    assert lake_events() == spool.produced
    assert spool.names() == []


@pytest.mark.long
def test_a_copied_directory_with_an_unfinished_batch(
    run_once: RunOnce,
    spool: Any,
    config: SimpleNamespace,
    lake_events: LakeEvents,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark's log of a batch has the paths of the directory that it was copied from: the
    job begins a new checkpoint, and says why.
    """
    spool.put("gw", 1, lines(1, 10, "one"), incarnation="aaaa")
    run_once()
    spool.put("gw", 11, lines(11, 10, "one"), incarnation="aaaa")
    with monkeypatch.context() as patched:

        def cut(self: Any, rows: Any, batch: int) -> None:
            raise RuntimeError("cut")

        patched.setattr(parquet.ParquetSink, "_take", cut)
        with pytest.raises(job.Failed, match="cut"):
            run_once()
    copy = config.data_dir.with_name("copied data")
    shutil.copytree(config.data_dir, copy)
    shutil.rmtree(config.data_dir)
    config.data_dir = copy
    with caplog.at_level(logging.WARNING, "gateway.spark"):
        run_once()
    assert lake_events(copy / "lake") == spool.produced
    assert any("names files of" in one for one in caplog.messages)


def test_what_was_accepted_goes_into_the_ledger(
    run_once: RunOnce, spool: Any, config: SimpleNamespace
) -> None:
    """While the job runs, or when it starts; and what can not be read is set aside."""
    lake = config.data_dir / "lake"
    spool.put("gw", 1, lines(1, 10, "one"), incarnation="aaaa")
    run_once()
    folder = accepted_folder(lake)
    folder.mkdir()
    hole = {"node": "gw", "incarnation": "aaaa", "first": 11, "last": None}
    hole |= {"reason": "the disk is gone", "who": "ops@example", "at": 1.5}
    (folder / "one.json").write_text(json.dumps(hole))
    (folder / "two.json").write_text("{")
    run_once()
    kept = Ledger.load(Lake(), lake / ".gateway" / "events.json")
    assert kept.accepted == (
        Accepted("gw", "aaaa", 11, None, "the disk is gone", "ops@example", 1.5),
    )
    assert [path.name for path in folder.iterdir()] == [".two.json.damaged"]
    spool.put("gw", 11, lines(11, 1, "one"), incarnation="aaaa")
    run_once()
    later = Ledger.load(Lake(), lake / ".gateway" / "events.json")
    assert later.accepted == kept.accepted


def test_a_ledger_names_the_newest_incarnations() -> None:
    """One node that begins anew at each start does not make each commit larger for ever;
    what is no longer named is unknown, and no event is forgotten.
    """
    ledger = Ledger()
    for number in range(200):
        life = Life("gw", f"{number:016x}")
        took = Ranges()
        took.add(life, number * 10 + 1, number * 10 + 10)
        ledger = ledger.after("q", number, took)
    assert len(ledger.committed) == 2000
    named = [life for life in ledger.committed.lives() if life.incarnation]
    assert len(named) == 64
    assert Life("gw", f"{199:016x}") in named
    assert ledger.committed.last() == {"gw": 2000}
    assert len(list(ledger.committed)) == 65


def test_who_ended_in_good_order_is_left_behind_by_no_fold() -> None:
    """A container gets a new disk with each release: its events are in the tables, also
    once the ledger has no name for it any more.
    """
    ledger = Ledger()
    for number in range(70):
        life, first = Life("gw", f"{number:016x}"), number * 10 + 1
        took = Ranges()
        took.add(life, first, first + 9)
        end = End(first + 9, 1.0, "spool", exact=True, found=2.0, since=first)
        ledger = ledger.after("q", number, took).with_ends({life: end})
    assert ledger.left_behind() == []
    lost = Life("gw", "aaaa")
    end = End(720, 1.0, "spool", exact=True, found=2.0, since=701)
    assert ledger.with_ends({lost: end}).left_behind() == [lost]


def test_lsns_that_two_incarnations_gave_are_never_folded_into_one() -> None:
    """Each event is a row, and is counted."""
    ledger = Ledger()
    for number in range(200):
        took = Ranges()
        took.add(Life("gw", f"{number:016x}"), 1, 10)
        ledger = ledger.after("q", number, took)
    assert len(ledger.committed) == 2000


def test_how_incarnations_ended_outlives_batches(tmp_path: Path) -> None:
    """It is in the ledger, as it was heard."""
    end = End(17, 1.0, "journal", exact=False, found=3.5, since=4)
    ledger = Ledger().with_ends({Life("gw", "aaaa"): end})
    took = Ranges({"gw": {"bbbb": [(18, 20)]}})
    ledger = ledger.after("q", 0, took)
    ledger.save(Lake(), tmp_path / "events.json")
    assert Ledger.load(Lake(), tmp_path / "events.json") == ledger
    assert not ledger.accepts(Life("gw", "aaaa"), end)
    reason = Accepted("gw", "", 10, 17, "gone", "me", 4.0)
    assert ledger.with_accepted([reason]).accepts(Life("gw", "aaaa"), end)


def test_a_table_is_asked_for_many_files_at_once(spark: Any) -> None:
    """Each by its first event: node, lsn and when it came, whoever gave it."""
    came = datetime(2026, 3, 1, 12, 0, 0, 5, UTC)
    rows = spark.createDataFrame(
        [("gw", 1, came), ("gw", 11, came), ("gw-2", 21, came)],
        "node string, lsn bigint, received_at timestamp",
    )
    later = came + timedelta(microseconds=1)
    asked = {
        SpoolFile("same", "gw", 1, 5, "aaaa"): came,
        SpoolFile("later", "gw", 11, 15, "aaaa"): later,
        SpoolFile("another's", "gw", 21, 25, "aaaa"): came,
        SpoolFile("nobody's", "gw", 2, 3, "aaaa"): came,
    }
    assert [one.name for one in which_has(rows, asked)] == ["same"]
