"""kill -9 of the gateway and of a game's service, at random, while players play.

The service is that of examples/game.  Players do not ask again: what was not answered when
something died may be stored or not.  Pushes come from the service, for each splash, and
from an outbox whose job repeats its last files after each kill, as Spark does.
"""

import json
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from daemons import ROLLING, Daemon, listener, spawn
from deadlines import ROOT, eventually
from gateway.spark import beside
from programs import Script

SEED = int(os.environ.get("GATEWAY_KILL_SEED", "20261122"))
KILLS = 6
CONNECTIONS, DEPTH = 8, 6
SERVICE = ROOT / "examples" / "game" / "backend.py"

# Connects again and again.  Writes down: asked (request), answered (request, code), heard
# (connection, push), and what must not be, unasked (connection, id of an answer).
PLAYERS = """
import itertools, json, random, sys
from twisted.internet import defer, endpoints, reactor, task
from gateway.protocols.pomelo import client_session
from gateway.protocols.pomelo.client import Client, Disconnected

port, connections, depth, home = int(sys.argv[1]), *map(int, sys.argv[2:4]), sys.argv[4]
names = ("asked", "answered", "heard", "unasked")
asked, answered, heard, unasked = (open(f"{home}/{n}", "a", buffering=1) for n in names)
numbers, lives = itertools.count(1), itertools.count(1)

class Session(client_session.ClientSession):
    def _message(self, message):
        if message.route is None and message.id not in self._routes:
            print(self._handshake["user"]["life"], message.id, file=unasked)
        return super()._message(message)

client_session.ClientSession = Session

async def ask(client, route, body):
    number = next(numbers)
    print(number, file=asked)
    body = {"room": "lobby", "id": number, **body}
    answer = json.loads(await client.request(route, json.dumps(body).encode()))
    print(number, answer["code"], file=answered)
    if answer["code"] != 200:
        await task.deferLater(reactor, 0.05)

async def play(client):
    while True:
        at = {"x": random.randrange(16), "y": random.randrange(10)}
        await ask(client, "room.splash", at)

async def live(name, web):
    while True:
        life = str(next(lives))

        def hear(route, body, life=life):
            for one in json.loads(body):
                print(life, route, one["lsn"], file=heard)

        target = endpoints.TCP4ClientEndpoint(reactor, "127.0.0.1", port)
        user = {"uid": name, "life": life}
        client = Client(target, clock=reactor, user=user, on_push=hear, websocket=web)
        try:
            await client.connect()
            await ask(client, "room.enter", {})
            playing = [defer.ensureDeferred(play(client)) for _ in range(depth)]
            await defer.DeferredList(playing, consumeErrors=True)
        except Disconnected:
            pass
        await task.deferLater(reactor, 0.05)

for n in range(connections):
    web = f"//127.0.0.1:{port}/" if n % 2 else None
    playing = defer.ensureDeferred(live(f"player {n}", web))
    playing.addErrback(lambda why: (why.printTraceback(), reactor.stop()))
reactor.run()
"""


class Players(Script):
    """`PLAYERS`, running."""

    def progress(self) -> int:
        """How often the service has answered them."""
        assert self.process.poll() is None
        return sum(code == "200" for _, code in self.lines("answered"))


class Service:
    """The game's service, which may be killed."""

    def __init__(self, daemon: Daemon) -> None:
        self._words = [sys.executable, str(SERVICE), str(daemon.config)]
        self._log = daemon.config.with_name("service.log")

    def start(self) -> None:
        self._process = spawn(self._words, self._log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Job:
    """Writes files to the outbox, and after a crash the last of them once more."""

    def __init__(self, daemon: Daemon) -> None:
        self._outbox = daemon.data / "outbox"
        self._last = 0

    def work(self) -> None:
        for _ in range(3):
            self._last += 1
            self._put(self._last)

    def repeat(self) -> None:
        for number in range(max(1, self._last - 4), self._last + 1):
            self._put(number)

    def _put(self, number: int) -> None:
        row = {"route": "onMark", "all": True, "body": [{"lsn": number}]}
        beside.put(self._outbox, f"marks-{number:06d}.json", [row])


@pytest.fixture
def players(tmp_path, port) -> Iterator[Players]:
    found = Players(PLAYERS, tmp_path / "players", port, CONNECTIONS, DEPTH)
    yield found
    found.kill()


@pytest.fixture
def port(free_port) -> int:
    return free_port()


@pytest.fixture
def daemon(prepare, port, free_port) -> Daemon:
    """Not started yet."""
    routes = ["room.enter", "room.splash"]
    backend = {
        "routes": routes,
        "url": f"http://127.0.0.1:{free_port()}/",
        "requests": 1,
    }
    options = {"backends": [backend], "outbox": {"directory": "outbox"}}
    game = listener(
        "game",
        "pomelo",
        listen=f"tcp:127.0.0.1:{port}",
        websocket={"path": "/"},
        options=options,
    )
    return prepare(listeners=[game], **ROLLING)


@pytest.fixture
def service(daemon) -> Iterator[Service]:
    found = Service(daemon)
    found.start()
    yield found
    found.kill()


@pytest.mark.long
def test_kill_the_gateway_and_the_service(daemon, service, players):
    """Six kills: each answered request is stored once and answered once, no push comes
    twice, and the table tells every session.
    """
    chance = random.Random(SEED)
    job = Job(daemon)
    daemon.start()
    for kill in range(KILLS):
        before = players.progress()
        eventually(lambda before=before: players.progress() > before + 100, "answers")
        job.work()
        time.sleep(chance.uniform(0.0, 0.4))
        # Each of the three twice, in an order that the seed says.
        victims = ("gateway", "service", "both")[(kill + SEED) % 3]
        if victims != "gateway":
            service.kill()
        if victims != "service":
            daemon.kill()
            job.repeat()
            daemon.start()
        if victims != "gateway":
            time.sleep(chance.uniform(0.0, 0.3))
            service.start()
    before = players.progress()
    job.work()
    eventually(lambda: players.progress() > before + 100, "answers in the last life")
    assert daemon.terminate()
    players.kill()
    while daemon.segments():  # a busy machine may stop before all is published
        daemon.start()
        daemon.settled()
        daemon.terminate()

    rows = daemon.rows()
    sessions = _every_session_is_told(rows)
    _each_request_once(rows, players)
    _no_push_twice(rows, players, sessions)


def _each_request_once(rows: list[dict[str, Any]], players: Players) -> None:
    """Stored if it was answered, whatever the answer was; never twice."""
    stored = [json.loads(r["payload"])["id"] for r in rows if r["kind"] == "request"]
    asked = {int(number) for [number] in players.lines("asked")}
    answered = [int(number) for number, _ in players.lines("answered")]
    assert len(set(stored)) == len(stored)
    assert len(set(answered)) == len(answered)
    assert players.lines("unasked") == []
    assert set(answered) <= set(stored) <= asked
    assert {code for _, code in players.lines("answered")} <= {"200", "504"}


def _no_push_twice(
    rows: list[dict[str, Any]], players: Players, sessions: dict[str, str]
) -> None:
    """Nobody hears one twice; a file of the outbox is pushed in one life only; what the
    service tells is stored.
    """
    heard = players.lines("heard")
    assert len({tuple(line) for line in heard}) == len(heard)
    told = {int(lsn) for _, route, lsn in heard if route == "onNews"}
    assert told <= {row["lsn"] for row in rows if row["kind"] == "request"}
    lives: dict[str, set[str]] = defaultdict(set)
    for life, route, number in heard:
        if route == "onMark":
            lives[number].add(sessions[life].partition("-")[0])
    assert len(told) > 100
    assert len(lives) > KILLS
    assert {len(each) for each in lives.values()} == {1}


def _every_session_is_told(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Each opened before its first request, once, and closed behind its last unless its
    gateway was killed; returns the session of each connection.
    """
    told: dict[str, list[str]] = defaultdict(list)
    sessions: dict[str, str] = {}
    for row in rows:
        session = row["kind"] == "session"
        what = json.loads(row["payload"])["event"] if session else "request"
        told[row["session"]].append(what)
        life = row["attributes"]["user.life"]
        assert sessions.setdefault(life, row["session"]) == row["session"]
    last_life = rows[-1]["session"].partition("-")[0]
    for session, found in told.items():
        assert found[:2] == ["opened", "bound"]
        assert found.count("opened") == found.count("bound") == 1
        assert "closed" not in found[:-1]
        if session.startswith(last_life):
            assert found[-1] == "closed"
    return sessions
