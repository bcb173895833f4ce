"""The outbox directory: its files are taken once, and in the order of their names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.protocols.pomelo.push.addressee import Addressee
from gateway.protocols.pomelo.push.folder import Folder
from gateway.protocols.pomelo.push.message import Push

ONE = Push("r", b"{}", Addressee(uid="a"))
LINE = b'{"route":"r","body":{},"uid":"a"}\n'


def taken(folder: Folder) -> tuple[str, list[Any]] | None:
    """The name and the rows of the next file."""
    file = folder.take()
    if file is None:
        return None
    rows: list[Any] = []
    while chunk := file.chunk():
        rows += chunk
    file.close()
    return file.name, rows


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
    assert taken(folder) == ("run/part-0.json", [ONE])
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
    assert taken(folder) == ("b.json", [ONE])
    bad = path.with_name(f".bad-{name}")
    assert bad.read_bytes() == content
    assert bad.with_name(f"{bad.name}.reason").read_text().strip()
    assert folder.set_aside == 1


def test_parquet_without_its_columns(folder: Folder, tmp_path: Path) -> None:
    """… is a bad file."""
    pq.write_table(pa.table({"route": ["r"]}), tmp_path / "outbox" / "a.parquet")
    assert folder.take() is None
    assert (tmp_path / "outbox" / ".bad-a.parquet").exists()


def test_odd_columns_do_not_matter(folder: Folder, tmp_path: Path) -> None:
    """A timestamp that Python has no object for, in a column that nobody asked for."""
    rows = {"route": ["r"], "body": ["{}"], "uid": ["a"]}
    odd = pa.array([2**62], pa.timestamp("us", "nowhere/nowhere"))
    pq.write_table(pa.table(rows | {"at": odd}), tmp_path / "outbox" / "a.parquet")
    assert taken(folder) == ("a.parquet", [ONE])


def test_what_arrow_can_not_say_in_python(
    folder: Folder, put: Any, tmp_path: Path
) -> None:
    """… inside a body: the file is set aside, the next one is taken."""
    odd = pa.array([2**62], pa.timestamp("us"))
    body = pa.StructArray.from_arrays([odd], ["at"])
    table = pa.table({"route": ["r"], "body": body, "uid": ["a"]})
    pq.write_table(table, tmp_path / "outbox" / "a.parquet")
    latin = pa.array([b"\xff"]).cast(pa.string(), safe=False)
    table = pa.table({"route": latin, "body": ["{}"], "uid": ["a"]})
    pq.write_table(table, tmp_path / "outbox" / "b.parquet")
    put("c.json", LINE)
    assert taken(folder) == ("c.json", [ONE])
    assert folder.set_aside == 2


def test_a_small_file_of_many_rows(folder: Folder, tmp_path: Path) -> None:
    """No chunk of it is large, though its rows are the same long body again and again."""
    rows, body = 3000, '{"a":"' + "x" * 50_000 + '"}'
    columns = {"route": ["r"] * rows, "body": [body] * rows, "uid": ["a"] * rows}
    path = tmp_path / "outbox" / "a.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd")
    assert path.stat().st_size < 1 << 16
    file = folder.take()
    assert file is not None
    sizes = []
    while chunk := file.chunk():
        sizes.append((len(chunk), sum(len(row.body) for row in chunk)))
    file.close()
    assert sum(count for count, _ in sizes) == rows
    assert max(size for _, size in sizes) < (1 << 20) + len(body)


def test_a_long_name(folder: Folder, put: Any) -> None:
    """Names of 236 to 255 bytes are taken, and set aside, like any other."""
    for size in (236, 255):
        put("a" * (size - 5) + ".json", LINE)
        put("b" * (size - 5) + ".json", b"no")
    names = {found[0] for _ in range(2) if (found := taken(folder)) is not None}
    assert {len(name) for name in names} == {236, 255}
    assert taken(folder) is None
    assert folder.set_aside == 2


def test_only_regular_files_are_touched(
    folder: Folder, put: Any, tmp_path: Path
) -> None:
    """A FIFO, a link and a directory too deep are set aside; what they mean stays."""
    outbox, elsewhere = tmp_path / "outbox", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x.json").write_bytes(LINE)
    os.mkfifo(outbox / "a.json")
    (outbox / "b.json").symlink_to(elsewhere / "x.json")
    (outbox / "c").symlink_to(elsewhere)
    (outbox / "d" / "deep.json").mkdir(parents=True)
    (outbox / "e.json").symlink_to("/dev/zero")
    put("f.json", LINE)
    assert taken(folder) == ("f.json", [ONE])
    assert taken(folder) is None
    assert folder.set_aside == 5
    assert [path.name for path in elsewhere.iterdir()] == ["x.json"]
    bad = {path.name for path in outbox.iterdir() if path.name.endswith(".reason")}
    assert bad == {
        f".bad-{name}.reason" for name in ("a.json", "b.json", "c", "e.json")
    }


def test_what_can_not_even_be_set_aside(
    folder: Folder, put: Any, tmp_path: Path
) -> None:
    """… is said once, and does not stand in the way of others."""
    put("a.json", b"no")
    (tmp_path / "outbox" / ".bad-a.json").mkdir()
    put("b.json", LINE)
    assert taken(folder) == ("b.json", [ONE])
    assert taken(folder) is None
    assert folder.set_aside == 1
    put("c.json", LINE)
    assert taken(folder) == ("c.json", [ONE])


def test_a_name_that_is_not_utf8(folder: Folder, tmp_path: Path) -> None:
    """It can be logged."""
    (tmp_path / "outbox" / os.fsdecode(b"\xff.json")).write_bytes(LINE)
    assert taken(folder) == ("\\udcff.json", [ONE])


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
