"""The client's side of a connection, against the server's side."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.client_session import (
    ClientSession,
    HandshakeDone,
    Kicked,
    Push,
    Response,
    Unexpected,
)
from gateway.protocols.pomelo.protobuf import parse

MOVE, SAY = "area.player.move", "chat.room.say"
PROTOS = {"client": {}, "server": parse({"x": {"optional uInt32 n": 1}})}
UNUSABLE = {"client": {}, "server": parse({"x": {"optional Nothing n": 1}})}


def _answer(sys: Any, code: int = 200) -> bytes:
    told = {"code": code, "sys": sys}
    return wire.package(wire.HANDSHAKE, json.dumps(told).encode())


@pytest.fixture
def client() -> ClientSession:
    """One that is open, on a server without definitions."""
    client = ClientSession()
    assert list(client.received(_answer({"heartbeat": 3}))) == [HandshakeDone(3)]
    assert client.outgoing() == wire.package(wire.ACK)
    return client


def test_the_whole_way(pomelo):
    """Handshake, codes, protobuf, answers: against a session with definitions."""
    client = ClientSession({"uid": "alice"})
    session = pomelo.session(pomelo.definitions)
    assert not client.opened
    for package in pomelo.outcome([client.handshake()], session).sent, b"":
        list(client.received(package))
    assert client.opened
    number, request = client.request(MOVE, b'{"to":{"x":1,"y":-2},"tags":[1,300]}')
    assert request[4:8].hex() == "01010001"  # request by code 1, id 1
    stream = client.outgoing() + request + client.notify(SAY, b'{"n":1}')
    found = pomelo.outcome([stream], session)
    assert [event[2:4] for event in found.events] == [
        (MOVE, b'{"to":{"x":1,"y":-2},"tags":[1,300]}'),
        (SAY, b'{"n":1}'),
    ]
    pushed = session.terms.push("onMove", b'{"id":7}') + session.terms.push(SAY, b"{}")
    said = list(client.received(found.sent + found.responses + pushed))
    assert said == [
        Response(number, b'{"code":200}'),
        Push("onMove", b'{"id":7}'),
        Push(SAY, b"{}"),
    ]


def test_ids_are_free_before_they_are_used_again(client):
    """After the last id comes the first that waits for nothing."""
    assert [client.request("a", b"{}")[0] for _ in range(3)] == [1, 2, 3]
    list(client.received(wire.response(2, b"{}")))
    client._last = 2**32 - 2
    assert [client.request("a", b"{}")[0] for _ in range(3)] == [2**32 - 1, 2, 4]


def test_answers_to_nothing(client):
    """A response that nobody waits for says nothing."""
    assert list(client.received(wire.response(9, b"{}"))) == []


@pytest.mark.parametrize(
    ("body", "reason"), [(b'{"reason":"bye"}', "bye"), (b"", ""), (b"[", "[")]
)
def test_kicked(client, body, reason):
    """With a reason, or, by pitaya, without one."""
    assert list(client.received(wire.package(wire.KICK, body))) == [Kicked(reason)]


@pytest.mark.parametrize(
    "stream",
    [
        b"HTTP/1.1 400",
        _answer({}, code=500),
        wire.package(wire.HANDSHAKE, b"{"),
        wire.package(wire.HANDSHAKE, b"[]"),
        _answer({"protos": {"client": {"a": 1}, "server": {}}}),
        _answer({"protos": UNUSABLE}),
        _answer({"protos": PROTOS}) + wire.push("x", b"\xff"),
        wire.package(wire.DATA, b""),
        wire.request(1, "a", b"{}"),
        wire.push(7, b"{}"),
    ],
)
def test_servers_of_another_kind(stream):
    """Whatever a client can not understand ends it."""
    with pytest.raises(Unexpected):
        list(ClientSession().received(stream))


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=4))
def test_garbage(pieces):
    """Of any bytes comes something said, or `Unexpected`."""
    client = ClientSession()
    stream = [_answer({"dict": {"a": 1}}), *pieces]
    try:
        for piece in stream:
            list(client.received(piece))
    except Unexpected as why:
        assert str(why)  # noqa: PT017
