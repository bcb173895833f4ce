"""The reader's side of a Lumberjack connection, without I/O: makes batches of windows.

A window is one batch.  It is complete with its last event, or, if its last events came
compressed, with the end of that compressed frame, whose checksum covers them.  Its
acknowledgement has the version of its `W` and the sequence number of the last event in
it, whatever that number is: writers may start anywhere, jump, and roll over.

An event outside any window is *loose*.  Adjacent loose events make one batch, and each
of them is acknowledged, as if it were a window of its own.

No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.interfaces import Refusal
from gateway.protocols.batches import Ready
from gateway.protocols.lumberjack import events, wire
from gateway.protocols.lumberjack.wire import Array, Compressed, Frames, Limits, Window

__all__ = ["Limits", "Session"]


class _Open:
    """A window, or a run of loose events, that is still arriving."""

    __slots__ = ("acks", "count", "held", "id", "inside", "left", "payload_bytes",
                 "pieces", "size", "spare", "version")  # fmt: skip

    def __init__(self, version: int, window: int, left: int, spare: int) -> None:
        self.version = version
        self.id = window
        self.left = left
        """Frames that are still to come; 0 if these are loose events."""
        self.spare = spare
        """How many more events than frames arrays may still make of it."""
        self.inside = False
        """It has events in the compressed frame that is arriving."""
        self.count = 0
        self.size = 0
        """Bytes of its frames, inflated."""
        self.payload_bytes = 0
        self.acks: list[bytes] = []
        self.held = 0
        self.pieces: list[bytes | slice] = []
        """Its frames; those in the compressed frame that is arriving only as their place
        in it."""

    def hold(self, piece: bytes) -> None:
        self.held += len(piece)
        self.pieces.append(piece)

    def settle(self, piece: bytes) -> None:
        """Keep the compressed frame *piece* as it came: it is this window's alone."""
        self.pieces = [kept for kept in self.pieces if isinstance(kept, bytes)]
        self.hold(piece)

    def resolve(self, inflated: bytes) -> None:
        """Cut this window's frames out of a compressed frame that others share."""
        pieces, self.pieces, self.held = self.pieces, [], 0
        for piece in pieces:
            self.hold(piece if isinstance(piece, bytes) else inflated[piece])


class Session:
    """One connection's side of the protocol.  Raises `Refusal` only."""

    __slots__ = ("_decoder", "_done", "_frames", "_limits", "_loose", "_shared",
                 "_touched", "_window", "_windows")  # fmt: skip

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._decoder = wire.Decoder(limits)
        self._windows = 0
        self._window: _Open | None = None
        self._loose: _Open | None = None
        self._done: list[Ready] = []
        # Of the compressed frame that is arriving:
        self._touched: list[_Open | Ready] = []  # windows with events in it, in order
        self._shared = False  # it can not be stored as it came
        self._frames = 0

    @property
    def held_bytes(self) -> int:
        """How many bytes are buffered for windows that are not complete."""
        held = self._decoder.held_bytes
        for one in self._touched:
            held += one.held if isinstance(one, _Open) else 0
        window = self._window
        return held if window is None or window.inside else held + window.held

    @property
    def arriving(self) -> int | None:
        """Version of the window that is still arriving; None if there is none."""
        return None if self._window is None else self._window.version

    def received(self, data: bytes) -> Iterator[Ready]:
        """Take bytes of the stream, in any slicing; yields the windows they complete.

        A `Refusal` is raised after the windows that were complete before its cause.
        """
        limits, decoder = self._limits, self._decoder
        decoder.feed(data)
        while True:
            window = self._window
            try:
                if window is None:
                    token = decoder.next(1, limits.inflated_bytes)
                else:
                    budget = limits.inflated_bytes - window.size
                    token = decoder.next(window.left, budget)
                if token is not None:
                    self._take(token)
            except Refusal:
                self._close_loose()
                yield from self._complete()
                raise
            if token is None:
                break
            if self._done:
                yield from self._complete()
        if self._loose is not None and not self._loose.inside:
            self._close_loose()
            yield from self._complete()

    def _complete(self) -> Iterator[Ready]:
        done, self._done = self._done, []
        return iter(done)

    def _take(self, token: wire.Token) -> None:
        if isinstance(token, Frames):
            self._events(token, token.count, token.frames)
        elif isinstance(token, Window):
            self._announced(token)
        elif isinstance(token, Compressed):
            self._ended(token)
        else:
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
        if token.inside:
            self._shared = True
        if token.size:
            self._window = self._open(token.version, token.size)
            return
        nothing = Ready(ack=wire.ack(token.version, 0))
        if token.inside:
            self._count_inside(1)
            self._touched.append(nothing)
        else:
            self._done.append(nothing)

    def _open(self, version: int, left: int) -> _Open:
        self._windows += 1
        return _Open(version, self._windows, left, self._limits.window_events)

    def _array(self, token: Array) -> None:
        """Split an array into events, or take it as one."""
        one = self._current(token.version)
        found = events.elements(
            token.body, message_bytes=self._limits.message_bytes, most=one.spare + 1
        )
        if found is None:
            self._events(token, 1, None if one.inside else token.frames)
            return
        one.spare -= max(0, len(found) - 1)
        if one.inside:
            self._shared = True
        split = b"".join(wire.json(token.version, token.seq, each) for each in found)
        self._events(token, len(found), split)

    def _events(self, token: Frames | Array, count: int, frames: bytes | None) -> None:
        """Take *count* events; *frames* is None if they are in the compressed frame."""
        one = self._current(token.version)
        size = token.stop - token.start
        taken = token.count if isinstance(token, Frames) else 1
        if one.inside:
            self._count_inside(taken)
        one.size += size
        one.count += count
        one.payload_bytes += size - 10 * taken
        if frames is None:
            one.pieces.append(slice(token.start, token.stop))
        else:
            one.hold(frames)
        self._check(one)
        if one is self._loose:
            one.acks.append(wire.ack(token.version, token.seq))
            return
        one.left -= taken
        if not one.left:
            one.acks.append(wire.ack(one.version, token.seq))
            self._window = None
            if not self._decoder.inside:
                self._finish(one)

    def _current(self, version: int) -> _Open:
        """The window, or the run of loose events, that the next event belongs to."""
        inside = self._decoder.inside
        loose = self._loose
        if loose is not None and (
            loose.version != version
            or loose.size > self._limits.message_bytes
            or loose.inside != inside
        ):
            self._close_loose()
        one = self._window or self._loose
        if one is None:
            one = self._loose = self._open(version, 0)
        if inside and not one.inside:
            one.inside = True
            self._touched.append(one)
        return one

    def _close_loose(self) -> None:
        """End the run of loose events: complete, unless its compressed frame is not."""
        loose, self._loose = self._loose, None
        if loose is not None and not loose.inside:
            self._finish(loose)

    def _count_inside(self, frames: int) -> None:
        self._frames += frames
        if self._frames > self._limits.window_events:
            raise Refusal(
                f"{self._frames} frames in one compressed frame",
                limit=self._limits.window_events,
                key="options.window_events",
            )

    def _check(self, one: _Open) -> None:
        size = max(one.size, one.held)
        if size > self._limits.inflated_bytes and self._window is one:
            raise Refusal(
                f"window of {size} bytes or more",
                limit=self._limits.inflated_bytes,
                key="limits.inflated_bytes",
            )

    def _ended(self, token: Compressed) -> None:
        """A compressed frame was verified: windows that end in it are complete now."""
        if self._loose is not None and self._loose.inside:
            self._loose = None
        touched, shared = self._touched, self._shared
        self._touched, self._shared, self._frames = [], False, 0
        opened = [one for one in touched if isinstance(one, _Open)]
        if len(opened) == 1 and not shared:
            opened[0].settle(token.frame)
        elif opened:
            inflated = wire.inflate(token.frame)
            for each in opened:
                each.resolve(inflated)
        for one in touched:
            if isinstance(one, Ready):
                self._done.append(one)
                continue
            one.inside = False
            if one is self._window:
                self._check(one)
            else:
                self._finish(one)

    def _finish(self, one: _Open) -> None:
        ready = Ready(one.count, ack=b"".join(one.acks))
        if one.count:
            head = events.pack(one.version, one.id, self._limits.message_bytes)
            pieces = [piece for piece in one.pieces if isinstance(piece, bytes)]
            ready.body = b"".join((head, *pieces))
            ready.payload_bytes = one.payload_bytes
        self._done.append(ready)
