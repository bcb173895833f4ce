"""The RS.io clients, built and installed from a clone by the lines of their READMEs, with a
gateway that is killed meanwhile.
"""

import json
import os
import re
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

import programs
from daemons import listener
from deadlines import eventually, finish, run
from fenced import blocks
from wheels import borrow, clean

ROOT = Path(__file__).parents[2]
COUNT = 10_000
STREAMS = listener("streams", "rsio", options={"publish": ["events"], "window": 64})

PYTHON = """
import asyncio, sys
from rsio_client.on_asyncio import Sender, connect

async def main(role, host, port):
    if role == "send":
        async with Sender(lambda: connect(host, port, name="py")) as sender:
            for first in range(0, COUNT, 100):
                await sender.send([b'{"n":%d}' % n for n in range(first, first + 100)])
        return
    async with connect(host, port) as peer:
        async for element in peer.subscribe(f"events?from=1&to={COUNT}"):
            print(element.decode())

host, port = sys.argv[2].rsplit("/", 1)[1].split(":")
asyncio.run(main(sys.argv[1], host, int(port)))
"""

JAVASCRIPT = Path(__file__).with_name("rsio_clone.mjs").read_text()

JAVA = Path(__file__).with_name("RsioClone.java").read_text()


@pytest.fixture
def clone(tmp_path) -> Path:
    """A folder in which there is a clone of the repository, as far as the lines need it."""
    whole = tmp_path / "gateway"
    parts = ["clients", "packages/rsio-client", "gateway/sdk", "gateway/protocols/rsio"]
    for part in parts:
        waste = shutil.ignore_patterns("target", "node_modules", "__pycache__")
        shutil.copytree(ROOT / part, whole / part, ignore=waste)
    return tmp_path


def lines(folder: str, kind: str) -> str:
    """The first block of this kind in a README; it begins with the clone, which is there."""
    first = blocks(f"{folder}/README.md", kind)[0].text
    return re.sub("^git clone .*\n", "", first)


def do(home: Path, text: str, **more: str) -> None:
    """Type lines."""
    done = run("sh", "-ec", text, cwd=home, env={**clean(), **more})
    assert done.returncode == 0, done.stdout + done.stderr


def in_python(home: Path) -> list[str]:
    venv.create(home / "venv", symlinks=True, with_pip=False)
    borrow(home / "venv")
    path = f"{home / 'venv/bin'}:{os.environ['PATH']}"
    # What it needs is borrowed, and so is what builds it.
    pip = f"alias pip='python -m pip --python {home}/venv/bin/python'\n"
    offline = {"PIP_NO_BUILD_ISOLATION": "false", "PIP_NO_INDEX": "1"}
    do(home, pip + lines("packages/rsio-client", "sh"), PATH=path, **offline)
    (home / "program.py").write_text(PYTHON.replace("COUNT", str(COUNT)))
    return [str(home / "venv/bin/python"), str(home / "program.py")]


def in_javascript(home: Path) -> list[str]:
    node, _ = programs.program("node"), programs.program("npm")
    do(home, lines("clients/js", "sh"))
    (home / "program.mjs").write_text(JAVASCRIPT.replace("COUNT", str(COUNT)))
    return [node, str(home / "program.mjs")]


def on_the_jvm(home: Path) -> list[str]:
    for need in ("java", "javac", "mvn"):
        programs.program(need)
    do(home, lines("clients/java", "sh"))
    (home / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>a</groupId>"
        "<artifactId>b</artifactId><version>1</version><dependencies>"
        f"{lines('clients/java', 'xml')}</dependencies></project>"
    )
    copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    programs.ask_registry("mvn", "-B", "-q", copy, cwd=home)
    (home / "RsioClone.java").write_text(JAVA.replace("COUNT", str(COUNT)))
    jars = f"{home}/target/dependency/*"
    do(home, f"javac -cp '{jars}' RsioClone.java")
    return ["java", "-Xmx256m", "-cp", f"{jars}:{home}", "RsioClone"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "install",
    [
        in_python,
        pytest.param(in_javascript, marks=pytest.mark.needs_npm),
        pytest.param(on_the_jvm, marks=[pytest.mark.needs_maven, pytest.mark.long]),
    ],
)
def test_it_sends_and_reads_over_a_kill(clone, install, prepare, free_port):
    """Ten thousand are stored once, in order, and read again."""
    command = install(clone)
    where = f"127.0.0.1:{free_port()}"
    daemon = prepare(listeners=[{**STREAMS, "listen": f"tcp:{where}"}]).start()
    with programs.running() as start:
        pipes = {"stderr": subprocess.PIPE, "env": clean()}
        sender = start(*command, "send", f"tcp://{where}", **pipes)
        durable = lambda: daemon.status()["journal"]["durable_lsn"]  # noqa: E731
        eventually(lambda: durable() > 500, "it sends")
        daemon.restart()
        _, errors = finish(sender)
        assert sender.returncode == 0, errors
        reader = start(*command, "receive", f"tcp://{where}", **pipes)
        output, errors = finish(reader)
        assert reader.returncode == 0, errors
    numbers = [json.loads(line)["payload"]["n"] for line in output.splitlines()]
    assert numbers == list(range(COUNT))
