"""The outbox directory: its files are taken once, and in the order of their names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.protocols.pomelo.push.folder import Batch, Folder
from gateway.protocols.pomelo.push.message import Push

ONE = Push("r", b"{}", None, "a")
LINE = b'{"route":"r","body":{},"uid":"a"}\n'


def test_files_in_the_order_of_their_names(folder: Folder, put: Any) -> None:
    """Each is taken once and is gone."""
    paths = [put(name, LINE) for name in ("b.json", "a.ndjson", "c.jsonl")]
    names = [folder.take().name for _ in paths]  # type: ignore[union-attr]
    assert names == ["a.ndjson", "b.json", "c.jsonl"]
    assert folder.take() is None
    assert not any(path.exists() for path in paths)


def test_what_spark_leaves_beside(folder: Folder, put: Any, tmp_path: Path) -> None:
    """Files in its directory are taken; the directory goes when Spark is done."""
    put("run/part-0.json", LINE)
    put("run/.part-0.json.crc", b"x")
    put("run/._SUCCESS.crc", b"x")
    (tmp_path / "outbox" / "run" / "_temporary").mkdir()
    put("run/_temporary/part-1.json", b"half")
    assert folder.take() == Batch("run/part-0.json", [ONE])
    assert folder.take() is None
    put("run/_temporary/part-1.json", b"half").unlink()
    (tmp_path / "outbox" / "run" / "_temporary").rmdir()
    put("run/_SUCCESS", b"")
    assert folder.take() is None
    assert not (tmp_path / "outbox" / "run").exists()


def test_hidden_names_are_not_there_yet(folder: Folder, put: Any) -> None:
    """Until they are renamed."""
    path = put(".a.json", LINE)
    assert folder.take() is None
    path.rename(path.with_name("a.json"))
    assert folder.take() is not None


def test_a_streaming_sink_is_left_alone(folder: Folder, put: Any) -> None:
    """Its files appear before they are complete."""
    path = put("sink/part-0.json", LINE)
    put("sink/_spark_metadata", b"")
    assert folder.take() is None
    assert path.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", LINE + b"{"),
        ("a.json", b'{"route":"r"}'),
        ("a.json", b"\xff\xfe"),
        ("a.json", bytes((1 << 16) + 1)),
        ("a.parquet", b"PAR1 no"),
        ("a.csv", LINE),
    ],
)
def test_a_bad_file_is_set_aside(
    folder: Folder, put: Any, name: str, content: bytes
) -> None:
    """Whole, with nothing of it pushed; the next one follows."""
    path = put(name, content)
    put("b.json", LINE)
    assert folder.take() == Batch("b.json", [ONE])
    assert path.with_name(f".bad-{name}").read_bytes() == content


def test_parquet_without_its_columns(folder: Folder, tmp_path: Path) -> None:
    """… is a bad file."""
    pq.write_table(pa.table({"route": ["r"]}), tmp_path / "outbox" / "a.parquet")
    assert folder.take() is None
    assert (tmp_path / "outbox" / ".bad-a.parquet").exists()


def test_what_was_pushed_is_kept_if_wanted(tmp_path: Path) -> None:
    """For `retention`; then it goes."""
    folder = Folder(tmp_path, 60.0, 1 << 16)
    folder.prepare()
    (tmp_path / "a.json").write_bytes(LINE)
    os.utime(tmp_path / "a.json", (1, 1))
    folder.take()
    folder.sweep()
    [kept] = (tmp_path / ".done").iterdir()
    assert kept.read_bytes() == LINE
    os.utime(kept, (1, 1))
    folder.sweep()
    assert list((tmp_path / ".done").iterdir()) == []
