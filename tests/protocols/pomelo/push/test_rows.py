"""What a line, or a row, of an outbox file says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.protocols.pomelo.push.message import Push
from gateway.protocols.pomelo.push.rows import read


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
def test_a_line_is_a_push(tmp_path: Path, line: bytes, push: Push) -> None:
    """A body that is a string is JSON text, as Spark's to_json makes it."""
    path = tmp_path / "a.json"
    path.write_bytes(line)
    assert read(path, 1 << 16) == [push]


def test_parquet(tmp_path: Path) -> None:
    """The same columns; a body may be text, or a struct."""
    path = tmp_path / "x.snappy.parquet"
    for body in (['{"n":1}'] * 2, [{"n": 1}] * 2):
        columns = {"route": ["r", "r"], "body": body, "uid": ["a", None]}
        pq.write_table(pa.table(columns), path)
        assert read(path, 1 << 16) == [
            Push("r", b'{"n":1}', None, "a"), Push("r", b'{"n":1}')
        ]  # fmt: skip
