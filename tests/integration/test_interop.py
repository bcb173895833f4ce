"""The RS.io reference in JavaScript (`interop/`): judged by the kit, and with a daemon."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kit
import programs
from daemons import listener
from deadlines import environment, eventually, finish

INTEROP = Path(__file__).parents[2] / "interop"
COUNT = 16_000
STREAMS = listener("streams", "rsio", options={"publish": ["events"], "window": 16})

pytestmark = pytest.mark.needs_node


@pytest.fixture(scope="session")
def node() -> str:
    """Where that is missing, the tests are skipped; in CI they fail."""
    return programs.program("node")


@pytest.fixture
def program(node: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a program of `interop/`; it is killed at the end."""
    with programs.running() as start:
        yield lambda name, *words, **more: start(
            *(node, INTEROP / name, *words),
            stderr=subprocess.PIPE,
            env={**environment(), **more},
        )


def test_the_kit_judges_it(program: Callable[..., subprocess.Popen[str]]) -> None:
    """It passes all tests of the definition, and none is left out."""
    served = program("server.js", HELLO_MS="500")
    assert kit.failures(served, hello_seconds=0.5) == []


@pytest.mark.slow
def test_with_a_daemon(
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
    first = program("client.js", "send", where, "meter-17", COUNT)
    reader = program("client.js", "receive", where, "events?from=1", COUNT)

    def stored() -> int:
        return int(daemon.status()["journal"]["durable_lsn"])

    eventually(lambda: stored() > 300, "it sends")
    daemon.kill()
    daemon.start()
    eventually(lambda: stored() > 1000, "it goes on")
    second = program("client.js", "send", where, "meter-17", COUNT)
    _, errors = finish(first)
    assert first.returncode == 3, errors
    assert "E412" in errors
    output, errors = finish(second)
    assert second.returncode == 0, errors
    assert output == f"{COUNT} stored\n"
    output, errors = finish(reader)
    assert reader.returncode == 0, errors
    events = [json.loads(line) for line in output.splitlines()]
    assert [event["payload"]["n"] for event in events] == list(range(COUNT))
    assert [event["seq"] for event in events] == list(range(1, COUNT + 1))
    assert stored() == COUNT
