"""Published Pomelo clients hear what the handshake's response tells them, over TLS."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from daemons import Daemon, listener, tls
from pomelo_npm import packages, program_of

pytestmark = pytest.mark.needs_npm

EVERYBODY = {"motd": "hü"}
ALICE = {"name": "Älice", "level": 7, "friends": ["bob", "😀"]}
HEARING = ("pomelo-jsclient-websocket", "pinus-robot-plugin")
"""pomelo-nodejsclient-websocket looks for the callback where it is not, and calls none."""


class _Login(BaseHTTPRequestHandler):
    """Has something to tell alice."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        uid = asked["handshake"]["user"]["uid"]
        said: dict[str, Any] = {"uid": uid}
        if uid == "alice":
            said["user"] = ALICE
        body = json.dumps(said, ensure_ascii=False).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def login() -> Iterator[str]:
    """Its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Login)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/login"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_clients_hear_their_user(
    npm: Callable[..., Any],
    start: Callable[..., Daemon],
    login: str,
    authority: Any,
    server_pair: Any,
) -> None:
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
