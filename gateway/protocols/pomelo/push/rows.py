"""Reads the pushes of one outbox file: JSON lines, or Parquet with the same columns.

    {"route": "onScore", "body": {"score": 3}, "uid": "alice", "ttl": 60}

A body that is a string is JSON text already, as Spark's `to_json` makes it.  Rows are
read as they are needed, so that memory does not grow with their number: a small Parquet
file can have millions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from gateway.protocols.pomelo.push.row import (
    Given,
    Rejected,
    Row,
    answer_row,
    membership,
    push,
)

_LINES = (".json", ".ndjson", ".jsonl")
_REQUIRED = ("route", "body")
_OPTIONAL = ("session", "uid", "group", "attributes", "all", "ttl", "priority")
_WITHOUT_ROUTE = ("join", "leave", "id")
_NOTHING = msgspec.Raw(b"")
_BATCH_ROWS = 256
_INFLATES = 4
"""A row group may be so many times `options.outbox.file_bytes`, uncompressed."""


class BrokenFile(Exception):
    """A file that can not be read as pushes; str() says why."""


class _Line(Given, kw_only=True):
    route: str | None = None
    body: msgspec.Raw = _NOTHING
    join: str | int | None = None
    leave: str | int | None = None
    id: Any = None
    ttl: Any = None
    priority: Any = None


_LINE = msgspec.json.Decoder(_Line)
_STRING = msgspec.json.Decoder(str)


def read(file: BinaryIO, name: str, most_bytes: int) -> Iterator[Row]:
    """All rows of a file of *most_bytes* at most.  Raises `BrokenFile` at the first unreadable row."""
    try:
        if name.endswith(".parquet"):
            yield from _parquet(file, most_bytes)
        elif name.endswith(_LINES):
            yield from _lines(file)
        else:
            raise BrokenFile(f"must be .parquet or {', '.join(_LINES)}")
    except BrokenFile:
        raise
    except Exception as why:  # Arrow's and Python's, for whatever the file has in it
        raise BrokenFile(f"{type(why).__name__}: {why}") from None


def _lines(file: BinaryIO) -> Iterator[Row]:
    number = 0
    for lines in file:
        for line in lines.splitlines():
            number += 1
            if line.strip():
                yield _line(number, line)


def _line(number: int, line: bytes) -> Row:
    try:
        found = _LINE.decode(line)
        if found.join is not None or found.leave is not None:
            return _made(membership, found.join, found.leave, found, found.ttl)
        body = bytes(found.body)
        answers = found.route is None and found.id is not None
        if not body or (found.route is None and not answers):
            raise BrokenFile(f"line {number}: must have a route and a body")
        if body.startswith(b'"'):
            body = _STRING.decode(body).encode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as why:
        raise BrokenFile(f"line {number}: {why}") from None
    if found.route is None:
        return _made(answer_row, found.session, found.id, body, found.ttl)
    return _made(push, found.route, body, found, found.ttl, found.priority)


def _made(make: Callable[..., Row], *given: Any) -> Row:
    """The row; one without an addressee is `Rejected`, and the next ones are read."""
    try:
        return make(*given)
    except ValueError as why:
        return Rejected(str(why))


def _parquet(file: BinaryIO, most_bytes: int) -> Iterator[Row]:
    table = pq.ParquetFile(file)
    names = table.schema_arrow.names
    missing = [name for name in _REQUIRED if name not in names]
    if missing and not any(name in names for name in _WITHOUT_ROUTE):
        raise BrokenFile(f"no column {' and no column '.join(missing)}")
    most = _INFLATES * most_bytes
    for group in range(table.num_row_groups):
        size = table.metadata.row_group(group).total_byte_size
        if size > most:
            raise BrokenFile(
                f"row group of {size} bytes, uncompressed, limit {most} "
                f"({_INFLATES} times options.outbox.file_bytes)"
            )
    has_body = "body" in names
    if has_body and pa.types.is_string(table.schema_arrow.field("body").type):
        # A long body that all rows have is in memory once, in its dictionary.
        found = table.metadata
        table = pq.ParquetFile(file, metadata=found, read_dictionary=["body"])
    wanted = (*_REQUIRED, *_OPTIONAL, *_WITHOUT_ROUTE)
    there = [name for name in wanted if name in names]
    number = 0
    for batch in table.iter_batches(_BATCH_ROWS, columns=there, use_threads=False):
        bodies: Iterator[Any] = repeat(None, batch.num_rows)
        if has_body:
            bodies = _values(batch.column("body"))
        others = [name for name in there if name != "body"]
        columns = zip(*(batch.column(name).to_pylist() for name in others), strict=True)
        for body, values in zip(bodies, columns, strict=True):
            number += 1
            yield _columns(number, dict(zip(others, values, strict=True)), body)


def _values(column: pa.Array) -> Iterator[Any]:
    if not isinstance(column, pa.DictionaryArray):
        yield from column.to_pylist()
        return
    dictionary, last, value = column.dictionary, None, None
    for at in column.indices.to_pylist():
        if at != last:
            last, value = at, None if at is None else dictionary[at].as_py()
        yield value


def _columns(number: int, columns: dict[str, Any], body: Any) -> Row:
    route, answers = columns.pop("route", None), columns.pop("id", None)
    join, leave = columns.pop("join", None), columns.pop("leave", None)
    ttl, priority = columns.pop("ttl", None), columns.pop("priority", None)
    attributes = columns.get("attributes")
    if isinstance(attributes, list):  # a map
        columns["attributes"] = dict(attributes)
    try:
        found = msgspec.convert(columns, Given)
    except msgspec.ValidationError as why:
        raise BrokenFile(f"row {number}: {why}") from None
    if join is not None or leave is not None:
        return _made(membership, join, leave, found, ttl)
    if not isinstance(route, str) and (route is not None or answers is None):
        raise BrokenFile(f"row {number}: route must be a string")
    if body is None:
        raise BrokenFile(f"row {number}: no body")
    if isinstance(body, str):
        body = body.encode()
    elif not isinstance(body, bytes):
        body = msgspec.json.encode(body)
    if route is None:
        return _made(answer_row, found.session, answers, body, ttl)
    return _made(push, route, body, found, ttl, priority)
