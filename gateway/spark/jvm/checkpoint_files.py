"""A checkpoint's files made by Java itself: `CheckpointFiles.java` for a query that begins.

Hadoop has them made by programs, which cost as much as a small batch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.spark.jvm.compiled import compiled
from gateway.spark.jvm.given import settings_of
from gateway.spark.jvm.session import CHECKPOINT_FILES, FILES_OF_CHECKPOINTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_SOURCE = Path(__file__).with_name("CheckpointFiles.java")
_CLASS = "gateway.spark.CheckpointFiles"


def begin(spark: SparkSession, writer: DataStreamWriter) -> StreamingQuery:
    """Start the query of *writer*, whose checkpoint is a folder of this machine.

    Raises what Spark raises.
    """
    before = spark.conf.get(CHECKPOINT_FILES, None)
    given = settings_of(spark)
    jars = any(f"spark.jars{more}" in given for more in ("", ".packages"))
    # Jars are found by the loader of the thread, which would be another one.
    if before != FILES_OF_CHECKPOINTS or jars:
        return writer.start()  # as the user has it
    java: Any = spark._jvm  # noqa: SLF001
    thread = java.java.lang.Thread.currentThread()
    loader = thread.getContextClassLoader()
    # A query's threads look for classes where the thread does that started it, and it has
    # the settings of that moment; other queries know nothing of the class.
    code = [_SOURCE.read_text("utf-8")]
    thread.setContextClassLoader(compiled(spark, code))
    spark.conf.set(CHECKPOINT_FILES, _CLASS)
    try:
        return writer.start()
    finally:
        spark.conf.set(CHECKPOINT_FILES, before)
        thread.setContextClassLoader(loader)
