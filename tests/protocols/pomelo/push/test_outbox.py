"""The outbox: files of pushes become pushes, once, and in the order of their names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from twisted.internet.task import Clock

from gateway.admin.status import PushStatus
from gateway.protocols.pomelo import Registry
from gateway.protocols.pomelo.push import outbox
from gateway.protocols.pomelo.push.page import Push

ONE = Push("r", b"{}", None, "a")
LINE = b'{"route":"r","body":{},"uid":"a"}\n'


@pytest.fixture
def folder(tmp_path: Path) -> outbox.Folder:
    """An empty one that keeps nothing."""
    found = outbox.Folder(tmp_path / "outbox", 0.0, 1 << 16)
    found.prepare()
    return found


@pytest.fixture
def put(tmp_path: Path, folder: outbox.Folder) -> Callable[[str, bytes], Path]:
    """Write a file into it."""

    def write(name: str, content: bytes) -> Path:
        path = tmp_path / "outbox" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return path

    return write


def test_files_in_the_order_of_their_names(folder: outbox.Folder, put: Any) -> None:
    """Each is taken once and is gone."""
    paths = [put(name, LINE) for name in ("b.json", "a.ndjson", "c.jsonl")]
    names = [folder.take().name for _ in paths]  # type: ignore[union-attr]
    assert names == ["a.ndjson", "b.json", "c.jsonl"]
    assert folder.take() is None
    assert not any(path.exists() for path in paths)


@pytest.mark.parametrize(
    ("line", "push"),
    [
        (b'{"route":"r","body":{"a": 1.50}}', Push("r", b'{"a": 1.50}')),
        (
            b'{"route":"r","body":"{\\"a\\":1}","uid":7}',
            Push("r", b'{"a":1}', None, "7"),
        ),
        (b'{"route":"r","body":[],"session":"s","more":1}', Push("r", b"[]", "s")),
    ],
)
def test_a_line_is_a_push(
    folder: outbox.Folder, put: Any, line: bytes, push: Push
) -> None:
    """A body that is a string is JSON text, as Spark's to_json makes it."""
    put("a.json", line)
    assert folder.take() == outbox.Batch("a.json", [push])


def test_parquet(folder: outbox.Folder, put: Any, tmp_path: Path) -> None:
    """The same columns; a body may be text, or a struct."""
    for body in (['{"n":1}'] * 2, [{"n": 1}] * 2):
        columns = {"route": ["r", "r"], "body": body, "uid": ["a", None]}
        pq.write_table(pa.table(columns), tmp_path / "outbox" / "x.snappy.parquet")
        batch = folder.take()
        assert batch is not None
        assert batch.pushes == [
            Push("r", b'{"n":1}', None, "a"), Push("r", b'{"n":1}')
        ]  # fmt: skip


def test_what_spark_leaves_beside(
    folder: outbox.Folder, put: Any, tmp_path: Path
) -> None:
    """Files in its directory are taken; the directory goes when Spark is done."""
    put("run/part-0.json", LINE)
    put("run/.part-0.json.crc", b"x")
    put("run/._SUCCESS.crc", b"x")
    (tmp_path / "outbox" / "run" / "_temporary").mkdir()
    put("run/_temporary/part-1.json", b"half")
    assert folder.take() == outbox.Batch("run/part-0.json", [ONE])
    assert folder.take() is None
    put("run/_temporary/part-1.json", b"half").unlink()
    (tmp_path / "outbox" / "run" / "_temporary").rmdir()
    put("run/_SUCCESS", b"")
    assert folder.take() is None
    assert not (tmp_path / "outbox" / "run").exists()


def test_hidden_names_are_not_there_yet(folder: outbox.Folder, put: Any) -> None:
    """Until they are renamed."""
    path = put(".a.json", LINE)
    assert folder.take() is None
    path.rename(path.with_name("a.json"))
    assert folder.take() is not None


def test_a_streaming_sink_is_left_alone(folder: outbox.Folder, put: Any) -> None:
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
    folder: outbox.Folder, put: Any, name: str, content: bytes
) -> None:
    """Whole, with nothing of it pushed; the next one follows."""
    path = put(name, content)
    put("b.json", LINE)
    assert folder.take() == outbox.Batch("b.json", [ONE])
    assert path.with_name(f".bad-{name}").read_bytes() == content


def test_parquet_without_its_columns(folder: outbox.Folder, tmp_path: Path) -> None:
    """… is a bad file."""
    pq.write_table(pa.table({"route": ["r"]}), tmp_path / "outbox" / "a.parquet")
    assert folder.take() is None
    assert (tmp_path / "outbox" / ".bad-a.parquet").exists()


def test_what_was_pushed_is_kept_if_wanted(tmp_path: Path) -> None:
    """For `retention`; then it goes."""
    folder = outbox.Folder(tmp_path, 60.0, 1 << 16)
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


class OneThread(Clock):
    """A reactor whose threads are done before it looks."""

    def getThreadPool(self) -> OneThread:
        return self

    def callInThreadWithCallback(
        self, then: Callable[[bool, Any], None], work: Callable[[], Any]
    ) -> None:
        then(True, work())

    def callFromThread(self, call: Callable[..., None], *arguments: Any) -> None:
        call(*arguments)


def test_what_became_of_files_and_rows(folder: outbox.Folder, put: Any) -> None:
    """Files that were pushed or set aside, rows that were pushes or were not."""
    registry, reactor = Registry(), OneThread()
    running = outbox.Outbox(folder, registry, reactor)
    running.start()
    put("a.json", LINE * 300 + b'{"route":"","body":{}}\n')
    put("b.json", b"{")
    put("c.json", LINE)
    reactor.pump([0.2, 0, 0.2])
    running.stop()
    assert outbox.status(registry, [running]) == PushStatus(
        clients=0,
        pushes={"sent": 0, "dropped": 0, "nobody": 301, "refused": 1},
        outbox_files={"pushed": 2, "set_aside": 1},
        outbox_rows={"pushed": 301, "refused": 1},
    )
    assert reactor.getDelayedCalls() == []
