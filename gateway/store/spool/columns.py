"""Decoded batches to Arrow: the only place where events become columns of `SCHEMA`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from gateway.event import SCHEMA, Origin, Rows, Stored

GROUP_ROWS = 1 << 15
GROUP_BYTES = 24 * 2**20

# Small payloads that lie in one piece (`Rows.block`) cost no object each, and four
# times less to write in groups of this size.
_BLOCK_GROUP_ROWS = 1 << 17
_MANY_ROWS = 64  # an array of its own costs as much as so many objects, about

# pyarrow holds the interpreter's lock while it reads a list, 0.1 µs an item: the reactor,
# which acknowledges, waits for that long.
_AT_ONCE = 2048

_PLAIN_MAP = SCHEMA.field("attributes").type

_NAME = pa.dictionary(pa.int32(), pa.string())
ENCODED = pa.schema(
    pa.field(each.name, pa.map_(_NAME, _NAME)) if each.type == _PLAIN_MAP else each
    for each in SCHEMA
)
"""`SCHEMA` with dictionaries in its maps, too: half the work for who encodes them."""

_OF_ORIGIN = ("protocol", "listener", "session", "peer", "principal")


class _Names:
    """A dictionary column: one code per batch (or per row), each name once."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        """One per batch."""
        self.odd: dict[int, int] = {}
        """The codes of the rows that have another value than their batch."""
        self.nulls = False
        self._numbers: dict[str | None, int] = {}

    def number(self, name: str | None) -> int:
        """The code of *name*; -1 is null."""
        if name is None:
            self.nulls = True
            return -1
        return self._numbers.setdefault(name, len(self._numbers))

    def column(self, counts: np.ndarray[Any, Any]) -> pa.Array:
        """The column, where the batches have so many rows."""
        codes = np.asarray(self.codes, np.int32)
        if (codes == codes[0]).all():  # as most have, and that is far quicker
            codes = np.full(counts.sum(), codes[0], np.int32)
        else:
            codes = np.repeat(codes, counts)
        return self.array(_scatter(codes, self.odd))

    def array(self, codes: np.ndarray[Any, Any]) -> pa.Array:
        if not self._numbers:
            return pa.nulls(len(codes), _NAME)
        names = pa.array(list(self._numbers), pa.string())
        mask = codes < 0 if self.nulls else None
        indices = pa.array(codes, pa.int32(), mask=mask)
        return pa.DictionaryArray.from_arrays(indices, names, safe=False)


@dataclass
class Columns:
    """Collects decoded batches until they are worth a row group.

    23 attributes: one for each column of the file, and what its size is told by.
    """

    node: str
    gathered: Callable[[pa.Array], object] = lambda _: None
    """Called with all payloads in their order, some at a time, as soon as they are gathered: most
    of them are in the processor's cache then."""
    rows: int = 0
    payload_bytes: int = 0
    _objects: int = 0
    flaws: Counter[str] = field(default_factory=Counter)
    _lsns: list[int] = field(default_factory=list)
    _counts: list[int] = field(default_factory=list)
    _times: list[int] = field(default_factory=list)
    _payloads: list[bytes] = field(default_factory=list)
    _payload_arrays: list[pa.Array] = field(default_factory=list)
    _unnumbered: list[bool] = field(default_factory=list)
    """Batches without seqs."""
    _seqs: list[int] = field(default_factory=list)
    _seq_arrays: list[np.ndarray[Any, Any]] = field(default_factory=list)
    _maps: dict[tuple[tuple[str, str], ...], int] = field(default_factory=dict)
    """Attributes, each with its code."""
    _map_codes: list[int] = field(default_factory=list)
    """The code of each batch's attributes."""
    _own_maps: dict[Origin, int] = field(default_factory=dict)
    """The codes of origins to whose attributes a batch adds none."""
    _origins: dict[Origin, int] = field(default_factory=dict)
    """Each with its code."""
    _origin_codes: list[int] = field(default_factory=list)
    """One per batch."""
    _channels: _Names = field(default_factory=_Names)
    _kinds: _Names = field(default_factory=_Names)
    _types: _Names = field(default_factory=_Names)
    _flaws: _Names = field(default_factory=_Names)

    def add(self, stored: Stored, rows: Rows) -> None:
        """Append a batch; *rows* holds exactly `stored.batch.count` events."""
        self.add_all((stored,), rows)

    def add_all(self, run: Sequence[Stored], rows: Rows) -> None:
        """Append batches; *rows* holds exactly their events."""
        batches = [stored.batch for stored in run]
        count = rows.count
        self._lsns += [stored.lsn for stored in run]
        self._counts += [batch.count for batch in batches]
        self._times += [batch.received_at for batch in batches]
        if len(rows.ends) and count >= _MANY_ROWS:
            self._gather_payloads()
            self._add_payloads(_sliced(rows.block, rows.ends))
        else:
            self._objects += count
            self._payloads += rows.each()
            if len(self._payloads) >= _AT_ONCE:
                self._gather_payloads()
        self._add_seqs(rows.seqs, count, len(run))
        self._add_origins([batch.origin for batch in batches], rows.attributes)
        for names, name in (
            (self._channels, rows.channel),
            (self._kinds, rows.kind),
            (self._types, rows.content_type),
        ):
            names.codes += [names.number(name)] * len(run)
        if rows.flaws or rows.content_types or rows.channels or rows.kinds:
            self._add_odd(rows)
        self.rows += count
        self.payload_bytes += sum([batch.payload_bytes for batch in batches])

    def _add_origins(self, each: Sequence[Origin], more: Mapping[str, str]) -> None:
        """Add the origins of batches, with what their rows add to the attributes."""
        origins, own = self._origins, self._own_maps
        self._origin_codes += [
            origins.setdefault(origin, len(origins)) for origin in each
        ]
        if more:
            self._map_codes += [
                self._map_code({**origin.attributes, **more}) for origin in each
            ]
            return
        for origin in dict.fromkeys(each):
            if origin not in own:
                own[origin] = self._map_code(origin.attributes)
        self._map_codes += [own[origin] for origin in each]

    def _map_code(self, attributes: Mapping[str, str]) -> int:
        return self._maps.setdefault(tuple(attributes.items()), len(self._maps))

    def _add_odd(self, rows: Rows) -> None:
        """Add the values of rows that differ from their batch."""
        first = self.rows
        for names, odd in (
            (self._types, rows.content_types),
            (self._channels, rows.channels),
            (self._kinds, rows.kinds),
            (self._flaws, rows.flaws),
        ):
            for row, name in odd.items():
                names.odd[first + row] = names.number(name)
        self.flaws.update(rows.flaws.values())

    def _add_seqs(self, seqs: Sequence[int] | None, count: int, batches: int) -> None:
        self._unnumbered += [seqs is None] * batches
        if count >= _MANY_ROWS:
            self._gather_seqs()
            self._seq_arrays.append(
                np.zeros(count, np.int64) if seqs is None else numbers(seqs)
            )
        elif seqs is None:
            self._seqs += [0] * count
        else:
            self._seqs += seqs

    @property
    def enough(self) -> bool:
        """Whether to write a row group now."""
        return (
            self._objects >= GROUP_ROWS
            or self.rows >= _BLOCK_GROUP_ROWS
            or self.payload_bytes >= GROUP_BYTES
        )

    def batch(self) -> pa.RecordBatch:
        """The events so far, in `SCHEMA`; once: what they were made of is let go."""
        columns = self._columns(_PLAIN_MAP)
        columns["payload"] = pa.concat_arrays(self._payload_arrays)
        self._payload_arrays = []
        return pa.record_batch([columns[f.name] for f in SCHEMA], schema=SCHEMA)

    def table(self) -> pa.Table:
        """The same in `ENCODED`, payloads as they lie: none of them is copied."""
        columns = self._columns(ENCODED.field("attributes").type)
        columns["payload"] = pa.chunked_array(self._payload_arrays, pa.binary())
        self._payload_arrays = []
        return pa.table([columns[f.name] for f in ENCODED], schema=ENCODED)

    def _columns(self, maps: pa.DataType) -> dict[str, pa.Array]:
        """All columns but the payloads, whose arrays are complete then."""
        counts = np.array(self._counts, np.int64)
        first = np.array(self._lsns) - (np.cumsum(counts) - counts)
        columns: dict[str, pa.Array] = {
            "channel": self._channels.column(counts),
            "kind": self._kinds.column(counts),
            "content_type": self._types.column(counts),
        }
        origins = np.repeat(np.array(self._origin_codes), counts)
        for column in _OF_ORIGIN:
            names = _Names()
            codes = [names.number(getattr(each, column)) for each in self._origins]
            columns[column] = names.array(np.array(codes, np.int32)[origins])
        columns["node"] = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(self.rows, np.int32)), pa.array([self.node])
        )
        columns["lsn"] = pa.array(np.repeat(first, counts) + np.arange(self.rows))
        columns["received_at"] = pa.array(
            np.repeat(np.array(self._times, np.int64), counts)
        ).cast(SCHEMA.field("received_at").type)
        none = np.full(self.rows, self._flaws.number(None), np.int32)
        columns["flaw"] = self._flaws.array(_scatter(none, self._flaws.odd))
        columns["seq"] = self._seq(counts)
        columns["attributes"] = self._attributes(counts, maps)
        self._gather_payloads()
        return columns

    def _gather_payloads(self) -> None:
        payloads, self._payloads = self._payloads, []
        for at in range(0, len(payloads), _AT_ONCE):  # one batch alone may be many
            some = payloads[at : at + _AT_ONCE]
            self._add_payloads(pa.array(some, pa.binary()))

    def _add_payloads(self, payloads: pa.Array) -> None:
        self._payload_arrays.append(payloads)
        self.gathered(payloads)

    def _gather_seqs(self) -> None:
        if self._seqs:
            self._seq_arrays.append(np.array(self._seqs, np.int64))
            self._seqs = []

    def _seq(self, counts: np.ndarray[Any, Any]) -> pa.Array:
        self._gather_seqs()
        null = np.array(self._unnumbered)
        mask = np.repeat(null, counts) if null.any() else None
        return pa.array(np.concatenate(self._seq_arrays), pa.int64(), mask=mask)

    def _attributes(self, counts: np.ndarray[Any, Any], kind: pa.DataType) -> pa.Array:
        known, codes = self._maps, self._map_codes
        if not any(known):
            return _no_maps(self.rows, kind)
        if kind != _PLAIN_MAP and len(set(map(len, known))) == 1:
            return _maps_of_one_length(list(known), codes, counts)
        distinct = pa.array([list(pairs) or None for pairs in known], _PLAIN_MAP)
        if kind != _PLAIN_MAP:  # pyarrow casts no maps
            names = (
                each.dictionary_encode() for each in (distinct.keys, distinct.items)
            )
            gone = pa.array([not pairs for pairs in known])
            distinct = pa.MapArray.from_arrays(distinct.offsets, *names, mask=gone)
        return distinct.take(pa.array(np.repeat(np.array(codes, np.int64), counts)))


def _no_maps(count: int, kind: pa.DataType) -> pa.Array:
    """Nulls that have no entries; `pa.nulls` makes null ones, whose slices have all."""
    entries = pa.array([], pa.struct([kind.key_field, kind.item_field]))
    valid, offsets = (
        pa.py_buffer(bytes(size)) for size in (-(-count // 8), 4 * count + 4)
    )
    buffers = [valid, offsets]
    return pa.Array.from_buffers(kind, count, buffers, count, children=[entries])


def _maps_of_one_length(
    known: Sequence[tuple[tuple[str, str], ...]],
    codes: list[int],
    counts: np.ndarray[Any, Any],
) -> pa.Array:
    """The maps of rows that have equally many entries; `take` is three times as slow."""
    sides = _Names(), _Names()
    table = np.array(
        [
            [[side.number(name) for side, name in zip(sides, pair, strict=True)]
             for pair in pairs]
            for pairs in known
        ],
        np.int32,
    )  # fmt: skip
    length = len(known[0])
    offsets = np.arange(0, length * (counts.sum() + 1), length, dtype=np.int32)
    columns = (
        side.array(np.repeat(table[codes, :, at], counts, axis=0).ravel())
        for at, side in enumerate(sides)
    )
    return pa.MapArray.from_arrays(pa.array(offsets), *columns)


def _sliced(block: bytes, ends: Sequence[int]) -> pa.Array:
    """The payloads that end there, without a copy or an object for each."""
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = numbers(ends)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    return pa.Array.from_buffers(pa.binary(), len(ends), buffers)


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
