"""The log of a table of Delta: its versions, the ledgers in them, and its upkeep.

The ledger is a commit's `userMetadata`.  The log keeps the last version of each writer
for ever, also where old commits are gone: it tells whether the ledger that was found is
the newest.

A user may set the table back (RESTORE), which that number does not follow.  So a ledger
says up to which version of the table its writer had looked, and counts only if no RESTORE
came after that; else the rows do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gateway.sinks.words import ledgers_in
from gateway.spark.commit.ledger import Broken
from gateway.spark.commit.marks import Objects, Rows
from gateway.spark.commit.shared import SharedTable, Words, number_of, take_newest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WORDS = "spark.databricks.delta.commitInfo.userMetadata"
LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""Spark's setting of how many tasks list files."""

#: Delta refuses to remove files that readers of the last week may be at.
_LEAST_DAYS = 7
_FEW_COMMITS = (50, 500)
"""The numbers of newest commits that are searched for a ledger before all are read."""
_LOG_KEPT = "delta.logRetentionDuration"
_SET_BACK = "RESTORE"


class DeltaLog(SharedTable):
    """The table at *name*, a URL, as its log has it."""

    def __init__(self, spark: SparkSession, name: str, job: str) -> None:
        super().__init__(name, job)
        self._spark = spark
        self._seen = -1
        """The version up to which the table was not set back unnoticed."""
        self._read = -1
        """The version up to which all commits were read for ledgers."""
        self._ledgers: dict[str, Words] = {}
        """The newest ledgers up to `_read`."""
        self._set_back = -1
        """The commit that set the table back last, up to `_read`."""

    def there(self) -> bool:
        return bool(self._numbers())

    def shared(self) -> bool:
        return bool(self._numbers().keys() - {self.job})

    def _all_rows(self) -> DataFrame:
        return self._spark.read.format("delta").load(self.name)

    def _location(self) -> str:
        return self.name

    def _objects(self, place: str, rows: Callable[[Collection[int]], Rows]) -> Objects:
        java: Any = self._spark._jvm  # noqa: SLF001
        path, session = java.org.apache.hadoop.fs.Path, self._spark._jsparkSession  # noqa: SLF001
        folder = path(place).getFileSystem(session.sessionState().newHadoopConf())
        return Objects(
            place,
            lambda name: bool(folder.exists(path(name))),
            lambda name: folder.create(path(name), True),
            lambda name: folder.delete(path(name), False),
            rows,
        )

    def delete(self, condition: str) -> None:
        if self._numbers():
            mine = f"({condition}) AND {self._ours()}"
            with self._carrying():  # ours, or of whoever may read all of it
                self._spark.sql(f"DELETE FROM delta.`{self.name}` WHERE {mine}")  # noqa: S608

    def purge(self) -> Iterator[str]:
        if not self._numbers():
            return
        check = "spark.databricks.delta.retentionDurationCheck.enabled"
        with self._carrying({check: "false"}):
            self._spark.sql(f"REORG TABLE delta.`{self.name}` APPLY (PURGE)")
            self._spark.sql(f"VACUUM delta.`{self.name}` RETAIN 0 HOURS")
        yield f"{self.name}: files of earlier versions removed"

    def maintain(self, *, days: float, thorough: bool = True) -> Iterator[str]:
        if not self._numbers():
            return
        # Or ten thousand tasks list a handful of folders.
        with self._carrying({LISTING: "8"}):
            self._bound_log()
            today = datetime.now(UTC).date()
            where = "" if thorough else f"WHERE date < '{today}'"
            over = f"OPTIMIZE delta.`{self.name}` {where}"
            (done,) = self._spark.sql(over).collect()
            metrics = done["metrics"]
            yield (
                f"{self.name}: {metrics['numFilesRemoved']} data files,"
                f" now {metrics['numFilesAdded']}"
            )
            if not thorough:
                return
            hours = round(24 * max(days, _LEAST_DAYS))
            self._spark.sql(f"VACUUM delta.`{self.name}` RETAIN {hours} HOURS")
            yield f"{self.name}: files of no version for {hours} hours removed"

    def _bound_log(self) -> None:
        """A commit a minute for a month, as Delta keeps by itself, is too many to list."""
        rows = self._spark.sql(f"SHOW TBLPROPERTIES delta.`{self.name}`").collect()
        if _LOG_KEPT not in {row.key for row in rows}:
            self._spark.sql(
                f"ALTER TABLE delta.`{self.name}` SET TBLPROPERTIES"
                f" ('{_LOG_KEPT}' = 'interval {_LEAST_DAYS} days')"
            )

    @contextlib.contextmanager
    def _carrying(self, settings: Mapping[str, str] | None = None) -> Iterator[None]:
        """Commits of the session carry all ledgers on meanwhile, under these *settings*."""
        words = self._carried()
        more = {**(settings or {}), **({} if words is None else {_WORDS: words})}
        with self._under(more):
            yield

    @contextlib.contextmanager
    def _under(self, settings: Mapping[str, str]) -> Iterator[None]:
        """The session has these *settings* meanwhile."""
        conf = self._spark.conf
        before = {key: conf.get(key, None) for key in settings}
        for key, value in settings.items():
            conf.set(key, value)
        try:
            yield
        finally:
            for key, was in before.items():
                conf.unset(key) if was is None else conf.set(key, was)

    def _state(self) -> tuple[int, int | None]:
        """The table's version, -1 where there is none; and the last `txnVersion` of ours."""
        _, snapshot = self._now()
        version = int(snapshot.version())
        if version < 0:
            return version, None
        number: Any = snapshot.transactions().get(self.fence)
        return version, int(number.get()) if number.isDefined() else None

    def _numbers(self) -> dict[str, int]:
        """The last `txnVersion` of each job."""
        _, snapshot = self._now()
        return self._numbers_in(snapshot)

    def _numbers_in(self, snapshot: Any) -> dict[str, int]:
        found: dict[str, int] = {}
        if int(snapshot.version()) >= 0:
            each = snapshot.transactions().iterator()
            while each.hasNext():
                pair = each.next()
                ours, _, job = str(pair._1()).partition("/")  # noqa: SLF001 - Scala's names
                if ours == "gateway":
                    found[job] = int(pair._2())  # noqa: SLF001
        return found

    def _now(self) -> tuple[Any, Any]:
        """The table's log, and its present snapshot; of Java."""
        session = self._spark._jsparkSession  # noqa: SLF001
        pair = self._log().forTableWithSnapshot(session, self.name)
        return pair._1(), pair._2()  # noqa: SLF001 - Scala's names

    def _log(self) -> Any:
        return self._spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]  # noqa: SLF001

    def _check_set_back(self, version: int) -> None:
        """Raise `Broken` if that was done up to *version*, since we have looked last."""
        if version <= self._seen:
            return
        for row in self._since(self._seen, version):
            self._heed(ledgers_in(row.userMetadata))
            if row.operation == _SET_BACK and row.version > self._seen:
                raise Broken(
                    f"{self.name} was set back ({_SET_BACK}, version {row.version}), so"
                    " this batch is not committed: the next start counts what the table"
                    " has, and says what it lacks"
                )
        self._seen = version

    def _history(self, most: int | None) -> list[Any]:
        """The last commits, the newest first."""
        limit = "" if most is None else f"LIMIT {most}"
        found = self._spark.sql(f"DESCRIBE HISTORY delta.`{self.name}` {limit}")
        return found.select("version", "operation", "userMetadata").collect()

    def _since(self, after: int, upto: int) -> list[Any]:
        """The commits behind version *after*, up to *upto* or a later one, the newest first."""
        most = upto - after
        # Of the last so many the first are others, if somebody has committed meanwhile.
        while (all_of := (rows := self._history(most))[0].version - after) > most:
            most = all_of
        return rows

    def _newest(self) -> dict[str, Words]:
        """The newest ledgers by job, as `SharedTable` says.

        The ledger of a job that has long been away is looked for in all of the history once:
        from then on only commits that came since are read.
        """
        _, snapshot = self._now()
        version, numbers = int(snapshot.version()), self._numbers_in(snapshot)
        if not numbers:
            return {}
        if version > self._read >= 0:
            rows = self._since(self._read, version)
            if not any(row.operation == _SET_BACK for row in rows):
                self._take(self._ledgers, rows)
                self._read = version
        if version != self._read:  # all is looked at anew
            self._ledgers = self._in_history(numbers)
            self._read = version
        return dict(self._ledgers)

    def _in_history(self, numbers: Mapping[str, int]) -> dict[str, Words]:
        """The newest ledgers of the jobs with these *numbers*, as far as they are found."""
        newest: dict[str, Words] = {}
        self._set_back = -1
        for most in (*_FEW_COMMITS, None):
            self._take(newest, self._history(most))
            if all(
                job in newest and number_of(newest[job]) >= number
                for job, number in numbers.items()
            ):
                break
        return newest

    def _take(self, newest: dict[str, Words], commits: Sequence[Any]) -> None:
        """Keep the newest of each job in *newest*, but those of before the table was set back.

        What these had committed may be gone; whose nodes are whose is as it was.
        """
        set_back = [one.version for one in commits if one.operation == _SET_BACK]
        self._set_back = max([self._set_back, *set_back])
        for row in commits:
            found = ledgers_in(row.userMetadata)
            self._heed(found)
            # Up to which version the writer of a ledger had looked.
            seen = row.version - 1
            take_newest(
                newest,
                (one for one in found if one.get("seen", seen) >= self._set_back),
            )
