"""The authentication hook with a real daemon and real services: over TCP, a unix socket."""

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from daemons import listener
from gateway.protocols.pomelo import wire
from small_http import Asked, SmallHttp


def _login(asked: Asked) -> tuple[int, object]:
    """Admits alice, and nobody else; sells whatever is asked for."""
    if asked.path == "/shop":
        bodies = [one["body"] for one in asked.said["requests"]]
        return 200, {"answers": [{"bought": body} for body in bodies]}
    if asked.said["handshake"]["user"].get("token") == "alice's":
        return 200, {"uid": "alice"}
    return 403, {"msg": "who are you?"}


@pytest.fixture
def services(tmp_path) -> Iterator[dict[str, str]]:
    """Their URLs by name; one is not there, and one takes connections and never answers."""
    with (
        socket.create_server(("127.0.0.1", 0)) as hung,
        SmallHttp(_login) as tcp,
        SmallHttp(_login, path=tmp_path / "login.sock") as unix,
    ):
        yield {
            "tcp": f"{tcp.url}/game",
            "unix": f"{unix.url}/game",
            "away": f"unix:{tmp_path}/nothing.sock",
            "hung": f"http://127.0.0.1:{hung.getsockname()[1]}/game",
        }


def hear(address: tuple[str, int], token: str) -> dict[str, Any]:
    """What a client with this token is answered."""
    said = json.dumps({"sys": {"type": "x"}, "user": {"token": token}}).encode()
    with socket.create_connection(address, 60) as client:
        client.sendall(struct.pack(">I", 1 << 24 | len(said)) + said)
        heard = client.makefile("rb")
        size = int.from_bytes(heard.read(4)[1:])
        found: dict[str, Any] = json.loads(heard.read(size))
        return found


def buy(address: tuple[str, int], count: int) -> list[Any]:
    """What the answers to so many requests are, in the order of their ids."""
    said = wire.package(wire.HANDSHAKE, b'{"sys":{}}') + wire.package(wire.ACK)
    for number in range(1, count + 1):
        said += wire.request(number, "shop.buy", b"%d" % number)
    packages = wire.Packages(wire.MOST_BYTES, wire.MOST_BYTES)
    found: dict[int, Any] = {}
    with socket.create_connection(address, 60) as client:
        client.sendall(said)
        while len(found) < count:
            packages.feed(client.recv(1 << 16))
            while (package := packages.next()) is not None:
                if package.kind == wire.DATA:
                    answer = wire.message(package.body)
                    found[answer.id] = json.loads(answer.body)
    return [found[number] for number in sorted(found)]


def one_at_a_time(name: str) -> dict[str, Any]:
    """For the service that never answers: the second client needs the first one's slot."""
    if name != "hung":
        return {}
    return {"authenticate_requests": 1, "authenticate_timeout": "100ms"}


def test_services_decide(start, services):
    """Alice is let in again and again, others are told why not, one is away, one hangs;
    another answers requests.
    """
    backend = services["tcp"].replace("/game", "/shop")
    backends = [{"routes": ["shop.buy"], "url": backend}]
    shop = listener("shop", "pomelo", options={"backends": backends, "heartbeat": "0s"})
    doors = [
        listener(name, "pomelo", options={"authenticate": url} | one_at_a_time(name))
        for name, url in services.items()
    ]
    daemon = start(listeners=[*doors, shop])
    for name in ("tcp", "unix"):
        address = daemon.address(name)
        for _ in range(3):
            assert hear(address, "alice's")["code"] == 200
        assert hear(address, "bob's") == {"code": 500, "msg": "who are you?"}
    told = {"code": 500, "msg": "authentication is not available"}
    assert hear(daemon.address("away"), "alice's") == told
    for _ in range(2):
        assert hear(daemon.address("hung"), "alice's") == told
    assert buy(daemon.address("shop"), 3) == [{"bought": n} for n in range(1, 4)]
    status = daemon.status()["pushes"]
    assert status["backend_answers"]["answered"] == 3
    counted = {"admitted": 6, "denied": 2, "failed": 3}
    assert (status["authentications"], status["authenticating"]) == (counted, 0)
    assert "nothing.sock does not answer" in daemon.log
    assert "does not answer: no answer in 0.1 s" in daemon.log
    assert "Traceback" not in daemon.log
    assert "factory" not in daemon.log
