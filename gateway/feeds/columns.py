"""Events as Arrow: each element is a whole IPC stream, of one batch of many events.

It has `gateway.event.SCHEMA`; any Arrow library reads it without knowing us.  Whose lsns
they are is in the schema's metadata, `gateway.incarnation`, if it is known.  What a
subscriber was too slow for is told by a batch of no events, with the metadata
`gap_from` and `gap_to` in its schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gateway.event import DELETED, SCHEMA
from gateway.store.node.incarnation import KEY

_ELEMENT_BYTES = 1 << 18
_ROW_BYTES = 64  # of an event beside its payload, roughly


def gap(first: int, last: int) -> bytes:
    """The element that stands for events which a subscriber was too slow for."""
    told = SCHEMA.with_metadata({"gap_from": str(first), "gap_to": str(last)})
    return _stream(pa.RecordBatch.from_pylist([], told))


def of_incarnation(events: pa.RecordBatch, incarnation: str) -> pa.RecordBatch:
    """The same events, whose metadata says which incarnation gave their lsns, if known."""
    return events.replace_schema_metadata({KEY: incarnation} if incarnation else None)


def matching(events: pa.RecordBatch, conditions: Mapping[str, str]) -> pa.RecordBatch:
    """The *events* whose columns have these values."""
    for name, value in conditions.items():
        column = events.column(name)
        code = column.dictionary.index(value).as_py()
        if code < 0:
            return events.slice(0, 0)
        # Null is what a condition on it gives, and filters drop it.
        events = events.filter(pc.equal(column.indices, code))
    return events


def kept(events: pa.RecordBatch) -> pa.RecordBatch:
    """The events without rows that only hold the place of deleted ones."""
    flaws = events.column("flaw")
    if not any(
        (word or "").startswith(DELETED) for word in flaws.dictionary.to_pylist()
    ):
        return events
    gone = pc.starts_with(flaws.cast(pa.string()), DELETED)
    return events.filter(pc.invert(pc.fill_null(gone, False)))


def streams(events: pa.RecordBatch) -> tuple[list[bytes], list[int]]:
    """Elements of moderate size, and the lsn of the last event of each."""
    found: list[bytes] = []
    lasts: list[int] = []
    lsns = events.column("lsn").to_numpy()
    for begin, end in _cuts(events):
        found.append(_stream(_compact(events.slice(begin, end - begin))))
        lasts.append(int(lsns[end - 1]))
    return found, lasts


def since(element: bytes, lsn: int) -> bytes:
    """An element with its events from *lsn* on."""
    events = read(element)
    return _stream(events.filter(pc.greater_equal(events.column("lsn"), lsn)))


def read(element: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(element) as reader:
        batch: pa.RecordBatch = reader.read_next_batch()
        return batch


def _cuts(events: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Where elements begin and end: of about as many bytes, if no event has too many."""
    if not events.num_rows:
        return
    sizes = pc.binary_length(events.column("payload")).to_numpy(zero_copy_only=False)
    total = np.cumsum(sizes + _ROW_BYTES)
    whole, row = int(total[-1]), int(sizes.max()) + _ROW_BYTES
    most = whole // max(round(whole / _ELEMENT_BYTES), 1) + min(
        row, _ELEMENT_BYTES // 8
    )
    begin, before = 0, 0
    while begin < len(total):
        end = int(np.searchsorted(total, before + most, side="right"))
        end = max(end, begin + 1)
        yield begin, end
        begin, before = end, int(total[end - 1])


def _compact(events: pa.RecordBatch) -> pa.RecordBatch:
    """The events without dictionary words that none of them uses."""
    columns = []
    for column in events.columns:
        if pa.types.is_dictionary(column.type) and len(column.dictionary) > len(column):
            kept = column.dictionary_decode().dictionary_encode()
            columns.append(kept.cast(column.type))
        else:
            columns.append(column)
    return pa.record_batch(columns, schema=events.schema)


def _stream(events: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, events.schema) as writer:
        writer.write_batch(events)
    octets: bytes = sink.getvalue().to_pybytes()
    return octets
