"""Encodes events as the elements that one query asks for: JSON lines or Arrow streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from gateway.event import Batch, Rows, Stored
from gateway.feeds import columns, lines
from gateway.feeds.query import JSON, Query
from gateway.store.spool.columns import Columns

Encoded: TypeAlias = tuple[list[bytes], list[int]]
"""Elements, and the lsn of the last event of each."""


def part(stored: Stored, rows: Rows, first: int, end: int) -> tuple[Stored, Rows]:
    """A batch's events from lsn *first* to before *end*."""
    begin = max(first - stored.lsn, 0)
    stop = min(end - stored.lsn, rows.count)
    if begin == 0 and stop == rows.count:
        return stored, rows

    def within(odd: Mapping[int, str]) -> dict[int, str]:
        return {row - begin: odd[row] for row in odd if begin <= row < stop}

    skip = rows.ends[begin - 1] if len(rows.ends) and begin else 0
    ends = [each - skip for each in rows.ends[begin:stop]]
    some = replace(
        rows,
        payloads=rows.payloads[begin:stop],
        block=rows.block[skip : skip + ends[-1]] if ends else b"",
        ends=ends,
        seqs=None if rows.seqs is None else rows.seqs[begin:stop],
        flaws=within(rows.flaws),
        content_types=within(rows.content_types),
        channels=within(rows.channels),
        kinds=within(rows.kinds),
    )
    count = stop - begin
    batch = stored.batch
    cut = Batch(batch.origin, batch.received_at, count, b"", batch.payload_bytes)
    return Stored(cut, stored.lsn + begin), some


def of_batches(
    node: str,
    batches: Sequence[tuple[Stored, Rows]],
    query: Query,
    given_by: Callable[[int], str],
) -> Encoded:
    """Elements of the wanted events in batches; *given_by* says which incarnation gave an lsn."""
    wanted = [pair for pair in batches if query.admits(pair[0].batch.origin)]
    if query.format != JSON:
        return _as_columns(node, wanted, query, given_by)
    found: list[bytes] = []
    lsns: list[int] = []
    for stored, rows in wanted:
        chosen = query.choose(rows)
        some, theirs = lines.of_rows(node, stored, rows, chosen, given_by(stored.lsn))
        found += some
        lsns += theirs
    return found, lsns


def _as_columns(
    node: str,
    batches: Sequence[tuple[Stored, Rows]],
    query: Query,
    given_by: Callable[[int], str],
) -> Encoded:
    collected = Columns(node)
    for stored, rows in batches:
        collected.add(stored, rows)
    if not collected.rows:
        return [], []
    # All are of one segment, or of this run.
    found = columns.of_incarnation(collected.batch(), given_by(batches[0][0].lsn))
    return of_events(found, query)


def of_events(events: pa.RecordBatch, query: Query) -> Encoded:
    """Elements of the wanted events in a table in order of lsn; none that was deleted since."""
    events = columns.matching(columns.kept(events), query.conditions)
    return (lines.of_columns if query.format == JSON else columns.streams)(events)


def gap(query: Query, first: int, last: int) -> bytes:
    """The element for events that a subscriber was too slow for."""
    make = lines.gap if query.format == JSON else columns.gap
    return make(first, last)
