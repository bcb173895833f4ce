"""Batches of one folder by a plan that Spark makes once, and not of each batch.

Spark takes 150 ms of CPU to plan a batch, whatever is in it: it analyses and optimises some
200 expressions, and writes Java of them.  That is the same for each batch, but for its files.
So a plan is kept, and each task asks it for the rows of files of its own (`Prepared.java`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.spark.commit.one_pass import java_type
from gateway.spark.rows.fields import array, compiled
from gateway.spark.source import url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SOURCE = Path(__file__).with_name("Prepared.java")


def compiled_task(spark: SparkSession) -> Any:
    """The constructor of `Prepared.java`, compiled: one for all plans of a session."""
    loader = compiled(spark, "gateway_prepared", [_SOURCE.read_text("utf-8")])
    (constructor,) = loader.loadClass("gateway.spark.Prepared").getConstructors()
    return constructor


class Prepared:
    """The plan of rows of spool files, for any files."""

    def __init__(self, spark: SparkSession, rows: DataFrame, task: Any) -> None:
        """*rows* are those of some file, with no shuffle; *task* is of `compiled_task`."""
        java: Any = spark._jvm  # noqa: SLF001
        session: Any = spark._jsparkSession  # noqa: SLF001
        schema = java_type(spark, rows.schema)
        job = java.org.apache.hadoop.mapreduce.Job.getInstance(
            session.sessionState().newHadoopConf()
        )
        parquet = java.org.apache.spark.sql.execution.datasources.parquet
        none = java.PythonUtils.toScalaMap({})
        made = parquet.ParquetFileFormat().prepareWrite(session, job, none, schema)
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
        self._task = task
        self._spark = spark
        self._rows = rows
        """The plan of Java goes with them, and with it what its tasks count."""

    def write(self, parts: Sequence[Any], folder: Path, tasks: int) -> None:
        """Write the rows of these *parts* of files into *folder*, a file a task.

        Raises what Spark raises.
        """
        java: Any = self._spark._jvm  # noqa: SLF001
        given = array(self._spark, java.Object, [self._made, url(folder)])
        each = self._task.newInstance(given)
        names = self._context.parallelize([*parts], tasks).mapPartitions(each)
        whole = {*names.collect()}
        for path in folder.glob("part-*"):
            if path.name not in whole:  # of an attempt that failed
                path.unlink()


def parts_of(rows: DataFrame) -> Any:
    """The parts of files that Spark makes tasks for *rows* of, an array of Java's."""
    return rows._jdf.queryExecution().toRdd().partitions()  # noqa: SLF001
