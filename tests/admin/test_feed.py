"""The live page's feed: made once for all viewers, and bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import SecretStr
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from gateway.admin.connections import Guard
from gateway.admin.feed import Feed
from gateway.admin.history import History
from gateway.admin.site import AdminSite
from gateway.config.model import Admin
from gateway.net.turns import Turns
from gateway.sdk.endpoint import Tcp


class Viewer:
    """A connection that asked for the feed."""

    def __init__(self, site: AdminSite, method: str = "GET") -> None:
        self.transport = StringTransport()
        self.protocol: Any = site.buildProtocol(None)
        self.protocol.makeConnection(self.transport)
        head = f"{method} /api/feed HTTP/1.1\r\nHost: localhost\r\n\r\n"
        self.protocol.dataReceived(head.encode())

    @property
    def code(self) -> int:
        return int(self.transport.value().split()[1])

    @property
    def events(self) -> list[tuple[str, Any]]:
        """Name and data of each."""
        lines = self.transport.value().decode().split("\n")
        names = [line[7:] for line in lines if line.startswith("event: ")]
        data = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
        return list(zip(names, data, strict=True))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def lose(self) -> None:
        self.protocol.connectionLost(Failure(ConnectionDone()))


class World:
    """The feed of a daemon, and its rejections."""

    def __init__(self, daemon: Any) -> None:
        self.daemon = daemon
        self.clock = Clock()
        self.rejections = [{"why": "too long"}]
        self.listed = 0
        self.reported: list[tuple[str, Any]] = []
        self.feed = Feed(
            daemon.probe,
            History(),
            lambda: (len(self.rejections), self._list),
            self.clock,
        )
        self.site = AdminSite(
            Tcp("127.0.0.1", 0),
            None,
            health={},
            pages={"/api/feed": self.feed.page},
            posts={},
            clock=self.clock,
            guard=Guard(
                Turns(self.clock),
                report=lambda host, _, why: self.reported.append((host, why)),
            ),
        )

    def _list(self) -> bytes:
        self.listed += 1
        return json.dumps(self.rejections).encode()

    def look(self, method: str = "GET") -> Viewer:
        return Viewer(self.site, method)


@pytest.fixture
def world(daemon: Any) -> World:
    return World(daemon)


def test_state_at_once_and_every_two_seconds(world: World) -> None:
    """And rejections, when there are new ones."""
    viewer = world.look()
    assert viewer.names == ["status", "rejections"]
    assert viewer.events[0][1]["status"]["node"] == "gw-1"
    assert viewer.events[1][1] == [{"why": "too long"}]
    world.clock.advance(2)
    assert viewer.names == ["status", "rejections", "status"]
    world.rejections.append({"why": "again"})
    world.clock.advance(2)
    assert viewer.names[3:] == ["status", "rejections"]


def test_it_is_made_once_for_all(world: World) -> None:
    """Sixteen viewers cost one look at the daemon; more are turned away."""
    viewers = [world.look() for _ in range(16)]
    refused = world.look()
    assert refused.code == 503
    asked, listed = world.daemon.asked, world.listed
    world.rejections.append({"why": "again"})
    world.clock.advance(2)
    assert (world.daemon.asked - asked, world.listed - listed) == (1, 1)
    assert all(viewer.names[-2:] == ["status", "rejections"] for viewer in viewers)
    viewers[0].lose()
    assert world.look().code == 200


def test_nobody_looks(world: World) -> None:
    """Then it costs nothing."""
    viewer = world.look()
    viewer.lose()
    asked = world.daemon.asked
    world.clock.advance(10)
    assert world.daemon.asked == asked
    assert world.look("HEAD").code == 200
    assert world.daemon.asked == asked


def test_a_viewer_that_does_not_read(world: World) -> None:
    """Gets nothing more written, and then the state whole, with what it missed."""
    viewer = world.look()
    viewer.transport.producer.pauseProducing()
    before = viewer.transport.value()
    world.rejections.append({"why": "again"})
    for _ in range(5):
        world.clock.advance(2)
    assert viewer.transport.value() == before
    viewer.transport.producer.resumeProducing()
    world.clock.advance(2)
    assert viewer.names[2:] == ["status", "rejections"]


def test_a_viewer_that_never_reads_is_let_go_of(world: World) -> None:
    """Its place is for another; who reads in time stays, however slowly."""
    slow, deaf = world.look(), world.look()
    for viewer in (slow, deaf):
        viewer.transport.producer.pauseProducing()
    world.clock.advance(44)
    assert not deaf.transport.disconnected
    slow.transport.producer.resumeProducing()
    deaf.transport.producer.pauseProducing()
    world.clock.advance(44)
    slow.transport.producer.pauseProducing()
    assert deaf.transport.disconnected
    assert not slow.transport.disconnected
    [(host, why)] = world.reported
    assert (host, str(why)) == (
        "192.168.1.1",
        "viewer does not read what we send, limit 45 s",
    )
    slow.lose()
    deaf.lose()
    world.clock.advance(100)
    assert len(world.reported) == 1
    assert not world.clock.getDelayedCalls()


def test_another_token_ends_what_was_begun(world: World) -> None:
    """Who has the new one comes again; a reload that keeps it ends nothing."""
    viewer = world.look()
    kept = Admin.model_validate({"listen": Tcp("127.0.0.1", 0)})
    world.site.trust(kept)
    assert not viewer.transport.disconnected
    world.site.trust(kept.model_copy(update={"token": SecretStr("another")}))
    assert viewer.transport.disconnected
