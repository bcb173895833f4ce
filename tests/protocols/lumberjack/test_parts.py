"""Writers that pause in the middle of a window, or never do."""

import random

import pytest

from gateway.protocols.lumberjack import wire
from gateway.protocols.lumberjack.events import decode

from .windows import V1, V2, part, window


def test_a_part_does_not_end_an_old_connection(reader):
    """Its writer may take an acknowledgement for its whole window."""
    reader.deliver(part(1, 2, of=3))
    reader.clock.advance(1)
    reader.journal.store()
    reader.server.aged()
    assert not reader.connection.closed
    reader.deliver(part(3)[6:])
    reader.journal.store()
    assert reader.connection.closed
    assert reader.sent == wire.ack(V1, 2) + wire.ack(V1, 3)


@pytest.mark.parametrize("version", [V1, V2])
def test_a_pause_is_answered(reader, version):
    """What came of a window is stored after a pause, and acknowledged once it is on disk."""
    reader.deliver(part(1, 2, version=version))
    reader.clock.advance(0.9)
    assert not reader.journal.submitted
    reader.clock.advance(0.1)
    assert [batch.count for batch in reader.journal.submitted] == [2]
    assert reader.connection.held_bytes == 0
    assert reader.sent == b""
    reader.journal.store()
    assert reader.sent == wire.ack(version, 2)
    reader.clock.advance(10)
    assert reader.sent == wire.ack(version, 2)
    reader.deliver(part(3, version=version)[6:])
    reader.clock.advance(1)
    reader.journal.store()
    assert reader.sent == wire.ack(version, 2) + wire.ack(version, 3)


@pytest.mark.parametrize("version", [V1, V2])
def test_a_writer_that_never_pauses_is_answered(reader, version):
    """Each part a second after its first frame, so that a kill costs a second of them."""
    reader.deliver(part(1, version=version))
    for seq in range(2, 101):
        reader.clock.advance(0.05)
        reader.deliver(part(seq, version=version)[6:])
        stored = sum(batch.count for batch in reader.journal.submitted)
        assert seq - stored <= 21
    assert {batch.count for batch in reader.journal.submitted} == {21}
    assert len(reader.journal.submitted) == 4
    reader.journal.store_all()
    assert reader.sent.endswith(wire.ack(version, stored))


def test_frames_that_come_in_pieces_are_answered_too(reader):
    """Each has to be whole, but its writer has not to be silent at the right moment."""
    reader.deliver(part(1))
    for seq in range(2, 60):
        frame = part(seq)[6:]
        reader.clock.advance(0.05)
        reader.deliver(frame[:9])
        reader.clock.advance(0.04)
        reader.deliver(frame[9:])
    assert len(reader.journal.submitted) == 4


def test_a_window_that_fills_its_line_is_stored_whole(reader):
    """Half a frame is here all the while, but for a moment now and then: a line that is
    cut doubles nothing of it.
    """
    bodies = [b'{"message":"%s"}' % (b"x" * (seq % 190)) for seq in range(2000)]
    frames = [wire.json(V2, seq, body) for seq, body in enumerate(bodies, 1)]
    reader.deliver(wire.window(V2, 2000))
    for at in range(0, 2000, 100):
        some = b"".join(frames[at : at + 100])  # whole, for as long as a read takes
        for begin in range(0, len(some), 1448):
            reader.clock.advance(1448 / 32_000)
            reader.deliver(some[begin : begin + 1448])
    assert [batch.count for batch in reader.journal.submitted] == [2000]


@pytest.mark.parametrize("rest", [part(3)[6:-1], b"2C\0\0\1\0"])
def test_a_frame_that_has_begun_is_no_pause(reader, rest):
    """The network gives up who does not go on with it; nothing of that is stored."""
    reader.deliver(part(1, 2) + rest)
    reader.clock.pump([1.0] * 40)
    assert not reader.journal.submitted
    assert reader.connection.held_bytes > 0
    reader.connection.lose()
    assert not reader.journal.submitted


def test_whoever_is_not_read_makes_no_pause(reader):
    """What it has sent may lie in its socket, or with us."""
    reader.deliver(part(1))
    reader.connection.unread_input = True
    reader.clock.advance(5)
    assert not reader.journal.submitted
    reader.connection.unread_input = False
    reader.journal.full = True
    reader.deliver(b"")
    reader.clock.advance(5)
    assert not reader.journal.submitted
    reader.journal.full = False
    reader.clock.advance(1)
    assert [batch.count for batch in reader.journal.submitted] == [1]


def test_who_goes_on_before_its_turn(reader):
    """The next frame is stored with what came before it."""
    reader.deliver(part(1))
    reader.connection.stepwise = True
    reader.clock.advance(1)
    assert reader.connection.turn_due
    assert not reader.journal.submitted
    reader.server.received(part(2)[6:])
    assert not reader.journal.submitted
    reader.clock.advance(1)
    reader.connection.take_turn()
    assert [batch.count for batch in reader.journal.submitted] == [2]


def test_a_pause_waits_for_its_turn(reader):
    """A thousand writers that pause at once cost a thousand turns, not one long one."""
    connections = [reader.connect()[0] for _ in range(1000)]
    for connection in connections:
        connection.stepwise = True
        connection.deliver(part(1))
    reader.clock.advance(1)
    assert not reader.journal.submitted
    for count, connection in enumerate(connections, 1):
        connection.take_turn()
        assert len(reader.journal.submitted) == count


@pytest.mark.parametrize(("how", "stored"), [("lose", [2]), ("drain", [2, 1])])
def test_a_line_that_is_cut_leaves_what_was_acknowledged(reader, how, stored):
    """Of what came since the last acknowledgement nothing is stored, unless we stop; what
    was is counted.
    """
    figures = reader.figures
    reader.deliver(part(1, 2))
    reader.clock.advance(1)
    reader.deliver(part(3)[6:])
    getattr(reader.connection, how)()
    reader.clock.advance(10)
    assert [batch.count for batch in reader.journal.submitted] == stored
    assert figures.cut_events == sum(stored)
    assert figures.parts == len(stored)


def test_whole_windows_are_no_parts(reader):
    """Who sends what it announced sees no pause, and is not counted."""
    for piece in (window(1, 2)[:9], window(1, 2)[9:], window(1)):
        reader.deliver(piece)
        reader.clock.advance(2)
    reader.connection.lose()
    assert [batch.count for batch in reader.journal.submitted] == [2, 1]
    assert (reader.figures.parts, reader.figures.cut_events) == (0, 0)


def test_idle_windows_may_not_flood(make_reader):
    """`W` again, of a window of which nothing came, is no fault; without end it is."""
    reader = make_reader(control_messages=100)
    reader.deliver(part(1, 2, of=2) + wire.window(V1, 2) * 3)
    assert reader.connection.refused is None
    reader.journal.store()
    assert reader.sent == wire.ack(V1, 2)
    reader.deliver(wire.window(V1, 2) * 200)
    assert reader.connection.refused.key == "limits.control_messages"


def test_a_large_frame_waits_for_the_disk(make_reader):
    """No more of its pieces is made than may be unacknowledged; a v2 writer hears of each."""
    reader = make_reader(inflated_bytes=1 << 20, unacknowledged_bytes=200_000)
    chance = random.Random(1)
    bodies = [b'{"n":"%x"}' % chance.getrandbits(4000) for _ in range(6000)]
    frames = b"".join(wire.json(V2, n, body) for n, body in enumerate(bodies, 1))
    reader.deliver(wire.window(V2, 6000) + wire.compressed(V2, frames))
    assert len(reader.journal.pending) < 6
    assert reader.connection.paused
    while reader.journal.pending:
        assert reader.server.unacknowledged_bytes < 500_000
        reader.journal.store()
    rows = [decode(each.batch.body) for each in reader.journal.stored]
    assert [payload for row in rows for payload in row.each()] == bodies
    acks = [wire.ack(V2, (row.seqs or [0])[-1]) for row in rows]
    assert reader.sent == b"".join(acks)
    assert reader.connection.held_bytes == 0
