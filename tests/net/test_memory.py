"""What peers make us hold is bounded over all listeners, and whoever holds most pays."""

from collections.abc import Callable
from typing import Any

import pytest

from budgets import Budget, keep
from gateway.net.holding import PROGRESS_SECONDS
from gateway.net.memory import Account, MemoryBudget
from gateway.net.reading import READ_BYTES
from gateway.sdk.interfaces import Refusal, Yielding

MakeNet = Callable[..., Any]


@pytest.fixture
def half(make_net, budget) -> tuple[Any, Any]:
    """A network, and its peer: 60 bytes of the budget are a message it has begun."""
    net = make_net(keep, keywords={"memory": budget.budget})
    peer = net.peer()
    peer.send(bytes(60))
    return net, peer


def test_the_address_that_holds_most_lets_go(budget):
    """It has many small connections; an honest peer with a larger one keeps it."""
    honest = budget.account("honest", "192.0.2.1")
    attack = [budget.account(f"attack-{n}", "198.51.100.7") for n in range(7)]
    honest.hold(30)
    for number, one in enumerate(attack):
        one.hold(8 + number)
        assert budget.held <= 100
    assert budget.gone == ["attack-6"]
    assert honest.size == 30
    assert str(budget.holders[-1].why) == (
        "14 bytes of unfinished input or unread output, of 77 from its address, the most "
        "while all connections together hold too many (journal.memory_bytes)"
    )


def test_of_one_address_the_largest_goes(budget):
    """So that neighbours behind one address do not pay for each other."""
    small = budget.account("small", "192.0.2.1")
    large = budget.account("large", "192.0.2.1")
    large.hold(80)
    small.hold(30)
    assert budget.gone == ["large"]
    assert budget.held == 30


def crowd(budget: Budget) -> list[Account]:
    """Sixty addresses that hold some 400 bytes each; of those, every second one stands."""
    accounts = [budget.account(f"{n}", f"198.51.100.{n}") for n in range(60)]
    for number, one in enumerate(accounts):
        one.hold(400 + number // 2)
        one.stands = number % 2 == 1
    return accounts


def test_of_many_who_hold_little_those_who_stand_go_first(budget):
    """An honest sender does not pay for a crowd because it holds more than each of it."""
    budget.most = 26_000
    crowd(budget)
    honest = budget.account("honest", "192.0.2.1")
    honest.hold(1100)
    assert budget.gone == []
    honest.hold(1200)
    assert budget.gone == ["59"]
    assert str(budget.holders[59].why) == (
        "429 bytes of unfinished input or unread output, of 429 from its address, the most "
        "of those that make no progress while all connections together hold too many "
        "(journal.memory_bytes)"
    )
    for _ in range(29):
        budget.most = budget.held
        honest.hold(honest.size + 1)
    assert sorted(budget.gone) == sorted(map(str, range(1, 60, 2)))
    budget.most = budget.held
    honest.hold(honest.size + 1)
    assert "honest" in budget.gone, "nobody stands: who holds most"


def test_who_holds_much_goes_before_those_who_stand(budget):
    """Who fills the memory as fast as it can does not push the slow out of it."""
    budget.most = 26_000
    crowd(budget)
    budget.account("greedy", "192.0.2.1").hold(4000)
    assert budget.gone == ["greedy"]


def test_what_is_read_ahead_counts_for_its_address(budget):
    """Whoever has much of it lets go first, and of that."""
    greedy = [budget.account(f"greedy-{n}", "198.51.100.7") for n in range(3)]
    honest = budget.account("honest", "192.0.2.1")
    for number, one in enumerate(greedy):
        one.read_ahead(20 + number)
    honest.hold(50)
    assert budget.gone == ["greedy-2"]
    assert budget.held == 20 + 21 + 50
    assert str(budget.holders[2].why).startswith("22 bytes")


def test_one_address_leaves_room_to_read_ahead(budget):
    """However many connections it has, others are read ahead, too."""
    budget.budget = MemoryBudget(budget._reserve, 100)
    greedy = [budget.account(f"greedy-{n}", "198.51.100.7") for n in range(50)]
    for _ in range(50):
        for one in greedy:
            one.take_room(1)
    assert budget.held == 75
    for number in range(3):
        other = budget.account(f"other-{number}", f"192.0.2.{number}")
        assert other.take_room(2)
    assert budget.gone == []


def test_an_ipv6_network_is_one_address(budget):
    """A peer has 2^64 addresses of its own."""
    honest = budget.account("honest", "2001:db8:1::1")
    honest.hold(40)
    for number in range(3):
        budget.account(f"attack-{number}", f"2001:db8:2::{number}").hold(25)
    assert "honest" not in budget.gone
    assert budget.gone


def test_less_is_never_too_much(budget):
    """Nobody goes while memory is given back."""
    one, other = (budget.account(name, "192.0.2.1") for name in ("one", "other"))
    one.hold(50)
    other.hold(50)
    budget.most = 10
    one.hold(40)
    other.hold(0)
    one.hold(0)
    assert budget.gone == []
    assert budget.held == 0


def test_listeners_share_it(make_net, budget):
    """Who holds most at one listener makes room for those at another."""
    one, other = (make_net(keep, keywords={"memory": budget.budget}) for _ in range(2))
    attacker = other.peer("198.51.100.7")
    attacker.send(bytes(90))
    honest = one.peer("192.0.2.1")
    honest.send(bytes(20))
    assert budget.held == 20
    assert attacker.transport.finished
    assert not honest.transport.finished
    assert other.listener.rejected == {"protocol": 1}
    honest.lose()
    attacker.lose()
    assert budget.held == 0


def test_a_server_lets_go_in_its_own_way(half, budget):
    """It may owe answers for what is complete, and refuses after them."""
    net, peer = half
    told: list[str] = []
    net.server.declare(Yielding, give_up=lambda why: told.append(why.key))
    peer.send(bytes(60))
    assert told == ["journal.memory_bytes"]
    assert not peer.transport.finished
    assert budget.held == 0


def test_a_method_of_that_name_is_not_asked(half, budget):
    """A server that does not declare it means something else: it is refused."""
    net, peer = half
    net.server.give_up = None
    peer.send(bytes(60))
    assert peer.transport.finished
    assert budget.held == 0


def test_output_that_nobody_takes_counts(make_net, budget):
    """At once if it is much, else at the next look; whoever takes none is cut off."""
    budget.most = 2 * READ_BYTES
    net = make_net(keywords={"memory": budget.budget})
    quiet = net.peer("192.0.2.1")
    quiet.transport.unsent_bytes = 1000
    net.pass_time(3)
    assert budget.held == 1000
    deaf = net.peer("198.51.100.7")
    deaf.stop_reading()
    assert budget.held == READ_BYTES + 1001
    net.peer("203.0.113.5").send(b"x")
    net.server.connection.hold(READ_BYTES - 10)
    assert deaf.transport.disconnected or deaf.transport.aborting
    assert net.listener.rejected["memory"] == 1
    quiet.transport.unsent_bytes = 0
    quiet.transport.producer.resumeProducing()
    assert budget.held == READ_BYTES - 10


def test_output_that_its_server_keeps_counts(make_net, budget):
    """As what is written does; but nobody waits for more of the peer's bytes."""
    net = make_net(keywords={"memory": budget.budget})
    peer = net.peer()
    peer.connection.hold(0, 60)
    assert budget.held == 60
    net.pass_time(2 * PROGRESS_SECONDS)
    assert not peer.transport.finished
    peer.connection.hold(10, 20)
    assert budget.held == 30
    peer.connection.hold(10, 200)
    assert peer.transport.disconnected or peer.transport.aborting
    assert budget.held == 0


def test_nothing_stays_counted_for_who_is_gone(half, budget):
    """Not even if its server says something afterwards."""
    net, peer = half
    assert budget.held == 60
    peer.lose()
    assert budget.held == 0
    net.server.connection.hold(60)
    assert budget.held == 0


def test_a_message_that_has_begun_must_go_on(make_net, warnings):
    """A byte now and then is no progress: it is refused, with the key."""
    net = make_net(keep)
    peer = net.peer()
    for _ in range(int(PROGRESS_SECONDS) + 5):
        peer.send(b"x")
        net.pass_time(1)
    assert peer.transport.finished
    [line] = warnings()
    assert "no progress, limit 100 bytes/s (limits.minimum_rate)" in line


def test_what_has_begun_is_named_in_its_words(make_net, warnings):
    """The log says which message does not go on, where its server knows."""
    net = make_net(keep)
    peer = net.peer()
    said = "block of writer 17: 100 bytes announced, 60 came"
    net.server.declare(
        Yielding, give_up=net.server.connection.refuse, begun=lambda: said
    )
    peer.send(bytes(60))
    net.pass_time(2 * PROGRESS_SECONDS)
    assert peer.transport.finished
    [line] = warnings()
    assert f"{said}, and no progress, limit 100 bytes/s (limits.minimum_rate)" in line


def test_a_server_that_can_not_say_it(make_net, logged):
    """What it raises is logged as its failure, and its connection ends all the same."""
    net = make_net(keep)
    peer = net.peer()
    broken = {"give_up": net.server.connection.refuse, "begun": lambda: str(1 // 0)}
    net.server.declare(Yielding, **broken)
    peer.send(bytes(60))
    net.pass_time(2 * PROGRESS_SECONDS)
    assert peer.transport.disconnected or peer.transport.aborting
    assert "begun()" in str(logged)


def test_who_trickles_into_much_stands(make_net, budget):
    """At `limits.minimum_rate` it would hold for minutes what it holds, and so would who
    reads nothing: they go before somebody who holds more and is soon done with it.
    """
    budget.most = 1 << 20
    net = make_net(keep, keywords={"memory": budget.budget})
    trickles, honest, deaf = net.peer(), net.peer(), net.peer()
    trickles.send(bytes(5000))
    honest.send(bytes(5000))
    deaf.stop_reading()

    def stand() -> list[bool]:
        return [
            one.connection.holding.account.stands for one in (trickles, honest, deaf)
        ]

    seen = [stand()]
    for _ in range(40):
        trickles.send(bytes(30))
        honest.send(bytes(150))
        net.pass_time(0.25)
        if stand() != seen[-1]:
            seen.append(stand())
    assert not trickles.transport.finished
    assert seen[0] == [False, False, False], "that is not known before"
    assert seen[-1] == [True, False, True]
    trickles.connection.hold(0)
    assert stand() == [False, False, True]


def test_slow_is_not_idle(make_net):
    """What comes at the rate, or comes to an end, may take as long as it likes."""
    net = make_net(keep)
    steady, done = net.peer(), net.peer()
    for _ in range(120):
        steady.send(bytes(110))
        done.send(b"x")
        done.connection.hold(0)
        net.pass_time(1)
    assert not steady.transport.finished
    assert not done.transport.finished


def test_a_peer_that_we_do_not_read_is_not_slow(make_net):
    """It could not be any faster."""
    net = make_net(keep)
    peer = net.peer()
    peer.send(b"x")
    peer.connection.pause()
    net.pass_time(200)
    assert not peer.transport.finished
    peer.connection.resume()
    net.pass_time(PROGRESS_SECONDS / 2)
    assert not peer.transport.finished


def test_any_rate_will_do(make_net):
    """`limits.minimum_rate: 0B`."""
    net = make_net(keep, limits={"minimum_rate": 0})
    peer = net.peer()
    for _ in range(200):
        peer.send(b"x")
        net.pass_time(1)
    assert not peer.transport.finished


def test_the_largest_go_until_it_is_not_too_much(budget):
    """One after the other, if one is not enough."""
    accounts = {name: budget.account(name, f"192.0.2.{name}") for name in "12345"}
    for name, one in accounts.items():
        one.hold(10 + int(name))
    budget.most = 30
    accounts["1"].hold(12)
    assert budget.gone == ["3", "4", "5"]
    assert budget.held == 24


def test_letting_go_may_say_something(budget):
    """Whoever holds a little more on its way out lets go of nobody else for it."""
    first, second = (budget.account(name, name) for name in ("first", "second"))
    second.hold(40)
    first.holder.let_go = lambda why: first.hold(70)  # type: ignore[method-assign]
    first.hold(65)
    assert budget.gone == []
    assert budget.held == 40


def test_an_acknowledgement_in_hand_is_written_first(make_net, budget):
    """A connection that has to let go in the middle of a write does so behind it."""
    budget.most = 3 * READ_BYTES
    net = make_net(keep, keywords={"memory": budget.budget})
    peer = net.peer()
    peer.send(bytes(3 * READ_BYTES))
    peer.transport.write = lambda data, write=peer.transport.write: (
        write(data),
        peer.stop_reading(),
    )
    net.server.connection.write(b"acknowledged")
    assert not peer.transport.finished
    net.clock.advance(0)
    assert peer.got() == b"acknowledged"
    assert peer.transport.finished


def test_a_write_that_fails_does_not_keep_it_from_letting_go(half):
    """Nor does it try for ever: once the connection is lost, all is let go."""
    net, peer = half

    def write(data: bytes) -> None:
        raise OSError("unwritable")

    peer.transport.write = write
    with pytest.raises(OSError, match="unwritable"):
        net.server.connection.write(b"acknowledged")
    peer.connection.ending.let_go(Refusal("too much"))
    assert peer.transport.finished

    peer.connection.output.writing = True
    peer.lose()
    before = len(net.clock.getDelayedCalls())
    peer.connection.ending.let_go(Refusal("too much"))
    assert len(net.clock.getDelayedCalls()) == before


def test_who_has_to_let_go_is_told_of_at_once(half, warnings):
    """Not when its server has answered all, which a full disk may put off; and once."""
    net, peer = half
    refusals: list[Refusal] = []
    net.server.declare(Yielding, give_up=refusals.append)
    peer.send(bytes(60))
    assert len(warnings()) == 1
    assert net.listener.rejected == {"protocol": 1}
    net.server.connection.refuse(refusals[0])
    assert peer.transport.finished
    assert len(warnings()) == 1
    assert net.listener.rejected == {"protocol": 1}
