"""What a line, or a row, of an outbox file says."""

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.protocols.pomelo.push.row import (
    Addressee,
    AnswerRow,
    Membership,
    Push,
    Rejected,
)
from gateway.protocols.pomelo.push.rows import BrokenFile, read

REFUSED = Path(__file__).parents[3] / "vectors" / "pomelo-push-refused.jsonl"


def rows(content: bytes, name: str = "a.json") -> list[Any]:
    """All rows of a file."""
    return list(read(io.BytesIO(content), name, 1 << 16))


@pytest.mark.parametrize(
    ("line", "push"),
    [
        (
            b'{"route":"r","body":{"a": 1.50},"all":true}',
            Push("r", b'{"a": 1.50}', Addressee(everyone=True)),
        ),
        (
            b'{"route":"r","body":"{\\"a\\":1}","uid":7,"session":null,"all":false}',
            Push("r", b'{"a":1}', Addressee(uid="7")),
        ),
        (
            b'{"route":"r","body":[],"all":true,"ttl":1.5,"priority":"low"}',
            Push("r", b"[]", Addressee(everyone=True), "low", ttl=1.5),
        ),
        (
            b'{"route":"r","body":[],"session":"s","more":1}',
            Push("r", b"[]", Addressee(session="s")),
        ),
        (
            b'{"route":"r","body":[],"attributes":{"team":"red"}}',
            Push("r", b"[]", Addressee(attributes={"team": "red"})),
        ),
    ],
)
def test_a_line_is_a_push(line, push):
    """A body that is a string is JSON text, as Spark's to_json makes it."""
    assert rows(line) == [push]


def test_a_line_that_answers():
    """It has no route; beside a route an id is a column like any other."""
    assert rows(b'{"session":"s","id":7,"body":{"code":200},"ttl":5}') == [
        AnswerRow("s", 7, b'{"code":200}', ttl=5.0)
    ]
    assert rows(b'{"route":"r","id":"x","uid":"a","body":1}') == [
        Push("r", b"1", Addressee(uid="a"))
    ]


def test_answers_in_parquet(tmp_path):
    """Alone, or beside pushes."""
    path = tmp_path / "x.parquet"
    columns = {"session": ["s", "t"], "id": [7, 8], "body": ["1", "2"]}
    pq.write_table(pa.table(columns), path)
    answers = [AnswerRow("s", 7, b"1"), AnswerRow("t", 8, b"2")]
    assert rows(path.read_bytes(), path.name) == answers
    pq.write_table(pa.table(columns | {"route": ["r", None]}), path)
    push = Push("r", b"1", Addressee(session="s"))
    assert rows(path.read_bytes(), path.name) == [push, answers[1]]


@pytest.mark.parametrize(
    ("line", "change"),
    [
        (
            b'{"join":"room","session":"s"}',
            Membership("room", True, Addressee(session="s")),
        ),
        (
            b'{"leave":7,"uid":"alice","ttl":5}',
            Membership("7", False, Addressee(uid="alice"), ttl=5.0),
        ),
        (
            b'{"join":"b","group":"a","route":null}',
            Membership("b", True, Addressee(group="a")),
        ),
    ],
)
def test_a_line_that_changes_groups(line, change):
    """It needs no route and no body."""
    assert rows(line) == [change]


def test_changes_of_groups_in_parquet(tmp_path):
    """Alone, or beside pushes."""
    path = tmp_path / "x.parquet"
    change = Membership("room", True, Addressee(uid="a"))
    columns = {"join": ["room", None], "uid": ["a", "b"]}
    pq.write_table(pa.table({k: v[:1] for k, v in columns.items()}), path)
    assert rows(path.read_bytes(), path.name) == [change]
    columns |= {"route": [None, "r"], "body": [None, "1"]}
    pq.write_table(pa.table(columns), path)
    push = Push("r", b"1", Addressee(uid="b"))
    assert rows(path.read_bytes(), path.name) == [change, push]


@pytest.mark.parametrize("refused", REFUSED.read_text().splitlines())
def test_a_line_that_is_refused(refused):
    """It pushes, answers and changes nothing; other rows are not concerned.  Nothing that
    is missing ever means everybody."""
    refused = json.loads(refused)
    found = rows(refused["line"].encode() + b'\n{"route":"r","body":1,"uid":"a"}')
    assert isinstance(found[0], Rejected)
    assert refused["why"] in found[0].why
    assert found[1:] == [Push("r", b"1", Addressee(uid="a"))]


@pytest.mark.parametrize(
    "line",
    [b'{"route":"r","body":1,"all":1}', b'{"route":"r","body":1,"uid":1.5}', b"\xff"],
)
def test_a_line_of_another_kind(line):
    """… makes its file unreadable."""
    with pytest.raises(BrokenFile, match="line 1"):
        rows(line)


def test_parquet(tmp_path):
    """The same columns; a body may be text, or a struct."""
    path = tmp_path / "x.snappy.parquet"
    for body in (['{"n":1}'] * 3, [{"n": 1}] * 3):
        columns = {
            "route": ["r"] * 3,
            "body": body,
            "uid": ["a", None, None],
            "all": [None, True, None],
        }
        pq.write_table(pa.table(columns), path)
        alice, everyone, nobody = rows(path.read_bytes(), path.name)
        assert alice == Push("r", b'{"n":1}', Addressee(uid="a"))
        assert everyone == Push("r", b'{"n":1}', Addressee(everyone=True))
        assert isinstance(nobody, Rejected)


def test_time_to_live_and_priority_in_parquet(tmp_path):
    """A number of any type, and text."""
    path = tmp_path / "x.parquet"
    for ttl in (60, 60.0, Decimal("60.0")):
        columns = {
            "route": ["r"] * 2,
            "body": ["1"] * 2,
            "uid": ["a"] * 2,
            "ttl": [ttl, None],
            "priority": ["high", None],
        }
        pq.write_table(pa.table(columns), path)
        assert rows(path.read_bytes(), path.name) == [
            Push("r", b"1", Addressee(uid="a"), "high", ttl=60.0),
            Push("r", b"1", Addressee(uid="a")),
        ]


@pytest.mark.parametrize(
    "attributes",
    [
        pa.array([{"team": "red"}]),
        pa.array([[("team", "red")]], pa.map_(pa.string(), pa.string())),
    ],
)
def test_attributes_in_parquet(tmp_path, attributes):
    """A struct or a map."""
    path = tmp_path / "x.parquet"
    columns = {"route": ["r"], "body": ["1"], "attributes": attributes}
    pq.write_table(pa.table(columns), path)
    team = Addressee(attributes={"team": "red"})
    assert rows(path.read_bytes(), path.name) == [Push("r", b"1", team)]


@pytest.mark.parametrize("body_bytes", [8, 50_000])
def test_millions_of_rows_in_a_small_file(tmp_path, body_bytes):
    """A few are decoded at a time: the first of them takes no more memory than one of a
    short file, and so do those behind it.
    """
    count, path = 2_000_000, tmp_path / "a.parquet"
    body = pa.array(['{"a":"' + "x" * body_bytes + '"}'])
    pq.write_table(
        pa.table(
            {
                "route": pa.repeat("onNews", count),
                "body": pa.DictionaryArray.from_arrays(pa.repeat(0, count), body),
                "all": pa.repeat(True, count),
            }
        ),
        path,
        compression="zstd",
    )
    assert path.stat().st_size < 1 << 16
    with path.open("rb") as file:
        before = pa.total_allocated_bytes()
        found = read(file, path.name, 1 << 20)
        for _ in range(3000):
            assert isinstance(next(found), Push)
            assert pa.total_allocated_bytes() - before < 4 << 20
        found.close()
