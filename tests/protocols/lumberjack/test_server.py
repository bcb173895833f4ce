"""The reader on a connection and a journal: what is written, and when."""

import sys
from typing import Any

import pytest

from gateway.protocols.lumberjack import wire
from gateway.protocols.lumberjack.events import decode
from gateway.sdk.interfaces import Refusal

from .windows import V1, V2, part, window


def test_ack_follows_durability(reader):
    """No acknowledgement before the journal says that the window is on disk."""
    reader.deliver(window(1, 2))
    [batch] = reader.journal.pending
    assert (batch.count, batch.origin) == (2, reader.connection.origin)
    assert batch.received_at == 1_700_000_000_000_000
    assert reader.sent == b""
    assert reader.connection.waiting
    reader.journal.store()
    assert reader.sent == b"2A\0\0\0\2"
    assert reader.connection.counted == 2
    assert not reader.connection.waiting


def test_acks_leave_in_order(reader):
    """Several windows in flight; a question in between waits for those before it."""
    reader.deliver(window(1) + wire.window(V2, 0) + window(2) + wire.window(V1, 0))
    assert reader.sent == b""
    reader.journal.store()
    assert reader.sent == wire.ack(V2, 1) + wire.ack(V2, 0)
    reader.journal.store()
    assert reader.sent[12:] == wire.ack(V2, 2) + wire.ack(V1, 0)


def test_nothing_to_store(reader):
    """A window without events is acknowledged at once, without the journal."""
    reader.deliver(wire.window(V2, 1) + wire.json(V2, 4, b"[]"))
    assert reader.sent == wire.ack(V2, 4)
    assert not reader.journal.submitted
    assert not reader.connection.waiting


def test_a_journal_that_stores_at_once(reader, store_at_once):
    """Deferreds that have fired already are fine."""
    store_at_once(reader.journal)
    reader.deliver(window(1) + wire.window(V2, 0) + window(2))
    assert reader.sent == wire.ack(V2, 1) + wire.ack(V2, 0) + wire.ack(V2, 2)


# Refusals


def test_complete_windows_are_answered_before_a_refusal(reader):
    """A bomb behind a valid window: that one is acknowledged, then we hang up."""
    reader.deliver(window(1) + wire.window(V2, 9) + wire.json(V2, 1, b"{}") + b"X")
    reader.deliver(window(7))
    assert reader.connection.refused is None
    assert reader.connection.paused
    reader.journal.store_all()
    assert reader.sent == wire.ack(V2, 1)
    assert "not Lumberjack" in str(reader.connection.refused)
    assert len(reader.journal.submitted) == 1


def test_refused_at_once_when_nothing_is_owed(reader):
    """Without a window in flight a violation ends the connection right away."""
    reader.deliver(wire.window(V2, 2**32 - 1))
    assert reader.connection.refused.key == "options.window_events"
    assert reader.sent == b""


def test_a_window_that_is_sent_again_is_stored_again(reader):
    """It says nothing by which to tell that it was here already: docs/guarantees.md."""
    reader.deliver(window(1, 2))
    reader.journal.store()
    reader.connection.lose()  # The acknowledgement was heard by nobody.
    again, _ = reader.connect()
    again.deliver(window(1, 2))
    assert sum(batch.count for batch in reader.journal.submitted) == 4
    reader.journal.store()
    assert again.sent == wire.ack(V2, 2)


def test_not_stored(reader):
    """A window that can not be stored, and those behind it, are not acknowledged."""
    reader.deliver(window(1) + window(2))
    reader.journal.refuse()
    assert reader.connection.closed
    assert not reader.connection.waiting
    assert [batch.count for batch in reader.journal.withdrawn] == [1]
    assert not reader.journal.pending
    assert reader.sent == b""
    reader.clock.advance(100)
    assert reader.sent == b""


def test_not_stored_at_once(reader):
    """… also when the journal says so within `submit`."""
    submit = reader.journal.submit

    def refusing(batch: Any) -> Any:
        done = submit(batch)
        reader.journal.refuse()
        return done

    reader.journal.submit = refusing
    reader.deliver(window(1) + window(2))
    assert reader.connection.closed
    assert len(reader.journal.submitted) == 1


# Pressure


def test_a_full_journal_stops_the_reading(reader):
    """While the journal is full nothing is read; when it has room again, all goes on."""
    reader.deliver(window(1))
    reader.journal.full = True
    reader.deliver(window(2))
    assert reader.connection.paused
    reader.deliver(window(3))
    assert len(reader.journal.submitted) == 1
    reader.journal.full = False
    assert not reader.connection.paused
    assert len(reader.journal.submitted) == 3


def test_a_full_journal_stops_new_connections(reader):
    """Of one that comes while the journal is full one read is taken, and stored later."""
    reader.journal.full = True
    connection, server = reader.connect()
    assert not connection.paused
    connection.deliver(window(1))
    assert connection.paused
    assert server.held_bytes == len(window(1)) == reader.journal.reserved
    assert not reader.journal.submitted
    reader.journal.full = False
    assert len(reader.journal.submitted) == 1


def test_unacknowledged_bytes(make_reader):
    """A connection that is owed too much is not read until half of it is settled."""
    reader = make_reader(unacknowledged_bytes=12_000)
    while not reader.connection.paused:
        reader.deliver(window(1))
    owed = len(reader.journal.pending)
    assert 8 < owed < 16
    assert reader.server.unacknowledged_bytes >= 12_000
    for _ in range(owed // 2 - 1):
        reader.journal.store()
        assert reader.connection.paused
    reader.journal.store_all()
    assert not reader.connection.paused
    assert reader.server.unacknowledged_bytes == 0


def test_a_connection_has_so_many_batches_under_way(make_reader):
    """Each takes time in a group commit that others wait for, however small it is."""
    reader = make_reader(unacknowledged_bytes=32 << 20)
    while not reader.connection.paused:
        reader.deliver(window(1))
    assert 2000 < len(reader.journal.pending) <= 2048
    reader.journal.store_all()
    assert not reader.connection.paused


def test_a_window_larger_than_the_debt_limit(make_reader):
    """One window may be larger than what may be unacknowledged: it is not stuck."""
    reader = make_reader(unacknowledged_bytes=1000)
    event = wire.json(V2, 1, b"{%s}" % (b" " * 900))
    reader.deliver(wire.window(V2, 10))
    for _ in range(9):
        reader.deliver(event)
        assert not reader.connection.paused
    assert reader.server.held_bytes == 9 * len(event)
    reader.deliver(event)
    assert reader.connection.paused
    reader.journal.store()
    assert reader.sent == wire.ack(V2, 1)
    assert not reader.connection.paused


# The end


def test_drain_when_idle(reader):
    """Nothing pending: drained connections close at once."""
    reader.server.drain()
    assert reader.connection.closed


def test_drain_answers_what_is_pending(reader):
    """Complete windows are acknowledged, and what is whole of the open one, then FIN."""
    frames = wire.json(V2, 5, b"{}") + wire.json(V2, 6, b"{}")
    reader.deliver(window(1) + wire.window(V2, 3) + frames[:-1])
    reader.server.drain()
    assert reader.connection.paused
    assert not reader.connection.closed
    assert reader.server.held_bytes == 0
    reader.server.received(wire.json(V2, 2, b"{}"))
    reader.journal.store_all()
    assert reader.sent == wire.ack(V2, 1) + wire.ack(V2, 5)
    assert reader.connection.closed
    assert [batch.count for batch in reader.journal.submitted] == [1, 1]


@pytest.mark.parametrize("left", [8, 1])
def test_drain_leaves_half_a_compressed_frame(reader, left):
    """Its checksum covers all of it, so nothing of it is whole."""
    reader.deliver(window(1, 2)[:-left])
    reader.server.drain()
    assert reader.connection.closed
    assert not reader.journal.submitted


def test_drain_while_the_journal_is_full(reader):
    """It takes nothing: what came of a window is left to its writer."""
    reader.deliver(part(1, 2))
    reader.journal.full = True
    reader.deliver(part(3)[6:])
    reader.server.drain()
    assert reader.connection.closed
    assert not reader.journal.submitted


# Age


def test_an_old_connection_ends_when_idle(reader):
    """Between two windows there is nothing to wait for."""
    reader.deliver(window(1))
    reader.journal.store()
    reader.server.aged()
    assert reader.connection.closed
    assert reader.sent == wire.ack(V2, 1)


@pytest.mark.parametrize("begun", [6, 20, -1])
def test_an_old_connection_ends_behind_its_window(reader, begun):
    """However much of that is here, and after its acknowledgement."""
    whole = window(1, 2)
    reader.deliver(whole[:begun])
    reader.server.aged()
    reader.clock.advance(30)
    assert not reader.connection.closed
    reader.deliver(whole[begun:])
    assert not reader.connection.closed
    reader.journal.store()
    assert reader.sent == wire.ack(V2, 2)
    assert reader.connection.closed


def test_an_old_connection_in_full_swing(make_reader):
    """There is always a next window: it is not taken, and its writer sends it again."""
    reader = make_reader(unacknowledged_bytes=64 << 20)
    reader.connection.stepwise = True
    reader.deliver(window(1) * 900 + window(2, 3)[:-1])
    reader.server.aged()
    assert not reader.connection.closed
    reader.connection.take_turn()
    assert reader.connection.takes_no_more
    taken = len(reader.journal.submitted)
    assert 0 < taken < 900
    reader.deliver(window(4))
    reader.journal.store_all()
    assert reader.sent == wire.ack(V2, 1) * taken
    assert reader.connection.closed
    assert len(reader.journal.submitted) == taken


def test_the_peer_leaves(reader, monkeypatch):
    """What the journal has taken becomes durable all the same, and is counted."""
    reader.deliver(window(1))
    monkeypatch.setattr(reader.journal, "withdraw", lambda batch: False)
    reader.connection.lose()
    reader.journal.store()
    assert reader.connection.counted == 1
    assert reader.sent == b""
    reader.clock.pump([1.0] * 30)
    assert not reader.clock.getDelayedCalls()


def test_windows_of_a_peer_that_leaves_are_withdrawn(reader):
    """It sends them elsewhere: what the journal has not taken is not stored here too."""
    reader.deliver(window(1) + wire.window(V2, 0) + window(2))
    reader.connection.lose()
    assert reader.journal.withdrawn == reader.journal.submitted
    assert not reader.journal.pending


def test_a_peer_that_leaves_while_the_journal_is_full(reader):
    """… does not come back to life when there is room."""
    reader.journal.full = True
    reader.deliver(window(1))
    reader.connection.lose()
    reader.journal.full = False
    assert reader.connection.paused


def test_idle_connections_are_small(reader):
    """A connection between windows holds less than 2 KiB of ours."""
    reader.deliver(window(*range(1, 500)))
    reader.journal.store()
    seen: set[int] = set()

    def size(thing: Any) -> int:
        if id(thing) in seen or thing is reader.listener:
            return 0
        seen.add(id(thing))
        total = sys.getsizeof(thing)
        for name in getattr(type(thing), "__slots__", ()):
            value = getattr(thing, name, None)
            if type(value).__module__.startswith("gateway.protocols.lumberjack"):
                total += size(value)
            elif isinstance(value, bytes | bytearray | list):
                total += sys.getsizeof(value)
        return total

    assert size(reader.server) <= 2048
    assert reader.server.held_bytes == 0


def test_what_is_stored_is_what_was_sent(reader, many_events):
    """Some thousand events through everything, in network-sized pieces."""
    frames = b"".join(wire.json(V2, n + 1, e) for n, e in enumerate(many_events))
    stream = wire.window(V2, len(many_events)) + wire.compressed(V2, frames)
    for at in range(0, len(stream), 1448):
        reader.deliver(stream[at : at + 1448])
    stored = reader.journal.store()
    rows = decode(stored.batch.body)
    assert list(rows.each()) == many_events
    assert stored.batch.payload_bytes == sum(map(len, many_events))
    assert reader.sent == wire.ack(V2, len(many_events))


def test_a_connection_let_go_while_it_is_acknowledged(reader, monkeypatch):
    """The write finds that output takes too much memory: acknowledged, then refused."""
    too_much = Refusal("too much is held", limit=1, key="journal.memory_bytes")
    write = reader.connection.write

    def write_and_let_go(data: bytes) -> None:
        write(data)
        monkeypatch.setattr(reader.connection, "write", write)
        reader.connection.let_go(too_much)

    monkeypatch.setattr(reader.connection, "write", write_and_let_go)
    reader.deliver(window(1) + window(2)[:8])
    reader.journal.store()
    assert reader.sent == wire.ack(V2, 1)
    assert reader.connection.refused is too_much
    assert reader.connection.failure is None


# Turns


def test_a_turn_ends_between_two_windows(reader):
    """Others are served before the rest is; nothing is lost or twice."""
    reader.connection.stepwise = True
    reader.deliver(window(1) * 900)
    first = len(reader.journal.submitted)
    assert 0 < first < 200
    assert reader.connection.turn_due
    while reader.connection.turn_due:
        before = len(reader.journal.submitted)
        reader.connection.take_turn()
        assert len(reader.journal.submitted) - before < 200
    assert len(reader.journal.submitted) == 900
    assert reader.server.held_bytes == 0


def test_the_limit_holds_within_one_read(make_reader):
    """`unacknowledged_bytes` is looked at after every window, not after every read."""
    reader = make_reader(unacknowledged_bytes=8000)
    reader.deliver(window(1) * 1000)
    assert reader.connection.paused
    assert 8000 <= reader.server.unacknowledged_bytes < 9000
    reader.journal.store_all()
    assert len(reader.journal.stored) == 1000
    assert reader.sent == wire.ack(V2, 1) * 1000
    assert not reader.connection.paused


def test_what_is_left_of_a_turn_goes_with_its_peer(reader):
    """Input that waits for its turn is dropped when the connection ends."""
    reader.connection.stepwise = True
    reader.deliver(window(1) * 1000)
    submitted = len(reader.journal.submitted)
    reader.connection.lose()
    reader.server.received(b"")
    assert len(reader.journal.submitted) == submitted
    assert reader.journal.reserved == 0


def test_unfinished_windows_are_bounded_together(reader):
    """When all open windows are too large together, the largest is refused."""
    reader.journal.reservable = 100
    head = wire.window(V2, 1) + wire.json(V2, 1, b"{%s}" % (b" " * 90))
    reader.deliver(head[:-2])
    assert reader.journal.reserved >= 90
    assert reader.connection.refused is None
    reader.deliver(head[-2:] + wire.window(V2, 1) + wire.json(V2, 2, b"x" * 200)[:-1])
    assert reader.connection.refused is None  # the first window is owed its answer
    reader.journal.store()
    assert "journal.memory_bytes" in str(reader.connection.refused)
    assert reader.sent == wire.ack(V2, 1)
    assert reader.journal.reserved == 0
