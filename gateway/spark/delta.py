"""Delta tables: a batch is one file of the log, which has rows, number and ledger.

Delta knows writers by `txnAppId` and skips what comes with a `txnVersion` that this
writer has committed already.  Spark's own names are those of a query, which dies with
its checkpoint; ours is the same for ever, and the version is the ledger's `sequence`.
So a repeated batch adds nothing whatever was lost, and of two jobs that begin at one
ledger one gets through.

The ledger is the commit's `userMetadata`.  The log keeps the last version of each writer
for ever, also where old commits are gone: it tells whether the ledger that was found is
the newest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gateway.spark.commits import Lost, taken
from gateway.spark.ledger import Broken, Ledger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["APP", "DeltaTable"]

#: The name under which Delta knows us, in each table.
APP = "gateway"

#: Delta's own answer to whether a write has committed something.
_VERSION = "spark.databricks.delta.lastCommitVersionInSession"
_WORDS = "spark.databricks.delta.commitInfo.userMetadata"

#: Delta refuses to remove files that readers of the last week may be at.
_LEAST_DAYS = 7
_FEW = 50


class DeltaTable:
    """The table at *name*, a URL."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.name = name
        self._spark = spark

    def open(self) -> Ledger:
        """See `commits.Table`."""
        number = self._number()
        if number is None:
            return Ledger()
        found = self._ledger(number)
        if found is None or found.sequence < number:
            raise Lost(number)
        return found

    def append(self, rows: DataFrame, ledger: Ledger, count: int | None = None) -> None:
        """See `commits.Table`."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        sessions = {rows.sparkSession, type(self._spark).active()}
        for session in sessions:
            session.conf.unset(_VERSION)
        write = (
            rows.write.format("delta")
            .mode("append")
            .partitionBy("protocol", "date")
            .option("txnAppId", APP)
            .option("txnVersion", str(ledger.sequence))
            .option("userMetadata", ledger.text())
            .option("mergeSchema", "true")
        )
        try:
            write.save(self.name)
        except (Py4JError, PySparkException) as why:
            if "ConcurrentTransactionException" in str(why):
                raise taken(self.name, ledger) from why
            raise
        # A write that Delta has skipped looks like any other.
        if all(session.conf.get(_VERSION, None) is None for session in sessions):
            raise taken(self.name, ledger)

    def rows(self) -> DataFrame:
        """See `commits.Table`."""
        return self._spark.read.format("delta").load(self.name)

    def state(self) -> Mapping[str, str]:
        """See `commits.Table`."""
        return {}

    def maintain(self, *, days: float) -> Iterator[str]:
        """See `commits.Table`."""
        number = self._number()
        if number is None:
            return
        found = self._ledger(number)
        conf = self._spark.conf
        if found is not None:
            conf.set(_WORDS, found.text())
        # Or ten thousand tasks list a handful of folders.
        conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "8")
        try:
            (done,) = self._spark.sql(f"OPTIMIZE delta.`{self.name}`").collect()
            metrics = done["metrics"]
            yield (
                f"{self.name}: {metrics['numFilesRemoved']} data files,"
                f" now {metrics['numFilesAdded']}"
            )
            hours = round(24 * max(days, _LEAST_DAYS))
            self._spark.sql(f"VACUUM delta.`{self.name}` RETAIN {hours} HOURS")
            yield f"{self.name}: files of no version for {hours} hours removed"
        finally:
            conf.unset(_WORDS)
            conf.unset("spark.sql.sources.parallelPartitionDiscovery.parallelism")

    def _number(self) -> int | None:
        """The last `txnVersion` of ours; None if there is none, or no table."""
        log = self._spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]  # noqa: SLF001
        pair = log.forTableWithSnapshot(
            self._spark._jsparkSession,  # noqa: SLF001
            self.name,
        )
        snapshot = pair._2()  # noqa: SLF001 - Scala's second of two
        if snapshot.version() < 0:
            return None
        version: Any = snapshot.transactions().get(APP)
        return int(version.get()) if version.isDefined() else None

    def _ledger(self, number: int) -> Ledger | None:
        """The newest that the log still has; *number* is that of the newest ever.

        A compaction beside the job carries one that is older than the job's next.
        """
        newest: Ledger | None = None
        for limit in (f"LIMIT {_FEW}", ""):
            history = self._spark.sql(f"DESCRIBE HISTORY delta.`{self.name}` {limit}")
            for row in history.select("userMetadata").collect():
                try:
                    found = Ledger.parse(row[0] or "", self.name)
                except Broken:
                    continue
                if newest is None or found.sequence > newest.sequence:
                    newest = found
            if newest is not None and newest.sequence >= number:
                break
        return newest
