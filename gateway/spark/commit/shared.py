"""Tables of Delta and Iceberg that several jobs write, each with a name (`spark.job`).

Each job reads a prefix of its own, and has a fence of its own by its name, and a ledger of
its own in the words of its commits.  A job without a name has those that all had before
there were names.  Maintenance of the table carries all ledgers on.

A node is one job's for ever: whose rows are whose is told by it.  So a job commits nothing
of a node that another job's ledger has, as of the last commit.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gateway.spark.commit.ledger import Broken, Ledger
from gateway.spark.commit.marks import Folder, Objects, Root, Rows, Said
from gateway.store.lsns import Lsns
from gateway.store.names import Life
from gateway.store.readers.complete import NAMELESS, Completeness, spelled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from gateway.spark.commit.lakedisk import LakeDisk

_MORE_ATTEMPTS = 4

Words = Mapping[str, Any]
"""A ledger as JSON has it."""


class Lost(Exception):
    """A table has rows, and the ledger that counts them is no longer with it.

    Another program's maintenance has removed the commits that had it.  *sequence* is as
    great as that of any commit of ours.
    """

    def __init__(self, sequence: int) -> None:
        super().__init__(sequence)
        self.sequence = sequence


class Table(Protocol):
    """A table that takes rows and a ledger in one commit.  All of it raises what Spark raises."""

    name: str
    """The name by which the operator calls it."""
    job: str
    """The name of that job, if it has one."""

    def others(self) -> Mapping[str, str]:
        """The nodes whose rows are other jobs', and which job; what is said below of rows is
        said of ours.
        """

    def open(self) -> Ledger:
        """The table's ledger, after what a crash has left unpublished is gone.

        An empty one if there is no table yet.  Raises `Lost`.
        """

    def append(
        self,
        rows: DataFrame,
        ledger: Ledger,
        count: int | None = None,
        *,
        few: bool = False,
    ) -> None:
        """Commit *rows* and *ledger*; makes the table and its new columns.

        *count* is how many rows there must be; *few*: they came on few days.  Raises
        `Broken` if a commit with this ledger's `sequence` is there already.
        """

    def rows(self) -> DataFrame: ...

    def added(self) -> DataFrame:
        """The rows of the last `append`, of its own files alone."""

    def spread(self, most: int) -> Mapping[str, Collection[str]]:
        """The values of each field by which the files of the last `append` are divided.

        It is asked behind `added`; nothing if they are of *most* partitions or fewer.
        """

    def overwrite(self, day: str, make: Callable[[DataFrame], DataFrame]) -> None:
        """Put what *make* makes of the rows of *day* into their place, with its new columns,
        in one commit that carries the ledger on.

        Raises `Broken`, and nothing is changed, if another job changed that day meanwhile.
        """

    def state(self) -> Mapping[str, str]:
        """Where a reader without Spark finds the table as it is now."""

    def said_by_others(self) -> list[Said]:
        """The words of other jobs on their rows, as `others` has found them."""

    def roots(self, disk: LakeDisk) -> Iterable[Root]:
        """The roots of the tables that it is, as far as they are there."""

    def delete(self, condition: str) -> None:
        """Commit that the rows of which that is true are gone; the ledger is carried on."""

    def purge(self) -> Iterator[str]:
        """Remove the files that only its earlier versions have, at once.

        No program may read such a version, or write, meanwhile.  Says what was done.
        """

    def maintain(self, *, days: float, thorough: bool = True) -> Iterator[str]:
        """Compact it, and remove files that are no longer of it and older than *days*, or of too
        many commits ago.  If *thorough*, compact the current day, too, and remove files that no
        commit names.

        The ledger is carried on; the job may be at work meanwhile.  Says what was done,
        step by step.
        """


class Written(NamedTuple):
    """Files of a batch that were written for one table, and are to be committed."""

    rows: int
    files: Sequence[Any]
    """The files, as the format has them."""


class OneTable(Table, Protocol):
    """A table that may be one of several.

    In a batch that rules divide each is made to `fit`.  One of them writes the files of all that
    are `alike`, in one pass over the rows.  Then each commits its own.
    """

    said: Words
    """The words of our newest commit, as `open` has found them."""

    def there(self) -> bool:
        """Whether there is such a table."""

    def append(
        self,
        rows: DataFrame,
        ledger: Ledger,
        count: int | None = None,
        *,
        few: bool = False,
        beside: Words | None = None,
    ) -> None:
        """Commit as `Table` does, with words *beside* the ledger."""

    def fit(self, rows: DataFrame) -> Mapping[str, str]:
        """Get ready for columns as in *rows*; the types of those that it has already."""

    def alike(self) -> Hashable:
        """The trait that tables of one pass share; None: this one takes rows by `append` alone."""

    def write(
        self, rows: DataFrame, tables: Mapping[str, Any], *, few: bool
    ) -> Mapping[str, Written]:
        """Write files of *rows*, whose column `table` names one of *tables*.

        These are of one kind, alike and made to fit, this one among them.  Nothing is committed.
        """

    def commit(self, written: Written, ledger: Ledger, *, beside: Words) -> None:
        """Commit what was written for it, as `append` does with rows."""


class SharedTable(OneTable, ABC):
    """The table *name*, for the job *job*; that of others is "" where they have no name."""

    def __init__(self, name: str, job: str = "") -> None:
        self.name = name
        self.job = job
        self._theirs: dict[str, str] = {}
        """The other job that has each node."""
        self._others: dict[str, Words] = {}
        """The newest ledger of each other job that was met."""
        self.said: Words = {}
        self._root: Root | None = None
        """Where its marks lie, once it is there: to look is a listing of all its commits."""

    @property
    def fence(self) -> str:
        """The name by which the format knows us."""
        return f"gateway/{self.job}" if self.job else "gateway"

    @abstractmethod
    def shared(self) -> bool:
        """Whether other jobs may write it, or did."""

    @abstractmethod
    def _newest(self) -> dict[str, Words]:
        """The newest ledger of each job that its commits still have, by the job's name."""

    @abstractmethod
    def _all_rows(self) -> DataFrame:
        """The rows of all jobs."""

    def others(self) -> Mapping[str, str]:
        """The nodes that other jobs have, and which job."""
        if self.shared():
            self._heed(self._newest().values())
        return self._theirs

    def rows(self) -> DataFrame:
        return self._all_rows().where(self._ours())

    def state(self) -> Mapping[str, str]:
        """The state as in `Table`; and whether others write it, too, for the audit."""
        if not self._theirs:
            return {}
        complete = {job: one.get("complete") for job, one in self._others.items()}
        return {"shared": "yes", "complete": json.dumps(complete)}

    def said_by_others(self) -> list[Said]:
        return [*map(_said, self._others.values())]

    def roots(self, disk: LakeDisk) -> Iterator[Root]:
        if self._root is None and self.there():
            place = self._location()
            path = re.sub("^file:(//)?", "", place)
            if path.startswith("/"):
                self._root = Folder(Path(path), disk, self._rows_of)
            else:
                self._root = self._objects(place, self._rows_of)
        if self._root is not None:
            yield self._root

    @abstractmethod
    def _location(self) -> str:
        """The URL of the folder that has the table's files."""

    @abstractmethod
    def _objects(self, place: str, rows: Callable[[Collection[int]], Rows]) -> Objects:
        """The same folder, in a storage that only Java reaches."""

    def _rows_of(self, days: Collection[int]) -> Rows:
        dates = ", ".join(f"DATE'{spelled(day)}'" for day in days)
        rows = self._all_rows().where(f"date IN ({dates})")
        found: dict[int, dict[str, int]] = {}
        counted = rows.selectExpr("cast(date AS date) AS date", "protocol")
        for day, protocol, count in (
            counted.groupBy("date", "protocol").count().collect()
        ):
            found.setdefault(day.toordinal(), {})[str(protocol)] = count
        return found

    def _ours(self) -> str:
        """A condition that is true of our rows."""
        names = ", ".join(f"'{node}'" for node in sorted(self.others()))
        return f"node NOT IN ({names})" if names else "true"

    def _heed(self, ledgers: Iterable[Words]) -> None:
        """Learn which nodes others have, and how far their rows are complete."""
        for one in ledgers:
            if (job := one.get("job", "")) != self.job:
                self._theirs.update(dict.fromkeys(one["committed"], job))
                take_newest(self._others, [one])

    def _check_nodes(self, ledger: Ledger) -> None:
        """Raise `Broken` if it has events of another job's node."""
        mine = {life.node for life in ledger.committed.lives()}
        if both := sorted(mine & self._theirs.keys()):
            job = self._theirs[both[0]]
            raise Broken(
                f"{self.name}: node {both[0]} is one of {_spelled(job)}, which writes this"
                f" table, too, so nothing of it is committed by {_spelled(self.job)}: each"
                " job reads the files of other nodes, below a prefix of its own"
                " (spool.directory). A gateway that moves to another prefix takes another"
                " node name"
            )

    def _carried(self) -> str | None:
        """Words of a commit that is no job's batch: the newest ledgers of all; None: there
        are none.
        """
        found = self._newest()
        self._heed(found.values())
        return carried(found)

    def _words(self, ledger: Ledger, **beside: Any) -> str:
        if self.job:
            beside["job"] = self.job
        return ledger.text(**beside)


def _said(words: Words) -> Said:
    last = {
        Life(node, by): Lsns(spans).last
        for node, lives in words["committed"].items()
        for by, spans in lives.items()
    }
    try:
        known = Completeness.read(words["complete"])
    except (KeyError, TypeError, ValueError):  # nothing yet, or another version's
        known = Completeness()
    return Said(last, known, _spelled(words.get("job", "")))


def take_newest(found: dict[str, Words], ledgers: Iterable[Words]) -> None:
    """Keep the newest of each job in *found*.

    A compaction beside a job carries one that is older than the job's next.
    """
    for one in ledgers:
        job = one.get("job", "")
        if job not in found or number_of(one) > number_of(found[job]):
            found[job] = one


#: Types that a column may get in the table, by the format's own promotion.
_WIDER = {("int", "bigint"), ("float", "double")}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
WIDEN = (
    "widen it in the table, where it is a whole number or a decimal that becomes wider"
    " (docs/spark.md, a column's type)"
)


def promoted(kind: str, there: str) -> bool:
    """Whether values of type *kind* are at home in a column that is *there*."""
    one, other = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(there)
    if one and other:
        return one[2] == other[2] and int(one[1]) <= int(other[1])
    return kind == there or (kind, there) in _WIDER


def fitted(rows: DataFrame, there: Mapping[str, str]) -> DataFrame:
    """*rows* with the types that the columns have *there*, where these are wider."""
    types = {field.name: field.dataType.simpleString() for field in rows.schema}
    wider = {
        name: rows[f"`{name}`"].cast(there[name])
        for name, kind in types.items()
        if there.get(name, kind) != kind and promoted(kind, there[name])
    }
    return rows.withColumns(wider) if wider else rows


def values_of(partitions: Iterable[Iterable[str]]) -> dict[str, set[str]]:
    """The values of each field of *partitions*, which are lists of `field=value`."""
    found: dict[str, set[str]] = {}
    for one in partitions:
        for part in one:
            name, _, value = part.partition("=")
            found.setdefault(name, set()).add(value)
    return found


def number_of(ledger: Words) -> int:
    """The ledger's `sequence`."""
    return int(ledger.get("sequence", 0))


def carried(ledgers: Mapping[str, Words]) -> str | None:
    """All *ledgers* as the words of one commit; None: there are none."""
    if not ledgers:
        return None
    first, *others = (ledgers[job] for job in sorted(ledgers))
    words = {**first, "others": others} if others else first
    return json.dumps(words, separators=(",", ":"))


def persistently(do: Callable[[], None], conflict: re.Pattern[str]) -> None:
    """Do it again while the format says, by an exception with *conflict* in it, that another
    job was in between.
    """
    for _ in range(_MORE_ATTEMPTS):
        try:
            do()
        except Exception as why:  # Py4J's, or what PySpark makes of it
            if not conflict.search(str(why)):
                raise
        else:
            return
    do()


def _spelled(job: str) -> str:
    return f"job {job}" if job else NAMELESS
