"""Table formats: the jars that each needs, the Spark that fits them, its settings.

A jar of Delta or Iceberg fits one minor version of Spark.  With another one, rows may
be written that nothing can read: so versions are compared before anything is written.
Jars come from Maven Central, pinned, or from a folder where there is no network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.spark.ledger import Broken

__all__ = [
    "CATALOG",
    "FORMATS",
    "Format",
    "check",
    "jars_in",
    "merged",
    "settings",
]

#: Iceberg's catalog where `spark.conf` names none: folders below the lake.
CATALOG = "lake"


@dataclass(frozen=True)
class Format:
    """One table format, as far as Spark's start is concerned."""

    name: str
    """As `spark.sink` has it; also the name of the extra that chooses the Spark."""
    version: str
    jars: Mapping[str, str]
    """Maven coordinates, by minor version of Spark."""
    needs: str
    """A Java class that is there if the jars are."""
    conf: Mapping[str, str]
    excludes: tuple[str, ...] = ()
    """What Maven would bring and Spark has itself, mostly newer."""
    beside: tuple[str, ...] = ()
    """File names, up to the version, of the jars that belong to it."""

    def coordinate(self, spark: str) -> str:
        """The jar for Spark version *spark*.  Raises `Broken` where there is none."""
        minor = ".".join(spark.split(".")[:2])
        if minor not in self.jars:
            fits = " or ".join(sorted(self.jars))
            raise Broken(
                f"spark.sink: {self.name} needs Spark {fits} ({self.name} {self.version}"
                f" has no jar for another), this is {spark}: pip install"
                f" 'gateway[{self.name}]'"
            )
        return self.jars[minor]


FORMATS: Mapping[str, Format] = {
    "delta": Format(
        "delta",
        "4.4.0",
        {minor: f"io.delta:delta-spark_{minor}_2.13:4.4.0" for minor in ("4.1", "4.2")},
        "io.delta.sql.DeltaSparkSessionExtension",
        {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": (
                "org.apache.spark.sql.delta.catalog.DeltaCatalog"
            ),
            # By default fifty tasks read each state of a log.
            "spark.databricks.delta.snapshotPartitions": "1",
        },
        (
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
        ),
        ("delta-spark_", "delta-storage-"),
    ),
    "iceberg": Format(
        "iceberg",
        "1.11.0",
        {"4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"},
        "org.apache.iceberg.spark.SparkCatalog",
        {
            "spark.sql.extensions": (
                "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
            ),
        },
        beside=("iceberg-spark-runtime-",),
    ),
}

#: Settings that are lists: what the user has there stays beside ours.
_LISTS = (
    "spark.jars",
    "spark.jars.packages",
    "spark.jars.excludes",
    "spark.sql.extensions",
)


def settings(spark: Any, data_dir: Path, version: str) -> dict[str, str]:
    """What a session of Spark *version* needs for `spark.sink`; may be nothing.

    *spark* is the configuration's section.  Raises `Broken` where version or jars do
    not fit.
    """
    kind = FORMATS.get(spark.sink)
    if kind is None:
        return {}
    coordinate = kind.coordinate(version)
    # Counts of a batch are few rows; by default two hundred tasks add them up.
    found = {"spark.sql.shuffle.partitions": "4", **kind.conf}
    if spark.jars_directory is None:
        found["spark.jars.packages"] = coordinate
        if kind.excludes:
            found["spark.jars.excludes"] = ",".join(kind.excludes)
    else:
        folder = Path(spark.jars_directory)
        found["spark.jars"] = jars_in(folder, coordinate, kind.beside)
    if kind.name == "iceberg":
        found |= _catalog(spark, data_dir)
    return found


def jars_in(folder: Path, coordinate: str, beside: Sequence[str] = ()) -> str:
    """All jars of *folder*, as `spark.jars` has them.

    That of *coordinate* must be among them, and one for each name in *beside*, up to its
    version.  Raises `Broken`.
    """
    _, artifact, number = coordinate.split(":")
    wanted = f"{artifact}-{number}.jar"
    jars = sorted(folder.glob("*.jar"))
    # Ivy's own folder, from which they are copied, puts the group before the name.
    names = [path.name for path in jars]
    if not any(name == wanted or name.endswith(f"_{wanted}") for name in names):
        raise Broken(f"spark.jars_directory: {folder} has no {wanted} ({coordinate})")
    for start in beside:
        if not any(start in name for name in names):
            raise Broken(f"spark.jars_directory: {folder} has no {start}….jar")
    return ",".join(path.absolute().as_uri() for path in jars)


def _catalog(spark: Any, data_dir: Path) -> dict[str, str]:
    """A catalog of folders, unless the user has one of that name."""
    key = f"spark.sql.catalog.{CATALOG}"
    if key in spark.conf:
        return {}
    return {
        key: "org.apache.iceberg.spark.SparkCatalog",
        f"{key}.type": "hadoop",
        f"{key}.warehouse": f"file://{(data_dir / 'lake' / 'iceberg').absolute()}",
    }


def merged(ours: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """*own* over *ours*; of settings that are lists, both."""
    both = {**ours, **own}
    for name in _LISTS:
        if name in ours and name in own:
            parts = [*ours[name].split(","), *own[name].split(",")]
            both[name] = ",".join(dict.fromkeys(part.strip() for part in parts))
    return both


def check(spark: Any, sink: str) -> None:
    """Raise `Broken` unless the running session *spark* has what *sink* needs."""
    kind = FORMATS.get(sink)
    if kind is None:
        return
    coordinate = kind.coordinate(spark.version)
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # noqa: SLF001
    try:
        loader.loadClass(kind.needs)
    except Exception:  # py4j's, of a class that is not there
        raise Broken(
            f"spark.sink: {sink}: Spark was started without its jars: give spark-submit"
            f" --packages {coordinate}, with --exclude-packages of"
            " gateway.spark.formats, or --jars"
        ) from None
    extension = kind.conf["spark.sql.extensions"]
    if extension not in (spark.conf.get("spark.sql.extensions", "") or ""):
        raise Broken(
            f"spark.sink: {sink}: Spark was started without --conf"
            f" spark.sql.extensions={extension}"
        )
