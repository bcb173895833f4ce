"""Hadoop's `s3a` file system, with which Spark reads a spool in a bucket.

hadoop-aws must be of the version of Spark's own Hadoop.  It asks for the whole SDK of AWS,
642 MB; four of its modules, some 50 jars of 18 MB together, do all that is needed.

`gateway spark` itself needs it on a cluster.  Its tasks run on machines that do not see the
driver's disk, so they read what the driver has fetched where it came from.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.sink import kind_of
from gateway.spark.commit import formats
from gateway.spark.commit.ledger import Broken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import SecretStr

    from gateway.config import model

#: By Spark's version: those of its Hadoop, and of the SDK that hadoop-aws is built with.
_VERSIONS = {
    "4.1": ("3.4.2", "2.29.52"),
    "4.2": ("3.5.0", "2.35.4"),
    "4.3": ("3.5.0", "2.35.4"),
}
_MODULES = ("s3", "s3-transfer-manager", "sts", "apache-client")
_OTHER_SDK = "iceberg-aws-bundle"
_JARS = ("spark.jars", "spark.jars.packages")
_BUNDLE = "software.amazon.awssdk:bundle"
#: Names, up to the version, of the jars that belong to hadoop-aws.
_BESIDE = tuple(f"{one}-2." for one in _MODULES)
_S3A = "spark.hadoop.fs.s3a."
_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"
#: A file is read whole, by one request for each 8 MiB; else by three, of which two are for
#: its footer.
_WHOLE = {"enabled": "true", "block.count": "2"}


class UnknownSpark(ValueError):
    """The hadoop-aws that fits this version was never tried."""


def settings(spool: model.Spool, spark_version: str) -> Mapping[str, str]:
    """Settings of a session that reads this spool; nothing if it is a directory.

    *spark_version* as `pyspark.__version__` has it.  The jars come from Maven at the first
    start, unless `spark.jars` has them.  Raises `UnknownSpark`.
    """
    if spool.bucket is None:
        return {}
    return {
        "spark.jars.packages": _packages(spark_version),
        "spark.jars.excludes": _BUNDLE,
        **_reached(spool.s3, spool.bucket.bucket),
    }


def for_tasks(config: Any, spark_version: str) -> Mapping[str, str]:
    """Settings of a session whose tasks read the spool's bucket, as `settings`.

    Nothing where they can read the driver's disk.  Raises `UnknownSpark`, `Broken`.
    """
    if not _elsewhere(config, config.spark.master):
        return {}
    found = dict(settings(config.spool, spark_version))
    # Catalogs name a table's files so.
    found["spark.hadoop.fs.s3.impl"] = _CLASS
    if config.spark.jars_directory is not None:
        hadoop, *_ = found.pop("spark.jars.packages").split(",")
        del found["spark.jars.excludes"]
        folder = Path(config.spark.jars_directory)
        found["spark.jars"] = formats.jars_in(folder, hadoop, _BESIDE)
    theirs = [str(config.spark.conf.get(key, "")) for key in _JARS]
    if any(_OTHER_SDK in jars for jars in (*theirs, found.get("spark.jars", ""))):
        raise Broken(
            f"{_OTHER_SDK} has another version of AWS's SDK than hadoop-aws, with which"
            " the cluster reads the spool, and whichever is found first breaks the other:"
            " leave it out, and set io-impl of the catalog (spark.conf) to"
            " org.apache.iceberg.hadoop.HadoopFileIO"
        )
    return found


def folder_for_tasks(config: Any, spark: Any) -> str | None:
    """Where the tasks of this session find the spool's files, a URL.

    None where they can read the driver's disk.  Raises `Broken` where they can not read
    the bucket either.
    """
    if not _elsewhere(config, spark.sparkContext.master):
        return None
    if not formats.has_class(spark, _CLASS):
        packages = _packages(spark.version)
        raise Broken(
            f"spark.master: {spark.sparkContext.master}: executors read the spool in"
            f" {config.spool.bucket}, and Spark was started without what reads it: give"
            f" spark-submit --packages {packages} --exclude-packages {_BUNDLE}"
        )
    folder: str = config.spool.bucket.hadoop
    return folder


def _elsewhere(config: Any, master: str) -> bool:
    """Whether tasks run where the driver's disk is not to be seen, and a bucket is."""
    return (
        config.spool.bucket is not None
        and "elsewhere" in kind_of(config.spark.sink).abilities
        and not master.startswith("local")
    )


def _packages(spark_version: str) -> str:
    minor = formats.minor(spark_version)
    if minor not in _VERSIONS:
        known = ", ".join(_VERSIONS)
        raise UnknownSpark(
            f"Spark {spark_version}: which hadoop-aws fits it is known for {known}; set "
            "spark.jars.packages yourself, or take one of these"
        )
    hadoop, sdk = _VERSIONS[minor]
    modules = [f"software.amazon.awssdk:{one}:{sdk}" for one in _MODULES]
    return ",".join([f"org.apache.hadoop:hadoop-aws:{hadoop}", *modules])


def _reached(s3: model.S3, bucket: str) -> Mapping[str, str]:
    endpoint = s3.endpoint or ""
    chosen = {
        "endpoint": s3.endpoint,
        "endpoint.region": s3.region,
        "path.style.access": "false" if s3.virtual_hosted else "true",
        "connection.ssl.enabled": "false" if endpoint.startswith("http://") else "true",
        "access.key": _plain(s3.access_key_id),
        "secret.key": _plain(s3.secret_access_key),
        **{f"bucket.{bucket}.prefetch.{key}": one for key, one in _WHOLE.items()},
    }
    return {f"{_S3A}{key}": one for key, one in chosen.items() if one is not None}


def _plain(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
