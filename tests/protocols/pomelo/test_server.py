"""The server on a connection and a journal: what is written, and when."""

import json
import os
from typing import Any

import pytest

from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.session import HEARTBEAT

from .conftest import ALICE, push

OK = b'{"code":200}'
STREAM = (
    wire.request(1, "a", b"{}") + wire.notify("b", b"[]") + wire.request(2, "a", b"{}")
)


def _kick(reason: str) -> bytes:
    return wire.kick(reason)


# Durability


def test_answers_follow_durability(greeted, reader):
    """No response before the journal says that the batch is on disk."""
    greeted.deliver(STREAM)
    [batch] = greeted.journal.pending
    assert batch.count == 3
    assert batch.origin is greeted.connection.origin
    assert batch.payload_bytes == 6
    assert greeted.sent == b""
    assert greeted.connection.waiting
    greeted.journal.store()
    assert greeted.sent == wire.response(1, OK) + wire.response(2, OK)
    assert greeted.connection.counted == 3
    assert not greeted.connection.waiting


def test_one_message_per_package(make_reader):
    """Over WebSocket each response is written for itself; over TCP they go together."""
    reader = make_reader()
    for framed in (False, True):
        connection, server = reader.connect(framed=framed)
        server.received(wire.package(1, b'{"sys":{}}') + wire.package(wire.ACK))
        connection.clear()
        server.received(STREAM)
        reader.journal.store_all()
        assert len(connection.written) == (2 if framed else 1)
        assert connection.sent == wire.response(1, OK) + wire.response(2, OK)


def test_what_can_not_be_stored(greeted, reader):
    """Requests are answered 500; a client whose notify is lost is kicked."""
    greeted.deliver(wire.request(1, "a", b"{}"))
    greeted.journal.refuse()
    failed = wire.response(1, b'{"code":500,"msg":"not stored"}')
    assert greeted.sent == failed
    assert not greeted.connection.closed
    greeted.connection.clear()
    greeted.deliver(STREAM)
    greeted.deliver(wire.request(3, "a", b"{}"))
    greeted.journal.refuse()
    assert not greeted.connection.closed
    greeted.journal.store()
    failures = failed + wire.response(2, b'{"code":500,"msg":"not stored"}')
    assert greeted.sent == failures + wire.response(3, OK) + _kick("not stored")
    assert greeted.connection.closed
    assert greeted.connection.counted == 1


def test_an_answer_that_can_not_say_so(make_reader):
    """On a route whose responses have no code, a request that is not stored ends in a
    kick, and has no response: that would say what it says of a stored one, and nothing
    else is said in the place of a code.
    """
    for answer in ({}, {"optional uInt32 id": 1}, {"optional string msg": 1}):
        reader = make_reader(
            client_protos={"a.b.c": {"optional uInt32 n": 1}},
            server_protos={"a.b.c": answer},
        )
        reader.greet()
        reader.deliver(wire.request(1, "a.b.c", b""))
        reader.journal.store()
        reader.deliver(wire.request(2, "a.b.c", b"") + wire.request(3, "x.y.z", b"{}"))
        reader.journal.refuse()
        failed = wire.response(3, b'{"code":500,"msg":"not stored"}')
        assert reader.sent == wire.response(1, b"") + failed + _kick("not stored")


def test_a_journal_that_stores_at_once(reader, store_at_once):
    """Deferreds that have fired already are fine."""
    store_at_once(reader.journal)
    reader.greet()
    reader.deliver(STREAM)
    assert reader.sent == wire.response(1, OK) + wire.response(2, OK)
    assert not reader.connection.waiting


def test_requests_of_a_client_that_has_left(greeted, reader):
    """What the journal has not taken is forgotten: the client sends it again."""
    greeted.deliver(STREAM)
    greeted.connection.lose()
    assert greeted.journal.pending == []
    assert len(greeted.journal.withdrawn) == 1
    assert greeted.server.unacknowledged_bytes == 0
    assert not greeted.connection.waiting
    greeted.deliver(STREAM)
    assert len(greeted.journal.submitted) == 1


def test_a_request_that_is_asked_again_is_stored_again(greeted, reader):
    """Ids mean nothing on another connection: docs/guarantees.md."""
    ask = wire.request(1, "a", b"{}")
    greeted.deliver(ask)
    greeted.journal.store()
    greeted.connection.lose()  # The answer was heard by nobody.
    again, server = greeted.connect()
    server.received(wire.package(1, b'{"sys":{}}') + wire.package(wire.ACK))
    again.clear()
    server.received(ask)
    greeted.journal.store()
    assert again.sent == wire.response(1, OK)
    assert sum(batch.count for batch in greeted.journal.submitted) == 2


def test_notifies_of_a_client_that_has_left(greeted, reader):
    """Nobody sends them again: they are stored and counted; nothing is written."""
    greeted.deliver(wire.notify("a", b"{}") * 3)
    greeted.connection.lose()
    greeted.journal.store_all()
    assert greeted.sent == b""
    assert greeted.connection.counted == 3


def test_what_is_lost_after_the_client_has_left(greeted, reader):
    """Nobody is there to be told; nothing is counted."""
    greeted.deliver(wire.notify("a", b"{}"))
    greeted.connection.lose()
    greeted.journal.refuse()
    assert greeted.sent == b""
    assert greeted.connection.counted == 0
    assert greeted.server.unacknowledged_bytes == 0


def test_nothing_is_taken_after_the_end(greeted, reader):
    """Bytes and ticks that come too late change nothing."""
    greeted.server.kick("bye")
    greeted.server.received(STREAM)
    greeted.server.tick()
    greeted.connection.lose()
    assert not greeted.journal.submitted
    assert greeted.sent == _kick("bye")


# Refusals


def test_pending_answers_come_before_a_refusal(greeted, reader):
    """Good messages before a bad one are stored and answered, then comes the kick."""
    greeted.deliver(wire.request(1, "a", b"{}") + b"\x04\x00\x00\x00")
    greeted.deliver(wire.request(2, "a", b"{}"))
    assert greeted.connection.refused is None
    greeted.journal.store_all()
    assert greeted.sent == wire.response(1, OK) + _kick("message without a flag")
    assert greeted.connection.refused.rule == "message without a flag"
    assert len(greeted.journal.submitted) == 1


@pytest.mark.parametrize(
    "stream",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"\x02\0\0\0", b"\x04\0\0\x08"],
)
def test_refused_at_once(reader, stream):
    """Whoever does not begin with a handshake learns why."""
    reader.deliver(stream)
    refused = reader.connection.refused
    assert reader.sent == _kick(str(refused))
    assert reader.connection.closed


def test_a_farewell(greeted, reader):
    """A client that says that it goes gets its answers and a FIN."""
    greeted.deliver(wire.request(1, "a", b"{}") + wire.kick("bye"))
    assert not greeted.connection.closed
    greeted.journal.store_all()
    assert greeted.sent == wire.response(1, OK)
    assert greeted.connection.closed
    assert greeted.connection.refused is None


# Who it is


def test_the_origin_knows_the_client(reader):
    """Attributes of the network stay, those of the handshake are added."""
    reader.connection.origin.attributes = {"tls": "1.3"}
    reader.connection.origin.principal = "CN=device"
    reader.greet(None, {"uid": "alice", "team": "red"})
    assert reader.connection.origin.attributes == ALICE | {
        "tls": "1.3",
        "user.team": "red",
    }
    assert reader.connection.origin.principal == "CN=device"
    assert reader.server.uid == "alice"


# Flow


def test_a_paused_client_is_kept_alive(greeted, reader):
    """While we do not read, heartbeats go on and nobody is cut off."""
    greeted.journal.full = True
    greeted.deliver(wire.notify("a", b"{}"))
    for _ in range(100):
        greeted.clock.advance(0.75)
    assert not greeted.connection.closed
    beats = greeted.sent.count(HEARTBEAT)
    assert greeted.sent == HEARTBEAT * beats
    assert beats >= 75 // 5
    greeted.journal.full = False
    for _ in range(8):
        greeted.clock.advance(0.75)
    assert not greeted.connection.closed


# Time


def test_who_is_not_read_is_not_silent(greeted, reader):
    """While others go first, its heartbeats lie in the kernel; ours are sent."""
    greeted.connection.has_room = False
    greeted.wait(30.0)
    assert not greeted.connection.closed
    assert HEARTBEAT in greeted.sent
    greeted.connection.has_room = True
    greeted.wait(7.0)
    assert greeted.connection.closed


def test_heartbeats_and_their_end(greeted, reader):
    """Each is answered; without one the client is cut off at twice the interval."""
    for _ in range(5):
        greeted.wait(2.9)
        greeted.deliver(HEARTBEAT)
    assert not greeted.connection.closed
    assert greeted.sent.count(HEARTBEAT) >= 5
    silence = 0.0
    while not greeted.connection.closed:
        greeted.wait(0.05)
        silence += 0.05
    assert 6.0 <= silence <= 6.0 + 0.75 + 0.05
    assert greeted.sent.endswith(_kick("no sign of life"))
    assert greeted.connection.refused is None


def test_the_timer_rests_while_nobody_is_here(reader):
    """One timer for all, and none for none."""
    reader.connect()
    assert len(reader.clock.getDelayedCalls()) == 1
    for server in list(reader.listener._servers):
        server.closed()
    reader.clock.advance(1)
    assert reader.clock.getDelayedCalls() == []
    reader.connect()
    assert len(reader.clock.getDelayedCalls()) == 1


def test_what_we_have_not_read_is_not_late(make_reader, pomelo):
    """Neither half a handshake, nor a client whose heartbeats wait for us."""
    reader = make_reader(handshake_timeout=5.0)
    reader.deliver(pomelo.handshake())
    for step in (lambda: None, lambda: reader.deliver(wire.package(wire.ACK))):
        step()
        reader.connection.unread_input = True
        reader.clock.pump([0.75] * 200)
        assert not reader.connection.closed
        reader.connection.unread_input = False
    reader.clock.pump([0.75] * 200)
    assert reader.connection.closed


@pytest.mark.parametrize("heartbeat", [0, 3, 3600])
def test_who_does_not_get_to_work(make_reader, pomelo, heartbeat):
    """Half a handshake is refused in time, whatever the interval of heartbeats; a silent
    probe is closed without a word.
    """
    reader = make_reader(handshake_timeout=10.0, heartbeat=heartbeat)
    silent, _ = reader.connect()
    reader.deliver(pomelo.handshake())
    reader.connection.clear()
    reader.clock.pump([0.25] * 39)
    assert not reader.connection.closed
    reader.clock.pump([0.25] * 12)
    assert reader.sent == _kick(
        "handshake not finished in time (options.handshake_timeout)"
    )
    assert reader.connection.refused.key == "options.handshake_timeout"
    assert silent.closed
    assert silent.sent == b""
    assert silent.refused is None


# Drain


def test_drain(greeted, reader):
    """Pending requests are answered, then comes the kick, then FIN."""
    greeted.deliver(wire.request(1, "a", b"{}"))
    greeted.server.drain()
    greeted.deliver(wire.request(2, "a", b"{}"))
    assert not greeted.connection.closed
    assert len(greeted.listener.registry) == 0
    greeted.clock.advance(10)
    greeted.journal.store_all()
    assert greeted.sent.replace(HEARTBEAT, b"") == wire.response(1, OK) + _kick(
        "shutdown"
    )
    assert greeted.connection.closed
    assert len(greeted.journal.submitted) == 1


def test_drain_while_the_journal_is_full(greeted, reader):
    """Before the daemon hangs up, clients learn what is not stored; it never is."""
    greeted.deliver(wire.request(1, "a", b"{}"))
    greeted.journal.full = True
    greeted.server.drain()
    greeted.clock.advance(6.9)
    assert not greeted.connection.closed
    greeted.clock.advance(0.1)
    failed = wire.response(1, b'{"code":500,"msg":"not stored"}')
    assert greeted.sent.replace(HEARTBEAT, b"") == failed + _kick("shutdown")
    assert greeted.connection.closed
    assert len(greeted.journal.withdrawn) == 1


def test_drain_of_a_notify_that_is_not_stored(greeted, reader):
    """The kick says so."""
    greeted.deliver(wire.notify("a", b"{}"))
    greeted.journal.full = True
    greeted.server.drain()
    greeted.clock.advance(7)
    assert greeted.sent.replace(HEARTBEAT, b"") == _kick("not stored")
    assert greeted.connection.closed


# Pushes


def test_only_who_works_is_reached(reader, pomelo):
    """From the acknowledgement to the end."""
    registry = reader.listener.registry
    reader.deliver(pomelo.handshake())
    assert len(registry) == 0
    reader.deliver(wire.package(wire.ACK))
    [member] = registry.all()
    assert member is reader.server
    reader.connection.clear()
    assert push(registry, [member], "onX", b'{"x":1}') == (1, 0)
    assert reader.sent == wire.push("onX", b'{"x":1}')
    reader.connection.lose()
    assert len(registry) == 0
    assert push(registry, [member], "onX", b"{}") == (0, 0), "it does not read slowly"


def test_a_push_counts_as_word_from_us(greeted, reader):
    """Who is pushed to needs no heartbeat besides."""
    for _ in range(4):
        push(greeted.listener.registry, [greeted.server], "x", b"{}")
        greeted.clock.advance(0.75)
    assert HEARTBEAT not in greeted.connection.written


def test_slow_clients_lose_pushes(make_reader):
    """Above the cap pushes are dropped, responses are not."""
    reader = make_reader(push_bytes=100)
    reader.greet()
    reader.connection.unsent_bytes = 95
    assert push(reader.listener.registry, [reader.server], "onX", b"{}") == (0, 1)
    reader.deliver(wire.request(1, "a", b"{}"))
    reader.journal.store()
    assert reader.sent == wire.response(1, OK)
    reader.connection.unsent_bytes = 0
    assert push(reader.listener.registry, [reader.server], "onX", b"{}") == (1, 0)


def test_what_matters_least_is_dropped_first(make_reader):
    """A low priority waits behind a quarter of the cap, a high one behind twice as much."""
    reader = make_reader(push_bytes=100, push_policy="kick")
    reader.greet()
    registry = reader.listener.registry
    sent = {}
    for unsent in (10, 50, 150):
        reader.connection.unsent_bytes = unsent
        for priority in ("low", "high"):
            delivery = registry.begin([reader.server], "onX", b"{}", priority)
            delivery.send()
            sent[unsent, priority] = delivery.counts["sent"]
    assert list(sent.values()) == [1, 1, 0, 1, 0, 1]
    assert not reader.connection.closed
    push(registry, [reader.server], "onX", b"{}")
    assert reader.connection.closed


def test_slow_clients_are_kicked(make_reader):
    """… or, if the policy says so, the client has to go, its requests answered."""
    reader = make_reader(push_bytes=100, push_policy="kick")
    reader.greet()
    reader.deliver(wire.request(1, "a", b"{}"))
    reader.connection.unsent_bytes = 95
    assert push(reader.listener.registry, [reader.server], "onX", b"{}") == (0, 1)
    assert not reader.connection.closed
    reader.journal.store()
    rule = "client does not read its pushes"
    assert reader.sent == wire.response(1, OK) + _kick(
        f"{rule}, limit 100 (options.push_bytes)"
    )
    assert reader.connection.refused.key == "options.push_bytes"


# Definitions


def test_files_are_read_again(make_reader, tmp_path):
    """A changed file holds for the next client; one that is broken changes nothing."""
    path = tmp_path / "dictionary.json"
    path.write_text('["a.b.c"]')
    reader = make_reader(routes=path)
    reader.greet()

    def told() -> Any:
        connection, server = reader.connect()
        server.received(wire.package(1, b'{"sys":{}}'))
        return json.loads(connection.sent[4:])["sys"]["dict"]

    def change(text: str, when: int) -> None:
        path.write_text(text)
        os.utime(path, ns=(when, when))
        for _ in range(8):
            reader.clock.advance(0.75)
            reader.deliver(HEARTBEAT)

    change('["x.y.z"]', 1)
    assert told() == {"x.y.z": 1}
    reader.deliver(wire.notify(1, b"{}"))
    assert reader.events()[0][2] == "a.b.c"
    change("[broken", 2)
    assert told() == {"x.y.z": 1}
    change('["n.e.w"]', 3)
    assert told() == {"n.e.w": 1}


def test_mistakes_are_found_at_the_start(make_reader):
    """Definitions that can not be used prevent the listener."""
    with pytest.raises(ValueError, match=r"options\.routes"):
        make_reader(routes=["a", "a"])


def test_many_are_ticked_in_turns(make_reader, pomelo):
    """Others are served between two parts of a tick; everybody gets one heartbeat."""
    reader = make_reader(heartbeat=3)
    clients = [reader.connect() for _ in range(600)]
    for connection, server in clients:
        server.received(pomelo.hello())
        connection.clear()
    for _ in range(5):
        reader.clock.advance(0.75)
    assert not any(one.sent for one, _ in clients)
    reader.clock.rightNow += 0.75
    beaten = []
    for _ in range(3):
        reader.clock.calls.pop(0).func()
        beaten.append(sum(bool(one.sent) for one, _ in clients))
    assert beaten == [255, 511, 600]  # the first one has not greeted
    assert {one.sent for one, _ in clients} == {HEARTBEAT}


def test_clients_of_one_kind_share_what_is_kept(make_reader, pomelo):
    """… with each of their events, and nobody else has it."""
    reader = make_reader()
    origins = []
    for user in ({}, {"uid": "alice"}, {}, {"uid": "alice"}, {"uid": "bob"}):
        connection, server = reader.connect()
        server.received(pomelo.hello(user=user))
        origins.append(connection.origin)
    one, alice, two, again, bob = origins
    assert one.attributes is two.attributes
    assert alice.attributes is again.attributes
    assert [each.attributes.get("uid") for each in (one, alice, bob)] == [
        None,
        "alice",
        "bob",
    ]
