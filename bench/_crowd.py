"""Ten thousand Pomelo clients that only beat, and what is pushed to them: of `pomelo.py`."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from _daemon import Gateway, Usage
from _players import greeted, package
from _report import Broken

from gateway.spark import beside

__all__ = ["HEARTBEAT_SECONDS", "Beats", "Crowd", "Groups", "gather", "push"]

HEARTBEAT_SECONDS = 3
_BEAT_SECONDS = 2.8
_SETTLE_SECONDS = 3.0
_GROUP = 100
_GROUPS_OF_ONE = 10
_PUSH_EVERY = 0.01
_PATIENCE_SECONDS = 60.0


class Beats:
    """A heartbeat of each client within 3 s; there may come more clients."""

    def __init__(self, socks: list[socket.socket]) -> None:
        self._socks = socks
        self._due: deque[tuple[float, socket.socket]] = deque()
        """When each is to beat, the first one first."""

    def send_due(self) -> None:
        """Those whose time has come."""
        now, due = time.monotonic(), self._due
        due.extend((now + _BEAT_SECONDS, sock) for sock in self._socks[len(due) :])
        for _ in range(len(due)):
            at, sock = due[0]
            if at > time.monotonic():
                break
            due.rotate(-1)
            due[-1] = at + _BEAT_SECONDS, sock
            try:
                sock.sendall(package(3))
                sock.recv(65536)  # there is at least the first heartbeat
            except OSError as why:
                raise Broken(
                    f"a client was cut off: {why}; on a busy machine heartbeats come late"
                ) from why

    def go_on(self, seconds: float) -> None:
        """For so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.send_due()
            time.sleep(0.005)


@dataclass
class Crowd:
    """What many connections cost."""

    rate: float
    """Connected and greeted, a second."""
    empty: Usage
    """Without them."""
    full: Usage
    """With all of them."""
    each: float
    """Bytes that one takes of the process that holds it."""
    cores: float
    """While they only beat."""


def gather(
    usage: Callable[[], Usage],
    address: str,
    count: int,
    seconds: float,
    then: Callable[[list[socket.socket], Beats], None],
) -> Crowd:
    """Connect, and beat; call *then* while all are connected."""
    for sock in [greeted(address) for _ in range(50)]:  # whatever the first ones import
        sock.close()
    time.sleep(_SETTLE_SECONDS)
    connecting, uses = 0.0, [usage()]
    with contextlib.ExitStack() as stack:
        socks: list[socket.socket] = []
        beats = Beats(socks)
        for _ in range(2):
            for _ in range(count // 2):
                begin = time.monotonic()
                socks.append(stack.enter_context(greeted(address)))
                connecting += time.monotonic() - begin
                beats.send_due()
            beats.go_on(seconds / 2)
            uses.append(usage())
        quiet = usage()
        beats.go_on(seconds)
        cores, _ = usage().since(quiet)
        then(socks, beats)
    empty, _, full = uses
    first, half, last = (each.leader_rss for each in uses)
    each = max(last - first, 2 * (last - half)) / count
    return Crowd(count / connecting, empty, full, each, cores)


class _Admin:
    """The admin port, on one connection."""

    def __init__(self, gateway: Gateway) -> None:
        self._port = http.client.HTTPConnection(
            "127.0.0.1", gateway.admin_port, timeout=30
        )

    def get(self, path: str) -> dict[str, Any]:
        self._port.request("GET", path)
        return self._answer()

    def push(self, number: int, **to: object) -> int:
        """To how many it was sent."""
        body = {"route": "bench.push", "body": {"n": _mark(number)}, **to}
        headers = {"Content-Type": "application/json"}
        self._port.request("POST", "/api/push", json.dumps(body), headers)
        sent: int = self._answer()["sent"]
        return sent

    def _answer(self) -> dict[str, Any]:
        found: dict[str, Any] = json.load(self._port.getresponse())
        return found


def _mark(number: int) -> str:
    return f"push {number:08d}"


def _wait_for(number: int, socks: list[socket.socket]) -> None:
    mark = _mark(number).encode()
    for sock in socks:
        heard = b""
        while mark not in heard:
            heard += sock.recv(65536)


def push(gateway: Gateway, socks: list[socket.socket]) -> float:
    """Seconds from the request to the last client's reading of a push to all."""
    admin = _Admin(gateway)
    begin = time.monotonic()
    sent = admin.push(0, all=True)
    if sent != len(socks):
        raise Broken(f"pushed to {sent} of {len(socks)}")
    _wait_for(0, socks)
    return time.monotonic() - begin


class Groups:
    """Groups of 100 clients; each client is in ten."""

    def __init__(
        self, gateway: Gateway, socks: list[socket.socket], beats: Beats
    ) -> None:
        self._gateway, self._socks, self._beats = gateway, socks, beats
        self._admin = _Admin(gateway)
        chance = random.Random(1)
        self._members: list[list[int]] = []
        everybody = list(range(len(socks)))
        for _ in range(_GROUPS_OF_ONE):
            chance.shuffle(everybody)
            self._members += [
                everybody[at : at + _GROUP]
                for at in range(0, len(everybody) - _GROUP + 1, _GROUP)
            ]

    def __len__(self) -> int:
        return len(self._members)

    def join(self) -> None:
        """By rows of the outbox."""
        sessions = self._sessions()
        rows = [
            {"join": f"group-{group}", "session": sessions[member]}
            for group, members in enumerate(self._members)
            for member in members
        ]
        beside.put(self._gateway.data / "outbox", "join.json", rows)
        beats, end = self._beats, time.monotonic() + _PATIENCE_SECONDS
        while self._gateway.status()["pushes"]["group_members"] < len(rows):
            beats.go_on(0.2)
            if time.monotonic() > end:
                raise Broken("the rows of the outbox are not taken")
        beats.go_on(_SETTLE_SECONDS)

    def _sessions(self) -> list[str]:
        """Of the clients, who connected in this order."""
        found: list[str] = []
        page: dict[str, Any] = {"next": ""}
        while (after := page["next"]) is not None:
            query = f"&after={after}" if after else ""
            page = self._admin.get(f"/api/sessions?limit=1000{query}")
            found += [one["session"] for one in page["sessions"]]
        if len(found) != len(self._socks):
            raise Broken(f"{len(found)} sessions of {len(self._socks)}")
        return found

    def pushes(self, count: int) -> list[float]:
        """Seconds from each request to its last client's reading, while all beat."""
        waits = []
        for number in range(1, count + 1):
            group = number % len(self)
            members = [self._socks[member] for member in self._members[group]]
            begin = time.monotonic()
            sent = self._admin.push(number, group=f"group-{group}")
            _wait_for(number, members)
            waits.append(time.monotonic() - begin)
            if sent != len(members):
                raise Broken(f"pushed to {sent} of {len(members)}")
            self._beats.go_on(_PUSH_EVERY)
        return waits
