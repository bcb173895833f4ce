"""Turns of the controller: frames that cost a client little delay nobody else for long."""

from typing import Any

import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import (
    DataFrame,
    Frame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from gateway.sdk.costs import Turn
from gateway.sdk.http2 import FrameCutter
from pravega_messages import new

AT_ONCE = 1 << 14
SCOPE = new("ScopeInfo", scope="x").SerializeToString()
_UNKNOWN = b"\0\0\0\xee\0\0\0\0\0"


def _bytes(frame: Frame) -> bytes:
    return bytes(frame.serialize())


def _flood(peer: Any, data: bytes) -> int:
    """Deliver turn by turn; how many there were."""
    connection = peer.connection
    connection.stepwise = True
    before = connection.turns
    connection.deliver(data)
    while connection.turn_due and not connection.closed:
        connection.take_turn()
    return int(connection.turns - before)


@pytest.mark.parametrize(
    "frame",
    [
        _bytes(SettingsFrame(0)),
        _bytes(PingFrame(0, b"12345678")),
        _bytes(DataFrame(1, b"")),
        _bytes(WindowUpdateFrame(0, 1)),
        _UNKNOWN,
    ],
    ids=["settings", "ping", "data", "window", "unknown"],
)
def test_frames_without_end(peer, frame):
    """They are taken some hundred a turn, and the client is told to calm down."""
    peer.begin("checkScopeExists")
    peer.exchange()
    turns = _flood(peer, frame * (AT_ONCE + 500))
    assert turns >= AT_ONCE // 500
    assert "control messages" in str(peer.connection.refused)
    peer.exchange()
    assert peer.goodbye.error_code == ErrorCodes.ENHANCE_YOUR_CALM


def test_rapid_reset(peer):
    """Calls that are reset at once are few in a turn, and too many in the end."""
    turns, data = 0, []
    for _ in range(AT_ONCE // 2 + 500):
        stream = peer.begin("checkScopeExists")
        data += [peer.output(), _bytes(RstStreamFrame(stream, 8))]
        peer.h2.reset_stream(stream)
        peer.output()
    turns = _flood(peer, b"".join(data))
    assert turns > AT_ONCE // 2 // 40
    assert "control messages" in str(peer.connection.refused)


def test_honest_calls_are_never_too_many(make_service):
    """Each brings what its frames, and a ping, need."""
    peer = make_service(control_messages=100).peer()
    for _ in range(200):
        peer.h2.ping(b"12345678")
        assert peer.send("checkScopeExists", SCOPE).status == 0
    assert peer.connection.refused is None


def test_calls_that_come_together_are_answered_in_turns(peer):
    streams = [peer.begin("checkScopeExists") for _ in range(100)]
    for stream in streams:
        body = b"\0" + len(SCOPE).to_bytes(4) + SCOPE
        peer.h2.send_data(stream, body, end_stream=True)
    assert _flood(peer, peer.output()) > 1
    peer.exchange()
    assert [peer.answers[stream].status for stream in streams] == [0] * 100


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_any_slicing_is_cut_between_the_same_frames(step):
    """Nothing is lost or held back for long."""
    stream = bytes(24) + b"".join(
        _bytes(DataFrame(1, bytes(size))) for size in range(200)
    )
    cutter, got, frames = FrameCutter(), b"", 0
    for at in range(0, len(stream), step):
        cutter.feed(stream[at : at + step])
        while cutter.unread:
            piece, begun = cutter.take(Turn())
            got += piece
            frames += begun
    assert got == stream
    assert frames == 200


def test_frames_are_refused_by_their_declared_length(peer):
    """Before anything of them is kept; GOAWAY says what it was."""
    peer.connection.deliver(b"\xff\xff\xff\0\0\0\0\0\1")
    why = peer.connection.refused
    assert (why.rule, why.limit) == ("HTTP/2: frame of 16777215 bytes", 1 << 14)
    assert why.reply.endswith((6).to_bytes(4))  # FRAME_SIZE_ERROR


def test_who_is_refused_holds_nothing(peer):
    """What was arriving is let go of."""
    stream = peer.begin("checkScopeExists")
    peer.h2.send_data(stream, b"\0\0\0\x10\0" + bytes(1000))
    peer.exchange()
    assert peer.connection.held_bytes == 1005
    peer.connection.deliver(_bytes(WindowUpdateFrame(0, 0)))
    assert peer.connection.refused is not None
    assert peer.connection.held_bytes == 0
