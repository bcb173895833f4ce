"""The server on test doubles: hello, tokens, keepalive, draining, goodbye."""

import pytest

from gateway.protocols.rsio import wire
from gateway.protocols.rsio.messages import (
    ClientHello,
    Goodbye,
    GoodbyeAck,
    OnError,
    OnNextPart,
    OnSubscribe,
    Ping,
    Pong,
    Request,
    ServerHello,
    Subscribe,
    SubscribeFrom,
    Token,
)
from gateway.sdk.interfaces import Refusal

from .conftest import HELLO


def test_hello_and_what_it_offers(make_gate):
    """The server answers a hello with its own, and subscribes."""
    gate = make_gate(subscribe=("a", "b"), window=7)
    assert gate.heard() == []
    assert gate.greet() == [
        ServerHello(0, (1, 2, 3, 4, 5, 6, 7, 8)),
        Subscribe("a", 1, 7),
        Subscribe("b", 2, 7),
    ]


def test_a_hello_that_we_have_not_read(gate):
    """It is here: the peer is not late, and has its time for the rest of it."""
    gate.connection.unread_input = True
    gate.clock.pump([5.0] * 9)
    assert not gate.connection.closed
    gate.connection.unread_input = False
    gate.clock.pump([5.0] * 2)
    assert gate.heard() == [Goodbye("no hello")]


def test_the_hello_timer_ends_with_the_hello(gate):
    """… and not before the token, if one is to come."""
    gate.say(HELLO)
    gate.clock.advance(20)
    assert not gate.connection.closed
    gate.connection, _ = gate.connect()
    gate.say(ClientHello(0, (4,)))
    gate.clock.advance(20)
    assert gate.heard()[-1] == Goodbye("no token")


def test_another_language(gate):
    """The refusal names what came."""
    gate.say(b"GET / HTTP/1.1\r\n")
    assert "'G'" in gate.connection.refused.rule


# Tokens


def test_a_token_names_its_holder(make_gate):
    gate = make_gate(tokens={"ann": "s3cret", "bob": "other"})
    gate.say(ClientHello(0, (4,)))
    assert gate.heard() == [ServerHello(0, (1, 2, 3, 4, 5, 6, 7, 8))]
    gate.say(Token("bearer", b"other"))
    assert gate.connection.origin.principal == "bob"
    assert gate.heard() == [Subscribe("events", 1, 1024)]


def test_a_certificate_is_enough(make_gate):
    """A peer that TLS has identified needs no token."""
    gate = make_gate(tokens={"ann": "s3cret"})
    gate.connection.origin.principal = "meter-1"
    assert gate.greet()[-1] == Subscribe("events", 1, 1024)


@pytest.mark.parametrize("name", [b"", b"\xff", b"a\nb", b"x" * 300])
def test_names_that_are_none(gate, name):
    """A name is text that can be shown."""
    gate.say(ClientHello(0, (4,)), Token("name", name))
    assert gate.heard()[-1].reason.startswith("E401")


# Living


def test_silence_is_asked_about(gate):
    """A silent peer is pinged; one that talks is not."""
    gate.say(ClientHello(0, (1,)))
    gate.heard()
    gate.clock.advance(30)
    assert gate.heard() == []  # it has just said hello
    gate.clock.advance(30)
    assert gate.heard() == [Ping(b"")]
    gate.say(Pong(b""))
    gate.clock.advance(30)
    assert gate.heard() == []
    gate.server.received(b"")  # its turn, and nothing of it was read
    gate.clock.advance(30)
    assert gate.heard() == [Ping(b"")]


def test_pings_are_only_for_who_knows_them(gate):
    """Without the extension nothing is sent."""
    gate.greet()
    gate.clock.advance(300)
    assert gate.heard() == []


# Leaving


@pytest.mark.parametrize(
    ("leave", "why"), [("drain", "E503 stopping"), ("aged", "E503 connect again")]
)
def test_drain(gate, leave, why):
    """What was taken is acknowledged; then goodbye; then, answered, the end.  An old
    connection ends in the same way, with another word.
    """
    gate.say(HELLO, OnSubscribe(1, 0), wire.on_next(1, [b"{}"]))
    gate.say(Subscribe("check/never", 5, 1))
    gate.heard()
    getattr(gate.server, leave)()
    assert gate.heard() == [OnError(5, why)]
    gate.say(wire.on_next(1, [b"late"]), Subscribe("check/count?n=1", 6, 1))
    assert gate.heard() == [OnSubscribe(6, 0), OnError(6, why)]
    gate.journal.store_all()
    assert gate.heard() == [Request(1, 1), Goodbye(why)]
    assert len(gate.journal.submitted) == 1
    assert not gate.connection.closed
    gate.say(wire.on_next(1, [b"later"]), Goodbye(""))
    assert gate.connection.closed
    assert gate.heard() == []


def test_drain_without_an_answer(gate):
    """We do not wait for ever."""
    gate.say(HELLO)
    gate.server.drain()
    gate.clock.advance(4.9)
    assert not gate.connection.closed
    gate.clock.advance(0.2)
    assert gate.connection.closed


def test_drain_while_the_journal_is_full(gate):
    """The answer to our goodbye is read all the same."""
    gate.say(HELLO, OnSubscribe(1, 0), wire.on_next(1, [b"{}"]))
    gate.journal.full = True
    gate.say(wire.on_next(1, [b"x" * 300_000]))
    assert gate.connection.paused
    gate.server.drain()
    gate.journal.store_all()
    assert not gate.connection.paused
    gate.say(Goodbye(""))
    assert gate.connection.closed


def test_drain_before_hello(gate):
    """There is nobody to say goodbye to."""
    gate.server.drain()
    assert gate.connection.closed
    assert gate.connection.sent == b""


def test_drain_while_a_sender_waits_for_another(gate):
    """Who has not begun does not begin any more."""
    named = ClientHello(0, (2, 4))
    gate.say(named, Token("name", b"d"), OnSubscribe(1, 0), wire.on_next(1, [b"{}"]))
    gate.connection, gate.server = gate.connect()
    gate.say(named, Token("name", b"d"))
    gate.heard()
    gate.server.drain()
    gate.journal.store_all()
    assert gate.heard() == [Goodbye("E503 stopping")]


def test_the_check_publishers_are_an_option(make_gate):
    """Nobody serves them by accident."""
    gate = make_gate(check_publishers=False)
    gate.say(HELLO, Subscribe("check/never", 1, 1))
    assert gate.heard()[-1].error.startswith("E404")


def test_what_is_published_keeps_a_connection_alive(gate):
    """A subscriber that only listens is not idle while there is something to hear."""
    said: list[bool] = []
    gate.connection.busy = said.append
    gate.say(HELLO, Subscribe("check/slow?n=9", 1, 9))
    said.clear()
    gate.clock.advance(0.1)
    assert said == [False]


@pytest.mark.parametrize("theirs", [Goodbye("my idea, too"), GoodbyeAck("thanks")])
def test_crossing_goodbyes(gate, theirs):
    """Each takes the other's for the answer, in either form."""
    gate.greet()
    gate.server.drain()
    assert gate.heard() == [Goodbye("E503 stopping")]
    gate.say(theirs)
    assert gate.heard() == []
    assert gate.connection.closed


def test_an_offset_that_is_none(gate):
    """It is the offset that is told, and not the demand."""
    gate.say(ClientHello(0, (2,)), SubscribeFrom("check/count?n=5", 9, 1, 2**63))
    assert gate.heard()[-1] == OnError(9, "offset out of range")


def test_a_lost_connection_leaves_nothing(gate):
    """Timers end, sources close, what is on its way to the disk is still stored."""
    gate.say(ClientHello(0, (1,)), OnSubscribe(1, 0), wire.on_next(1, [b"{}"]))
    gate.say(Subscribe("check/slow?n=9", 1, 9))
    gate.journal.take()
    gate.connection.lose()
    gate.journal.store_all()
    gate.clock.advance(100)
    assert not gate.clock.getDelayedCalls()
    assert gate.connection.counted == 1


# Told to let go


WHY = Refusal("too much", key="journal.memory_bytes")


def test_letting_go_acknowledges_what_was_taken(gate):
    """What is unfinished is forgotten; nothing more is taken; then goodbye, with why."""
    gate.say(HELLO, OnSubscribe(1, 0), wire.on_next(1, [b"{}"]))
    gate.say(OnNextPart(1, 1, b"the beginning of"))
    gate.heard()
    assert gate.connection.held_bytes
    gate.server.give_up(WHY)
    assert gate.connection.held_bytes == 0
    assert gate.heard() == []
    assert gate.connection.refused is None
    gate.server.give_up(Refusal("again"))
    gate.server.received(wire.on_next(1, [b"late"]))
    gate.journal.store_all()
    assert gate.heard() == [Request(1, 1), Goodbye("too much")]
    assert gate.connection.refused is WHY
    assert len(gate.journal.submitted) == 1


def test_letting_go_of_who_is_owed_nothing(gate):
    gate.say(HELLO, OnSubscribe(1, 0))
    gate.heard()
    gate.server.give_up(Refusal("too much"))
    assert gate.heard() == [Goodbye("too much")]
    assert gate.connection.closed


@pytest.mark.parametrize(
    ("said", "counts"),
    [
        ((HELLO,), False),
        ((ClientHello(0, (4,)), Subscribe("check/never", 1, 1)), False),
        ((ClientHello(0, (4,)), Token("bearer", b"wrong")), True),
    ],
    ids=["none", "none yet", "wrong"],
)
def test_only_wrong_credentials_are_wrong(make_gate, said, counts):
    """Who brings none is told to, and waits no longer for that each time."""
    gate = make_gate(tokens={"ann": "s3cret"})
    gate.say(*said)
    assert gate.connection.refused.wrong_credentials is counts
