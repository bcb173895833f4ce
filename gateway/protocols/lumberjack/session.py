"""The reader's side of a Lumberjack connection, without I/O: makes batches of windows.

A `W` announces the most that its writer will send without an acknowledgement, not what it
must.  A window is complete with its last event, or with a new `W`; if its last events came
compressed, with the end of that compressed frame, whose checksum covers them.

A window's acknowledgement has the version of its `W` and the sequence number of its last
event, whatever that is: writers may start anywhere, jump, and roll over.  Only in v2 it is
never 0, which is the keepalive: then it is the last number that is not, or else the number
of events.

An incomplete window is stored if its frames come one by one (`pause`), if the reader stops
(`stop`), or if it is too much to be held (*a part*).  Its last number acknowledges it.  The rest of the window is then as a window of its own.

A window is one batch.  The contents of a compressed frame that are too many for one are cut
into batches (`pieces`), the last of which has the acknowledgement.  Windows that are
complete with the same compressed frame are one batch together, so that the frame is stored
once.  So are *tiny* windows that arrive together, as a batch for each would take several
times as much on disk.  They have no number: events do not show how they arrived.

An event outside any window is *loose*.  Adjacent loose events make one batch, and each
of them is acknowledged, as if it were a window of its own.

The cost of all this is counted (`gateway.sdk.costs`).  No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import Struct

from gateway.protocols.lumberjack import events, wire
from gateway.protocols.lumberjack.frames import (
    Array,
    Compressed,
    Frames,
    Limits,
    NoRoom,
    Window,
)
from gateway.protocols.lumberjack.pieces import Cutter, Piece
from gateway.protocols.lumberjack.wire import Inflated
from gateway.sdk.batches import Ready
from gateway.sdk.costs import BYTE, EVENT, FRAME, REPLY
from gateway.sdk.interfaces import Refusal

_V2 = b"2"[0]

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
_LEAST_MEASURED_FRAMES = 64
#: So many bytes of tiny windows are one batch.
_TOGETHER_BYTES = 1 << 14


@dataclass(slots=True)
class Figures:
    """Counts of the sessions of all listeners."""

    parts: int = 0
    """Parts of windows that were stored before the rest came, or without it."""
    cut_events: int = 0
    """Events that were stored as parts of windows whose rest never came: a writer that
    keeps no account of parts sends them again, if it sends anything again."""


class _Open(Struct, eq=False):
    """A window, or a run of loose events, that is still arriving.

    19 attributes: the sums that its limits and its acknowledgement are made of.
    """

    version: int
    id: int
    of: int
    """Frames that its `W` announced; 0 if these are loose events."""
    left: int
    """Frames that may still come."""
    stored: int = 0
    """Events of parts of it that were stored before."""
    came: bool = False
    """A frame of it is here."""
    seq: int = 0
    """The sequence number of its last frame that is here."""
    not_zero: int = 0
    """The last sequence number that is not 0, those of its parts included."""
    within: bool = False
    """Whether it has frames in the compressed frame that is arriving."""
    inside: int = 0
    """Events in that compressed frame."""
    inside_size: int = 0
    """The part of `size` that is inside the compressed frame."""
    inside_payload_bytes: int = 0
    """The part of `payload_bytes` that is inside the compressed frame."""
    count: int = 0
    size: int = 0
    """Bytes of its frames, inflated."""
    payload_bytes: int = 0
    acks: list[bytes] = []
    held: int = 0
    parts: bool = False
    """Whether it has only some of the events of a compressed frame."""
    pieces: list[bytes] = []
    """Pieces to store, without the compressed frame that is arriving."""

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
        self.inside = self.inside_size = self.inside_payload_bytes = 0
        self.within = False

    def acknowledge(self, seq: int) -> None:
        """All that is here is to be acknowledged; *seq* is the last number."""
        if not seq and self.version == _V2:
            seq = self.not_zero or self.of - self.left or 1
        self.acks.append(wire.ack(self.version, seq))

    def join(self, other: _Open) -> None:
        """*other* is stored, and acknowledged, in the same batch."""
        self.id = self.id or other.id
        self.count += other.count
        self.size += other.size
        self.inside += other.inside
        self.inside_size += other.inside_size
        self.inside_payload_bytes += other.inside_payload_bytes
        self.payload_bytes += other.payload_bytes
        self.acks += other.acks
        self.held += other.held
        self.pieces += other.pieces


class Session:
    """One connection's side of the protocol.  Raises `Refusal` only.

    31 methods: a frame may come in parts, compressed, in others or cut short, at any place.
    """

    __slots__ = ("_control", "_cost", "_cutting", "_decoder", "_done",
                 "_ended", "_figures", "_inside", "_large", "_limits", "_loose",
                 "_tiny", "_window", "_windows", "may_pause")  # fmt: skip

    def __init__(self, limits: Limits, figures: Figures | None = None) -> None:
        self._limits = limits
        self._figures = figures or Figures()
        self.may_pause = False
        """Part of a window is here, and nothing of a frame; as of the end of `received`."""
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
        self._large: tuple[Compressed, _Open | None, _Open | None] | None = None
        """A compressed frame to be cut, what ended with it, and what goes on."""
        self._cutting: tuple[Cutter, _Open] | None = None

    @property
    def held_bytes(self) -> int:
        """How many bytes are buffered for windows that are not complete."""
        held = self._decoder.held_bytes
        if self._cutting is not None:
            held += self._cutting[0].held_bytes
        for one in (self._window, self._loose, self._ended, self._tiny):
            if one is not None:
                held += one.held
        return held

    @property
    def arriving(self) -> int | None:
        """Version of the window that is still arriving; None if there is none."""
        return None if self._window is None else self._window.version

    @property
    def between(self) -> bool:
        """No window, and no `C`, has begun and not ended, in what was looked at."""
        return self._window is None and self._decoder.inflation is None

    @property
    def part(self) -> int:
        """The number of the window, or of the rest of one, of which frames are here that are
        not stored; 0: there are none.
        """
        window = self._window
        return window.id if window is not None and window.came else 0

    def pause(self) -> Iterator[Ready]:
        """Yields what `may_pause` says is here."""
        if self.may_pause:
            yield from self.stop()

    def stop(self) -> Iterator[Ready]:
        """Yields what is whole of the window, though a frame may have begun.

        Of one that has events in a `C` that is not whole there is nothing.
        """
        self.may_pause = False
        window = self._window
        if window is not None and window.came and not window.within:
            self._part()
            self._close_tiny()
            yield from self._complete()

    def end(self) -> None:
        """Nothing more comes."""
        if self._cutting is not None:
            self._figures.cut_events += self._cutting[1].stored
        elif self._window is not None:
            self._figures.cut_events += self._window.stored

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
                elif decoder.inflation is not None:
                    token = decoder.next(window.left, inflated_bytes)
                else:
                    token = decoder.next(window.left, inflated_bytes - window.held)
                if token is not None:
                    self._take(token)
            except NoRoom:
                self._part()
                continue
            except Refusal:
                self._close_loose()
                self._close_tiny()
                if self._done:
                    yield from self._complete()
                raise
            if token is None:
                break
            if self._large is not None:
                yield from self._in_pieces(*self._large)
            if self._done or self._cost >= _STEP or isinstance(token, Inflated):
                decoder.release()
                yield from self._complete()
        if self._loose is not None and not self._loose.within:
            self._close_loose()
        if self._tiny is not None:
            self._close_tiny()
        window = self._window
        self.may_pause = window is not None and window.came and decoder.between
        if self._done:
            yield from self._complete()

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
        if token.number > self._limits.window_events:
            raise Refusal(
                f"window of {token.number} events",
                limit=self._limits.window_events,
                key="options.window_events",
            )
        window, self._window = self._window, None
        if window is not None:
            self._cut_short(window)
        if self._loose is not None:
            self._close_loose()
        self._cost += REPLY
        if token.number:
            self._window = self._open(token.version, token.number)
            return
        # It brings nothing, and is answered after what came before it.
        self._control += 1
        empty = _Open(token.version, 0, 0, 0)
        empty.acks.append(wire.ack(token.version, 0))
        empty.within = token.inside
        if token.inside:
            self._count_inside(1)
        self._end(empty)

    def _cut_short(self, window: _Open) -> None:
        """End *window*, although it may have more."""
        if window.came:
            window.acknowledge(window.seq)
            self._figures.parts += 1
            self._end(window)
        else:
            self._control += 1

    def _part(self) -> None:
        """Store what is here of the window; what follows is another batch."""
        window = self._window
        assert window is not None
        self._window = self._rest(window)
        window.acknowledge(window.seq)
        self._finish(window)

    def _rest(self, window: _Open) -> _Open:
        """The window of the events still to come, after all that is here was stored as a part."""
        self._figures.parts += 1
        rest = self._open(window.version, window.of)
        rest.left = window.left
        rest.stored = window.stored + window.count
        rest.not_zero = window.not_zero
        return rest

    def _open(self, version: int, of: int) -> _Open:
        self._windows += 1
        return _Open(version, self._windows, of, of)

    def _array(self, token: Array) -> None:
        """One frame with as many events as `decode` will make of it."""
        body = token.body
        found = events.elements(body, message_bytes=self._limits.message_bytes)
        size = len(token.frames)
        self._cost += _ARRAY_BYTE * size + _COMMA * token.frames.count(b",")
        self._control += found is not None and not found
        frames = token.frames if self._decoder.inflation is None else None
        self._events(token, 1 if found is None else len(found), size, frames)

    def _events(
        self, token: Frames | Array, count: int, size: int, frames: bytes | None
    ) -> None:
        """Take *count* events; *frames* is None if they are in the compressed frame."""
        one = self._current(token.version)
        taken = token.count if isinstance(token, Frames) else 1
        self._cost += EVENT * count
        payload_bytes = size - 10 * taken
        one.size += size
        one.count += count
        one.payload_bytes += payload_bytes
        if frames is None:
            one.inside += count
            one.inside_size += size
            one.inside_payload_bytes += payload_bytes
            self._count_inside(max(count, taken))
        else:
            self._cost += BYTE * size
            if count:
                one.hold(frames)
        one.came = True
        one.seq = token.seq
        if one is self._loose:
            self._cost += REPLY
            one.acknowledge(token.seq)
            return
        limit = self._limits.window_events
        if one.count > limit:
            raise Refusal(
                f"window of {one.count} events, those of arrays included",
                limit=limit,
                key="options.window_events",
            )
        one.not_zero = token.not_zero or one.not_zero
        one.left -= taken
        if not one.left:
            one.acknowledge(token.seq)
            self._window = None
            self._end(one)
        elif frames is not None and self._is_much(one):
            self._part()

    def _current(self, version: int) -> _Open:
        """The window, or the run of loose events, that the next event belongs to."""
        inside = self._decoder.inflation is not None
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

    def _is_much(self, one: _Open) -> bool:
        limits = self._limits
        return one.held >= limits.piece_bytes or one.size >= limits.inflated_bytes

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
        if self._loose is not None:
            self._close_loose()
        ended, self._ended = self._ended, None
        window = self._window
        self._cost += _INFLATER
        self._control += not self._inside
        self._inside = 0
        ends = 0 if ended is None else ended.inside
        goes_on = 0 if window is None else window.inside
        # What was here before is less than `inflated_bytes`: see `_is_much`.
        if token.inflated > self._limits.inflated_bytes and (first := ended or window):
            before = first.size - first.inside_size
            if before + token.inflated > self._limits.batch_bytes:
                self._large = token, ended, window
                return
        if window is not None:
            window.settle(token.frame, ends, ends + goes_on)
        if ended is not None:
            # Sizes save more than they cost, and are less than the frame.
            alone = None if ended.pieces or goes_on else token.sizes
            if alone and _LEAST_MEASURED_FRAMES <= ends <= len(token.frame) // 2:
                ended.hold(events.sized(alone))
            ended.settle(token.frame, 0, ends + goes_on)
            self._finish(ended)
        if window is not None and self._is_much(window):
            self._part()

    def _in_pieces(
        self, token: Compressed, ended: _Open | None, window: _Open | None
    ) -> Iterator[Ready]:
        """Store a large compressed frame: what ended with it, and what goes on."""
        self._large = None
        if ended is not None and not ended.inside:
            self._finish(ended)
        self._close_tiny()
        yield from self._complete()
        owners = [one for one in (ended, window) if one is not None and one.inside]
        cutter = Cutter(token.frame, [one.inside for one in owners], self._limits)
        pieces = iter(cutter)
        for one in owners:
            self._cutting = cutter, one
            self._store_before(one)
            while one.inside:
                found = next(pieces)
                if isinstance(found, Piece):
                    self._store_piece(one, found)
                else:
                    self._cost += found
                yield from self._complete()
        self._cutting = None
        if window is not None:
            if window in owners:
                self._window = self._rest(window)
            window.settle(token.frame, 0, 0)

    def _store_before(self, one: _Open) -> None:
        """Store the events from before the compressed frame as a batch of their own."""
        count = one.count - one.inside
        if count:
            payload_bytes = one.payload_bytes - one.inside_payload_bytes
            body = self._body(one, one.pieces)
            self._done.append(Ready(count, body, payload_bytes, cost=0.0))
            one.stored += count
            one.count = one.inside
        one.pieces = []
        one.held = 0

    def _store_piece(self, one: _Open, piece: Piece) -> None:
        """All of *one* is acknowledged with its last piece.

        Before that a v2 writer of one window hears how far we are; one of v1 might take
        that for all.
        """
        one.inside -= piece.count
        one.count -= piece.count
        one.stored += piece.count
        ack = b""
        if one.acks and not one.inside:
            ack = b"".join(one.acks)
        else:
            self._figures.parts += one.inside > 0
            if one.version == _V2 and piece.not_zero and len(one.acks) < 2:
                ack = wire.ack(_V2, piece.not_zero)
        body = self._body(one, [piece.frame])
        self._done.append(Ready(piece.count, body, piece.payload_bytes, ack, 0.0))

    def _finish(self, one: _Open) -> None:
        tiny = self._tiny
        # Small enough to share its batch.
        if 0 < one.held < (_TINY_PARTS if one.parts else _TINY):
            one.id = 0
            if (
                tiny is None
                or tiny.version != one.version
                or tiny.held > _TOGETHER_BYTES
            ):
                self._close_tiny()
                self._tiny = one
            else:
                tiny.join(one)
            return
        if self._tiny is not None:
            self._close_tiny()
        self._store(one)

    def _close_tiny(self) -> None:
        """End the run of tiny windows."""
        tiny, self._tiny = self._tiny, None
        if tiny is not None:
            self._store(tiny)

    def _store(self, one: _Open) -> None:
        count, ack = one.count, b"".join(one.acks)
        if count:
            body = self._body(one, one.pieces)
            self._done.append(Ready(count, body, one.payload_bytes, ack, 0.0))
        else:
            self._done.append(Ready(ack=ack, cost=0.0))

    def _body(self, one: _Open, pieces: list[bytes]) -> bytes:
        head = events.pack(one.version, one.id, self._limits.message_bytes)
        return b"".join((head, *pieces))
