"""`/api/tap`: server-sent events, in HTTP as it comes out of the admin port."""

import json
from typing import Any

import pytest

from gateway.access import Access
from gateway.admin.http import HttpServer
from gateway.admin.site import Site
from gateway.event import Rows
from gateway.feeds.page import tap_page
from gateway.sdk.endpoint import Tcp
from gateway.testing import FakeConnection


class Viewer:
    """A connection to the page."""

    def __init__(self, site: Site, world: Any, target: str, method: str) -> None:
        self.world = world
        self.connection = FakeConnection()
        self.server = HttpServer(self.connection, site, world.clock, lambda *_: None)
        self.connection.serve(self.server)
        head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n"
        self.connection.deliver(f"{head}Authorization: Bearer t\r\n\r\n".encode())

    def wait(self, seconds: float = 0.25) -> None:
        for _ in range(int(seconds / 0.25)):
            self.world.clock.advance(0.25)
            while self.world.threads.run():
                pass

    @property
    def head(self) -> str:
        found: bytes = self.connection.sent.partition(b"\r\n\r\n")[0]
        return found.decode()

    @property
    def status(self) -> int:
        return int(self.head.split()[1])

    @property
    def shown(self) -> list[Any]:
        """The data so far."""
        lines = self.connection.sent.split(b"\n")
        return [json.loads(each[6:]) for each in lines if each.startswith(b"data: ")]

    @property
    def lsns(self) -> list[int]:
        return [each["lsn"] for each in self.shown if "lsn" in each]

    def lose(self) -> None:
        self.connection.lose()


@pytest.fixture
def look(world) -> Any:
    """Ask for the page."""
    site = Site(
        Access(Tcp("127.0.0.1", 0), "t"),
        {"/api/tap": tap_page(world.tap, world.clock, lambda: ("one", "two"))},
        {},
    )
    return lambda target="/api/tap", method="GET": Viewer(site, world, target, method)


@pytest.fixture
def look_without_token(world) -> Any:
    """The same, on loopback where no token is configured."""
    site = Site(
        Access(Tcp("127.0.0.1", 0), None),
        {"/api/tap": tap_page(world.tap, world.clock)},
        {},
    )
    return lambda target: Viewer(site, world, target, "GET")


def test_payloads_ask_for_a_token(world, look_without_token):
    """Without one, events come without what their senders wrote."""
    assert look_without_token("/api/tap").status == 403
    assert look_without_token("/api/tap?payload=no&find.payload=3").status == 403
    viewer = look_without_token("/api/tap?payload=no&find.peer=192.0.2")
    world.commit(1, 1)
    viewer.wait(0.5)
    assert viewer.lsns == [1, 2]
    assert viewer.shown[0]["peer"] == "192.0.2.1:1"
    assert not {"payload", "attributes"} & viewer.shown[0].keys()


@pytest.mark.parametrize(
    ("query", "lsns"),
    [
        ("find.principal=SOME", [3]),
        ("find.peer=192.0.2.1", [1, 2]),
        ("find.session=s-1&find.protocol=good", [2]),
        ("find.payload=%22n%22:1", [1]),
        ("find.seq=2", [2]),
        ("find.flaw=x", []),
        ("find.peer=", [1, 2, 3]),
    ],
)
def test_texts_in_any_column(world, look, query, lsns):
    """In any case of letters; several must all be there."""
    viewer = look(f"/api/tap?{query}")
    world.commit(1, 1, 1)
    viewer.wait(0.5)
    assert viewer.lsns == lsns


def test_what_a_filter_takes_and_the_rate_does_not_is_told(world, look):
    """Each event that it takes is shown, or among those of a gap."""
    viewer = look("/api/tap?rate=4&find.channel=odd")
    world.commit(100)
    viewer.wait(1)
    gaps = [each["gap"] for each in viewer.shown if "gap" in each]
    told = {lsn for each in gaps for lsn in range(each["from"], each["to"] + 1)}
    assert len(viewer.lsns) < 5
    assert {*viewer.lsns, *told} >= {*range(1, 101, 2)}
    assert not told & {*viewer.lsns}


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b'{"n": 70}', "%22n%22:70"),
        (b'{"url":"http:\\/\\/gw\\/a"}', "http://gw/a"),
        (b'{"n":%b}' % (b"1" * 5000), "%22n%22:111"),  # more digits than Python reads
    ],
)
def test_payloads_are_found_however_they_are_written(
    world, look, look_without_token, monkeypatch, payload, text
):
    """And events that come behind one are shown, whatever JSON it has."""
    monkeypatch.setitem(world.live.decoders, "other", lambda _: Rows([payload]))
    found = look(f"/api/tap?find.payload={text}")
    public = look_without_token("/api/tap?payload=no")
    world.commit(1, 1, 1, 1)
    for viewer in (found, public):
        viewer.wait(0.5)
    assert b'"lsn":3,' in found.connection.sent
    assert public.lsns == [1, 2, 3, 4]


def test_a_rare_event_is_found_among_many(world, look):
    """A filter looks at more than the rate shows."""
    viewer = look("/api/tap?rate=4&find.seq=777")
    for _ in range(10):
        world.commit(100)
        viewer.wait()
    assert viewer.lsns == [777]


def test_each_listener_has_its_share(world, look):
    """One that has a thousand times as much does not hide another."""
    viewer = look("/api/tap?rate=8&fair=yes")
    for _ in range(10):
        world.commit(300, 300, 1)
        viewer.wait()
    shown = [one for one in viewer.shown if "lsn" in one]
    listeners = [one["listener"] for one in shown]
    assert listeners.count("two") >= 5
    assert listeners.count("one") >= 5
    assert len(shown) <= 30
    viewer.lose()
    assert world.live.subscribers == 0


def test_events_as_they_come(world, look):
    """An event is one `data:` with its JSON."""
    viewer = look()
    assert viewer.status == 200
    assert "Content-Type: text/event-stream" in viewer.head
    world.commit(2, 1)
    viewer.wait(0.5)
    assert viewer.lsns == [1, 2, 3]
    assert viewer.shown[0]["payload"] == {"n": 1}


def test_a_sample(world, look):
    """No more than `rate` a second; what is left out is told."""
    viewer = look("/api/tap?rate=8&channel=odd")
    for _ in range(20):
        world.commit(40)
        viewer.wait()
    assert 30 <= len(viewer.shown) <= 60
    assert all(lsn % 2 for lsn in viewer.lsns)
    assert viewer.lsns == sorted(viewer.lsns)
    assert viewer.lsns[-1] > 700
    assert {"gap"} in [set(each) for each in viewer.shown]


def test_what_was_not_asked_for_is_not_left_out(world, look):
    """Behind the last one that the rate allows come others, which the filter does not take."""
    viewer = look("/api/tap?rate=8&protocol=other")
    viewer.wait()
    for counts in ((2, 2, 3), (2, 2)):
        world.commit(*counts)
        world.threads.run()
        world.clock.advance(0.02)
    world.threads.run()
    viewer.wait()
    assert (viewer.lsns, len(viewer.shown)) == ([5, 6, 7], 3)


def test_nobody_reads(world, look):
    """A viewer whose network is stuck gets nothing more written, and costs nothing."""
    viewer = look("/api/tap?rate=10000")
    viewer.server.writable(False)
    before = viewer.connection.sent
    world.commit(9)
    viewer.wait(30)
    assert viewer.connection.sent == before
    viewer.server.writable(True)
    viewer.wait()
    assert viewer.lsns == list(range(1, 10))


def test_a_sign_of_life(look):
    """Where nothing happens, a comment now and then keeps the connection."""
    viewer = look()
    viewer.wait(16)
    assert viewer.connection.sent.rstrip().endswith(b":")


def test_the_viewer_goes(world, look):
    """Nothing is left of it."""
    viewer = look()
    viewer.lose()
    assert world.live.subscribers == 0
    assert not world.clock.getDelayedCalls()


def test_so_many_viewers(look):
    """16, and then when one goes."""
    viewers = [look() for _ in range(16)]
    assert look().status == 503
    viewers[0].lose()
    assert look().status == 200


def test_the_gateway_stops(world, look):
    """The answer ends."""
    viewer = look()
    world.live.stop()
    viewer.wait()
    assert viewer.connection.sent.endswith(b"0\r\n\r\n")
    assert world.live.subscribers == 0


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("rate=0", 400),
        ("rate=x", 400),
        ("colour=red", 400),
        ("format=arrow", 400),
        ("fair=1", 400),
        ("find.colour=red", 400),
    ],
)
def test_a_wrong_query(look, query, status):
    """It is refused with a word about it, in JSON."""
    viewer = look(f"/api/tap?{query}")
    assert viewer.status == status
    body = viewer.connection.sent.partition(b"\r\n\r\n")[2]
    assert json.loads(body)["error"]


def test_head(world, look):
    """HEAD says what it would be, and ends."""
    viewer = look(method="HEAD")
    assert viewer.status == 200
    assert world.live.subscribers == 0
