"""Published Node.js clients against the real daemon: each sample, pushes, games, high ids."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemons import listener, tls
from making import Make
from pomelo_npm import CLIENTS, packages, program_of
from pomelo_shapes import SHAPES
from small_http import Asked, SmallHttp

pytestmark = pytest.mark.needs_npm

PROTOCOL_PROGRAM = Path(__file__).with_name("lumberjack_protocol.js").read_text()

CLIENT_PROGRAM = Path(__file__).with_name("lumberjack_client.js").read_text()


@pytest.mark.smoke
def test_lumberjack_protocol_gets_an_ack_that_it_believes(npm, start, authority):
    """v1 over TLS, one window frame and then frames outside any window: all is stored
    in order, and what it hears stays v1 and ends with its last sequence number.
    """
    run = npm("lumberjack-protocol@1.0.7")
    pair = authority.issue("localhost")
    daemon = start(listeners=[listener("beats", "lumberjack", tls=tls(pair))])
    heard = run(PROTOCOL_PROGRAM, daemon.address()[1], authority.ca, 500)
    acknowledged = [int(line) for line in heard.splitlines()]
    assert acknowledged == sorted(acknowledged)
    assert acknowledged[-1] == 500
    rows = daemon.settled_rows()
    events = [json.loads(row["payload"]) for row in rows]
    assert [event["line"] for event in events] == [f"line {n}" for n in range(500)]
    assert [event["offset"] for event in events] == [str(n) for n in range(1, 501)]
    assert [row["seq"] for row in rows] == list(range(1, 501))
    assert {row["attributes"]["version"] for row in rows} == {"1"}
    assert {row["attributes"]["tls"] for row in rows} == {"TLSv1.3"}


# As the page has it, but for the address; then an event now and then, and each `A`.
PAGE = Path(__file__).parents[2] / "docs" / "clients" / "npm-lumberjack.md"
SLOWLY = Path(__file__).with_name("lumberjack_slowly.js").read_text()


def test_the_settings_of_the_page_for_lumberjack_protocol(npm, start, authority):
    """It announces 1000 events once, and sends a few now and then: each time it hears of
    the last one, on one connection, and they are there once.
    """
    run = npm("lumberjack-protocol@1.0.7")
    pair = authority.issue("localhost")
    daemon = start(listeners=[listener("beats", "lumberjack", tls=tls(pair))])
    [program, _] = re.findall(r"```js\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for shown, here in {
        '"gw.example"': '"localhost"',
        "5044": str(daemon.address()[1]),
        '"ca.pem"': json.dumps(str(authority.ca)),
    }.items():
        assert shown in program
        program = program.replace(shown, here)
    assert "windowSize: 1000" in program
    heard = [int(line) for line in run(program + SLOWLY).split()]
    assert heard == sorted(heard)
    assert heard[-1] == 20
    assert len(heard) < 20
    rows = daemon.settled_rows()
    assert [row["seq"] for row in rows] == list(range(1, 21))
    assert len({row["session"] for row in rows}) == 1
    assert json.loads(rows[0]["payload"]) == {"line": "hello", "host": "web-1"}
    assert daemon.status()["lumberjack"]["parts"] == len(heard)


def test_the_settings_of_the_page_for_lumberjack_client(npm, start):
    """What it logs arrives, as the page has it."""
    run = npm("lumberjack-client@1.0.3")
    daemon = start()
    [_, program] = re.findall(r"```js\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = program.replace('"gw.example"', '"127.0.0.1"')
    program = program.replace("5044", str(daemon.address()[1]))
    run(program + "client.socket.once('data', () => process.exit(0));")
    daemon.settled()
    assert [json.loads(row["payload"]) for row in daemon.rows()] == [
        {"message": "hello"}
    ]


@pytest.mark.smoke
def test_lumberjack_client_is_read_though_it_does_not_read(npm, start):
    """It never looks at acknowledgements, and ends when it has sent all: that is there."""
    run = npm("lumberjack-client@1.0.3")
    daemon = start()
    run(CLIENT_PROGRAM, daemon.address()[1], 400)
    daemon.settled()
    events = [json.loads(row["payload"]) for row in daemon.rows()]
    assert events == [{"message": f"line {n}"} for n in range(400)]


EVERYBODY = {"motd": "hü"}
ALICE = {"name": "Älice", "level": 7, "friends": ["bob", "😀"]}
HEARING = ("pomelo-jsclient-websocket", "pinus-robot-plugin")
"""pomelo-nodejsclient-websocket looks for the callback where it is not, and calls none."""


def _login(asked: Asked) -> tuple[int, object]:
    """Has something to tell alice."""
    uid = asked.said["handshake"]["user"]["uid"]
    return 200, {"uid": uid, "user": ALICE} if uid == "alice" else {"uid": uid}


@pytest.fixture
def login() -> Iterator[str]:
    """Its URL."""
    with SmallHttp(_login) as server:
        yield f"{server.url}/login"


def test_clients_hear_their_user(npm, start, login, authority, server_pair):
    """Each is told what its login service has for it, or what all are told, or nothing;
    and plays on.
    """
    fixed = {"handshake_user": EVERYBODY}
    asked = {"authenticate": login}
    listeners = [
        listener(
            name, "pomelo", websocket={"path": "/"}, tls=tls(server_pair), options=o
        )
        for name, o in {"none": {}, "fixed": fixed, "asked": asked | fixed}.items()
    ]
    daemon = start(listeners=listeners)
    run = npm(*packages())
    program = program_of("pomelo_user", authority.ca)
    said = [
        ("none", "alice", None),
        ("fixed", "alice", EVERYBODY),
        ("asked", "alice", ALICE),
        ("asked", "bob", EVERYBODY),
    ]
    for client in HEARING:
        for name, uid, user in said:
            heard = run(program, client, daemon.address(name)[1], uid).splitlines()
            assert [json.loads(line) for line in heard] == [
                ["user", user],
                ["answer", {"code": 200}],
            ]


_ANSWERS = {one.route: one.answered for game in SHAPES.values() for one in game.said}

_UNABLE = {"pinus-robot-plugin": {"repeated", "dots and letters of the world"}}
"""What a client can not say: the encoder of this one throws at any repeated field, and
gives a text's length in characters, not in bytes.
"""


def _answers(asked: Asked) -> tuple[int, object]:
    """Each request has the answer of its route."""
    return 200, {"answers": [_ANSWERS[one["route"]] for one in asked.said["requests"]]}


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """The URL of a game's own service."""
    with SmallHttp(_answers) as server:
        yield f"{server.url}/answers"


@pytest.fixture(scope="module")
def play(npm) -> Make[str]:
    """Have one of the clients play; returns what it printed."""
    run = npm(*packages())
    program = program_of("pomelo_games")
    return lambda *words: str(run(program, *words))


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("backed", [False, True], ids=["stored", "backed"])
def test_every_shape_of_game(start, play, service, client, *, backed):
    """Each game starts with its own definitions; its client hears each answer: its
    service's, or the gateway's once the request is stored, which is as it was said.
    """
    listeners = []
    unable = _UNABLE.get(client, set())
    shapes = [game for name, game in SHAPES.items() if name not in unable]
    for number, game in enumerate(shapes):
        routes = list(dict.fromkeys(one.route for one in game.said))
        options: dict[str, Any] = {
            "routes": game.routes,
            "client_protos": game.client_protos,
            "server_protos": game.server_protos,
            "session_events": False,
        }
        if backed:
            options["backends"] = [{"routes": routes, "url": service}]
        name = f"game-{number}"
        websocket = {"path": "/"}
        listeners.append(listener(name, "pomelo", websocket=websocket, options=options))
    daemon = start(listeners=listeners)
    ports = [daemon.address(one["name"])[1] for one in listeners]
    games = list(zip(ports, shapes, strict=True))
    asked = [
        [port, [[one.route, one.body] for one in game.said]] for port, game in games
    ]
    heard: dict[int, list[Any]] = defaultdict(list)
    for line in play(client, json.dumps(asked)).splitlines():
        port, *said = json.loads(line)
        heard[port].append(said)
    for port, game in games:
        wanted = [[o.route, o.answered if backed else o.stored] for o in game.said]
        assert heard[port] == wanted
    daemon.settled()
    said_in = defaultdict(list)
    for row in daemon.rows():
        assert row["flaw"] is None
        said_in[row["listener"]].append((row["channel"], json.loads(row["payload"])))
    for one, (_, game) in zip(listeners, games, strict=True):
        assert said_in[one["name"]] == [(o.route, o.body) for o in game.said]


_REQUESTS = 520

PROGRAM = Path(__file__).with_name("pomelo_ids.js").read_text()


def test_every_request_is_answered(npm, start):
    """Each of 520, 128 and 256 too, by its own answer; no two have the same `seq`."""
    run = npm("pomelo-client-websocket@1.0.13", "ws@8.18.0")
    options = {"session_events": False}
    game = listener("game", "pomelo", websocket={"path": "/"}, options=options)
    daemon = start(listeners=[game])
    heard = [
        json.loads(line)
        for line in run(PROGRAM, daemon.address("game")[1], _REQUESTS).splitlines()
    ]
    assert sorted(heard) == [[n, {"code": 200}] for n in range(1, _REQUESTS + 1)]
    rows = daemon.settled_rows()
    assert [json.loads(row["payload"])["n"] for row in rows] == [
        *range(1, _REQUESTS + 1)
    ]
    assert len({row["seq"] for row in rows}) == _REQUESTS
    high = {row["seq"] for row in rows if json.loads(row["payload"])["n"] % 128 == 0}
    assert high == {128, 256, 384, 512}
