"""`spark.sink: delta`: a batch is one file of the table's log, with rows, number and ledger.

Delta knows writers by `txnAppId` and skips what comes with a `txnVersion` that this
writer has committed already.  Spark's own names are those of a query, which dies with its
checkpoint.  Ours is the same for ever, that of the job (`gateway.spark.commit.shared`), and
the version is the ledger's `sequence`.  So a repeated batch adds nothing whatever was lost,
and of two jobs that begin at one ledger one gets through.

The ledger is the commit's `userMetadata`.  The log keeps the last version of each writer
for ever, also where old commits are gone: it tells whether the ledger that was found is
the newest.

A user may set the table back (RESTORE), which that number does not follow.  So a ledger
says up to which version of the table its writer had looked, and counts only if no RESTORE
came after that; else the rows do.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from gateway.sink import PARTITIONS
from gateway.sinks.words import ledgers_in, of_each
from gateway.spark.commit.formats import Format, stats_of
from gateway.spark.commit.ledger import Broken, Ledger
from gateway.spark.commit.marks import Objects, Rows
from gateway.spark.commit.shared import (
    SharedTable,
    Words,
    fitted,
    number_of,
    persistently,
    take_newest,
    values_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from gateway.audit.remote import Access
    from gateway.config.model import Spark
    from gateway.sdk.section import Place

#: Delta's own answer to whether a write has committed something.
_VERSION = "spark.databricks.delta.lastCommitVersionInSession"
_SEARCHED = "delta.dataSkippingStatsColumns"
_WORDS = "spark.databricks.delta.commitInfo.userMetadata"
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"

#: Delta refuses to remove files that readers of the last week may be at.
_LEAST_DAYS = 7
#: Delta's files do not have the columns that they are divided by.
_IN_FILES = ("node", "incarnation", "lsn", "flaw")
_FEW_COMMITS = (50, 500)
"""The numbers of newest commits that are searched for a ledger before all are read."""
_CONFLICT = re.compile(
    r"(MetadataChanged|ProtocolChanged|ConcurrentWrite)Exception"
    r"|DELTA_(METADATA_CHANGED|PROTOCOL_CHANGED|CONCURRENT_WRITE)"
)
"""Errors of a table, or a column of it, that was made by others meanwhile: we did nothing."""
_LOG_KEPT = "delta.logRetentionDuration"
_SET_BACK = "RESTORE"


class DeltaTable(SharedTable):
    """The table at *name*, a URL, for the job *job*.

    Its methods are many, as each kind of commit has to carry all jobs' ledgers on.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        searched: Sequence[str] = (),
        partitions: Sequence[str] = PARTITIONS,
        job: str = "",
    ) -> None:
        """A table that begins here is divided by *partitions*.

        *searched*: columns that readers look for rows by.  Of these alone Delta keeps the least
        and the greatest value in each file of a table that begins here.  Those of the first 32
        columns, as Delta does by itself, cost as much as a fifth of the whole write.
        """
        super().__init__(name, job)
        self._spark = spark
        self._searched = searched
        self._partitions = partitions
        self._seen = -1
        """The version up to which the table was not set back unnoticed."""
        self._added = 0, -1
        """The version from which on the last `append` is, and its number."""
        self._divided: Sequence[Mapping[str, str]] = ()
        """The partition of each file of the last `append`, once they were read."""
        self._read = -1
        """The version up to which all commits were read for ledgers."""
        self._ledgers: dict[str, Words] = {}
        """The newest ledgers up to `_read`."""
        self._set_back = -1
        """The commit that set the table back last, up to `_read`."""

    def open(self) -> Ledger:
        from gateway.spark.commit.shared import Lost

        self._seen, number = self._state()
        found = self._newest()
        self._heed(found.values())
        self.said = found.get(self.job, {})
        if number is None:
            return Ledger()
        if self.job not in found or number_of(found[self.job]) < number:
            raise Lost(number)
        ledger = Ledger.of(found[self.job], self.name)
        self._check_nodes(ledger)
        return ledger

    def append(
        self,
        rows: DataFrame,
        ledger: Ledger,
        count: int | None = None,
        *,
        few: bool = False,
        beside: Words | None = None,
    ) -> None:
        """Append rows as `shared.Table` does; Spark sorts rows for more than one partition."""
        del count, few
        persistently(lambda: self._append(rows, ledger, beside or {}), _CONFLICT)

    def _append(self, rows: DataFrame, ledger: Ledger, beside: Words) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from gateway.spark.commit.commits import taken

        version, _ = self._state()
        self._check_set_back(version)
        self._check_nodes(ledger)
        sessions = {rows.sparkSession, type(self._spark).active()}
        for session in sessions:
            session.conf.unset(_VERSION)
        write = (
            self._fitting(rows)
            .write.format("delta")
            .mode("append")
            .option("txnAppId", self.fence)
            .option("txnVersion", str(ledger.sequence))
            .option("userMetadata", self._words(ledger, seen=version, **beside))
            .option("mergeSchema", "true")
        )
        if version < 0:
            write = write.partitionBy(*self._partitions)
            searched = [one for one in self._searched if one in rows.columns]
            if searched:
                write = write.option(_SEARCHED, ",".join(searched))
        try:
            write.save(self.name)
        except (Py4JError, PySparkException) as why:
            if "ConcurrentTransactionException" in str(why):
                raise taken(self.name, ledger) from why
            raise
        made = [
            int(text)
            for session in sessions
            if (text := session.conf.get(_VERSION, None)) is not None
        ]
        # A write that Delta has skipped looks like any other.
        if not made:
            raise taken(self.name, ledger)
        self._seen = version + 1 if version + 1 in made else version
        self._added = version + 1, ledger.sequence

    def _fitting(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql.types import StructType

        _, snapshot = self._now()
        fields = StructType.fromJson(json.loads(snapshot.schema().json())).fields
        return fitted(rows, {one.name: one.dataType.simpleString() for one in fields})

    def overwrite(self, day: str, make: Callable[[DataFrame], DataFrame]) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        write = (
            self._fitting(make(self._all_rows().where(f"date = '{day}'")))
            .write.format("delta")
            .mode("overwrite")
            .option("replaceWhere", f"date = '{day}'")
            .option("mergeSchema", "true")
        )
        if (words := self._carried()) is not None:
            write = write.option("userMetadata", words)
        try:
            write.save(self.name)
        except (Py4JError, PySparkException) as why:
            if "Concurrent" in str(why):
                raise Broken(f"{self.name}: {day} was changed meanwhile") from why
            raise

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

    def added(self) -> DataFrame:
        from pyspark.sql import DataFrame

        version, number = self._added
        # As Delta has it since our commit: nobody lists the log for it.
        log = self._log().forTable(self._spark._jsparkSession, self.name)  # noqa: SLF001
        if (snapshot := log.unsafeVolatileSnapshot()).version() < version:
            log, snapshot = self._now()
        java: Any = self._spark._jvm  # noqa: SLF001
        files = self._files_of(log, snapshot, version, number)
        none = java.scala.Option.empty()
        found = log.createDataFrame(
            *(snapshot, java.PythonUtils.toSeq(files), False, none)
        )
        # Which is that of the stream, while a batch is taken.
        session = type(self._spark)(self._spark.sparkContext, found.sparkSession())
        return DataFrame(found, session)

    def _files_of(
        self, log: Any, snapshot: Any, version: int, number: int
    ) -> list[Any]:
        """The files of the commit with our *number*, which is *version* or a later one.

        Others commit beside us, and Delta's own compaction (`autoCompact`) right behind.
        """
        delta: Any = self._spark._jvm.org.apache.spark.sql.delta  # type: ignore[union-attr]  # noqa: SLF001
        place = delta.util.DeltaCommitFileProvider.apply(snapshot)
        for each in range(version, int(snapshot.version()) + 1):
            path, reach = place.deltaFile(each), log.newDeltaHadoopConf()
            lines = log.store().read(path, reach).mkString("\n").split("\n")
            found: dict[str, list[tuple[str, Any]]] = {"txn": [], "add": []}
            for line in lines:
                for kind, said in json.loads(line).items():
                    found.setdefault(kind, []).append((line, said))
            if any(
                (one["appId"], one["version"]) == (self.fence, number)
                for _, one in found["txn"]
            ):
                self._divided = [one["partitionValues"] for _, one in found["add"]]
                return [delta.actions.Action.fromJson(line) for line, _ in found["add"]]
        raise Broken(f"the log of {log.dataPath()} has no commit {number} of ours")

    def spread(self, most: int) -> Mapping[str, Collection[str]]:
        parts = [[f"{key}={one}" for key, one in by.items()] for by in self._divided]
        return values_of(parts) if len(set(map(tuple, parts))) > most else {}

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
        with self._carrying({_LISTING: "8"}):
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

    @contextlib.contextmanager
    def _carrying(self, settings: Mapping[str, str] | None = None) -> Iterator[None]:
        """Commits of the session carry all ledgers on meanwhile, under these *settings*."""
        words = self._carried()
        more = {**(settings or {}), **({} if words is None else {_WORDS: words})}
        conf = self._spark.conf
        before = {key: conf.get(key, None) for key in more}
        for key, value in more.items():
            conf.set(key, value)
        try:
            yield
        finally:
            for key, was in before.items():
                conf.unset(key) if was is None else conf.set(key, was)

    def _bound_log(self) -> None:
        """A commit a minute for a month, as Delta keeps by itself, is too many to list."""
        rows = self._spark.sql(f"SHOW TBLPROPERTIES delta.`{self.name}`").collect()
        if _LOG_KEPT not in {row.key for row in rows}:
            self._spark.sql(
                f"ALTER TABLE delta.`{self.name}` SET TBLPROPERTIES"
                f" ('{_LOG_KEPT}' = 'interval {_LEAST_DAYS} days')"
            )

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


_COMMIT = re.compile(r"(\d{20})\.json")
_COMMITS = 50
"""The commits that are looked at; others than the job commit, too."""

#: Numbers that readers look for rows by, beside protocol and date: files are not sorted,
#: so that each has all hosts and channels.
_LOOKED_FOR = ("event_time", "received_at", "lsn")


class _Delta(Format):
    name = extra = "delta"
    abilities = Format.abilities | {"partitions"}
    version = "4.4.0"
    jars: ClassVar = {
        minor: f"io.delta:delta-spark_{minor}_2.13:4.4.0" for minor in ("4.1", "4.2")
    }
    needs = "io.delta.sql.DeltaSparkSessionExtension"
    conf: ClassVar = {
        "spark.sql.extensions": needs,
        "spark.sql.catalog.spark_catalog": (
            "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        ),
        # By default fifty tasks read each state of a log.
        "spark.databricks.delta.snapshotPartitions": "1",
        # By default ten thousand tasks look for files that a VACUUM may remove.
        _LISTING: "32",
    }
    excludes = (
        "org.apache.hadoop:hadoop-client-api",
        "org.apache.hadoop:hadoop-client-runtime",
        "io.unitycatalog:unitycatalog-client",
        "io.unitycatalog:unitycatalog-hadoop",
        "org.apache.parquet:parquet-hadoop",
        "org.apache.logging.log4j:log4j-core",
        "org.apache.logging.log4j:log4j-api",
        "org.apache.logging.log4j:log4j-slf4j2-impl",
        "com.github.luben:zstd-jni",
        "com.fasterxml.jackson.core:jackson-databind",
        "com.fasterxml.jackson.core:jackson-core",
        "com.fasterxml.jackson.core:jackson-annotations",
        "com.fasterxml.jackson.datatype:jackson-datatype-jdk8",
        "org.slf4j:slf4j-api",
        "org.xerial.snappy:snappy-java",
        "commons-logging:commons-logging",
    )
    beside = ("delta-spark_", "delta-storage-")

    def misfits(self, spark: Spark) -> Iterator[tuple[Place, str]]:
        yield from super().misfits(spark)
        if spark.table is not None and "/" not in spark.table:
            yield ("table",), f"must be a path or URL, not {spark.table!r}"
        for one in spark.partition_by:
            if not one.isidentifier():
                yield ("partition_by",), f"must be names of columns, not {one!r}"
            elif one in _IN_FILES:
                why = f"can not be {one}, which the audit reads in the files"
                yield ("partition_by",), why

    def counts(self, config: Any, spark: Any) -> DeltaTable:
        return DeltaTable(spark, stats_of(_url(config), config.spark.job or ""))

    def events(self, config: Any, spark: Any, name: str = "") -> DeltaTable:
        url, job = _url(config), config.spark.job or ""
        if name:
            url = f"{url.rpartition('/')[0]}/{name}"
        divided = config.spark.partition_by
        return DeltaTable(spark, url, _LOOKED_FOR, divided, job)

    def files(
        self, lake: Path, told: Mapping[str, str], access: Access
    ) -> Iterator[tuple[str, str | None]]:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        from gateway.audit.remote import path_of

        for url in of_each(told, "table"):
            path = path_of(url)
            options = None if path is not None else storage_options(access)
            try:
                table = DeltaTable(path or url, storage_options=options)
            except TableNotFoundError:  # before the first batch
                continue
            yield from _files(table)


def _files(table: Any) -> Iterator[tuple[str, str | None]]:
    """The files of a table of deltalake, and how rows of each are deleted."""
    import pyarrow as pa

    found: dict[str, str | None] = dict.fromkeys(table.file_uris())
    if "deletionVectors" in (table.protocol().reader_features or ()):
        names = {_path(name): name for name in found}
        for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
            for name in batch.column("filepath").to_pylist():
                found[names.get(_path(name), name)] = (
                    "a deletion vector. REORG TABLE … APPLY (PURGE) puts that into"
                    " the files"
                )
    yield from found.items()


def _url(config: Any) -> str:
    url = str(config.spark.table or config.data_dir / "lake" / "delta" / "events")
    return f"file://{url}" if url.startswith("/") else url


def storage_options(access: Access) -> dict[str, str]:
    """How deltalake reaches a table in object storage."""
    plain = (access.endpoint or "").startswith("http://")
    options = {
        "AWS_ENDPOINT_URL": access.endpoint,
        "AWS_REGION": access.region,
        "AWS_ACCESS_KEY_ID": access.access_key_id,
        "AWS_SECRET_ACCESS_KEY": access.secret_access_key,
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(access.virtual_hosted).lower(),
        "AWS_ALLOW_HTTP": "true" if plain else None,
    }
    return {key: one for key, one in options.items() if one is not None}


def _path(name: str) -> str:
    """The same for a path and for the URL that is made of it."""
    return unquote(name.partition("://")[2] or name)


kind = _Delta()
