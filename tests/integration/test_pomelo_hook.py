"""The authentication hook with a real daemon and real services: over TCP, a unix socket."""

from __future__ import annotations

import json
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from daemons import Daemon, listener


class Login(BaseHTTPRequestHandler):
    """Admits alice, and nobody else."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fine = asked["handshake"]["user"].get("token") == "alice's"
        said = {"uid": "alice"} if fine else {"msg": "who are you?"}
        body = json.dumps(said).encode()
        self.send_response(200 if fine else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def address_string(self) -> str:
        """A unix socket's peer has none."""
        return "peer"


class OverUnix(socketserver.ThreadingUnixStreamServer):
    """With connections that stay open."""

    daemon_threads = True


class OverTcp(socketserver.ThreadingTCPServer):
    """The same."""

    daemon_threads = True


@pytest.fixture
def services(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Their URLs by name; one is not there."""
    path = tmp_path / "login.sock"
    tcp, unix = OverTcp(("127.0.0.1", 0), Login), OverUnix(str(path), Login)
    for server in (tcp, unix):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {
        "tcp": f"http://127.0.0.1:{tcp.server_address[1]}/game",
        "unix": f"unix:{path}:/game",
        "away": f"unix:{tmp_path}/nothing.sock",
    }
    for server in (tcp, unix):
        server.shutdown()
        server.server_close()


def hear(address: tuple[str, int], token: str) -> dict[str, Any]:
    """What a client with this token is answered."""
    said = json.dumps({"sys": {"type": "x"}, "user": {"token": token}}).encode()
    with socket.create_connection(address, 60) as client:
        client.sendall(struct.pack(">I", 1 << 24 | len(said)) + said)
        heard = client.makefile("rb")
        size = int.from_bytes(heard.read(4)[1:])
        found: dict[str, Any] = json.loads(heard.read(size))
        return found


def test_services_decide(
    start: Callable[..., Daemon], services: dict[str, str]
) -> None:
    """Alice is let in again and again, others are told why not, one is away."""
    daemon = start(
        listeners=[
            listener(name, "pomelo", options={"authenticate": url})
            for name, url in services.items()
        ]
    )
    for name in ("tcp", "unix"):
        address = daemon.address(name)
        for _ in range(3):
            assert hear(address, "alice's")["code"] == 200
        assert hear(address, "bob's") == {"code": 500, "msg": "who are you?"}
    told = {"code": 500, "msg": "authentication is not available"}
    assert hear(daemon.address("away"), "alice's") == told
    status = daemon.status()["pushes"]
    counted = {"admitted": 6, "denied": 2, "failed": 1}
    assert (status["authentications"], status["authenticating"]) == (counted, 0)
    assert "nothing.sock does not answer" in daemon.log
    assert "Traceback" not in daemon.log
    assert "factory" not in daemon.log
