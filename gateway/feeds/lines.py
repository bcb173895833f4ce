r"""Events as lines of JSON: what `tap` and `events` publish unless asked otherwise.

    {"node":"gw-1","incarnation":"k3v7q2m5xa","lsn":7,
     "received_at":"2026-01-31T12:00:00.000001Z","protocol":"pomelo","listener":"game","session":"1-9","peer":"192.0.2.1:4000",
     "principal":…,"channel":…,"kind":"data","seq":3,"content_type":"application/json",
     "attributes":{…},"flaw":…,"payload":{"hp":90}}

What is null is left out, and so is an incarnation that is not known.  A payload whose content type is JSON, and which is, stays as
it was written, on one line: `payload`.  Other text is `payload_text`, anything else
`payload_base64`.  There are no line breaks inside.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from gateway.event import Rows, Stored
from gateway.store.node.incarnation import KEY

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_encode = msgspec.json.encode
_format = msgspec.json.format
_check = msgspec.json.Decoder(msgspec.Raw).decode  # raises if it is not JSON

#: Columns that are the same for many events in a row, in their order in a line.
_FRONT = ("protocol", "listener", "session", "peer", "principal", "channel", "kind")
_BACK = ("content_type", "flaw")

_MANY = 4
"""Lines that a form is made for: of fewer each is made by itself."""


def gap(first: int, last: int) -> bytes:
    """The element that stands for events which a subscriber was too slow for."""
    return b'{"gap":{"from":%d,"to":%d}}' % (first, last)


def of_rows(
    node: str,
    stored: Stored,
    rows: Rows,
    chosen: Sequence[int],
    incarnation: str = "",
) -> tuple[list[bytes], list[int]]:
    """Lines of the *chosen* rows of a batch, in order, and their lsns."""
    batch, first = stored.batch, stored.lsn
    origin, seqs = batch.origin, rows.seqs
    payloads = list(rows.each()) if len(rows.ends) else rows.payloads
    attributes = {**origin.attributes, **rows.attributes}
    fixed = (origin.protocol, origin.listener, origin.session, origin.peer)
    begin = _begin(node, incarnation)
    if not (rows.channels or rows.kinds or rows.content_types or rows.flaws):
        names = (*fixed, origin.principal, rows.channel, rows.kind)
        tail = _tail(rows.content_type, None, attributes)
        lsns = [first + row for row in chosen]
        if len(chosen) < len(payloads):
            payloads = [payloads[row] for row in chosen]
            seqs = None if seqs is None else [seqs[row] for row in chosen]
        front = _front(batch.received_at, names)
        return _alike(begin, lsns, front, seqs, tail, payloads), lsns
    fronts: dict[Any, bytes] = {}
    tails: dict[Any, tuple[bytes, bool]] = {}
    lines: list[bytes] = []
    lsns = []
    for row in chosen:
        place = (rows.channels.get(row, rows.channel), rows.kinds.get(row, rows.kind))
        if place not in fronts:
            names = (*fixed, origin.principal, *place)
            fronts[place] = _front(batch.received_at, names)
        sort = rows.content_types.get(row, rows.content_type), rows.flaws.get(row)
        if sort not in tails:
            tails[sort] = _tail(*sort, attributes)
        lsns.append(first + row)
        seq = None if seqs is None else seqs[row]
        front, tail = fronts[place], tails[sort]
        lines.append(_line(begin, first + row, front, seq, tail, payloads[row]))
    return lines, lsns


def of_columns(events: pa.RecordBatch) -> tuple[list[bytes], list[int]]:
    """Lines of events in `gateway.event.SCHEMA`, and their lsns; its metadata may have the
    incarnation.
    """
    incarnation = (events.schema.metadata or {}).get(KEY, b"").decode()
    lsns: list[int] = events.column("lsn").to_numpy().tolist()
    if not lsns:
        return [], []
    payloads = events.column("payload").to_pylist()
    seq = events.column("seq")
    seqs, seq_nulls = _numbers(seq), seq.is_null().to_numpy(zero_copy_only=False)
    words = [events.column(name) for name in ("node", *_FRONT, *_BACK)]
    times = events.column("received_at").cast(pa.int64()).to_numpy()
    codes = [_numbers(column.indices) for column in words]
    pairs = _pairs(events.column("attributes"))
    starts = _starts([times, seq_nulls, *codes], pairs)
    ends = [*starts[1:], len(lsns)]
    given = [
        _at(column.dictionary, code[starts])
        for column, code in zip(words, codes, strict=True)
    ]
    lines: list[bytes] = []
    tails: dict[Any, tuple[bytes, bool]] = {}
    for start, end, time, no_seq, (node, *front, content_type, flaw) in zip(
        starts,
        ends,
        times[starts].tolist(),
        seq_nulls[starts].tolist(),
        zip(*given, strict=True),
        strict=True,
    ):
        sort = content_type, flaw, pairs[start] if pairs else ()
        if sort not in tails:
            tails[sort] = _tail(content_type or "", flaw, dict(sort[2]))
        lines += _alike(
            _begin(node or "", incarnation),
            lsns[start:end],
            _front(time, tuple(front)),
            None if no_seq else seqs[start:end].tolist(),
            tails[sort],
            payloads[start:end],
        )
    return lines, lsns


def _numbers(column: pa.Array) -> Any:
    """A column's numbers, -1 where there is none."""
    return (column.fill_null(-1) if column.null_count else column).to_numpy()


def _at(dictionary: pa.Array, codes: Any) -> list[str | None]:
    """The words of these *codes*."""
    words = dictionary.to_pylist()
    return [None if code < 0 else words[code] for code in codes.tolist()]


def _pairs(maps: pa.MapArray) -> list[tuple[tuple[str, str], ...]]:
    """The names and values of each map; none at all if all are empty."""
    offsets = maps.offsets.to_pylist()
    if offsets[0] == offsets[-1]:
        return []
    # Of all the child's values: offsets are theirs, whatever was sliced.
    names, values = maps.keys.to_pylist(), maps.items.to_pylist()
    return [
        tuple(zip(names[begin:end], values[begin:end], strict=True))
        for begin, end in pairwise(offsets)
    ]


def _starts(columns: Sequence[Any], others: Sequence[Any]) -> list[int]:
    """Where rows begin that are not like the one before."""
    new = np.zeros(len(columns[0]), bool)
    new[0] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    if others:
        new[1:] |= np.fromiter(
            (before != now for before, now in pairwise(others)), bool
        )
    found: list[int] = np.flatnonzero(new).tolist()
    return found


def _alike(
    begin: bytes,
    lsns: Sequence[int],
    front: bytes,
    seqs: Sequence[int] | None,
    tail: tuple[bytes, bool],
    payloads: Sequence[bytes],
) -> list[bytes]:
    """Lines of events that differ in nothing but lsn, number and payload."""
    if len(lsns) < _MANY:
        each = zip(
            lsns, [None] * len(lsns) if seqs is None else seqs, payloads, strict=True
        )
        return [_line(begin, lsn, front, seq, tail, one) for lsn, seq, one in each]
    back, json = tail
    if json and _are_lines(payloads):
        back, end = back + b',"payload":', b"}"
    else:
        end = b""
        payloads = [_payload(payload, json=json) for payload in payloads]
    begin, front, back = (each.replace(b"%", b"%%") for each in (begin, front, back))
    if seqs is None:
        form = b"%b%%d%b%b%%b%b" % (begin, front, back, end)
        return [form % each for each in zip(lsns, payloads, strict=True)]
    form = b'%b%%d%b,"seq":%%d%b%%b%b' % (begin, front, back, end)
    return [form % each for each in zip(lsns, seqs, payloads, strict=True)]


def _line(
    begin: bytes,
    lsn: int,
    front: bytes,
    seq: int | None,
    tail: tuple[bytes, bool],
    payload: bytes,
) -> bytes:
    number = b"" if seq is None else b',"seq":%d' % seq
    back, json = tail
    shown = _payload(payload, json=json)
    return b"%b%d%b%b%b%b" % (begin, lsn, front, number, back, shown)


def _are_lines(payloads: Sequence[bytes]) -> bool:
    joined = b",".join(payloads)
    if b"\n" in joined or b"\r" in joined:
        return False
    try:
        if not joined.isascii():
            joined.decode()
        for _ in map(_check, payloads):
            pass
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


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
    """The bytes between number and payload, and whether the payload may be JSON."""
    parts = [b',"content_type":', _encode(content_type)]
    if attributes:
        parts += [b',"attributes":', _encode(attributes)]
    if flaw is not None:
        parts += [b',"flaw":', _encode(flaw)]
    kind = content_type.partition(";")[0].strip().lower()
    json = kind == "application/json" or kind.endswith("+json")
    return b"".join(parts), json and flaw != "too-deep"


def _payload(payload: bytes, *, json: bool) -> bytes:
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
