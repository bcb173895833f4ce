"""Reloads and restarts while all protocols send: nobody is refused, every event is there
once."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import warm
from daemons import Daemon, listener
from deadlines import eventually, finish

PROTOCOLS = {
    "beats": "lumberjack",
    "game": "pomelo",
    "streams": "pravega",
    "reactive": "rsio",
}

#: As systemd hands sockets over: from descriptor 3 on, for a process that it names.
HAND_OVER = """
import fcntl, os, sys
numbers = map(int, sys.argv[1].split(","))
taken = [fcntl.fcntl(number, fcntl.F_DUPFD, 100) for number in numbers]
for to, number in enumerate(taken, 3):
    os.dup2(number, to)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""


class Held(Daemon):
    """A daemon whose listening sockets are the test's; they stay open over restarts."""

    def __init__(self, home: Path, settings: dict[str, Any]) -> None:
        super().__init__(home, settings)
        self.sockets = {
            name: socket.create_server(("127.0.0.1", 0), backlog=4096)
            for name in PROTOCOLS
        }

    def where(self, name: str) -> tuple[str, int]:
        address: tuple[str, int] = self.sockets[name].getsockname()
        return address

    def launch(self, *more: str) -> None:
        """Start it with them."""
        numbers = [one.fileno() for one in self.sockets.values()]
        handed = {
            "LISTEN_FDS": str(len(numbers)),
            "LISTEN_FDNAMES": ":".join(PROTOCOLS),
        }
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", HAND_OVER, ",".join(map(str, numbers))),
                    *self.command,
                    *more,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self.environment, **handed},
                pass_fds=numbers,
            )

    def write(self, settings: dict[str, Any]) -> None:
        """Change the configuration file."""
        self.config.write_text(json.dumps(settings))


@pytest.fixture
def held(tmp_path) -> Iterator[Held]:
    """All four protocols, on sockets of ours."""
    listeners = [
        listener(name, protocol, listen=f"systemd:{name}")
        for name, protocol in PROTOCOLS.items()
    ]
    daemon = Held(tmp_path / "gateway", {"listeners": listeners})
    yield daemon
    daemon.kill()
    for one in daemon.sockets.values():
        one.close()
    print(daemon.log[-10_000:])


class Callers:
    """Come to every port again and again, and count who is let down."""

    def __init__(self, daemon: Held) -> None:
        self._daemon = daemon
        self.came: Counter[str] = Counter()
        self.refused: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            for name in PROTOCOLS:
                try:
                    socket.create_connection(self._daemon.where(name)).close()
                except OSError as why:
                    self.refused.append(f"{name}: {why}")
                self.came[name] += 1

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


class Sender:
    """A real client, which connects again when it has to; it sends until it is told."""

    def __init__(self, daemon: Held, name: str) -> None:
        where = "{}:{}".format(*daemon.where(name))
        self.process = warm.start(
            [
                *(sys.executable, "-m", "gateway.cli", "send", PROTOCOLS[name], where),
                *("--stdin", "--connections", "2", "--patience", "100000", "--json"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.name = name
        self.sent = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        into = self.process.stdin
        assert into is not None
        with contextlib.suppress(BrokenPipeError), into:
            while not self._over.wait(0.02):
                numbers = range(self.sent, self.sent + 5)
                into.write(b"".join(b'{"n":%d}\n' % number for number in numbers))
                into.flush()
                self.sent += 5

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def totals(self) -> Any:
        """What it says at the end."""
        self.process.stdin = None  # which is closed
        return json.loads(finish(self.process)[0])


@pytest.mark.slow
def test_reloads_and_a_restart_under_load(held, gateway_command):
    """Settings change and are broken, a listener comes and goes, and the daemon is replaced
    by another that gets the same sockets: nobody who connects is refused, and what all
    four protocols send is stored once, and nothing else.
    """
    held.start()
    plain = json.loads(held.config.read_text())
    callers = Callers(held)
    senders = [Sender(held, name) for name in PROTOCOLS]

    def last() -> dict[str, Any]:
        found: dict[str, Any] = held.status()["reload"]
        return found

    def more_came() -> None:
        """Of each protocol, since now."""
        before = {name: held.listener(name)["events"] for name in PROTOCOLS}
        eventually(
            lambda: all(held.listener(n)["events"] > before[n] + 20 for n in before),
            "more of all",
        )

    try:
        more_came()
        changed = [{**one, "limits": {"idle": "1m"}} for one in plain["listeners"]]
        held.write({**plain, "listeners": [*changed, listener("more", "lumberjack")]})
        done = gateway_command("reload", "--config", held.config, "--json")
        assert len(json.loads(done.stdout)["changed"]) == len(PROTOCOLS) + 1
        more_came()
        held.write({**plain, "jurnal": {}})
        held.hang_up()
        eventually(lambda: not last()["applied"], "it is refused")
        held.write(plain)
        held.hang_up()
        eventually(
            lambda: "listeners: more is gone" in last()["changed"], "it is taken"
        )
        more_came()
        first = held.process
        assert first is not None
        first.terminate()
        held.launch("--wait", "600")  # at once: it waits until the other is gone
        finish(first)
        eventually(held._ready, "the next one is ready")
        more_came()
        for each in senders:
            each.stop()
        totals = {each.name: each.totals() for each in senders}
    finally:
        callers.stop()
        for each in senders:
            each.stop()
            each.process.kill()
            each.process.wait()
    assert callers.refused == []
    assert min(callers.came.values()) > 10
    assert all(one["complete"] for one in totals.values()), totals
    held.terminate()
    stored: dict[str, list[int]] = {name: [] for name in PROTOCOLS}
    for row in held.rows():
        if row["kind"] != "session":
            stored[row["listener"]].append(json.loads(row["payload"])["n"])
    for each in senders:
        assert sorted(stored[each.name]) == list(range(each.sent)), each.name
