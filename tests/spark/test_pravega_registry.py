"""Pravega's schema registry, its server and serializers, unchanged, on the real daemon."""

import os
import time
import urllib.request
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from deadlines import eventually, finish, next_line, run
from gateway.spark import job
from programs import ask_registry, built_once, program, running

pytestmark = [pytest.mark.needs_maven, pytest.mark.long, pytest.mark.spark]

PROJECT = Path(__file__).with_name("registry")
COUNT = 20_000
"""Events of each kind."""
SECONDS = 120.0


def build(home):
    """Fetch server and serializers, and compile the writer."""
    fetch = ["mvn", "-B", "-q", "dependency:copy-dependencies"]
    more = (f"-DoutputDirectory={home}/jars", "-DincludeScope=runtime")
    ask_registry(*fetch, *more, cwd=home)
    done = run("javac", "-nowarn", "-cp", f"{home}/jars/*", "Writer.java", cwd=home)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def begin():
    """See `running`."""
    with running() as start:
        yield start


@pytest.fixture(scope="session")
def java():
    """The beginning of a command, up to the class."""
    for need in ("java", "javac", "mvn"):
        program(need)
    home = built_once(PROJECT, build)
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    path = f"{home}{os.pathsep}{home}/jars/*"
    return ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", quiet, "-cp", path]


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_json_and_avro_over_a_kill(
    java, prepare, begin, free_port, tmp_path, spark, make_config
):
    """The registry keeps its state in the gateway.  Of the events that its serializers made,
    each is a row once with its columns, none flawed, though the gateway is killed between.
    """
    controller, rest = free_port(), free_port()
    daemon = prepare(
        listeners=[
            {
                "name": "streams",
                "protocol": "pravega",
                "listen": f"tcp:127.0.0.1:{free_port()}",
                "options": {
                    "controller": f"tcp:127.0.0.1:{controller}",
                    "framing": {"shop/*": "pravega-registry"},
                    "content_type": {
                        "shop/json": "application/json",
                        "shop/avro": "application/avro",
                    },
                },
            }
        ]
    )
    daemon.start()
    of = "-DschemaRegistry"
    server = [
        f"{of}.store.type.name=Pravega",
        f"{of}.store.pravega.controller.connect.uri=tcp://localhost:{controller}",
        f"{of}.service.rest.listener.port={rest}",
        "io.pravega.schemaregistry.service.Main",
    ]
    log = tmp_path / "registry.log"
    with log.open("w") as out:
        begin(*java, *server, stdout=out, stderr=out)
    url = f"http://127.0.0.1:{rest}"
    eventually(lambda: answers(f"{url}/v1/groups"), "the registry answers")
    words = (f"tcp://localhost:{controller}", url, COUNT)
    with (tmp_path / "writer.log").open("w") as out:
        writer = begin(*java, "Writer", *map(str, words), stderr=out)
    for _ in range(2):
        assert next_line(writer, SECONDS, tmp_path / "writer.log") == "half\n"
        daemon.kill()
        time.sleep(0.5)
        daemon.start()
    assert finish(writer, SECONDS, tmp_path / "writer.log")[0] == "written\n"
    daemon.settled()

    config = make_config(daemon.data)
    config.spark.schemas = tmp_path / "schemas"
    config.spark.schema_registry = url
    wanted = {"n": "int", "unit": "string"}
    config.spark.columns = {
        name: SimpleNamespace(
            path=name, type=kind, default=None, protocol=None, listener=None
        )
        for name, kind in wanted.items()
    }
    job.run(config, spark, available_now=True)
    lake = daemon.data / "lake"
    rows = spark.read.parquet(f"file://{lake}/events")
    rows = rows.where("stream IN ('json', 'avro')").select(
        "stream", "n", "unit", "misfits"
    )
    found = Counter(map(tuple, rows.collect()))
    assert found == Counter(
        (stream, n, "°C", None) for stream in ("json", "avro") for n in range(COUNT)
    )
    assert not [*(lake / "quarantine").rglob("*.parquet")]
