"""kill -9 under the load of Pomelo clients; then every answered request is there once.

A client does not say anything again: what was not answered when the daemon died may be
stored or not, but never twice.  Half of them are answered by a service of the game's, which
must see nothing that is not stored.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daemons import ROLLING, listener
from deadlines import eventually
from programs import Script
from small_http import Asked, SmallHttp

SEED = int(os.environ.get("GATEWAY_KILL_SEED", "20261121"))
KILLS = 6
CONNECTIONS, DEPTH = 8, 10

# Connects again and again; its output is the ids that were asked, and those answered.
WRITER = """
import itertools, json, sys
from twisted.internet import defer, endpoints, reactor, task
from gateway.protocols.pomelo.client import Client, Disconnected

port, connections, depth, home = int(sys.argv[1]), *map(int, sys.argv[2:4]), sys.argv[4]
asked, answered = (open(f"{home}/{name}", "a", buffering=1) for name in
                   ("asked", "answered"))
numbers = itertools.count(1)

async def ask(client, route):
    while True:
        number = next(numbers)
        print(number, file=asked)
        answer = await client.request(route, json.dumps({"id": number}).encode())
        if json.loads(answer) == {"code": 200}:
            print(number, file=answered)

async def live(websocket, route):
    while True:
        target = endpoints.TCP4ClientEndpoint(reactor, "127.0.0.1", port)
        client = Client(target, clock=reactor, websocket=websocket)
        try:
            await client.connect()
            asking = [defer.ensureDeferred(ask(client, route)) for _ in range(depth)]
            await defer.DeferredList(asking, consumeErrors=True)
        except Disconnected:
            await task.deferLater(reactor, 0.05)

for n in range(connections):
    web = f"//127.0.0.1:{port}/" if n % 2 else None
    route = "shop.buy" if n % 4 > 1 else "a.b"
    defer.ensureDeferred(live(web, route)).addErrback(lambda why: (why.printTraceback(),
                                                            reactor.stop()))
reactor.run()
"""


class Shop:
    """Answers every request, and writes down what it saw."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        """Ids of requests by their lsns."""

    def __call__(self, asked: Asked) -> tuple[int, object]:
        for one in asked.said["requests"]:
            number = one["body"]["id"]
            assert self.seen.setdefault(one["lsn"], number) == number
        return 200, {"answers": [{"code": 200}] * len(asked.said["requests"])}


@pytest.fixture
def shop() -> Iterator[tuple[Shop, str]]:
    """The service, and where it is."""
    shop = Shop()
    with SmallHttp(shop) as server:
        yield shop, f"{server.url}/"


@pytest.mark.long
def test_kill_the_daemon_while_it_answers_requests(
    tmp_path: Path,
    prepare: Callable[..., Any],
    free_port: Callable[[], int],
    shop: tuple[Shop, str],
) -> None:
    """Six kills: what was answered 200 is in the files once, and nothing is twice; what
    the service saw is there under the lsn that it was told.
    """
    chance = random.Random(SEED)
    port = free_port()
    address = f"tcp:127.0.0.1:{port}"
    options = {"backends": [{"routes": ["shop.buy"], "url": shop[1]}]}
    web = {"path": "/"}
    game = listener("game", "pomelo", listen=address, websocket=web, options=options)
    daemon = prepare(listeners=[game], **ROLLING)
    writer = Script(WRITER, tmp_path / "writer", port, CONNECTIONS, DEPTH)

    def numbers(name: str) -> list[int]:
        return [int(number) for [number] in writer.lines(name)]

    def heard(before: int = 0) -> None:
        eventually(
            lambda: len(numbers("answered")) > before + 200,
            "requests are answered",
        )

    try:
        for _ in range(KILLS):
            daemon.start()
            heard(len(numbers("answered")))
            time.sleep(chance.uniform(0.0, 0.5))
            daemon.kill()
        daemon.start()
        heard(len(numbers("answered")))
    finally:
        assert writer.process.poll() is None
        writer.kill()
    daemon.settled()
    daemon.terminate()

    rows = daemon.rows()
    stored = [json.loads(r["payload"])["id"] for r in rows if r["kind"] == "request"]
    assert len(set(stored)) == len(stored)
    assert set(numbers("answered")) <= set(stored)
    assert set(stored) <= set(numbers("asked"))
    ids = {
        row["lsn"]: json.loads(row["payload"])["id"]
        for row in rows
        if row["channel"] == "shop.buy"
    }
    assert len(shop[0].seen) > 100
    assert shop[0].seen.items() <= ids.items()
    _every_session_is_told(rows)


def _every_session_is_told(rows: list[dict[str, Any]]) -> None:
    """Each opened before its first request, once; what a kill ended has not closed."""
    told: dict[str, list[str]] = {}
    for row in rows:
        session = row["kind"] == "session"
        what = json.loads(row["payload"])["event"] if session else "request"
        told.setdefault(row["session"], []).append(what)
    for found in told.values():
        assert found[0] == "opened"
        assert found.count("opened") == 1
        assert "closed" not in found[:-1]
