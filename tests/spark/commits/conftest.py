"""One session for both formats, which needs a Spark that fits their jars: `make long ONLY=lowest` has one."""

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from format_tables import KINDS, SIZE, World, reached
from gateway.config import model
from gateway.config.bucket import BucketUrl
from gateway.spark.commit.formats import merged
from gateway.spark.files import s3a
from gateway.spark.jvm import session
from gateway_testkit.settings import options_of
from played_spark import SparkLogs
from small_s3 import SmallS3, small_s3

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.explainMode": "simple",
}
"""Here are many plans of few rows: compiling each took a third of the CPU.  What a job has
compiled commits in `test_lost_executors.py`."""


@pytest.fixture(scope="session", params=sorted(KINDS))
def sink(request) -> str:
    """The format: each has its tests behind each other, and of two processes most in one."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def server() -> Iterator[SmallS3]:
    """A bucket that the session reaches."""
    with small_s3() as server:
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory, server) -> Iterator[Any]:
    """One session for both formats, with two more catalogs: of folders, and in SQLite."""
    home = tmp_path_factory.mktemp("catalog")
    more: dict[str, str] = {}
    for name, kind in KINDS.items():
        asked = SimpleNamespace(sink=name, jars_directory=None, conf={}, table=None)
        more = merged(more, kind.settings(asked, home, pyspark.__version__))
    folders, catalog = "spark.sql.catalog.folders", "spark.sql.catalog.sqlite"
    more |= {
        folders: "org.apache.iceberg.spark.SparkCatalog",
        f"{folders}.type": "hadoop",
        f"{folders}.warehouse": f"file://{home}/folders",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{home}/catalog.db",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": f"file://{home}/sqlite",
    }
    spool = options_of(
        model.Spool,
        directory=BucketUrl("bucket", "spool"),
        s3=reached(server),
    )
    more = merged(more, s3a.settings(spool, pyspark.__version__))
    asked = SimpleNamespace(
        master="local[2]", driver_memory="1536m", ui=False, conf=INTERPRETED
    )
    try:
        running = session.start(asked, home / "warehouse", more)
    except Exception as why:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"Spark did not start; are its jars out of reach? {why}")
    yield running
    running.stop()


@pytest.fixture
def world(sink, spark, config, logs, spool, tmp_path) -> World:
    config.spark.sink = sink
    config.spark.table = None
    if sink == "iceberg":
        config.spark.table = f"lake.{tmp_path.name.replace('-', '_')}.events"
    for batch in range(3):
        spool.events("gw", 1 + batch * SIZE, SIZE)
    made = World(logs("events"), spool, spark, config)
    made.logs.begin()
    return made


@pytest.fixture
def beside(world, make_config, make_spool, tmp_path) -> World:
    """Another job on its table, with a data directory, a prefix and a name of its own."""
    data, spark = tmp_path / "beside", world.config.spark
    config = make_config(data)
    config.spark.sink = spark.sink
    config.spark.table = spark.table or str(tmp_path / "data/lake/delta/events")
    config.spark.job = "b"
    spool = make_spool(data / "spool")
    for batch in range(3):
        spool.events("far", 1 + batch * SIZE, SIZE)
    made = World(SparkLogs(data / "checkpoint/events"), spool, world.spark, config)
    made.logs.begin()
    return made
