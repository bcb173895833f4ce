"""Searches journal, spool and tables for the events that senders had acknowledged.

A sender knows nothing of lsns.  It puts an id into each event, as `event.id` of the
JSON (ECS), and writes down the ids that were acknowledged.  Here the payloads are
searched for them: the journal first, then the spool, then the tables, so that an
event on its way is met (see `proof`).

An id may be there more than once: a sender that lost its connection before the
acknowledgement came has to send again.  That is told, and is no fault.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gateway.audit.counts import Counts, Ints
from gateway.audit.lake import Problem, Unusable, by_life, reading
from gateway.audit.remote import Place, opened
from gateway.audit.sinks import table_files
from gateway.audit.sites import Site, Spools, distinct, site_of
from gateway.audit.variant import look_up
from gateway.event import Decode
from gateway.store.directories import Directories
from gateway.store.finder import journals_in, scans, spool_files
from gateway.store.journal import segment
from gateway.store.names import parse_file_name
from gateway.store.spool.decoding import Decoder

_BATCH_ROWS = 1 << 14


class _Event(msgspec.Struct):
    event: Any = None
    dotted: Any = msgspec.field(default=None, name="event.id")


_decode = msgspec.json.Decoder(_Event).decode


@dataclass(slots=True)
class Acknowledged:
    """The fate of the events that senders count on."""

    ids: int
    """Different ids that were acknowledged."""
    missing: list[str]
    """Ids that are nowhere, in the order in which they were acknowledged."""
    resent: int
    """Acknowledged ids that are there more than once."""
    copies: int
    """How many events that is too many."""
    unsearched: list[Problem]
    """Files whose payloads are in a form that this version can not search."""


def read_ids(lines: Iterable[str]) -> list[str]:
    """The ids of a file with one on each line; a last line cut short counts."""
    return [text for line in lines if (text := line.strip())]


def event_id(payload: bytes) -> str | None:
    """`event.id` of an event's JSON, nested or with a dot; None if it has none."""
    if b"event" not in payload:
        return None
    try:
        found = _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    inner = found.event.get("id") if isinstance(found.event, dict) else None
    value = found.dotted if inner is None else inner
    return str(value) if isinstance(value, (str, int)) else None


def search(
    place: Site | Directories,
    acknowledged: Iterable[str],
    decoders: Mapping[str, Decode],
    others: Iterable[Site] = (),
) -> Acknowledged:
    """Look for the ids there and in *others*; *decoders* by protocol.  Raises OSError.

    Files that can not be read are passed over; `audit` reports them.
    """
    times = dict.fromkeys(acknowledged, 0)
    sites = distinct([site_of(place), *others])
    search = _Search(sites, decoders, times)
    search.run()
    return Acknowledged(
        len(times),
        [name for name, count in times.items() if not count],
        sum(count > 1 for count in times.values()),
        sum(count - 1 for count in times.values() if count > 1),
        search.unsearched,
    )


@dataclass(slots=True)
class _Search:
    sites: Sequence[Site]
    decoders: Mapping[str, Decode]
    times: dict[str, int]
    unsearched: list[Problem] = field(default_factory=list)
    _met: dict[tuple[str, str], Counts] = field(default_factory=dict)

    def run(self) -> None:
        for site in self.sites:
            for directory in journals_in(site.directories.journal):
                self._journal(directory)
        for site in self.sites:
            places = site.directories
            for folder in (places.spool, *([places.archive] if site.keeps else [])):
                for files in spool_files(folder).values():
                    for file in files:
                        self._file(file.path)
        for bucket in Spools(self.sites).buckets:
            for files in bucket.list().values():
                for file in files:
                    with (
                        contextlib.suppress(FileNotFoundError),
                        bucket.local(file) as there,
                    ):
                        self._file(there.path)
        for site in self.sites:
            for path, _ in table_files(site.directories.lake, site.access):
                self._table(path)

    def _journal(self, directory: Path) -> None:
        decoder = Decoder(self.decoders)
        for path, scan in scans(directory, lambda path, why: None):
            life = segment.incarnation_of(path.name)
            for stored in scan:
                if not stored.batch.count:
                    continue
                rows = decoder.rows(stored)
                lsns = np.arange(stored.lsn, stored.lsn + stored.batch.count)
                unmet = set(self._unmet(directory.name, life, lsns).tolist())
                for row, payload in enumerate(rows.each() if unmet else ()):
                    if row in unmet:
                        self._meet(event_id(payload))

    def _file(self, path: Path) -> None:
        """Look through a file of the spool, whose name says who published it."""
        if (file := parse_file_name(path.name)) is not None:
            with contextlib.suppress(FileNotFoundError):
                self._table(path, file.incarnation)

    def _table(self, path: Place, published_by: str = "") -> None:
        try:
            with reading(path), pq.ParquetFile(opened(path)) as file:
                if _shredded(file.schema_arrow):
                    why = "its column body is shredded (variant.writeShredding)"
                    self.unsearched.append(Problem(str(path), why))
                    return
                wanted = ["node", "incarnation", "lsn", "payload", "body"]
                there = [name for name in wanted if name in file.schema_arrow.names]
                for batch in file.iter_batches(
                    _BATCH_ROWS, columns=there, use_threads=False
                ):
                    self._rows(batch, published_by)
        except (Unusable, FileNotFoundError):
            return

    def _rows(self, batch: pa.RecordBatch, published_by: str) -> None:
        numbers, lsns = np.arange(len(batch)), batch.column("lsn").to_numpy()
        for node, life, rows in by_life(batch):
            unmet = self._unmet(node, life or published_by, lsns[rows])
            for name in _ids(batch.take(numbers[rows][unmet])):
                self._meet(name)

    def _unmet(self, node: str, life: str, lsns: Ints) -> Ints:
        """The rows that no place had so far; from now on they are met.

        Rows that name no incarnation are taken for others than those which do: an id that is
        met twice is only a note.  One that is overlooked would be missing.
        """
        met = self._met.setdefault((node, life), Counts())
        new = np.flatnonzero(met.of(lsns) == 0)
        met.add(lsns[new])
        return new

    def _meet(self, name: str | None) -> None:
        if name is not None and name in self.times:
            self.times[name] += 1


def _shredded(schema: pa.Schema) -> bool:
    if "body" not in schema.names or not pa.types.is_struct(schema.field("body").type):
        return False
    return "typed_value" in {part.name for part in schema.field("body").type}


def _ids(batch: pa.RecordBatch) -> Iterator[str | None]:
    """Ids of the tables' rows: in the payload, the body's text, or the body's VARIANT."""
    nothing: list[bytes | None] = [None] * len(batch)
    columns = {"payload": nothing, "value": nothing, "metadata": nothing}
    columns["text"] = nothing
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == "payload":
            columns[name] = column.to_pylist()
        elif name == "body" and not pa.types.is_struct(column.type):
            columns["text"] = column.cast(pa.binary()).to_pylist()
        elif name == "body":
            for part, values in zip(column.type, column.flatten(), strict=True):
                columns[part.name] = values.to_pylist()
    for payload, text, value, metadata in zip(
        *(columns[name] for name in ("payload", "text", "value", "metadata")),
        strict=True,
    ):
        if payload is not None or text is not None:
            yield event_id(payload if text is None else text)
        elif value is not None and metadata is not None:
            yield _in_variant(metadata, value)
        else:
            yield None


def _in_variant(metadata: bytes, value: bytes) -> str | None:
    try:
        return look_up(metadata, value, ("event", "id")) or look_up(
            metadata, value, ("event.id",)
        )
    except (IndexError, UnicodeDecodeError):
        return None
