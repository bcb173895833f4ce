"""What Spark is told so that it can read a spool in a bucket."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.config import model
from gateway.config.bucket import BucketUrl
from gateway.spark.commit.ledger import Broken
from gateway.spark.files import s3a
from gateway_testkit.settings import options_of

_S3A = "spark.hadoop.fs.s3a."


def spool(**s3: object) -> model.Spool:
    return options_of(
        model.Spool,
        directory=BucketUrl("bucket", "prefix"),
        s3=options_of(model.S3, **s3),
    )


def test_a_directory_needs_nothing():
    """No jar is fetched."""
    assert s3a.settings(model.Spool(), "4.3.0") == {}


@pytest.mark.parametrize(
    ("spark", "hadoop"), [("4.1.4", "3.4.2"), ("4.2.0", "3.5.0"), ("4.3.0", "3.5.0")]
)
def test_the_jars_are_those_of_sparks_hadoop(spark, hadoop):
    """And the SDK without its bundle."""
    found = s3a.settings(spool(), spark)
    packages = found["spark.jars.packages"].split(",")
    assert packages[0] == f"org.apache.hadoop:hadoop-aws:{hadoop}"
    assert len(packages) == 5
    assert found["spark.jars.excludes"] == "software.amazon.awssdk:bundle"


def test_another_spark_is_refused():
    """A pair that does not fit fails in the middle of something."""
    with pytest.raises(s3a.UnknownSpark, match=r"5\.0\.1.*4\.1, 4\.2, 4\.3"):
        s3a.settings(spool(), "5.0.1")


def test_the_bucket_is_reached_as_the_gateway_does():
    """By server, region and key; without a key Spark finds one as the gateway does."""
    server = {"endpoint": "http://127.0.0.1:9000", "region": "eu"}
    key = {"access_key_id": "KEY", "secret_access_key": "SECRET"}
    found = s3a.settings(spool(**server, **key), "4.3.0")
    assert {
        name.removeprefix(_S3A): value
        for name, value in found.items()
        if name.startswith(_S3A) and ".prefetch." not in name
    } == {
        "endpoint": "http://127.0.0.1:9000",
        "endpoint.region": "eu",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": "KEY",
        "secret.key": "SECRET",
    }
    assert not {name for name in s3a.settings(spool(), "4.3.0") if "key" in name}


def job(master: str, sink: str = "iceberg", **more: Any) -> Any:
    """The configuration of a job that reads a bucket."""
    asked = {"master": master, "sink": sink, "jars_directory": None, "conf": {}}
    asked |= more
    return SimpleNamespace(spool=spool(), spark=SimpleNamespace(**asked))


class Session:
    """A running Spark, with these classes."""

    version = "4.1.4"

    def __init__(self, master: str, *classes: str) -> None:
        self.sparkContext = SimpleNamespace(master=master)
        self._classes = classes
        thread = SimpleNamespace(getContextClassLoader=lambda: self)
        java = SimpleNamespace(
            lang=SimpleNamespace(Thread=SimpleNamespace(currentThread=lambda: thread))
        )
        self._jvm = SimpleNamespace(java=java)

    def loadClass(self, name: str) -> None:
        if name not in self._classes:
            raise LookupError(name)


def test_tasks_of_a_cluster_read_the_bucket():
    """They see no disk of the driver's; on its own machine they need no jar for that."""
    config = job("spark://master:7077")
    scheme = {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    assert s3a.for_tasks(config, "4.1.4") == s3a.settings(spool(), "4.1.4") | scheme
    there = Session(config.spark.master, "org.apache.hadoop.fs.s3a.S3AFileSystem")
    assert s3a.folder_for_tasks(config, there) == "s3a://bucket/prefix"
    for near in (job("local[2]"), job("spark://master:7077", sink="parquet")):
        assert s3a.for_tasks(near, "4.1.4") == {}
        assert s3a.folder_for_tasks(near, Session(near.spark.master)) is None


def test_a_cluster_that_can_not_read_the_bucket_is_told_what_it_lacks():
    """Under spark-submit, whose command line decides."""
    config = job("local[2]")
    with pytest.raises(Broken, match=r"yarn.*s3://bucket/prefix.*hadoop-aws:3\.4\.2"):
        s3a.folder_for_tasks(config, Session("yarn"))


def test_jars_for_it_may_lie_in_a_folder(tmp_path):
    """Where there is no network; one that is missing is named."""
    config = job("spark://master:7077", jars_directory=tmp_path)
    names = [
        "hadoop-aws-3.4.2.jar",
        "s3-2.29.52.jar",
        "s3-transfer-manager-2.29.52.jar",
    ]
    names += ["sts-2.29.52.jar", "apache-client-2.29.52.jar"]
    for name in names:
        with pytest.raises(Broken, match=name.partition("-2.")[0]):
            s3a.for_tasks(config, "4.1.4")
        (tmp_path / name).touch()
    found = s3a.for_tasks(config, "4.1.4")
    assert set(found["spark.jars"].split(",")) == {
        (tmp_path / name).as_uri() for name in names
    }
    assert "spark.jars.packages" not in found


@pytest.mark.parametrize("where", ["spark.jars", "spark.jars.packages", "folder"])
def test_two_versions_of_an_sdk_are_refused(where, tmp_path):
    """Iceberg's bundle has its own: it depends on the order of jars what breaks."""
    bundle = "org.apache.iceberg:iceberg-aws-bundle:1.11.0"
    config = job("spark://master:7077", conf={where: bundle})
    if where == "folder":
        names = ("hadoop-aws-3.4.2", "s3-2.1", "s3-transfer-manager-2.1", "sts-2.1")
        for name in (*names, "apache-client-2.1", "iceberg-aws-bundle-1.11.0"):
            (tmp_path / f"{name}.jar").touch()
        config = job("spark://master:7077", jars_directory=tmp_path)
    with pytest.raises(Broken, match="HadoopFileIO"):
        s3a.for_tasks(config, "4.1.4")
    assert s3a.for_tasks(job("local[2]", conf={where: bundle}), "4.1.4") == {}
