"""Published Pomelo clients hear what the handshake's response tells them, over TLS."""

import json
from collections.abc import Iterator

import pytest

from daemons import listener, tls
from pomelo_npm import packages, program_of
from small_http import Asked, SmallHttp

pytestmark = pytest.mark.needs_npm

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
