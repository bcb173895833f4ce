"""`spark.sink: delta`: its settings, and who reads its files without Spark.

What a commit is says `gateway.sinks.delta_table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from gateway.sinks.delta_log import LISTING
from gateway.sinks.delta_table import DeltaTable
from gateway.sinks.words import of_each
from gateway.spark.commit.formats import Format, stats_of

if TYPE_CHECKING:
    from gateway.audit.remote import Access
    from gateway.config.spark import Spark
    from gateway.sdk.section import Place

#: Delta's files do not have the columns that they are divided by.
_IN_FILES = ("node", "incarnation", "lsn", "flaw")

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
        LISTING: "32",
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
            # It encodes the folder's name, and not what is below it.
            root = table.table_uri.removeprefix("file://").rstrip("/")
            for name, deleted in _files(table):
                here = path is not None and name.startswith(root)
                yield f"{path}{name.removeprefix(root)}" if here else name, deleted


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
