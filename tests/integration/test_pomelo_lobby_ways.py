"""Ways from one gateway of a lobby to another: a unix socket, and TLS with an authority."""

import json
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from daemons import free_port, listener
from deadlines import eventually
from gateway.protocols.pomelo import wire
from gateway_testkit.certificates import Authority
from small_http import Asked, SmallHttp

HELLO = wire.package(wire.HANDSHAKE, b'{"sys":{},"user":{"uid":"alice"}}')


def _done_elsewhere(asked: Asked) -> tuple[int, object]:
    """A gateway that has sent what it was asked for to five clients."""
    fine = asked.headers["Authorization"] == "Bearer t0k"
    done = {"gateway": "gw-9", "run": "9", "counts": {"sent": 5, "dropped": 0}}
    return 200 if fine and asked.path == "/api/lobby" else 500, done


@pytest.fixture
def elsewhere(authority, tmp_path) -> Iterator[list[str]]:
    """One whose certificate is signed by the authority, and one by another."""
    stranger = Authority(tmp_path / "stranger", "stranger")
    near, far = (one.issue("gw-9") for one in (authority, stranger))
    with (
        SmallHttp(_done_elsewhere, pair=near) as one,
        SmallHttp(_done_elsewhere, pair=far) as other,
    ):
        yield [one.url, other.url]


def connect(port: int) -> socket.socket:
    """A client, once somebody listens."""

    def connected() -> socket.socket | None:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            return None

    client = eventually(connected, "the second gateway takes clients")
    assert client is not None
    client.sendall(HELLO + wire.package(wire.ACK))
    heard = b""
    while not heard.endswith(wire.package(wire.HEARTBEAT)):
        heard += client.recv(1 << 16)
    return client


def test_ways_to_other_gateways(prepare, authority, elsewhere):
    """A unix socket is asked for no token, TLS is believed by the lobby's authority only,
    and the token goes with it; a reload takes an address out.
    """
    port, path = free_port(), prepare("gw-2").data.parent / "admin.sock"
    game = listener("game", "pomelo", options={"trust_uid": True})
    second = prepare(
        "gw-2",
        node="gw-2",
        admin={"listen": f"unix:{path}"},
        listeners=[{**game, "listen": f"tcp:127.0.0.1:{port}"}],
    )
    lobby = {
        "gateways": [f"unix:{path}", *elsewhere],
        "ca": str(authority.ca),
        "token": "t0k",
    }
    options = {**game["options"], "lobby": lobby}
    first = prepare(listeners=[{**game, "options": options}])
    second.launch()
    first.start()

    def push() -> Any:
        request = urllib.request.Request(
            f"http://{first.admin}/api/push",
            b'{"route":"onScore","body":{"n":1},"uid":"alice"}',
            {"Content-Type": "application/json"},
        )
        return json.loads(first.answer(request))

    with connect(port) as client:
        told = push()
        assert (told["sent"], told["dropped"]) == (6, 0)
        here, near, far, strange = told["gateways"]
        assert here == {"gateway": "gw-1", "sent": 0, "dropped": 0}
        assert (near["gateway"], near["sent"]) == ("gw-2", 1)
        assert (far["gateway"], far["sent"]) == ("gw-9", 5)
        assert strange["at"] == elsewhere[1]
        assert "certificate verify failed" in strange["error"]
        assert b"onScore" in client.recv(1 << 16)
        settings = json.loads(first.config.read_text())
        known = settings["listeners"][0]["options"]["lobby"]["gateways"]
        known.remove(elsewhere[1])
        first.config.write_text(json.dumps(settings))
        first.hang_up()
        eventually(lambda: len(push()["gateways"]) == 3, "the reload")
        assert [each["gateway"] for each in push()["gateways"]] == [
            "gw-1",
            "gw-2",
            "gw-9",
        ]
