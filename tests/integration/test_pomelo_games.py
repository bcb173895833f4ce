"""Published Pomelo clients in games with definitions of every shape that games have."""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from daemons import listener
from making import Make
from pomelo_npm import CLIENTS, packages, program_of
from pomelo_shapes import SHAPES
from small_http import Asked, SmallHttp

pytestmark = pytest.mark.needs_npm

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
