"""The daemon as users start it, and certificates, for the tests with real processes."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pickle
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gateway.testing.certificates import Authority, Pair

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PATIENCE = 60.0
"""Seconds that anything may take on a busy machine before it counts as hung."""

T = TypeVar("T")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones evenly among the others: workers share what lies together."""
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = [item for item in items if not item.get_closest_marker("slow")]
    between = len(quick) // max(len(slow), 1)
    items[:] = [
        item
        for number, one in enumerate(slow)
        for item in (one, *quick[number * between : (number + 1) * between])
    ] + quick[len(slow) * between :]


def environment() -> dict[str, str]:
    """Ours, with the source tree importable and its Twisted plugin found."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def eventually(look: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """The first true answer of *look*; fails when there is none in time."""
    end = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > end:
            pytest.fail(f"in {seconds:g} s not seen: {what}")
        time.sleep(0.02)
    return found


def free_port() -> int:
    """A port that is free, and that no outgoing connection will be given meanwhile."""
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    while True:
        port = random.SystemRandom().randrange(
            10_000, max(20_000, int(text.split()[0]))
        )
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Daemon:
    """One `twistd gateway`, and what can be seen of it from outside.

    *settings* are merged over a configuration with one listener, `beats`.
    """

    def __init__(self, home: Path, settings: Mapping[str, Any]) -> None:
        self.data = home / "data"
        self.config = home / "gateway.yaml"
        self.spool, self.archive = self.data / "spool", self.data / "archive"
        self.process: subprocess.Popen[bytes] | None = None
        self._home = home
        self._log = home / "gateway.log"
        self._admin = f"127.0.0.1:{free_port()}"
        beats = {
            "name": "beats", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"
        }  # fmt: skip
        plain = {
            "node": "gw-1",
            "data_dir": str(self.data),
            "listeners": [beats],
            "spool": {"roll_interval": "200ms"},
            "admin": {"listen": f"tcp:{self._admin}"},
        }
        home.mkdir(parents=True, exist_ok=True)
        # JSON is YAML.
        self.config.write_text(json.dumps(_merged(plain, settings), indent=2))

    # -- its life -------------------------------------------------------------

    @property
    def command(self) -> list[str]:
        arguments = ["-n", "--pidfile=", "gateway", "--config", str(self.config)]
        return [str(BIN / "twistd"), *arguments]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def launch(self) -> None:
        """Start it, and do not wait."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home,
                env=environment(),
            )

    def start(self) -> Daemon:
        """Start it; returns once it takes events."""
        self.launch()
        eventually(self._ready, "the daemon is ready")
        return self

    def _ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            pytest.fail(f"the daemon ended: {self.process.returncode}\n{self.log}")
        with contextlib.suppress(OSError):
            self.get("/readyz")
            return True
        return False

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Start it where it is expected to end by itself."""
        return subprocess.run(
            [*self.command, *options],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            cwd=self._home,
            env=environment(),
        )

    def kill(self) -> None:
        """As the kernel's out-of-memory killer would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def terminate(self) -> int:
        """As systemd would; returns the exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def hang_up(self) -> None:
        os.kill(self.pid, signal.SIGHUP)

    # -- what it says ---------------------------------------------------------

    @property
    def log(self) -> str:
        """All it has written so far, in all its lives."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def get(self, path: str) -> bytes:
        """From the admin port.  Raises OSError, of which HTTPError is one."""
        with urllib.request.urlopen(
            f"http://{self._admin}{path}", timeout=10
        ) as answer:
            found: bytes = answer.read()
            return found

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/api/status"))
        return found

    def listener(self, name: str = "beats") -> dict[str, Any]:
        """Of the status, this listener's part."""
        for each in self.status()["listeners"]:
            if each["name"] == name:
                found: dict[str, Any] = each
                return found
        raise KeyError(name)

    def address(self, name: str = "beats") -> tuple[str, int]:
        host, _, port = self.listener(name)["address"].rpartition(":")
        return host, int(port)

    def memory(self) -> int:
        """The most bytes that were ever resident."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(text.partition("VmHWM:")[2].split()[0]) * 1024

    # -- what it has stored ---------------------------------------------------

    def settled(self) -> None:
        """Wait until all that is durable is published."""

        def published() -> bool:
            status = self.status()
            last: int = status["journal"]["durable_lsn"]
            return bool(status["spool"]["published_lsn"] >= last)

        eventually(published, "everything durable is published")

    def segments(self) -> list[str]:
        """What is left in the journal."""
        return [
            path.name
            for path in (self.data / "journal" / "gw-1").iterdir()
            if path.name != "catalog"
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Every event that was published, in order; each lsn must be there once."""
        import pyarrow.parquet as pq

        rows: list[dict[str, Any]] = []
        for directory in (self.spool, self.archive):
            for path in directory.glob("events-*.parquet"):
                rows += pq.read_table(path).to_pylist(maps_as_pydicts="strict")
        rows.sort(key=lambda row: row["lsn"])
        assert [row["lsn"] for row in rows] == list(range(1, len(rows) + 1))
        return rows


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        both = isinstance(inner, dict) and isinstance(value, dict)
        merged[key] = _merged(inner, value) if both else value
    return merged


@pytest.fixture
def prepare(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Make daemons that are not started; they end with the test, and show their logs."""
    made: list[Daemon] = []

    def prepare(home: str = "gateway", **settings: Any) -> Daemon:
        made.append(Daemon(tmp_path / home, settings))
        return made[-1]

    yield prepare
    for each in made:
        each.kill()
        print(f"--- {each.config.parent.name}, the end of its log:")
        print(each.log[-10_000:])


@pytest.fixture
def start(prepare: Callable[..., Daemon]) -> Callable[..., Daemon]:
    """Start a daemon with these settings."""
    return lambda *home, **settings: prepare(*home, **settings).start()


@pytest.fixture
def gateway_command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `gateway …` to its end."""

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gateway.cli", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE,
            check=False,
            env=environment(),
        )

    return run


# -- certificates -------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def server_pair(authority: Authority) -> Pair:
    return authority.issue("gateway.example")


# -- Pravega -------------------------------------------------------------------------


class Streams:
    """A daemon whose Pravega listener and controller keep their ports for life."""

    def __init__(
        self, prepare: Callable[..., Daemon], settings: dict[str, Any]
    ) -> None:
        self.port, self.controller_port = free_port(), free_port()
        options = {"controller": f"tcp:127.0.0.1:{self.controller_port}"}
        listener = {
            "name": "streams",
            "protocol": "pravega",
            "listen": f"tcp:127.0.0.1:{self.port}",
            **settings.pop("listener", {}),
            "options": options | settings.pop("options", {}),
        }
        self.daemon: Daemon = prepare(listeners=[listener], **settings)
        self.daemon.start()

    @property
    def controller(self) -> str:
        return f"tcp://127.0.0.1:{self.controller_port}"

    def restart(self) -> None:
        self.daemon.terminate()
        self.daemon.start()

    def rows(self, stream: str = "") -> list[dict[str, Any]]:
        """What is published, once all that is durable is."""
        self.daemon.settled()
        rows = self.daemon.rows()
        return [row for row in rows if f"/{stream}" in row["channel"]]

    def payloads(self, stream: str = "") -> list[bytes]:
        return [row["payload"] for row in self.rows(stream)]


@pytest.fixture
def serve(prepare: Callable[..., Daemon]) -> Callable[..., Streams]:
    """Start a daemon that serves Pravega; *options* are the listener's."""
    return lambda **settings: Streams(prepare, settings)


DRIVER = ROOT / "tests" / "integration" / "pravega_driver.py"


class Remote:
    """An object of the client's; its methods are called over there."""

    def __init__(self, client: PravegaClient, number: int) -> None:
        self._client = client
        self._number = number

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments: self._client.call(self._number, name, *arguments)


class PravegaClient:
    """PyPI's `pravega` in a process of its own, as of now without a connection.

    Calls take `PATIENCE` at most; one that was begun with `begin` is `finish`ed.
    """

    class Failed(Exception):
        """The client raised this."""

    def __init__(self, controller: str, more: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(DRIVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment(), **more},
        )
        self._answers: queue.Queue[tuple[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.module, self.whole = Remote(self, 0), Remote(self, -1)
        auth = "pravega_client_auth_method" in more
        tls = controller.startswith("tls:")
        self.manager: Any = self.module.StreamManager(controller, auth, tls)

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(EOFError, ValueError):
            while True:
                self._answers.put(pickle.load(self.process.stdout))
        self._answers.put(("raised", "its process ended"))

    def begin(self, number: int, name: str, *arguments: Any) -> None:
        """Call, and do not wait."""
        given = tuple(
            ("kept", each._number) if isinstance(each, Remote) else each
            for each in arguments
        )
        assert self.process.stdin is not None
        pickle.dump((number, name, given), self.process.stdin)
        self.process.stdin.flush()

    def finish(self, seconds: float = PATIENCE) -> Any:
        """What the call that was begun gives."""
        try:
            how, value = self._answers.get(timeout=seconds)
        except queue.Empty:
            pytest.fail(f"the Pravega client hangs for {seconds:g} s")
        if how == "raised":
            raise self.Failed(value)
        return Remote(self, value) if how == "kept" else value

    @property
    def waits(self) -> bool:
        """For an answer to the call that was begun."""
        return self._answers.empty()

    def call(self, number: int, name: str, *arguments: Any) -> Any:
        self.begin(number, name, *arguments)
        return self.finish()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def pravega_client() -> Iterator[Callable[..., PravegaClient]]:
    """Start clients of the controller at `tcp://HOST:PORT`; they end with the test.

    Skipped where there is no such client: it has wheels for Python 3.9 to 3.11.
    """
    if importlib.util.find_spec("pravega_client") is None:
        why = "needs PyPI's pravega, which has wheels for Python up to 3.11 only"
        if os.environ.get("CI") == "true" and sys.version_info < (3, 12):
            pytest.fail(why)
        pytest.skip(why)
    made: list[PravegaClient] = []

    def client(controller: str, **more: str) -> PravegaClient:
        made.append(PravegaClient(controller, more))
        return made[-1]

    yield client
    for each in made:
        each.kill()


# -- functions, for tests that cannot import them ------------------------------------


@pytest.fixture(name="eventually")
def _eventually() -> Callable[..., Any]:
    return eventually


@pytest.fixture(name="free_port")
def _free_port() -> Callable[[], int]:
    return free_port
