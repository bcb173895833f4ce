"""Documents to events, and the bodies of stored batches.

    {"create": {"_index": "shop", "_id": "7"}} LF
    {"@timestamp": …, "message": …} LF

An event is a document as it came; its channel is its index.  The document gets the id as
`_id`, if the client gave one.  A client that repeats a request after a lost answer sends
the same id, which shows doubles in the table.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from isal import isal_zlib

from gateway.event import Rows
from gateway.sdk.payload import flaw_of

__all__ = ["Item", "decode", "items", "pack"]

FORMAT = 1
_WBITS = {"gzip": 31, "deflate": 15}
_TAKEN = ("create", "index")
_NO_DOCUMENT = ("delete",)


class _Place(msgspec.Struct, gc=False):
    index: str | None = msgspec.field(default=None, name="_index")
    id: str | int | None = msgspec.field(default=None, name="_id")


class Item(msgspec.Struct, gc=False):
    """One action."""

    action: str
    index: str
    id: str
    """Empty: the client gave none."""
    document: bytes | None
    """The document to store; None: it is none that we take."""


_action = msgspec.json.Decoder(dict[str, _Place]).decode


def items(data: bytes, index: str) -> Iterator[Item]:
    """The actions of a request; *index* is that of its path.  Raises ValueError."""
    at, size = 0, len(data)
    while at < size:
        end = data.find(b"\n", at)
        if end < 0:
            raise ValueError("the bulk request must be terminated by a newline [\\n]")
        line, at = data[at:end], end + 1
        if not line.strip():
            continue
        try:
            [(action, place)] = _action(line).items()
        except (ValueError, RecursionError):
            raise ValueError("Malformed action/metadata line") from None
        name = "" if place.id is None else str(place.id)
        document = None
        if action not in _NO_DOCUMENT:
            end = data.find(b"\n", at)
            if end < 0:
                raise ValueError(
                    "the bulk request must be terminated by a newline [\\n]"
                )
            document, at = data[at:end], end + 1
        taken = action in _TAKEN
        yield Item(action, place.index or index, name, document if taken else None)


def pack(index: str, coding: str, sent: bytes) -> bytes:
    """A batch's body: a request's, as it came, and the index of its path."""
    return msgspec.msgpack.encode((FORMAT, index, coding, sent))


def decode(body: bytes) -> Rows:
    """The events of a batch.  Total on every body that a `Session` made."""
    form, index, coding, data = msgspec.msgpack.decode(body)
    if form != FORMAT:
        raise ValueError(f"bulk batch of unknown format {form}")
    if coding and data:
        data = isal_zlib.decompress(data, wbits=_WBITS[coding])
    rows = Rows([])
    taken = (item for item in items(data, index) if item.document is not None)
    for row, item in enumerate(taken):
        assert item.document is not None
        payload = item.document.strip()
        flaw = flaw_of(payload, len(payload))
        if flaw is not None:
            rows.flaws[row] = flaw
        elif item.id:
            payload = _named(payload, item.id)
        if item.index:
            rows.channels[row] = item.index
        rows.payloads.append(payload)
    return rows


def _named(document: bytes, name: str) -> bytes:
    """Put the `_id` into a document: Elasticsearch lets none have one by itself."""
    rest = document[1:].lstrip()
    comma = b"" if rest.startswith(b"}") else b","
    return b"".join((b'{"_id":', msgspec.json.encode(name), comma, rest))
