"""Ingest: demand follows durability, named senders resume, and Stored tells what is on disk."""

from typing import Any

from twisted.internet.defer import fail

from gateway.protocols.rsio import messages, wire
from gateway.protocols.rsio.client.on_twisted import connect
from gateway.protocols.rsio.events import decode
from gateway.protocols.rsio.messages import (
    Cancel,
    ClientHello,
    Goodbye,
    GoodbyeAck,
    OnError,
    OnNextLastPart,
    OnNextPart,
    OnSubscribe,
    Ping,
    Pong,
    Request,
    ServerHello,
    Stored,
    Subscribe,
    SubscribeFrom,
    Token,
)
from gateway.sdk.interfaces import NotStored
from rsio_clients import Running

from .conftest import HELLO


def test_credit_is_the_acknowledgement(make_gate):
    """As many elements are asked for as became durable, and not before."""
    gate = make_gate(window=10)
    gate.say(HELLO, OnSubscribe(1, 0), wire.on_next(1, [b"{}"] * 3))
    gate.heard()
    gate.say(wire.on_next(1, [b"{}"] * 4))
    gate.journal.store()
    assert gate.heard() == []  # 3 of 10, and more is on its way
    gate.journal.store()
    assert gate.heard() == [Request(1, 7)]
    assert gate.connection.counted == 7


def test_half_a_window_is_acknowledged_at_once(make_gate):
    """A publisher is not kept waiting for the rest."""
    gate = make_gate(window=10)
    gate.say(HELLO, OnSubscribe(1, 0), wire.on_next(1, [b"{}"] * 5))
    gate.heard()
    gate.say(wire.on_next(1, [b"{}"]))
    gate.journal.store()
    assert gate.heard() == [Request(1, 5)]
    gate.journal.store()
    assert gate.heard() == [Request(1, 1)]


def test_one_read_is_one_batch(make_gate):
    """Elements of several streams keep their order, names and numbers."""
    gate = make_gate(subscribe=("a", "b"))
    gate.say(HELLO, OnSubscribe(1, 0), OnSubscribe(2, 2))
    gate.say(
        wire.on_next(1, [b'{"n":1}'])
        + wire.on_next_packed(2, 2, b"xxyy")
        + wire.on_next(1, [b"no", b'{"n":3}'])
        + wire.on_next(2, [b"zz"], fixed=True)
        + wire.encode(OnNextPart(1, 9, b'{"n"'))
        + wire.encode(OnNextLastPart(1, 9, b":4}"))
    )
    [batch] = gate.journal.submitted
    rows = decode(batch.body)
    want = [b'{"n":1}', b"xx", b"yy", b"no", b'{"n":3}', b"zz", b'{"n":4}']
    assert list(rows.each()) == want
    assert batch.count == 7
    assert batch.payload_bytes == sum(map(len, want))
    assert list(rows.seqs) == [1, 1, 2, 2, 3, 3, 4]
    names = [rows.channels.get(row, rows.channel) for row in range(7)]
    assert names == ["a", "b", "b", "a", "a", "b", "a"]
    kinds = [rows.content_types.get(row, rows.content_type) for row in range(7)]
    assert [kind.endswith("json") for kind in kinds] == [1, 0, 0, 1, 1, 0, 1]
    assert rows.flaws == {3: "invalid-json"}
    assert batch.origin is gate.connection.origin


def test_elements_of_a_fixed_size_are_rows_in_one_piece(make_gate):
    """Each stream of them has its batch, packed or not, and no object for an element."""
    gate = make_gate(subscribe=("a", "b"))
    gate.say(HELLO, OnSubscribe(1, 2), OnSubscribe(2, 1))
    gate.say(
        wire.on_next_packed(1, 2, b"xxyy")
        + wire.on_next_packed(2, 3, b"123")
        + wire.on_next(1, [b"zz", b"uu"], fixed=True)
        + wire.encode(OnNextPart(1, 9, b"v"))
        + wire.encode(OnNextLastPart(1, 9, b"v"))
    )
    one, other = (decode(batch.body) for batch in gate.journal.submitted)
    assert (one.block, one.payloads) == (b"xxyyzzuuvv", [])
    assert list(one.each()) == [b"xx", b"yy", b"zz", b"uu", b"vv"]
    assert (one.channel, one.seqs, one.count) == ("a", range(1, 6), 5)
    assert one.content_type == "application/octet-stream"
    assert list(other.each()) == [b"1", b"2", b"3"]
    assert (other.channel, other.seqs) == ("b", range(1, 4))
    gate.journal.store_all()
    assert gate.connection.counted == 8


def test_one_lost_batch_of_a_read_ends_all(make_gate):
    """Nothing of the read that follows it is stored, let alone acknowledged."""
    gate = make_gate(subscribe=("a", "b"))
    gate.say(HELLO, OnSubscribe(1, 2), OnSubscribe(2, 2))
    gate.heard()
    submitted: list[Any] = []

    def submit(batch: Any) -> Any:
        submitted.append(batch)
        return fail(NotStored("disk full"))

    gate.journal.submit = submit
    gate.say(wire.on_next_packed(1, 1, b"xx") + wire.on_next_packed(2, 1, b"yy"))
    assert len(submitted) == 1
    assert gate.connection.closed
    assert not [one for one in gate.heard() if isinstance(one, Request)]


def test_a_publisher_is_heard_though_the_journal_is_full(make_gate):
    """Demand bounds its elements; its ping, its cancel and its goodbye are answered, and
    what it subscribed to goes on."""
    gate = make_gate(window=4)
    gate.say(
        ClientHello(0, (1, 3)), OnSubscribe(1, 0), Subscribe("check/slow?n=9", 7, 9)
    )
    gate.journal.full = True
    gate.say(wire.on_next(1, [b"{}"] * 4))
    gate.journal.store_all()
    gate.heard()
    gate.clock.advance(0.1)
    assert gate.heard() == [(7, [b"0"])]
    gate.say(Ping(b"there?"))
    assert gate.heard() == [Pong(b"there?")]
    gate.say(Cancel(7))
    gate.clock.advance(1)
    assert gate.heard() == []
    gate.say(wire.on_next(1, [b"beyond the demand"]))
    assert gate.heard() == [Cancel(1)]
    gate.say(Goodbye(""))
    assert gate.heard() == [GoodbyeAck("")]
    assert gate.connection.closed


def test_a_full_journal_pauses_who_has_much_on_its_way(make_gate):
    """So that memory is bounded while nothing at all can be stored."""
    gate = make_gate()
    gate.say(HELLO, OnSubscribe(1, 0))
    gate.journal.full = True
    gate.say(wire.on_next(1, [b"x" * 200_000]))
    assert not gate.connection.paused
    gate.say(wire.on_next(1, [b"x" * 200_000]))
    assert gate.connection.paused
    gate.journal.store_all()
    assert not gate.connection.paused


def test_who_is_gone_leaves_nothing_in_the_queue(gate):
    """What the journal has not taken is not stored: its sender sends it elsewhere."""
    gate.say(HELLO, OnSubscribe(1, 0), wire.on_next(1, [b"1"]), wire.on_next(1, [b"2"]))
    gate.journal.store()
    gate.connection.lose()
    assert len(gate.journal.withdrawn) == 1
    assert gate.journal.pending == []


def test_who_says_goodbye_is_stored(gate):
    """All that came before the goodbye, in one packet with it or in another."""
    gate.say(HELLO, OnSubscribe(1, 0), wire.on_next(1, [b"1"]))
    gate.say(wire.on_next(1, [b"2"]) + wire.encode(Goodbye("")))
    gate.connection.lose()
    assert len(gate.journal.submitted) == 2
    assert gate.journal.withdrawn == []


def test_a_named_sender_resumes_before_what_was_withdrawn(gate):
    """Its elements are neither lost nor doubled, taken by the journal or not."""
    named = ClientHello(0, (2, 4))
    hello = (named, Token("name", b"d"), OnSubscribe(1, 0))
    gate.say(*hello, *(wire.on_next(1, [each]) for each in (b"1", b"2", b"3", b"4")))
    gate.journal.store()
    gate.journal.take()
    gate.connection.lose()
    assert len(gate.journal.withdrawn) == 2
    gate.connection, gate.server = gate.connect()
    gate.say(named, Token("name", b"d"))
    assert not [one for one in gate.heard() if isinstance(one, SubscribeFrom)]
    gate.journal.store_all()
    [again] = gate.heard()
    assert again == SubscribeFrom("events", 1, 1024, 2)
    gate.say(OnSubscribe(1, 0), wire.on_next(1, [b"3"]))
    assert list(decode(gate.journal.pending[0].body).seqs) == [3]


def test_a_mere_subscriber_is_read_though_the_journal_is_full(gate):
    """A peer that publishes nothing does not suffer from it."""
    gate.journal.full = True
    gate.say(HELLO, OnSubscribe(1, 0), OnError(1, "E404 nothing here"))
    gate.connection.resume()
    gate.say(Subscribe("check/count?n=1", 1, 5))
    assert (1, [b"0"]) in gate.heard()
    assert not gate.connection.paused


def test_many_tiny_batches_on_their_way_to_the_disk(make_gate):
    """Everybody waits for the number of somebody's batches, and not for their bytes."""
    gate = make_gate(unacknowledged_bytes=8 << 20, window=10_000)
    gate.say(HELLO, OnSubscribe(1, 0))
    for _ in range(4000):
        gate.say(wire.on_next(1, [b"x"]))
    assert gate.connection.paused
    assert 1000 < len(gate.journal.pending) <= 2048
    while gate.journal.pending:
        gate.journal.store_all()
    assert sum(stored.batch.count for stored in gate.journal.stored) == 4000


def test_elements_before_a_violation_are_stored(gate):
    """What came before the mistake is not lost with it."""
    gate.say(HELLO, OnSubscribe(1, 0))
    gate.say(wire.on_next(1, [b"{}"]) + b"\x7f")
    assert gate.journal.submitted[0].count == 1
    assert gate.connection.refused is not None
    assert "0x7f" in gate.connection.refused.rule


def test_busy_while_something_is_owed(gate):
    """The idle timer rests while the peer waits for our disk."""
    gate.say(HELLO, OnSubscribe(1, 0), wire.on_next(1, [b"{}"]))
    assert gate.connection.waiting
    gate.journal.store_all()
    assert not gate.connection.waiting


# Resuming

NAMED = ClientHello(0, (2, 4))


def _name(name: str) -> Token:
    return Token("name", name.encode())


def test_a_named_sender_goes_on_where_it_was(gate):
    """Elements that are stored are not asked for again, whatever was granted."""
    gate.say(NAMED, _name("dev-1"))
    assert gate.heard()[-1] == SubscribeFrom("events", 1, 1024, 0)
    gate.say(OnSubscribe(1, 0), wire.on_next(1, [b"{}"] * 3))
    gate.journal.store_all()
    assert gate.heard() == [Stored(1, 3), Request(1, 3)]
    gate.connection.lose()
    gate.connection, _ = gate.connect()
    gate.say(NAMED, _name("dev-1"))
    assert gate.heard()[-1] == SubscribeFrom("events", 1, 1024, 3)
    gate.say(OnSubscribe(1, 0), wire.on_next(1, [b"{}"]))
    assert list(decode(gate.journal.submitted[1].body).seqs) == [4]


def test_a_named_sender_waits_for_its_own_elements(gate):
    """While some are on their way to the disk it is not known where to go on."""
    gate.say(NAMED, _name("dev-1"), OnSubscribe(1, 0), wire.on_next(1, [b"{}"] * 3))
    gate.journal.take()
    gate.connection.lose()
    gate.connection, _ = gate.connect()
    gate.say(NAMED, _name("dev-1"))
    assert gate.heard() == [ServerHello(0, (1, 2, 3, 4, 5, 6, 7, 8))]
    gate.journal.store_all()
    assert gate.heard() == [SubscribeFrom("events", 1, 1024, 3)]


def test_a_newer_connection_takes_over(gate):
    """One stream at a time publishes for a name: the old one is cancelled."""
    gate.say(NAMED, _name("dev-1"), OnSubscribe(1, 0), wire.on_next(1, [b"{}"]))
    first = gate.connection
    gate.heard()
    gate.connection, _ = gate.connect()
    gate.say(NAMED, _name("dev-1"))
    assert first.written[-1] == wire.encode(Cancel(1))
    first.deliver(wire.on_next(1, [b"{}"]))
    assert len(gate.journal.submitted) == 1
    gate.journal.store_all()
    assert gate.heard()[-1] == SubscribeFrom("events", 1, 1024, 1)


def test_what_was_lost_is_asked_for_again(gate):
    """Elements stored behind some that could not be come twice rather than never."""
    gate.say(NAMED, _name("d"), OnSubscribe(1, 0))
    gate.say(wire.on_next(1, [b"1"]), wire.on_next(1, [b"2"]), wire.on_next(1, [b"3"]))
    gate.journal.store()
    gate.journal.refuse()
    gate.journal.store()
    gate.connection, _ = gate.connect()
    gate.say(NAMED, _name("d"))
    assert gate.heard()[-1] == SubscribeFrom("events", 1, 1024, 1)


def test_senders_without_a_name_leave_no_trace(gate):
    """Their numbers begin anew with every stream, and mean nothing to others."""
    gate.say(ClientHello(0, (2,)))
    assert gate.heard()[-1] == Subscribe("events", 1, 1024)
    gate.say(OnSubscribe(1, 0), wire.on_next(1, [b"{}"]))
    gate.journal.store_all()
    assert gate.offsets.known == []


def test_stored_while_there_is_no_room(gate):
    """Named or not, who knows extension 2 hears what is on disk; demand comes later."""
    gate.say(ClientHello(0, (2,)), OnSubscribe(1, 0))
    gate.heard()
    gate.journal.full = True
    gate.say(wire.on_next(1, [b"{}"] * 3))
    gate.journal.store_all()
    assert gate.heard() == [messages.Stored(1, 3)]
    gate.say(wire.on_next(1, [b"{}"]))
    gate.journal.store_all()
    assert gate.heard() == [messages.Stored(1, 4)]
    gate.journal.full = False
    assert gate.heard() == [Request(1, 4)]


def test_flush_while_there_is_no_room(endpoint, gate):
    """A program without a name learns that its elements are on disk."""

    async def run() -> int:
        async with (
            connect(endpoint, clock=gate.clock) as peer,
            peer.publisher("events") as publisher,
        ):
            gate.journal.full = True
            for _ in range(2):
                await publisher.send_all([b"1", b"2"])
                await publisher.flush()
            return publisher.outbox.confirmed

    assert Running(endpoint, run()).finish() == 4
