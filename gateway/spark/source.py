"""The stream of a spool directory.

    from gateway.spark.source import gateway_stream
    events = gateway_stream(spark, "/var/lib/gateway/archive")

A job of yours is a consumer (`gateway.spark.consumer`), for which files stay until it has
them.  The session should have the settings of `gateway.spark.jvm.session`, page checksums above all.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.config.bucket import SCHEME, parse_bucket_url
from gateway.spark.files import footers
from gateway.store.names import odd_for_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: `gateway.event.SCHEMA` in Spark's words.
SCHEMA_DDL = (
    "node string, lsn bigint, received_at timestamp, protocol string, listener string,"
    " session string, peer string, principal string, channel string, kind string,"
    " seq bigint, content_type string, payload binary,"
    " attributes map<string, string>, flaw string"
)

#: Spark plans a batch for about a millisecond a file, and begins no row before.
MANY_FILES = 2000

#: So many files say how well all that wait are compressed.
_LOOKED_AT = 16

_LSN = "[0-9]" * 20


def gateway_stream(
    spark: SparkSession,
    spool: str | os.PathLike[str],
    *,
    max_files: int | None = None,
    max_bytes: int | None = None,
) -> DataFrame:
    """The events that arrive in *spool*, with the columns of `gateway.event.SCHEMA`.

    That is a directory, or `s3://bucket/prefix` (see `gateway.spark.files.s3a`).
    A micro-batch takes at most *max_files* files or *max_bytes* bytes (one of them;
    Spark knows no both).  Raises ValueError for a path that Spark can not read.
    """
    place = os.fspath(spool)
    in_bucket = place.startswith(SCHEME)
    if odd := odd_for_spark(place.removeprefix(SCHEME)):
        raise ValueError(f"{spool}: Spark can not read a path with {odd}")
    if max_files and max_bytes:
        raise ValueError("a micro-batch is limited in files or in bytes, not in both")
    reader = (
        spark.readStream.schema(SCHEMA_DDL)
        .option("pathGlobFilter", f"events-*-{_LSN}-{_LSN}.parquet")
        # By default a file a week older than the newest is dropped without a word:
        # one clock that was wrong once would lose every later file.  With this age,
        # ten thousand years, a file is found whatever its time.
        .option("maxFileAge", "3650000d")
    )
    if max_files:
        reader = reader.option("maxFilesPerTrigger", str(max_files))
    if max_bytes:
        reader = reader.option("maxBytesPerTrigger", str(max_bytes))
    if in_bucket:
        return reader.parquet(parse_bucket_url(place).hadoop)
    return reader.parquet(url(Path(spool)))


def spool_of(config: Any) -> Path:
    """The directory that the job reads: the spool, or the inbox of one in a bucket."""
    spool = config.spool
    name = spool.folder if spool.bucket is None else "inbox"
    return Path(config.data_dir / name)


def limit_of(spool: Path, max_bytes: int) -> dict[str, int]:
    """How much a micro-batch should take, as arguments of `gateway_stream`.

    *max_bytes* in memory; Spark counts those on disk, which are fewer by how well they are
    compressed.  But `MANY_FILES` while more wait that are so small that this is less.
    """
    with os.scandir(spool) as found:
        # As Spark's own filter has it, but for the digits: most of a week's are looked at.
        waiting = [
            one
            for one in found
            if one.name.startswith("events-") and one.name.endswith(".parquet")
        ]
    sizes = []
    for one in waiting:
        with contextlib.suppress(FileNotFoundError):
            sizes.append(one.stat().st_size)
    few = waiting[:: 1 + len(waiting) // _LOOKED_AT]
    factor = footers.expansion(Path(one.path) for one in few)
    if len(sizes) > MANY_FILES:
        if sum(heapq.nlargest(MANY_FILES, sizes)) * factor <= max_bytes:
            return {"max_files": MANY_FILES}
    elif sum(sizes) * factor <= max_bytes:
        return {"max_bytes": max_bytes}
    # In coarse steps: whenever it changes the query begins anew.
    most = max(1, max_bytes // 4 ** math.ceil(math.log(factor, 4)))
    return {"max_bytes": most}


def url(path: Path) -> str:
    """*path* for Spark, whatever file system it takes for the default one."""
    return f"file://{path.absolute()}"
