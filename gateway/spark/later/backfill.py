"""Makes columns of rows that are in the tables already, out of their `body`.

Files keep the columns that they were written with.  Those that lack one of today's, or have
it of another type, are written anew, a day after the other (`days`).  All else in such a
file stays as it is.

Columns that are named are made anew in all files, as their paths may have changed; one that
the configuration has no more is taken out.  A day whose files all have them as they
should be is not touched, so after a crash the same command goes on where it was.

    filled            the rows, for any kind of tables
    overwrite_days    the transform of tables of Delta and Iceberg
    Folders           the transform of `spark.sink: parquet`
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f

from gateway.config.columns import RESERVED
from gateway.event import SCHEMA
from gateway.sdk.arrow import footer_of, schema_of
from gateway.spark.commit import partition
from gateway.spark.commit.lakedisk import LakeDisk
from gateway.spark.commit.ledger import Broken, Ledger
from gateway.spark.commit.shared import WIDEN, promoted
from gateway.spark.later.days import (
    Change,
    Day,
    Rewritten,
    overwrite,
    rewrite,
    write_by_spark,
)
from gateway.spark.rows import tables
from gateway.spark.rows.columns import EVENT_TIME, Columns
from gateway.spark.source import SCHEMA_DDL
from gateway.store.readers.lake import INTERNAL
from gateway.store.system.lock import Locked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from gateway.spark.commit.shared import Table

#: The columns of before, while those of today are made; of these none begins with a digit.
_KEPT = "0kept"

#: Spark's types, as files have them.
_IN_FILES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "date": pa.date32(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def _in_files(kind: str) -> pa.DataType | None:
    """A type of Spark's in a file; None: only the column's name is looked at."""
    if kind.startswith("decimal"):
        return pa.decimal128(*map(int, kind[8:-1].split(",")))
    if kind.startswith("array"):
        return pa.list_(pa.field("element", _IN_FILES[kind[6:-1]]))
    return _IN_FILES.get(kind)


def layout(spark: SparkSession, body: str, columns: Columns) -> dict[str, str]:
    """The columns of the tables today, those of the folders' names apart, and their types as
    Spark names them.
    """
    none = tables.events(spark.createDataFrame([], SCHEMA_DDL), body, columns)
    return _of_files({one.name: one.dataType.simpleString() for one in none.schema})


def _of_files(types: Mapping[str, str]) -> dict[str, str]:
    return {name: types[name] for name in types if name not in tables.PARTITIONS}


def check_names(
    names: Collection[str], columns: Columns, known: Collection[str]
) -> None:
    """Raise `Broken` for a name that is no column of the configuration, nor *known* as one
    of before; and for one that is not made out of what was sent.
    """
    ours = {*columns.names(), EVENT_TIME}
    for name in sorted(names):
        if name in ours:
            continue
        if name in RESERVED:
            raise Broken(f"{name}: not a column of spark.columns; it stays as it is")
        if name not in known:
            raise Broken(f"{name}: no column of spark.columns, nor of the tables")


def filled(
    rows: DataFrame, body: str, columns: Columns, anew: Collection[str]
) -> DataFrame:
    """*rows* of a table with today's columns; those in *anew*, and those that they lack, are
    made out of what was sent.

    Others stay as they are, also such as today's configuration does not have, unless they
    are in *anew*.
    """
    there = set(rows.columns)
    sent = rows.withColumn(_KEPT, f.struct(*[f.col(name) for name in rows.columns]))
    if "payload" not in there:
        sent = sent.withColumn("payload", f.lit(None).cast("binary"))
    sent = sent.withColumn("payload", f.coalesce(f.col("payload"), _body(rows)))
    envelope = sent.select(*SCHEMA.names, "incarnation", _KEPT)
    made = tables.events(envelope, body, columns, carried=(_KEPT,))
    new = [name for name in made.columns if name not in ("table", _KEPT)]
    making = {name for name in new if name in anew or name not in there}
    if EVENT_TIME in making:
        making.add("event_time_source")
    chosen = {
        name: f.col(name) if name in making else f.col(_KEPT).getField(name)
        for name in new
    }
    if "misfits" in there:
        chosen["misfits"] = _misfits(making)
    for name in rows.columns:
        if name not in chosen and name not in anew:
            chosen[name] = f.col(_KEPT).getField(name)
    return made.select(*[value.alias(name) for name, value in chosen.items()])


def _body(rows: DataFrame) -> Any:
    (kind,) = [one.dataType.typeName() for one in rows.schema if one.name == "body"]
    text = f.to_json("body") if kind == "variant" else f.col("body")
    return f.encode(text, "UTF-8")


def _misfits(making: Collection[str]) -> Any:
    """The misfits of before, and of the columns that are made."""
    made = f.array(*[f.lit(name) for name in sorted(making)])

    def names(column: Any) -> Any:
        return f.split(f.coalesce(column, f.lit("")), ",")

    both = f.concat(
        f.array_except(names(f.col(_KEPT).getField("misfits")), made),
        f.array_intersect(names(f.col("misfits")), made),
    )
    return f.nullif(f.concat_ws(",", f.array_remove(both, "")), f.lit(""))


def overwrite_days(
    spark: SparkSession,
    config: Any,
    called: str,
    table: Table,
    names: Collection[str],
) -> Iterator[Rewritten]:
    """Make the columns *names* anew in the table *called* so of Delta or Iceberg, a day a commit.

    Which rows never had a column such a table does not say, so they must be named.  Raises
    `Broken`, and what Spark raises.
    """
    columns = Columns.of(config.spark).of_table(called)
    types = layout(spark, config.spark.body, columns)
    there = {one.name: one.dataType.simpleString() for one in table.rows().schema}
    check_names(names, columns, there)
    if not names:
        raise Broken(
            f"{table.name}: say which columns: null in old rows looks alike, whether there"
            " was no value or no column"
        )
    for name in sorted(names):
        if name not in types:
            raise Broken(f"{name}: ALTER TABLE {table.name} DROP COLUMN takes it out")
        if not promoted(types[name], there.get(name, types[name])):
            raise Broken(
                f"{name} of {table.name} is {there[name]}, and spark.columns makes it"
                f" {types[name]}: take another name, or {WIDEN}"
            )
    body = config.spark.body
    said = ", ".join(sorted(names))
    for done in overwrite(
        spark, table, lambda rows: filled(rows, body, columns, names)
    ):
        yield replace(done, said=said)


class Folders:
    """The tables of `spark.sink: parquet`, or those of *tables*.

    *names* are columns that are made anew in all files; *types* are today's of all columns,
    where the job knows them.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Any,
        disk: LakeDisk,
        names: Collection[str] = (),
        tables: Collection[str] = (),
        types: Mapping[str, str] | None = None,
    ) -> None:
        # Its settings are those of the rows at hand, and the job has others.
        self._spark = spark.newSession()
        self._lake = config.data_dir / "lake"
        self._disk = disk
        self._body = config.spark.body
        self._columns = Columns.of(config.spark)
        self._names = frozenset(names)
        self._tables = frozenset(tables)
        self.types = (
            _of_files(types)
            if types
            else layout(self._spark, self._body, self._columns)
        )
        self._known: dict[tuple[Path, int], frozenset[str]] = {}

    def run(self) -> Iterator[Rewritten]:
        """All days, one after the other; then the ledger has the columns' types.

        Where one has another type now, or is taken out, the job must not run.  Raises
        `Busy`, `Broken`, OSError, and what Spark raises.
        """
        before = self._ledger().types
        check_names(self._names, self._columns, before)
        changing = self._changing(before)
        with ExitStack() as held:
            if changing and self._tables:
                raise Broken(
                    f"{', '.join(changing)}: a column has one type in all tables; make it"
                    " anew in all of them, without --table"
                )
            if changing:
                # A job that runs has the old types in hand, and writes files of them.
                try:
                    what = "gateway spark backfill"
                    held.enter_context(partition.without_job(self._lake, what))
                except Locked as why:
                    raise Broken(
                        f"{', '.join(changing)}: stop the job first, which writes files"
                        f" with this column as it was ({why})"
                    ) from None
            yield from self.fill_day(None)
            if changing:
                self._write_types()

    def fill_day(
        self, day: date | None, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Rewritten]:
        """Fill one day, or all; raises the same as `run`."""
        yield from rewrite(
            *(self._lake, self._disk, self._fill),
            wanted=lambda table, one: (
                day in (None, one) and (not self._tables or table in self._tables)
            ),
            stop=stop,
        )

    def _changing(self, before: Mapping[str, str]) -> list[str]:
        """Columns that the tables do not have any more as they had them *before*."""
        ours = {*self._columns.names(), EVENT_TIME}
        return [
            name
            for name, kind in sorted(before.items())
            if (name in ours and self.types[name] != kind)
            or (name in self._names and name not in self.types)
        ]

    def _fill(self, day: Day) -> Change | None:
        """The transform: files whose columns are not as they should be are written anew."""
        odd = {path: self._odd(path) for path in day.files}
        going = [path for path, columns in odd.items() if columns]
        if not going:
            return None
        staged, rows = day.begin(going), 0
        for group in partition.by_columns(going):
            anew, columns = odd[group[0]], self._columns.of_table(day.table)

            def make(
                rows: DataFrame,
                anew: Collection[str] = anew,
                columns: Columns = columns,
            ) -> DataFrame:
                return filled(rows, self._body, columns, anew)

            count = write_by_spark(self._spark, day, group, staged, make, "backfill")
            before = sum(footer_of(path).num_rows for path in group)
            if count != before:
                raise OSError(
                    f"{day.folder} has {before} rows, {count} were made of them"
                )
            rows += count
        made = ", ".join(sorted(set().union(*odd.values())))
        return Change(going, rows, f"{rows} rows, {made}")

    def _odd(self, path: Path) -> frozenset[str]:
        """The columns that a file lacks, has of another type, or has to give up."""
        key = path, path.stat().st_ino
        if key not in self._known:
            self._known[key] = self._compare(schema_of(path))
        return self._known[key]

    def _compare(self, schema: pa.Schema) -> frozenset[str]:
        ours = {*self._columns.names(), EVENT_TIME}
        found = {name for name in self.types if name not in schema.names}
        found |= {
            name
            for name in ours & set(schema.names) & self.types.keys()
            if schema.field(name).type
            != (_in_files(self.types[name]) or schema.field(name).type)
        }
        made = self._names & self.types.keys()
        return frozenset(found | made | self._names & set(schema.names))

    def _ledger(self) -> Ledger:
        return Ledger.load(self._disk, self._lake / INTERNAL / "events.json")

    def _write_types(self) -> None:
        """No job runs."""
        ledger = self._ledger()
        kept = {
            name: self.types.get(name, kind)
            for name, kind in ledger.types.items()
            if name in self.types or name not in self._names
        }
        path = self._lake / INTERNAL / "events.json"
        replace(ledger, types=kept).save(self._disk, path)
