"""Classes of our own in Java: compiled once, kept in the user's cache, and made again."""

import errno
import os
import time
from pathlib import Path

import pytest
from pyspark import SparkFiles

from gateway.spark.jvm import cache, compiled
from gateway.spark.jvm.given import settings_of

pytestmark = pytest.mark.spark

CODE = [
    'package test; public class One { public static String said() { return "%s"; } }',
    "package test; public class Two { public String toString() { return One.said(); } }",
]


@pytest.fixture
def ours(tmp_path, monkeypatch) -> Path:
    """An empty cache of the user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = cache.folder({"XDG_CACHE_HOME": str(tmp_path)})
    assert found is not None
    return found


def said(spark, code: list[str]) -> str:
    """What the class says that is compiled of it."""
    jvm = spark._jvm
    loader = compiled.compiled(spark, code)
    (constructor,) = loader.loadClass("test.Two").getConstructors()
    one = constructor.newInstance(compiled.array(spark, jvm.Object, []))
    return str(jvm.String.valueOf(one))


def test_what_was_compiled_is_kept_for_another_start(spark, ours, monkeypatch):
    """Another Java compiles nothing; other code is other classes."""
    code = [CODE[0] % "a", CODE[1]]
    assert said(spark, code) == "a"
    (kept,) = ours.iterdir()
    made = Path(SparkFiles.getRootDirectory(), "gateway", kept.name)
    assert made.read_bytes() == kept.read_bytes()
    monkeypatch.setattr(compiled, "_loaders", {})
    made.unlink()
    with monkeypatch.context() as no_compiler:
        no_compiler.setattr(compiled, "_classes", None)
        assert said(spark, code) == "a"
    assert said(spark, [CODE[0] % "b", CODE[1]]) == "b"
    assert len([*ours.iterdir()]) == 2


def test_a_jar_that_is_broken_is_made_again(spark, ours, monkeypatch):
    """Cut, empty or no file at all, and with an old one that can not be removed."""
    code = [CODE[0] % "e", CODE[1]]
    assert said(spark, code) == "e"
    (kept,) = ours.iterdir()
    whole = kept.read_bytes()
    made = Path(SparkFiles.getRootDirectory(), "gateway", kept.name)
    stuck = ours / "gateway-classes-old.jar"
    stuck.mkdir()
    os.utime(stuck, (0, 0))
    for broken in (whole[: len(whole) // 2], b"", whole.replace(b"e", b"f")):
        kept.write_bytes(broken)
        made.unlink()
        monkeypatch.setattr(compiled, "_loaders", {})
        assert said(spark, code) == "e"
        assert kept.read_bytes()[:2] == b"PK"
    kept.unlink()
    kept.mkdir()
    made.unlink()
    monkeypatch.setattr(compiled, "_loaders", {})
    assert said(spark, code) == "e"


def test_a_cache_that_is_full_is_no_reason_to_stop(spark, ours, monkeypatch):
    """Nor is none at all."""
    real = cache.put

    def put(new: Path, path: Path) -> None:
        if path.parent == ours:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(new, path)

    monkeypatch.setattr(cache, "put", put)
    assert said(spark, [CODE[0] % "c", CODE[1]]) == "c"
    assert [*ours.iterdir()] == []
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    assert said(spark, [CODE[0] % "d", CODE[1]]) == "d"


def test_what_nobody_used_for_a_month_goes(ours):
    """Each Spark, Java and release of ours has files of its own there."""
    old, new, other = (ours / name for name in ("a-1.jar", "a-2.jar", "b-1.jar"))
    for path in (old, new, other):
        path.touch()
    month = time.time() - 31 * 86400
    for path in (old, other):
        os.utime(path, (month, month))
    cache.forget(ours, "a-*.jar")
    assert {*ours.iterdir()} == {new, other}


def test_what_a_killed_start_was_making_goes_a_day_later(ours):
    """That of another start, which is under way, stays; what is ready does too."""
    day = time.time() - 25 * 3600
    for name in ("making-killed", "making-now", "other"):
        (ours / name).mkdir()
        (ours / name / "half").touch()
        if name != "making-now":
            os.utime(ours / name, (day, day))
    with cache.making(ours) as folder:
        (folder / "a").write_bytes(b"a")
        cache.put(folder / "a", ours / "a.jar")
    assert {one.name for one in ours.iterdir()} == {"making-now", "other", "a.jar"}


def test_settings_are_those_that_spark_was_begun_with(spark):
    """Each as PySpark has it; those of a session are others."""
    given = settings_of(spark)
    theirs = dict(spark.sparkContext.getConf().getAll())
    assert {name: given.get(name) for name in theirs} == theirs
