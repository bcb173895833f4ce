"""What Spark needs to read a spool in a bucket: Hadoop's `s3a` file system, and how to reach
the bucket.

hadoop-aws must be of the version of Spark's own Hadoop.  It asks for the whole SDK of AWS,
642 MB; four of its modules, some 50 jars of 18 MB together, do all that is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import SecretStr

    from gateway.config import model

__all__ = ["UnknownSpark", "settings"]

#: By Spark's version: those of its Hadoop, and of the SDK that hadoop-aws is built with.
_VERSIONS = {
    "4.1": ("3.4.2", "2.29.52"),
    "4.2": ("3.5.0", "2.35.4"),
    "4.3": ("3.5.0", "2.35.4"),
}
_MODULES = ("s3", "s3-transfer-manager", "sts", "apache-client")
_S3A = "spark.hadoop.fs.s3a."


class UnknownSpark(ValueError):
    """Nobody has tried which hadoop-aws fits this version."""


def settings(spool: model.Spool, spark_version: str) -> Mapping[str, str]:
    """Settings of a session that reads this spool; nothing if it is a directory.

    *spark_version* as `pyspark.__version__` has it.  The jars come from Maven at the first
    start, unless `spark.jars` has them.  Raises `UnknownSpark`.
    """
    if spool.bucket is None:
        return {}
    minor = ".".join(spark_version.split(".")[:2])
    if minor not in _VERSIONS:
        known = ", ".join(_VERSIONS)
        raise UnknownSpark(
            f"Spark {spark_version}: which hadoop-aws fits it is known for {known}; set "
            "spark.jars.packages yourself, or take one of these"
        )
    hadoop, sdk = _VERSIONS[minor]
    sdk_modules = [f"software.amazon.awssdk:{one}:{sdk}" for one in _MODULES]
    s3 = spool.s3
    endpoint = s3.endpoint or ""
    chosen = {
        "endpoint": s3.endpoint,
        "endpoint.region": s3.region,
        "path.style.access": "false" if s3.virtual_hosted else "true",
        "connection.ssl.enabled": "false" if endpoint.startswith("http://") else "true",
        "access.key": _plain(s3.access_key_id),
        "secret.key": _plain(s3.secret_access_key),
    }
    return {
        "spark.jars.packages": ",".join(
            [f"org.apache.hadoop:hadoop-aws:{hadoop}", *sdk_modules]
        ),
        "spark.jars.excludes": "software.amazon.awssdk:bundle",
        **{f"{_S3A}{key}": one for key, one in chosen.items() if one is not None},
    }


def _plain(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
