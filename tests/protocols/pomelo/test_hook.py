"""The authentication hook: who is admitted, and what happens when nobody decides."""

import json
import time
from typing import Any

import jwt
import pytest
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.web.client import ResponseNeverReceived

from doubles import FakeAgent
from gateway.event import Origin
from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.hook import Hook
from gateway.protocols.pomelo.listener import _backend
from gateway.protocols.pomelo.options import Jwt
from gateway.sdk.http_client import Backend
from gateway.testing import FakeConnection
from making import Make

URL = "http://login.test/game"
ASK = wire.request(1, "a", b"{}")


class Login:
    """A listener with the hook, and its service."""

    def __init__(self, make_reader: Make, requests: int = 32, **options: Any) -> None:
        self.reader = make_reader(
            authenticate=URL, session_events=True, heartbeat=0, **options
        )
        self.agent = FakeAgent()
        clock = self.reader.clock
        backend = Backend(URL, clock, seconds=5, requests=requests, agent=self.agent)
        self.hook = self.reader.listener.hook = Hook(backend, 4096)
        self.connection, self.server = self.reader.connect()


@pytest.fixture
def login(make_reader) -> Login:
    """One client, who has said nothing."""
    return Login(make_reader)


def test_who_is_admitted(login, pomelo):
    """The service says whose it is; what the client sent behind is taken then."""
    user = {"uid": "mallory", "token": "t0k"}
    login.connection.deliver(pomelo.hello(user=user) + ASK)
    login.connection.deliver(ASK)
    assert login.connection.sent == b""
    assert login.reader.journal.submitted == []
    [asked] = login.agent.asked
    assert asked["handshake"]["user"] == user
    assert (asked["listener"], asked["peer"]) == ("game", "192.0.2.1:4000")
    login.agent.answer(200, {"uid": "alice"})
    login.reader.journal.store_all()
    origin = login.connection.origin
    assert (origin.principal, origin.attributes["uid"]) == ("alice", "alice")
    assert "uid_unproven" not in origin.attributes
    assert login.connection.sent.count(b'{"code":200}') == 2
    assert login.reader.listener.registry.user("alice") == [login.server]
    assert login.hook.outcomes == {"admitted": 1, "denied": 0, "failed": 0}


@pytest.mark.parametrize(
    ("said", "user"),
    [
        (b'{"user":{"name":"\xc3\xbc"}}', b'{"name":"\\u00fc"}'),
        (b'{"user": [1, null] }', b"[1, null]"),
        (b'{"user":null}', b'{"motd":"hi"}'),
        (b"{}", b'{"motd":"hi"}'),
    ],
)
def test_what_it_tells_the_client(make_reader, pomelo, said, user):
    """Its `user`, as it is, in ASCII, in place of the one for all."""
    login = Login(make_reader, handshake_user={"motd": "hi"})
    login.connection.deliver(pomelo.handshake())
    login.agent.answer(200, said)
    expected = b'{"code":200,"sys":{},"user":' + user + b"}"
    assert login.connection.sent == wire.package(wire.HANDSHAKE, expected)


def test_it_may_tell_as_much_as_the_options_say(make_reader, pomelo):
    """However long the answer is that has it."""
    login = Login(make_reader, handshake_bytes=1 << 18)
    backend = _backend(login.reader.listener.options, login.reader.clock)
    backend._agent = login.agent
    login.hook = login.reader.listener.hook = Hook(backend, 1 << 18)
    login.connection.deliver(pomelo.handshake())
    user = "x" * ((1 << 18) - 2)
    login.agent.answer(200, {"uid": "alice", "user": user})
    assert json.loads(login.connection.sent[4:])["user"] == user


def test_somebody_without_a_name(login, pomelo):
    """What the client claims is dropped."""
    login.connection.deliver(pomelo.hello(user={"uid": "alice"}))
    login.agent.answer(200, {})
    assert "uid" not in login.connection.origin.attributes
    assert login.server.uid is None
    assert login.reader.listener.registry.claiming("alice") == []


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [(401, {"msg": "banned"}, "banned"), (403, b"no", "denied"), (403, {}, "denied")],
)
def test_who_is_denied(login, pomelo, code, body, said):
    """He is told why, counted as one with wrong credentials, and not stored."""
    login.connection.deliver(pomelo.hello() + ASK)
    login.agent.answer(code, body)
    assert json.loads(login.connection.sent[4:]) == {"code": 500, "msg": said}
    assert login.connection.refused.wrong_credentials
    assert login.connection.closed
    assert login.reader.journal.submitted == []
    assert login.hook.outcomes["denied"] == 1


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (500, b""),
        (302, b""),
        (200, b"{"),
        (200, {"uid": "x" * 256}),
        (200, {"uid": ""}),
        (200, {"expires_at": "soon"}),
        (200, {"user": "x" * 4095}),
        (200, b'{"user":"' + b"\xc3\xbc" * 700 + b'"}'),  # 4,202 bytes in ASCII
        (200, b'{"user":"\xff"}'),
        (200, b'{"user":nil}'),
        (200, b'{"msg":"' + b"x" * (1 << 16) + b'"}'),
    ],
)
def test_an_answer_of_no_use(login, pomelo, code, body):
    """… admits nobody, and the client is not blamed."""
    login.connection.deliver(pomelo.hello())
    login.agent.answer(code, body)
    assert b"authentication is not available" in login.connection.sent
    assert login.connection.refused.key == "options.authenticate"
    assert not login.connection.refused.wrong_credentials
    assert login.hook.outcomes["failed"] == 1


def test_no_answer_in_time(login, pomelo, logged):
    """Nobody waits longer, and the log has one line until there is an answer again."""
    for _ in range(3):
        connection, _ = login.reader.connect()
        connection.deliver(pomelo.hello())
        login.reader.clock.pump([1] * 5)
        assert b"authentication is not available" in connection.sent
    assert login.agent.cancelled == 3
    connection, _ = login.reader.connect()
    connection.deliver(pomelo.hello())
    login.agent.answer(200, {})
    told = [one["log_format"] for one in logged if one.get("url") == URL]
    assert [text.split()[1] for text in told] == ["does", "answers"]
    assert login.hook.backend.trouble is None
    assert login.hook.backend.waiting == 0


def test_a_service_that_is_away(login, pomelo):
    """Its clients hear at once; none is asked about twice for that."""
    login.connection.deliver(pomelo.hello())
    login.agent.fail(Refused())
    assert b"authentication is not available" in login.connection.sent
    assert len(login.agent.asked) == 1
    assert str(login.hook.backend.trouble).startswith(f"{URL} does not answer: ")
    login.reader.clock.advance(301)
    assert login.hook.backend.trouble is None, "nobody has asked since"


def test_a_connection_that_the_service_has_just_closed(login, pomelo):
    """The question is put once more, and not a third time."""
    login.connection.deliver(pomelo.hello())
    login.agent.fail(ResponseNeverReceived([]))
    assert login.connection.sent == b""
    login.agent.fail(ResponseNeverReceived([]))
    assert b"authentication is not available" in login.connection.sent
    assert len(login.agent.asked) == 2


def test_many_at_once(make_reader, pomelo):
    """So many are asked about as the option says; the others wait, and are not read."""
    login = Login(make_reader, requests=2)
    clients = [login.reader.connect()[0] for _ in range(6)]
    for client in clients:
        client.deliver(pomelo.hello() + ASK)
        assert client.paused
    assert len(login.agent.asked) == 2
    assert login.hook.backend.waiting == 6
    clients[2].lose()
    assert login.hook.backend.waiting == 5
    for _ in range(5):
        login.agent.answer(200, {})
    login.reader.journal.store_all()
    answered = [b'{"code":200}' in client.sent for client in clients]
    assert answered == [True, True, False, True, True, True]
    assert login.hook.outcomes["admitted"] == 5


def test_one_address_with_many(make_reader, pomelo):
    """Those who wait take turns by address: nobody waits behind all of another's."""
    login = Login(make_reader, requests=1)
    for number in range(6):
        login.reader.connect()[0].deliver(
            pomelo.hello(user={"token": f"junk {number}"})
        )
    other = FakeConnection(Origin("pomelo", "game", "s-9", "192.0.2.2:1"))
    login.reader.serve(other)
    other.deliver(pomelo.hello(user={"token": "alice's"}))
    login.agent.answer(403)
    login.agent.answer(403)
    assert login.agent.asked[-1]["handshake"]["user"] == {"token": "alice's"}
    login.agent.answer(200, {"uid": "alice"})
    assert login.reader.listener.registry.user("alice")


def test_a_client_who_is_not_waited_for(login, pomelo):
    """… is no fault of the service: it is not asked again, and the log has no line."""
    login.connection.deliver(pomelo.hello())
    login.connection.lose()
    assert len(login.agent.asked) == 1
    assert not login.hook.backend._away


def test_who_leaves_meanwhile(login, pomelo):
    """His question is called off; what he sent is nowhere, nor is his session."""
    login.connection.deliver(pomelo.hello() + ASK)
    assert login.connection.held_bytes > 0
    login.connection.lose()
    assert login.agent.cancelled == 1
    assert login.hook.backend.waiting == 0
    assert login.hook.outcomes == {"admitted": 0, "denied": 0, "failed": 0}
    assert login.reader.journal.submitted == []


def test_a_stop_meanwhile(login, pomelo):
    """The daemon does not wait for the service."""
    login.connection.deliver(pomelo.hello())
    login.connection.drain()
    assert login.connection.closed
    assert login.agent.cancelled == 1


def test_a_session_that_expires(login, pomelo):
    """The service may say when."""
    login.reader.listener.wall_clock = lambda: 1000.0
    login.connection.deliver(pomelo.hello())
    login.agent.answer(200, {"uid": "alice", "expires_at": 999.5})
    login.reader.clock.advance(1)
    assert login.connection.sent.endswith(wire.kick("token expired"))


def test_a_token_comes_first(make_reader, pomelo):
    """Who does not know it is not asked about."""
    login = Login(make_reader, token="t0k")
    login.connection.deliver(pomelo.hello())
    assert b"no token" in login.connection.sent
    assert login.agent.asked == []


@pytest.mark.parametrize(
    ("said", "uid", "end"),
    [
        ({}, "alice", 60.0),
        ({"expires_at": 30}, "alice", 30.0),
        ({"uid": "a-1", "expires_at": 90}, "a-1", 60.0),
    ],
)
def test_what_a_token_proved_stays(make_reader, pomelo, said, uid, end):
    """The service may name another uid; whichever of the two ends first, ends it."""
    login = Login(make_reader, jwt=Jwt(key="k" * 32))
    now = round(time.time())
    token = jwt.encode({"sub": "alice", "exp": now + 60}, "k" * 32)
    login.connection.deliver(pomelo.hello(user={"token": token, "uid": "mallory"}))
    if "expires_at" in said:
        said = said | {"expires_at": now + said["expires_at"]}
    login.agent.answer(200, said)
    server, origin = login.server, login.connection.origin
    assert (server.uid, origin.principal, origin.attributes["uid"]) == (uid, uid, uid)
    assert server._admitted.expires_at == now + end
