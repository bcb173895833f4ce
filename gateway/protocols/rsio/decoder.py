"""Incremental decoder: bytes, however they were cut, to messages and runs of elements.

Decoding depends on the table of streams: the onNext of a stream with a fixed size has
no length, and keeps that size after we cancelled the stream.  The decoder reads `size`
and `dropped` there, and counts `room` down, so that a run never has more elements than
were requested.

Elements are small and many, so consecutive ones of a stream are one `Run`: their
messages as they came, walked once, copied once, without an object for each element.
Packed elements are taken as they arrive, however many were announced.  Elements of
dropped streams are skipped without being buffered.

No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeAlias, cast

from attrs import define
from isal import isal_zlib

from gateway.protocols.rsio import wire
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import Code, Message
from gateway.protocols.rsio.streams import UNKNOWN, Consumed
from gateway.protocols.rsio.wire import Incomplete, read_varint
from gateway.sdk import native
from gateway.sdk.costs import BYTE, FRAME, Turn, inflating
from gateway.sdk.interfaces import Refusal

_ZlibError = cast("type[Exception]", isal_zlib.error)

_PRINTABLE = range(0x20, 0x7F)

ENDLESS = 1e18
"""The size of a turn that is never over."""

_WALKED = 0.2
"""The cost of an element whose message is walked (`turn`)."""
_BLOCK = 15.0
"""The cost of a block beside its bytes."""
_ANNOUNCED = 3.0
"""The cost of an onNextPacked beside its elements."""
_PACKED = 0.0625
"""The cost of an element that lies packed: a turn has at most 64 Ki of them."""

_DEFLATED_STEP = 1 << 14
_INFLATE_BYTES = 3 << 16
"""A block is inflated in steps, between which a turn may end: this is read, or made."""

_OCTET_SIGNALS = 4
"""Messages other than elements that a block may hold for each of its octets."""


def walk(
    buffer: bytes | bytearray, at: int, head: bytes, most: int, largest: int
) -> tuple[int, int, int]:
    """Walk adjacent onNext messages from *at* on, *most* of them, that have all arrived.

    They begin with *head*, and hold *largest* octets each at most.  Returns how many these
    are, the octets of their elements, and where they end.
    """
    starts, end = buffer.startswith, len(buffer)
    head_size, octets, left = len(head), 0, most
    while left and starts(head, at):
        place = at + head_size
        try:
            size = buffer[place]
            if size < 0x80:
                place += 1
            elif (high := buffer[place + 1]) < 0x80:
                size += (high << 7) - 0x80
                place += 2
            else:
                size, place = read_varint(buffer, place)
        except (IndexError, Incomplete, Refusal):
            break
        if size > largest or place + size > end:
            break
        at = place + size
        octets += size
        left -= 1
    return most - left, octets, at


class Streams(Protocol):
    """The streams that we consume, or have cancelled, by Id."""

    def get(self, number: int, /) -> Consumed | None:
        """None if we never used that Id."""


@define(eq=False)
class Run:
    """Consecutive whole elements of one stream."""

    stream: Consumed
    count: int
    octets: int
    """Bytes of the elements, without the messages around them."""
    messages: bytes
    """The onNext messages as they came, or one onNextPacked."""


@define(eq=False)
class Overrun:
    """The next element exceeds the demand: drop its stream, or end the connection."""

    stream: Consumed


@define(eq=False)
class Oversized:
    """The next element exceeds `limits.element_bytes`: drop its stream."""

    stream: Consumed
    size: int


Token: TypeAlias = Run | Overrun | Oversized | Message


class Decoder:
    """Call `feed`, then `next` until it gives None.  Raises only `Refusal`, and is unusable then.

    16 attributes: where it is in a message, an element and a compressed block.
    """

    __slots__ = ("_at", "_buffer", "_compressed", "_inflated", "_inflater", "_limits",
                 "_need", "_outer", "_packed", "_signals", "_skip", "_streams",
                 "control", "legal", "stopped", "turn")  # fmt: skip

    def __init__(self, streams: Streams, limits: Limits, legal: frozenset[int]) -> None:
        self.legal = legal
        """The types of message that may arrive now."""
        self.turn = Turn(ENDLESS)
        """Charged for what is decoded; when it is over, `next` returns None."""
        self.stopped = False
        """`next` returned None because the turn is over: more may be decoded."""
        self.control = 0
        """Blocks, onNextPacked of no element, and elements that were not requested and are skipped.

        Its user may reset it to 0."""
        self._streams = streams
        self._limits = limits
        self._buffer: bytes | bytearray = b""
        self._at = 0  # everything before it was decoded
        self._need = 0  # length that the buffer must have before the next try
        self._skip = 0  # octets still to arrive that are not wanted
        self._packed: tuple[Consumed, int] | None = None  # elements still to arrive
        self._inflater: isal_zlib.Decompress | None = None
        self._outer: tuple[bytes | bytearray, int] | None = (
            None  # the buffer that a block lies in
        )
        self._compressed: memoryview | None = (
            None  # what is left to inflate of the block
        )
        self._inflated = 0  # bytes of the block so far
        self._signals = limits.block_signals  # messages that blocks may still hold

    @property
    def held_bytes(self) -> int:
        held = len(self._buffer)
        return held if self._outer is None else held + len(self._outer[0])

    @property
    def unread_bytes(self) -> int:
        if self._outer is None:
            return len(self._buffer) - self._at
        buffer, at = self._outer
        return len(buffer) - at + len(self._compressed or b"")

    @property
    def inflates(self) -> bool:
        return self._inflater is not None

    def discard(self) -> None:
        """Forget what is buffered: the connection is over."""
        self._buffer = b""
        self._at = self._need = 0
        self._outer = self._compressed = self._packed = None

    def inflate(self) -> None:
        """Accept blocks from now on (extension 6)."""
        self._inflater = isal_zlib.decompressobj()

    def allow(self, more: int) -> None:
        """Blocks may hold *more* messages other than elements."""
        self._signals = min(self._signals + more, self._limits.block_signals)

    def feed(self, more: bytes) -> None:
        if self._outer is not None:  # the last turn ended within a block
            behind, start = self._outer
            self._outer = b"".join((memoryview(behind)[start:], more)), 0
            return
        buffer, at = self._buffer, self._at
        if at == len(buffer):
            self._buffer = more
        elif isinstance(buffer, bytearray):
            del buffer[:at]
            buffer += more
        else:
            self._buffer = bytearray(memoryview(buffer)[at:])
            self._buffer += more
        self._need -= at
        self._at = 0

    def next(self) -> Token | None:
        """The next message or run; None until more is fed, or in the next turn."""
        turn = self.turn
        self.stopped = False
        while True:
            if turn.over:
                self.stopped = True
                return None
            turn.charge(FRAME)
            if self._skip:
                self._skip_on()
            if self._at == len(self._buffer) and self._outer is not None:
                if self._compressed is not None:
                    self._inflate()
                    continue
                self._buffer, self._at = self._outer
                self._outer, self._need = None, 0
                if self._skip or self._packed:
                    raise Refusal("block that ends inside a message")
            if self._at == len(self._buffer) or len(self._buffer) < self._need:
                if self._wait():
                    return None
                continue
            try:
                token = self._token()
            except Incomplete as more:
                self._need = more.need
                if self._wait():
                    return None
                continue
            if self._outer is not None and type(token) is not Run:
                self._count()
            if token is not None:
                return token

    def _count(self) -> None:
        """Limit messages in blocks, which cost their sender little; demand limits elements."""
        if self._packed is None:
            self._signals -= 1
            if self._signals < 0:
                raise Refusal(
                    "blocks with too many messages for their size",
                    limit=self._limits.block_signals,
                )

    def _wait(self) -> bool:
        """Whether more must be fed; else the block had more."""
        if self._compressed is not None:
            self._inflate()
            return False
        if self._outer is not None:
            raise Refusal("block that ends inside a message")
        if self._at == len(self._buffer):
            self._buffer, self._at, self._need = b"", 0, 0
        return True

    def _skip_on(self) -> None:
        skipped = min(self._skip, len(self._buffer) - self._at)
        self._skip -= skipped
        self._at += skipped

    def _token(self) -> Token | None:
        """One step: a token, or None if nothing came of it but the state changed."""
        if self._packed is not None:
            return self._more_packed(*self._packed)
        code = self._buffer[self._at]
        if code not in self.legal:
            raise Refusal(_unknown(code, greeted=Code.SUBSCRIBE in self.legal))
        if code == Code.ON_NEXT:
            return self._on_next()
        if code == Code.ON_NEXT_PACKED:
            return self._on_next_packed()
        if code == Code.BLOCK:
            self._block()
            return None
        token, self._at = wire.parse(code, self._buffer, self._at + 1, self._limits)
        return token

    def _stream(self) -> tuple[Consumed, int]:
        """The stream of the element at hand, and the position behind its Id."""
        number, at = read_varint(self._buffer, self._at + 1)
        stream = self._streams.get(number)
        if stream is None:
            raise Refusal(f"element of stream {number}, which we never asked for")
        if stream.size == UNKNOWN:
            raise Refusal(f"element of stream {number} before its onSubscribe (1.9)")
        return stream, at

    def _on_next(self) -> Token | None:
        stream, at = self._stream()
        if stream.size:
            size, head = stream.size, at
        else:
            size, head = read_varint(self._buffer, at)
            if size > self._limits.declared_bytes:
                raise Refusal(
                    f"element of {size} octets",
                    limit=self._limits.declared_bytes,
                    key="limits.message_bytes",
                )
        if stream.dropped:
            self._at, self._skip = head, size
            self._skipped(stream, 1)
            return None
        if not stream.room:
            return Overrun(stream)
        if size > self._limits.element_bytes:
            return Oversized(stream, size)
        if len(self._buffer) < head + size:
            raise Incomplete(head + size)
        if stream.size:
            return self._fixed(stream, at - self._at)
        return self._variable(stream, at - self._at)

    def _skipped(self, stream: Consumed, count: int) -> None:
        """Elements of a dropped stream arrived: its publisher may not know it yet."""
        asked = min(stream.room, count)
        stream.room -= asked
        self.control += count - asked

    def _fixed(self, stream: Consumed, head_size: int) -> Run:
        buffer, start, step = self._buffer, self._at, head_size + stream.size
        head = bytes(buffer[start : start + head_size])
        most = min(stream.room, self._most(_WALKED), (len(buffer) - start) // step)
        at, count = start + step, 1
        while count < most and buffer.startswith(head, at):
            at += step
            count += 1
        self.turn.charge(_WALKED * count)
        return self._run(stream, count, count * stream.size, at)

    def _variable(self, stream: Consumed, head_size: int) -> Run:
        buffer, start = self._buffer, self._at
        head = bytes(buffer[start : start + head_size])
        most = min(stream.room, self._most(_WALKED))
        largest = self._limits.element_bytes
        if native.kernel:
            found = native.kernel.walk(buffer, start, head, False, most, largest)
        else:
            found = walk(buffer, start, head, most, largest)
        count, octets, at = found
        self.turn.charge(_WALKED * count)
        return self._run(stream, count, octets, at)

    def _most(self, cost: float) -> int:
        """How many elements of this cost may be taken in this turn."""
        return max(int(self.turn.left / cost), 0) + 1

    def _run(self, stream: Consumed, count: int, octets: int, stop: int) -> Run:
        messages = bytes(self._buffer[self._at : stop])
        self.turn.charge(BYTE * len(messages))
        self._at = stop
        stream.room -= count
        return Run(stream, count, octets, messages)

    def _on_next_packed(self) -> Token | None:
        stream, at = self._stream()
        count, at = read_varint(self._buffer, at)
        if not stream.size:
            raise Refusal(f"packed elements in stream {stream.id}, which fixed no size")
        if count * stream.size > self._limits.declared_bytes:
            raise Refusal(
                f"{count} packed elements of {stream.size} octets",
                limit=self._limits.declared_bytes,
                key="limits.message_bytes",
            )
        self._at = at
        self.turn.charge(_ANNOUNCED)
        if count:
            self._packed = (stream, count)
        else:
            self.control += 1
        return None

    def _more_packed(self, stream: Consumed, left: int) -> Token | None:
        size, at = stream.size, self._at
        if stream.dropped:
            self._skip, self._packed = left * size, None
            self._skipped(stream, left)
            return None
        if not stream.room:
            return Overrun(stream)
        most = min(stream.room, self._most(_PACKED))
        count = min(left, most, (len(self._buffer) - at) // size)
        if not count:
            raise Incomplete(at + size)
        self.turn.charge(_PACKED * count + BYTE * count * size)
        octets = bytes(self._buffer[at : at + count * size])
        self._at += len(octets)
        self._packed = (stream, left - count) if left > count else None
        stream.room -= count
        packed = wire.on_next_packed(stream.id, count, octets)
        return Run(stream, count, len(octets), packed)

    def _block(self) -> None:
        if self._inflater is None or self._outer is not None:
            raise Refusal("block that nobody agreed to")
        size, at = read_varint(self._buffer, self._at + 1)
        if size > self._limits.part_bytes:
            raise Refusal(f"block of {size} octets", limit=self._limits.part_bytes)
        if at + size > len(self._buffer):
            raise Incomplete(at + size)
        self.control += 1
        self.turn.charge(_BLOCK)
        self.allow(_OCTET_SIGNALS * size)
        self._compressed = memoryview(bytes(self._buffer[at : at + size]))
        self._outer = (self._buffer, at + size)
        self._buffer, self._at, self._need, self._inflated = b"", 0, 0, 0

    def _inflate(self) -> None:
        """Inflate the next step of the block, behind what is left of the last one."""
        inflater, limit = self._inflater, self._limits.inflated_bytes
        assert inflater is not None
        assert self._compressed is not None
        try:
            given = self._compressed[:_DEFLATED_STEP]
            more = inflater.decompress(given, _INFLATE_BYTES)
        except _ZlibError as why:
            raise Refusal(f"block that is not zlib: {why}") from None
        read = len(given) - len(inflater.unconsumed_tail)
        self.turn.charge(inflating(read, len(more)))
        self._inflated += len(more)
        if self._inflated > limit:
            raise Refusal("block that inflates to too much", limit=limit)
        if inflater.eof:
            raise Refusal("block that ends its zlib stream")
        # Of a step that is full there may be more, though all of the block was read.
        full = len(more) == _INFLATE_BYTES
        left = self._compressed[read:]
        self._compressed = left if left or full else None
        if self._at < len(self._buffer):
            more = b"".join((memoryview(self._buffer)[self._at :], more))
        self._need -= self._at
        self._buffer, self._at = more, 0


def _unknown(code: int, *, greeted: bool) -> str:
    name = f"0x{code:02x}"
    if not greeted:
        seen = f" ({chr(code)!r})" if code in _PRINTABLE else ""
        return f"hello comes first, not {name}{seen}"
    if code in Code.__members__.values():
        name += f" ({Code(code).name.lower()})"
    return f"message type {name} is not legal here"


def elements(messages: bytes, size: int) -> Iterator[bytes]:
    """The elements in a run's *messages*; *size* is that of its stream, 0 if they differ."""
    at, end = 0, len(messages)
    while at < end:
        code = messages[at]
        _, at = read_varint(messages, at + 1)
        if code == Code.ON_NEXT_PACKED:
            _, at = read_varint(messages, at)
            for start in range(at, end, size):
                yield messages[start : start + size]
            return
        if size:
            stop = at + size
        else:
            length, at = read_varint(messages, at)
            stop = at + length
        yield messages[at:stop]
        at = stop
