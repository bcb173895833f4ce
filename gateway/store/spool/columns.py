"""Decoded batches to Arrow: the only place where events become columns of `SCHEMA`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from gateway.event import SCHEMA, Origin, Rows, Stored

__all__ = ["GROUP_BYTES", "GROUP_ROWS", "Columns", "codes", "numbers"]

GROUP_ROWS = 1 << 15
GROUP_BYTES = 24 * 2**20

# Small payloads that lie in one piece (`Rows.block`) cost no object each, and four
# times less to write in groups of this size.
_BLOCK_GROUP_ROWS = 1 << 17
_MANY = 64  # an array of its own costs as much as so many objects, about

# pyarrow keeps the interpreter to itself while it reads a list: 0.1 µs an item, and
# whoever acknowledges waits for that long.
_AT_ONCE = 2048

_OF_ORIGIN = ("protocol", "listener", "session", "peer", "principal")
_OF_BATCH = ("channel", "kind")


class _Names:
    """A dictionary column: one code per batch (or per row), each name once."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.nulls = False
        self._numbers: dict[str | None, int] = {}

    def number(self, name: str | None) -> int:
        """The code of *name*; -1 is null."""
        if name is None:
            self.nulls = True
            return -1
        return self._numbers.setdefault(name, len(self._numbers))

    def array(self, codes: np.ndarray[Any, Any]) -> pa.Array:
        """The column for these codes."""
        names = pa.array(list(self._numbers), pa.string())
        mask = codes < 0 if self.nulls else None
        indices = pa.array(codes, pa.int32(), mask=mask)
        return pa.DictionaryArray.from_arrays(indices, names, safe=False)


@dataclass
class Columns:
    """Collects decoded batches until they are worth a row group."""

    node: str
    rows: int = 0
    payload_bytes: int = 0
    _objects: int = 0
    flaws: Counter[str] = field(default_factory=Counter)
    _lsns: list[int] = field(default_factory=list)
    _counts: list[int] = field(default_factory=list)
    _times: list[int] = field(default_factory=list)
    _payloads: list[bytes] = field(default_factory=list)
    _payload_arrays: list[pa.Array] = field(default_factory=list)
    _seqs: list[np.ndarray[Any, Any] | None] = field(default_factory=list)
    _attributes: list[tuple[tuple[str, str], ...]] = field(default_factory=list)
    _origins: dict[Origin, int] = field(default_factory=dict)
    """Each with its code."""
    _origin_codes: list[int] = field(default_factory=list)
    """One per batch."""
    _of_batch: dict[str, _Names] = field(
        default_factory=lambda: {name: _Names() for name in _OF_BATCH}
    )
    _types: _Names = field(default_factory=_Names)
    _odd_types: dict[int, int] = field(default_factory=dict)
    _odd: dict[str, dict[int, int]] = field(default_factory=dict)
    """Rows that differ from their batch in a column that is mostly one per batch."""
    _flaws: _Names = field(default_factory=_Names)
    _flaw_codes: dict[int, int] = field(default_factory=dict)

    def add(self, stored: Stored, rows: Rows) -> None:
        """Append a batch; *rows* holds exactly `stored.batch.count` events."""
        origin = stored.batch.origin
        count = rows.count
        self._lsns.append(stored.lsn)
        self._counts.append(count)
        self._times.append(stored.batch.received_at)
        if rows.size and count >= _MANY:
            self._gather_payloads()
            self._payload_arrays.append(_sliced(rows.block, rows.size))
        else:
            self._objects += count
            self._payloads += rows.each() if rows.size else rows.payloads
            if len(self._payloads) >= _AT_ONCE:
                self._gather_payloads()
        self._seqs.append(None if rows.seqs is None else numbers(rows.seqs))
        self._attributes.append(tuple({**origin.attributes, **rows.attributes}.items()))
        origins = self._origins
        self._origin_codes.append(origins.setdefault(origin, len(origins)))
        names = self._of_batch
        names["channel"].codes.append(names["channel"].number(rows.channel))
        names["kind"].codes.append(names["kind"].number(rows.kind))
        self._types.codes.append(self._types.number(rows.content_type))
        for row, name in rows.content_types.items():
            self._odd_types[self.rows + row] = self._types.number(name)
        for column, odd in (("channel", rows.channels), ("kind", rows.kinds)):
            for row, name in odd.items():
                differ = self._odd.setdefault(column, {})
                differ[self.rows + row] = names[column].number(name)
        for row, flaw in rows.flaws.items():
            self._flaw_codes[self.rows + row] = self._flaws.number(flaw)
        if rows.flaws:
            self.flaws.update(rows.flaws.values())
        self.rows += count
        self.payload_bytes += stored.batch.payload_bytes

    @property
    def enough(self) -> bool:
        """Whether to write a row group now."""
        return (
            self._objects >= GROUP_ROWS
            or self.rows >= _BLOCK_GROUP_ROWS
            or self.payload_bytes >= GROUP_BYTES
        )

    def batch(self) -> pa.RecordBatch:
        """The events so far, in `SCHEMA`."""
        counts = np.array(self._counts, np.int64)
        first = np.cumsum(counts) - counts
        within = np.arange(self.rows) - np.repeat(first, counts)
        columns: dict[str, pa.Array] = {
            column: names.array(
                _scatter(
                    np.repeat(np.array(names.codes, np.int32), counts),
                    self._odd.get(column, {}),
                )
            )
            for column, names in self._of_batch.items()
        }
        origins = np.repeat(np.array(self._origin_codes, np.int32), counts)
        for column in _OF_ORIGIN:
            names = _Names()
            codes = [names.number(getattr(each, column)) for each in self._origins]
            columns[column] = names.array(np.array(codes, np.int32)[origins])
        columns["node"] = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(self.rows, np.int32)), pa.array([self.node])
        )
        columns["lsn"] = pa.array(np.repeat(np.array(self._lsns), counts) + within)
        columns["received_at"] = pa.array(
            np.repeat(np.array(self._times, np.int64), counts)
        ).cast(SCHEMA.field("received_at").type)
        columns["content_type"] = self._types.array(
            _scatter(
                np.repeat(np.array(self._types.codes, np.int32), counts),
                self._odd_types,
            )
        )
        columns["flaw"] = self._flaws.array(
            _scatter(
                np.full(self.rows, self._flaws.number(None), np.int32), self._flaw_codes
            )
        )
        self._gather_payloads()
        columns["payload"] = pa.concat_arrays(self._payload_arrays)
        columns["seq"] = self._seq(counts)
        columns["attributes"] = self._maps(counts)
        return pa.record_batch([columns[f.name] for f in SCHEMA], schema=SCHEMA)

    def _gather_payloads(self) -> None:
        payloads, self._payloads = self._payloads, []
        for at in range(0, len(payloads), _AT_ONCE):  # one batch alone may be many
            some = payloads[at : at + _AT_ONCE]
            self._payload_arrays.append(pa.array(some, pa.binary()))

    def _seq(self, counts: np.ndarray[Any, Any]) -> pa.Array:
        null = np.array([seqs is None for seqs in self._seqs])
        values = [
            np.zeros(count, np.int64) if seqs is None else seqs
            for seqs, count in zip(self._seqs, counts, strict=True)
        ]
        mask = np.repeat(null, counts) if null.any() else None
        return pa.array(np.concatenate(values), pa.int64(), mask=mask)

    def _maps(self, counts: np.ndarray[Any, Any]) -> pa.Array:
        known: dict[tuple[tuple[str, str], ...], int] = {}
        codes = [known.setdefault(pairs, len(known)) for pairs in self._attributes]
        kind = SCHEMA.field("attributes").type
        if not any(known):
            return pa.nulls(self.rows, kind)
        distinct = pa.array([list(pairs) or None for pairs in known], kind)
        return distinct.take(pa.array(np.repeat(np.array(codes, np.int64), counts)))


def _sliced(block: bytes, size: int) -> pa.Array:
    """One payload for each *size* bytes, without a copy or an object for each."""
    ends = np.arange(0, len(block) + 1, size, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(block)]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def numbers(seqs: Sequence[int]) -> np.ndarray[Any, Any]:
    """Numbers as an array of int64."""
    if isinstance(seqs, range):  # which numpy would count one by one
        return np.arange(seqs.start, seqs.stop, seqs.step, dtype=np.int64)
    return np.asarray(seqs, np.int64)


def _scatter(
    codes: np.ndarray[Any, Any], odd: Mapping[int, int]
) -> np.ndarray[Any, Any]:
    if odd:
        codes[list(odd)] = list(odd.values())
    return codes


def codes(column: pa.ChunkedArray) -> tuple[Any, list[str | None]]:
    """A name column as numbers, -1 for none, and the names by number."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    codes = array.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes, array.dictionary.to_pylist()
