"""Pushes reach clients by session, by uid and by attributes."""

from typing import Any

import pytest

from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.listener import Pomelo
from gateway.protocols.pomelo.options import Options
from gateway.protocols.pomelo.registry import Registry
from gateway_testkit.settings import settings

from .conftest import push

NODE = {"type": "js-websocket", "version": "1"}
PITAYA = {"platform": "mac", "libVersion": "1"}


class Crowd:
    """Clients of one listener that has definitions."""

    def __init__(self, make_reader: Any, pomelo: Any) -> None:
        self.reader = make_reader(
            routes=pomelo.routes,
            client_protos=pomelo.client_protos,
            server_protos=pomelo.server_protos,
        )
        self.registry: Registry = self.reader.listener.registry
        self._hello = pomelo.hello

    def join(self, sys: Any = NODE, **user: Any) -> Any:
        """One more."""
        connection, _ = self.reader.connect()
        connection.deliver(self._hello(sys, user))
        connection.clear()
        return connection


@pytest.fixture
def crowd(make_reader, pomelo) -> Crowd:
    """Nobody yet."""
    return Crowd(make_reader, pomelo)


def test_by_uid(crowd):
    """All connections of a user, and nobody else's."""
    first, second = crowd.join(uid="alice"), crowd.join(uid="alice")
    other = crowd.join(uid="bob")
    registry = crowd.registry
    assert push(registry, registry.user("alice"), "x", b"{}") == (2, 0)
    assert first.sent == second.sent == wire.push("x", b"{}")
    assert other.sent == b""
    assert registry.user("nobody") == []
    first.lose()
    assert len(registry.user("alice")) == 1
    second.lose()
    assert registry.user("alice") == []


def test_a_push_to_nobody_is_judged(crowd):
    """… as one to somebody is: by the definition of its route."""
    registry = crowd.registry
    for _ in range(2):
        with pytest.raises(ValueError, match="id"):
            push(registry, registry.all(), "onMove", b'{"name":"x"}')
        push(registry, registry.all(), "onMove", b'{"id":1}')
        crowd.join()
    assert registry.outcomes["refused"] == 2
    assert registry.outcomes["nobody"] == 1


def test_outcomes_are_counted(crowd):
    """Each message to a client; and pushes that were for nobody, or no pushes."""
    alice, _ = crowd.join(uid="alice"), crowd.join()
    registry = crowd.registry
    push(registry, registry.all(), "x", b"{}")
    push(registry, registry.user("nobody"), "x", b"{}")
    with pytest.raises(ValueError, match="JSON"):
        push(registry, registry.user("nobody"), "x", b"{")
    alice.unsent_bytes = 1 << 30
    push(registry, registry.user("alice"), "x", b"{}")
    outcomes = {"sent": 2, "dropped": 1, "nobody": 1, "refused": 1, "expired": 0}
    assert registry.outcomes == {**outcomes, "unproven": 0}


def test_by_attributes(crowd):
    """Everyone, or those whose events have these attributes."""
    red, blue = crowd.join(team="red", level=3), crowd.join(team="blue", level=3)
    registry = crowd.registry
    assert len(registry.all()) == 2
    assert len(registry.all({"user.level": "3"})) == 2
    assert [
        m.origin for m in registry.all({"user.team": "red", "client": "js-websocket"})
    ] == [red.origin]
    assert registry.all({"user.team": "green"}) == []
    assert push(registry, registry.all({"user.team": "blue"}), "x", b"{}") == (1, 0)
    assert blue.sent


def test_encoded_once_per_kind_of_client(crowd, monkeypatch):
    """However many there are; each kind gets what it can read."""
    clients = [crowd.join() for _ in range(20)]
    pitaya = crowd.join(PITAYA)
    encoded = []
    make = wire.push
    monkeypatch.setattr(wire, "push", lambda *args: encoded.append(args) or make(*args))
    registry = crowd.registry
    assert push(registry, registry.all(), "onMove", b'{"id":7}') == (21, 0)
    assert len(encoded) == 2
    assert {client.sent for client in clients} == {make("onMove", b"\x08\x07")}
    assert pitaya.sent == make("onMove", b'{"id":7}')


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("x", b"{"),
        ("x", b""),
        ("x", b'"\xff"'),
        ("", b"{}"),
        ("x" * 256, b"{}"),
        ("a😀", b"{}"),
        ("onMove", b"{}"),
        ("onMove", b"[1]"),
        ("onMove", b'{"id":"x"}'),
    ],
)
def test_bad_pushes_reach_nobody(crowd, route, body):
    """Not even those clients that it would have suited."""
    pitaya, node = crowd.join(PITAYA), crowd.join()
    registry = crowd.registry
    with pytest.raises(ValueError, match=r"route|body|id|object"):
        push(registry, registry.all(), route, body)
    assert pitaya.sent == node.sent == b""


def test_one_registry_for_several_listeners(make_reader, pomelo):
    """A gateway may have it so."""
    registry = Registry()
    reader = make_reader()
    for _ in range(2):
        listener = Pomelo(settings(Options), reader.journal, reader.clock, registry)
        connection, _ = reader.connect()
        listener(connection).received(pomelo.hello())
    assert len(registry) == 2
