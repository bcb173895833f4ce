"""Redacts events in files of the gateway's own form, as archive and `retained/` have them.

Such a file is named by its lsns, and readers of streams find their place by the offsets of
its rows.  So a row stays: node, lsn, times, listener, channel and numbers.  Its payload and
its sender go: of the payload as many zeros are left as it had bytes, and the flaw says
`deleted` (with what the flaw was, `deleted:unframed`).

It is still that file: `gateway.events` stays, and so do its link and the chain.  The digest
of its present content is `gateway.deleted` (`gateway.store.digests`), and the record of the
deletion has both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.event import DELETED, SCHEMA
from gateway.spark.commit.partition import compression
from gateway.store.digests import DELETED_KEY, EventsDigest

_ARROW_KEY = b"ARROW:schema"
_AGAIN_KEY = b"gateway.deleted.again"

#: What its sender said, or who that was, and may not be null.
_EMPTY = ("session", "peer")

_Flags = np.ndarray[Any, np.dtype[np.bool_]]


def redacted(
    source: Path | pa.BufferReader, chosen: Callable[[pa.Table], _Flags]
) -> tuple[bytes, int] | None:
    """The file without the events that are *chosen*, by node and lsn, and how many these
    are; None if it has none of them, or they are redacted.

    Its row groups are as they were.  Raises OSError, and what pyarrow raises.
    """
    with pq.ParquetFile(source, page_checksum_verification=True) as file:
        masks = [_mask(file, n, chosen) for n in range(file.num_row_groups)]
        count = int(sum(mask.sum() for mask in masks))
        if not count:
            return None
        data = _written(file, masks, "")
        said = int.from_bytes(data[-8:-4], "little")
        if said == file.metadata.serialized_size:
            # Who has read the old footer must see that it is another one.
            data = _written(file, masks, "again")
        return data, count


def _mask(
    file: pq.ParquetFile, number: int, chosen: Callable[[pa.Table], _Flags]
) -> _Flags:
    rows = file.read_row_group(number, columns=["node", "lsn", "flaw"])
    gone = pc.starts_with(rows["flaw"].cast(pa.string()), DELETED)
    there = pc.invert(pc.fill_null(gone, False))
    mask: _Flags = chosen(rows) & np.asarray(there.to_numpy(), bool)
    return mask


def _written(file: pq.ParquetFile, masks: list[_Flags], word: str) -> bytes:
    # The daemon's: where the job runs alone nobody needs what it imports.
    from gateway.store.spool.parquet import open_writer

    words = dict(file.metadata.metadata or {})
    first = file.read_row_group(0, columns=["lsn"])["lsn"][0].as_py()
    digest = EventsDigest(first)
    sink = pa.BufferOutputStream()
    with open_writer(sink, compression(file.metadata)) as writer:
        for number, mask in enumerate(masks):
            rows = file.read_row_group(number).select(SCHEMA.names).cast(SCHEMA)
            rows = _without(rows, mask)
            digest.add(rows["payload"], rows["received_at"])
            writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        kept = {key: words[key] for key in words if key != _ARROW_KEY}
        kept[DELETED_KEY] = digest.hexdigest().encode()
        if word:
            kept[_AGAIN_KEY] = word.encode()
        writer.add_key_value_metadata(kept)
    return bytes(sink.getvalue().to_pybytes())


def _without(rows: pa.Table, mask: _Flags) -> pa.Table:
    if not mask.any():
        return rows
    gone = pa.array(mask)
    changed: dict[str, Any] = {}
    for name in _EMPTY:
        changed[name] = pc.if_else(gone, "", _plain(rows[name]))
    changed["principal"] = pc.if_else(gone, None, _plain(rows["principal"]))
    flaws = _plain(rows["flaw"])
    was = pc.binary_join_element_wise(DELETED, flaws, ":")
    changed["flaw"] = pc.if_else(gone, pc.coalesce(was, pa.scalar(DELETED)), flaws)
    payloads = rows["payload"].combine_chunks()
    lengths = pc.binary_length(payloads).filter(gone).to_pylist()
    zeros = pa.array([bytes(length) for length in lengths], pa.binary())
    changed["payload"] = pc.replace_with_mask(payloads, gone, zeros)
    attributes = rows["attributes"].to_pylist()
    for row in np.flatnonzero(mask).tolist():
        attributes[row] = None
    changed["attributes"] = pa.array(attributes, SCHEMA.field("attributes").type)
    columns = []
    for field in SCHEMA:
        column = changed.get(field.name, rows[field.name])
        if field.name in changed and pa.types.is_dictionary(field.type):
            column = pc.dictionary_encode(column).cast(field.type)
        columns.append(column)
    return pa.table(columns, schema=SCHEMA)


def _plain(column: pa.ChunkedArray) -> pa.Array:
    found = column.cast(pa.string())
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
