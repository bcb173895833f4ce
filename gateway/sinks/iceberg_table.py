"""Tables of Iceberg: a batch is staged, then published by its WAP id, once.

Iceberg appends never conflict, so a repeated one doubles.  Its own fence is the id of
write-audit-publish.  A batch is written as a hidden snapshot, with the id
`gateway-<number>`, and published by a step of metadata, which is refused for an id that
was published before.  The number is the ledger's `sequence`, so the fence outlives
checkpoints, and of two jobs that begin at one ledger only one gets through.  A job with a
name (`gateway.spark.commit.shared`) has `gateway/<name>/<number>`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gateway.sink import PARTITIONS
from gateway.sinks.iceberg_snapshots import LEDGER, NAMED, Snapshots
from gateway.spark.commit.ledger import Broken, Ledger, Ranges
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

_TOKEN = "gateway.token"  # noqa: S105 - tells our staged snapshot from another job's
_CONFLICT = re.compile("CommitFailedException|AlreadyExistsException")
"""Errors of a table, or a column of it, that was made by others meanwhile: ours is not seen."""

_BLOOM = "write.parquet.bloom-filter-enabled.column"

_PROPERTIES = {
    "write.wap.enabled": "true",
    # One task writes few partitions; no batch is sorted or shuffled for it.
    "write.distribution-mode": "none",
    "write.parquet.compression-codec": "zstd",
    # Several files are open at once, and an event may be large: `gateway.spark.files.heap`.
    "write.parquet.row-group-size-bytes": str(32 << 20),
    "write.parquet.row-group-check-min-record-count": "4",
    "write.parquet.row-group-check-max-record-count": "100",
    "write.metadata.delete-after-commit.enabled": "true",
    # Several jobs may commit at once, each within the time of another's commit.
    "commit.retry.num-retries": "20",
}


class IcebergTable(Snapshots):
    """The table *name*, `catalog.namespace.table`, for the job *job*.

    A table that begins here is divided by *partitions*; columns with *blooms* have filters.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        order: tuple[str, ...] = (),
        partitions: Sequence[str] = PARTITIONS,
        blooms: Sequence[str] = (),
        job: str = "",
    ) -> None:
        super().__init__(spark, name, order, job)
        self._partitions = partitions
        self._properties = _PROPERTIES | {f"{_BLOOM}.{name}": "true" for name in blooms}
        if job:
            self._properties[f"{NAMED}{job}"] = "true"
        self._furnished = False
        """Whether the table has the properties that we want of it."""

    def open(self) -> Ledger:
        from gateway.spark.commit.shared import Lost

        self._fields = None
        self._last = None
        self._seen = 0
        self.said = {}
        if not self._exists():
            return Ledger()
        table = self._table()
        self._complete(table)
        self._drop_staged(table)
        self._last = self._newest_number(table)
        current = table.currentSnapshot()
        if current is None:
            return Ledger()
        self._seen = int(current.sequenceNumber())
        found = self._newest()
        self._heed(found.values())
        events = sum(map(_rows_by, found.values()))
        rows = int(current.summary().get("total-records") or 0)
        mine = found.get(self.job)
        self.said = mine or {}
        # More rows: a newer ledger than one of these was removed.
        if rows > events or (mine is None and not found):
            number = max(current.sequenceNumber(), number_of(mine) if mine else 0)
            raise Lost(int(number))
        if mine is None:
            return Ledger()
        ledger = Ledger.of(mine, f"{self.name}, {LEDGER} of a snapshot")
        self._check_nodes(ledger)
        return ledger

    def _complete(self, table: Any) -> None:
        """Give a table that an earlier version or another job has made what it lacks."""
        self._furnished = True
        there = table.properties()
        wanted = self._properties
        lacking = {key: one for key, one in wanted.items() if key not in there}
        if lacking:
            update = table.updateProperties()
            for key, one in lacking.items():
                update.set(key, one)
            update.commit()
            table.refresh()

    def append(
        self,
        rows: DataFrame,
        ledger: Ledger,
        count: int | None = None,
        *,
        few: bool = False,
        beside: Words | None = None,
    ) -> None:
        said = beside or {}

        def stage() -> Any:
            fitting = self._fitting(rows)
            return lambda: self.stage(fitting, ledger, few=few, beside=said)

        persistently(lambda: self._publish(stage, ledger, count), _CONFLICT)

    def _publish(
        self,
        prepare: Callable[[], Callable[[], Any]],
        ledger: Ledger,
        count: int | None,
    ) -> None:
        """Stage and publish a commit, by what *prepare* gives."""
        from gateway.spark.commit.commits import taken

        stage = prepare()
        table = self._table()
        if not self._furnished:  # another job has made it since we looked
            self._complete(table)
        self._check_set_back(table)
        self._check_nodes(ledger)
        if self._published(table, ledger.sequence):
            raise taken(self.name, ledger)
        staged = stage()
        if count is not None:
            added = int(staged.summary().get("added-records") or 0)
            if added != count:
                self._expire(table, [staged])
                raise Broken(
                    f"{self.name}: {added} rows were staged of a batch of {count}; they"
                    " are not published. Is a file missing from the spool?"
                )
        self.publish(ledger, staged.snapshotId())

    def stage(
        self,
        rows: DataFrame,
        ledger: Ledger,
        *,
        few: bool = False,
        beside: Words | None = None,
    ) -> Any:
        """The hidden snapshot with these rows."""

        def append(words: Mapping[str, str]) -> None:
            write = self._write(rows, at_once=few and self.divided_as_usual())
            for key, text in words.items():
                write = write.option(key, text)
            write.append()

        return self._staged(append, rows.sparkSession, ledger, beside or {})

    def _staged(
        self,
        append: Callable[[Mapping[str, str]], None],
        session: SparkSession,
        ledger: Ledger,
        beside: Words,
    ) -> Any:
        """The hidden snapshot that *append* makes, which is given the words for it."""
        number, token = f"{self._id}{ledger.sequence}", secrets.token_hex(8)
        # Whichever of the two the writer asks.
        sessions = {session, type(self._spark).active()}
        for one in sessions:
            one.conf.set("spark.wap.id", number)
        said = {LEDGER: self._words(ledger, **beside), _TOKEN: token}
        try:
            append({f"snapshot-property.{key}": one for key, one in said.items()})
        finally:
            for one in sessions:
                one.conf.unset("spark.wap.id")
        # The newest is the last.
        snapshots = self._table().operations().current().snapshots()
        for index in reversed(range(snapshots.size())):
            words = snapshots.get(index).summary()
            if words.get(_TOKEN) == token and words.get("wap.id") == number:
                return snapshots.get(index)
        raise Broken(f"{self.name}: what was staged as {number} is gone")

    @property
    def fields(self) -> Mapping[str, Any]:
        """Spark's fields of its columns, once there is a table."""
        return self._fields or {}

    def fit(self, rows: DataFrame) -> Mapping[str, str]:
        self._fitting(rows)
        return {name: one.dataType.simpleString() for name, one in self.fields.items()}

    def alike(self) -> str:
        return "iceberg"

    def write(
        self, rows: DataFrame, tables: Mapping[str, IcebergTable], *, few: bool
    ) -> Mapping[str, Written]:
        from gateway.spark.commit import one_pass

        few = few and all(one.divided_as_usual() for one in tables.values())
        # A table may have columns that nobody asks for any more.
        rows = rows.selectExpr("*", *_lacking(rows, tables))
        if not few:
            rows = rows.sortWithinPartitions(*_order(tables))
        tasks = int(rows._jdf.queryExecution().toRdd().getNumPartitions())  # noqa: SLF001
        parts = {
            name: one_pass.Part(one.writers(rows, tasks, at_once=few), [*one.fields])
            for name, one in tables.items()
        }
        return one_pass.divide(self._spark, rows, TABLE, parts)

    def writers(self, rows: DataFrame, tasks: int, *, at_once: bool) -> Any:
        """Java's factory of writers to it."""
        write: Any = self._spark._jvm.org.apache.spark.sql.connector.write  # type: ignore[union-attr]  # noqa: SLF001
        options = {"fanout-enabled": "true" if at_once else "false"}
        batch = self._batch(options)
        return batch.createBatchWriterFactory(write.PhysicalWriteInfoImpl(tasks))

    def _batch(self, options: Mapping[str, str]) -> Any:
        """Java's write of a batch to it."""
        from pyspark.sql.types import StructType

        from gateway.spark.commit.one_pass import active, java_type

        java: Any = self._spark._jvm  # noqa: SLF001
        schema = java_type(self._spark, StructType([*self.fields.values()]))
        given = java.java.util.HashMap()
        for key, text in options.items():
            given.put(key, text)
        none = java.java.util.Optional.empty()
        told = java.org.apache.spark.sql.connector.write.LogicalWriteInfoImpl(
            secrets.token_hex(8),
            schema,
            java.org.apache.spark.sql.util.CaseInsensitiveStringMap(given),
            *(none, none),
        )
        source = java.org.apache.iceberg.spark.source.SparkTable(self._table())
        with active(self._spark):  # it knows the WAP id
            return source.newWriteBuilder(told).build().toBatch()

    def commit(self, written: Written, ledger: Ledger, *, beside: Words) -> None:
        from gateway.spark.jvm.compiled import array

        java: Any = self._spark._jvm  # noqa: SLF001
        message = java.org.apache.spark.sql.connector.write.WriterCommitMessage
        messages = array(self._spark, message, written.files)

        def stage() -> Any:
            return self._staged(
                lambda words: self._batch(words).commit(messages),
                self._spark,
                *(ledger, beside),
            )

        persistently(
            lambda: self._publish(lambda: stage, ledger, written.rows), _CONFLICT
        )

    def _write(self, rows: DataFrame, *, at_once: bool = False) -> Any:
        """Write *rows* one partition after the other, for which they are sorted, or all *at_once*.

        That saves sorting, with a file open for each: of a thousand no heap is left.
        """
        fanout = "true" if at_once else "false"
        return rows.writeTo(self.name).option("fanout-enabled", fanout)

    def divided_as_usual(self) -> bool:
        fields = self._table().spec().fields()
        return all(
            one.transform().isIdentity() and one.name() in PARTITIONS for one in fields
        )

    def divided_by(self) -> Iterator[str]:
        """The parts of its partitions, as SQL makes them of a row."""
        table = self._table()
        catalog = self.name.partition(".")[0]
        for field in table.spec().fields():
            column = f"`{table.schema().findColumnName(field.sourceId())}`"
            kind, _, width = str(field.transform().toString()).partition("[")
            if kind == "identity":
                yield column
            elif width:
                yield f"{catalog}.system.{kind}({width.rstrip(']')}, {column})"
            elif kind != "void":
                yield f"{catalog}.system.{kind}s({column})"

    def spread(self, most: int) -> Mapping[str, Collection[str]]:
        table = self._table()
        mine = self._last_snapshot(table)
        if int(mine.summary().get("changed-partition-count") or 0) <= most:
            return {}
        specs = table.specs()
        return values_of(
            str(specs.get(one.specId()).partitionToPath(one.partition())).split("/")
            for one in mine.addedDataFiles(table.io())
        )

    def publish(self, ledger: Ledger, snapshot: int) -> None:
        """Let everybody see a staged snapshot.  Raises `Broken` if that was done."""
        from py4j.protocol import Py4JJavaError

        from gateway.spark.commit.commits import taken

        table = self._table()
        self._check_set_back(table)
        self._check_nodes(ledger)
        try:
            table.manageSnapshots().cherrypick(snapshot).commit()
        except Py4JJavaError as why:
            table.refresh()
            if self._published(table, ledger.sequence):
                if not self._mine(table, snapshot):
                    self._expire(table, [table.snapshot(snapshot)])
                    raise taken(self.name, ledger) from why
            else:
                raise
        table.refresh()
        self._last = ledger.sequence
        current = table.currentSnapshot()
        self._seen = max(self._seen, int(current.sequenceNumber()) if current else 0)

    def overwrite(self, day: str, make: Callable[[DataFrame], DataFrame]) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as f

        where = f"date = date '{day}'"
        self._fitting(make(self._all_rows().where(where)))
        # Anew, for the table may have more columns by now.
        rows = self._fitting(make(self._all_rows().where(where)))
        table = self._table()
        snapshot = table.currentSnapshot().snapshotId()
        write = (
            self._write(rows)
            # Else rows that the job adds meanwhile would go with those of before.
            .option("isolation-level", "serializable")
            .option("validate-from-snapshot-id", str(snapshot))
        )
        if (words := self._carried()) is not None:
            write = write.option(f"snapshot-property.{LEDGER}", words)
        try:
            write.overwrite(f.expr(where))
        except (Py4JError, PySparkException) as why:
            if "conflicting files" in str(why):
                raise Broken(f"{self.name}: {day} was changed meanwhile") from why
            raise

    def added(self) -> DataFrame:
        mine = self._last_snapshot(self._table())
        if mine.parentId() is None:
            return self._all_rows()
        self._spark.sql(f"REFRESH TABLE {self.name}")
        between = self._spark.read.option("start-snapshot-id", str(mine.parentId()))
        return between.option("end-snapshot-id", str(mine.snapshotId())).table(
            self.name
        )

    def _fitting(self, rows: DataFrame) -> DataFrame:
        """*rows* with the table's columns in its order; makes those that it lacks."""
        from pyspark.sql import functions as f

        if not self._exists():
            self._create(rows)
            self._learn()
        elif int(self._table().schema().schemaId()) != self._schema:
            self._learn()
        assert self._fields is not None
        new = [field for field in rows.schema if field.name not in self._fields]
        if new:
            columns = ", ".join(_declared(field) for field in new)
            self._spark.sql(f"ALTER TABLE {self.name} ADD COLUMNS ({columns})")
            self._learn()
        there = set(rows.columns)
        types = {one.name: one.dataType.simpleString() for one in self._fields.values()}
        return fitted(rows, types).select(
            *(
                f.col(name)
                if name in there
                else f.lit(None).cast(field.dataType).alias(name)
                for name, field in self._fields.items()
            )
        )

    def _create(self, rows: DataFrame) -> None:
        space = self.name.rpartition(".")[0]
        if "." in space:
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {space}")
        columns = ", ".join(_declared(field) for field in rows.schema)
        properties = ", ".join(
            f"'{key}'='{value}'" for key, value in self._properties.items()
        )
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.name} ({columns}) USING iceberg"
            f" PARTITIONED BY ({', '.join(self._partitions)})"
            f" TBLPROPERTIES ({properties})"
        )
        self._complete(self._table())  # another job may have made it a moment before


def _lacking(rows: DataFrame, tables: Mapping[str, IcebergTable]) -> list[str]:
    """Columns of *tables* that *rows* have not, as null."""
    kinds = {
        name: one.dataType.simpleString()
        for table in tables.values()
        for name, one in table.fields.items()
    }
    there = set(rows.columns)
    return [
        f"cast(NULL AS {kind}) AS `{name}`"
        for name, kind in kinds.items()
        if name not in there
    ]


def _order(tables: Mapping[str, IcebergTable]) -> list[Any]:
    """The order of rows by which each table's come partition by partition."""
    from pyspark.sql import functions as f

    found: dict[str, list[str]] = {}
    for name, table in tables.items():
        for field in table.divided_by():
            found.setdefault(field, []).append(name)
    keys = []
    for field, names in found.items():
        mine = ", ".join(f"'{name}'" for name in names)
        only = f"CASE WHEN `{TABLE}` IN ({mine}) THEN {field} END"
        keys.append(f.expr(field if len(names) == len(tables) else only))
    return [f.col(TABLE), *keys]


def _rows_by(words: Words) -> int:
    """How many rows a job had committed by then: each event is one, where rules divide none."""
    events = len(Ranges(words["committed"])) + sum(words.get("closed", {}).values())
    return int(words.get("rows", events))


def _declared(field: Any) -> str:
    """A column as CREATE and ALTER TABLE have it."""
    return f"`{field.name}` {field.dataType.simpleString()}"
