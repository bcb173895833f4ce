r"""Events as lines of JSON: what `tap` and `events` publish unless asked otherwise.

    {"node":"gw-1","incarnation":"5f0c…","lsn":7,
     "received_at":"2026-01-31T12:00:00.000001Z","protocol":"pomelo","listener":"game","session":"1-9","peer":"192.0.2.1:4000",
     "principal":…,"channel":…,"kind":"data","seq":3,"content_type":"application/json",
     "attributes":{…},"flaw":…,"payload":{"hp":90}}

What is null is left out, and so is an incarnation that is not known.  A payload whose content type is JSON, and which is, stays as
it was written, on one line: `payload`.  Other text is `payload_text`, anything else
`payload_base64`.  There are no line breaks inside.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from gateway.event import Rows, Stored
from gateway.store.incarnation import KEY

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_encode = msgspec.json.encode
_format = msgspec.json.format
_check = msgspec.json.Decoder(msgspec.Raw).decode  # raises if it is not JSON

#: Columns that are the same for many events in a row, in their order in a line.
_FRONT = ("protocol", "listener", "session", "peer", "principal", "channel", "kind")


def gap(first: int, last: int) -> bytes:
    """The element that stands for events which a subscriber was too slow for."""
    return b'{"gap":{"from":%d,"to":%d}}' % (first, last)


def of_rows(
    node: str,
    stored: Stored,
    rows: Rows,
    chosen: Iterable[int],
    incarnation: str = "",
) -> tuple[list[bytes], list[int]]:
    """Lines of the *chosen* rows of a batch, and their lsns."""
    batch, first = stored.batch, stored.lsn
    origin, seqs = batch.origin, rows.seqs
    payloads = list(rows.each()) if len(rows.ends) else rows.payloads
    attributes = {**origin.attributes, **rows.attributes}
    fixed = (origin.protocol, origin.listener, origin.session, origin.peer)
    begin = _begin(node, incarnation)
    fronts: dict[Any, bytes] = {}
    tails: dict[Any, tuple[bytes, bool]] = {}
    lines: list[bytes] = []
    lsns: list[int] = []
    for row in chosen:
        place = (
            rows.channels.get(row, rows.channel),
            rows.kinds.get(row, rows.kind),
        )
        front = fronts.get(place)
        if front is None:
            names = (*fixed, origin.principal, *place)
            front = fronts[place] = _front(batch.received_at, names)
        sort = rows.content_types.get(row, rows.content_type), rows.flaws.get(row)
        tail = tails.get(sort)
        if tail is None:
            tail = tails[sort] = _tail(*sort, attributes)
        number = b"" if seqs is None else b',"seq":%d' % seqs[row]
        lsn = first + row
        payload = _payload(payloads[row], json=tail[1])
        lines.append(b"%b%d%b%b%b%b" % (begin, lsn, front, number, tail[0], payload))
        lsns.append(lsn)
    return lines, lsns


def of_columns(events: pa.RecordBatch) -> tuple[list[bytes], list[int]]:
    """Lines of events in `gateway.event.SCHEMA`, and their lsns; its metadata may have the
    incarnation.
    """
    incarnation = (events.schema.metadata or {}).get(KEY, b"").decode()
    lsns: list[int] = events.column("lsn").to_pylist()
    payloads = events.column("payload").to_pylist()
    seqs = events.column("seq").to_pylist()
    begins = _words(events, "node")
    fronts, tails = _fronts(events), _tails(events)
    lines = []
    for node, lsn, front, seq, tail, payload in zip(
        begins, lsns, fronts, seqs, tails, payloads, strict=True
    ):
        number = b"" if seq is None else b',"seq":%d' % seq
        shown = _payload(payload, json=tail[1])
        lines.append(
            b"%b%d%b%b%b%b"
            % (_begin(node or "", incarnation), lsn, front, number, tail[0], shown)
        )
    return lines, lsns


def _fronts(events: pa.RecordBatch) -> Iterator[bytes]:
    times = events.column("received_at").cast(pa.int64()).to_pylist()
    kept: dict[Any, bytes] = {}
    for key in zip(times, *(_words(events, name) for name in _FRONT), strict=True):
        front = kept.get(key)
        if front is None:
            front = kept[key] = _front(key[0], key[1:])
        yield front


def _tails(events: pa.RecordBatch) -> Iterator[tuple[bytes, bool]]:
    maps = events.column("attributes")
    offsets = maps.offsets.to_pylist()
    # Of all the child's values: offsets are theirs, whatever was sliced.
    names, values = maps.keys.to_pylist(), maps.items.to_pylist()
    kept: dict[Any, tuple[bytes, bool]] = {}
    types, flaws = _words(events, "content_type"), _words(events, "flaw")
    for row, (content_type, flaw) in enumerate(zip(types, flaws, strict=True)):
        begin, end = offsets[row], offsets[row + 1]
        pairs = tuple(zip(names[begin:end], values[begin:end], strict=True))
        key = content_type, flaw, pairs
        tail = kept.get(key)
        if tail is None:
            tail = kept[key] = _tail(content_type or "", flaw, dict(pairs))
        yield tail


def _words(events: pa.RecordBatch, name: str) -> list[str | None]:
    """A dictionary column; each word is one object, however often it is there."""
    column = events.column(name)
    words = column.dictionary.to_pylist()
    return [
        None if code is None else words[code] for code in column.indices.to_pylist()
    ]


@lru_cache(16)
def _begin(node: str, incarnation: str) -> bytes:
    if not incarnation:
        return b'{"node":%b,"lsn":' % _encode(node)
    return b'{"node":%b,"incarnation":%b,"lsn":' % (_encode(node), _encode(incarnation))


def _front(received_at: int, names: tuple[str | None, ...]) -> bytes:
    time = _EPOCH + timedelta(microseconds=received_at)
    stamp = time.isoformat(timespec="microseconds").replace("+00:00", "Z")
    parts = [b',"received_at":"%b"' % stamp.encode()]
    parts += [
        b',"%b":%b' % (column.encode(), _encode(name))
        for column, name in zip(_FRONT, names, strict=True)
        if name is not None
    ]
    return b"".join(parts)


def _tail(
    content_type: str, flaw: str | None, attributes: dict[str, str]
) -> tuple[bytes, bool]:
    """What comes between the number and the payload, and whether that may be JSON."""
    parts = [b',"content_type":', _encode(content_type)]
    if attributes:
        parts += [b',"attributes":', _encode(attributes)]
    if flaw is not None:
        parts += [b',"flaw":', _encode(flaw)]
    kind = content_type.partition(";")[0].strip().lower()
    return b"".join(parts), kind == "application/json" or kind.endswith("+json")


def _payload(payload: bytes, *, json: bool) -> bytes:
    """The rest of a line."""
    if json:
        try:
            _check(payload)
            if payload.isascii() or payload.decode():
                if b"\n" in payload or b"\r" in payload:
                    payload = _format(payload, indent=-1)
                return b',"payload":%b}' % payload
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    try:
        return b',"payload_text":%b}' % _encode(payload.decode())
    except UnicodeDecodeError:
        return b',"payload_base64":"%b"}' % binascii.b2a_base64(payload, newline=False)
