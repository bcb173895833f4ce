r"""A ready test for any protocol plug-in: kill -9 under load, again and again.

    class TestKilled(KilledContract):
        protocol = gateway_syslog.protocol
        acknowledges = False
        events = 1

        def batch(self, names):
            return b"".join(b"<13>1 - - - - - - %b\n" % name.encode() for name in names)

        def name(self, payload):
            return json.loads(payload)["message"]

The daemon is a real one, in a process of its own; without the plug-in installed the test
is skipped.  Of each connection the gateway must have the first events that were sent, in
order, each once, and at least those that were acknowledged.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from gateway.plugins import installed
from gateway.sdk.protocol import Protocol
from gateway_testkit.daemon import Daemon, listener

__all__ = ["KilledContract"]

_KILLS = 3
_CLIENTS = 3
_AHEAD = 2
"""Batches that a client sends before it waits for an acknowledgement."""
_PAUSE = 0.002
"""Seconds between two batches of a client."""
_EVENTS = 100
"""Events that are durable in each life before it is ended."""


class KilledContract:
    """The ready test; a subclass has the attributes about its protocol."""

    protocol: ClassVar[Protocol]
    """The plug-in's object."""
    options: ClassVar[Mapping[str, object]] = {}
    """`listeners[].options` for the test, as in the configuration file."""
    opening: ClassVar[bytes] = b""
    """Bytes that a client sends first on each connection; they have no events."""
    events: ClassVar[int] = 10
    """How many events a batch has, which is stored as a whole."""
    acknowledges: ClassVar[bool] = True
    """False: the protocol has no acknowledgements."""

    def batch(self, names: Sequence[str]) -> bytes:
        """Bytes of a batch of events that have these names in them."""
        raise NotImplementedError

    def name(self, payload: bytes) -> str:
        """The name of a stored event."""
        raise NotImplementedError

    def acknowledged(self, sent: bytes) -> int:
        """How many events are acknowledged by *sent*, which is all that the client got."""
        raise NotImplementedError

    def test_kill_the_daemon(self, tmp_path: Path) -> None:
        """Nothing acknowledged is missing, nothing is there twice, the audit is complete:
        right after the last kill, and once all of it is published.
        """
        if self.protocol.name not in installed().protocols:
            pytest.skip(f"the plug-in for {self.protocol.name} is not installed")
        clients: list[_Client] = []
        port = listener("killed", self.protocol.name, options=self.options)
        with Daemon(tmp_path, {"listeners": [port]}) as daemon:
            for life in range(_KILLS):
                if life:
                    daemon.start()
                clients += self._killed(daemon, life)
            daemon.audit("--content", "--chain")
            daemon.start()
            daemon.settled()
            rows = daemon.rows()
            report = daemon.audit("--content", "--chain")
        assert report["events"] == len(rows)
        assert {row["flaw"] for row in rows} == {None}
        names = [self.name(row["payload"]) for row in rows]
        for client in clients:
            found = [name for name in names if name.startswith(f"{client.label}-")]
            sent = [f"{client.label}-{number}" for number in range(client.sent)]
            assert found == sent[: len(found)], "not what was sent first, in order"
            assert len(found) >= client.heard, "acknowledged, and missing"
            assert len(found) % self.events == 0, "a part of a batch is stored"

    def _killed(self, daemon: Daemon, life: int) -> list[_Client]:
        """One life under load, and who sent in it."""
        address, before = daemon.address("killed"), _durable(daemon)
        clients = [_Client(self, address, f"{life}.{n}") for n in range(_CLIENTS)]
        daemon.eventually(
            lambda: (
                _durable(daemon) >= before + _EVENTS
                and all(client.heard or not self.acknowledges for client in clients)
            ),
            f"{_EVENTS} events more, and an acknowledgement for each client",
        )
        time.sleep(random.uniform(0.0, 0.3))  # noqa: S311 - any moment will do
        daemon.kill()
        for client in clients:
            client.thread.join()
        return clients


class _Client:
    """Sends batches over one connection, until that ends."""

    def __init__(
        self, contract: KilledContract, address: tuple[str, int], label: str
    ) -> None:
        self.label = label
        self.sent = self.heard = 0
        self._contract = contract
        self.thread = threading.Thread(target=self._run, args=[address], daemon=True)
        self.thread.start()

    def _run(self, address: tuple[str, int]) -> None:
        contract, got = self._contract, b""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(address, timeout=30) as peer,
        ):
            peer.sendall(contract.opening)
            for number in itertools.count(step=contract.events):
                self.sent = number + contract.events
                names = [f"{self.label}-{each}" for each in range(number, self.sent)]
                peer.sendall(contract.batch(names))
                while contract.acknowledges and (
                    self.sent - self.heard >= _AHEAD * contract.events
                ):
                    data = peer.recv(1 << 16)
                    if not data:
                        return
                    got += data
                    self.heard = contract.acknowledged(got)
                time.sleep(_PAUSE)


def _durable(daemon: Daemon) -> int:
    last: int = daemon.status()["journal"]["durable_lsn"]
    return last
