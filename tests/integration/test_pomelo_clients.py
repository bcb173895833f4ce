"""Published Pomelo clients, unchanged, against the real daemon."""

import json
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from daemons import TERMINATED, Daemon, listener
from deadlines import eventually
from making import Make
from pomelo_npm import CLIENTS, packages, program_of

PLAIN: dict[str, Any] = {}
FULL: dict[str, Any] = {
    "routes": ["area.player.move", "chat.room.say", "onChat"],
    "client_protos": {
        "area.player.move": {
            "message Point": {"required sInt32 x": 1, "required sInt32 y": 2},
            "required Point to": 1,
            "optional uInt32 n": 3,
        }
    },
    "server_protos": {
        "area.player.move": {"required uInt32 code": 1},
        "onMove": {"required uInt32 id": 1, "optional double d": 2},
    },
}
PUSHES = {"onMove": {"id": 7, "d": 1.5}, "onChat": {"text": "hü"}}
SAID = [
    ("request", "area.player.move", {"to": {"x": 1, "y": -2}, "n": 3}),
    ("notify", "chat.room.say", {"text": "hi"}),
    ("request", "other.x.y", {"a": "ü😀"}),
]


both = pytest.mark.parametrize(
    "options",
    [PLAIN, pytest.param(FULL, marks=pytest.mark.smoke)],
    ids=["plain", "dictionary and protobuf"],
)


@pytest.fixture(scope="module")
def run_client(npm) -> Make[str]:
    """Run one of the clients to its end; returns what it printed."""
    program = program_of("pomelo_clients")
    run = npm(*packages())
    return lambda *words: str(run(program, *words))


class Game:
    """A daemon that Pomelo clients connect to."""

    def __init__(self, start: Make[Daemon], options: dict[str, Any]) -> None:
        plain = {"heartbeat": "1s", "trust_uid": True, "session_events": False}
        options = {**plain, **options}
        game = listener("game", "pomelo", websocket={"path": "/"}, options=options)
        self._daemon = start(listeners=[game])
        self.port = self._daemon.address("game")[1]

    def hear(self, talk: Callable[[], list[Any]]) -> list[Any]:
        """What a conversation heard, while each of `PUSHES` is pushed to alice once."""
        with ThreadPoolExecutor(1) as threads:
            heard: Future[list[Any]] = threads.submit(talk)
            for route, body in PUSHES.items():

                def sent(route: str = route, body: object = body) -> bool:
                    push = self._daemon.push(route, body, uid="alice")
                    return bool(push["sent"])

                eventually(
                    lambda sent=sent: heard.done() or sent(),
                    "the client is there to be pushed to",
                )
            return heard.result()

    def stop_after(self, events: int) -> None:
        """SIGTERM once so many are stored."""
        eventually(lambda: self._daemon.listener("game")["events"] == events, "events")
        assert self._daemon.terminate() in TERMINATED

    def farewell(self) -> None:
        """The log says what happened to clients, in one line."""
        assert self._daemon.log.count("game: stopping, connections to end: 1") == 1
        assert "did not finish in time" not in self._daemon.log
        assert " warn " not in self._daemon.log

    def rows(self) -> list[dict[str, Any]]:
        self._daemon.settled()
        rows: list[dict[str, Any]] = self._daemon.rows()
        return rows


@pytest.fixture
def game(start, options) -> Game:
    return Game(start, options)


def holds(rows: list[dict[str, Any]]) -> None:
    """Exactly what was said is stored: in order, each event once."""
    stored = [(row["kind"], row["channel"], json.loads(row["payload"])) for row in rows]
    assert stored == SAID
    first, notify, second = (row["seq"] for row in rows)
    assert notify == 0
    assert 0 < first < second
    assert {row["flaw"] for row in rows} == {None}
    assert {row["content_type"] for row in rows} == {"application/json"}
    assert {row["attributes"]["uid"] for row in rows} == {"alice"}


@pytest.mark.needs_npm
@pytest.mark.parametrize("client", CLIENTS)
@both
def test_clients_from_npm(run_client, game, client):
    """Handshake, requests, notify and pushes, as the client's own code does them."""

    def talk() -> list[Any]:
        return [json.loads(line) for line in run_client(client, game.port).splitlines()]

    heard = game.hear(talk)
    assert [said[1:] for said in heard if said[0] == "answer"] == [
        ["area.player.move", {"code": 200}],
        ["other.x.y", {"code": 200}],
    ]
    assert {said[1]: said[2] for said in heard if said[0] == "push"} == PUSHES
    assert len(heard) == 4
    holds(game.rows())


@pytest.mark.needs_npm
@pytest.mark.parametrize(
    ("client", "kick"),
    [
        ("pomelo-jsclient-websocket", {"reason": "shutdown"}),
        ("pomelo-nodejsclient-websocket", None),  # which keeps the reason to itself
    ],
)
@pytest.mark.parametrize("options", [PLAIN], ids=["plain"])
def test_sigterm_kicks_clients_from_npm(run_client, game, client, kick):
    """Who is connected when the daemon stops is told so, after its answers."""
    with ThreadPoolExecutor(1) as threads:
        talk = threads.submit(run_client, client, game.port, "kick")
        game.stop_after(len(SAID))
        heard = [json.loads(line) for line in talk.result().splitlines()]
    assert [said[0] for said in heard] == ["answer", "answer", "kick"]
    assert heard[-1][1] == kick
    game.farewell()


class Handler:
    """What pypomelo calls; says the same things as the others."""

    def __init__(self) -> None:
        self.heard: list[list[Any]] = []

    def on_connected(self, client: Any, user: object) -> None:
        client.send_heartbeat()
        client.send_request(SAID[0][1], SAID[0][2])

    def on_response(self, client: Any, route: str, asked: object, body: Any) -> None:
        self.heard.append(["answer", route, body])
        if route == SAID[0][1]:
            client.send_notify(SAID[1][1], SAID[1][2])
            client.send_request(SAID[2][1], SAID[2][2])

    def on_push(self, client: object, route: str, body: Any) -> None:
        self.heard.append(["push", route, body])

    def on_heartbeat(self, client: Any) -> None:
        client.send_heartbeat()


def converse(port: int) -> list[Any]:
    """pypomelo leaves the socket to its user: with a plain one."""
    from pypomelo.client import Client
    from pypomelo.protocol import Protocol

    with socket.create_connection(("127.0.0.1", port)) as connection:

        class Connected(Client):
            def send(self, data: bytes) -> None:
                connection.sendall(data)

            def close(self) -> None:
                pytest.fail("kicked")

        handler = Handler()
        client = Connected(handler)
        client.send(Protocol.syc("socket", "1.1.1", {"uid": "alice"}).pack())
        kept = b""
        while len(handler.heard) < 4:
            data = connection.recv(1 << 16)
            assert data, "the daemon hung up"
            kept += data
            while len(kept) >= 4:
                end = 4 + int.from_bytes(kept[1:4], "big")
                if len(kept) < end:
                    break
                package, kept = kept[:end], kept[end:]
                client.on_protocol(Protocol.unpack(package))
        return handler.heard


# On Python 3 its protobuf encoder does not run; its decoder mixes what it decodes with
# all it decoded before, so it gets one definition.
PUSH_ONLY = {"onMove": FULL["server_protos"]["onMove"]}


@pytest.mark.parametrize(
    "options",
    [PLAIN, {**FULL, "client_protos": {}, "server_protos": PUSH_ONLY}],
    ids=["plain", "dictionary and protobuf"],
)
def test_pypomelo(game):
    """The same conversation from Python, over TCP."""
    pytest.importorskip("pypomelo", reason="needs pypomelo from PyPI")
    heard = game.hear(lambda: converse(game.port))
    assert [said[1:] for said in heard if said[0] == "answer"] == [
        ["area.player.move", {"code": 200}],
        ["other.x.y", {"code": 200}],
    ]
    assert {said[1]: said[2] for said in heard if said[0] == "push"} == PUSHES
    holds(game.rows())
