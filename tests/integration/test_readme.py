"""The README's five minutes: its commands, as they stand, where only the wheel is."""

import contextlib
import importlib.util
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadlines import ROOT, eventually, finish, run
from wheels import Environment, clean, wheel

PORTS = (5044, 8080)
README = (ROOT / "README.md").read_text()
PROGRAMS = {"twistd": "from twisted.scripts.twistd import run; run()"}


def free(port: int) -> bool:
    with contextlib.closing(socket.socket()) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return one.connect_ex(("127.0.0.1", port)) != 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.skipif(
        importlib.util.find_spec("hatchling") is None, reason="there is no hatchling"
    ),
    pytest.mark.skipif(
        not all(map(free, PORTS)), reason=f"the README's ports {PORTS} are taken"
    ),
]


def steps() -> Iterator[str]:
    """The commands of the walk, in their order; those in the text among them."""
    [section] = re.findall(
        r"^## Five minutes with Filebeat\n(.*?)^For production",
        README,
        re.MULTILINE | re.DOTALL,
    )
    for block, inline in re.findall(
        r"^ {7}((?:\.|gateway|twistd) .*)$|`(gateway send \S+ \S+)`",
        section,
        re.MULTILINE,
    ):
        yield (block or inline).partition("  #")[0].strip()


class Walk:
    """Somebody in an empty folder, with terminals."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._running: list[subprocess.Popen[bytes]] = []
        environment = Environment(home / ".venv")
        environment.install(wheel(home / "wheels"))
        for name, code in PROGRAMS.items():  # what is borrowed has no scripts
            script = environment.python.with_name(name)
            script.write_text(f"#!{environment.python}\n{code}\n")
            script.chmod(0o755)

    def type(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, in the environment."""
        return run(
            "bash", "-c", f". .venv/bin/activate; {command}",
            cwd=self._home, env=clean(),
        )  # fmt: skip

    def start(self, command: str) -> None:
        """Run one in a terminal of its own."""
        log = (self._home / f"{shlex.split(command)[0]}.log").open("wb")
        line = f". .venv/bin/activate; exec {command}"
        self._running.append(
            subprocess.Popen(
                ["bash", "-c", line],
                cwd=self._home, env=clean(), stdout=log, stderr=log,
            )
        )  # fmt: skip

    def stop(self) -> None:
        """Each in its way, to its end."""
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            finish(process)


@pytest.fixture
def walk(tmp_path) -> Iterator[Walk]:
    walk = Walk(tmp_path)
    yield walk
    walk.stop()


def test_five_minutes(walk, tmp_path):
    """From nothing to rows in the table and the proof; nothing is left lying about."""
    typed = []
    for command in steps():
        if command == "gateway run":
            walk.start(command)
        else:
            done = walk.type(command)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            typed.append(done.stdout)
    activate, send, events, stats, audit = typed
    assert activate == ""
    assert send.startswith("1000 of 1000 events acknowledged in ")
    assert len(events.splitlines()) == 11
    assert "beats" in stats
    assert "complete: 1000 events, each exactly once" in audit
    well = "All well: every event is in the table"
    eventually(lambda: walk.type("gateway status").stdout.startswith(well), well)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {".venv", "wheels", "gateway.yaml", "gateway-data", "gateway.log"}
    walk.stop()
    said = (tmp_path / "gateway.log").read_text()
    assert f"run: {tmp_path}/gateway.yaml written, as there was none" in said
    assert said.endswith("run: stopped; gateway run goes on from here\n")
