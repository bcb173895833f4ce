"""How much a connection, and a user, may send; what becomes of more."""

import json
import zlib
from typing import Any

import pytest

from doubles import FakeAgent
from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.options import Rate as RateOptions
from gateway.protocols.pomelo.options import Rates
from gateway.protocols.pomelo.rates import Bucket, Buckets, Rate, Verdict, judge

from .conftest import zipped

OK = b'{"code":200}'
TOO_MANY = b'{"code":429,"msg":"too many messages"}'
KICK = wire.kick(
    "too many messages, limit 10 messages a second (options.rates.connection)"
)
TEN = Rate(10, None, 2.0, "options.rates.connection")


def ask(first: int, count: int = 1) -> bytes:
    """Requests."""
    return b"".join(wire.request(first + n, "a", b"{}") for n in range(count))


def rates(burst: float = 2.0, **of: int) -> dict[str, Any]:
    """Options: ten messages a second of a connection, unless it says something else."""
    which = of or {"connection": 10}
    found = {name: RateOptions(messages=count) for name, count in which.items()}
    return {"rates": Rates(**found, burst=f"{burst}s"), "heartbeat": 0}


# Buckets


def test_a_burst_and_then_the_rate():
    """Twenty at once, then ten a second, whenever they come."""
    bucket, taken = Bucket(TEN), 0
    for tenth in range(300):
        now = 1000 + tenth / 10
        for _ in range(3):
            if not bucket.is_empty(now):
                bucket.take(now, 1, 100)
                taken += 1
    assert taken == 20 + 299


def test_more_than_a_burst_at_once():
    """… is taken whole, and paid back."""
    bucket = Bucket(TEN)
    bucket.take(1000, 100, 0)
    assert bucket.is_empty(1007.9)
    assert not bucket.is_empty(1008.1)
    assert not bucket.is_full(1009.9)
    assert bucket.is_full(1010)


@pytest.mark.parametrize(("per_second", "kicked"), [(19, False), (40, True)])
def test_who_goes_on(per_second, kicked):
    """Up to twice the rate only what is too much is refused; beyond that he must go."""
    bucket, found = Bucket(TEN), set()
    for n in range(per_second * 30):
        verdict, rate = judge([bucket], 1000 + n / per_second, 1, 0)
        assert (rate is None) == (verdict is Verdict.TAKEN)
        found.add(verdict)
    assert Verdict.REFUSED in found
    assert (Verdict.KICKED in found) is kicked


def test_bytes_count_for_themselves():
    """A few large messages are as much as many small ones."""
    bucket = Bucket(Rate(1000, 100, 1.0, ""))
    assert judge([bucket], 1000, 1, 150)[0] is Verdict.TAKEN
    assert judge([bucket], 1000.4, 1, 1)[0] is Verdict.REFUSED
    assert judge([bucket], 1000.6, 1, 1)[0] is Verdict.TAKEN


def test_what_comes_late_because_it_was_not_read():
    """A pause is made up for, once: no more is taken than a burst and the rate's worth."""
    for pauses in ([(1000, 1030)], [(1000, 1010), (1011, 1030)]):
        bucket, taken = Bucket(TEN), 0
        bucket.take(1000, 20, 0)
        for since, until in pauses:
            bucket.unread(since, until)
        while not bucket.is_empty(1030):
            bucket.take(1030, 1, 0)
            taken += 1
        assert taken == 300
        bucket.unread(1040, 1041)
        assert bucket.is_full(1050)
        for _ in range(20):
            bucket.take(1050, 1, 0)
        assert bucket.is_empty(1050)


def test_what_is_refused_costs_nobody_else():
    """A message that one bucket refuses is not taken from another."""
    full, empty = Bucket(TEN), Bucket(TEN)
    empty.take(1000, 20, 0)
    assert judge([full, empty], 1000, 5, 0) == (Verdict.REFUSED, TEN)
    assert full.is_full(1000)


def test_ten_thousand_users():
    """Those who have sent nothing of late are forgotten; there is an end to the others."""
    users = Buckets(TEN, most=5000)
    for n in range(20_000):
        users.of(f"u{n}", 1000 + n / 1000).take(1000 + n / 1000, 1, 0)
        assert len(users) <= 1024
    for n in range(20_000):
        users.of(f"u{n}", 1100).take(1100, 20, 0)
        assert len(users) <= 5000
    assert users.of("u19999", 1100).is_empty(1100)


# Connections


def test_requests_that_are_too_many(make_reader):
    """They are answered 429 at once, and not stored; later ones are."""
    reader = make_reader(**rates())
    reader.greet()
    reader.deliver(ask(1, 20))
    reader.deliver(ask(100, 2))
    assert reader.sent == wire.response(100, TOO_MANY) + wire.response(101, TOO_MANY)
    reader.connection.clear()
    reader.clock.advance(0.2)
    reader.deliver(ask(102))
    reader.journal.store_all()
    assert reader.sent.count(OK) == 21
    assert sum(batch.count for batch in reader.journal.submitted) == 21
    assert (reader.listener.rates.too_many, reader.listener.rates.kicked) == (2, 0)
    assert not reader.connection.closed


def test_a_notify_that_is_too_many(make_reader):
    """It has no answer, and later answers would speak for it: its client is kicked."""
    reader = make_reader(**rates())
    reader.greet()
    reader.deliver(ask(1, 20))
    reader.deliver(wire.notify("a", b"{}") + ask(30))
    reader.journal.store_all()
    assert reader.sent.count(OK) == 20
    assert reader.sent.endswith(KICK)
    assert reader.connection.refused.key == "options.rates.connection"
    assert reader.connection.refused.limit == "10 messages a second"
    assert reader.listener.rates.kicked == 1


def test_a_client_that_goes_on_is_kicked(make_reader):
    """What it was owed is answered first, and it costs one line of the log."""
    reader = make_reader(**rates())
    reader.greet()
    for number in range(100):
        reader.deliver(ask(number + 1))
    reader.journal.store_all()
    assert reader.sent.count(OK) == 20
    assert reader.sent.count(TOO_MANY) == 21
    assert reader.sent.endswith(KICK)
    assert reader.connection.closed


def test_a_user_with_many_connections(make_reader, pomelo):
    """… has one rate for all of them, also after he has connected again."""
    reader = make_reader(**rates(uid=10))

    def come() -> Any:
        connection, _ = reader.connect()
        connection.deliver(pomelo.hello(user={"uid": "alice"}))
        connection.clear()
        return connection

    first, second = come(), come()
    first.deliver(ask(1, 12))
    second.deliver(ask(1, 12))
    first.lose()
    third = come()
    for connection in (second, third):
        connection.deliver(ask(50))
        assert connection.sent == wire.response(50, TOO_MANY)
    other, _ = reader.connect()
    other.deliver(pomelo.hello(user={"uid": "bob"}) + ask(1))
    reader.journal.store_all()
    assert other.sent.count(OK) == 1


def test_who_only_claims_to_be_a_user(make_reader, pomelo):
    """… can not use up what that user may send."""
    reader = make_reader(trust_uid=False, **rates(uid=1, connection=100))
    mallory, _ = reader.connect()
    mallory.deliver(pomelo.hello(user={"uid": "alice"}) + ask(1, 100))
    mallory.deliver(ask(200, 50))
    assert len(reader.listener.rates.users) == 0
    assert TOO_MANY not in mallory.sent


@pytest.mark.parametrize("of", ["connection", "uid"])
def test_a_full_journal_costs_nobody_his_rate(make_reader, pomelo, of):
    """What a client sent in time, and the gateway did not read, is taken when it does."""
    reader = make_reader(**rates(**{of: 10}))
    reader.greet(user={"uid": "alice"})
    reader.deliver(ask(1, 20))
    reader.journal.full = True
    reader.deliver(wire.package(wire.HEARTBEAT))
    assert reader.connection.paused
    reader.clock.advance(60)
    reader.journal.store_all()
    reader.journal.full = False
    for number in range(30):
        reader.deliver(ask(100 + 20 * number, 20))
    reader.journal.store_all()
    assert reader.sent.count(OK) == 620
    reader.connection.clear()
    reader.deliver(ask(1000))
    assert reader.sent == wire.response(1000, TOO_MANY)


def test_compressed_messages(make_reader):
    """They count as many bytes as they inflate to."""
    limits = Rates(connection=RateOptions(bytes="10KiB"), burst="2s")
    reader = make_reader(rates=limits, heartbeat=0)
    reader.greet()
    body = zlib.compress(b'"' + b"x" * 30_000 + b'"')
    reader.deliver(zipped(wire.request(1, "a", body)))
    reader.connection.clear()
    reader.deliver(zipped(wire.request(1, "a", body)))
    assert reader.sent == wire.response(1, TOO_MANY)


def test_over_websocket_and_to_pitaya(make_reader, pomelo):
    """Each answer is a message of its own; pitaya's clients get its code."""
    reader = make_reader(**rates())
    connection, _ = reader.connect(framed=True)
    connection.deliver(pomelo.hello({"platform": "mac", "libVersion": "1"}))
    connection.deliver(ask(1, 20))
    connection.clear()
    connection.deliver(ask(30, 2))
    assert len(connection.written) == 2
    assert b'{"code":"PIT-429","msg":"too many messages"}' in connection.written[0]


# Sessions


SESSIONS = {"rates": Rates(sessions=2, burst="5s"), "heartbeat": 0}
NO_SESSION = b'{"code":500,"msg":"too many sessions of one address"}'


def _begins(reader: Any, pomelo: Any, peer: str) -> bool:
    """Whether one more client from there gets a session."""
    connection, _ = reader.connect()
    connection.origin.peer = peer
    connection.deliver(pomelo.hello())
    if connection.refused is None:
        connection.lose()
        return True
    assert connection.closed
    assert connection.sent == wire.package(wire.HANDSHAKE, NO_SESSION)
    assert connection.refused.key == "options.rates.sessions"
    assert connection.refused.limit == "2 sessions a second"
    return False


def test_who_connects_again_and_again(make_reader, pomelo):
    """Ten at once and then two a second of an address get a session, and write its rows;
    who gets none is told why, and leaves no row.
    """
    reader = make_reader(session_events=True, **SESSIONS)
    begun = [_begins(reader, pomelo, f"198.51.100.7:{n}") for n in range(100)]
    assert begun == [True] * 10 + [False] * 90
    assert reader.listener.rates.turned_away == 90
    told = [json.loads(event[3])["event"] for event in reader.events()]
    assert told == ["opened", "closed"] * 10
    reader.wait(10)
    begun = [_begins(reader, pomelo, "198.51.100.7:1") for _ in range(100)]
    assert sum(begun) == 10


def test_addresses_count_apart(make_reader, pomelo):
    """One that is over its rate takes nothing from others; a /64 is one address."""
    reader = make_reader(**SESSIONS)
    while _begins(reader, pomelo, "198.51.100.7:1"):
        pass
    while _begins(reader, pomelo, "[2001:db8::1]:1"):
        pass
    assert not _begins(reader, pomelo, "[2001:db8::ffff:2]:1")
    assert _begins(reader, pomelo, "[2001:db8:0:1::1]:1")
    assert _begins(reader, pomelo, "198.51.100.8:1")


def test_nobody_is_asked_about_who_is_turned_away(make_reader, pomelo):
    """A service that authenticates hears of those only who may begin a session."""
    reader = make_reader(authenticate="http://login.test/", **SESSIONS)
    agent = FakeAgent()
    reader.listener.hook.backend._agent = agent
    for _ in range(30):
        connection, _ = reader.connect()
        connection.deliver(pomelo.hello())
    assert len(agent.asked) == 10
