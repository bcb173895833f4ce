"""The messages that a target may send at each moment of a connection, judged one by one.

In every test, `Watch` holds all messages of the target against the rules of
docs/rsio-v0.md: a violation fails the test that is running.  It knows what was sent to
the target, and so which streams there are, which demand is left, and which extensions
both hellos list.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from rsio_check import wire
from rsio_check.wire import Message

_UNBOUNDED = 2**63 - 1
_BY_CODE: dict[int, int] = {
    wire.Ping.CODE: 1, wire.Pong.CODE: 1, wire.SubscribeFrom.CODE: 2,
    wire.Stored.CODE: 2, wire.GoodbyeAck.CODE: 3, wire.Token.CODE: 4,
    wire.Compress.CODE: 6, wire.CompressAck.CODE: 6, wire.Block.CODE: 6,
    wire.Announce.CODE: 7, wire.Limits.CODE: 8,
}  # fmt: skip
"""The extension that each of these messages belongs to."""
_CODES, _LIMITS = 5, 8
_ERROR = re.compile(r"E\d+ ")


class Violation(Exception):
    """The target sent what it may not; says which rule that breaks."""


class Form(Enum):
    """How an element came."""

    WHOLE = "whole"
    PACKED = "packed"
    PARTS = "parts"


@dataclass(frozen=True)
class Element:
    """An element of a stream that the target publishes."""

    subscriber: int
    data: bytes
    form: Form = field(default=Form.WHOLE, compare=False)


Heard: TypeAlias = Message | Element


class _Is(Enum):
    ASKED, FLOWING, CANCELLED, OVER = range(4)


@dataclass
class _Served:
    """A stream that the target publishes."""

    demand: int
    state: _Is = _Is.ASKED
    size: int = 0
    parts: dict[int, bytes] = field(default_factory=dict)

    def add(self, more: int) -> None:
        if more <= _UNBOUNDED:
            self.demand = min(self.demand + more, _UNBOUNDED)


@dataclass
class Asked:
    """A stream that the target subscribed to."""

    publisher: str
    subscriber: int
    window: int
    """initialDemand."""
    offset: int | None = None
    """The offset of subscribeFrom; None if it was a plain subscribe."""
    granted: int = 0
    """Demand that came later."""
    sent: int = 0
    """Elements that it was sent."""
    size: int = 0
    stored: int | None = None
    """The count that it said last to have stored."""
    cancelled: bool = False
    over: bool = False
    """Whether it was sent a terminal."""

    @property
    def demand(self) -> int:
        """How many more elements it takes."""
        return self.window + self.granted - self.sent


class Watch:
    """Both sides of one connection, as the client sees it."""

    def __init__(self) -> None:
        self.extensions: frozenset[int] = frozenset()
        """The extensions that both hellos list."""
        self.asked: dict[int, Asked] = {}
        """The streams that the target subscribed to, by Id."""
        self.hello: wire.ServerHello | None = None
        self.element_bytes: int | None = None
        """The most octets of an element that the target takes, if it has said so."""
        self.left = False
        """The target has sent its last message."""
        self.longest_run: dict[int, int] = {}
        """Octets of elements that came of a stream, by Id, with none of another stream
        between them: the most so far."""
        self._run: tuple[int | None, int] = None, 0
        self._greeted: wire.ClientHello | None = None
        self._told: int | None = None
        """The count that we said last to have stored."""
        self._served: dict[int, _Served] = {}
        self._pings: deque[bytes] = deque()
        self._compressing = 0
        self._goodbye = False
        self._inflate: zlib._Decompress | None = None
        self._decoder = wire.Decoder(self._size_of)

    # -- what we send

    def sent(self, message: Message) -> None:
        """Take notice of a message that goes to the target."""
        match message:
            case wire.ClientHello():
                self._greeted = self._greeted or message
            case wire.Subscribe() | wire.SubscribeFrom():
                self._subscribed(message)
            case wire.Request(number, more) if number in self._served:
                self._served[number].add(more)
            case wire.Cancel(number) if number in self._served:
                served = self._served[number]
                if served.state in (_Is.ASKED, _Is.FLOWING):
                    served.state = _Is.CANCELLED
            case wire.Ping(data):
                self._pings.append(data)
            case wire.Compress():
                self._compressing += 1
            case wire.Goodbye():
                self._goodbye = True
            case wire.Limits(most):
                self._told = self._told or most
            case _:
                self._published(message)

    def _subscribed(self, asked: wire.Subscribe | wire.SubscribeFrom) -> None:
        known = self._served.get(asked.subscriber)
        if known is None or known.state in (_Is.CANCELLED, _Is.OVER):
            self._served[asked.subscriber] = served = _Served(0)
            served.add(asked.demand)

    def _published(self, message: Message) -> None:
        number = getattr(message, "subscriber", None)
        asked = self.asked.get(number) if number is not None else None
        match message:
            case _ if asked is None:
                pass
            case wire.OnSubscribe():
                asked.size = message.size
            case wire.OnComplete() | wire.OnError():
                asked.over = True
            case wire.OnNext() | wire.OnNextLastPart():
                asked.sent += 1
            case wire.OnNextPacked():
                asked.sent += message.count

    # -- what the target sends

    def feed(self, data: bytes) -> Iterator[Heard]:
        """The target's messages, elements joined; raises `Violation`."""
        try:
            for message in self._decoder.feed(data):
                if self.left:
                    raise Violation(f"{wire.spell(message)} behind its goodbye")
                yield from self._take(message)
        except wire.Unreadable as why:
            raise Violation(f"what the target sends is not RS.io: {why}") from None

    @property
    def cut(self) -> bool:
        """The target's last message is not whole."""
        return self._decoder.unread > 0

    def _size_of(self, number: int) -> int | None:
        served = self._served.get(number)
        return None if served is None or served.state is _Is.ASKED else served.size

    def _take(self, message: Message) -> Iterator[Heard]:
        self._may_come(message)
        match message:
            case wire.Block(data):
                yield from self._inflated(data)
                return
            case wire.OnNext(number, element):
                self._charge(number)
                self._fits(number, len(element))
                self._ran(number, len(element))
                yield Element(number, element)
                return
            case wire.OnNextPacked(number, count, data):
                yield from self._packed(number, count, data)
                return
            case wire.OnNextPart() | wire.OnNextLastPart():
                yield from self._part(message)
                return
            case wire.OnSubscribe() | wire.OnComplete() | wire.OnError():
                self._of_served(message)
            case wire.Subscribe() | wire.SubscribeFrom():
                self._asks(message)
            case wire.Request() | wire.Cancel() | wire.Stored():
                self._of_asked(message)
            case _:
                self._of_connection(message)
        yield message

    def _may_come(self, message: Message) -> None:
        extension = _BY_CODE.get(message.CODE)
        if extension is not None and extension not in self.extensions:
            raise Violation(
                f"{wire.spell(message)} without extension {extension} in use"
            )
        first = isinstance(message, wire.ServerHello)
        refused = isinstance(message, wire.Goodbye)  # a goodbye needs no hello
        if first is (self.hello is not None) and not refused:
            what = "a second hello" if first else f"{wire.spell(message)} first"
            raise Violation(f"{what}; a server's first message is its hello")

    def _of_connection(self, message: Message) -> None:
        match message:
            case wire.ServerHello(version, extensions):
                if version != 0:
                    raise Violation(f"serverHello of version {version}")
                self.hello = message
                ours = self._greeted.extensions if self._greeted else ()
                used = frozenset(extensions) & frozenset(ours)
                self.extensions = used if 2 in used else used - {7}
            case wire.Goodbye(reason):
                self.left = True
                if reason and not self._goodbye:
                    self._coded(reason)
            case wire.GoodbyeAck():
                self.left = True
                if not self._goodbye:
                    raise Violation("goodbyeAck, and nobody said goodbye")
            case wire.Pong(data):
                if not self._pings or self._pings.popleft() != data:
                    raise Violation(f"{wire.spell(message)} answers no ping")
            case wire.CompressAck(algorithm):
                if not self._compressing or algorithm not in (0, 1):
                    raise Violation(f"{wire.spell(message)} answers nothing")
                self._compressing -= 1
            case wire.Compress() | wire.Ping():
                pass
            case wire.Limits(most):
                if self.element_bytes is not None or self.asked or not most:
                    raise Violation(f"{wire.spell(message)} again, too late, or none")
                self.element_bytes = most
            case _:
                raise Violation(f"a server may not send {wire.spell(message)}")

    def _coded(self, text: str) -> None:
        if _CODES in self.extensions and not _ERROR.match(text):
            raise Violation(f"{text!r} has no code, and extension 5 is in use")

    # -- streams of the target's publishers

    def _stream(self, number: int, what: str) -> _Served:
        served = self._served.get(number)
        if served is None:
            raise Violation(f"{what} for {number}, which nobody subscribed with")
        if served.state is _Is.OVER:
            raise Violation(f"{what} for {number} after its terminal (1.7)")
        return served

    def _of_served(
        self, message: wire.OnSubscribe | wire.OnComplete | wire.OnError
    ) -> None:
        served = self._stream(message.subscriber, wire.spell(message))
        if isinstance(message, wire.OnSubscribe):
            if served.state is _Is.FLOWING:
                raise Violation(f"a second onSubscribe for {message.subscriber}")
            served.size = message.size
            if served.state is _Is.ASKED:
                served.state = _Is.FLOWING
            return
        if served.state is _Is.ASKED:
            raise Violation(f"{wire.spell(message)} before onSubscribe (1.9)")
        served.state = _Is.OVER
        if isinstance(message, wire.OnError):
            self._coded(message.error)

    def _charge(self, number: int, count: int = 1) -> _Served:
        """*count* more elements begin."""
        served = self._stream(number, "an element")
        if served.state is _Is.ASKED:
            raise Violation(f"an element of {number} before onSubscribe (1.9)")
        if served.demand != _UNBOUNDED:
            served.demand -= count
        if served.demand < 0 and served.state is _Is.FLOWING:
            raise Violation(f"more elements of {number} than were requested (1.1)")
        return served

    def _fits(self, number: int, octets: int) -> None:
        """An element has so many octets, or more."""
        live = self._served[number].state is _Is.FLOWING
        if self._told is not None and octets > self._told and live:
            raise Violation(f"an element of {octets} octets; told was {self._told}")

    def _ran(self, number: int, octets: int) -> None:
        """Count octets of elements of one stream."""
        last, size = self._run
        size = octets + (size if last == number else 0)
        self._run = number, size
        self.longest_run[number] = max(size, self.longest_run.get(number, 0))

    def _packed(self, number: int, count: int, data: bytes) -> Iterator[Element]:
        size = self._charge(number, count).size
        self._fits(number, size)
        self._ran(number, len(data))
        for at in range(0, len(data), size):
            yield Element(number, data[at : at + size], Form.PACKED)

    def _part(self, part: wire.OnNextPart | wire.OnNextLastPart) -> Iterator[Element]:
        number = part.subscriber
        served = self._stream(number, "a part")
        if part.element not in served.parts:
            self._charge(number)
        self._ran(number, len(part.data))
        joined = served.parts.get(part.element, b"") + part.data
        self._fits(number, len(joined))
        if isinstance(part, wire.OnNextPart):
            served.parts[part.element] = joined
            return
        served.parts.pop(part.element, None)
        if served.size and len(joined) != served.size:
            raise Violation(f"parts that join to {len(joined)} of {served.size} octets")
        yield Element(number, joined, Form.PARTS)

    # -- streams that the target subscribed to

    def _asks(self, message: wire.Subscribe | wire.SubscribeFrom) -> None:
        number = message.subscriber
        known = self.asked.get(number)
        if known is not None and not (known.cancelled or known.over):
            raise Violation(f"{wire.spell(message)}: the Id is in use (1.10)")
        if _LIMITS in self.extensions and self.element_bytes is None:
            raise Violation(f"{wire.spell(message)} before it has told its limits")
        if message.demand > _UNBOUNDED:
            raise Violation(f"{wire.spell(message)}: demand is not positive (3.9)")
        offset = message.offset if isinstance(message, wire.SubscribeFrom) else None
        self.asked[number] = Asked(message.publisher, number, message.demand, offset)

    def _of_asked(self, message: wire.Request | wire.Cancel | wire.Stored) -> None:
        asked = self.asked.get(message.subscriber)
        if asked is None:
            raise Violation(f"{wire.spell(message)} of a stream that it never had")
        match message:
            case wire.Request(_, more):
                if not 0 < more <= _UNBOUNDED:
                    raise Violation(f"{wire.spell(message)} is not positive (3.9)")
                asked.granted += more
            case wire.Cancel():
                asked.cancelled = True
            case wire.Stored(_, offset):
                if offset < (asked.stored or 0):
                    raise Violation(f"stored({offset}) behind stored({asked.stored})")
                if offset > (asked.offset or 0) + asked.sent:
                    raise Violation(f"stored({offset}) is more than was sent")
                asked.stored = offset

    # -- blocks

    def allow_blocks(self) -> None:
        """Our compressAck(1) is on its way."""
        self._inflate = zlib.decompressobj()

    def _inflated(self, data: bytes) -> Iterator[Heard]:
        if self._inflate is None:
            raise Violation("a block, and nobody allowed any")
        inner = wire.Decoder(self._size_of)
        try:
            inflated = self._inflate.decompress(data)
        except zlib.error as why:
            raise Violation(f"a block that can not be inflated: {why}") from None
        for message in inner.feed(inflated):
            if isinstance(message, wire.Block):
                raise Violation("a block inside a block")
            yield from self._take(message)
        if inner.unread or self._inflate.eof:
            raise Violation("a message is cut by the end of a block")
