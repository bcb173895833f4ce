"""Gateways of one machine that share ports, each with a node and a directory of its own."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from daemons import Daemon, free_port, listener, tls
from deadlines import run
from gateway_testkit.certificates import Authority, Pair

WAYS = ("plain", "encrypted", "web")
EVENTS = 400


class Ports:
    """One for each way, the same for all daemons."""

    def __init__(self, authority: Authority, pair: Pair) -> None:
        self.numbers = {way: free_port() for way in WAYS}
        self._ca = authority.ca
        self._pair = pair

    def listeners(self) -> list[dict[str, Any]]:
        more: dict[str, dict[str, Any]] = {
            "plain": {},
            "encrypted": {"tls": tls(self._pair)},
            "web": {"websocket": {"path": "/beats"}},
        }
        return [
            listener(
                way,
                "lumberjack",
                listen=f"tcp:127.0.0.1:{number}",
                reuse_port=True,
                **more[way],
            )
            for way, number in self.numbers.items()
        ]

    def send(self, way: str, acked: Path) -> int:
        """Over connections that the kernel spreads; how many were acknowledged."""
        options = {
            "plain": (),
            "encrypted": ("--tls", "--ca", str(self._ca)),
            "web": ("--websocket", "/beats"),
        }[way]
        done = run(
            sys.executable, "-m", "gateway.cli", "send", "lumberjack",
            f"127.0.0.1:{self.numbers[way]}", "--generate", EVENTS, "--window", "20",
            "--connections", "8", "--acked", acked, "--json", *options,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        found: int = json.loads(done.stdout)["acknowledged"]
        return found


@pytest.fixture
def ports(authority, server_pair) -> Ports:
    return Ports(authority, server_pair)


@pytest.fixture
def gateways(prepare, ports) -> list[Daemon]:
    """Two, not started."""
    return [
        prepare(node, node=node, listeners=ports.listeners())
        for node in ("gw-1", "gw-2")
    ]


def ids(*daemons: Daemon) -> Counter[str]:
    """How often each event is in what they have published."""
    found: Counter[str] = Counter()
    for daemon in daemons:
        daemon.settled()
        found.update(json.loads(row["payload"])["event"]["id"] for row in daemon.rows())
    return found


def test_each_takes_connections_and_every_event_is_there_once(
    gateways, ports, tmp_path
):
    """Over TCP, TLS and WebSocket.  While one is away the other takes all, and the one
    that comes back gets its share again.
    """
    one, other = (daemon.start() for daemon in gateways)
    acked = tmp_path / "acked"
    for way in WAYS:
        while not all(each.listener(way)["events"] for each in (one, other)):
            assert ports.send(way, acked) == EVENTS
    one.terminate()
    before = other.listener("plain")["events"]
    assert ports.send("plain", acked) == EVENTS
    assert other.listener("plain")["events"] == before + EVENTS
    one.start()
    while not one.listener("plain")["events"]:
        assert ports.send("plain", acked) == EVENTS
    noted = acked.read_text().split()
    assert ids(one, other) == Counter(dict.fromkeys(noted, 1))
    assert len(noted) == len(set(noted))
