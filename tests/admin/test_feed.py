"""The live page's feed: made once for all viewers, and bounded."""

import json
from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.task import Clock

from gateway.access import Access
from gateway.admin.feed import Feed
from gateway.admin.history import History
from gateway.sdk.endpoint import Tcp
from making import Make


class Viewer:
    """A connection that asked for the feed."""

    def __init__(self, port: Any, method: str) -> None:
        self.client = port.come()
        head = f"{method} /api/feed HTTP/1.1\r\nHost: localhost\r\n\r\n"
        self.client.send(head.encode())

    @property
    def code(self) -> int:
        return int(self.client.got.split()[1])

    @property
    def events(self) -> list[tuple[str, Any]]:
        """Name and data of each."""
        lines = self.client.got.decode().split("\n")
        names = [line[7:] for line in lines if line.startswith("event: ")]
        data = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
        return list(zip(names, data, strict=True))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def lose(self) -> None:
        self.client.lose()


class World:
    """The feed of a daemon, and its rejections."""

    def __init__(self, daemon: Any, open_port: Make) -> None:
        self.daemon = daemon
        self.clock = Clock()
        self.rejections = [{"why": "too long"}]
        self.listed = 0
        self.feed = Feed(
            daemon.probe,
            History(),
            lambda: (len(self.rejections), self._list),
            self.clock,
        )
        self.port = open_port(clock=self.clock, more={"/api/feed": self.feed.page})

    def _list(self) -> bytes:
        self.listed += 1
        return json.dumps(self.rejections).encode()

    def wait(self, seconds: float) -> None:
        for _ in range(int(2 * seconds)):
            self.clock.advance(0.5)

    def look(self, method: str = "GET") -> Viewer:
        return Viewer(self.port, method)


@pytest.fixture
def world(daemon, open_port) -> World:
    return World(daemon, open_port)


def test_state_at_once_and_every_two_seconds(world):
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


def test_it_is_made_once_for_all(world):
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


def test_nobody_looks(world):
    viewer = world.look()
    viewer.lose()
    asked = world.daemon.asked
    world.clock.advance(10)
    assert world.daemon.asked == asked
    assert world.look("HEAD").code == 200
    assert world.daemon.asked == asked


def test_a_viewer_that_does_not_read(world):
    """Gets nothing more written, and then the state whole, with what it missed."""
    viewer = world.look()
    viewer.client.stop_reading()
    before = viewer.client.got
    world.rejections.append({"why": "again"})
    for _ in range(5):
        world.clock.advance(2)
    assert viewer.client.got == before
    viewer.client.read_on()
    world.clock.advance(2)
    assert viewer.names[2:] == ["status", "rejections"]


def test_a_viewer_that_never_reads_is_let_go_of(world):
    """Its place is for another; who reads in time stays, however slowly."""
    slow, deaf = world.look(), world.look()
    for viewer in (slow, deaf):
        viewer.client.stop_reading()
    world.wait(44)
    assert not deaf.client.gone
    slow.client.read_on()
    world.wait(44)
    assert deaf.client.gone
    assert not slow.client.gone
    assert world.port.reported == [
        ("127.0.0.1:4000", "peer does not read what we send, limit 45 s")
    ]
    slow.lose()
    deaf.lose()
    world.wait(100)
    assert world.port.scheduled == 0


def test_another_token_ends_what_was_begun(world):
    """Who has the new one comes again; a reload that keeps it ends nothing."""
    viewer = world.look()
    kept = Access(Tcp("127.0.0.1", 0))
    world.port.site.trust(kept)
    assert not viewer.client.gone
    world.port.site.trust(replace(kept, token="another"))
    assert viewer.client.gone


def test_a_viewer_stays_as_long_as_it_likes(world):
    """Though it says nothing: what it is sent shows that it is there."""
    viewer = world.look()
    world.wait(300)
    assert not viewer.client.gone
    assert len(viewer.events) > 140
