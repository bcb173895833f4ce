"""One pass over a batch's rows into several tables whose format has writers for Spark's tasks.

That is Spark's interface of version 2 for sources: a table gives a factory of writers, and
commits what these say.  Spark itself writes to one table at a time.  `Divide.java`
has a writer open for each table in each task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.spark.commit.shared import Written
from gateway.spark.jvm.compiled import array, compiled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SOURCE = Path(__file__).with_name("Divide.java")


class Part(NamedTuple):
    """A table of such a pass."""

    factory: Any
    """The `DataWriterFactory` of Java."""
    columns: Sequence[str]
    """The columns that it has, in its order; the rows have them, too."""


def divide(
    spark: SparkSession, rows: DataFrame, column: str, parts: Mapping[str, Part]
) -> dict[str, Written]:
    """Write *rows*, whose table is in *column*; what was written, by table."""
    java: Any = spark._jvm  # noqa: SLF001
    names, there = list(parts), rows.columns
    catalyst = java.org.apache.spark.sql.catalyst
    projections = []
    for part in parts.values():
        at = java.PythonUtils.toSeq([there.index(name) for name in part.columns])
        schema = java_type(spark, rows.select(*part.columns).schema)
        projections.append(catalyst.ProjectingInternalRow(schema, at.toIndexedSeq()))
    factory = java.org.apache.spark.sql.connector.write.DataWriterFactory
    given = [
        there.index(column),
        array(spark, java.String, names),
        array(spark, factory, [part.factory for part in parts.values()]),
        array(spark, catalyst.ProjectingInternalRow, projections),
    ]
    code = [_SOURCE.read_text("utf-8")]
    loader = compiled(spark, code)
    (constructor,) = loader.loadClass("gateway.spark.Divide").getConstructors()
    each = constructor.newInstance(array(spark, java.Object, given))
    said = rows._jdf.queryExecution().toRdd().toJavaRDD().mapPartitions(each)  # noqa: SLF001
    found = {name: Written(0, []) for name in names}
    for number, count, message in said.collect().toArray():
        mine = found[names[number]]
        found[names[number]] = Written(mine.rows + count, [*mine.files, message])
    return found


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Java takes *spark* for the session of this thread; in a stream it has one of its own."""
    java: Any = spark._jvm  # noqa: SLF001
    sessions = java.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def java_type(spark: SparkSession, schema: Any) -> Any:
    """The *schema* as Java's Spark has it."""
    return spark._jsparkSession.parseDataType(schema.json())  # noqa: SLF001
