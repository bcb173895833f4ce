"""`gateway run` with real children: stopped, killed, started twice, and not read.

From nothing to rows it is walked in test_readme.py.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlines import eventually, finish, run
from gateway_testkit.daemon import environment, free_port

pytestmark = [pytest.mark.slow, pytest.mark.spark]

GATEWAY = (sys.executable, "-m", "gateway")
DEAF_NO_MORE = ("env", "--default-signal=INT")
"""Whoever runs tests in the background has ^C ignored, and so have their children."""
STARTING = ("node gw-1", "spark: starting", "gateway.spark: Java", "takes events")
"""Words of a start, in about the order in which they come."""


class Running:
    """One `gateway run`, and the whole of what it said."""

    def __init__(self, home: Path, **spark: Any) -> None:
        self.port, admin = free_port(), free_port()
        self.home, self.data = home, home / "data"
        self.config = home / "gateway.yaml"
        settings = {
            "node": "gw-1",
            "data_dir": str(self.data),
            "spool": {"roll_interval": "200ms"},
            "admin": {"listen": f"tcp:127.0.0.1:{admin}"},
            "spark": {"trigger": "0s", "admin": {"listen": None}, **spark},
            "listeners": [
                {
                    "name": "beats",
                    "protocol": "lumberjack",
                    "listen": f"tcp:127.0.0.1:{self.port}",
                }
            ],
        }
        self.config.write_text(json.dumps(settings))  # JSON is YAML
        self._log = home / "log"
        self.start()

    def start(self) -> None:
        with self._log.open("wb") as out:
            self.process = subprocess.Popen(
                [*DEAF_NO_MORE, *GATEWAY, "run"], cwd=self.home, env=environment(),
                stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def says(self, words: str, times: int = 1) -> None:
        """Wait for it."""

        def look() -> bool:
            assert self.process.poll() is None or words in self.said, self.said
            return self.said.count(words) >= times

        eventually(look, f"{words!r} in\n{self.said}", seconds=240)

    def children(self) -> dict[str, int]:
        """The processes that it keeps, by what they are."""
        pid = self.process.pid
        found = {}
        for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            words = Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")
            if b"gateway.supervisor.child" in words:
                found[words[4].decode()] = int(one)
        return found

    def send(self, count: int = 100) -> None:
        """Events, all of them acknowledged; a gateway that is starting is waited for."""
        sent = run(
            *GATEWAY, "send", "lumberjack", f"127.0.0.1:{self.port}",
            "--generate", count, "--patience", 240,
        )  # fmt: skip
        assert sent.returncode == 0, (sent.stderr, self.said)

    def table(self) -> list[Any]:
        """The rows of the table, once there are some."""
        shown = run(*GATEWAY, "table", "--json", "-n", 100_000, cwd=self.home)
        return [json.loads(line) for line in shown.stdout.splitlines()]

    def interrupt(self) -> int:
        """^C, as a terminal sends it: to all of its group.  The exit status."""
        os.killpg(self.process.pid, signal.SIGINT)
        finish(self.process, seconds=240)
        return self.process.returncode


@pytest.fixture
def running(tmp_path) -> Iterator[Running]:
    one = Running(tmp_path)
    yield one
    one.process.kill()
    one.process.wait()


def alive(pid: int) -> bool:
    """And no zombie."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.long
def test_whichever_dies_is_started_again(running):
    """Killed with SIGKILL, the daemon and then the job: a sentence says so, both come back,
    and each event is in the table once.  A second `gateway run` is refused meanwhile, and
    ^C ends both, with status 0 and one last line."""
    running.says("spark: running")
    running.send()
    second = run(*GATEWAY, "run", cwd=running.home)
    assert second.returncode == 2
    assert "is in use by gateway run, pid" in second.stderr
    assert "Traceback" not in second.stderr
    before = running.children()
    os.kill(before["daemon"], signal.SIGKILL)
    running.says("the daemon ended (killed by SIGKILL); it is started again in 1 s")
    running.says("takes events", times=2)
    running.send()
    os.kill(before["job"], signal.SIGKILL)
    running.says("the Spark job ended (killed by SIGKILL); it is started again in 1 s")
    running.send()
    running.says("spark: running", times=2)
    eventually(lambda: len(running.table()) == 300, "300 rows", seconds=240)
    assert not set(before.values()) & set(running.children().values())
    assert running.interrupt() == 0
    assert running.said.endswith("run: stopped; gateway run goes on from here\n")
    assert "Traceback" not in running.said
    audit = run(*GATEWAY, "audit", cwd=running.home)
    assert "complete: 300 events, each exactly once" in audit.stdout
    left = {path.name for path in running.home.iterdir()}
    assert left == {"gateway.yaml", "data", "log"}


@pytest.mark.parametrize(
    "words",
    [
        *(pytest.param(one, marks=pytest.mark.long) for one in STARTING[:-1]),
        STARTING[-1],
    ],
)
def test_interrupted_while_it_starts(tmp_path, words):
    """^C at any moment of a start: both end, with status 0, and nothing is left behind."""
    running = Running(tmp_path)
    try:
        running.says(words)
        children = running.children()
        assert running.interrupt() == 0, running.said
        assert running.said.endswith("run: stopped; gateway run goes on from here\n")
        assert "Traceback" not in running.said
        assert not any(map(alive, children.values()))
    finally:
        running.process.kill()
        running.process.wait()


def test_its_own_death(running):
    """Killed with SIGKILL it leaves nobody behind: both stop, as by SIGTERM."""
    running.says("takes events")
    children = running.children()
    assert children.keys() == {"daemon", "job"}
    running.process.kill()
    running.process.wait()
    eventually(lambda: not any(map(alive, children.values())), "the end of both")


@pytest.mark.long
def test_a_daemon_that_can_not_start(tmp_path):
    """It says why, and `gateway run` ends with status 1; the job does not stay."""
    running = Running(tmp_path)
    running.says("takes events")
    other = tmp_path / "a folder"
    other.mkdir()
    text = running.config.read_text().replace(str(running.data), str(other / "data"))
    (other / "gateway.yaml").write_text(text)
    refused = run(*GATEWAY, "run", "--config", other / "gateway.yaml")
    assert refused.returncode == 1
    assert f"127.0.0.1:{running.port}" in refused.stdout
    assert f"gateway table --config '{other}/gateway.yaml', " in refused.stdout
    assert "run: the daemon can not start, and said why\n" in refused.stdout
    assert running.interrupt() == 0


def test_nobody_reads_on(running):
    """`gateway run | head -n 2` stops both, and says nothing of a pipe."""
    running.says("node gw-1")
    assert running.interrupt() == 0
    line = (
        f"{sys.executable} -m gateway run 2>errors | head -n 2; echo ${{PIPESTATUS[0]}}"
    )
    piped = run("bash", "-c", line, cwd=running.home)
    *_, status = piped.stdout.splitlines()
    assert status == "141"
    assert (running.home / "errors").read_text() == ""
