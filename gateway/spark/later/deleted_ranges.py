"""Deleted ranges: lsns that expired or were deleted on purpose, so that none comes back.

`gateway.store.readers.deleted` writes them down; here they are as the ledger has them, beside
the names of rows in files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.sdk.disk import Disk
from gateway.spark.commit.ledger import Broken, Ranges
from gateway.store.lsns import Lsns
from gateway.store.names import Life, SpoolFile
from gateway.store.readers import deleted
from gateway.store.readers.deleted import Deletion

_ROWS = 1 << 17

_Flags = np.ndarray[Any, np.dtype[np.bool_]]


class DeletedRanges:
    """The deleted ranges of a lake, read again when there are others."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self._seen: list[tuple[str, int, int]] = []
        self._events = Ranges()
        self._asked = Ranges()
        """Events that an operator has had deleted, as far as that is finished."""
        self._counts = _counts(())

    def __call__(self) -> Ranges:
        """All deleted events.  Raises `Broken` for a file that can not be read, OSError."""
        seen = deleted.stamps(self._lake)
        if seen != self._seen:
            try:
                found = deleted.deletions(self._lake)
            except ValueError as why:
                raise Broken(str(why)) from None
            self._events, self._counts = named_in(found), _counts(found)
            self._asked = named_in(one for one in found if _is_finished(one))
            self._seen = seen
        return self._events

    def come_again(self, disk: Disk, files: Iterable[SpoolFile]) -> None:
        """Have deletions done again whose events are in *files*, which came again and are about
        to go to the archive.

        A deletion of theirs is not finished any more.  Raises `Broken`, OSError.
        """
        self()
        come = [one for one in files if self._asked.touches(one)]
        if not come:
            return
        for one in deleted.deletions(self._lake):
            if _is_finished(one) and any(_touches(one, file) for file in come):
                again = msgspec.structs.replace(one, done=False)
                deleted.save(disk, self._lake, again)

    def counts(self) -> Mapping[str, Any]:
        """Numbers of deleted days and events, for the job's health.  Raises the same as a call."""
        self()
        return self._counts


def _is_finished(one: Deletion) -> bool:
    return one.kind == "asked" and one.done


def _touches(one: Deletion, file: SpoolFile) -> bool:
    lsns = deleted.lsns_of([one], file.node, file.incarnation)
    return lsns.touches(file.first, file.last)


def _counts(found: Sequence[Deletion]) -> Mapping[str, Any]:
    events = {"expired": 0, "asked": 0}
    for one in found:
        # None is in two of them: what was taken out is not found again.
        events[one.kind] += sum(
            last - first + 1
            for lives in one.events.values()
            for spans in lives.values()
            for first, last in spans
        )
    return {
        "expired_days": {
            table: sum(last - first + 1 for first, last in days)
            for one in found
            for table, days in one.days.items()
        },
        "expired_events": events["expired"],
        "deleted_events": events["asked"],
        "deletions_unfinished": sum(not one.done for one in found),
    }


def named_in(deletions: Iterable[Deletion]) -> Ranges:
    """The events of these."""
    found = Ranges()
    for one in deletions:
        found.update(Ranges(one.events))
    return found


def events_in(path: Path) -> Ranges:
    """The events in a file of the tables.  Raises OSError, and what pyarrow raises."""
    found = Ranges()
    with pq.ParquetFile(path) as file:
        wanted = ("node", "incarnation", "lsn")
        names = [name for name in wanted if name in file.schema_arrow.names]
        for batch in file.iter_batches(_ROWS, columns=names, use_threads=False):
            found.update(names_of(pa.table(batch)))
    return found


def names_of(rows: pa.Table) -> Ranges:
    """The events that *rows* are."""
    found = Ranges()
    for life, mine in by_life(rows):
        add_lsns(found, life, mine["lsn"].to_numpy())
    return found


def add_lsns(found: Ranges, life: Life, lsns: np.ndarray[Any, Any]) -> None:
    """Add lsns in any order, as few ranges as possible."""
    ordered = np.unique(lsns)
    ends = np.flatnonzero(np.diff(ordered) != 1)
    firsts = ordered[np.append(0, ends + 1)].tolist()
    lasts = ordered[np.append(ends, len(ordered) - 1)].tolist()
    found.add_all(life, Lsns(zip(firsts, lasts, strict=True)))


def mask_of(rows: pa.Table, wanted: Ranges) -> _Flags:
    """A mask of *rows*, with node, lsn and perhaps incarnation, that are among *wanted*.

    A row that names no incarnation is one of those whose incarnation is not known.
    """
    mask = np.zeros(rows.num_rows, bool)
    lsns = rows["lsn"].to_numpy()
    there = {*_lives(rows)}
    for life, some in wanted.each():
        if life not in there:
            continue
        bounds = np.array(list(some), np.int64)
        at = np.searchsorted(bounds[:, 1], lsns)
        inside = at < len(bounds)
        inside &= bounds[np.minimum(at, len(bounds) - 1), 0] <= lsns
        mask |= inside & _of(rows, life)
    return mask


def by_life(rows: pa.Table) -> Iterator[tuple[Life, pa.Table]]:
    lives = _lives(rows)
    for life in lives:
        yield life, rows if len(lives) == 1 else rows.filter(pa.array(_of(rows, life)))


def _lives(rows: pa.Table) -> list[Life]:
    keys = [name for name in ("node", "incarnation") if name in rows.column_names]
    named = pa.table({name: rows[name].cast(pa.string()) for name in keys})
    found = named.group_by(keys).aggregate([]).to_pylist()
    lives = (Life(each["node"], each.get("incarnation") or "") for each in found)
    return list(dict.fromkeys(lives))


def _of(rows: pa.Table, life: Life) -> _Flags:
    mine = pc.equal(rows["node"].cast(pa.string()), life.node)
    if "incarnation" in rows.column_names:
        by = pc.fill_null(rows["incarnation"].cast(pa.string()), "")
        mine = pc.and_(mine, pc.equal(by, life.incarnation))
    elif life.incarnation:
        return np.zeros(rows.num_rows, bool)
    return np.asarray(mine.to_numpy(), bool)
