"""A row that holds a lost event's place is not the event."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.audit import audit
from gateway.cli import main
from gateway.store.directories import Directories
from gateway.store.journal import segment
from incarnations import segment_name

NAME = "events-gw_aaaaaaaaaa-00000000000000000001-00000000000000000004.parquet"


@pytest.mark.parametrize("where", ["spool", "lake/quarantine"])
def test_a_lost_event_is_a_hole(tmp_path, where):
    """Whichever place its placeholder has reached, the audit reports the loss."""
    for name in ("journal", "spool", "archive", where):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {
            "node": ["gw"] * 4,
            "lsn": pa.array([1, 2, 3, 4], pa.int64()),
            "flaw": pa.array([None, "lost", "invalid-json", None], pa.string()),
        }
    )
    pq.write_table(table, tmp_path / where / NAME)
    report = audit(Directories.under(tmp_path), pause=lambda _: None)
    assert not report.complete
    [node] = report.nodes
    assert (node.last, list(node.holes)) == (4, [(2, 2)])


def test_what_the_ledger_has_and_no_table(tmp_path):
    """The newest file of an incarnation is gone, or its last rows only hold a place: what the
    job has committed is asked for, also where another incarnation has these lsns.
    """
    lake = tmp_path / "lake"
    (lake / "events").mkdir(parents=True)
    rows = {
        "node": ["gw"] * 5,
        "incarnation": ["a" * 10] * 2 + ["b" * 10] * 3,
        "lsn": pa.array([1, 2, 1, 2, 3], pa.int64()),
        "flaw": pa.array([None, "lost", None, None, None], pa.string()),
    }
    pq.write_table(pa.table(rows), lake / "events" / "a.parquet")
    (lake / ".gateway").mkdir()
    committed = {
        "gw": {"a" * 10: [[1, 2]], "b" * 10: [[1, 5]]},
        "gone": {"c" * 10: [[1, 3]]},
    }
    ledger = {"form": 1, "committed": committed}
    (lake / ".gateway" / "events.json").write_text(json.dumps(ledger))
    nodes = audit(Directories.under(tmp_path), pause=lambda _: None).nodes
    holes = {
        life.incarnation[0]: list(life.holes) for one in nodes for life in one.lives
    }
    assert holes == {"a": [(2, 2)], "b": [(4, 5)], "c": [(1, 3)]}


def test_a_place_of_lost_events_is_told_as_what_is_missing(tmp_path):
    """A segment that only says so has no damaged bytes."""
    path = tmp_path / "journal/gw" / segment_name(2)
    path.parent.mkdir(parents=True)
    path.write_bytes(segment.place_of_lost(2, 3))
    [problem] = audit(Directories.under(tmp_path), pause=lambda _: None).problems
    assert problem.why == "missing from byte 36 on"


def test_what_was_moved_aside_is_known(tmp_path, capsys):
    """A file that the Spark job could not read and wrote down is told, and is no hole;
    what it did not write down is one."""
    lake = tmp_path / "lake"
    (lake / "events").mkdir(parents=True)
    lsns = pa.array([1, 2, 9], pa.int64())
    pq.write_table(pa.table({"node": ["gw"] * 3, "lsn": lsns}), lake / "events" / NAME)
    (lake / ".gateway").mkdir()
    hole = {"node": "gw", "first": 3, "last": 7, "file": "f", "why": "cut", "at": 1.0}
    ledger = lake / ".gateway" / "events.json"
    ledger.write_text(json.dumps({"form": 1, "holes": [hole]}))
    [node] = audit(Directories.under(tmp_path), pause=lambda _: None).nodes
    assert (list(node.aside), list(node.holes)) == ([(3, 7)], [(8, 8)])
    assert (node.in_lake, node.in_journal) == (3, 0)

    ledger.write_text(json.dumps({"form": 1, "holes": [{**hole, "last": 8}]}))
    assert main(["audit", "--data-dir", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "moved aside: gw lsn 3-8" in said
    assert "complete: 9 events, each exactly once but for 6" in said
    ledger.write_text("{")
    [node] = audit(Directories.under(tmp_path), pause=lambda _: None).nodes
    assert list(node.holes) == [(3, 8)]
