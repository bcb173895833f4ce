"""Batches of one folder by a plan that Spark makes once, and not of each batch.

Spark takes 150 ms of CPU to plan a batch, whatever is in it: it analyses and optimises some
200 expressions, and writes Java of them.  That is the same for each batch, but for its files.
So a plan is kept, and each task asks it for the rows of files of its own (`Prepared.java`).

The rows are put into columns by a writer of ours (`Columnar.java`), for half of what Spark's
own takes.  Where the user has other wishes of Parquet than it knows, Spark's writes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.spark.commit.one_pass import java_type
from gateway.spark.jvm.compiled import array, compiled
from gateway.spark.jvm.given import settings_of
from gateway.spark.source import url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("gateway.spark")

_SOURCES = [
    Path(__file__).with_name(f"{name}.java") for name in ("Columnar", "Prepared")
]

_PARQUET = ("spark.sql.parquet.", "spark.sql.variant.writeShredding.", "parquet.")
#: What `Columnar.java` asks for, what it does in its own way, or what is of readers alone.
_ANY = {
    "spark.sql.parquet.compression.codec",
    "spark.sql.parquet.columnarReaderBatchSize",
    "parquet.block.size",
    "parquet.block.size.row.check.max",
    "parquet.block.size.row.check.min",
    "parquet.compression",
    "parquet.dictionary.page.size",
    "parquet.enable.dictionary",
    "parquet.page.row.count.limit",
    "parquet.page.size",
    "parquet.page.size.row.check.max",
    "parquet.page.size.row.check.min",
    "parquet.page.verify-checksum.enabled",
    "parquet.page.write-checksum.enabled",
    "parquet.summary.metadata.level",
    "parquet.write.support.class",
}
_ANY_PREFIXES = ("parquet.enable.dictionary#", "parquet.compression.codec.")
#: What `Columnar.java` does, whatever these settings say: so they must say this.
_SO = {
    "spark.sql.variant.writeShredding.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "parquet.writer.version": "PARQUET_1_0",
}


class Task(NamedTuple):
    """A task of a plan, compiled once for all plans of a session."""

    write: Any
    """The method of `Prepared.java` that writes a batch."""
    writers: Any
    """The factory of our own writers of files."""


def compiled_task(spark: SparkSession) -> Task:
    """The task for plans of *spark*."""
    java: Any = spark._jvm  # noqa: SLF001
    code = [source.read_text("utf-8") for source in _SOURCES]
    loader = compiled(spark, code)
    methods = loader.loadClass("gateway.spark.Prepared").getMethods()
    (write,) = (one for one in methods if one.getName() == "write")
    (factory,) = loader.loadClass("gateway.spark.Columnar$Factory").getConstructors()
    return Task(write, factory.newInstance(array(spark, java.Object, [])))


def others(settings: Mapping[str, str]) -> list[str]:
    """The names of those *settings* that are wishes which only Spark's own writer fulfils.

    Names are those of Spark's `spark.sql.…`, and Hadoop's without any prefix.
    """
    return [
        name
        for name, value in settings.items()
        if name.startswith(_PARQUET)
        and not (name in _ANY or name.startswith(_ANY_PREFIXES))
        and _SO.get(name) != value
    ]


class Prepared:
    """The plan of rows of spool files, for any files."""

    def __init__(self, spark: SparkSession, rows: DataFrame, task: Task) -> None:
        """*rows* are those of some file, with no shuffle."""
        java: Any = spark._jvm  # noqa: SLF001
        session: Any = spark._jsparkSession  # noqa: SLF001
        schema = java_type(spark, rows.schema)
        job = java.org.apache.hadoop.mapreduce.Job.getInstance(
            session.sessionState().newHadoopConf()
        )
        parquet = java.org.apache.spark.sql.execution.datasources.parquet
        none = java.PythonUtils.toScalaMap({})
        # Spark's own factory makes the settings of the job, by which either writer goes.
        made = parquet.ParquetFileFormat().prepareWrite(session, job, none, schema)
        # Hadoop's are of its files (`core-site.xml`), of Spark's and of the session.
        hadoop = job.getConfiguration().getPropsWithPrefix("parquet.")
        entries = hadoop.entrySet().toArray()
        asked = {f"parquet.{one.getKey()}": one.getValue() for one in entries}
        self.others = others({**settings_of(spark), **asked})
        """Settings for which Spark's own writer is taken; none: ours."""
        if self.others:
            names = ", ".join(self.others)
            _log.info("Spark's own writer of Parquet is taken, for %s", names)
        else:
            made = task.writers
        settings = java.org.apache.spark.util.SerializableConfiguration
        found = planned = rows._jdf.queryExecution().toRdd()  # noqa: SLF001
        # Each finds out what it is made of before it is serialized, or never.
        while (below := found.dependencies()).nonEmpty():
            found = below.head().rdd()
        given = [planned, made, schema, settings(job.getConfiguration())]
        serialized = java.org.apache.spark.util.Utils.serialize(
            array(spark, java.Object, given)
        )
        self._context: Any = spark.sparkContext._jsc  # noqa: SLF001
        self._made = self._context.broadcast(serialized)
        self._write = task.write
        self._spark = spark
        self._rows = rows
        """The plan of Java goes with them."""

    def write(self, parts: Any, folder: Path, tasks: int) -> None:
        """Write the rows of these *parts* of files into *folder*, a file a task.

        They are an array of Java's (`parts_of`).  Raises what Spark raises.
        """
        java: Any = self._spark._jvm  # noqa: SLF001
        folder.mkdir(parents=True, exist_ok=True)
        given = [self._context, self._made, url(folder), parts, tasks]
        names = self._write.invoke(None, array(self._spark, java.Object, given))
        whole = {*names.split("\n")}
        for path in folder.glob("part-*"):
            if path.name not in whole:  # of an attempt that failed
                path.unlink()


def parts_of(rows: DataFrame) -> Any:
    """The parts of files that Spark makes tasks for *rows* of, an array of Java's."""
    execution = rows._jdf.queryExecution()  # noqa: SLF001
    plan = execution.logical()
    # Rows of a batch are there as such; Spark would plan and compile how to copy them.
    if plan.getClass().getSimpleName() == "LogicalRDD":
        return plan.rdd().partitions()
    return execution.toRdd().partitions()
