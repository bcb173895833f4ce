"""Tables of Delta: a batch is one commit, with rows, number and ledger.

Delta knows writers by `txnAppId` and skips what comes with a `txnVersion` that this
writer has committed already.  Spark's own names are those of a query, which dies with its
checkpoint.  Ours is the same for ever, that of the job (`gateway.spark.commit.shared`), and
the version is the ledger's `sequence`.  So a repeated batch adds nothing whatever was lost,
and of two jobs that begin at one ledger one gets through.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from gateway.sink import PARTITIONS
from gateway.sinks.delta_log import DeltaLog
from gateway.spark.commit.ledger import Broken, Ledger
from gateway.spark.commit.shared import (
    Words,
    Written,
    fitted,
    number_of,
    persistently,
    values_of,
)
from gateway.tables import TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Delta's own answer to whether a write has committed something.
_VERSION = "spark.databricks.delta.lastCommitVersionInSession"
_SEARCHED = "delta.dataSkippingStatsColumns"
_INDEXED = "delta.dataSkippingNumIndexedCols"
_AT_ONCE = "spark.sql.maxConcurrentOutputFileWriters"
_OPEN = 32
"""Files of a batch of few days that a task has open; for more its rows are sorted."""
_CONFLICT = re.compile(
    r"(MetadataChanged|ProtocolChanged|ConcurrentWrite)Exception"
    r"|DELTA_(METADATA_CHANGED|PROTOCOL_CHANGED|CONCURRENT_WRITE)"
)
"""Errors of a table, or a column of it, that was made by others meanwhile: we did nothing."""
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


class DeltaTable(DeltaLog):
    """The table at *name*, a URL, for the job *job*."""

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
        super().__init__(spark, name, job)
        self._searched = searched
        self._partitions = partitions
        self._added = 0, -1
        """The version from which on the last `append` is, and its number."""
        self._divided: Sequence[Mapping[str, str]] = ()
        """The partition of each file of the last `append`, once they were read."""
        self._wanted: Any = ()
        """The columns of the batch that was made to fit."""
        self._fitted: Any = None
        """The table's snapshot then."""

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
        old = unquote(add["path"])
        add["path"] = add["path"].partition("/")[2]
        lines[name].append(json.dumps(said, separators=(",", ":")))
        rows[name] += int(json.loads(add["stats"])["numRecords"])
        goal = f"{tables[name].name}/{unquote(add['path'])}"
        moves.append((f"{staged}/{old}", goal))
    path = java.org.apache.hadoop.fs.Path
    system = path(staged).getFileSystem(reach)
    for folder in {goal.rpartition("/")[0] for _, goal in moves}:
        system.mkdirs(path(folder))

    def move(old: str, new: str) -> None:
        if not system.rename(path(old), path(new)):
            raise Broken(f"{old} could not be renamed to {new}")

    # A file system of objects copies them.
    with ThreadPoolExecutor(_RENAMES) as threads:
        list(threads.map(lambda pair: move(*pair), moves))
    return {name: Written(rows[name], lines[name]) for name in tables}


def _listed(found: Any) -> list[Any]:
    """A sequence of Scala's."""
    return [found.apply(n) for n in range(found.size())]
