"""Every event from a given one on, wherever it lies at that moment, and whose position that is."""

import json
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from gateway.event import Origin
from gateway.feeds import columns
from gateway.sdk.publisher import Fault
from gateway.store.journal import segment
from gateway.store.node.incarnation import KEY, Incarnation
from incarnations import A, B

UNBOUNDED = 2**63 - 1


def test_from_the_first_event_on_then_live(world):
    """Archive, spool, sealed and open journal, then what comes: each lsn once."""
    world.commit(3, 2)
    world.to_spool()
    world.archive()
    world.commit(4)
    world.to_spool()
    world.commit(1, 0, 2)
    world.seal()
    world.commit(3)
    reader = world.follow("events")
    assert reader.lsns == list(range(1, 16))
    world.tell(2)
    assert reader.lsns == list(range(1, 18))
    assert reader.events[0]["payload"] == {"n": 1}


def test_live_events_are_not_read_from_disk(world, ambush):
    """Who is up to date follows the ring."""
    reader = world.follow("events")
    ambush.append(lambda: pytest.fail("looked for a file"))
    for count in (1, 5, 2):
        world.tell(count)
    assert reader.lsns == list(range(1, 9))


@pytest.mark.parametrize("shape", ["json", "arrow"])
def test_between_two_lsns(world, shape):
    """`from` and `to` are both included, in the midst of batches too; then it ends."""
    world.commit(5, 5)
    world.to_spool()
    world.commit(5, 5)
    for first, last in ((1, 1), (3, 8), (9, 12), (12, 18), (20, 20)):
        reader = world.follow(f"events?from={first}&to={last}&format={shape}")
        assert reader.lsns == list(range(first, last + 1))
        assert reader.ended


def test_to_an_event_that_is_still_to_come(world):
    """It waits for it, and ends there."""
    world.commit(2)
    reader = world.follow("events?to=5")
    assert reader.lsns == [1, 2]
    world.tell(2)
    assert reader.lsns == [1, 2, 3, 4]
    world.tell(4)
    assert reader.lsns == [1, 2, 3, 4, 5]
    assert reader.ended


@pytest.mark.parametrize("shape", ["json", "arrow"])
def test_filters(world, shape):
    """Only what was asked for, from files, journal and ring alike."""
    world.commit(4, 3, 2)
    world.to_spool()
    world.commit(4, 3, 2)
    query = f"events?protocol=good&channel=odd&format={shape}"
    reader = world.follow(query)
    world.tell(4, 3, 2)
    everything = world.follow("events?format=" + shape)
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
    world.to_spool()
    world.commit(4)
    world.archive()
    world.expire()
    reader = world.subscribe("events?from=2")
    reader.want(1)
    world.settle()
    assert reader.error == "E410 lsn 2 is not there any more; the oldest is 4"
    oldest = world.follow("events")
    assert oldest.lsns == [4, 5, 6, 7]


def test_a_file_expires_between_two_helpings(world):
    """What was asked for too late is told, and not left out."""
    for _ in range(2):
        world.commit(3)
        world.to_spool()
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
    reader = world.follow("events?from=2")
    assert reader.lsns == [2, 3]


def test_a_hole_is_passed_over(world):
    """What the journal's disk does not give back is a hole when the publisher has said so:
    before that it is an error, and a reader that tries again gets all that the disk gives back
    by then.  Only offsets, which count events, do not go over a hole.
    """
    world.live.lineage = world.lineage
    world.commit(2)
    world.commit(3)
    world.commit(2)
    world.seal()
    [sealed] = world.sealed
    whole = sealed.path.read_bytes()
    spoilt = [each.lsn for each in segment.Scan(whole)]
    assert spoilt == [1, 3, 6]
    data = bytearray(whole)
    data[data.index(bytes([0x93, 3, 4, 5]))] ^= 0xFF
    sealed.path.write_bytes(data)
    for disk, lsns, error in (
        (data, [2], "E500 the events can not be read"),
        (whole, [2, 3, 4, 5, 6, 7], None),
        (data, [2], "E500 the events can not be read"),
    ):
        sealed.path.write_bytes(disk)
        world.replay.files.forget()
        reader = world.follow("events?from=2")
        assert (reader.lsns, reader.error) == (lsns, error)
    world.publish()
    world.remove()
    for query, lsns in (("from=2", [2, 6, 7]), ("from=4", [6, 7]), ("to=4", [1, 2])):
        again = world.follow(f"events?{query}")
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
    reader = world.follow("events")
    assert reader.lsns == list(range(1, 10))
    assert [event["payload"]["n"] for event in reader.events] == reader.lsns


def test_offsets(world):
    """An offset counts events from `from` on; where it can not, that is said."""
    world.commit(9)
    for name, first in (("events", 5), ("events?from=3", 7)):
        reader = world.follow(name, 4)
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
    reader = world.follow("events?from=1&channel=other")
    assert (reader.error or "").startswith("E429 more than 64 different queries")
    world.subscribe("tap?channel=7", origin=clients[0])  # one that is there is free
    taps[0].close()
    reader = world.follow("events?from=1&channel=other")
    assert reader.error is None


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
        world.tell(5)
        assert world.live.held_bytes <= 4000
        if round_ % 4 == 0:
            slow.want(3)
            world.settle()
    assert quick.lsns == list(range(1, 301))
    slow.follow()
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


C = "c" * 10


@pytest.fixture
def moved(make_world) -> Any:
    """A node of three incarnations: lsns 1 to 3 in a file, 4 to 6 and 7 on in the journal."""
    own = Incarnation(C, 7, 0, (A, B), begins=(1, 4))
    world = make_world(lineage=SimpleNamespace(now=own, holes={}))
    world.log.incarnation = A
    world.commit(3)
    world.to_spool(keep=True)
    world.log.incarnation = B
    world.commit(3)
    world.seal()
    world.log.incarnation = C
    world.commit(3)
    return world


@pytest.mark.parametrize("shape", ["json", "arrow"])
def test_events_say_which_incarnation_gave_them(moved, shape):
    """From files, of the journal and live."""
    reader = moved.subscribe(f"events?format={shape}")
    tap = moved.subscribe(f"tap?format={shape}")
    for one in (reader, tap):
        one.want(UNBOUNDED)
    moved.settle()
    moved.commit(1)
    moved.settle()
    given: dict[int, str] = {}
    for element in [*reader.elements, *tap.elements]:
        if shape == "json":
            event = json.loads(element)
            assert [*event][:3] == ["node", "incarnation", "lsn"]
            given[event["lsn"]] = event["incarnation"]
            continue
        batch = columns.read(element)
        for lsn in batch.column("lsn").to_pylist():
            given[lsn] = batch.schema.metadata[KEY].decode()
    assert [given[lsn] for lsn in range(1, 11)] == [A] * 3 + [B] * 3 + [C] * 4


@pytest.mark.parametrize(
    ("incarnation", "first"), [(A, 1), (A, 4), (B, 4), (B, 7), (C, 8), (C, 10)]
)
def test_a_position_says_whose_lsn_it_is(moved, incarnation, first):
    """It goes on with what was given behind that, by whoever goes on."""
    reader = moved.subscribe(f"events?incarnation={incarnation}&from={first}")
    reader.want(UNBOUNDED)
    moved.settle()
    assert reader.lsns == list(range(first, 10))


@pytest.mark.parametrize(
    ("query", "number", "told"),
    [
        ("incarnation=f00d&from=5", 409, ["f00d", f"{C} since lsn 7", "from=1 "]),
        (f"incarnation={A}&from=5", 409, ["lsn 4", A, C, "up to 3", "from=4"]),
        (f"incarnation={B}&from=3", 409, ["lsn 2", B, "from 4 on", "from=7"]),
        (f"incarnation={C}&from=5", 409, ["lsn 4", "from 7 on", "from=7"]),
        (f"incarnation={C}", 400, ["from=LSN"]),
        (f"incarnation={C}&from=earliest", 400, ["from=LSN"]),
        (f"incarnation={C}&from=11", 416, ["still to come"]),
    ],
)
def test_a_position_that_is_not_ours_is_refused(moved, query, number, told):
    """Never other events under the same number: both incarnations are named, and from
    where to go on."""
    with pytest.raises(Fault) as caught:
        moved.subscribe(f"events?{query}")
    assert caught.value.number == number
    for words in told:
        assert words in caught.value.text


def test_an_offset_is_a_position_too(moved):
    """As extension 2 counts, from lsn 1 on."""
    with pytest.raises(Fault, match="E409"):
        moved.subscribe(f"events?incarnation={A}", offset=5)
    reader = moved.subscribe(f"events?incarnation={A}", offset=3)
    reader.want(UNBOUNDED)
    moved.settle()
    assert reader.lsns == list(range(4, 10))


def test_without_an_incarnation_all_is_as_before(world):
    """Whoever does not know of them, on either side."""
    world.commit(3)
    reader = world.follow("events?from=2")
    assert reader.lsns == [2, 3]
    assert "incarnation" not in reader.events[0]
    world.subscribe("events?from=2&incarnation=f00d")
