"""Parquet files whose names and sizes are known, as rows: they are not looked for.

Spark asks for each path whether it is there, lists it, and asks once more.  In a bucket
these are four requests a file, one after the other, before a task begins.  A spool's files
are known, and never change; so Spark's index of files is given what it would find.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BLOCK_BYTES = 128 << 20
"""The size of a block that Hadoop takes where there are none."""


def rows(
    spark: SparkSession, folder: str, sizes: Mapping[str, int], ddl: str
) -> DataFrame:
    """The rows of the files in *folder*, a URL, by their names; *ddl* has their columns.

    No request is made for them before a task reads.  Raises what Spark raises.
    """
    java: Any = spark._jvm  # noqa: SLF001
    session: Any = spark._jsparkSession  # noqa: SLF001
    hadoop = java.org.apache.hadoop.fs
    sources = java.org.apache.spark.sql.execution.datasources
    types = java.org.apache.spark.sql.types
    place = hadoop.Path(folder)
    system = place.getFileSystem(session.sessionState().newHadoopConf())
    place = system.makeQualified(place)
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
    known = sources.FileStatusCache.getOrCreate(session)
    # Each is a root of its own: an index is equal to another one with the same roots, and a
    # batch must not be taken for the one before, which somebody may have cached.
    roots = []
    for name, size in sizes.items():
        path = hadoop.Path(place, name)
        found = gateway.new_array(hadoop.FileStatus, 1)
        found[0] = hadoop.FileStatus(size, False, 1, _BLOCK_BYTES, 0, path)
        known.putLeafFiles(path, found)
        roots.append(path)
    schema, none = types.StructType.fromDDL(ddl), java.scala.Option.empty()
    options = java.PythonUtils.toScalaMap({})
    index = sources.InMemoryFileIndex(
        session,
        java.PythonUtils.toSeq(roots),
        options,
        java.scala.Option.apply(schema),
        *(known, none, none),
    )
    known.invalidateAll()  # it is one of all sessions, and keeps what it has
    relation = sources.HadoopFsRelation(
        index,
        types.StructType(),
        schema,
        none,
        sources.parquet.ParquetFileFormat(),
        options,
        session,
    )
    return DataFrame(session.baseRelationToDataFrame(relation), spark)
