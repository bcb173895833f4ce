"""PyPI's `pravega` in a process of its own, and a daemon for it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from daemons import Daemon, free_port, listener
from deadlines import PATIENCE, ROOT, Deadline, environment


class Streams:
    """A daemon whose Pravega listener and controller keep their ports for life."""

    def __init__(
        self, prepare: Callable[..., Daemon], settings: dict[str, Any]
    ) -> None:
        self.port, self.controller_port = free_port(), free_port()
        options = {"controller": f"tcp:127.0.0.1:{self.controller_port}"}
        streams = listener(
            "streams",
            "pravega",
            listen=f"tcp:127.0.0.1:{self.port}",
            options=options | settings.pop("options", {}),
            **settings.pop("listener", {}),
        )
        self.daemon: Daemon = prepare(listeners=[streams], **settings)
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
def serve(prepare) -> Callable[..., Streams]:
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
        deadline = Deadline(seconds)
        while deadline.left() > 0:
            with contextlib.suppress(queue.Empty):
                how, value = self._answers.get(timeout=1.0)
                break
        else:
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
