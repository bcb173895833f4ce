"""`spark.sink: iceberg`: its catalog, its settings, and who reads its files without Spark.

What a commit is says `gateway.sinks.iceberg_table`.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gateway.sinks.iceberg_table import IcebergTable
from gateway.sinks.words import numbered, of_each
from gateway.spark.commit.formats import Format, has_class, jars_in, merged, stats_of
from gateway.spark.commit.ledger import Broken

if TYPE_CHECKING:
    from gateway.audit.remote import Access
    from gateway.config.spark import Spark
    from gateway.sdk.section import Place

#: The catalog where `spark.table` names none, below the lake: a file of SQLite.
_CATALOG = "lake"
_SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"
#: The job, and what maintains or reads the table beside it, wait for each other.
_BUSY_MS = "60000"
_DATABASE = "catalog.db"
_PARTITION = re.compile(
    r"[^\W\d]\w*|(years|months|days|hours)\(\w+\)|(bucket|truncate)\(\d+, ?\w+\)"
)
_TABLE = re.compile(r"\w+(\.\w+){2,}")
_METADATA = re.compile(r"v(\d+)(\.gz)?\.metadata\.json(\.gz)?")
#: How deletions get into the files, where missing rows are seen.
_REWRITE = (
    "CALL system.rewrite_data_files(…, options => map('delete-file-threshold', '1'))"
    " puts that into the files"
)


class _Iceberg(Format):
    name = extra = "iceberg"
    abilities = Format.abilities | {"bloom", "partitions"}
    version = "1.11.0"
    jars: ClassVar = {"4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"}
    needs = "org.apache.iceberg.spark.SparkCatalog"
    conf: ClassVar = {
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
    }
    beside = ("iceberg-spark-runtime-",)

    def misfits(self, spark: Spark) -> Iterator[tuple[Place, str]]:
        yield from super().misfits(spark)
        if spark.table is not None and not _TABLE.fullmatch(spark.table):
            yield (
                ("table",),
                f"must be catalog.namespace.table, not {spark.table!r}",
            )
        for place, given in spark.partitions():
            for one in given:
                if not _PARTITION.fullmatch(one):
                    like = (
                        "must be columns, hours(COLUMN), bucket(16, COLUMN) or the like"
                    )
                    yield place, f"{like}, not {one!r}"

    def settings(self, spark: Any, data_dir: Path, version: str) -> dict[str, str]:
        """Settings as `Kind` says: a catalog in SQLite, unless the user has one of that name.

        Tables of earlier commits have a catalog of folders, and keep it.
        """
        found = super().settings(spark, data_dir, version)
        key = f"spark.sql.catalog.{_CATALOG}"
        if key in spark.conf:
            return found
        warehouse = (data_dir / "lake" / "iceberg").absolute()
        found |= {key: self.needs, f"{key}.warehouse": f"file://{warehouse}"}
        if _in_folders(warehouse, spark):
            return {**found, f"{key}.type": "hadoop"}
        if spark.jars_directory is None:
            found = merged(found, {"spark.jars.packages": _SQLITE})
        else:
            jars_in(Path(spark.jars_directory), _SQLITE)
        warehouse.mkdir(parents=True, exist_ok=True)  # SQLite makes no folder
        with contextlib.suppress(OSError):  # Spark says what is wrong with a catalog
            _check_place(warehouse, _name(spark))
        return found | {
            f"{key}.type": "jdbc",
            f"{key}.uri": f"jdbc:sqlite:{warehouse / _DATABASE}",
            f"{key}.jdbc.schema-version": "V1",
            f"{key}.jdbc.busy_timeout": _BUSY_MS,
        }

    def check(self, spark: Any) -> None:
        super().check(spark)
        uri = spark.conf.get(f"spark.sql.catalog.{_CATALOG}.uri", "") or ""
        if uri.startswith("jdbc:sqlite:") and not has_class(spark, "org.sqlite.JDBC"):
            raise Broken(
                "spark.sink: iceberg: Spark was started without the driver of its catalog:"
                f" give spark-submit --packages {_SQLITE} as well, or name a catalog of your"
                " own in spark.conf"
            )

    def counts(self, config: Any, spark: Any) -> IcebergTable:
        name = stats_of(_name(config.spark), config.spark.job or "")
        return IcebergTable(spark, name, order=("window_start",))

    def events(self, config: Any, spark: Any, name: str = "") -> IcebergTable:
        whole = _name(config.spark)
        return IcebergTable(
            spark,
            f"{whole.rpartition('.')[0]}.{name}" if name else whole,
            order=("event_time", "host"),
            partitions=self.partitions(config, name),
            blooms=config.spark.bloom_filters,
            job=config.spark.job or "",
        )

    def files(
        self, lake: Path, told: Mapping[str, str], access: Access
    ) -> Iterator[tuple[str, str | None]]:
        from pyiceberg.table import StaticTable

        from gateway.audit.remote import path_of

        # None before the first batch.
        for metadata in of_each(told, "metadata"):
            path, where, how = path_of(metadata), metadata, {}
            if path is None:
                how = properties(access)
            else:
                where = _newest(path)
            try:
                tasks = list(StaticTable.from_metadata(where, how).scan().plan_files())
            except (
                ValueError,
                NotImplementedError,
            ) as why:  # deletes that name no rows
                raise OSError(
                    f"rows are deleted in a way that the audit does not read ({why})."
                    f" {_REWRITE}"
                ) from None
            for task in tasks:
                deletes = ", ".join(sorted(one.file_path for one in task.delete_files))
                yield task.file.file_path, f"{deletes}. {_REWRITE}" if deletes else None

    def access(self, spark: Spark) -> Mapping[str, str]:
        catalog = f"spark.sql.catalog.{_name(spark).partition('.')[0]}"
        keys = {
            "endpoint": f"{catalog}.s3.endpoint",
            "region": f"{catalog}.client.region",
            "access_key_id": f"{catalog}.s3.access-key-id",
            "secret_access_key": f"{catalog}.s3.secret-access-key",
        }
        return {
            field: str(spark.conf[key])
            for field, key in keys.items()
            if key in spark.conf
        }


def _name(spark: Any) -> str:
    return str(spark.table or f"{_CATALOG}.gateway.events")


def _in_folders(warehouse: Path, spark: Spark) -> bool:
    """Whether the table is there, in a catalog of folders."""
    table = warehouse.joinpath(*_name(spark).split(".")[1:])
    return (table / "metadata" / "version-hint.text").exists()


def _check_place(warehouse: Path, name: str) -> None:
    """Raise `Broken` where the catalog came from elsewhere, and names files there.

    A job at a copy would write, and remove, those of the first one.  Raises OSError.
    """
    space, _, table = name.partition(".")[2].rpartition(".")
    told = _location(warehouse / _DATABASE, space, table)
    if told is None or Path(told).resolve().is_relative_to(warehouse.resolve()):
        return
    raise Broken(
        f"{warehouse / _DATABASE}: the files of {name} are those of {Path(told).parent.parent},"
        " as Iceberg names files by their whole path. Move data_dir back to where it was"
    )


def _newest(told: Path) -> str:
    """The newest description of a table, by that which the job told of.

    It lies beside that one, or our own catalog has its name.  Where another catalog has it,
    only that knows: then it is that of our last commit, which has every event of ours.
    """
    if _METADATA.fullmatch(told.name):
        return str(next(iter(numbered(told.parent, _METADATA)), told))
    table = told.parent.parent
    for above in told.parents[3:]:
        if (database := above / _DATABASE).exists():
            space = ".".join(table.parent.relative_to(above).parts)
            return _location(database, space, table.name) or str(told)
    return str(told)


def _location(database: Path, namespace: str, table: str) -> str | None:
    """The path of a table's description, as a catalog of SQLite has it; None: it has none.

    Raises OSError.
    """
    from gateway.audit.remote import path_of

    query = (
        "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ?"
        " AND table_namespace = ? AND table_name = ?"
    )
    read = f"{database.as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(read, uri=True)) as catalog:
            found = catalog.execute(query, (_CATALOG, namespace, table)).fetchone()
    except sqlite3.Error as why:
        raise OSError(f"{database}: {why}") from None
    path = path_of(str(found[0])) if found else None
    return None if path is None else str(path)


def properties(access: Access) -> dict[str, str]:
    """How pyiceberg reaches a table in object storage."""
    told = {
        "s3.endpoint": access.endpoint,
        "s3.region": access.region,
        "s3.access-key-id": access.access_key_id,
        "s3.secret-access-key": access.secret_access_key,
        "s3.force-virtual-addressing": str(access.virtual_hosted).lower(),
    }
    return {key: one for key, one in told.items() if one is not None}


kind = _Iceberg()
