"""The RS.io client for the JVM (`clients/java/`): judged by the kit, and with a daemon.

Its own tests, the TCK of Reactive Streams among them, `make test-clients` runs.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import programs
from daemons import listener
from deadlines import environment, eventually, finish
from rsio_check import Outcome, Target, chosen, over_tcp, run, survey

PROJECT = Path(__file__).parents[2] / "clients" / "java"
COUNT = 16_000
STREAMS = listener("streams", "rsio", options={"publish": ["events"], "window": 16})

pytestmark = pytest.mark.needs_maven


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A command that takes the name of a class, and its words.

    Where there is no JDK, or where Maven gets nothing, the tests are skipped; in CI
    they fail.
    """
    for need in ("java", "javac", "mvn"):
        programs.program(need)
    home = programs.built_once(tmp_path_factory, PROJECT, build)
    jars = (home / "jars").read_text().strip()
    places = [home / "target" / "classes", home / "target" / "test-classes", jars]
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *options, "-cp", os.pathsep.join(map(str, places))]


def build(home: Path) -> None:
    """Fetch what it needs, and compile the client and its tests."""
    listed = f"-Dmdep.outputFile={home / 'jars'}"
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
    programs.ask_registry("mvn", "-B", "-q", "test-compile", plugin, listed, cwd=home)


@pytest.fixture
def program(java: list[str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a class of the client's tests; it is killed at the end."""
    with programs.running() as start:
        yield lambda name, *words, **more: start(
            *(*java, f"gateway.rsio.{name}", *words),
            stderr=subprocess.PIPE,
            env={**environment(), **more},
        )


def test_the_kit_judges_it(program: Callable[..., subprocess.Popen[str]]) -> None:
    """As publisher and as subscriber its session passes all tests, and none is left out."""
    served = program("SmallServer", HELLO_MS="1500")
    assert served.stdout is not None
    port = int(served.stdout.readline())
    target = Target(lambda: over_tcp("127.0.0.1", port), patience=60)
    target.hello_seconds = 1.5
    survey(target)
    bad = [
        (one.test.name, one.outcome.value, one.why)
        for one in run(target, chosen(target))
        if one.outcome is not Outcome.PASSED
    ]
    assert bad == []


@pytest.mark.slow
def test_with_a_daemon_that_is_killed(
    prepare: Callable[..., Any],
    free_port: Callable[[], int],
    program: Callable[..., subprocess.Popen[str]],
) -> None:
    """A sender, a reader, a kill -9, and a second sender of that name: all once."""
    where = f"127.0.0.1:{free_port()}"
    daemon = prepare(
        listeners=[{**STREAMS, "listen": f"tcp:{where}"}],
        journal={"commit_interval": "5ms"},
    ).start()
    first = program("Tool", "send", f"tcp://{where}", "meter-17", COUNT)
    reader = program("Tool", "receive", f"tcp://{where}", "events?from=1", 2 * COUNT)

    def stored() -> int:
        return int(daemon.status()["journal"]["durable_lsn"])

    eventually(lambda: stored() > 300, "it sends")
    daemon.kill()
    daemon.start()
    output, errors = finish(first)
    assert first.returncode == 0, errors
    assert output == f"{COUNT} acknowledged\n"
    # Another life of that name follows what the first one has stored.
    second = program("Tool", "send", f"tcp://{where}", "meter-17", COUNT)
    output, errors = finish(second)
    assert second.returncode == 0, errors
    output, errors = finish(reader)
    assert reader.returncode == 0, errors
    events = [json.loads(line) for line in output.splitlines()]
    assert [event["payload"]["n"] for event in events] == [*range(COUNT)] * 2
    assert [event["seq"] for event in events] == list(range(1, 2 * COUNT + 1))
    assert stored() == 2 * COUNT
