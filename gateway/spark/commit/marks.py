"""Marks of complete days, at the roots of tables of each kind.

    TABLE/_COMPLETE-2026-11-28    JSON; readers pass it over, and so does what cleans tables up

The ledger says first that the day is complete, and then the mark is written.  A mark goes
before rows of that day are there that came late.  Where several jobs write one table, a day
has a mark once all of them have said it: who sees that writes it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from attrs import define, field

from gateway.sdk.disk import replace_file
from gateway.spark.commit.lakedisk import LakeDisk
from gateway.spark.commit.ledger import Ledger
from gateway.store.lsns import Lsns
from gateway.store.names import Life
from gateway.store.readers.complete import MARKER, Completeness, moment, spelled

_LATELY = 31
"""Days of which a mark that is missing is written again: a crash may have kept it back."""

Rows = Mapping[int, Mapping[str, int]]
"""The number of rows of each day, by protocol."""


class Said(NamedTuple):
    """A job's ledger, as far as it speaks of a table that others may write, too."""

    last: Mapping[Life, int]
    """The last lsn of each incarnation that is in the table, but of those that are closed."""
    complete: Completeness
    job: str = ""
    """The name of another one."""

    @classmethod
    def by(cls, ledger: Ledger) -> Said:
        last = {life: lsns.last for life, lsns in ledger.committed.open()}
        return cls(last, ledger.complete)


class Root(Protocol):
    """The root of a table.  All of it raises OSError."""

    @property
    def name(self) -> str: ...

    def has(self, mark: str) -> bool: ...

    def put(self, mark: str, content: bytes) -> None:
        """Write a mark in one step, durably."""

    def remove(self, mark: str) -> None:
        """Remove a mark durably, if there is one."""

    def rows(self, days: Collection[int]) -> Rows: ...


@define
class Folder:
    """The root of a table that is a folder on this machine's disks."""

    path: Path
    _disk: LakeDisk
    _rows: Callable[[Collection[int]], Rows] = field()

    @_rows.default
    def _rows_of_parquet(self) -> Callable[[Collection[int]], Rows]:
        return lambda days: {day: _rows_of(self.path, day) for day in days}

    @property
    def name(self) -> str:
        return str(self.path)

    def has(self, mark: str) -> bool:
        return self._disk.exists(self.path / mark)

    def put(self, mark: str, content: bytes) -> None:
        replace_file(self._disk, self.path / mark, [content]).close()

    def remove(self, mark: str) -> None:
        if self.has(mark):
            self._disk.unlink(self.path / mark)
            self._disk.sync_directory(self.path)

    def rows(self, days: Collection[int]) -> Rows:
        return self._rows(days)


@define
class Objects:
    """The root of a table in a storage that Java reaches, by whole names."""

    name: str
    _exists: Callable[[str], bool]
    _create: Callable[[str], Any]
    """Gives an output stream of Java's."""
    _delete: Callable[[str], object]
    _rows: Callable[[Collection[int]], Rows]

    def has(self, mark: str) -> bool:
        with _told(self.name):
            return self._exists(f"{self.name}/{mark}")

    def put(self, mark: str, content: bytes) -> None:
        with _told(self.name):
            stream = self._create(f"{self.name}/{mark}")
            stream.write(bytearray(content))
            stream.close()

    def remove(self, mark: str) -> None:
        with _told(self.name):
            if self._exists(f"{self.name}/{mark}"):
                self._delete(f"{self.name}/{mark}")

    def rows(self, days: Collection[int]) -> Rows:
        return self._rows(days)


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    """Raise OSError for what Java raises."""
    from py4j.protocol import Py4JError

    try:
        yield
    except Py4JError as why:
        raise OSError(f"{name}: {why}") from why


class Marks:
    """The marks of a job's tables, as far as they are known."""

    def __init__(self) -> None:
        self._there: dict[tuple[str, int], bool] = {}
        """Whether a day has its mark, by the table's root, once that was looked at."""

    def lack(self, roots: Iterable[Root], said: Sequence[Said]) -> bool:
        """Whether some day of late may have no mark, and should."""
        whole = _whole(said)
        days = [day for day in _lately(said) if whole.covers(day, day)]
        return any(
            not self._there.get((root.name, day)) for root in roots for day in days
        )

    def settle(
        self, roots: Iterable[Root], said: Sequence[Said], going: Collection[int] = ()
    ) -> None:
        """Have marks for those days of late that are complete, by what all jobs have *said*, but
        for *going* ones.

        What the job itself has said comes first.  Who holds a day back sees to it each time that
        it has no mark: one that another job wrote, and could not take back, may come at any time.
        Raises OSError.
        """
        whole = _whole(said) - Lsns((day, day) for day in going)
        days, held_back = _lately(said), said[0].complete.held_back
        for root in roots:
            lacking = []
            for day in days:
                there = self._there.get((root.name, day))
                if there is None:
                    there = root.has(_name(day))
                complete = whole.covers(day, day)
                if there and not complete:
                    root.remove(_name(day))
                if complete and not there:
                    lacking.append(day)
                elif day in held_back:
                    self._there.pop((root.name, day), None)
                else:
                    self._there[root.name, day] = complete
            rows = root.rows(lacking) if lacking else {}
            for day in lacking:
                content = _content(day, said, rows.get(day, {}))
                text = json.dumps(content, indent=1)
                root.put(_name(day), f"{text}\n".encode())
                self._there[root.name, day] = True

    def remove(self, roots: Iterable[Root], days: Collection[int]) -> None:
        """Remove the marks of these days, durably.  Raises OSError."""
        for root in roots:
            for day in days:
                self._there.pop((root.name, day), None)
                root.remove(_name(day))


def tables(lake: Path, disk: LakeDisk) -> Iterator[Folder]:
    """The roots of the tables of a lake of Parquet folders."""
    for path in sorted(lake.iterdir()):
        if not path.name.startswith((".", "_")) and path.is_dir():
            yield Folder(path, disk)


def _name(day: int) -> str:
    return f"{MARKER}{spelled(day)}"


def _whole(said: Sequence[Said]) -> Lsns:
    """The days that all have said to be complete."""
    return reduce(and_, (one.complete.days for one in said))


def _lately(said: Sequence[Said]) -> range:
    """The days of which marks are looked at.

    Those behind the last one may have some where a table was set back.
    """
    known = said[0].complete
    last = known.days.last
    days = range(max(last - _LATELY, known.since), last + 1 + _LATELY)
    return days if last else range(0)


def _content(day: int, said: Sequence[Said], rows: Mapping[str, int]) -> dict[str, Any]:
    moments = [one.complete.through for one in said]
    ends: dict[str, dict[str, dict[str, Any]]] = {}
    for one in said:
        for life, last in one.last.items():
            through = one.complete.of_lives.get(life)
            goes_on = {} if through is None else {"through": moment(through)}
            mine = ends.setdefault(life.node, {})
            mine[life.incarnation] = {"last": last, **goes_on}
    return {
        "day": spelled(day),
        "through": None if None in moments else moment(min(filter(None, moments))),
        "rows": dict(rows),
        "incarnations": ends,
        "taken_back": sum(one.complete.taken_back.get(day, 0) for one in said),
    }


def _rows_of(table: Path, day: int) -> dict[str, int]:
    """The number of rows of a day, by protocol."""
    from gateway.sdk.arrow import footer_of

    found: dict[str, int] = {}
    for path in table.glob(f"protocol=*/date={spelled(day)}/[!._]*.parquet"):
        protocol = path.parts[-3].removeprefix("protocol=")
        with contextlib.suppress(FileNotFoundError):  # compacted meanwhile
            rows = footer_of(path).num_rows
            found[protocol] = found.get(protocol, 0) + rows
    return found
