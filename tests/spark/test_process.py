"""The Spark job as a process: stopped by SIGTERM, started twice, by spark-submit.

It is killed in test_lost_executors.py.
"""

import importlib.util
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlines import environment, eventually, finish, run
from gateway.spark.jvm import session
from programs import running

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def settings(settings_file) -> Path:
    """A configuration file for the program."""
    return settings_file(trigger="0s", stats_window="1s")


@pytest.fixture
def said(tmp_path) -> Path:
    """What the job says on standard error."""
    return tmp_path / "said"


@pytest.fixture
def start(settings, said) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the job; whatever is left of it at the end is killed."""
    words = (sys.executable, "-m", "gateway.spark.job", "--config", settings)
    with running() as start, said.open("a") as errors:
        yield lambda *options, by=(): start(*by, *words, *options, stderr=errors)


def status(job: subprocess.Popen[str]) -> int | None:
    """The exit status, once it has ended."""
    finish(job, seconds=120)
    return job.returncode


def read_news(job: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """The job's progress, line by line."""
    assert job.stdout is not None
    for line in job.stdout:
        yield json.loads(line)


def test_a_signal_ends_it_cleanly(
    start, spool, said, settings, settings_file, tmp_path, lake_events
):
    """SIGTERM: exit status 0, whole batches, and on standard output JSON only; of Spark's
    and Python's warnings none.  Meanwhile a second job is refused, and pandas is not
    imported, which is installed here and would take 50 MiB.

    It runs as cron may have it: LC_ALL=C, in which Java can not name the data_dir."""
    spool.events("gw", 1, 100)
    data = (tmp_path / "data").rename(tmp_path / "donn\u00e9es d'hier")
    settings_file(trigger="0s", stats_window="1s", data_dir=data)
    job = start("--json", by=("env", "LC_ALL=C"))
    news = read_news(job)
    assert next(news)["state"] == "starting"
    other = start("--json")
    assert status(other) == 1
    for one in news:
        if one.get("rows_total") == 100:
            break
    assert "/pandas/" not in Path(f"/proc/{job.pid}/maps").read_text()
    job.send_signal(signal.SIGTERM)
    assert [one.get("state") for one in news][-1] == "stopped"
    assert status(job) == 0
    java = (data / "lake/.gateway/java.log").read_text()
    assert not re.findall(r".* WARN .*|.*FutureWarning.*", said.read_text() + java)
    assert lake_events(data / "lake") == spool.produced
    there = {path.name for path in tmp_path.iterdir()}
    assert there == {data.name, settings.name, said.name}


def runs(pid: str) -> bool:
    """Whether it is there, and more than a name that nobody has asked for yet."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("number", "java"), [(signal.SIGINT, False), (signal.SIGTERM, True)]
)
def test_a_signal_while_it_starts_ends_it_at_once(start, said, settings, number, java):
    """Before Java is there, and while it comes up: one line, exit status 0, and no Java is
    left behind.  A start that was given up is no failure."""
    job = start("--json")
    news = read_news(job)
    assert next(news)["state"] == "starting"
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children")
    health = settings.parent / "data/lake/.gateway/health.json"
    if java:
        eventually(lambda: children.read_text().split(), "Java")
        told = json.loads(health.read_text())
        assert (told["state"], told["doing"]) == ("starting", "starting Java")
    born = children.read_text().split()
    job.send_signal(number)
    (last,) = news
    assert last["state"] == "stopped"
    assert last["java"].endswith("java.log")
    assert status(job) == 0
    eventually(lambda: not any(map(runs, born)), "the end of Java")
    assert " ERROR " not in said.read_text()
    assert "Traceback" not in said.read_text()
    told = json.loads(health.read_text())
    assert (told["state"], told["failures"]) == ("stopped", 0)


ORPHAN = """
import ctypes, os, pathlib, signal, sys, threading, time
from gateway.spark import job
parent = os.getppid()
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
job._stop_on_signals(threading.Event(), threading.Event())
try:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
except job.Stopped:
    print(os.getpid(), flush=True)
while os.getppid() == parent:
    time.sleep(0.01)
pathlib.Path(sys.argv[1]).touch()
"""


def test_a_parent_that_dies_says_so_once(tmp_path):
    """A parent with threads dies thread by thread, and the system says so for each: the second
    signal would end the job before it has ended its Java."""
    ended = tmp_path / "ended"
    parent = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
    )
    with running() as start:
        one = start(sys.executable, "-c", parent, ORPHAN, ended)
        assert one.stdout is not None
        assert int(one.stdout.readline())
        one.kill()
        eventually(ended.exists, "the end of what had to be ended")


@pytest.mark.parametrize(
    ("words", "file"), [((), "java.log"), (("backfill",), "java-command.log")]
)
def test_a_java_that_ends_at_once(settings, words, file):
    """One line has what it said and where the rest is; no trace of Py4J's beside it.  So it
    is for commands that need Spark, and they leave the job's file alone."""
    broken = environment() | {"SPARK_SUBMIT_OPTS": "-agentlib:nothing"}
    job = run(
        *(sys.executable, "-m", "gateway", "spark", *words, "--config", settings),
        env=broken,
    )
    assert job.returncode == 1
    last = (job.stderr or job.stdout).splitlines()[-1]
    noise = settings.parent / "data/lake/.gateway" / file
    assert ("Spark could not begin: Could not find agent library nothing") in last
    assert last.endswith(f"({noise})")
    assert "Traceback" not in job.stderr + job.stdout


def test_what_java_says_is_bounded(tmp_path, monkeypatch):
    """A job that runs for months and warns now and then does not fill the disk; what Java
    appends goes on at the file's beginning."""
    monkeypatch.setattr(session, "_MOST_NOISE_BYTES", 10)
    noise = tmp_path / "java.log"
    session.bound(noise)
    with session._anew(noise) as out:
        for text in (b"ten bytes.", b" and more"):
            out.write(text)
            out.flush()
            session.bound(noise)
        assert noise.read_bytes() == b""
        assert noise.with_name("java.log.1").read_bytes() == b"ten bytes. and more"
        out.write(b"again")
    assert noise.read_bytes() == b"again"


@pytest.mark.long
def test_spark_submit_is_obeyed(settings_file, spool, tmp_path, lake_events):
    """Master and memory are those of its command line, whatever the configuration says."""
    spool.events("gw", 1, 100)
    settings = settings_file(master="local[7]", driver_memory="7g")
    submit = Path(sys.executable).with_name("spark-submit")
    program = importlib.util.find_spec("gateway.spark.job")
    assert program is not None
    words = ("--master", "local[1]", "--driver-memory", "611m", program.origin)
    with running() as start:
        job = start(
            *(submit, *words, "--config", settings, "--once"),
            env=environment() | {"PYSPARK_PYTHON": sys.executable},
            stderr=subprocess.PIPE,
        )
        command = Path(f"/proc/{job.pid}/cmdline")
        java = eventually(
            lambda: b"-Xmx" in (found := command.read_bytes()) and found, "Java"
        )
        said = "".join(finish(job, seconds=240))
    assert b"-Xmx611m" in java.split(b"\0")
    assert " on local[1]" in said
    assert job.returncode == 0
    assert lake_events() == spool.produced


def test_a_wrong_configuration_is_wrong_use(start, settings):
    """Exit status 2, before Spark is started."""
    settings.write_text("spark: {sink: oracle}")
    assert status(start()) == 2
