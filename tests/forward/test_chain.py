"""Edges, a gateway on the way and a hub in memory: what the edges have sent is at the hub
once, under their names, in the same bytes.
"""

import errno
import random
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from edges import Hub, Pair
from forwarded import Sent
from gateway.config.model import Forward
from gateway.sdk.arrivals import Announced, Known, Unwelcome
from gateway_testkit.settings import options_of
from incarnations import A, B
from samples import some_of


class Region(Pair):
    """One on the way, whose files come from edges; it has none of its own."""

    def __init__(self, folder: Path) -> None:
        self.by_edges = Hub(folder / "edge", Clock(), "edge")
        """How edges bring theirs."""
        super().__init__(folder)

    def is_ours(self, node: str) -> bool:
        return super().is_ours(node) or self.by_edges.taker.has(node)

    def begin(self, *words: Any) -> None:
        super().begin(*words)
        self.by_edges.restart()
        self.by_edges.taker.onward = self.forwarder.uploads

    def bring(self, *files: Sent) -> None:
        """An edge does."""
        for one in files:
            bringing = self.by_edges.taker.bring(one.file, 0)
            bringing.write([one.data])
            bringing.finish()

    def to_archive(self, *files: Sent) -> None:
        """As if it had been told that they are there."""
        for one in files:
            (self.edge.spool / one.name).rename(self.edge.archive / one.name)


@pytest.fixture
def region(tmp_path) -> Region:
    return Region(tmp_path)


def files(node: str, count: int = 3) -> list[Sent]:
    """Some of an edge."""
    return [Sent(1 + 3 * number, node=node) for number in range(count)]


def as_bytes(*sent: Sent) -> dict[str, bytes]:
    return {one.name: one.data for one in sent}


SHOP, SHIP = files("shop"), files("ship", 20)


def test_files_go_on(region):
    """Those of all edges, and its own; each leaves the spool once the hub has it."""
    region.bring(*SHOP)
    region.bring(*SHIP)
    own = Sent(1)
    region.publish(own)
    region.forwarder.start(0)
    region.run()
    assert region.hub.files() == as_bytes(own, *SHOP, *SHIP)
    assert region.waiting() == []
    assert region.forwarder.nodes == {"shop": 9, "ship": 60}
    assert region.forwarder.arrived_lsn == 3
    assert len(region.open) == 1
    assert region.hub.lsns("shop") == {A: [(1, 9)]}


def test_what_waits_on_the_way_is_known_while_the_hub_is_away(region):
    """Of edges that come for the first time, too, and of a life that counts anew: or an audit
    at the hub would take for lost what an edge has handed on.
    """
    region.away = True
    region.bring(*SHOP)
    region.forwarder.start(0)
    assert region.forwarder.nodes == {"shop": 0}
    region.bring(*SHIP)
    assert region.forwarder.nodes == {"shop": 0, "ship": 0}
    region.away = False
    region.run(20)
    assert region.forwarder.nodes == {"shop": 9, "ship": 60}
    region.away = True
    region.cut()
    region.bring(Sent(4, by=B, node="shop"), Sent(61, node="ship"))
    assert region.forwarder.nodes == {"shop": 3, "ship": 60}


def test_edges_have_their_turns(region):
    """A long backlog of one does not keep those of another for hours."""
    region.bring(*SHIP)
    region.bring(*SHOP)
    region.forwarder.start(0)
    order: list[str] = []
    bring = region.hub.taker.bring

    def noted(file: Announced, at: int) -> Any:
        order.append(file.name)
        return bring(file, at)

    region.hub.taker.bring = noted  # type: ignore[method-assign]
    region.run()
    assert max(order.index(one.name) for one in SHOP) < 10
    assert len(order) == 23


def test_the_last_one_comes_back_older(region):
    """Each edge's files that it lacks come again out of the archive, also those of one that
    has brought nothing since, and in the middle.
    """
    region.bring(*SHOP)
    region.bring(*SHIP)
    region.forwarder.start(0)
    region.run()
    region.hub.forget(SHOP[1], *SHIP[3:])
    region.cut()
    more = Sent(10, node="shop")
    region.bring(more)
    region.run(30)
    assert region.hub.files() == as_bytes(*SHOP, more, *SHIP)
    assert region.waiting() == []
    assert region.hub.taker.files == 2 + len(SHIP[3:])


def test_the_archive_is_listed_once(region):
    """Of a thousand edges it is long: after a reconnect all share one listing, and a hub that
    has come back older is brought what it lacks of each.
    """
    edges = {name: files(name) for name in ("shop", "shop-2", "shop-3", "shop-4")}
    for sent in edges.values():
        region.bring(*sent)
        region.to_archive(*sent)
    names, listed = region.disk.names, []

    def counted(directory: Path) -> list[str]:
        listed.append(directory)
        return names(directory)

    region.disk.names = counted  # type: ignore[method-assign]
    region.restart()
    region.run(10)
    assert region.hub.files() == as_bytes(
        *(one for sent in edges.values() for one in sent)
    )
    assert listed.count(region.edge.archive) == 1


def test_a_file_that_goes_to_the_archive_while_that_is_listed(region, monkeypatch):
    """For another hub, as the one before has just got it: that one gets it, too."""
    second = region.hubs["http://second:7410"] = Hub(region.folder / "2", region.clock)
    names = region.disk.names

    def slow(folder: Path) -> list[str]:
        found = names(folder)
        if folder == region.edge.archive and region.lines[-1].hub is second:
            region.threads.pause(30)
        return found

    monkeypatch.setattr(region.disk, "names", slow)
    region.disk.pause = lambda: region.threads.pause(10)
    region.bring(SHOP[0])
    region.forwarder.start(0)
    region.run(5)
    assert region.hub.files() == as_bytes(SHOP[0])
    region.forwarder.configure(options_of(Forward, to="http://second:7410"))
    region.run(60)
    assert second.files() == as_bytes(SHOP[0])
    assert region.archived() == [SHOP[0].name]


def test_an_edge_begins_anew(region):
    """What its earlier life left on the way goes over beside that of the present one, though
    that gives the same lsns; the archive keeps both.
    """
    region.bring(*SHOP[:2])
    region.forwarder.start(0)
    region.run()
    region.away = True
    region.cut()
    new = [Sent(1, by=B, node="shop", text="new"), Sent(4, by=B, node="shop")]
    region.bring(SHOP[2], *new)
    region.away = False
    region.run(20)
    assert region.hub.files() == as_bytes(*SHOP, *new)
    assert region.hub.lsns("shop") == {A: [(1, 9)], B: [(1, 6)]}
    assert region.waiting() == []
    for one in (*SHOP, *new):
        assert (region.edge.archive / one.name).read_bytes() == one.data
    assert region.forwarder.sent_files == 5


def test_an_edge_that_the_hub_refuses(region):
    """As it has that node itself: those of all others go on, and it is said."""
    region.hub.directories.journal_of("shop").mkdir(parents=True)
    region.bring(*SHOP)
    region.bring(*SHIP)
    region.forwarder.start(0)
    region.run(50)
    assert region.hub.files() == as_bytes(*SHIP)
    assert region.waiting() == [one.name for one in SHOP]
    hub = region.forwarder.hub
    assert (hub.connected, hub.denied) == (True, True)
    assert "node shop has its journal on this machine" in hub.why
    more = Sent(61, node="ship")
    region.bring(more)
    region.run()
    assert more.name in region.hub.files()
    region.hub.directories.journal_of("shop").rmdir()
    region.run(120)
    assert region.hub.files() == as_bytes(*SHOP, *SHIP, more)
    assert not region.forwarder.hub.denied


def test_an_edge_of_the_archive_that_the_hub_refuses(region):
    """It is asked for again, and goes on when that is over; when nothing of it is here any
    more, that it was refused is told no longer.
    """
    region.bring(*SHOP, SHIP[0])
    region.to_archive(*SHOP, SHIP[0])
    for node in ("shop", "ship"):
        region.hub.directories.journal_of(node).mkdir(parents=True)
    region.restart()
    region.run(30)
    assert region.forwarder.hub.denied
    assert region.hub.files() == {}
    region.hub.directories.journal_of("shop").rmdir()
    (region.edge.archive / SHIP[0].name).unlink()
    region.cut()
    region.hub.restart()
    region.run(100)
    assert region.hub.files() == as_bytes(*SHOP)
    region.run(700)
    hub = region.forwarder.hub
    assert (hub.connected, hub.denied, hub.why) == (True, False, "")


@pytest.mark.parametrize("bad", ["shop", "ship"])
def test_an_edge_of_the_archive_whose_record_the_hub_can_not_read(
    region, monkeypatch, bad
):
    """Files of the others come all the same, and its own once that is over."""
    region.bring(*SHOP, *SHIP)
    region.to_archive(*SHOP, *SHIP)
    known, broken = region.hub.taker.known, [bad]

    def fails(node: str) -> Known:
        if node in broken:
            raise OSError(errno.EIO, "Input/output error")
        return known(node)

    monkeypatch.setattr(region.hub.taker, "known", fails)
    region.restart()
    region.run(30)
    assert region.hub.files() == as_bytes(*(SHIP if bad == "shop" else SHOP))
    broken.clear()
    region.run(30)
    assert region.hub.files() == as_bytes(*SHOP, *SHIP)


def test_an_edge_that_is_newer_than_the_hub(region, monkeypatch):
    """The hub can not read its files, which are sound here: those of all others go on."""
    bring = region.hub.taker.bring

    def older(file: Announced, at: int) -> Any:
        if "shop" in file.name:
            raise Unwelcome(422, "this gateway is to be upgraded first")
        return bring(file, at)

    monkeypatch.setattr(region.hub.arrivals, "bring", older)
    region.bring(*SHOP)
    region.bring(*SHIP)
    region.forwarder.start(0)
    region.run(30)
    assert region.hub.files() == as_bytes(*SHIP)
    assert region.waiting() == [one.name for one in SHOP]
    hub = region.forwarder.hub
    assert (hub.connected, hub.refused) == (True, 422)
    monkeypatch.undo()
    region.run(120)
    assert region.hub.files() == as_bytes(*SHOP, *SHIP)
    assert not region.forwarder.hub.denied


@pytest.mark.parametrize("seed", range(some_of(20, 6)))
def test_lines_that_are_cut_and_kills(tmp_path, seed):
    """Of both lines' ends, while edges bring files, and there are some of its own: all is at
    the hub once, and what has left the spool on the way was there by then.
    """
    chance = random.Random(seed)
    region = Region(tmp_path)

    def cuts() -> tuple[float, float]:
        return chance.choice([
            (chance.randrange(20_000), float("inf")),
            (float("inf"), chance.randrange(2_000)),
            (float("inf"), float("inf")),
        ])  # fmt: skip

    region.cuts = iter(cuts, None)  # type: ignore[arg-type]
    region.forwarder.start(0)
    left = {node: files(node, 10) for node in ("shop", "ship", "edge")}
    everything = as_bytes(*(one for some in left.values() for one in some))
    while any(left.values()):
        node = chance.choice([node for node, some in left.items() if some])
        (region.publish if node == "edge" else region.bring)(left[node].pop(0))
        region.run(chance.random() * 4)
        assert {*region.archived()} <= {*region.hub.files()}
        if chance.random() < 0.2:
            region.cut()
            region.hub.restart()
        if chance.random() < 0.2:
            region.restart()
    region.cuts = iter(())
    region.cut()
    region.run(60)
    assert region.hub.files() == everything
    assert region.waiting() == []
    assert sorted(everything) == region.archived()
