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
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    Written,
    fitted,
    number_of,
    persistently,
    take_newest,
    values_of,
)
from gateway.tables import TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from gateway.audit.remote import Access
    from gateway.config.model import Spark
    from gateway.sdk.section import Place

#: Delta's own answer to whether a write has committed something.
_VERSION = "spark.databricks.delta.lastCommitVersionInSession"
_SEARCHED = "delta.dataSkippingStatsColumns"
_INDEXED = "delta.dataSkippingNumIndexedCols"
_WORDS = "spark.databricks.delta.commitInfo.userMetadata"
_AT_ONCE = "spark.sql.maxConcurrentOutputFileWriters"
_OPEN = 32
"""Files of a batch of few days that a task has open; for more its rows are sorted."""
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
_STAGED = "_staged"
"""The folder of a batch's files below the table of events; Delta takes it for no data."""
_RENAMES = 8
"""Files that are renamed at once."""
_PLAIN = frozenset(
    (
        *("appendOnly", "invariants", "deletionVectors", "domainMetadata"),
        *("typeWidening", "v2Checkpoint", "vacuumProtocolCheck"),
    )
)
"""Features of a table with which its files are what Spark makes of rows."""


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
        self._wanted: Any = ()
        """The columns of the batch that was made to fit."""
        self._fitted: Any = None
        """The table's snapshot then."""
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
        from gateway.spark.commit.commits import taken

        version, _ = self._state()
        self._check(version, ledger)
        sessions = {rows.sparkSession, type(self._spark).active()}
        for session in sessions:
            session.conf.unset(_VERSION)
        write = (
            self._writer(self._fitting(rows), version)
            .option("txnAppId", self.fence)
            .option("txnVersion", str(ledger.sequence))
            .option("userMetadata", self._words(ledger, seen=version, **beside))
        )
        with self._fenced(ledger):
            write.save(self.name)
        made = [
            int(text)
            for session in sessions
            if (text := session.conf.get(_VERSION, None)) is not None
        ]
        # A write that Delta has skipped looks like any other.
        if not made:
            raise taken(self.name, ledger)
        self._note(version, made, ledger)

    def _check(self, version: int, ledger: Ledger) -> None:
        """Raise `Broken` where that of *ledger* can not be the next commit, behind *version*."""
        self._check_set_back(version)
        self._check_nodes(ledger)

    def _note(self, version: int, made: Sequence[int], ledger: Ledger) -> None:
        """Note a commit, which was *made* on that *version* or a later one."""
        self._seen = version + 1 if version + 1 in made else version
        self._added = version + 1, ledger.sequence

    @contextlib.contextmanager
    def _fenced(self, ledger: Ledger) -> Iterator[None]:
        """Raise `Broken` for a commit where another job has made this one meanwhile."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from gateway.spark.commit.commits import taken

        try:
            yield
        except (Py4JError, PySparkException) as why:
            if "ConcurrentTransactionException" in str(why):
                raise taken(self.name, ledger) from why
            raise

    def _writer(self, rows: DataFrame, version: int) -> Any:
        """A write that appends *rows*, and makes the table and its columns."""
        write = rows.write.format("delta").mode("append").option("mergeSchema", "true")
        if version < 0:
            write = write.partitionBy(*self._partitions)
            if searched := self._searched_in(rows.columns):
                write = write.option(_SEARCHED, searched)
        return write

    def _searched_in(self, columns: Collection[str]) -> str:
        return ",".join(one for one in self._searched if one in columns)

    def fit(self, rows: DataFrame) -> Mapping[str, str]:
        self._wanted = rows.schema
        _, self._fitted = self._now()
        return self._types(self._fitted)

    @staticmethod
    def _types(snapshot: Any) -> dict[str, str]:
        from pyspark.sql.types import StructType

        fields = StructType.fromJson(json.loads(snapshot.schema().json())).fields
        return {one.name: one.dataType.simpleString() for one in fields}

    def alike(self) -> Any:
        """The columns that its files are divided by.

        None where only Delta's own writer knows what is to be written: the table has names of
        columns of its own in files, or constraints.
        """
        snapshot = self._fitted
        if int(snapshot.version()) < 0:
            return tuple(self._partitions)
        said = snapshot.protocol().implicitlyAndExplicitlySupportedFeatures()
        features = {str(one.name()) for one in _listed(said.toSeq())}
        if features - _PLAIN or '"nullable":false' in snapshot.schema().json():
            return None
        return tuple(_listed(snapshot.metadata().partitionColumns()))

    def write(
        self, rows: DataFrame, tables: Mapping[str, DeltaTable], *, few: bool
    ) -> Mapping[str, Written]:
        """Have Delta write them as one table, divided by `table` first; its log is not written.

        The files then get their names below their own tables.  What a crash leaves is
        removed with the next batch, or by VACUUM.
        """
        from pyspark.sql.types import StructField, StructType

        from gateway.spark.commit.one_pass import active

        java: Any = self._spark._jvm  # noqa: SLF001
        delta = java.org.apache.spark.sql.delta
        as_seq, none = java.PythonUtils.toSeq, java.scala.Option.empty()
        staged = f"{self.name}/{_STAGED}"
        log = self._log().forTable(self._spark._jsparkSession, staged)  # noqa: SLF001
        transaction = log.startTransaction(none, none)
        schema = StructType(
            [StructField(one.name, one.dataType) for one in rows.schema]
        )
        metadata, default = delta.actions.Metadata, "apply$default${}"
        settings = java.java.util.HashMap()
        for key, text in self._settings(rows.columns).items():
            settings.put(key, text)
        transaction.updateMetadataForNewTable(
            metadata.apply(
                *(getattr(metadata, default.format(n))() for n in range(1, 5)),
                schema.json(),
                as_seq([TABLE, *(self.alike() or ())]),
                java.PythonUtils.toScalaMap(settings),
                none,
            )
        )
        at_once = {_AT_ONCE: str(_OPEN)} if few else {}
        with self._under(at_once), active(self._spark):
            files = transaction.writeFiles(rows._jdf)  # noqa: SLF001
        reach = log.newDeltaHadoopConf()
        found = _named(java, files, staged, tables, reach)
        path = java.org.apache.hadoop.fs.Path(staged)
        path.getFileSystem(reach).delete(path, True)
        return found

    def _settings(self, columns: Collection[str]) -> dict[str, str]:
        """The table's properties that say which columns Delta has statistics of."""
        snapshot = self._fitted
        if int(snapshot.version()) < 0:
            searched = self._searched_in(columns)
            return {_SEARCHED: searched} if searched else {}
        there = snapshot.metadata().configuration()
        found = {key: there.get(key) for key in (_SEARCHED, _INDEXED)}
        return {key: str(one.get()) for key, one in found.items() if one.isDefined()}

    def commit(self, written: Written, ledger: Ledger, *, beside: Words) -> None:
        persistently(
            lambda: self._commit(written.files, ledger, beside=beside), _CONFLICT
        )

    def _commit(self, files: Sequence[str], ledger: Ledger, beside: Words) -> None:
        """Commit *files*, which are as the log has them."""
        from gateway.spark.commit.commits import taken

        java: Any = self._spark._jvm  # noqa: SLF001
        delta = java.org.apache.spark.sql.delta
        as_seq, none = java.PythonUtils.toSeq, java.scala.Option.empty()
        log, snapshot = self._now()
        there = self._types(snapshot)
        if any(one.name not in there for one in self._wanted):
            self._make_columns(int(snapshot.version()))
            log, snapshot = self._now()
        version = int(snapshot.version())
        self._check(version, ledger)
        option = java.scala.Option.apply
        transaction = log.startTransaction(none, option(snapshot))
        if transaction.txnVersion(self.fence) >= ledger.sequence:
            raise taken(self.name, ledger)
        now = option(int(time.time() * 1000))
        fence = delta.actions.SetTransaction.apply(self.fence, ledger.sequence, now)
        words = self._words(ledger, seen=version, **beside)
        operation = getattr(delta, "DeltaOperations$Write")(
            java.org.apache.spark.sql.SaveMode.Append,
            *(none, none, option(words), none, none, none, none, none),
        )
        adds = [delta.actions.Action.fromJson(line) for line in files]
        with self._fenced(ledger):
            made = transaction.commit(as_seq([fence, *adds]), operation)
        self._note(version, [int(made)], ledger)

    def _make_columns(self, version: int) -> None:
        """Make the table, or columns of it, in a commit of their own behind *version*."""
        rows = self._spark.createDataFrame([], self._wanted)
        write = self._writer(rows, version)
        if (words := self._carried()) is not None:
            write = write.option("userMetadata", words)
        write.save(self.name)

    def _fitting(self, rows: DataFrame) -> DataFrame:
        _, snapshot = self._now()
        return fitted(rows, self._types(snapshot))

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


def _named(
    java: Any, files: Any, staged: str, tables: Mapping[str, DeltaTable], reach: Any
) -> dict[str, Written]:
    """The *files* that were written to *staged*, once they have their names in *tables*."""
    lines: dict[str, list[str]] = {name: [] for name in tables}
    rows = dict.fromkeys(tables, 0)
    moves = []
    for file in _listed(files):
        said = json.loads(file.json())
        add = said["add"]
        name = add["partitionValues"].pop(TABLE)
        old, new = f"{staged}/{add['path']}", add["path"].partition("/")[2]
        add["path"] = new
        lines[name].append(json.dumps(said, separators=(",", ":")))
        rows[name] += int(json.loads(add["stats"])["numRecords"])
        moves.append((old, f"{tables[name].name}/{new}"))
    path, uri = java.org.apache.hadoop.fs.Path, java.java.net.URI
    system = path(staged).getFileSystem(reach)
    for folder in {goal.rpartition("/")[0] for _, goal in moves}:
        system.mkdirs(path(uri(folder)))

    def move(old: str, new: str) -> None:
        if not system.rename(path(uri(old)), path(uri(new))):
            raise Broken(f"{old} could not be renamed to {new}")

    # A file system of objects copies them.
    with ThreadPoolExecutor(_RENAMES) as threads:
        list(threads.map(lambda pair: move(*pair), moves))
    return {name: Written(rows[name], lines[name]) for name in tables}


def _listed(found: Any) -> list[Any]:
    """A sequence of Scala's."""
    return [found.apply(n) for n in range(found.size())]


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
        for place, given in spark.partitions():
            for one in given:
                if not one.isidentifier():
                    yield place, f"must be names of columns, not {one!r}"
                elif one in _IN_FILES:
                    yield place, f"can not be {one}, which the audit reads in the files"

    def counts(self, config: Any, spark: Any) -> DeltaTable:
        return DeltaTable(spark, stats_of(_url(config), config.spark.job or ""))

    def events(self, config: Any, spark: Any, name: str = "") -> DeltaTable:
        url, job = _url(config), config.spark.job or ""
        if name:
            url = f"{url.rpartition('/')[0]}/{name}"
        return DeltaTable(spark, url, _LOOKED_FOR, self.partitions(config, name), job)

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
