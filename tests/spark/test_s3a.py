"""What Spark is told so that it can read a spool in a bucket."""

from __future__ import annotations

import pytest

from gateway.config import model
from gateway.config.bucket import BucketUrl
from gateway.spark import s3a
from gateway.testing.settings import options_of

_S3A = "spark.hadoop.fs.s3a."


def spool(**s3: object) -> model.Spool:
    return options_of(
        model.Spool,
        directory=BucketUrl("bucket", "prefix"),
        s3=options_of(model.S3, **s3),
    )


def test_a_directory_needs_nothing() -> None:
    """No jar is fetched."""
    assert s3a.settings(model.Spool(), "4.3.0") == {}


@pytest.mark.parametrize(
    ("spark", "hadoop"), [("4.1.4", "3.4.2"), ("4.2.0", "3.5.0"), ("4.3.0", "3.5.0")]
)
def test_the_jars_are_those_of_sparks_hadoop(spark: str, hadoop: str) -> None:
    """And the SDK without its bundle."""
    found = s3a.settings(spool(), spark)
    packages = found["spark.jars.packages"].split(",")
    assert packages[0] == f"org.apache.hadoop:hadoop-aws:{hadoop}"
    assert len(packages) == 5
    assert found["spark.jars.excludes"] == "software.amazon.awssdk:bundle"


def test_another_spark_is_refused() -> None:
    """A pair that does not fit fails in the middle of something."""
    with pytest.raises(s3a.UnknownSpark, match=r"5\.0\.1.*4\.1, 4\.2, 4\.3"):
        s3a.settings(spool(), "5.0.1")


def test_the_bucket_is_reached_as_the_gateway_does() -> None:
    """By server, region and key; without a key Spark finds one as the gateway does."""
    server = {"endpoint": "http://127.0.0.1:9000", "region": "eu"}
    key = {"access_key_id": "KEY", "secret_access_key": "SECRET"}
    found = s3a.settings(spool(**server, **key), "4.3.0")
    assert {
        name.removeprefix(_S3A): value
        for name, value in found.items()
        if name.startswith(_S3A)
    } == {
        "endpoint": "http://127.0.0.1:9000",
        "endpoint.region": "eu",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": "KEY",
        "secret.key": "SECRET",
    }
    assert not {name for name in s3a.settings(spool(), "4.3.0") if "key" in name}
