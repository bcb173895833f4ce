"""Events that their sender sent twice, told by a fingerprint of where it read them.

A shipper that lost its connection before the acknowledgement reads the same lines again
and sends them again; they get new lsns.  But such an event says where it is from: the agent,
the file, the offset in it.  The column `place` holds a hash of that, the fingerprint.  A row
whose fingerprint was in the tables within the horizon goes to quarantine, flawed `resent`.
So every lsn is still in a table once.

The tables themselves are the memory: a start reads the fingerprints of the newest files.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gateway.spark.commit.ledger import Ranges
from gateway.spark.later.deleted_ranges import by_life
from gateway.store.names import Life
from gateway.store.readers.lake import tables_of

_Hashes = np.ndarray[Any, np.dtype[np.int64]]

#: Fingerprints kept in memory, 8 bytes each; the oldest are forgotten first.
MOST = 16_000_000

_ROWS = 1 << 17

#: Parts of the horizon, and of `MOST`.  What came within one is kept, and forgotten, as
#: one: a batch's rows are looked for in each.
_PARTS = 64


class Fingerprints:
    """The fingerprints of a lake's newest events; the sink's thread uses it."""

    def __init__(
        self, lake: Path, horizon: float, clock: Callable[[], float] = time.time
    ) -> None:
        """*horizon* is how many seconds back a fingerprint is remembered."""
        self._lake = lake
        self._horizon = horizon
        self._clock = clock
        self._part = horizon / _PARTS
        self._known: deque[tuple[float, _Hashes]] | None = None
        self._new: _Hashes = np.empty(0, np.int64)

    def resent(self, files: Iterable[Path]) -> Ranges:
        """The events of a batch's files that came before; new ones are not remembered yet."""
        if self._known is None:
            self._known = self._load()
        self._forget()
        again = Ranges()
        batch: list[_Hashes] = [np.empty(0, np.int64)]
        for path in files:
            for life, lsns, hashes in _fingerprints(path):
                # Of doubles within the batch the first one stays.
                order = np.argsort(hashes, kind="stable")
                ranked = hashes[order]
                inside = np.zeros(len(hashes), bool)
                inside[order[1:]] = ranked[1:] == ranked[:-1]
                for known in [*(one for _, one in self._known), *batch]:
                    inside |= _among(hashes, known)
                for lsn in lsns[inside].tolist():
                    again.add(life, lsn, lsn)
                batch.append(np.unique(hashes))
        self._new = np.unique(np.concatenate(batch))
        return again

    def committed(self) -> None:
        """The batch that was asked about last is in the tables."""
        if self._known is not None and len(self._new):
            self._remember(self._known, self._clock(), self._new)
        self._new = np.empty(0, np.int64)

    def _remember(
        self, known: deque[tuple[float, _Hashes]], at: float, new: _Hashes
    ) -> None:
        """Add what came *at* that time, later than all before."""
        if known:
            then, last = known[-1]
            few = len(last) + len(new) <= MOST // _PARTS
            if few and at // self._part == then // self._part:
                known.pop()
                new = np.union1d(last, new)
        known.append((at, new))

    def _forget(self) -> None:
        assert self._known is not None
        oldest = self._clock() - self._horizon
        total = sum(len(hashes) for _, hashes in self._known)
        while self._known and (self._known[0][0] < oldest or total > MOST):
            total -= len(self._known.popleft()[1])

    def _load(self) -> deque[tuple[float, _Hashes]]:
        while True:
            try:
                return self._newest()
            except FileNotFoundError:
                # A day was compacted meanwhile: its rows are in another file.
                continue

    def _newest(self) -> deque[tuple[float, _Hashes]]:
        """Fingerprints of the newest files, as many as are kept."""
        oldest = self._clock() - self._horizon
        folders = [self._lake / table for table in tables_of(self._lake).fine]
        paths = (path for one in folders for path in one.glob("*/*/*.parquet"))
        times = [(path.stat().st_mtime, path) for path in paths]
        found: list[tuple[float, _Hashes]] = []
        total = 0
        for at, path in sorted(times, reverse=True):
            if at < oldest or total > MOST:
                break
            if path.name[0] not in "._":
                for _, _, hashes in _fingerprints(path):
                    found.append((at, hashes))
                    total += len(hashes)
        known: deque[tuple[float, _Hashes]] = deque()
        for at, hashes in reversed(found):
            self._remember(known, at, np.unique(hashes))
        return known


def _among(hashes: _Hashes, known: _Hashes) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A mask of the hashes that are in *known*, which is sorted."""
    if not len(known):
        return np.zeros(len(hashes), bool)
    at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return np.asarray(known[at] == hashes)


def _fingerprints(path: Path) -> Iterable[tuple[Life, _Hashes, _Hashes]]:
    """Incarnations, lsns and hashes of the rows that have a fingerprint."""
    with pq.ParquetFile(path) as file:
        columns = ["node", "incarnation", "lsn", "place"]
        columns = [name for name in columns if name in file.schema_arrow.names]
        if "place" not in columns:
            return
        for batch in file.iter_batches(_ROWS, columns=columns, use_threads=False):
            rows = pa.table(batch.filter(batch.column("place").is_valid()))
            for life, mine in by_life(rows):
                yield life, mine["lsn"].to_numpy(), mine["place"].to_numpy()
