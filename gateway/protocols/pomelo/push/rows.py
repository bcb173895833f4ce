"""Reads the pushes of one outbox file: JSON lines, or Parquet with the same columns.

    {"route": "onScore", "body": {"score": 3}, "uid": "alice"}

`uid` or `session` says whom it is for; with neither it is for all clients.  A body that
is a string is JSON text already, as Spark's `to_json` makes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from gateway.protocols.pomelo.push.message import Push

__all__ = ["Unreadable", "read"]

_LINES = (".json", ".ndjson", ".jsonl")


class Unreadable(Exception):
    """A file that can not be read as pushes; str() says why."""


class _Line(msgspec.Struct):
    route: str
    body: msgspec.Raw
    uid: str | int | None = None
    session: str | None = None


_LINE = msgspec.json.Decoder(_Line)
_STRING = msgspec.json.Decoder(str)


def read(path: Path, most_bytes: int) -> list[Push]:
    """All pushes of a file of at most *most_bytes* (`options.outbox.file_bytes`).

    Raises `Unreadable`, or OSError.
    """
    size = path.stat().st_size
    if size > most_bytes:
        raise Unreadable(
            f"{size} bytes, limit {most_bytes} (options.outbox.file_bytes)"
        )
    if path.name.endswith(".parquet"):
        try:
            return _columns(pq.read_table(path))
        except (pa.ArrowException, msgspec.MsgspecError) as why:
            raise Unreadable(str(why)) from None
    if path.name.endswith(_LINES):
        return [
            _line(number, line)
            for number, line in enumerate(path.read_bytes().splitlines(), 1)
            if line.strip()
        ]
    raise Unreadable(f"must be .parquet or {', '.join(_LINES)}")


def _line(number: int, line: bytes) -> Push:
    try:
        found = _LINE.decode(line)
        body = bytes(found.body)
        if body.startswith(b'"'):
            body = _STRING.decode(body).encode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as why:
        raise Unreadable(f"line {number}: {why}") from None
    return Push(found.route, body, found.session, _uid(found.uid))


def _columns(table: pa.Table) -> list[Push]:
    missing = {"route", "body"} - set(table.column_names)
    if missing:
        raise Unreadable(f"no column {' and no column '.join(sorted(missing))}")
    return [_row(number, row) for number, row in enumerate(table.to_pylist(), 1)]


def _row(number: int, row: dict[str, Any]) -> Push:
    route, body, session = row["route"], row["body"], row.get("session")
    if not isinstance(route, str) or not isinstance(session, str | None):
        raise Unreadable(f"row {number}: route and session must be strings")
    if body is None:
        raise Unreadable(f"row {number}: no body")
    if isinstance(body, str):
        body = body.encode()
    elif not isinstance(body, bytes):
        body = msgspec.json.encode(body)
    return Push(route, body, session, _uid(row.get("uid")))


def _uid(uid: str | int | None) -> str | None:
    return None if uid is None else str(uid)
