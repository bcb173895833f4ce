"""The snapshots of a table of Iceberg: the ledgers in them, and its upkeep.

The ledger is in the words of the snapshot.  Where the table was compacted between staging
and publishing, Iceberg publishes a copy without our words; it names the staged snapshot,
which still has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gateway.sinks.words import ledgers_in
from gateway.spark.commit.ledger import Broken
from gateway.spark.commit.marks import Objects, Rows
from gateway.spark.commit.shared import SharedTable, Words, number_of, take_newest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The snapshot's property that has the ledger.
LEDGER = "gateway.ledger"

NAMED = "gateway.job."
"""A property of a table that a job with a name writes, with that name behind it."""
_DAY = 86_400_000  # milliseconds

#: A table's description has each snapshot, and each commit writes it anew.
_MOST_SNAPSHOTS = 500
_MANY_MANIFESTS = 30
#: Small files that a protocol's current day must have for a compaction.
_MANY_FILES = 60


class Snapshots(SharedTable):
    """The table *name*, `catalog.namespace.table`, as its snapshots have it; *order* is what
    a compaction sorts by.

    26 methods: half of them are the interface, the others find our snapshots among all.
    """

    def __init__(
        self, spark: SparkSession, name: str, order: tuple[str, ...], job: str
    ) -> None:
        super().__init__(name, job)
        self._id = f"{self.fence}/" if job else f"{self.fence}-"
        self._spark = spark
        self._order = order
        self._loaded: Any = None
        self._fields: dict[str, Any] | None = None
        """The table's columns; None while there is no table, as far as is known."""
        self._schema = -1
        """The table's schema that has them: others may change it while we run."""
        self._last: int | None = None
        """The number of our last commit, if its snapshot was there."""
        self._seen = 0
        """Iceberg's sequence number of the newest snapshot then; it only grows."""

    def there(self) -> bool:
        return self._exists()

    def shared(self) -> bool:
        if not self._exists():
            return False
        names = {f"{NAMED}{self.job}"} if self.job else set()
        jobs = {key for key in self._table().properties() if key.startswith(NAMED)}
        return bool(self.job or jobs - names)

    def _all_rows(self) -> DataFrame:
        # Where a column was added, Spark knows another object for the table than ours, which
        # nobody refreshes.
        self._spark.sql(f"REFRESH TABLE {self.name}")
        return self._spark.table(self.name)

    def _location(self) -> str:
        return str(self._table().location())

    def _objects(self, place: str, rows: Callable[[Collection[int]], Rows]) -> Objects:
        # Asked for each time: the catalog may lend it credentials for an hour.
        return Objects(
            place,
            lambda name: bool(self._table().io().newInputFile(name).exists()),
            lambda name: self._table().io().newOutputFile(name).createOrOverwrite(),
            lambda name: self._table().io().deleteFile(name),
            rows,
        )

    def state(self) -> Mapping[str, str]:
        if self._fields is None:
            return {}
        current = self._table().operations().current()
        metadata = {"metadata": str(current.metadataFileLocation())}
        return {**metadata, **super().state()}

    def delete(self, condition: str) -> None:
        if self._exists():
            mine = f"({condition}) AND {self._ours()}"
            self._spark.sql(f"DELETE FROM {self.name} WHERE {mine}")  # noqa: S608
            self._carry(self._table())

    def purge(self) -> Iterator[str]:
        if not self._exists():
            return
        table = self._table()
        self._carry(table)
        now = int(time.time() * 1000)
        table.expireSnapshots().expireOlderThan(now).retainLast(1).commit()
        table.refresh()
        yield f"{self.name}: files of earlier snapshots removed"

    def maintain(self, *, days: float, thorough: bool = True) -> Iterator[str]:
        if not self._exists() or self._table().currentSnapshot() is None:
            return
        jvm: Any = self._spark._jvm  # noqa: SLF001
        actions = jvm.org.apache.iceberg.spark.actions.SparkActions.get(
            self._spark._jsparkSession  # noqa: SLF001
        )
        table = self._table()
        today = datetime.now(UTC).date().isoformat()
        bounds = jvm.org.apache.iceberg.expressions.Expressions
        for days_of, least in (
            (bounds.lessThan("date", today), 2),
            (bounds.greaterThanOrEqual("date", today), 2 if thorough else _MANY_FILES),
        ):
            yield self._rewrite(actions, table, days_of, least)
            table.refresh()
        manifests = table.currentSnapshot().allManifests(table.io()).size()
        if manifests > _MANY_MANIFESTS:
            actions.rewriteManifests(table).execute()
            table.refresh()
            now = table.currentSnapshot().allManifests(table.io()).size()
            yield f"{self.name}: {manifests} manifests, now {now}"
        self._carry(table)
        oldest = int(time.time() * 1000 - days * _DAY)
        made = sorted(int(one.timestampMillis()) for one in table.snapshots())
        since = max(oldest, *made[-_MOST_SNAPSHOTS:][:1])
        table.expireSnapshots().expireOlderThan(since).retainLast(2).commit()
        table.refresh()
        yield f"{self.name}: {len(made)} snapshots, now {len(list(table.snapshots()))}"
        if not thorough:
            return
        # Younger ones may be of a batch that is being written.
        orphans = actions.deleteOrphanFiles(table).olderThan(oldest).execute()
        gone = sum(1 for _ in orphans.orphanFileLocations())
        yield f"{self.name}: {gone} files of no snapshot removed"

    def _rewrite(self, actions: Any, table: Any, days: Any, least: int) -> str:
        """Compact *days* where they have at *least* so many small files; what was done."""
        jvm: Any = self._spark._jvm  # noqa: SLF001
        rewrite = actions.rewriteDataFiles(table).filter(days)
        if (words := self._carried()) is not None:
            rewrite = rewrite.snapshotProperty(LEDGER, words)
        # Others may have dropped a column, and spark.columns may leave it out.
        there = [name for name in self._order if table.schema().findField(name)]
        if there:
            order = jvm.org.apache.iceberg.SortOrder.builderFor(table.schema())
            for name in there:
                order = order.asc(name)
            rewrite = rewrite.sort(order.build())
        done = rewrite.option("min-input-files", str(least)).execute()
        return (
            f"{self.name}: {done.rewrittenDataFilesCount()} data files,"
            f" now {done.addedDataFilesCount()}"
        )

    def _carry(self, table: Any) -> None:
        """Have the newest ledgers in the newest snapshot, which expiry always leaves."""
        words = self._carried()
        if words is not None and words != table.currentSnapshot().summary().get(LEDGER):
            append = table.newAppend()
            append.set(LEDGER, words)
            append.commit()
            table.refresh()

    def _table(self) -> Any:
        if self._loaded is None:
            jvm: Any = self._spark._jvm  # noqa: SLF001
            load = jvm.org.apache.iceberg.spark.Spark3Util
            self._loaded = load.loadIcebergTable(
                self._spark._jsparkSession,  # noqa: SLF001
                self.name,
            )
        self._loaded.refresh()
        return self._loaded

    def _exists(self) -> bool:
        if self._fields is None and self._spark.catalog.tableExists(self.name):
            self._learn()
        return self._fields is not None

    def _learn(self) -> None:
        self._schema = int(self._table().schema().schemaId())
        schema = self._spark.table(self.name).schema
        self._fields = {field.name: field for field in schema}

    @staticmethod
    def _line(table: Any) -> Iterator[Any]:
        """The snapshots that make up the table, the newest first."""
        snapshot = table.currentSnapshot()
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parentId()
            snapshot = None if parent is None else table.snapshot(parent)

    def _published(self, table: Any, number: int) -> bool:
        """Whether a commit of this number, or a later one, is in the table."""
        newest = self._newest_number(table)
        return newest is not None and newest >= number

    def _newest_number(self, table: Any) -> int | None:
        """The number of our newest commit that the table still knows of, by its snapshot or
        by what others have carried on.
        """
        found: list[int] = []
        for snapshot in self._line(table):
            if (number := self._number(snapshot)) is not None:
                found.append(number)
                break
            ledgers = self._ledgers_of(table, snapshot)
            self._heed(ledgers)
            found += [number_of(o) for o in ledgers if o.get("job", "") == self.job]
        return max(found, default=None)

    def _number(self, snapshot: Any) -> int | None:
        """The number of our commit; None for others' commits and for maintenance."""
        words = snapshot.summary()
        name = words.get("published-wap-id") or words.get("wap.id") or ""
        return int(name.removeprefix(self._id)) if name.startswith(self._id) else None

    def _check_set_back(self, table: Any) -> None:
        """Raise `Broken` if our last commit is no longer in the table.

        A snapshot of others, or of maintenance, may be all that is left of the line.
        """
        newest, current = self._newest_number(table), table.currentSnapshot()
        older = newest is not None and self._last is not None and newest < self._last
        if older or self._seen > (int(current.sequenceNumber()) if current else 0):
            was = f"commit {self._last}" if self._last else "what it had"
            raise Broken(
                f"{self.name} was set back from {was} to {newest or 'an older snapshot'},"
                " so this batch is not committed: the next start counts what the table has"
                " and gateway audit says what it lacks"
            )

    def _last_snapshot(self, table: Any) -> Any:
        """The snapshot of our last commit."""
        line = self._line(table)
        return next(one for one in line if self._number(one) == self._last)

    def _mine(self, table: Any, snapshot: int) -> bool:
        """Whether the table has it, whatever the answer to its publishing was."""
        return any(
            one.snapshotId() == snapshot
            or one.summary().get("source-snapshot-id") == str(snapshot)
            for one in self._line(table)
        )

    def _newest(self) -> dict[str, Words]:
        newest: dict[str, Words] = {}
        table, alone = self._table(), not self.shared()
        for snapshot in self._line(table):
            take_newest(newest, self._ledgers_of(table, snapshot))
            if alone and self._number(snapshot) is not None:
                break
        return newest

    @staticmethod
    def _ledgers_of(table: Any, snapshot: Any) -> list[Words]:
        """The ledgers in the words of a snapshot; those of a copy are where it was staged."""
        words = snapshot.summary()
        text, source = words.get(LEDGER), words.get("source-snapshot-id")
        if text is None and source is not None:
            staged = table.snapshot(int(source))
            text = staged.summary().get(LEDGER) if staged is not None else None
        return [*ledgers_in(text)]

    def _drop_staged(self, table: Any) -> None:
        """Drop the staged snapshot of a job that was killed before it published.

        Its batch comes again.  A snapshot that was once the table stays: a user may have set the
        table back, and think better of it.
        """
        line = {snapshot.snapshotId() for snapshot in self._line(table)}
        line |= {entry.snapshotId() for entry in table.history()}
        sources = {
            snapshot.summary().get("source-snapshot-id")
            for snapshot in self._line(table)
        }
        left = [
            snapshot
            for snapshot in table.snapshots()
            if (snapshot.summary().get("wap.id") or "").startswith(self._id)
            and snapshot.snapshotId() not in line
            and str(snapshot.snapshotId()) not in sources
        ]
        self._expire(table, left)

    @staticmethod
    def _expire(table: Any, snapshots: list[Any]) -> None:
        if snapshots:
            expire = table.expireSnapshots()
            for snapshot in snapshots:
                expire = expire.expireSnapshotId(snapshot.snapshotId())
            expire.commit()
            table.refresh()
