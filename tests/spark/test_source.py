"""The stream of a spool directory."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.spark.files import known_files
from gateway.spark.jvm import session
from gateway.spark.source import SCHEMA_DDL, gateway_stream, limit_of, url


@pytest.mark.spark
def test_the_schema_is_the_events(spark, spool, make_envelope):
    """What pyarrow writes with `gateway.event.SCHEMA` Spark reads as our DDL says."""
    table = make_envelope(
        "gw", 1, [b'{"a": 1}', b"\xff\x00"], flaws={1: "invalid-json"}
    )
    path = spool.publish(table)
    inferred = spark.read.parquet(f"file://{path}").schema
    declared = spark.read.schema(SCHEMA_DDL).parquet(f"file://{path}")
    assert [(f.name, f.dataType) for f in declared.schema] == [
        (f.name, f.dataType) for f in inferred
    ]
    rows = [row.asDict() for row in declared.collect()]
    for row, sent in zip(rows, table.to_pylist(), strict=True):
        assert bytes(row.pop("payload")) == sent.pop("payload")
        assert row.pop("attributes") == dict(sent.pop("attributes"))
        sent["received_at"] = sent["received_at"].replace(tzinfo=None)
        assert row == sent


@pytest.mark.spark
def test_files_that_are_known_are_read_alone(spark, spool):
    """With the types and bytes that Spark's own reader gives, and of their folder nothing else;
    one batch is not taken for another of the same folder, whose rows somebody keeps."""
    for first in (1, 11, 21):
        spool.events("gw", first, 10)
    names = spool.names()

    def rows(*names: str) -> Any:
        sizes = {name: (spool.path / name).stat().st_size for name in names}
        return known_files.rows(spark, url(spool.path), sizes, SCHEMA_DDL)

    usual = spark.read.schema(SCHEMA_DDL).parquet(
        *(url(spool.path / name) for name in names[:2])
    )
    first = rows(*names[:2]).cache()
    try:
        assert first.schema == usual.schema
        assert sorted(first.collect()) == sorted(usual.collect())
        assert {row.lsn for row in rows(names[2]).collect()} == {*range(21, 31)}
    finally:
        first.unpersist()
    found = rows(*names)
    (spool.path / names[1]).unlink()
    with pytest.raises(Exception, match=names[1]):
        found.collect()


@pytest.mark.parametrize("name", ["a*", "a?", "a[b]", "{a,b}", "a:b"])
def test_a_path_that_is_a_pattern_is_refused(name):
    """Spark would read something else, or nothing, without a word."""
    with pytest.raises(ValueError, match="can not read a path with"):
        gateway_stream(SimpleNamespace(), Path("/data") / name)  # type: ignore[arg-type]


def test_one_limit_at_a_time():
    """Spark takes files or bytes, so we say so before it does."""
    with pytest.raises(ValueError, match="not in both"):
        gateway_stream(SimpleNamespace(), "/data", max_files=1, max_bytes=1)  # type: ignore[arg-type]


def test_many_small_files_are_limited_by_number(tmp_path, monkeypatch):
    """Planning a batch takes long for each file; bytes stay the limit of all others."""
    monkeypatch.setattr("gateway.spark.source.MANY_FILES", 2)
    limits = []
    for first, size in [(1, 5), (2, 5), (3, 5), (4, 6)]:
        name = f"events-gw_aaaaaaaaaa-{first:020d}-{first:020d}.parquet"
        (tmp_path / name).write_bytes(b"x" * size)
        (tmp_path / f".{name}").write_bytes(b"not published")
        limits.append(limit_of(tmp_path, 10))
    assert limits == [
        *[{"max_bytes": 10}] * 2,
        {"max_files": 2},
        {"max_bytes": 10},  # two of them could be more
    ]


def test_the_configuration_has_the_last_word(monkeypatch):
    """`spark.conf` overrides what we set, and Java's options are put together."""
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    chosen = session.settings(
        SimpleNamespace(
            master="local[3]",
            driver_memory="2g",
            ui=True,
            conf={
                "spark.sql.parquet.compression.codec": "snappy",
                "spark.driver.extraJavaOptions": "-Xss4m",
            },
        )
    )
    assert chosen["spark.master"] == "local[3]"
    assert chosen["spark.ui.enabled"] == "true"
    assert chosen["spark.sql.parquet.compression.codec"] == "snappy"
    java = chosen["spark.driver.extraJavaOptions"].split()
    assert java[0].endswith("log4j2.properties")
    ratios = ["-XX:MinHeapFreeRatio=20", "-XX:MaxHeapFreeRatio=40"]
    collector = ["-XX:+UseSerialGC", "-Xms96m", *ratios]
    compilers = chosen["spark.executor.extraJavaOptions"].split()
    assert compilers[0] == "-XX:-DontCompileHugeMethods"
    assert "-XX:Tier4InvocationThreshold=80000" in compilers
    assert java[1:] == [*compilers, *collector, "-Xss4m"]
    assert session.SAFETY.items() <= chosen.items()


@pytest.mark.parametrize(
    ("master", "memory", "own", "submitted", "taken"),
    [
        ("local[2]", "512m", "", "", True),
        ("local[2]", "2048m", "-Xss4m", "", True),
        ("local[2]", "2049m", "", "", False),
        ("local[2]", "3g", "", "", False),
        ("local[2]", "4096m", "", "", False),
        ("spark://host:7077", "1g", "", "", False),
        ("local[2]", "1g", "-XX:+UseZGC", "", False),
        ("local[2]", "1g", "", "-XX:+UseG1GC", False),
    ],
)
def test_a_small_heap_has_the_collector_for_it(
    monkeypatch, master, memory, own, submitted, taken
):
    """But Java does not begin with two: one that the user names stands alone."""
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", submitted)
    conf = {"spark.driver.extraJavaOptions": own}
    spark = SimpleNamespace(master=master, driver_memory=memory, ui=False, conf=conf)
    java = session.settings(spark)["spark.driver.extraJavaOptions"].split()
    assert ("-XX:+UseSerialGC" in java) is taken


def test_spark_submit_has_its_say():
    """Its master, its memory and its --conf are left alone; only safety is not."""
    conf = SimpleNamespace(master="local[2]", driver_memory="1g", ui=False, conf={})
    given = {
        "spark.master": "spark://host:7077",
        "spark.sql.parquet.compression.codec": "snappy",
        "spark.sql.files.ignoreCorruptFiles": "true",
    }
    chosen = session.settings(conf, given)
    assert not chosen.keys() & {"spark.master", "spark.driver.memory"}
    assert "spark.sql.parquet.compression.codec" not in chosen
    # Its driver runs already; executors do not.
    assert "spark.driver.extraJavaOptions" not in chosen
    assert "spark.executor.extraJavaOptions" in chosen
    mine = {"spark.executor.extraJavaOptions": "-Xss4m"}
    assert "spark.executor.extraJavaOptions" not in session.settings(conf, mine)
    assert session.SAFETY.items() <= chosen.items()
    # Nor are they taken from the configuration where spark-submit names none.
    assert not session.settings(conf, {}).keys() & {
        "spark.master",
        "spark.driver.memory",
    }


@pytest.mark.spark
@pytest.mark.lowest
def test_a_file_is_found_whatever_its_time(spark, spool, tmp_path):
    """From 1970, and beside one from the next century."""
    times = (0, 1_700_000_000, 4_500_000_000)
    query = (
        gateway_stream(spark, spool.path, max_files=1)
        .writeStream.format("memory")
        .queryName("whatever")
        .option("checkpointLocation", f"file://{tmp_path}/checkpoint")
        .start()
    )
    try:
        for number, seconds in enumerate(reversed(times)):
            hidden = spool.events("gw", number * 10 + 1, 10)
            os.utime(hidden, (seconds, seconds))
        query.processAllAvailable()
        query.processAllAvailable()
        assert spark.table("whatever").count() == 30
    finally:
        query.stop()
