"""The RS.io client for the JVM (`clients/java/`): judged by the kit, and with a daemon.

Its own tests, the TCK of Reactive Streams among them, `make test-clients` runs.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import kit
import planted
import programs
from daemons import listener, tls
from deadlines import environment, eventually, finish, run
from making import Make

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "clients" / "java"
COUNT = 16_000

pytestmark = pytest.mark.needs_maven


@pytest.fixture(scope="session")
def java() -> list[str]:
    """A command that takes the name of a class, and its words.

    Where there is no JDK, or where Maven gets nothing, the tests are skipped; in CI
    they fail.
    """
    for need in ("java", "javac", "mvn"):
        programs.program(need)
    home = programs.built_once(PROJECT, build)
    places = [home / "target" / each for each in ("classes", "test-classes", "jars/*")]
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *options, "-cp", os.pathsep.join(map(str, places))]


def build(home: Path) -> None:
    """Fetch what it needs, and compile the client and its tests."""
    copied = f"-DoutputDirectory={home / 'target' / 'jars'}"
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    programs.ask_registry("mvn", "-B", "-q", "test-compile", plugin, copied, cwd=home)


@pytest.fixture
def program(java) -> Iterator[Make[subprocess.Popen[str]]]:
    """Start a class of the client's tests; it is killed at the end."""
    with programs.running() as start:
        yield lambda name, *words, **more: start(
            *(*java, f"gateway.rsio.{name}", *words),
            stderr=subprocess.PIPE,
            env={**environment(), **more},
        )


def test_the_kit_judges_it(program):
    """As publisher and as subscriber its session passes all tests, and none is left out."""
    served = program("SmallServer", HELLO_MS="1500")
    assert kit.failures(served, hello_seconds=1.5) == []


@pytest.mark.slow
def test_the_kit_notices_faults(program, tmp_path):
    """Each fault that is planted in its session fails the test that names it."""
    sources, serve = planted.PLACES["java"], partial(program, "Planted")
    assert planted.unnoticed("java", tmp_path, sources, (), serve) == []


@pytest.mark.slow
def test_with_a_daemon_that_is_killed(prepare, free_port, program):
    """A sender, a reader over HTTP/2, a kill -9, and a second sender of that name, over
    HTTP/2, too: all once.
    """
    where = f"127.0.0.1:{free_port()}"
    daemon = prepare(
        listeners=[{**kit.STREAMS, "listen": f"tcp:{where}"}],
        journal={"commit_interval": "5ms"},
    ).start()
    first = program("Tool", "send", f"tcp://{where}", "meter-17", COUNT)
    reader = program("Tool", "receive", f"http://{where}", "events?from=1", 2 * COUNT)

    def stored() -> int:
        return int(daemon.status()["journal"]["durable_lsn"])

    eventually(lambda: stored() > 300, "it sends")
    daemon.restart()
    output, errors = finish(first)
    assert first.returncode == 0, errors
    assert output == f"{COUNT} acknowledged\n"
    # Another life of that name follows what the first one has stored.
    second = program("Tool", "send", f"http://{where}", "meter-17", COUNT)
    output, errors = finish(second)
    assert second.returncode == 0, errors
    output, errors = finish(reader)
    assert reader.returncode == 0, errors
    events = [json.loads(line) for line in output.splitlines()]
    assert [event["payload"]["n"] for event in events] == [*range(COUNT)] * 2
    assert [event["seq"] for event in events] == list(range(1, 2 * COUNT + 1))
    assert stored() == 2 * COUNT


EACH = 2000
WAYS = {
    "tcp": ("send", "tcp://localhost:{plain}", {"COMPRESSED": "yes"}),
    "tls": ("send", "tls://localhost:{sealed}", {}),
    "ws": ("send", "ws://localhost:{plain}/rsio", {}),
    "wss": ("pack", "wss://localhost:{sealed}/rsio", {}),
    "http": ("pack", "http://localhost:{plain}/rsio", {}),
    "https": ("send", "https://localhost:{sealed}/rsio?a=b", {"COMPRESSED": "yes"}),
}


@pytest.mark.slow
def test_over_every_transport(start, authority, program):
    """What goes over TCP in blocks, over TLS, WebSocket and HTTP/2, packed too, is stored
    once and in order; a server whose certificate nobody signed gets nothing.
    """
    more = {"websocket": {"path": "/rsio"}, "options": {"publish": ["events"]}}
    daemon = start(
        listeners=[
            listener("plain", "rsio", **more),
            listener("sealed", "rsio", tls=tls(authority.issue("localhost")), **more),
        ]
    )
    ports = {name: daemon.address(name)[1] for name in ("plain", "sealed")}
    running = [
        program(
            "Tool", how, where.format(**ports), name, EACH, CA=authority.ca, **extra
        )
        for name, (how, where, extra) in WAYS.items()
    ]
    for one in running:
        output, errors = finish(one)
        assert one.returncode == 0, errors
        assert output == f"{EACH} acknowledged\n"
    where = WAYS["tls"][1].format(**ports)
    stranger = program("Tool", "receive", where, "events?from=1", 1)
    eventually(lambda: "handshake" in daemon.log.lower(), "it is refused")
    assert stranger.poll() is None, "it goes on trying"
    kit.sent_in_order(daemon, len(WAYS), EACH)


@pytest.mark.smoke
def test_the_page_as_it_stands(start, java, tmp_path):
    """The programs of docs/rsio.md compile and run."""

    def execute(number: int, text: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / f"{('Send', 'Read')[number]}.java"
        file.write_text(text)
        return run(*java, file)

    kit.page_runs(start(listeners=[kit.STREAMS]), "java", execute)
