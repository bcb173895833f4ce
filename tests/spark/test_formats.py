"""Which jars and settings Delta and Iceberg get, and which Spark is refused for them."""

import contextlib
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.sink import kind_of
from gateway.sinks.delta import kind as delta
from gateway.sinks.iceberg import kind as iceberg
from gateway.spark import job
from gateway.spark.commit.ledger import Broken
from gateway.spark.jvm import session

KINDS = {"delta": delta, "iceberg": iceberg}


def asked(sink: str, **more: Any) -> SimpleNamespace:
    """The configuration's section `spark`."""
    usual = {"master": "local[2]", "driver_memory": "1g", "ui": False}
    known = {"sink": sink, "jars_directory": None, "conf": {}, "table": None}
    known |= usual
    return SimpleNamespace(**known | more)


def settings(spark: SimpleNamespace, version: str) -> dict[str, str]:
    """What a session needs for its sink."""
    return kind_of(spark.sink).settings(spark, Path("/d"), version)


@pytest.mark.parametrize(
    ("sink", "spark", "jar"),
    [
        ("delta", "4.1.4", "io.delta:delta-spark_4.1_2.13:4.4.0"),
        ("delta", "4.2.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
        (
            "iceberg",
            "4.1.0",
            "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
        ),
    ],
)
def test_a_jar_is_that_of_the_spark(sink, spark, jar, tmp_path):
    """Pinned, and set by the job itself."""
    found = KINDS[sink].settings(asked(sink), tmp_path, spark)
    assert found["spark.jars.packages"].split(",")[0] == jar
    assert KINDS[sink].conf.items() <= found.items()


@pytest.mark.parametrize(
    ("sink", "spark", "words"),
    [
        ("delta", "4.3.0", "needs Spark 4.1 or 4.2 .* this is 4.3.0: pip install"),
        ("iceberg", "4.2.0", "needs Spark 4.1 .* this is 4.2.0: pip install"),
    ],
)
def test_another_spark_is_refused_before_it_starts(sink, spark, words):
    """A wrong pair writes what it can not read; the words name the extra to install."""
    with pytest.raises(Broken, match=words) as why:
        settings(asked(sink), spark)
    assert str(why.value).endswith(f"'gateway[{sink}]'")


def test_the_job_refuses_it(config, monkeypatch):
    """With no table made and no Java started."""
    monkeypatch.setattr("pyspark.__version__", "5.0.0")
    config.spark.sink = "delta"
    with pytest.raises(job.Failed, match=r"this is 5\.0\.0"):
        job.run(config)
    assert [path.name for path in (config.data_dir / "lake").iterdir()] == [".gateway"]


def test_without_network_jars_come_from_a_folder(tmp_path):
    """All of them, as Ivy names them too; a missing one is named."""
    folder = asked("delta", jars_directory=tmp_path)
    with pytest.raises(Broken, match=r"has no delta-spark_4\.1_2\.13-4\.4\.0\.jar"):
        settings(folder, "4.1.0")
    (tmp_path / "io.delta_delta-spark_4.1_2.13-4.4.0.jar").touch()
    with pytest.raises(Broken, match="has no delta-storage-"):
        settings(folder, "4.1.0")
    (tmp_path / "io.delta_delta-storage-4.4.0.jar").touch()
    found = settings(folder, "4.1.0")
    assert found["spark.jars"].split(",") == [
        path.as_uri() for path in sorted(tmp_path.iterdir())
    ]
    assert "spark.jars.packages" not in found


def test_what_the_user_sets_stays_beside_it():
    """Lists get both; a catalog of the user's goes over ours."""
    own = {
        "spark.jars.packages": "org.xerial:sqlite-jdbc:3.50.3.0",
        "spark.sql.extensions": "com.example.Own",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
    }
    spark = asked("iceberg", conf=own)
    found = session.settings(spark, None, settings(spark, "4.1.0"))
    both = [iceberg.jars["4.1"], own["spark.jars.packages"]]
    assert found["spark.jars.packages"].split(",") == both
    assert found["spark.sql.extensions"].split(",") == [
        iceberg.conf["spark.sql.extensions"],
        "com.example.Own",
    ]
    assert found["spark.sql.catalog.lake.type"] == "rest"
    assert "spark.sql.catalog.lake.warehouse" not in found


def test_iceberg_has_a_catalog_without_a_word(tmp_path):
    """It is a file of SQLite; one of folders where a table has begun in these."""
    lake = tmp_path / "lake/iceberg"
    found = iceberg.settings(asked("iceberg"), tmp_path, "4.1.0")
    assert found["spark.sql.catalog.lake.type"] == "jdbc"
    assert found["spark.sql.catalog.lake.uri"] == f"jdbc:sqlite:{lake}/catalog.db"
    assert found["spark.sql.catalog.lake.warehouse"] == f"file://{lake}"
    assert "sqlite-jdbc" in found["spark.jars.packages"]
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "iceberg-spark-runtime-4.1_2.13-1.11.0.jar").touch()
    there = asked("iceberg", jars_directory=jars)
    with pytest.raises(Broken, match=r"has no sqlite-jdbc-3\.50\.3\.0\.jar"):
        iceberg.settings(there, tmp_path, "4.1.0")
    hint = lake / "gateway/events/metadata/version-hint.text"
    hint.parent.mkdir(parents=True)
    hint.touch()
    found = iceberg.settings(there, tmp_path, "4.1.0")
    assert found["spark.sql.catalog.lake.type"] == "hadoop"
    assert found["spark.sql.catalog.lake.warehouse"] == f"file://{lake}"
    assert "sqlite" not in found["spark.jars"]


def test_an_iceberg_catalog_of_elsewhere(tmp_path):
    """A copy of a data_dir changes no file of the first one; a link to it is the same place."""
    here, elsewhere, link = (tmp_path / name for name in ("here", "elsewhere", "link"))
    spark = asked("iceberg")
    iceberg.settings(spark, here, "4.1.0")
    lake = here / "lake/iceberg"
    with contextlib.closing(sqlite3.connect(lake / "catalog.db")) as catalog:
        names = "catalog_name, table_namespace, table_name, metadata_location"
        catalog.execute(f"CREATE TABLE iceberg_tables ({names})")
        where = f"file://{lake}/gateway/events/metadata/0.metadata.json"
        values = ("lake", "gateway", "events", where)
        catalog.execute("INSERT INTO iceberg_tables VALUES (?, ?, ?, ?)", values)
        catalog.commit()
    link.symlink_to(here)
    for same in (here, link):
        iceberg.settings(spark, same, "4.1.0")
    shutil.copytree(here, elsewhere)
    with pytest.raises(
        Broken, match=r"events are those of .*/here/lake/iceberg/gateway"
    ):
        iceberg.settings(spark, elsewhere, "4.1.0")


def test_the_page_has_what_another_spark_needs(tmp_path):
    """For the usual catalog: what the job itself sets."""
    page = (Path(__file__).parents[2] / "docs/spark.md").read_text()
    block = page.partition("```properties\n")[2].partition("```")[0]
    said = dict(line.split() for line in block.strip().splitlines())
    found = iceberg.settings(asked("iceberg"), tmp_path, "4.1.0")
    found = {key: one.replace(str(tmp_path), "/data") for key, one in found.items()}
    assert said.items() <= found.items()
    assert "spark.sql.catalog.lake.warehouse" in said
