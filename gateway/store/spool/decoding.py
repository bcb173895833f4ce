"""Decodes stored batches into rows, and makes flawed rows of those that can not be.

What was acknowledged is published, and one bad batch stops no other.  A batch is bad if its
protocol's decoder raises or is missing, or gives rows that are not the batch's.  It becomes
as many rows as it has events, all of them with the flaw `undecodable`: the first has the
batch's body as it is, the others are empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, islice
from types import MappingProxyType

import numpy as np

from gateway.event import (
    Batch,
    Decode,
    DecodeTogether,
    Rows,
    Stored,
    Together,
)
from gateway.plugins import RAISED
from gateway.store.journal.segment import UNKNOWN
from gateway.store.lsns import Lsns
from gateway.store.spool.columns import Columns, numbers

UNDECODABLE = "undecodable"

_RUN, _RUN_BYTES, _RUN_EVENTS = 512, 4096, 16
"""The most batches that are decoded together, and the most bytes and events of each."""
_LEAST_BATCHES = 16
"""The fewest batches that are decoded together: fewer would cost more than it spares."""


@dataclass(slots=True)
class Failure:
    """Batches of one protocol that could not be decoded."""

    protocol: str
    lsn: int
    """The lsn of the first event of the first of them."""
    why: str
    """The fault of that one."""
    batches: int = 0
    events: int = 0

    def __str__(self) -> str:
        """A sentence for the log."""
        return (
            f"{self.events} events of protocol {self.protocol!r} can not be decoded; the "
            f"bytes of their {self.batches} batches are kept, flawed undecodable.  At lsn "
            f"{self.lsn}: {self.why}"
        )


class Decoder:
    """Decodes the batches of all protocols, and remembers which could not be."""

    def __init__(
        self, decoders: Mapping[str, Decode], *, careful: bool = False
    ) -> None:
        """*decoders* by protocol.

        *careful*: make columns of each batch alone, to find the one whose rows can not
        be columns.  It costs as much again.
        """
        self.failures: dict[str, Failure] = {}
        """Failures by protocol."""
        self._decoders = decoders
        self._runs: dict[str, Together] = {
            protocol: decode.together
            for protocol, decode in decoders.items()
            if isinstance(decode, DecodeTogether)
        }
        self._careful = careful

    def rows(self, stored: Stored) -> Rows:
        """The rows of a batch, as many as it has events.  Raises MemoryError, nothing else."""
        batch = stored.batch
        protocol = batch.origin.protocol
        decode = self._decoders.get(protocol)
        if decode is None:
            self._failed(stored, f"no decoder for protocol {protocol!r} is installed")
        else:
            try:
                rows = decode(batch.body)
                _check(rows, batch.count)
                if self._careful:
                    _make_columns(stored, rows)
            except MemoryError:
                raise  # it may do with more memory
            except RAISED as why:  # whatever it is, the others must be published
                self._failed(stored, f"{type(why).__name__}: {why}")
            else:
                return rows
        payloads = [bytes(batch.body), *[b""] * (batch.count - 1)]
        return _flawed(payloads, UNDECODABLE)

    def decoded(
        self, batches: Iterable[Stored]
    ) -> Iterator[tuple[Sequence[Stored], Rows]]:
        """Batches, but for those without events, and their rows: of many at once, where
        their protocol can.
        """
        for together, alike in groupby(batches, self._together):
            if together is None:
                for stored in alike:
                    if stored.batch.count:
                        yield (stored,), self.rows(stored)
            else:
                while run := list(islice(alike, _RUN)):
                    yield from self._run(run, together)

    def _together(self, stored: Stored) -> Together | None:
        """The decoder of it together with others, if there is one."""
        batch = stored.batch
        if not 0 < batch.count <= _RUN_EVENTS or len(batch.body) > _RUN_BYTES:
            return None
        if self._careful:
            return None
        return self._runs.get(batch.origin.protocol)

    def _run(
        self, run: list[Stored], together: Together
    ) -> Iterator[tuple[Sequence[Stored], Rows]]:
        while len(run) >= _LEAST_BATCHES:
            counts = [stored.batch.count for stored in run]
            try:
                rows = together([stored.batch.body for stored in run], counts)
                count = [0, *accumulate(counts)].index(rows.count)
                _check(rows, rows.count)
            except MemoryError:
                raise
            except RAISED:
                break  # it is told with the one that it is about
            if count:
                yield run[:count], rows
            # Where few can be, the next ones may be like it.
            end = count + (1 if count >= _LEAST_BATCHES else _LEAST_BATCHES)
            for stored in run[count:end]:
                yield (stored,), self.rows(stored)
            run = run[end:]
        for stored in run:
            yield (stored,), self.rows(stored)

    def _failed(self, stored: Stored, why: str) -> None:
        protocol = stored.batch.origin.protocol
        failure = self.failures.get(protocol)
        if failure is None:
            failure = self.failures[protocol] = Failure(protocol, stored.lsn, why)
        failure.batches += 1
        failure.events += stored.batch.count


def _check(rows: Rows, count: int) -> None:
    """Raise ValueError if these can not be the rows of a batch of *count* events."""
    if rows.count != count:
        raise ValueError(f"{rows.count} events decoded, not {count}")
    if len(rows.ends):
        _check_ends(rows)
    if rows.seqs is not None and len(rows.seqs) != count:
        raise ValueError(f"{len(rows.seqs)} numbers for {count} events")
    if not (isinstance(rows.kind, str) and isinstance(rows.content_type, str)):
        raise TypeError("kind or content type is no text")
    if rows.flaws or rows.content_types or rows.channels or rows.kinds:
        for odd in (rows.flaws, rows.content_types, rows.channels, rows.kinds):
            _check_odd(odd, count)


def _check_ends(rows: Rows) -> None:
    """The same of payloads in one piece."""
    if (
        not isinstance(rows.ends, range)
        and np.asarray(rows.ends).dtype.kind not in "iu"
    ):
        raise TypeError("an end that is no whole number")
    ends = numbers(rows.ends)
    if ends[0] < 0 or ends[-1] != len(rows.block) or (np.diff(ends) < 0).any():
        raise ValueError("payloads that end outside of their block")


def _check_odd(odd: Mapping[int, str], count: int) -> None:
    """The same of rows that differ from the others."""
    if odd and (min(odd) < 0 or max(odd) >= count):
        raise ValueError(f"a row beyond the {count} that there are")
    if not _are(odd.values(), str):
        raise TypeError("a name that is no text")


def _make_columns(stored: Stored, rows: Rows) -> None:
    """Raise whatever says why these rows can not be columns."""
    if not _are(rows.payloads, bytes, bytearray, memoryview):
        raise TypeError("a payload that is not bytes")
    columns = Columns("")
    columns.add(stored, rows)
    columns.batch()


def _are(objects: Iterable[object], *types: type) -> bool:
    return all(issubclass(each, types) for each in set(map(type, objects)))


def _flawed(payloads: list[bytes], flaw: str) -> Rows:
    return Rows(
        payloads,
        content_type="application/octet-stream",
        flaws=dict.fromkeys(range(len(payloads)), flaw),
    )


def whole(
    batches: Iterable[Stored],
    first: int,
    last: int,
    missing: Lsns,
    copies: Mapping[int, Batch] = MappingProxyType({}),
) -> Iterator[Stored]:
    """Batches with lsns from *first* to *last*; those that neither *batches* have nor *copies*
    go into *missing*.

    *copies* are batches that are still in memory, by lsn.
    """
    expected = first
    for stored in batches:
        if stored.lsn < first:
            continue
        if stored.lsn > expected:
            yield from _copied(expected, stored.lsn, missing, copies)
        count = stored.batch.count
        # One without events has the lsn of the next batch, whose copy it must not take.
        wanted = count and stored.batch.origin is UNKNOWN
        copy = copies.get(stored.lsn) if wanted else None
        yield stored if copy is None else Stored(copy, stored.lsn)
        expected = stored.lsn + count
    yield from _copied(expected, last + 1, missing, copies)


def _copied(
    first: int, end: int, missing: Lsns, copies: Mapping[int, Batch]
) -> Iterator[Stored]:
    """The batches of *copies*, which tell what is *missing* between."""
    for lsn in sorted(each for each in copies if first <= each < end):
        copy = copies[lsn]
        if lsn + copy.count <= end:
            if first < lsn:
                missing.add(first, lsn - 1)
            yield Stored(copy, lsn)
            first = lsn + copy.count
    if first < end:
        missing.add(first, end - 1)
