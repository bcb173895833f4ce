"""Edges, a gateway on the way and a hub in memory: what the edges have sent is at the hub
once, under their names, in the same bytes.
"""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest

from edges import Hub, Pair
from forwarded import Sent
from gateway.sdk.arrivals import Unwelcome
from gateway.sdk.forwarding import Life
from gateway.store.names import file_name
from incarnations import A, B
from samples import some_of


class Region(Pair):
    """One on the way, whose files come from edges; it has none of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.taker = Hub(folder / "edge", self.clock)
        """How edges bring theirs."""

    def is_ours(self, node: str) -> bool:
        return super().is_ours(node) or self.taker.arrivals.has(node)

    def life_of(self, node: str) -> Life | None:
        return self.taker.arrivals.life_of(node)

    def bring(self, *files: Sent, node: str = "shop", life: Life | None = None) -> None:
        """An edge does."""
        bringing = self.taker.arrivals.bring(life or Life(node, A))
        for one in files:
            if bringing.begin(one.file):
                bringing.write([one.data])
                bringing.finish()
        bringing.close()


@pytest.fixture
def region(tmp_path: Path) -> Region:
    region = Region(tmp_path)
    region.begin()
    return region


def files(node: str, count: int = 3) -> list[Sent]:
    """Some of an edge."""
    return [Sent(1 + 3 * number, node=node) for number in range(count)]


def as_bytes(*sent: Sent) -> dict[str, bytes]:
    return {one.name: one.data for one in sent}


SHOP, SHIP = files("shop"), files("ship", 20)


def test_files_go_on(region: Region) -> None:
    """Those of all edges, and its own; each leaves the spool once the hub has it."""
    region.bring(*SHOP)
    region.bring(*SHIP, node="ship")
    own = Sent(1)
    region.publish(own)
    region.forwarder.start(0)
    region.run()
    assert region.hub.files() == as_bytes(own, *SHOP, *SHIP)
    assert region.waiting() == []
    assert region.forwarder.nodes == {"shop": 9, "ship": 60}
    assert region.forwarder.arrived_lsn == 3
    assert len(region.lines) == 1
    record = region.hub.arrivals.nodes["shop"]
    assert record.current == A


def test_what_waits_on_the_way_is_known_while_the_hub_is_away(region: Region) -> None:
    """Of edges that come for the first time, too, and of a life that counts anew: or an audit
    at the hub would take for lost what an edge has handed on.
    """
    region.away = True
    region.bring(*SHOP)
    region.forwarder.start(0)
    assert region.forwarder.nodes == {"shop": 0}
    region.bring(*SHIP, node="ship")
    region.run(70)
    assert region.forwarder.nodes == {"shop": 0, "ship": 0}
    region.away = False
    region.run(20)
    assert region.forwarder.nodes == {"shop": 9, "ship": 60}
    region.away = True
    region.lines[-1].cut()
    region.bring(Sent(4, by=B, node="shop"), life=Life("shop", B, (A,)))
    region.bring(Sent(61, node="ship"), node="ship")
    region.run(70)
    assert region.forwarder.nodes == {"shop": 3, "ship": 60}


def test_edges_have_their_turns(region: Region) -> None:
    """A long backlog of one does not keep those of another for hours."""
    region.bring(*SHIP, node="ship")
    region.bring(*SHOP)
    region.names.add("shop")
    region.begin()
    waiting = [one.named.node for one in region.forwarder._files.in_spool()]
    assert waiting == ["ship"] * 8 + ["shop"] * 3 + ["ship"] * 12


def test_the_last_one_comes_back_older(region: Region) -> None:
    """Each edge's files that it lacks come again out of the archive, also those of one that
    has brought nothing since.
    """
    region.bring(*SHOP)
    region.bring(*SHIP, node="ship")
    region.forwarder.start(0)
    region.run()
    for node, keep in (("shop", 1), ("ship", 0)):
        (region.hub.directories.arrivals / node).unlink()
        for path in region.hub.directories.spool.glob(f"*-{node}_*"):
            path.unlink()
        if keep:
            region.hub.restart()
            [first, *_] = SHOP
            bringing = region.hub.arrivals.bring(Life("shop", A))
            bringing.begin(first.file)
            bringing.write([first.data])
            bringing.finish()
            bringing.close()
    region.lines[-1].cut()
    region.hub.restart()
    more = Sent(10, node="shop")
    region.bring(more)
    region.run(30)
    assert region.hub.files() == as_bytes(*SHOP, more, *SHIP)
    assert region.waiting() == []


def test_a_crash_between_two_renames(region: Region) -> None:
    """The later one of two files of an edge is in the archive, and the earlier one still in
    the spool: a hub that has neither gets them in their order.
    """
    region.bring(*SHOP)
    region.bring(*SHIP[:2], node="ship")
    (region.edge.spool / SHOP[1].name).rename(region.edge.archive / SHOP[1].name)
    region.forwarder.start(0)
    region.run()
    assert region.hub.files() == as_bytes(*SHOP, *SHIP[:2])
    assert region.waiting() == []


def test_a_crash_between_two_renames_of_the_later_life(region: Region) -> None:
    """Whose names sort before those of the earlier one."""
    old = [Sent(1, by=B, node="shop")]
    new = [Sent(first, node="shop") for first in (4, 7)]
    region.bring(*old, life=Life("shop", B))
    region.bring(*new, life=Life("shop", A, (B,)))
    for one in (old[0], new[1]):
        (region.edge.spool / one.name).rename(region.edge.archive / one.name)
    region.forwarder.start(0)
    region.run()
    assert region.hub.files() == as_bytes(*old, *new)
    assert region.waiting() == []


def test_what_an_edge_brought_is_known_no_more(region: Region) -> None:
    """Its record was removed, and an old copy of it has the name since: what its other life
    has left on the way goes over, and keeps no other edge back.
    """
    region.bring(*SHOP, life=Life("shop", A))
    (region.taker.directories.arrivals / "shop").unlink()
    region.taker.restart()
    new = Sent(1, 5, by=B, node="shop", text="new")
    region.bring(new, life=Life("shop", B))
    region.bring(*SHIP, node="ship")
    region.forwarder.start(0)
    region.run(30)
    assert region.hub.files() == as_bytes(*SHOP, new, *SHIP)
    assert region.waiting() == []


def test_the_archive_is_listed_once(region: Region) -> None:
    """Of a thousand edges it is long: after a reconnect all share one listing, and a hub that
    has come back older is brought what it lacks of each.
    """
    edges = {name: files(name) for name in ("shop-2", "shop-3", "shop-4")}
    for name, sent in edges.items():
        region.bring(*sent, node=name)
        for one in sent:
            (region.edge.spool / one.name).rename(region.edge.archive / one.name)
    names, listed = region.disk.names, []

    def counted(directory: Path) -> list[str]:
        listed.append(directory)
        return names(directory)

    region.disk.names = counted  # type: ignore[method-assign]
    region.forwarder.start(0)
    region.run(10)
    assert region.hub.files() == as_bytes(
        *(one for sent in edges.values() for one in sent)
    )
    assert listed.count(region.edge.archive) == 1


def test_the_archive_is_held_as_names(region: Region) -> None:
    """A thousand edges have millions of files there in a day."""
    edges, each = [f"shop-{number}" for number in range(20)], 500
    region.names.update(edges)
    names = [
        file_name(node, A, first, first)
        for node in edges
        for first in range(1, each + 1)
    ]
    region.disk.names = lambda _: names.copy()  # type: ignore[method-assign]
    tracemalloc.start()
    try:
        archived = region.forwarder._files.in_archive()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(map(len, archived.values())) == len(names)
    assert held < 32 * len(names), "beside the names themselves"


def test_a_name_that_begins_as_another(region: Region) -> None:
    """Of a hub that comes back older each of the two gets its own."""
    other = files("shop-2")
    region.bring(*SHOP)
    region.bring(*other, node="shop-2")
    for sent in (*SHOP, *other):
        (region.edge.spool / sent.name).rename(region.edge.archive / sent.name)
    archived = region.forwarder._files.in_archive()
    assert archived["shop"] == [*as_bytes(*SHOP)]
    region.forwarder.start(0)
    region.run(10)
    assert region.hub.files() == as_bytes(*SHOP, *other)


def test_an_edge_begins_anew(region: Region) -> None:
    """What its earlier life left on the way goes over beside that of the present one, though
    that counts from 1 again; the hub knows which goes on with which.
    """
    region.bring(*SHOP[:2])
    region.forwarder.start(0)
    region.run()
    region.away = True
    region.lines[-1].cut()
    region.bring(SHOP[2])
    new = [Sent(101, by=B, node="shop", text="new"), Sent(104, by=B, node="shop")]
    region.bring(*new, life=Life("shop", B, (A,)))
    region.away = False
    region.run(20)
    assert region.hub.files() == as_bytes(*SHOP, *new)
    record = region.hub.arrivals.nodes["shop"]
    assert (record.current, dict(record.last)) == (B, {A: 9, B: 106})


def test_an_edge_begins_anew_while_files_go_over(region: Region) -> None:
    """The hub hears of the new life on the connection that is there."""
    region.bring(*SHOP)
    region.forwarder.start(0)
    region.run()
    new = Sent(1, 5, by=B, node="shop", text="new")
    region.bring(new, life=Life("shop", B))
    region.run()
    assert region.hub.files() == as_bytes(*SHOP, new)
    assert region.hub.arrivals.nodes["shop"].current == B
    assert len(region.lines) == 1


def test_an_edge_begins_anew_with_the_same_lsns(region: Region) -> None:
    """The archive keeps the files of both lives, for a hub that comes back older and for
    whoever reads there.
    """
    old, new = Sent(1, node="shop"), Sent(1, by=B, node="shop", text="new")
    region.bring(old)
    region.forwarder.start(0)
    region.run()
    region.bring(new, life=Life("shop", B))
    region.run()
    assert region.hub.files() == as_bytes(old, new)
    assert region.waiting() == []
    for one in (old, new):
        assert (region.edge.archive / one.name).read_bytes() == one.data
    assert region.forwarder.sent_files == 2


def test_an_edge_begins_anew_while_its_hub_gets_all_again(region: Region) -> None:
    """Out of the archive, with the same lsns: the hub gets the files of both lives, each
    life's in order.
    """
    region.bring(*SHOP)
    region.forwarder.start(0)
    region.run()
    hub = region.hub
    (hub.directories.arrivals / "shop").unlink()
    for one in SHOP:
        (hub.directories.spool / one.name).unlink()
    hub.restart()
    hub.full = "it is full"
    region.lines[-1].cut()
    region.run(20)
    new = Sent(1, by=B, node="shop"), Sent(4, 6, by=B, node="shop")
    region.bring(*new, life=Life("shop", B))
    region.run()
    hub.full = None
    taken: list[bytes] = []
    for _ in range(10):
        region.run(3)
        for name, data in hub.files().items():  # its job takes them
            taken.append(data)
            (hub.directories.spool / name).unlink()
        hub.arrivals.look()
    assert sorted(taken) == sorted(one.data for one in (*SHOP, *new))


def test_a_look_that_misses_a_file_of_an_edge(region: Region) -> None:
    """The one behind it waits for the next look, or the hub would take the missed one for
    there already.
    """
    region.bring(*SHOP)
    names = [one.name for one in SHOP]
    look = region.forwarder._files.in_spool
    for missed in ([names[:1]], [names, names[:1]], [names[1:]]):
        region.disk.missed = missed
        assert look() == []
    assert [one.path.name for one in look()] == names


def test_an_edge_that_the_hub_refuses(region: Region) -> None:
    """As it has that node itself: those of all others go on, and it is said."""
    region.hub.directories.journal_of("shop").mkdir(parents=True)
    region.bring(*SHOP)
    region.bring(*SHIP, node="ship")
    region.forwarder.start(0)
    region.run(50)
    assert region.hub.files() == as_bytes(*SHIP)
    assert region.waiting() == [one.name for one in SHOP]
    hub = region.forwarder.hub
    assert (hub.connected, hub.denied) == (True, True)
    assert "node shop has its journal on this machine" in hub.why
    assert len(region.lines) <= 4
    more = Sent(61, node="ship")
    region.bring(more, node="ship")
    region.run()
    assert more.name in region.hub.files()
    region.hub.directories.journal_of("shop").rmdir()
    region.lines[-1].cut()
    region.run(120)
    assert region.hub.files() == as_bytes(*SHOP, *SHIP, more)
    assert not region.forwarder.hub.denied


def test_an_edge_of_the_archive_that_the_hub_refuses(region: Region) -> None:
    """It is asked for again, and goes on when that is over; when nothing of it is here any
    more, that it was refused is told no longer.
    """
    region.bring(*SHOP)
    region.bring(*SHIP[:1], node="ship")
    for path in region.edge.spool.glob("events-*"):
        path.rename(region.edge.archive / path.name)
    for node in ("shop", "ship"):
        region.hub.directories.journal_of(node).mkdir(parents=True)
    region.forwarder.start(0)
    region.run(30)
    assert region.forwarder.hub.denied
    assert region.hub.files() == {}
    region.hub.directories.journal_of("shop").rmdir()
    (region.edge.archive / SHIP[0].name).unlink()
    region.lines[-1].cut()
    region.run(100)
    assert region.hub.files() == as_bytes(*SHOP)
    assert region.forwarder.hub.denied
    region.run(700)
    hub = region.forwarder.hub
    assert (hub.connected, hub.denied, hub.why) == (True, False, "")


def test_an_edge_that_is_newer_than_the_hub(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub can not read its files, which are sound here: those of all others go on."""
    bring = region.hub.arrivals.bring

    def older(life: Life) -> object:
        if life.node == "shop":
            raise Unwelcome(422, "this gateway is to be upgraded first")
        return bring(life)

    monkeypatch.setattr(region.hub.arrivals, "bring", older)
    region.bring(*SHOP)
    region.bring(*SHIP, node="ship")
    region.forwarder.start(0)
    region.run(30)
    assert region.hub.files().keys() >= as_bytes(*SHIP).keys()
    assert region.waiting() == [one.name for one in SHOP]
    hub = region.forwarder.hub
    assert (hub.connected, hub.refused) == (True, 422)
    monkeypatch.undo()
    region.run(120)
    assert region.hub.files().keys() >= as_bytes(*SHOP, *SHIP).keys()
    assert not region.forwarder.hub.denied


@pytest.mark.parametrize("seed", range(some_of(20, 6)))
def test_lines_that_are_cut_and_kills(tmp_path: Path, seed: int) -> None:
    """Of both lines' ends, while edges bring files: all is at the hub once, and what has left
    the spool on the way was there by then.
    """
    chance = random.Random(seed)
    region = Region(tmp_path)
    region.begin()

    def cuts() -> tuple[float, float]:
        return chance.choice([
            (chance.randrange(20_000), float("inf")),
            (float("inf"), chance.randrange(2_000)),
            (float("inf"), float("inf")),
        ])  # fmt: skip

    region.cuts = iter(cuts, None)  # type: ignore[arg-type]
    region.forwarder.start(0)
    left = {"shop": files("shop", 10), "ship": files("ship", 10)}
    everything = as_bytes(*left["shop"], *left["ship"])
    while any(left.values()):
        node = chance.choice([node for node, some in left.items() if some])
        region.bring(left[node].pop(0), node=node)
        region.run(chance.random() * 4)
        assert {*region.archived()} <= {*region.hub.files()}
        if chance.random() < 0.2:
            for line in region.lines:
                line.cut()
            region.hub.restart()
        if chance.random() < 0.2:
            region.forwarder.stop()
            region.taker.restart()
            region.begin()
            region.forwarder.start(0)
    region.cuts = iter(())
    for line in region.lines:
        line.cut()
    region.run(60)
    assert region.hub.files() == everything
    assert region.waiting() == []
    assert sorted(everything) == region.archived()
