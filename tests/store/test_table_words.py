"""What a table on this machine says of a node's lsns, to one that lost its disk."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.config import Config
from gateway.event import Rows
from gateway.store.directories import Directories
from gateway.store.machine import Machine
from gateway.store.opening import Opened, Start, open_node
from gateway.store.table_words import TablePlace, last_lsn, table_of

FORMS = [{"gw": [[1, 5], [7, 9]]}, {"gw": {"": [[1, 5]], "5f0c": [[7, 9]], "e0e0": []}}]


def ledger(committed: Any) -> str:
    return json.dumps({"format": 3, "committed": committed, "holes": []})


def delta(path: Path, *commits: Any) -> TablePlace:
    """A table with these words of its commits, oldest first; None: another's commit."""
    log = path / "_delta_log"
    log.mkdir(parents=True)
    for number, words in enumerate(commits):
        info = {"operation": "WRITE"} | ({"userMetadata": words} if words else {})
        lines = [{"commitInfo": info}, {"add": {"path": "part-0.parquet"}}]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (log / f"{number:020d}.json").write_text(text)
        (log / f"{number:020d}.crc").write_text("{}")
    return TablePlace("delta", path)


def iceberg(path: Path, *commits: Any, compressed: bool = False) -> TablePlace:
    """Likewise."""
    folder = path / "metadata"
    folder.mkdir(parents=True)
    snapshots = []
    for number, words in enumerate(commits):
        summary = {"operation": "append"} | ({"gateway.ledger": words} if words else {})
        snapshots.append({"snapshot-id": number, "summary": summary})
        data = json.dumps({"format-version": 2, "snapshots": snapshots}).encode()
        name = (
            f"v{number + 8}.gz.metadata.json"
            if compressed
            else f"v{number + 8}.metadata.json"
        )
        (folder / name).write_bytes(gzip.compress(data) if compressed else data)
    (folder / "version-hint.text").write_text("9")
    return TablePlace("iceberg", path)


def packed(path: Path, *commits: Any) -> TablePlace:
    return iceberg(path, *commits, compressed=True)


@pytest.mark.parametrize("make", [delta, iceberg, packed])
@pytest.mark.parametrize("committed", FORMS)
def test_the_newest_ledger_says_how_far_a_node_is(
    tmp_path: Path, make: Callable[..., TablePlace], committed: Any
) -> None:
    """Of this form and those before it; commits of others are passed over."""
    old = ledger({"gw": [[1, 2]]})
    place = make(tmp_path, old, ledger(committed), "compaction by hand", None, "{}")
    assert last_lsn("gw", place) == 9
    assert last_lsn("gw", place, {""}.__contains__) == (
        5 if "" in committed["gw"] else 9
    )
    assert last_lsn("other", place) == 0


@pytest.mark.parametrize("make", [delta, iceberg])
def test_ledgers_that_maintenance_carried_on(
    tmp_path: Path, make: Callable[..., TablePlace]
) -> None:
    """Of a table that several jobs write: each says how far its own nodes are."""
    other = json.loads(ledger({"gw-2": [[1, 7]]})) | {"job": "b"}
    words = json.loads(ledger({"gw": [[1, 5]]})) | {"others": [other, None, 3]}
    place = make(tmp_path, json.dumps(words), ledger({"gw": [[1, 6]]}))
    assert (last_lsn("gw", place), last_lsn("gw-2", place)) == (6, 7)


@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_a_table_that_is_not_there_says_nothing(tmp_path: Path, sink: str) -> None:
    """The job has not begun."""
    assert last_lsn("gw", TablePlace(sink, tmp_path / "none")) == 0


def test_the_work_is_bounded(tmp_path: Path) -> None:
    """A log of thousands of commits that others have made is not read as a whole."""
    place = delta(tmp_path, ledger(FORMS[0]), *[None] * 60)
    (tmp_path / "_delta_log" / f"{0:020d}.json").write_text("{")
    assert last_lsn("gw", place) == 0


def start(root: Path, table: TablePlace | None, told: list[str]) -> Opened:
    return open_node(
        Start(
            "gw",
            Directories.under(root),
            Machine(),
            {"plain": lambda body: Rows([body])},
            remembering=False,
            table=table,
            tell_notice=told.append,
        )
    )


@pytest.mark.parametrize("make", [delta, iceberg])
def test_a_new_disk_goes_on_behind_the_table(
    tmp_path: Path, make: Callable[..., TablePlace]
) -> None:
    """All that the machine knew is gone, and the table is elsewhere."""
    told: list[str] = []
    opened = start(tmp_path / "data", make(tmp_path / "t", ledger(FORMS[1])), told)
    assert opened.first_lsn == 10
    assert told == []
    assert any("up to lsn 9" in repair for repair in opened.repairs)


@pytest.mark.parametrize("make", [delta, iceberg])
@pytest.mark.parametrize(
    "damage",
    [
        b"{",
        b'{"commitInfo"',
        b"\xff",
        b'[{"commitInfo": 1}]',
        b'{"snapshots": [1], "commitInfo": 1}',
    ],
)
def test_a_table_that_can_not_be_read_is_told(
    tmp_path: Path, make: Callable[..., TablePlace], damage: bytes
) -> None:
    """The start goes on without it, and says so."""
    place = make(tmp_path / "t", ledger(FORMS[0]))
    for path in place.path.rglob("*.json"):
        path.write_bytes(damage)
    told: list[str] = []
    assert start(tmp_path / "data", place, told).first_lsn == 1
    for notice in told:
        assert f"the table at {place.path} can not be read, so" in notice
    assert len(told) == 1 or (make is delta and b"commitInfo" not in damage)


def of(tmp_path: Path, **spark: Any) -> TablePlace | None:
    listener = {"name": "l", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"}
    settings = {"node": "gw", "data_dir": str(tmp_path), "listeners": [listener]}
    return table_of(Config.model_validate({**settings, "spark": spark}))


def test_where_a_table_can_be_seen(tmp_path: Path) -> None:
    """At its usual place, or where `spark.table` or the catalog say; not elsewhere."""
    key = "spark.sql.catalog.prod"
    conf = {key: "c", f"{key}.type": "hadoop", f"{key}.warehouse": "file:///w%20h"}
    lake = tmp_path / "lake"
    assert of(tmp_path) is None
    assert of(tmp_path, sink="delta") == TablePlace("delta", lake / "delta/events")
    for table in ("/srv/t", "file:///srv/t", "file:/srv/t"):
        found = of(tmp_path, sink="delta", table=table)
        assert found == TablePlace("delta", Path("/srv/t"))
    assert of(tmp_path, sink="delta", table="s3a://bucket/t") is None
    usual = TablePlace("iceberg", lake / "iceberg/gateway/events")
    assert of(tmp_path, sink="iceberg") == usual
    assert of(tmp_path, sink="iceberg", table="prod.a.b.t", conf=conf) == TablePlace(
        "iceberg", Path("/w h/a/b/t")
    )
    rest = {key: "c", f"{key}.type": "rest", f"{key}.uri": "http://127.0.0.1"}
    assert of(tmp_path, sink="iceberg", table="prod.a.t", conf=rest) is None
    assert of(tmp_path, sink="iceberg", table="unknown.a.t") is None
