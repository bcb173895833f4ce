"""What each kind of client is sent in its handshake, and which are refused."""

import json
from typing import Any

import pytest

from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.auth import Admitted, admission
from gateway.protocols.pomelo.handshake import PROFILES, Handshake, Handshaker
from gateway.protocols.pomelo.routes import Definitions, load
from gateway.sdk.interfaces import Refusal

from .conftest import ALICE

NODE = {"type": "js-websocket", "version": "0.0.1"}
BROWSER = NODE | {"rsa": {}, "protoVersion": 0}
C = {"type": "c", "version": "0.3.4"}
C2 = {"type": "desktop", "version": "0.3.5"}
PYTHON = {"type": "socket", "version": "1.1.1"}
PITAYA = {"platform": "mac", "libVersion": "0.3.5", "clientVersion": "2.1"}


def _handshaker(definitions: Definitions | None = None, **changes: Any) -> Handshaker:
    values: dict[str, Any] = {
        "heartbeat": 3,
        "user_bytes": 200,
        "profiles": {},
        "clients": {},
    } | changes
    admit = admission(values.pop("token", None), None)
    return Handshaker(definitions or load(), admit, **values)


def _answer(handshaker: Handshaker, sys: Any, user: Any = None) -> Handshake:
    return handshaker.answer(json.dumps({"sys": sys, "user": user}).encode())


def _told(handshake: Handshake) -> Any:
    assert handshake.reply[0] == wire.HANDSHAKE
    assert handshake.reply[4:].isascii()
    return json.loads(handshake.reply[4:])


@pytest.fixture
def handshaker(pomelo) -> Handshaker:
    """One that has a dictionary and definitions of both sides."""
    return _handshaker(pomelo.definitions)


@pytest.mark.parametrize(
    ("sys", "profile"),
    [
        (BROWSER, "js"),
        (NODE, "pinus"),
        ({"type": "unity-socket", "version": "1"}, "pinus"),
        ({}, "pinus"),
        (C, "c"),
        (C2, "c2"),
        (C2 | {"type": "Android"}, "c2"),
        (PYTHON, "py"),
        (PITAYA, "pitaya"),
    ],
)
def test_profiles(handshaker, sys, profile):
    """Each published client is known by what it says of itself."""
    assert _answer(handshaker, sys).terms.profile is PROFILES[profile]


def test_profiles_by_configuration():
    """The configuration knows better, by type, by platform, or for all."""
    handshaker = _handshaker(profiles={"js-websocket": "py", "mac": "c2", "*": "c"})
    for sys, profile in ((BROWSER, "py"), (PITAYA, "c2"), (C2, "c"), ({}, "c")):
        assert _answer(handshaker, sys).terms.profile.name == profile


def test_everything(handshaker, pomelo):
    """A new client of Pomelo's own kind is told all keys, always together."""
    told = _told(_answer(handshaker, BROWSER))
    assert told["code"] == 200
    codes = {route: number for number, route in enumerate(pomelo.routes, 1)}
    assert told["sys"] == {
        "heartbeat": 3,
        "dict": codes,
        "routeToCode": codes,
        "codeToRoute": {str(code): route for route, code in codes.items()},
        "dictVersion": pomelo.definitions.dictionary.version,
        "useDict": True,
        "protos": {
            "server": pomelo.definitions.protos.server,
            "client": pomelo.definitions.protos.client,
            "version": pomelo.definitions.protos.version,
        },
        "useProto": True,
    }


def test_nothing_to_tell():
    """Without definitions and heartbeats the answer is as short as the original's."""
    handshake = _answer(_handshaker(heartbeat=0), NODE)
    assert handshake.reply.hex() == (
        "01000015" + b'{"code":200,"sys":{}}'.hex()
    )  # byte for byte the transcript in plain mode


def test_what_a_game_tells_its_clients(pomelo):
    """All are told the same `user`, with and without cached definitions; one may be told
    another, and nobody else is.
    """
    handshaker = _handshaker(pomelo.definitions, user=b'{"a":1}')
    cached = BROWSER | {"dictVersion": pomelo.definitions.dictionary.version}
    for sys in (BROWSER, cached, PITAYA):
        handshake = _answer(handshaker, sys)
        told = _told(handshake)
        assert (told["code"], told["user"]) == (200, {"a": 1})
        handshake.bind(Admitted("bob", "bob"))
        assert _told(handshake) == told
        handshake.bind(Admitted("alice", "alice", user=b"[2]"))
        assert _told(handshake) == told | {"user": [2]}
        assert handshake.admitted.user is None, "kept by nobody"
        assert _told(_answer(handshaker, sys)) == told


@pytest.mark.parametrize("has_dictionary", [False, True])
@pytest.mark.parametrize("has_protos", [False, True])
@pytest.mark.parametrize("profile", ["js", "c2"])
def test_caches(handshaker, pomelo, has_dictionary, has_protos, profile):
    """Who has a version already is not told it again, and still that it is used."""
    sys: dict[str, Any] = dict(BROWSER if profile == "js" else C2)
    if has_dictionary:
        sys["dictVersion"] = pomelo.definitions.dictionary.version
    if has_protos:
        sys["protoVersion"] = pomelo.definitions.protos.version
    told = _told(_answer(handshaker, sys))["sys"]
    dictionary = {"dict", "routeToCode", "codeToRoute", "dictVersion"}
    assert dictionary & told.keys() == (set() if has_dictionary else dictionary)
    assert ("protos" in told) == (not has_protos)
    assert told["useDict"]
    assert told["useProto"]


def test_other_versions_are_told_anew(handshaker):
    """A version that is not ours is worth nothing."""
    sys = BROWSER | {"dictVersion": "x", "protoVersion": "y"}
    assert {"dict", "protos"} <= _told(_answer(handshaker, sys))["sys"].keys()


def test_a_browser_forgets_what_another_server_told():
    """A browser that cached definitions is told that there are none (others forget)."""
    handshaker = _handshaker()
    told = _told(_answer(handshaker, BROWSER | {"protoVersion": "old"}))["sys"]
    assert told["protos"] == {"server": {}, "client": {}, "version": 0}
    assert "protos" not in _told(_answer(handshaker, BROWSER))["sys"]
    assert (
        "protos" not in _told(_answer(handshaker, C2 | {"protoVersion": "old"}))["sys"]
    )


def test_pitaya(handshaker):
    """Its clients abort on a dictionary of Pomelo's kind."""
    assert _told(_answer(handshaker, PITAYA))["sys"] == {
        "heartbeat": 3,
        "serializer": "json",
    }


def test_small_codes_for_c():
    """libpomelo reads one byte of a code: it is told no larger ones."""
    handshaker = _handshaker(load({"a": 255, "b": 256}))
    assert _told(_answer(handshaker, C))["sys"]["dict"] == {"a": 255}
    terms = _answer(handshaker, C).terms
    assert set(terms.routes) == {255}
    assert terms.push("b", b"{}") == wire.push("b", b"{}")
    assert set(_told(_answer(handshaker, NODE))["sys"]["dict"]) == {"a", "b"}


def test_terms_are_shared_and_kept(handshaker):
    """A reload changes what the next ones are told, and nothing for those before."""
    first, second = (
        _answer(handshaker, NODE),
        _answer(handshaker, NODE | {"version": "9"}),
    )
    assert first.terms is second.terms
    assert first.reply is second.reply
    handshaker.definitions = load(["new"])
    third = _answer(handshaker, NODE)
    assert third.terms is not first.terms
    assert _told(third)["sys"]["dict"] == {"new": 1}
    assert first.terms.push("chat.room.say", b"{}") == wire.push(2, b"{}")


# Responses and pushes


def test_responses(handshaker):
    """In protobuf for routes that have a definition, unless libpomelo2 asks."""
    route = "area.player.move"
    terms = _answer(handshaker, NODE).terms
    assert terms.ok(route).hex() == "08c801"
    assert terms.routes[1].answer
    failed = wire.message(terms.failed(300, route, "no")[4:])
    assert (failed.id, failed.body.hex()) == (300, "08f40312026e6f")
    plain = wire.message(terms.failed(1, None, "né")[4:])
    assert plain.body == b'{"code":500,"msg":"n\\u00e9"}'
    assert not plain.error
    assert not _answer(handshaker, C2).terms.routes[1].answer


def test_a_response_that_its_definition_does_not_allow():
    """It is empty, as the original's is."""
    source = {"a": {"required uInt32 score": 1}}
    terms = _answer(_handshaker(load(None, None, source)), NODE).terms
    assert terms.ok("a") == b""


def test_a_heartbeat_for_pitaya():
    """Always a positive one: its Go client panics otherwise.  Others are told none."""
    silent = _handshaker(heartbeat=0)
    told = json.loads(_answer(silent, PITAYA).reply[4:])["sys"]
    assert told["heartbeat"] == 3600
    assert "heartbeat" not in json.loads(_answer(silent, NODE).reply[4:])["sys"]


def test_errors_for_pitaya(handshaker):
    """Its clients know an error by a bit, and its code is text."""
    message = wire.message(_answer(handshaker, PITAYA).terms.failed(7, None, "no")[4:])
    assert message.error
    assert json.loads(message.body) == {"code": "PIT-500", "msg": "no"}


def test_pushes(handshaker):
    """By code where there is one and the client can read it; protobuf where told."""
    body = '{"id":7,"name":"ü😀"}'.encode()
    browser, c2, python, pitaya = (
        _answer(handshaker, sys).terms for sys in (BROWSER, C2, PYTHON, PITAYA)
    )
    assert browser.push("chat.room.say", b"{}").hex() == "04000005" + "070002" + "7b7d"
    assert python.push("chat.room.say", b"{}") == wire.push("chat.room.say", b"{}")
    assert pitaya.push("chat.room.say", b"{}") == wire.push("chat.room.say", b"{}")
    assert pitaya.push("onMove", body) == wire.push(
        "onMove", b'{"id":7,"name":"\\u00fc\\ud83d\\ude00"}'
    )
    assert c2.push("onMove", body).endswith("ü😀".encode())
    assert browser.push("onMove", body).endswith(b"\xc3\xbc\xed\xa0\xbd\xed\xb8\x80")
    with pytest.raises(ValueError, match="id is required"):
        browser.push("onMove", b"{}")


# Refusals


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b"{}", b"null", b"[]", b"7", b'"x"', b'{"sys":1}',
     b'{"sys":null}', b'{"sys":[]}', b'{"user":{}}', b"[" * 5000],
)  # fmt: skip
def test_not_a_handshake(handshaker, body):
    """It is answered with 500 and a reason, in a handshake."""
    with pytest.raises(Refusal) as caught:
        handshaker.answer(body)
    reply = caught.value.reply
    assert reply[0] == wire.HANDSHAKE
    assert json.loads(reply[4:])["code"] == 500
    assert json.loads(reply[4:])["msg"] == caught.value.rule


def test_user_data_may_be_anything(handshaker):
    """Absent, or no object: it is nothing."""
    for user in (None, 1, [], "x"):
        assert _answer(handshaker, NODE, user).admitted.uid is None


def test_a_handshake_of_a_browser(handshaker):
    """Its surrogate halves are characters."""
    handshake = handshaker.answer(
        b'{"sys":{"type":"js-websocket"},"user":{"n":"\xed\xa0\xbd\xed\xb8\x80"}}'
    )
    assert handshake.attributes["user.n"] == "😀"


@pytest.mark.parametrize(
    ("clients", "sys", "fine"),
    [
        ({}, {}, True),
        ({"js-websocket": "0.0.1"}, NODE, True),
        ({"js-websocket": "0.0.2"}, NODE, False),
        ({"js-websocket": "0.0.1"}, C, False),
        ({"js-websocket": "9", "*": "0.3"}, C, True),
        ({"*": "0.3.10"}, C, False),
        ({"mac": "2.1"}, PITAYA, True),
        ({"*": "1"}, {"type": "x"}, False),
    ],
)
def test_versions(clients, sys, fine):
    """Clients that are too old, or not on the list, get 501."""
    handshaker = _handshaker(clients=clients)
    if fine:
        _answer(handshaker, sys)
        return
    with pytest.raises(Refusal, match=r"options\.clients") as caught:
        _answer(handshaker, sys)
    assert json.loads(caught.value.reply[4:])["code"] == 501


def test_who_is_not_admitted():
    """It is told why; the log too."""
    handshaker = _handshaker(token="secret")
    with pytest.raises(Refusal, match="not admitted: wrong token") as caught:
        _answer(handshaker, NODE, {"token": "guess"})
    assert json.loads(caught.value.reply[4:]) == {"code": 500, "msg": "wrong token"}


# What is kept


def test_attributes(handshaker):
    """Who the client is, and its user data, flat and as text, without the token."""
    user = {
        "uid": "alice",
        "token": "secret",
        "level": 7,
        "vip": True,
        "none": None,
        "at": {"x": 1.5, "token": "fine", "deep": {"er": {"still": [1, {}]}}},
    }
    assert _answer(handshaker, BROWSER, user).attributes == ALICE | {
        "user.level": "7",
        "user.vip": "true",
        "user.at.x": "1.5",
        "user.at.token": "fine",
        "user.at.deep.er.still": "[1,{}]",
    }


def test_attributes_are_bounded():
    """What does not fit is left out, and that is said."""
    handshaker = _handshaker(user_bytes=20)
    user = {"a": "x" * 10, "b": "y" * 10, "c": "z"}
    attributes = _answer(
        handshaker, {"type": "t" * 99, "version": "v" * 99}, user
    ).attributes
    assert attributes["user.a"] == "x" * 10
    assert "user.b" not in attributes
    assert attributes["user_cut_off"] == "true"
    assert len(attributes["client"]) == len(attributes["client_version"]) == 64


def test_depth_of_user_data(handshaker):
    """Nesting costs no recursion."""
    deep: Any = 1
    for _ in range(400):
        deep = {"a": deep}
    attributes = _answer(handshaker, NODE, {"d": deep}).attributes
    assert attributes["user_cut_off"] == "true"


def test_the_plain_profile(pomelo):
    """Neither dictionary nor definitions, for clients that would ignore them: it is pushed
    to, and answered, by names and in JSON.
    """
    handshaker = _handshaker(profiles={"weixin": "plain"})
    found = _answer(handshaker, {"type": "weixin", "version": "1"})
    told = _told(found)
    assert told["code"] == 200
    assert not {"dict", "protos", "routeToCode", "useDict", "useProto"} & {*told["sys"]}
    assert found.terms.profile.name == "plain"
