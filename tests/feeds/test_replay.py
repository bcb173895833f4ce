"""Every event from a given one on, wherever it lies at that moment."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from gateway.event import Origin
from gateway.sdk.publisher import Fault
from gateway.store.journal import segment

UNBOUNDED = 2**63 - 1


def test_from_the_first_event_on_then_live(world):
    """Archive, spool, sealed and open journal, then what comes: each lsn once."""
    world.commit(3, 2)
    world.seal()
    world.publish()
    world.remove()
    world.archive()
    world.commit(4)
    world.seal()
    world.publish()
    world.remove()
    world.commit(1, 0, 2)
    world.seal()
    world.commit(3)
    reader = world.subscribe("events")
    reader.want(UNBOUNDED)
    world.settle()
    assert reader.lsns == list(range(1, 16))
    world.commit(2)
    world.settle()
    assert reader.lsns == list(range(1, 18))
    assert reader.events[0]["payload"] == {"n": 1}


def test_live_events_are_not_read_from_disk(world, ambush):
    """Who is up to date follows the ring."""
    reader = world.subscribe("events")
    reader.want(UNBOUNDED)
    world.settle()
    ambush.append(lambda: pytest.fail("looked for a file"))
    for count in (1, 5, 2):
        world.commit(count)
        world.settle()
    assert reader.lsns == list(range(1, 9))


@pytest.mark.parametrize("shape", ["json", "arrow"])
def test_between_two_lsns(world, shape):
    """`from` and `to` are both included, in the midst of batches too; then it ends."""
    world.commit(5, 5)
    world.seal()
    world.publish()
    world.remove()
    world.commit(5, 5)
    for first, last in ((1, 1), (3, 8), (9, 12), (12, 18), (20, 20)):
        reader = world.subscribe(f"events?from={first}&to={last}&format={shape}")
        reader.want(UNBOUNDED)
        world.settle()
        assert reader.lsns == list(range(first, last + 1))
        assert reader.ended


def test_to_an_event_that_is_still_to_come(world):
    """It waits for it, and ends there."""
    world.commit(2)
    reader = world.subscribe("events?to=5")
    reader.want(UNBOUNDED)
    world.settle()
    assert reader.lsns == [1, 2]
    world.commit(2)
    world.settle()
    assert reader.lsns == [1, 2, 3, 4]
    world.commit(4)
    world.settle()
    assert reader.lsns == [1, 2, 3, 4, 5]
    assert reader.ended


@pytest.mark.parametrize("shape", ["json", "arrow"])
def test_filters(world, shape):
    """Only what was asked for, from files, journal and ring alike."""
    world.commit(4, 3, 2)
    world.seal()
    world.publish()
    world.remove()
    world.commit(4, 3, 2)
    query = f"events?protocol=good&channel=odd&format={shape}"
    reader = world.subscribe(query)
    reader.want(UNBOUNDED)
    world.settle()
    world.commit(4, 3, 2)
    world.settle()
    everything = world.subscribe("events?format=" + shape)
    everything.want(UNBOUNDED)
    world.settle()
    wanted = [
        event["lsn"]
        for event in everything.events
        if event["protocol"] == "good" and event["lsn"] % 2
    ]
    assert reader.lsns == wanted != []
    assert everything.lsns == list(range(1, 28))


def test_nothing_is_read_without_demand(world):
    """Who does not ask costs nothing, and gets no more than asked for."""
    world.commit(10)
    reader = world.subscribe("events")
    reader.take()
    assert not world.threads.waiting
    reader.want(3)
    world.settle()
    assert reader.lsns == [1, 2, 3]
    reader.want(4)
    assert reader.lsns == [1, 2, 3, 4, 5, 6, 7]


def test_replays_leave_threads_to_others(world):
    """However many there are, two are read at a time, each in its turn."""
    world.commit(5)
    readers = [world.subscribe("events") for _ in range(6)]
    for reader in readers:
        reader.want(UNBOUNDED)
    assert len(world.threads.waiting) == 2
    readers[3].close()
    world.settle()
    for reader in (*readers[:3], *readers[4:]):
        assert reader.lsns == [1, 2, 3, 4, 5]
    assert readers[3].lsns == []


def test_what_expired(world):
    """An event that is in no file any more: 410, with the first that is."""
    world.commit(3)
    world.seal()
    world.publish()
    world.remove()
    world.commit(4)
    world.archive()
    world.expire()
    reader = world.subscribe("events?from=2")
    reader.want(1)
    world.settle()
    assert reader.error == "E410 lsn 2 is not there any more; the oldest is 4"
    oldest = world.subscribe("events")
    oldest.want(UNBOUNDED)
    world.settle()
    assert oldest.lsns == [4, 5, 6, 7]


def test_a_file_expires_between_two_helpings(world):
    """What was asked for too late is told, and not left out."""
    for _ in range(2):
        world.commit(3)
        world.seal()
        world.publish()
        world.remove()
        world.archive()
    reader = world.subscribe("events")
    reader.want(3)
    world.settle()
    world.expire()
    world.expire()
    world.commit(1)
    reader.want(1)
    world.settle()
    assert reader.lsns == [1, 2, 3]
    assert reader.error == "E410 lsn 4 is not there any more; the oldest is 7"


def test_files_move_while_they_are_looked_for(world, ambush):
    """Published, removed, archived between two looks: it is found all the same."""
    world.commit(3)
    world.seal()
    ambush += [world.publish, world.remove, world.archive]
    reader = world.subscribe("events?from=2")
    reader.want(UNBOUNDED)
    world.settle()
    assert reader.lsns == [2, 3]


def test_a_hole_is_passed_over(world):
    """What the journal's disk does not give back is not there, in the journal and once it is
    in the record; only offsets, which count events, do not go over it.
    """
    world.live.lineage = world.lineage
    world.commit(2)
    world.commit(3)
    world.commit(2)
    world.seal()
    [sealed] = world.sealed
    data = bytearray(sealed.path.read_bytes())
    spoilt = [each.lsn for each in segment.Scan(bytes(data))]
    assert spoilt == [1, 3, 6]
    at = data.index(bytes([0x93, 3, 4, 5]))
    data[at] ^= 0xFF
    sealed.path.write_bytes(data)
    reader = world.subscribe("events?from=2")
    reader.want(UNBOUNDED)
    world.settle()
    assert reader.lsns == [2, 6, 7]
    world.publish()
    world.remove()
    for query, lsns in (("from=2", [2, 6, 7]), ("from=4", [6, 7]), ("to=4", [1, 2])):
        again = world.subscribe(f"events?{query}")
        again.want(UNBOUNDED)
        world.settle()
        assert again.lsns == lsns
    assert world.subscribe("events", offset=2).source.lsn == 3
    with pytest.raises(Fault, match="say from=LSN"):
        world.subscribe("events", offset=3)


def test_a_tail_that_was_written_again(world):
    """What stands behind a failed sync is not an event: the later segment counts."""
    world.commit(2)
    stale = world.log.growing
    chunks = stale.encoder.batch(world.commit(3, tell=False)[0].batch, 6, stale.bytes)
    world.log._abandon(stale)
    [left] = world.log.abandoned()
    with left.path.open("ab") as file:
        file.writelines(chunks)
    world.sealed.append(left)
    world.commit(2)
    world.commit(2)
    reader = world.subscribe("events")
    reader.want(UNBOUNDED)
    world.settle()
    assert reader.lsns == list(range(1, 10))
    assert [event["payload"]["n"] for event in reader.events] == reader.lsns


def test_offsets(world):
    """An offset counts events from `from` on; where it can not, that is said."""
    world.commit(9)
    for name, first in (("events", 5), ("events?from=3", 7)):
        reader = world.subscribe(name, 4)
        reader.want(UNBOUNDED)
        world.settle()
        assert reader.lsns == list(range(first, 10))
    for query in ("channel=odd", "format=arrow"):
        with pytest.raises(Fault, match=r"^E416 "):
            world.subscribe(f"events?{query}", 4)


@pytest.mark.parametrize(
    ("query", "number"),
    [
        ("from=0", 400),
        ("from=-1", 400),
        ("from=x", 400),
        ("from=99999999999999999999", 400),
        ("to=", 400),
        ("form=1", 400),
        ("format=csv", 400),
        ("node=elsewhere", 404),
        ("from=7", 416),
    ],
)
def test_what_can_not_be_had(world, query, number):
    """A wrong query is refused at once."""
    world.commit(5)
    with pytest.raises(Fault, match=rf"^E{number} "):
        world.subscribe(f"events?{query}")


def test_so_many_at_a_time(world):
    """Reading has a limit, and a place is free again when its reader goes."""
    clients = [Origin("rsio", "r", "s", f"192.0.2.{n}:{n}") for n in range(5)]
    readers = [world.subscribe("events", origin=clients[n % 4]) for n in range(64)]
    with pytest.raises(Fault, match=r"^E429 more than 64 subscriptions"):
        world.subscribe("events", origin=clients[4])
    readers[0].close()
    world.subscribe("events", origin=clients[4])


def test_so_many_of_one_client(world):
    """One that takes all it can leaves places to others, whoever it says it is."""
    readers = [world.subscribe("events") for _ in range(16)]
    for port in (1, 2):
        origin = Origin("rsio", "r", f"s{port}", f"192.0.2.9:{port}")
        with pytest.raises(Fault, match=r"^E429 more than 16 .* of one client"):
            world.subscribe("events", origin=origin)
    proved = Origin("rsio", "r", "s", "192.0.2.9:1", "ann")
    world.subscribe("events", origin=proved)
    readers[0].close()
    world.subscribe("events")
    assert world.replay.subscribers == 17


def test_a_replay_that_can_not_follow(world):
    """It reads what there is; then it is told, rather than wait for ever."""
    world.commit(5)
    clients = [Origin("rsio", "r", "s", f"192.0.2.{n}:{n}") for n in range(4)]
    taps = [
        world.subscribe(f"tap?channel={n}", origin=clients[n % 4]) for n in range(64)
    ]
    reader = world.subscribe("events?from=1&channel=other")
    reader.want(UNBOUNDED)
    world.settle()
    assert (reader.error or "").startswith("E429 more than 64 different queries")
    taps[0].close()
    reader = world.subscribe("events?from=1&channel=other")
    reader.want(UNBOUNDED)
    world.settle()
    assert reader.error is None


def test_from_the_latest(world):
    """`from=latest` begins with the next event."""
    world.commit(5)
    reader = world.subscribe("events?from=latest")
    reader.want(UNBOUNDED)
    world.settle()
    world.commit(2)
    world.settle()
    assert reader.lsns == [6, 7]


def test_closing_while_it_is_read(world):
    """Nothing is left of a subscriber that goes while a thread reads for it."""
    world.commit(5)
    reader = world.subscribe("events")
    reader.want(UNBOUNDED)
    reader.close()
    world.settle()
    assert reader.elements == []
    assert world.live.subscribers == 0
    assert world.live.held_bytes == 0


def test_a_slow_reader_goes_back_to_the_files(make_world):
    """Who loses the ring loses no event, and the ring does not grow."""
    world = make_world(ring_bytes=4000)
    slow = world.subscribe("events")
    quick = world.subscribe("events")
    quick.want(UNBOUNDED)
    slow.want(1)
    for round_ in range(60):
        world.commit(5)
        world.settle()
        assert world.live.held_bytes <= 4000
        if round_ % 4 == 0:
            slow.want(3)
            world.settle()
    assert quick.lsns == list(range(1, 301))
    slow.want(UNBOUNDED)
    world.settle()
    assert slow.lsns == list(range(1, 301))


def test_the_ring_has_news_while_a_file_is_read(world):
    """What both have is given once."""
    first = world.subscribe("events?from=latest")
    first.want(1)
    group = world.commit(1, tell=False)
    second = world.subscribe("events?from=1")
    second.want(5)
    world.live.durable(group)
    world.threads.run(-1)
    assert second.elements == []
    world.settle()
    assert second.lsns == [1]


def test_the_end_of_the_gateway(world):
    """When the daemon stops, a stream ends with an error and not as if complete."""
    reader = world.subscribe("events")
    reader.want(5)
    world.settle()
    world.live.stop()
    assert reader.error == "E503 stopping"


WORLD = st.sampled_from(["seal", "publish", "remove", "archive", "expire"])
STEP = st.one_of(
    st.tuples(st.just("commit"), st.lists(st.integers(0, 6), min_size=1, max_size=4)),
    st.tuples(st.just("told late"), st.integers(1, 4)),
    st.tuples(WORLD, st.none()),
    st.tuples(st.just("ambush"), st.lists(WORLD, min_size=1, max_size=4)),
    st.tuples(st.just("thread"), st.integers(0, 5)),
    st.tuples(st.just("pause"), st.none()),
    st.tuples(
        st.just("subscribe"),
        st.tuples(
            st.sampled_from(["events", "tap"]),
            st.sampled_from(["json", "arrow"]),
            st.integers(0, 30),
        ),
    ),
    st.tuples(st.just("want"), st.tuples(st.integers(0, 9), st.integers(1, 40))),
    st.tuples(st.just("close"), st.integers(0, 9)),
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(STEP, max_size=60),
    st.integers(300, 6000),
    st.sampled_from([1500, 6000, 20_000]),
)
def test_whatever_happens(make_world, ambush, steps, ring_bytes, pending_bytes):
    """Events arrive, files move and expire, subscribers come, dawdle and go.

    Who reads `events` gets every lsn from its first on, each once and in order, or is
    told that one is gone which is.  Who taps gets them in order, and every lsn that is
    missing is in a gap.
    """
    ambush.clear()
    world = make_world(ring_bytes=ring_bytes, pending_bytes=pending_bytes)
    subscribers: list[Any] = []
    for what, how in steps:
        if what == "commit":
            world.commit(*how)
        elif what == "told late":
            group = world.commit(how, tell=False)
            subscribers.append(world.subscribe("events?from=latest"))
            subscribers[-1].name = f"events?from={world.durable_lsn + 1}"
            subscribers[-1].want(how)
            world.live.durable(group)
        elif what == "ambush":
            ambush += [getattr(world, each) for each in how]
        elif what == "thread":
            world.threads.run(how)
        elif what == "subscribe":
            kind, shape, first = how
            query = f"{kind}?format={shape}"
            if kind == "events" and first:
                query += f"&from={min(first, world.durable_lsn + 1)}"
            new = world.subscribe(query)
            new.begins = world.durable_lsn + 1
            subscribers.append(new)
        elif what == "want" and subscribers:
            which, more = how
            subscribers[which % len(subscribers)].want(more)
        elif what == "close" and subscribers:
            subscribers.pop(how % len(subscribers)).close()
        elif how is None:
            getattr(world, what)()
        assert sum(ring.bytes for ring in world.live._rings.values()) <= ring_bytes
    for each in subscribers:
        each.want(UNBOUNDED)
    world.settle()
    for each in subscribers:
        check(world, each)


def check(world: Any, subscriber: Any) -> None:
    """What one got is what it should have got."""
    lsns, last = subscriber.lsns, world.durable_lsn
    if subscriber.name.startswith("tap"):
        expected = subscriber.begins
        for event in subscriber.events:
            first, end = (
                (event["gap"]["from"], event["gap"]["to"])
                if "gap" in event
                else (event["lsn"], event["lsn"])
            )
            assert first == expected, "neither given nor in a gap"
            expected = end + 1
        assert expected == last + 1
        return
    query = dict(
        pair.split("=") for pair in subscriber.name.partition("?")[2].split("&")
    )
    if lsns:
        assert lsns == list(range(lsns[0], lsns[0] + len(lsns)))
        assert lsns[0] == int(query.get("from", lsns[0]))
    if subscriber.error is None:
        assert not lsns or lsns[-1] == last
        assert (
            lsns
            or int(query.get("from", last + 1)) == last + 1
            or world_is_empty(world)
        )
    else:
        assert subscriber.error.startswith("E410 ")
        wanted = lsns[-1] + 1 if lsns else int(query["from"])
        names = [path.name for path in world.journal.glob("*.journal")]
        journalled = [
            parsed[0] for name in names if (parsed := segment.parse_name(name))
        ]
        assert wanted < min(journalled, default=last + 1)


def world_is_empty(world: Any) -> bool:
    """No event is anywhere."""
    there = [*world.directories.spool.iterdir(), *world.directories.archive.iterdir()]
    return not there and not list(world.journal.glob("*.journal"))
