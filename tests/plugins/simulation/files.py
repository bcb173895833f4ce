"""Spool files, written and read: real Parquet, or lines where many are made.

The steps on the disk are the same, and so are the rows.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.event import Rows, Stored
from gateway.store import digests
from gateway.store.spool import parquet, selection

__all__ = [
    "Row",
    "count_lines",
    "previous_of",
    "rows_of",
    "select_lines",
    "split",
    "write_lines",
]

_COLUMNS = ["lsn", "session", "payload", "flaw"]


class Row(NamedTuple):
    """What the judge looks at."""

    lsn: int
    session: str
    payload: bytes
    flaw: str | None


def split(body: bytes) -> Rows:
    """The decoder of plain batches."""
    return Rows(body.split(b","), content_type="text/plain")


def write_lines(
    batches: Iterable[Stored],
    sink: Any,
    *,
    decoder: Any,
    previous: Callable[[], str],
    **_: Any,
) -> parquet.Written:
    """In place of `parquet.write`; *sink* is the publisher's, on a simulated file."""
    before = previous()
    sink.file.note(before)
    lines = []
    for stored in batches:
        if not stored.batch.count:
            continue
        rows = decoder.rows(stored)
        origin = stored.batch.origin
        session = origin.session.encode()
        for n, payload in enumerate(rows.each()):
            flaw = rows.flaws.get(n, "").encode()
            channel = rows.channels.get(n, rows.channel) or ""
            place = f"{origin.protocol} {channel}".encode()
            lines.append(
                b"%d %b %b %b %b\n"
                % (stored.lsn + n, session, flaw, payload.hex().encode(), place)
            )
    content = b"".join(lines) + b"end"
    sink.write(content)
    return parquet.Written(len(lines), digest=digest_of(content), previous=before)


def count_lines(data: bytes, needed: selection.Needed) -> tuple[int, int]:
    """In place of `selection.count`."""
    lines = data.split(b"\n")[:-1]
    return sum(_is_needed(line, needed) for line in lines), len(lines)


def select_lines(
    files: Iterable[bytes], needed: selection.Needed, _: str
) -> bytes | None:
    """In place of `selection.select`."""
    found = [
        line + b"\n"
        for data in files
        for line in data.split(b"\n")[:-1]
        if _is_needed(line, needed)
    ]
    return b"".join(found) + b"end" if found else None


def _is_needed(line: bytes, needed: selection.Needed) -> bool:
    lsn, _, _, _, protocol, channel = line.decode().split(" ")
    asked = needed.get(protocol)
    first = None if asked is None else asked(channel)
    return first is not None and int(lsn) >= first


def rows_of(content: bytes) -> list[Row] | None:
    """All rows in their order; None if it is torn."""
    if not content.startswith(b"PAR1"):
        *lines, end = content.split(b"\n")
        return list(map(_row, lines)) if end == b"end" else None
    try:
        table = pq.read_table(
            pa.BufferReader(content), columns=_COLUMNS, use_threads=False
        )
    except (OSError, pa.ArrowInvalid):
        return None
    columns = (table.column(name).to_pylist() for name in _COLUMNS)
    return [Row(*row) for row in zip(*columns, strict=True)]


def previous_of(content: bytes, note: str | None) -> str | None:
    """The digest of the file before it, as a file says; lines leave a *note* of it."""
    if not content.startswith(b"PAR1"):
        return note
    metadata = pq.read_metadata(pa.BufferReader(content)).metadata
    return digests.said(metadata, digests.PREVIOUS_KEY)


def digest_of(content: bytes) -> str:
    """The digest of a file's events, as it says; of lines, that of their bytes."""
    if not content.startswith(b"PAR1"):
        return hashlib.sha256(content).hexdigest()
    metadata = pq.read_metadata(pa.BufferReader(content)).metadata
    return digests.said(metadata, digests.EVENTS_KEY) or ""


def _row(line: bytes) -> Row:
    lsn, session, flaw, payload, *_ = line.split(b" ")
    return Row(
        int(lsn),
        session.decode(),
        bytes.fromhex(payload.decode()),
        flaw.decode() or None,
    )
