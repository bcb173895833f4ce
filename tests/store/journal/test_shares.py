"""Nobody waits behind a crowd of one address, and nothing is stored in another order."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred

from gateway.event import Batch, Origin, Stored
from gateway.sdk.pressure import Valve
from gateway.store.journal.shares import Shares
from gateway.testing import FakeConnection
from journals import Running

Make = Callable[..., Batch]

_GROUPS = 8
"""What an address that is alone may have in the queue, in commit groups …"""
_BATCHES = 512
"""… of so many batches."""


def origin(number: int, session: str = "s") -> Origin:
    return Origin("plain", "beats", session, f"192.0.2.{number}:9")


def fill(shares: Shares, batch: Batch) -> int:
    """As often as it may be added before its address has its share."""
    count = 0
    while not shares.over(batch.origin):
        shares.add(batch)
        count += 1
    return count


def test_an_address_that_is_alone_has_a_few_groups(make):
    """As much as keeps the disk at work, by their number or by their bytes."""
    assert fill(Shares(), make(b"tiny", of=origin(1))) == _GROUPS * _BATCHES
    one_mib = fill(Shares(), make(bytes(1 << 20), of=origin(1)))
    assert _GROUPS * 4 - 1 <= one_mib <= _GROUPS * 4


def test_several_share_it(make):
    """The more addresses have something in the queue, the less each may have."""
    for others in (1, 3, 15):
        shares = Shares()
        for number in range(others):
            shares.add(make(b"x", of=origin(2 + number)))
        whole = _GROUPS * _BATCHES
        assert fill(shares, make(b"x", of=origin(1))) == whole // (1 + others)


def test_however_many_there_are_each_may_have_some(make):
    """A fleet of small senders is never held back for its size."""
    shares = Shares()
    for number in range(10_000):
        peer = Origin("plain", "beats", "s", f"10.0.{number // 256}.{number % 256}:9")
        shares.add(make(b"x", of=peer))
    assert fill(shares, make(b"x", of=origin(1))) == 4


def test_ports_and_ipv6_networks_are_one_address(make):
    """Nobody gets more by connecting from another port, or another address of its /64."""
    shares = Shares()
    peers = ["192.0.2.1:1", "192.0.2.1:2", "[::ffff:192.0.2.1]:3"]
    first, *others = [Origin("plain", "beats", "s", peer) for peer in peers]
    fill(shares, make(b"x", of=first))
    for other in others:
        there = make(b"x", of=other)
        shares.add(there)
        shares.remove([there])
        assert not shares.over(other), "it has nothing there any more"
        for _ in range(2):
            shares.add(make(b"x", of=other))
        assert shares.over(other)
    fill(shares, make(b"x", of=Origin("plain", "beats", "s", "[2001:db8::1]:1")))
    neighbour = Origin("plain", "beats", "s", "[2001:db8::2]:1")
    for _ in range(2):
        shares.add(make(b"x", of=neighbour))
    assert shares.over(neighbour)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 8191, 8192, 100_000])),
        max_size=60,
    ),
    st.data(),
)
def test_what_is_counted_is_what_waits(submitted, data):
    """Whatever comes and goes in whatever order: in the end nothing is left."""
    shares = Shares()
    model: Counter[str] = Counter()
    there: list[Batch] = []
    for number, size in submitted:
        batch = Batch(origin(number), 0, 1, bytes(size), size)
        shares.add(batch)
        there.append(batch)
        model[batch.origin.address] += 1 + size // 8192
        if data.draw(st.booleans()):
            gone = there.pop(data.draw(st.integers(0, len(there) - 1)))
            shares.remove([gone])
            model[gone.origin.address] -= 1 + len(gone.body) // 8192
        assert shares._waiting == +model
    assert sum(batch.origin.queued for batch in there) == sum(model.values())
    shares.remove(there)
    assert not shares._waiting
    assert not any(batch.origin.queued for batch in there)


class Waiters:
    """Connections of one address that wait until it has less in the queue."""

    def __init__(self, shares: Shares, who: Origin, count: int) -> None:
        self.told: list[int] = []
        self.waiting = [self._ask(shares, who, number) for number in range(count)]

    def _ask(self, shares: Shares, who: Origin, number: int) -> Deferred[None]:
        waiter = shares.when_less(who)
        waiter.addCallbacks(
            lambda _: self.told.append(number), lambda why: why.trap(CancelledError)
        )
        return waiter


def test_as_many_go_on_as_there_is_room_for(make):
    """One for each batch, in the order in which they asked; whoever is gone is not told."""
    shares, batch = Shares(), make(b"x", of=origin(1))
    fill(shares, batch)
    waiters = Waiters(shares, batch.origin, 5)
    assert not shares.wake(all_of_them=False)
    assert not waiters.told
    waiters.waiting[1].cancel()
    for _ in range(2):
        shares.remove([batch])
    assert not shares.wake(all_of_them=False)
    assert waiters.told == [0, 2]


def test_whoever_waits_elsewhere_is_not_looked_at(make):
    """Thousands of addresses that have their share cost nothing when another has less."""
    shares = Shares()
    batches = [make(b"x", of=origin(number)) for number in range(200)]
    for batch in batches:
        fill(shares, batch)
    waiters = [Waiters(shares, batch.origin, 1) for batch in batches]
    looked: list[str] = []

    class Counts(dict[str, int]):
        def get(self, address: str, default: Any = None) -> Any:
            looked.append(address)
            return super().get(address, default)

    shares._waiting = Counts(shares._waiting)
    while shares.over(batches[7].origin):
        shares.remove([batches[7]])
    looked.clear()
    shares.wake(all_of_them=False)
    assert set(looked) == {batches[7].origin.address}
    assert [bool(one.told) for one in waiters].count(True) == 1


def test_nobody_is_left_behind_when_the_queue_is_empty(make):
    """No batch will leave it to tell the others; but not all in one turn."""
    shares, batch = Shares(), make(b"x", of=origin(1))
    count = fill(shares, batch)
    waiters = Waiters(shares, batch.origin, 5000)
    for _ in range(count):
        shares.remove([batch])
    turns = 1
    while shares.wake(all_of_them=False):
        assert len(waiters.told) == 128 * turns
        turns += 1
    assert waiters.told == list(range(5000))
    assert not shares._asked


def test_who_is_told_may_take_what_others_wait_for(make):
    """A connection that ends when it is told withdraws its batches: the next turn."""
    shares = Shares()
    one, other = (make(b"x", of=origin(number)) for number in (1, 2))
    counts = {batch: fill(shares, batch) for batch in (one, other)}
    waiters = Waiters(shares, other.origin, 1)

    def ends(_: None) -> None:
        for _ in range(counts[other]):
            shares.remove([other])

    shares.when_less(one.origin).addCallback(ends)
    for _ in range(counts[one]):
        shares.remove([one])
    assert shares.wake(all_of_them=False)
    assert not waiters.told
    assert not shares.wake(all_of_them=False)
    assert waiters.told


@pytest.fixture
def running(start) -> Running:
    return start(wait=True)


class Flood:
    """A connection that submits whenever it is read, as servers do."""

    def __init__(self, running: Running, make: Make, who: Origin) -> None:
        self.running, self.make = running, make
        self.connection = FakeConnection(protocol="plain", origin=who)
        self.valve = Valve(self.connection, running.journal, 8 << 20, self.regulate)
        self.feeding = True
        self.sent: list[Batch] = []
        self.stored: list[Batch] = []

    def regulate(self) -> None:
        waiting = len(self.sent) - len(self.stored)
        self.valve.regulate(waiting * 4100, feeding=self.feeding)

    def submit(self) -> None:
        """One batch."""
        batch = self.make(b"%d" % len(self.sent), of=self.connection.origin)
        self.sent.append(batch)
        self.running.journal.submit(batch).addCallback(self._stored)
        self.regulate()

    def _stored(self, stored: Stored) -> None:
        self.stored.append(stored.batch)
        self.regulate()

    def flood(self, most: int) -> None:
        """All that it may, or *most* batches."""
        while not self.valve.paused and most > 0:
            self.submit()
            most -= 1


@pytest.mark.parametrize("connections", [1, 3, 20, 200])
def test_an_honest_batch_waits_for_a_few_groups(running, make, connections):
    """However many connections of one address have tiny batches without end: they have as
    much in the queue as two of them could have, and two batches each.
    """
    floods = [
        Flood(running, make, origin(1, f"s-{number}")) for number in range(connections)
    ]
    for flood in floods:
        flood.flood(10_000)
    ahead = sum(len(flood.sent) for flood in floods)
    assert ahead <= _GROUPS * _BATCHES + 2 * connections
    assert all(len(flood.sent) >= 2 for flood in floods), "each may have two"
    honest = Flood(running, make, origin(2))
    honest.submit()
    running.journal.start()
    while not honest.stored:
        running.turns.turn()
        for flood in floods:
            flood.flood(100)
    running.stop()  # the thread has told of all its commits then
    events, groups = 0, 0
    while events <= ahead:  # its own is the next one
        events += running.commits[groups]
        groups += 1
    assert groups <= _GROUPS + 2 * connections // _BATCHES + 1


def test_all_of_a_crowd_is_stored_in_order(running, make):
    """Who was held back goes on; what each connection sent keeps its order, and so does
    the whole: batches become durable as they were submitted.
    """
    running.journal.start()
    order: list[Batch] = []
    submit = running.journal.submit

    def submitted(batch: Batch) -> Any:
        order.append(batch)
        return submit(batch)

    running.journal.submit = submitted  # type: ignore[method-assign]
    floods = [Flood(running, make, origin(n % 3, f"s-{n}")) for n in range(60)]
    held = 0
    while any(len(flood.sent) < 300 for flood in floods):
        for flood in floods:
            flood.flood(300 - len(flood.sent))
        held += sum(flood.valve.paused for flood in floods)
        running.turns.turn()
    running.turns.run(lambda: len(running.durable) == len(order))
    assert held, "nobody was held back: this shows nothing"
    assert running.durable == order
    for flood in floods:
        assert flood.stored == flood.sent
        assert not flood.valve.paused


@pytest.fixture
def crowd(running, make) -> list[Flood]:
    """Three connections of one address: the first two have all that it may have."""
    crowd = [Flood(running, make, origin(1, name)) for name in "abc"]
    for flood in crowd:
        flood.flood(10_000)
    assert len(crowd[2].sent) == 2
    return crowd


def test_a_crowd_that_goes_makes_room(running, crowd):
    """What is withdrawn is in nobody's way, though the disk does nothing."""
    first, _, third = crowd
    assert third.valve.paused
    for batch in first.sent:
        running.journal.withdraw(batch)
    assert not third.valve.paused


def test_the_wait_for_a_file_is_not_that_for_the_disk(start, turns, make):
    """With `ack: spool` who was held back goes on when the queue is shorter, though
    nobody is acknowledged before the file is there.
    """
    running = start(wait=True, acknowledge_when_published=True)
    crowd = [Flood(running, make, origin(1, name)) for name in "abc"]
    for flood in crowd:
        flood.flood(10_000)
    held_back = crowd[2]
    assert held_back.valve.paused
    running.journal.start()
    turns.run(lambda: not held_back.valve.paused)
    assert not held_back.stored


def test_room_that_is_made_by_who_is_woken(start, make):
    """A connection that goes on gives back what was read ahead of it, and with it room:
    whoever waits for some is told at once.
    """
    journal = start(wait=True, memory_bytes=1 << 20).journal
    crowd = [make(b"x", of=origin(1)) for _ in range(400)]
    crowd_of = crowd[0].origin
    for batch in crowd:
        batch.origin = crowd_of
    others = [make(bytes(95_000), of=origin(2)) for _ in range(7)]
    for batch in (*crowd, *others, *(make(b"y", of=origin(n)) for n in range(3, 14))):
        journal.submit(batch)
    journal.reserve(65_536)
    assert journal.over_share(crowd_of)
    assert journal.full
    told: list[str] = []
    journal.when_room().addCallback(lambda _: told.append("room"))

    def goes_on(_: None) -> None:
        told.append("share")
        journal.reserve(-65_536)

    journal.when_share(crowd_of).addCallback(goes_on)
    while "share" not in told:
        journal.withdraw(crowd.pop())
    assert not journal.full
    assert told == ["share", "room"]


def test_what_holds_the_journal_says_who_is_read(running, crowd):
    """While a disk is full no batch leaves the queue: whoever is read even then, as one
    that mostly asks, is not held back for its address.
    """
    first, _, asking = crowd
    asking.feeding = False
    asking.regulate()
    assert asking.valve.paused
    running.journal.hold("commit", "the disk is full")
    assert not asking.valve.paused
    assert first.valve.paused
    running.journal.hold("commit", None)
