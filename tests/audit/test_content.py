"""Events that their sender sent twice."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.audit.content import find_resent
from gateway.audit.sinks import table_files
from gateway.cli import main

Row = tuple[str | None, str | None, int | None, str | None]


def put(
    data: Path, first: int, rows: list[Row], day: str = "2026-03-01", node: str = "gw"
) -> None:
    folder = data / "lake" / "events" / "protocol=lumberjack" / f"date={day}"
    folder.mkdir(parents=True, exist_ok=True)
    columns: dict[str, Any] = {
        "node": [node] * len(rows),
        "lsn": pa.array(range(first, first + len(rows)), pa.int64()),
    }
    kinds = {"agent_id": pa.string(), "log_file_path": pa.string()}
    kinds |= {"log_offset": pa.int64(), "message": pa.string()}
    for at, (name, kind) in enumerate(kinds.items()):
        columns[name] = pa.array([row[at] for row in rows], kind)
    pq.write_table(pa.table(columns), folder / f"part-{node}-{first}.parquet")


def test_the_same_place_and_text(tmp_path):
    """Counted over all files of a day; other texts at a place are another file's, and
    events without a place have none."""
    put(
        tmp_path,
        1,
        [("x", "/a", 0, "a"), ("x", "/a", 10, "b"), (None, None, None, "a")],
    )
    put(
        tmp_path,
        4,
        [("x", "/a", 0, "a"), ("x", "/a", 10, "other"), ("y", "/a", 0, "a")],
    )
    put(tmp_path, 7, [("x", "/a", 0, "a"), (None, None, None, "a")])
    found = find_resent(tmp_path / "lake")
    assert (found.placed, found.copies) == (6, 2)
    assert found.examples == ["agent x, /a at 0: 3 times"]
    assert found.problems == []


def test_tables_without_these_columns(tmp_path):
    """Nothing is found, and nothing breaks; what can not be read is told."""
    folder = tmp_path / "lake" / "events" / "protocol=rsio" / "date=2026-03-01"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"node": ["gw"]}), folder / "a.parquet")
    (folder / "b.parquet").write_bytes(b"PAR1")
    found = find_resent(tmp_path / "lake")
    assert (found.placed, found.copies, len(found.problems)) == (0, 0, 1)
    assert find_resent(tmp_path / "nowhere").copies == 0


def test_one_node_alone(tmp_path, capsys):
    """--node leaves the events of the others out."""
    put(tmp_path, 1, [("x", "/a", 0, "a"), ("x", "/a", 0, "a")])
    put(tmp_path, 1, [("x", "/a", 0, "a"), ("y", "/a", 0, "a")], node="gw-2")
    assert find_resent(tmp_path / "lake").copies == 2
    found = find_resent(tmp_path / "lake", node="gw")
    assert (found.placed, found.copies) == (2, 1)
    main(["audit", "--data-dir", str(tmp_path), "--content", "--node", "gw-2"])
    assert "note: 0 of 2 events that name their place" in capsys.readouterr().out


def test_tables_that_are_compacted_meanwhile(tmp_path, monkeypatch):
    """What is gone when it is read is counted; the others are searched."""
    put(tmp_path, 1, [("x", "/a", 0, "a")])
    put(tmp_path, 2, [("x", "/a", 0, "a"), ("x", "/a", 0, "a")])
    (gone,) = tmp_path.rglob("part-gw-1.parquet")
    everything = list(table_files(tmp_path / "lake"))
    monkeypatch.setattr("gateway.audit.content.table_files", lambda *_: everything)
    gone.unlink()
    found = find_resent(tmp_path / "lake")
    assert (found.placed, found.copies, found.vanished) == (2, 1, {gone})


def test_the_command(tmp_path, capsys):
    """It is told beside the doubles of lsns, and is no fault."""
    put(tmp_path, 1, [("x", "/a", 0, "a"), ("x", "/a", 0, "a")])
    assert main(["audit", "--data-dir", str(tmp_path), "--content"]) == 0
    said = capsys.readouterr().out
    assert "note: 1 of 2 events that name their place in a file are there again" in said
    assert "resent: agent x, /a at 0: 2 times" in said
    assert main(["audit", "--data-dir", str(tmp_path), "--content", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["content"] == {
        "placed": 2,
        "copies": 1,
        "examples": ["agent x, /a at 0: 2 times"],
        "vanished": 0,
        "problems": [],
    }
