"""The reader on a connection and a journal: what is written, and when."""

import sys
from typing import Any

import pytest

from gateway.protocols.lumberjack import wire
from gateway.sdk.interfaces import Refusal

from .windows import KEEPALIVE, V1, V2, part, window


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


def test_keepalive(reader):
    """A v2 writer that waits hears from us every interval, and not after its ack."""
    reader.deliver(window(1))
    reader.clock.advance(2.9)
    assert reader.sent == b""
    reader.clock.advance(0.1)
    assert reader.sent == KEEPALIVE
    reader.clock.pump([1.0] * 3)
    assert reader.sent == KEEPALIVE * 2
    reader.journal.store()
    reader.clock.pump([1.0] * 30)
    assert reader.sent == KEEPALIVE * 2 + wire.ack(V2, 1)
    assert not reader.clock.getDelayedCalls()


def test_no_keepalive_for_half_a_window(reader):
    """A writer that has not finished does not wait for us."""
    reader.deliver(window(1, 2)[:-1])
    reader.clock.pump([1.0] * 30)
    assert reader.sent == b""


@pytest.mark.parametrize("body", [b"{}", b'[{"a":1}]'])
def test_no_keepalive_for_v1(reader, body):
    """A v1 writer would take it for success and lose its window."""
    reader.deliver(window(1, version=V1, body=body))
    reader.deliver(window(2, version=V2))
    reader.clock.pump([1.0] * 30)
    assert reader.sent == b""
    reader.journal.store()
    reader.clock.pump([1.0] * 3)
    assert reader.sent == wire.ack(V1, 1) + KEEPALIVE


def test_a_keepalive_that_finds_the_peer_gone(reader):
    """Writing may be what shows that the peer is gone: then nobody is reminded."""
    reader.deliver(window(1))
    reader.connection.write = lambda _: reader.connection.lose()
    reader.clock.advance(3)
    assert reader.connection.closed
    assert not reader.clock.getDelayedCalls()


@pytest.mark.parametrize("version", [V1, V2])
def test_stalled(make_reader, version):
    """Without progress for `stall_timeout` we hang up: others may be healthier."""
    reader = make_reader(stall_timeout=10.0)
    reader.deliver(window(1, version=version) + window(2, version=version))
    reader.clock.pump([1.0] * 9)
    reader.journal.store()
    reader.clock.pump([1.0] * 9)
    assert not reader.connection.closed
    reader.clock.pump([1.0] * 4)
    assert reader.connection.closed
    assert [batch.count for batch in reader.journal.withdrawn] == [1]
    assert not reader.journal.pending
    reader.connection.clear()
    reader.clock.pump([1.0] * 30)
    assert reader.sent == b""


def test_nobody_is_stalled_while_it_is_known_why(make_reader):
    """While the spool is full, others are no healthier; the time begins after that."""
    reader = make_reader(stall_timeout=10.0)
    reader.deliver(window(1))
    reader.journal.why_full = "the spool is full"
    reader.clock.pump([1.0] * 100)
    assert not reader.connection.closed
    assert reader.sent == KEEPALIVE * 33
    reader.journal.why_full = None
    reader.clock.pump([1.0] * 8)
    assert not reader.connection.closed
    reader.clock.pump([1.0] * 6)
    assert reader.connection.closed


@pytest.mark.parametrize(("version", "alive"), [(V1, b""), (V2, 2 * KEEPALIVE)])
def test_a_writer_whose_window_is_not_read_hears_that_we_live(reader, version, alive):
    """Half of it was read when the journal filled up: keepalives in v2, then all goes on.

    A v1 writer takes any six bytes for success, so it gets none before its own are safe.
    """
    whole = window(1, 2, version=version)
    reader.deliver(whole[:10])
    reader.journal.full = True
    reader.deliver(whole[10:12])
    assert reader.connection.paused
    assert reader.connection.waiting
    reader.clock.advance(3)
    reader.clock.advance(3)
    assert reader.sent == alive
    reader.journal.full = False
    assert not reader.connection.paused
    assert not reader.connection.waiting
    reader.clock.advance(9)
    reader.deliver(whole[12:])
    reader.journal.store()
    assert reader.sent == alive + wire.ack(version, 2)


@pytest.mark.parametrize("version", [V1, V2])
def test_a_window_in_the_kernel_waits_too(reader, version):
    """Read to its end, then paused: the next window is there, and nobody has read it."""
    reader.deliver(window(1, version=version))
    reader.journal.store()
    reader.connection.clear()
    reader.deliver(window(2, version=version))
    reader.journal.full = True
    reader.journal.store()
    reader.connection.clear()
    assert reader.connection.paused
    reader.clock.pump([1.0] * 6)
    assert reader.sent == b""  # nothing of it waits
    reader.connection.unread_input = True
    reader.clock.pump([1.0] * 6)
    assert reader.sent == (b"" if version == V1 else 2 * KEEPALIVE)


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("begun", [0, 10])
def test_who_waits_for_room_hears_that_we_live(reader, version, begun):
    """Others go first, and the rest of its window, or all of it, is in the kernel."""
    reader.deliver(window(1, version=version))
    reader.journal.store()
    reader.deliver(window(2, 3, version=version)[:begun])
    reader.connection.clear()
    reader.connection.has_room = False
    reader.connection.unread_input = True
    reader.deliver(b"")
    assert reader.connection.waiting
    reader.clock.pump([1.0] * 6)
    assert reader.sent == (b"" if version == V1 else 2 * KEEPALIVE)
    reader.connection.clear()
    reader.connection.has_room, reader.connection.unread_input = True, False
    reader.clock.pump([1.0] * 6)
    assert reader.sent == b""
    assert not reader.connection.waiting


@pytest.mark.parametrize("version", [V1, V2])
def test_a_new_writer_hears_that_we_live(reader, version):
    """One that came while the journal was full waits as the others do."""
    reader.journal.full = True
    connection, _ = reader.connect()
    reader.clock.pump([1.0] * 6)
    assert connection.sent == b""  # it said nothing, and of no version
    connection.deliver(window(1, version=version))
    reader.clock.pump([1.0] * 6)
    assert connection.sent == (b"" if version == V1 else 2 * KEEPALIVE)
    reader.journal.full = False
    reader.journal.store()
    assert connection.sent.endswith(wire.ack(version, 1))


def test_an_idle_connection_is_not_stalled(make_reader):
    """It is paused with all the others, and waits for nothing."""
    reader = make_reader(stall_timeout=10.0)
    reader.deliver(window(1))
    reader.journal.full = True
    reader.journal.store()
    reader.clock.pump([1.0] * 100)
    assert not reader.connection.closed


def test_no_keepalive_before_a_large_frame_of_v1_is_stored(make_reader):
    """Its pieces are acknowledged with the last one, and nothing is said before."""
    reader = make_reader(inflated_bytes=1 << 20, unacknowledged_bytes=64 << 20)
    body = b"0123456789" * 100
    frames = b"".join(wire.data(V1, n, [(b"line", body)]) for n in range(1, 4001))
    reader.deliver(wire.window(V1, 4000) + wire.compressed(V1, frames))
    assert len(reader.journal.pending) > 5
    while len(reader.journal.pending) > 1:
        reader.journal.store()
        reader.clock.pump([1.0] * 6)
        assert reader.sent == b""
    reader.journal.store()
    assert reader.sent == wire.ack(V1, 4000)
