"""What a writer hears while it waits, and when it is given up."""

import pytest

from gateway.protocols.lumberjack import wire

from .windows import KEEPALIVE, V1, V2, window


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


def test_keepalive_is_each_connections_own(reader):
    """One timer serves all connections, each at its own time."""
    other, _ = reader.connect()
    reader.deliver(window(1))
    reader.clock.advance(1.5)
    other.deliver(window(1))
    reader.clock.advance(1.5)
    assert (reader.sent, other.sent) == (KEEPALIVE, b"")
    assert len(reader.clock.getDelayedCalls()) == 1
    reader.clock.advance(1.5)
    assert (reader.sent, other.sent) == (KEEPALIVE, KEEPALIVE)


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


def test_a_writer_whose_window_is_not_read_hears_that_we_live(reader):
    """Half a v2 window read when the journal filled up: keepalives, then all goes on."""
    whole = window(1, 2)
    reader.deliver(whole[:10])
    reader.journal.full = True
    reader.deliver(whole[10:12])
    assert reader.connection.paused
    assert reader.connection.waiting
    reader.clock.advance(3)
    reader.clock.advance(3)
    assert reader.sent == 2 * KEEPALIVE
    reader.journal.full = False
    assert not reader.connection.paused
    assert not reader.connection.waiting
    reader.clock.advance(9)
    reader.deliver(whole[12:])
    reader.journal.store()
    assert reader.sent == 2 * KEEPALIVE + wire.ack(V2, 2)


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


def test_an_old_writer_whose_window_is_not_read_hears_nothing(reader):
    """v1 takes any six bytes for success, so it gets none before its own are safe."""
    reader.deliver(window(1, 2, version=V1)[:10])
    reader.journal.full = True
    reader.deliver(window(1, 2, version=V1)[10:12])
    reader.clock.advance(30)
    assert reader.sent == b""


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
