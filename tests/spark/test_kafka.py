"""The recipe for Kafka, `examples/recipes/to_kafka.py`, with a real broker.

It needs a Spark whose connector is on Maven Central: `make long ONLY=lowest` has one.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest

from deadlines import ROOT, environment, excerpt, run
from incarnations import A
from programs import ask_registry, built_once, end, program

#: The connector for a minor version of Spark; its patches fit each other.
CONNECTORS = {"4.1": "4.1.1", "4.2": "4.2.0"}
SPARK = pyspark.__version__.rpartition(".")[0]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.needs_maven,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        SPARK not in CONNECTORS,
        reason=f"no connector for Spark {SPARK} is known; `make long ONLY=lowest` has a Spark of one",
    ),
]

PROJECT = Path(__file__).with_name("kafka_broker")
TOPIC = "events"

#: The recipe, whose first answer is lost after the broker has the records.
LOST = """
from pathlib import Path

import to_kafka

LOST = Path(__file__).with_name("lost")


def put(batch, context):
    to_kafka.put(batch, context)
    if not LOST.exists():
        LOST.touch()
        raise ConnectionError("the answer was lost")
"""


class Record(NamedTuple):
    headers: str
    key: str
    value: str


class Broker:
    """One of Kafka's, which keeps what it has in *home*."""

    def __init__(self, home: Path, jars: str, port: int, controller: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self._java = [
            program("java"),
            "-Xmx512m",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            jars,
        ]
        self._log = home / "broker.log"
        properties = home / "server.properties"
        properties.write_text(
            f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}
log.dirs={home / "logs"}
offsets.topic.replication.factor=1
"""
        )
        words = ["format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", properties]
        self._told("kafka.tools.StorageTool", *words)
        self._process = subprocess.Popen(
            [*self._java, "kafka.Kafka", str(properties)],
            stdout=subprocess.DEVNULL,
            stderr=self._log.open("w"),
        )
        self._tool("TopicCommand", "--create", "--topic", TOPIC, "--partitions", "2")

    def records(self) -> list[Record]:
        """All that the topic has."""
        ends = self._tool("GetOffsetShell", "--topic", TOPIC).split()
        count = sum(int(end.split(":")[2]) for end in ends)
        if count == 0:
            return []
        said = self._tool(
            *("consumer.ConsoleConsumer", "--topic", TOPIC, "--from-beginning"),
            *("--max-messages", count, "--property", "print.key=true"),
            *("--property", "print.headers=true"),
        )
        return [Record(*line.split("\t")) for line in said.splitlines()]

    def stop(self) -> None:
        end(self._process)

    def _tool(self, name: str, *words: object) -> str:
        address = ("--bootstrap-server", self.address)
        return self._told(f"org.apache.kafka.tools.{name}", *address, *words)

    def _told(self, main: str, *words: object) -> str:
        done = run(*self._java, main, *words)
        log = excerpt(self._log) if self._log.exists() else ""
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}\n{log}"
        return done.stdout


@pytest.fixture
def broker(tmp_path, free_port) -> Iterator[Broker]:
    for need in ("java", "mvn"):
        program(need)

    def fetch(home: Path) -> None:
        copied = f"-DoutputDirectory={home / 'jars'}"
        fetched = ("mvn", "-B", "-q", "dependency:copy-dependencies", copied)
        ask_registry(*fetched, cwd=home)

    jars = f"{built_once(PROJECT, fetch)}/jars/*"
    home = tmp_path / "kafka"
    home.mkdir()
    running = Broker(home, jars, free_port(), free_port())
    yield running
    running.stop()


def test_each_event_is_there_under_one_key(broker, spool, settings_file, tmp_path):
    """A batch whose answer was lost comes again: each of its records is there twice, the
    same both times, under the same key.  What comes after it is there once."""
    spool.put("gw", 1, [b'{"a": 1}', *(b'{"n": %d}' % n for n in range(299)), b"{"],
              flaws={300: "invalid-json"})  # fmt: skip
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    (recipes / "lost_answer.py").write_text(LOST)
    known = environment()
    folders = (str(recipes), str(ROOT / "examples" / "recipes"), known["PYTHONPATH"])
    env = known | {
        "PYTHONPATH": os.pathsep.join(folders),
        "KAFKA_SERVERS": broker.address,
        "KAFKA_TOPIC": TOPIC,
    }
    connector = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTORS[SPARK]}"
    conf = {
        "spark.jars.packages": connector,
        # Spark has these classes already.
        "spark.jars.excludes": "org.apache.hadoop:hadoop-client-runtime,"
        "org.apache.hadoop:hadoop-client-api",
    }
    config = settings_file(sink="lost_answer:put", conf=conf, master="local[2]")

    def job() -> subprocess.CompletedProcess[str]:
        words = (sys.executable, "-m", "gateway", "spark", "--config", config, "--once")
        return run(*words, env=env)

    assert not broker.records()
    failed = job()
    assert failed.returncode != 0
    assert "the answer was lost" in failed.stderr
    spool.events("gw", 302, 50)
    ended = job()
    assert ended.returncode == 0, ended.stderr[-5000:]

    found = Counter(broker.records())
    times = Counter({record.key: count for record, count in found.items()})
    assert len(found) == len(times)  # a key has one value, and its headers
    expected = {f"gw/{A}/{lsn}": 2 for lsn in range(1, 302)}
    assert times == expected | {f"gw/{A}/{lsn}": 1 for lsn in range(302, 352)}
    assert Record("protocol:lumberjack,flaw:,batch:1", f"gw/{A}/1", '{"a": 1}') in found
    assert (
        Record("protocol:lumberjack,flaw:invalid-json,batch:1", f"gw/{A}/301", "{")
        in found
    )
