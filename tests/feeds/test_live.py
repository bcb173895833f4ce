"""Events as they become durable: shared, bounded, and lossy only for who is slow."""

from itertools import compress, product, repeat
from typing import Any

import msgspec
import pytest

from gateway.event import Origin, Rows, client_of
from gateway.feeds import columns, encoding
from gateway.feeds.query import Query
from gateway.protocols.rsio import wire
from gateway.sdk.publisher import Fault

UNBOUNDED = 2**63 - 1


def test_nobody_looks(world):
    """Without a subscriber nothing is kept, decoded or put on a thread."""
    world.commit(5)
    world.subscribe("tap").close()
    world.commit(5)
    assert not world.threads.waiting
    assert not world.clock.getDelayedCalls()
    assert world.live.held_bytes == 0


def test_from_now_on(world):
    """A tap begins with what becomes durable after it, in order, metadata aside."""
    world.commit(3)
    tap = world.subscribe("tap")
    tap.want(UNBOUNDED)
    world.commit(2, 0, 1)
    world.tell(2)
    assert tap.lsns == [4, 5, 6, 7, 8]
    assert tap.gaps == []


def test_one_element_for_all(world):
    """Subscribers with the same query share the very same bytes, messages too."""
    one, two = (world.subscribe("tap?protocol=good") for _ in range(2))
    found: list[Any] = []
    for each in (one, two):
        each.demand = UNBOUNDED
        take = each.source.take
        each.source.take = lambda most, take=take: kept(found, take(most))
    world.tell(3, 3, 3)
    assert one.lsns == two.lsns != []
    encoded = [elements.encoded(1, wire.on_next) for elements in found if elements]
    assert len(encoded) == 2
    assert encoded[0] is encoded[1]


def kept(found: list[Any], elements: Any) -> Any:
    found.append(elements)
    return elements


def test_decoded_once(world, monkeypatch):
    """However many queries there are, a batch is decoded once, or not at all."""
    decoded: list[Any] = []
    decode = world.live.decoders["good"]
    counting = {"good": lambda body: kept(decoded, decode(body))}
    monkeypatch.setattr(world.live, "decoders", counting)
    for query in ("protocol=good", "protocol=good&format=arrow", "listener=one"):
        world.subscribe(f"tap?{query}").want(UNBOUNDED)
    group = world.commit(2, 2, 2, 2)
    world.settle()
    good = [stored for stored in group if stored.batch.origin.protocol == "good"]
    assert len(decoded) == len(good) < len(group)


@pytest.mark.parametrize("shape", ["json", "arrow"])
def test_filters(world, shape):
    """Only what was asked for, row by row where a batch has several channels."""
    taps = {
        query: world.subscribe(f"tap?{query}&format={shape}")
        for query in ("channel=odd", "protocol=other", "listener=one&kind=request")
    }
    for tap in taps.values():
        tap.want(UNBOUNDED)
    world.tell(4, 3, 5)
    odd, other, none = taps.values()
    assert odd.lsns == [1, 3, 5, 7, 9, 11]
    assert other.lsns
    assert {event["principal"] for event in other.events} == {"somebody"}
    assert none.lsns == []


@pytest.mark.parametrize("shape", ["json", "arrow"])
def test_a_slow_tap(make_world, shape):
    """It is told what it missed and goes on with what is new; nobody else notices."""
    world = make_world(ring_bytes=30_000)
    slow, quick = (world.subscribe(f"tap?format={shape}") for _ in range(2))
    quick.want(UNBOUNDED)
    slow.want(1)
    for _ in range(50):
        world.tell(10)
        assert world.live.held_bytes <= 30_000
    slow.want(1)
    world.tell(1)
    slow.follow()
    assert quick.lsns == list(range(1, 502))
    assert quick.gaps == []
    [(first, last)] = slow.gaps
    assert slow.lsns == [*range(1, first), *range(last + 1, 502)]
    assert last == 500
    assert world.live.skipped == last - first + 1


def test_who_stands_still_costs_the_quick_of_the_same_query_nothing(make_world):
    """Also where it came first, and has not taken what was there before the others came."""
    world = make_world(ring_bytes=30_000)
    idle = world.subscribe("tap")
    world.tell(2)
    quick = world.subscribe("tap")
    quick.want(UNBOUNDED)
    for _ in range(50):
        world.tell(10)
        assert world.live.held_bytes <= 30_000
    assert (quick.lsns, quick.gaps) == (list(range(3, 503)), [])
    idle.want(UNBOUNDED)
    assert idle.gaps == [(1, 502)]


def test_room_is_made_where_only_the_first_of_two_stands_still(make_world):
    """For another query, whose elements are few beside what the two share."""
    world = make_world(ring_bytes=30_000)
    good, other = (
        Origin(name, "one", "s", "192.0.2.1:1") for name in ("good", "other")
    )
    world.origins = repeat(good)
    idle = world.subscribe("tap?protocol=good")
    world.tell(2)
    quick = world.subscribe("tap?protocol=good")
    quick.want(UNBOUNDED)
    world.tell(25)
    last = world.subscribe("tap?protocol=other")
    last.want(UNBOUNDED)
    world.origins = repeat(other)
    world.tell(26)
    assert world.live.held_bytes <= 30_000
    assert (quick.lsns, last.lsns) == (list(range(3, 28)), list(range(28, 54)))
    idle.want(UNBOUNDED)
    assert idle.gaps == [(1, 53)]


def test_many_who_are_quick_lose_nothing(make_world):
    """However much there is at once for the queries that they have."""
    world = make_world()
    world.origins = repeat(Origin("good", "one", "s", "192.0.2.1:1"))
    said = ("protocol=good", "listener=one", "kind=data")
    queries = ["&".join(compress(said, which)) for which in product((0, 1), repeat=3)]
    taps = [world.subscribe(f"tap?{query}") for query in queries]
    for tap in taps:
        tap.want(UNBOUNDED)
    world.tell(*[500] * 8)
    assert [len(tap.elements) for tap in taps] == [4000] * 8


def test_one_that_left_out_nothing_it_wanted_goes_on(make_world):
    """What was before it began it may lose, and is not told; what is new it gets."""
    world = make_world(ring_bytes=10_000)
    other = world.subscribe("tap")
    other.want(1)
    for _ in range(6):
        world.commit(10)
    tap = world.subscribe("tap")
    world.settle()
    tap.want(UNBOUNDED)
    for _ in range(3):
        world.tell(2)
    assert (tap.lsns, tap.gaps) == ([61, 62, 63, 64, 65, 66], [])


@pytest.mark.parametrize("name", ["tap", "events?from=latest"])
def test_what_is_missing_behind_what_is_from_before_it_began(make_world, name):
    """A tap is told of it, and `events` has it from the files."""
    world = make_world(ring_bytes=10_000, pending_bytes=4_000)
    world.subscribe("tap").want(1)
    for _ in range(3):
        world.commit(5)
    late = world.subscribe(name)
    late.want(1)
    late.demand = 0  # nothing leaves its connection for a while
    world.settle()
    for _ in range(20):
        world.tell(5)
    late.follow()
    told = [lsn for first, last in late.gaps for lsn in range(first, last + 1)]
    assert [*told, *late.lsns] == list(range(16, 116))
    assert bool(told) == (name == "tap")


def test_a_journal_that_is_too_quick(make_world):
    """What can not be decoded in time is skipped, and told; memory stays bounded."""
    world = make_world(pending_bytes=40_000)
    tap = world.subscribe("tap")
    tap.want(UNBOUNDED)
    for _ in range(100):
        world.commit(10)
        assert world.live.held_bytes <= 40_000
    world.settle()
    missing = [lsn for first, last in tap.gaps for lsn in range(first, last + 1)]
    assert missing
    assert sorted(missing + tap.lsns) == list(range(1, 1001))
    assert tap.lsns[-1] == 1000


def test_arrow_has_no_more_than_its_events(world):
    """Of many elements each has its own events' columns, and nothing of the others'; they
    are of about one size.
    """
    world.origins = repeat(Origin("good", "one", "s", "192.0.2.1:1"))
    tap = world.subscribe("tap?format=arrow")
    tap.want(UNBOUNDED)
    world.tell(20_000)
    rows = [columns.read(element).num_rows for element in tap.elements]
    assert sum(rows) == 20_000
    assert len(rows) > 3
    assert min(rows) > max(rows) // 2
    assert sum(map(len, tap.elements)) < 20_000 * (100 + len(b'{"n": 1234}'))


@pytest.mark.parametrize("demand", [0, 1, 40])
def test_nothing_is_made_of_what_is_left_out(make_world, monkeypatch, demand):
    """Of all that a subscriber does not take little is decoded, however much comes; it is
    told at once when it comes back, and goes on with what is new.
    """
    world = make_world(ring_bytes=80_000, pending_bytes=5_000)
    made: list[Any] = []
    for name, decode in list(world.live.decoders.items()):
        counting = lambda body, decode=decode: kept(made, decode(body))  # noqa: E731
        monkeypatch.setitem(world.live.decoders, name, counting)
    tap = world.subscribe("tap")
    tap.want(demand)
    for _ in range(500):
        world.tell(10)
        assert world.live.held_bytes <= 85_000
    assert len(made) < 10
    tap.want(UNBOUNDED)
    assert tap.gaps
    world.settle()
    [(first, last)] = tap.gaps
    assert tap.lsns == [*range(1, first), *range(last + 1, 5001)]
    assert first <= 100
    assert 4900 <= last < 5000
    assert len(made) < 20


def test_one_that_takes_nothing_costs_others_nothing(make_world, monkeypatch):
    """Nothing is made for its query any more, when its share of memory is full."""
    world = make_world(ring_bytes=80_000)
    queries: list[str] = []
    encode = encoding.of_batches

    def counting(node: str, batches: Any, query: Query, given_by: Any) -> Any:
        queries.append(query.format)
        return encode(node, batches, query, given_by)

    monkeypatch.setattr(encoding, "of_batches", counting)
    quick, idle = world.subscribe("tap"), world.subscribe("tap?format=arrow")
    quick.want(UNBOUNDED)
    for _ in range(500):
        world.tell(10)
    assert queries.count("json") == 500
    assert queries.count("arrow") < 100
    assert quick.lsns == list(range(1, 5001))
    idle.want(UNBOUNDED)
    world.tell(10)
    [(first, last)] = idle.gaps
    assert (first, last) == (1, 5000)
    assert idle.lsns == quick.lsns[-10:]


@pytest.mark.parametrize("shape", ["json", "arrow"])
@pytest.mark.parametrize("broken", ["raises", "too few", "no text"])
def test_a_broken_decoder_breaks_nobody_else(world, monkeypatch, broken, shape):
    """Its events are shown as the spool stores them, and those of others as ever: live,
    and read back from the journal."""

    def decode(body: bytes) -> Rows:
        if broken == "raises":
            raise RuntimeError("a bug")
        count = msgspec.msgpack.decode(body)
        return Rows(count[1:] if broken == "too few" else [b""] * 3, channel="\ud800")

    monkeypatch.setitem(world.live.decoders, "other", decode)
    tap = world.subscribe(f"tap?format={shape}")
    good = world.subscribe(f"tap?protocol=good&format={shape}")
    for each in (tap, good):
        each.want(UNBOUNDED)
    world.tell(3, 3, 3)
    events = world.follow(f"events?from=1&to=9&format={shape}")
    for reader in (tap, events):
        assert reader.lsns == list(range(1, 10))
        flaws = [event.get("flaw") for event in reader.events]
        assert flaws == [None] * 6 + ["undecodable"] * 3
        if (broken, shape) == ("raises", "json"):
            assert "payload_base64" in reader.events[6]
    assert good.lsns == list(range(1, 7))
    assert good.gaps == tap.gaps == []


def test_a_client_takes_its_share_of_queries(world):
    """… and leaves the others theirs; the same query as another's is free."""
    mine = [world.subscribe(f"tap?channel={number}") for number in range(16)]
    with pytest.raises(Fault, match=r"^E429 more than 16 .* of one client"):
        world.subscribe("tap?channel=16")
    other = Origin("rsio", "r", "s", "192.0.2.8:7")
    shared = world.subscribe("tap?channel=16", origin=other)
    world.subscribe("tap?channel=16")
    mine[0].close()
    world.subscribe("tap?channel=17")
    shared.close()
    with pytest.raises(Fault, match=r"^E429 "):
        world.subscribe("tap?channel=18")


@pytest.mark.parametrize(
    ("peer", "principal", "client"),
    [
        ("192.0.2.1:4000", None, "192.0.2.1"),
        ("192.0.2.1:4000", "ann", "name ann"),
        ("[2001:db8::1:2]:4000", None, "2001:db8::/64"),
        ("[::ffff:192.0.2.1]:1", None, "192.0.2.1"),
        ("[fe80::1%eth0]:1", None, "fe80::/64"),
        ("unix:uid=1000,pid=7", None, "unix:uid=1000"),
        ("", None, ""),
        ("strange:1", None, "strange"),
        ("strange", None, "strange"),
    ],
)
def test_who_is_one_client(peer, principal, client):
    """Who it proved to be, or else where it is."""
    assert client_of(Origin("rsio", "r", "s", peer, principal)) == client


@pytest.mark.parametrize(
    ("query", "offset", "number"),
    [("from=1", None, 400), ("format=xml", None, 400), ("", 3, 416)],
)
def test_what_a_tap_can_not_do(world, query, offset, number):
    """A key that means nothing, and an offset, are refused."""
    with pytest.raises(Fault, match=rf"^E{number} "):
        world.subscribe(f"tap?{query}", offset)


def test_the_end_of_the_gateway(world):
    """When the daemon stops, taps end, and no more begin."""
    tap = world.subscribe("tap")
    world.live.stop()
    assert tap.error == "E503 stopping"
    with pytest.raises(Fault, match=r"^E503 "):
        world.subscribe("tap")
