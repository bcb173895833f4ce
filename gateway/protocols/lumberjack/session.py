"""The reader's side of a Lumberjack connection, without I/O: makes batches of windows.

A window is complete with its last event, or, if its last events came compressed, with
the end of that compressed frame, whose checksum covers them.  Its acknowledgement has
the version of its `W` and the sequence number of the last event in it, whatever that
number is: writers may start anywhere, jump, and roll over.

A window is one batch.  Windows that are complete with the same compressed frame are one
batch together, so that the frame is stored once for all of them.  So are *tiny* windows
that arrive together, as a batch for each would take several times as much on disk; they
have no number, so that it is not seen in the events how they arrived.

An event outside any window is *loose*.  Adjacent loose events make one batch, and each
of them is acknowledged, as if it were a window of its own.

What all of it costs is counted (`gateway.protocols.turn`).  No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from gateway.interfaces import Refusal
from gateway.protocols.batches import Ready
from gateway.protocols.lumberjack import events, wire
from gateway.protocols.lumberjack.wire import (
    Array,
    Compressed,
    Frames,
    Inflated,
    Limits,
    Window,
)
from gateway.protocols.turn import BYTE, EVENT, FRAME, REPLY

__all__ = ["Limits", "Session"]

#: Work is reported at least this often, in units of `turn`.
_STEP = 250.0
_PAIR = 0.5
_INFLATER = 20.0
"""A compressed frame, whatever is in it."""
_ARRAY_BYTE = 0.002
_COMMA = 0.1

#: A window that is stored in fewer bytes is tiny; and one that has part of a compressed
#: frame, in fewer than the second.
_TINY, _TINY_PARTS = 14, 128
#: Of so many events in a compressed frame the sizes are worth keeping.
_MANY = 64
#: So many bytes of tiny windows are one batch.
_TOGETHER = 1 << 14


class _Open(Struct, eq=False):
    """A window, or a run of loose events, that is still arriving."""

    version: int
    id: int
    left: int
    """Frames that are still to come; 0 if these are loose events."""
    within: bool = False
    """It has frames in the compressed frame that is arriving, …"""
    inside: int = 0
    """… and so many events."""
    count: int = 0
    size: int = 0
    """Bytes of its frames, inflated."""
    payload_bytes: int = 0
    acks: list[bytes] = []
    held: int = 0
    parts: bool = False
    """It has only some of the events of a compressed frame."""
    pieces: list[bytes] = []
    """What is stored of it; without the compressed frame that is arriving."""

    def hold(self, piece: bytes) -> None:
        self.held += len(piece)
        self.pieces.append(piece)

    def settle(self, frame: bytes, skip: int, of: int) -> None:
        """Keep its part of the compressed frame, which has *of* events."""
        if self.inside:
            if self.inside < of:
                self.parts = True
                self.hold(events.part(skip, self.inside))
            self.hold(frame)
        self.inside = 0
        self.within = False

    @property
    def tiny(self) -> bool:
        """It is complete, and small enough to share its batch."""
        return 0 < self.held < (_TINY_PARTS if self.parts else _TINY)

    def join(self, other: _Open) -> None:
        """*other* is stored, and acknowledged, in the same batch."""
        self.id = self.id or other.id
        self.count += other.count
        self.inside += other.inside
        self.payload_bytes += other.payload_bytes
        self.acks += other.acks
        self.held += other.held
        self.pieces += other.pieces


def _worth_sizes(token: Compressed, count: int) -> bool:
    """They are known, save more than they cost, and are less than what they are of."""
    return token.sizes is not None and _MANY <= count <= len(token.frame) // 2


class Session:
    """One connection's side of the protocol.  Raises `Refusal` only."""

    __slots__ = ("_control", "_cost", "_decoder", "_done", "_ended", "_inside",
                 "_limits", "_loose", "_tiny", "_window", "_windows")  # fmt: skip

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._decoder = wire.Decoder(limits)
        self._windows = 0
        self._window: _Open | None = None
        self._loose: _Open | None = None
        self._tiny: _Open | None = None
        """Tiny windows that are complete, for one batch."""
        self._done: list[Ready] = []
        self._cost = 0.0
        self._control = 0
        """Both of what was not reported yet."""
        # Of the compressed frame that is arriving:
        self._ended: _Open | None = None  # the windows that are complete with it
        self._inside = 0  # events, and windows without any

    @property
    def held_bytes(self) -> int:
        """How many bytes are buffered for windows that are not complete."""
        held = self._decoder.held_bytes
        for one in (self._window, self._loose, self._ended, self._tiny):
            if one is not None:
                held += one.held
        return held

    @property
    def arriving(self) -> int | None:
        """Version of the window that is still arriving; None if there is none."""
        return None if self._window is None else self._window.version

    def received(self, data: bytes) -> Iterator[Ready]:
        """Take bytes of the stream, in any slicing; yields the windows they complete.

        In between it reports its cost.  A `Refusal` is raised after the windows that were
        complete before its cause.
        """
        decoder = self._decoder
        inflated_bytes = self._limits.inflated_bytes
        decoder.feed(data)
        del data  # it is to be free once it was read
        while True:
            try:
                window = self._window
                if window is None:
                    token = decoder.next(1, inflated_bytes)
                else:
                    token = decoder.next(window.left, self._budget(window))
                if token is not None:
                    self._take(token)
            except Refusal:
                self._close_loose()
                self._close_tiny()
                if self._done:
                    yield from self._complete()
                raise
            if token is None:
                break
            if self._done or self._cost >= _STEP or isinstance(token, Inflated):
                decoder.release()
                yield from self._complete()
        if self._loose is not None and not self._loose.within:
            self._close_loose()
        self._close_tiny()
        if self._done:
            yield from self._complete()

    def _budget(self, window: _Open) -> int:
        """How many bytes of frames *window* may still have."""
        limits = self._limits
        if self._decoder.inside:
            return min(limits.inflated_bytes, limits.window_bytes - window.size)
        return limits.inflated_bytes - window.held

    def _complete(self) -> list[Ready]:
        done, self._done = self._done or [Ready()], []
        decoder = self._decoder
        done[0].cost = self._cost + decoder.inflating
        decoder.inflating = 0.0
        self._cost = 0.0
        done[0].control, self._control = self._control, 0
        return done

    def _take(self, token: wire.Token) -> None:
        self._cost += FRAME
        if isinstance(token, Frames):
            self._cost += _PAIR * token.pairs
            self._events(token, token.count, token.size, token.frames)
        elif isinstance(token, Window):
            self._announced(token)
        elif isinstance(token, Compressed):
            self._compressed(token)
        elif isinstance(token, Array):
            self._array(token)

    def _announced(self, token: Window) -> None:
        window = self._window
        if window is not None:
            raise Refusal(f"new window with {window.left} events of the last missing")
        if token.size > self._limits.window_events:
            raise Refusal(
                f"window of {token.size} events",
                limit=self._limits.window_events,
                key="options.window_events",
            )
        self._close_loose()
        self._cost += REPLY
        if token.size:
            self._window = self._open(token.version, token.size)
            return
        self._control += 1
        empty = _Open(token.version, 0, 0)
        empty.acks.append(wire.ack(token.version, 0))
        empty.within = token.inside
        if token.inside:
            self._count_inside(1)
        self._end(empty)

    def _open(self, version: int, left: int) -> _Open:
        self._windows += 1
        return _Open(version, self._windows, left)

    def _array(self, token: Array) -> None:
        """One frame with as many events as `decode` will make of it."""
        body = token.body
        found = events.elements(body, message_bytes=self._limits.message_bytes)
        size = len(token.frames)
        self._cost += _ARRAY_BYTE * size + _COMMA * token.frames.count(b",")
        self._control += found is not None and not found
        frames = None if self._decoder.inside else token.frames
        self._events(token, 1 if found is None else len(found), size, frames)

    def _events(
        self, token: Frames | Array, count: int, size: int, frames: bytes | None
    ) -> None:
        """Take *count* events; *frames* is None if they are in the compressed frame."""
        one = self._current(token.version)
        taken = token.count if isinstance(token, Frames) else 1
        self._cost += EVENT * count
        one.size += size
        one.count += count
        one.payload_bytes += size - 10 * taken
        if frames is None:
            one.inside += count
            self._count_inside(max(count, taken))
        else:
            self._cost += BYTE * size
            if count:
                one.hold(frames)
        self._check(one)
        if one is self._loose:
            self._cost += REPLY
            one.acks.append(wire.ack(token.version, token.seq))
            return
        one.left -= taken
        if not one.left:
            one.acks.append(wire.ack(one.version, token.seq))
            self._window = None
            self._end(one)

    def _current(self, version: int) -> _Open:
        """The window, or the run of loose events, that the next event belongs to."""
        inside = self._decoder.inside
        loose = self._loose
        if loose is not None and (
            loose.version != version
            or loose.size > self._limits.message_bytes
            or loose.within != inside
        ):
            self._close_loose()
        one = self._window or self._loose
        if one is None:
            one = self._loose = self._open(version, 0)
        one.within = inside
        return one

    def _close_loose(self) -> None:
        """End the run of loose events."""
        loose, self._loose = self._loose, None
        if loose is not None:
            self._end(loose)

    def _count_inside(self, count: int) -> None:
        self._inside += count
        if self._inside > self._limits.window_events:
            raise Refusal(
                f"{self._inside} events in one compressed frame",
                limit=self._limits.window_events,
                key="options.window_events",
            )

    def _check(self, one: _Open) -> None:
        limits = self._limits
        if one.count > limits.window_events and one is not self._loose:
            raise Refusal(
                f"window of {one.count} events, those of arrays included",
                limit=limits.window_events,
                key="options.window_events",
            )
        if one.held > limits.inflated_bytes or one.size > limits.window_bytes:
            raise Refusal(
                f"window of {one.size} bytes or more, of which {one.held} are kept",
                limit=limits.inflated_bytes,
                key="limits.inflated_bytes",
            )

    def _end(self, one: _Open) -> None:
        """All events of *one* are here: complete, unless its compressed frame is not."""
        if not one.within:
            self._finish(one)
        elif self._ended is None:
            self._ended = one
        else:
            self._ended.join(one)

    def _compressed(self, token: Compressed) -> None:
        """A compressed frame was verified: windows that end in it are complete now."""
        self._close_loose()
        ended, self._ended = self._ended, None
        window = self._window
        self._cost += _INFLATER
        self._control += not self._inside
        self._inside = 0
        ends = 0 if ended is None else ended.inside
        goes_on = 0 if window is None else window.inside
        if window is not None:
            window.settle(token.frame, ends, ends + goes_on)
            self._check(window)
        if ended is not None:
            if not ended.pieces and not goes_on and _worth_sizes(token, ends):
                assert token.sizes is not None
                ended.hold(events.sized(token.sizes))
            ended.settle(token.frame, 0, ends + goes_on)
            self._finish(ended)

    def _finish(self, one: _Open) -> None:
        tiny = self._tiny
        if one.tiny:
            one.id = 0
            if tiny is None or tiny.version != one.version or tiny.held > _TOGETHER:
                self._close_tiny()
                self._tiny = one
            else:
                tiny.join(one)
            return
        self._close_tiny()
        self._store(one)

    def _close_tiny(self) -> None:
        """End the run of tiny windows."""
        tiny, self._tiny = self._tiny, None
        if tiny is not None:
            self._store(tiny)

    def _store(self, one: _Open) -> None:
        ready = Ready(one.count, ack=b"".join(one.acks), cost=0.0)
        if one.count:
            head = events.pack(one.version, one.id, self._limits.message_bytes)
            ready.body = b"".join((head, *one.pieces))
            ready.payload_bytes = one.payload_bytes
        self._done.append(ready)
