"""Why a connection is not read, and who reads on while memory is tight."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgets import Budget, keep
from gateway.net.holding import PROGRESS_SECONDS
from gateway.net.memory import MemoryBudget
from gateway.net.read_ahead import ReadAhead
from gateway.net.reading import READ_BYTES, Input, Unread
from gateway.sdk.interfaces import Refusal

MakeNet = Callable[..., Any]


KiB, MiB = 1 << 10, 1 << 20


class Sender:
    """One that has a message of *size* bytes to send, of which nothing was read."""

    def __init__(self, budget: Budget, number: int, host: str, size: int = 0) -> None:
        self.account = budget.account(f"{number}", host)
        self.left = size
        self.waits = False

    def read(self, most: int = READ_BYTES) -> int:
        """Read what may be, as the network does; 0: it has to wait."""
        room = self.account.room(self._again)
        size = min(most, self.left, room)
        self.waits = not room
        if size:
            self.left -= size
            self.account.hold(self.account.size + size)
        return size

    def _again(self) -> None:
        self.waits = False

    def finish(self) -> None:
        """What it held is durable."""
        self.account.served()
        self.account.hold(0)


def senders(budget: Budget, count: int, held: int, hosts: int = 1) -> list[Sender]:
    """Each holds so much, and has as much to send again."""
    made = []
    for number in range(count):
        sender = Sender(budget, number, f"198.51.100.{number % hosts}", 2 * held)
        sender.account.hold(held)
        sender.left -= held
        made.append(sender)
    return made


@pytest.fixture
def large() -> Budget:
    return Budget(64 * MiB)


def test_everybody_reads_while_there_is_plenty(large):
    """The less is left, the less at a time."""
    reads = [sender.read() for sender in senders(large, 40, MiB)]
    assert not large.budget.tight
    assert 24 * MiB // 144 == reads[0] > reads[-1] > 16 * MiB // 144


@pytest.mark.parametrize("hosts", [1, 50])
def test_when_it_is_tight_those_go_on_that_began_first(large, hosts):
    """As many as the 14 MiB that are left will do for; the others when there is room."""
    made = senders(large, 50, MiB, hosts)
    assert large.budget.tight
    goes_on = [bool(sender.read()) for sender in reversed(made)][::-1]
    first = goes_on.index(False)
    assert goes_on == [True] * first + [False] * (50 - first)
    assert 13 <= first <= 15
    for sender in made[:20]:
        sender.finish()
    assert not any(sender.waits for sender in made)


def test_who_was_served_goes_last(large):
    made = senders(large, 50, MiB)
    made[0].account.hold(2 * MiB)
    made[0].account.served()
    made[0].account.hold(MiB)
    assert [bool(sender.read()) for sender in (made[0], *made[1:3])] == [
        False,
        True,
        True,
    ]


def test_all_have_their_turn_while_it_stays_tight(large):
    """Senders that begin a message with the end of the last: none of them waits for good."""
    made = senders(large, 50, MiB)
    served = dict.fromkeys(range(50), 0)
    for _ in range(400):
        for number, sender in enumerate(made):
            sender.left = max(sender.left, 1)
            if not sender.waits and sender.read(1):
                sender.account.served()
                served[number] += 1
    assert large.budget.tight
    assert min(served.values()) > 50


def test_those_of_other_addresses_read_on(large):
    """While the memory is full of somebody's, of whom a few go on."""
    greedy = senders(large, 50, MiB)
    honest = Sender(large, 99, "192.0.2.1", MiB)
    while honest.left:
        assert honest.read()
    assert [bool(sender.read()) for sender in greedy].count(True) < 30
    assert large.gone == []


def test_who_holds_nothing_is_heard(large):
    """A little of it is read, for it may be a short message; but of the last eighth
    nothing is for those who begin.
    """
    made = senders(large, 55, MiB, 55)
    new = Sender(large, 99, "192.0.2.1", MiB)
    assert new.read() == 4 * KiB
    for sender in made[:3]:
        sender.account.hold(3 * MiB)
    assert Sender(large, 98, "192.0.2.2", MiB).read() == 0


def test_who_begins_has_its_turn(large):
    """While all that is left is for senders who never hold nothing."""
    made = senders(large, 55, MiB, 55)
    for sender in made[:3]:
        sender.account.hold(3 * MiB)
    new = Sender(large, 99, "192.0.2.2", MiB)
    assert not new.read()
    for _ in range(3):
        for sender in made:
            sender.left = 1
            if not sender.waits and sender.read():
                sender.account.served()
    assert not new.waits
    assert new.read() == 4 * KiB
    assert large.gone == []


@pytest.mark.parametrize("hosts", [1, 6])
def test_who_begins_does_not_wait_for_those_who_stand(large, hosts):
    """Peers that hold all there is, and send a byte now and then: those let go."""
    standing = senders(large, 6, 64 * MiB // 6, hosts)
    for sender in standing:
        sender.account.stands = True
    new = Sender(large, 99, "192.0.2.2", MiB)
    new.read()
    large.budget.look()
    assert not new.waits
    while new.left:
        assert new.read()
    assert large.gone
    assert "99" not in large.gone


def test_what_others_give_back_is_seen(large):
    """What has no connection holds memory, too, and nobody tells when it is free."""
    made = senders(large, 4, MiB)
    large.held += 60 * MiB
    assert not made[3].read()
    large.held -= 60 * MiB
    assert made[3].waits
    large.budget.look()
    assert not made[3].waits
    assert not large.budget.tight


def test_who_is_gone_is_not_told(large):
    made = senders(large, 50, MiB)
    assert not made[-1].read()
    made[-1].account.hold(0)
    made[-1].account.forget()
    for sender in made[:-1]:
        sender.finish()
    assert made[-1].waits


@pytest.fixture
def late(make_net, budget) -> tuple[Any, list[Any]]:
    """A network whose memory is tight, and its peers: the last has to wait."""
    budget.most = 1000
    net = make_net(keep, keywords={"memory": budget.budget})
    peers = [net.peer(f"192.0.2.{n}") for n in range(8)]
    for number, peer in enumerate(peers):
        assert peer.connection.input.room()
        peer.send(bytes(110 if number < 7 else 120))
    assert peers[0].connection.input.room()
    return net, peers


def test_who_has_to_wait_is_not_read(late):
    """Until there is room; and nobody blames it for the time."""
    net, peers = late
    *others, last = peers
    assert last.connection.input.room() == 0
    assert last.transport.producerState == "paused"
    for tenths in range(100):
        net.listener.looks.look(
            last.connection, net.clock.seconds() + tenths * PROGRESS_SECONDS / 10
        )
    assert not last.transport.finished
    for other in others:
        other.connection.hold(0)
    assert last.transport.producerState == "producing"
    assert last.connection.input.room() > 0


def test_who_may_not_begin_has_its_turn_when_there_is_room(late):
    """Its server is asked to go on with no bytes, as for any other turn."""
    net, peers = late
    *others, last = peers
    server = net.servers[-1]
    assert not last.connection.may_begin()
    assert last.transport.producerState == "paused"
    server.chunks.clear()
    net.clock.advance(0)
    assert server.chunks == []
    for other in others:
        other.connection.hold(0)
    net.clock.advance(0)
    assert server.chunks == [b""]
    assert last.connection.may_begin()
    assert last.transport.producerState == "producing"


def test_the_server_of_who_waits_is_asked_again_and_again(late):
    """So that it can tell its peer, or its own timers, that nothing is wrong."""
    net, (*_, last) = late
    server = net.servers[-1]
    server.chunks.clear()
    net.listener.looks.look(last.connection, net.clock.seconds())
    assert server.chunks == []
    assert last.connection.input.room() == 0
    assert last.connection.waits_for_room
    net.listener.looks.look(last.connection, net.clock.seconds())
    net.listener.looks.look(last.connection, net.clock.seconds())
    assert server.chunks == [b"", b""]
    last.connection.pause()
    net.listener.looks.look(last.connection, net.clock.seconds())
    assert server.chunks == [b"", b""]


def test_who_is_asked_again_may_begin_after_all(late, budget):
    """Others gave back what it waits for, and nobody has told it."""
    net, (*_, last) = late
    server = net.servers[-1]
    assert not last.connection.may_begin()
    budget.most += 2000
    began = []

    def begin(connection: Any, _: bytes) -> None:
        began.append(connection.may_begin())
        if len(began) == 1:
            connection.again()

    server.act = begin
    net.listener.looks.look(last.connection, net.clock.seconds())
    assert began == [True]
    assert last.transport.producerState == "paused"
    net.clock.advance(0)
    assert began == [True, True]
    assert last.transport.producerState == "producing"


def test_those_who_wait_are_looked_at_every_few_seconds(late, budget):
    """The journal may have given back what they wait for, and tells nobody."""
    net, (*_, last) = late
    assert last.connection.input.room() == 0
    budget.most += 2000
    assert last.connection.waits_for_room
    net.listener.start_timers()
    net.clock.advance(5)
    assert not last.connection.waits_for_room
    assert last.transport.producerState == "producing"


def test_whose_events_became_durable_goes_last(late):
    """Its connection counts them."""
    _, (first, *_) = late
    account = first.connection.holding.account
    place = account.place
    first.connection.count(events=1)
    assert account.place > place


@pytest.mark.parametrize("lost", [False, True])
def test_who_waits_and_ends_waits_no_more(late, budget, *, lost):
    """Refused, or gone."""
    _, (*others, last) = late
    assert last.connection.input.room() == 0
    assert budget.budget.waiting == 1
    if lost:
        last.lose()
    else:
        last.connection.refuse(Refusal("no more"))
    assert budget.budget.waiting == 0
    for other in others:
        other.connection.hold(0)
    assert last.connection.input.room() > 0


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_senders_that_go_on_are_never_let_go(data):
    """However many they are, from however many addresses, and whoever is read when: all
    together send many times what may be held, each as much as an eighth of it, and each
    message arrives.
    """
    budget = Budget(16 * MiB)
    chance = data.draw(st.randoms(use_true_random=False))
    count = data.draw(st.integers(1, 200))
    hosts = data.draw(st.integers(1, 200))
    messages = data.draw(st.integers(1, 2))
    sizes = [chance.randint(1, 2 * MiB) for _ in range(count)]
    made = [
        Sender(budget, n, f"10.0.{n % hosts}.1", size) for n, size in enumerate(sizes)
    ]
    todo = dict.fromkeys(range(count), messages)
    while todo:
        ready = [number for number in todo if not made[number].waits]
        assert ready, "somebody reads on"
        for number in chance.sample(ready, len(ready)):
            sender = made[number]
            sender.read()
            assert budget.held <= budget.most
            if not sender.left:
                sender.finish()
                sender.left = sizes[number]
                todo[number] -= 1
                if not todo[number]:
                    del todo[number]
    assert budget.gone == []
    assert budget.held == 0


REASONS = {
    name: reason
    for name, reason in vars(Unread).items()
    if isinstance(reason, int) and reason.bit_count() == 1
}


def with_room() -> ReadAhead:
    """There is room to read ahead."""
    budget = MemoryBudget(lambda _: True)
    ahead = ReadAhead(budget.account(None, "192.0.2.1"), 1 << 20)  # type: ignore[arg-type]
    assert ahead.take_room()
    return ahead


def test_it_is_read_without_a_reason_against_it():
    """At first there is none, and no two are the same."""
    assert Input().is_read()
    assert len(set(REASONS.values())) == len(REASONS) == 10


@pytest.mark.parametrize("name", REASONS)
def test_each_reason_is_enough(name):
    """And when it is gone, the connection is read again."""
    input_ = Input()
    input_.unread |= REASONS[name]
    assert not input_.is_read()
    input_.unread &= ~REASONS[name]
    assert input_.is_read()


@pytest.mark.parametrize("name", sorted(REASONS.keys() - {"PAUSED", "AHEAD"}))
def test_what_is_paused_is_read_ahead_unless_there_is_another_reason(name):
    """Then the room that it had goes back, for others."""
    input_, ahead = Input(), with_room()
    input_.unread |= Unread.PAUSED
    input_.keep(ahead)
    assert input_.is_read()
    input_.unread |= REASONS[name]
    assert not input_.is_read()
    assert not ahead.has_room
    input_.unread &= ~REASONS[name]
    assert not input_.is_read()


def test_what_was_read_ahead_is_delivered_before_more_is_read():
    """The server goes on: first what waits, then the end behind it, if there was one."""
    input_ = Input()
    input_.keep(with_room())
    input_.unread |= Unread.END
    assert not input_.is_read()
    assert input_.delivered()
    assert input_.is_read()
    input_.keep(with_room())
    assert not input_.delivered()
