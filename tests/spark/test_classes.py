"""The archive of the classes that Spark needs: its name, who uses it, and one that is made."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from deadlines import environment, eventually, finish
from gateway.spark.jvm import recording, session
from gateway.spark.jvm.classes import Archive
from gateway.spark.jvm.java import Java
from quick_java import EVERY_JAVA


@pytest.fixture
def spark(tmp_path, monkeypatch) -> Path:
    """A Spark of two jars, and nobody who tells Java of an archive."""
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    for name in ("a.jar", "b.jar"):
        (jars / name).write_text(name)
    monkeypatch.setenv("SPARK_HOME", str(jars.parent))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    return jars


@pytest.fixture
def java(tmp_path) -> Java:
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.touch()
    return Java(program.parents[1], 17, "here", program)


def test_another_java_or_spark_has_another_one(spark, java, tmp_path):
    """What Java would not take is not looked at, so it is made anew."""
    one = Archive(java, tmp_path)
    assert Archive(java, tmp_path).path == one.path
    os.utime(spark / "a.jar", (1, 1))
    other = Archive(java, tmp_path)
    assert other.path != one.path
    java.program.write_text("newer")
    assert Archive(java, tmp_path).path not in (one.path, other.path)


def test_who_uses_it(spark, java, tmp_path):
    """Whoever has it, unless Java is told of another one; an empty file is one that could
    not be made, which is not tried again."""
    archive = Archive(java, tmp_path)
    assert archive.wanted({})
    assert not archive.wanted({"SPARK_SUBMIT_OPTS": "-XX:SharedArchiveFile=/own"})
    assert archive.options("") == ""
    archive.path.touch()
    assert not archive.wanted({})
    assert archive.options("") == ""
    archive.path.write_text("classes")
    assert archive.options("") == f'"-XX:SharedArchiveFile={archive.path}"'
    assert archive.options("-Xshare:off") == ""
    archive.base.write_text("of Java itself")
    both = f'"-XX:SharedArchiveFile={archive.base}:{archive.path}"'
    assert archive.options("") == both
    conf = SimpleNamespace(
        master="local[2]",
        driver_memory="1g",
        ui=False,
        conf={"spark.driver.extraJavaOptions": "-Dmine=1"},
    )
    told = session.settings(conf, classes=archive)["spark.driver.extraJavaOptions"]
    assert told.startswith(both)
    assert told.endswith("-Dmine=1")


def test_those_that_nobody_uses_go(spark, java, tmp_path, monkeypatch):
    """After a month; each use counts.  What can not be made says why."""
    used, old = Archive(java, tmp_path), tmp_path / "spark-classes-0123456789ab.jsa"
    used.path.write_text("classes")
    old.write_text("classes")
    for path in (used.path, old):
        os.utime(path, (1, 1))
    used.options("")
    os.utime(spark / "a.jar", (1, 1))
    archive = Archive(java, tmp_path)

    def fails(*_: object) -> None:
        raise subprocess.TimeoutExpired(["java"], 1)

    monkeypatch.setattr(recording, "_make_base", fails)
    assert "timed out" in recording.make(archive)
    assert not archive.made
    assert not archive.wanted({})
    assert {path.name for path in tmp_path.glob("*.jsa")} == {
        used.path.name, archive.path.name
    }  # fmt: skip


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_one_that_is_made(tmp_path, settings_file):
    """By a real Java, whole under its name, and nothing else is left; it is not made twice.
    The Java of a job maps it."""
    env = {**environment(), **EVERY_JAVA, "XDG_CACHE_HOME": str(tmp_path)}
    env.pop("SPARK_SUBMIT_OPTS", None)
    words = [sys.executable, "-m", "gateway.spark.jvm.recording"]

    def record() -> str:
        process = subprocess.Popen(
            words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return finish(process, seconds=280)[0]

    assert record().endswith("from now on it starts quickly\n")
    archive = Archive.of(env)
    assert archive is not None
    assert archive.made
    left = {*(tmp_path / "gateway").glob("*.jsa"), *(tmp_path / "gateway").glob("tmp*")}
    assert left <= {archive.path, archive.base}
    assert record().startswith("nothing to do")
    file = settings_file(admin={"listen": None})
    job = subprocess.Popen(
        [sys.executable, "-m", "gateway.spark.job", "--config", str(file)], env=env
    )
    try:
        eventually(lambda: maps(job.pid, archive.path), "a Java that maps it")
    finally:
        job.kill()
        job.wait()


def maps(pid: int, path: Path) -> bool:
    """Whether a child of that process has the file in its memory."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return any(
            str(path) in Path(f"/proc/{one}/maps").read_text()
            for one in children.read_text().split()
        )
    except FileNotFoundError:
        return False
