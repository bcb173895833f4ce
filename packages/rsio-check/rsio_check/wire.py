"""Messages of RS.io and their octets, written from docs/rsio-v0.md alone.

It shares no code with the gateway: a decoder with the blind spots of the implementation
under test would judge nothing.  `Decoder` is as strict as the definition lets it be
towards a sender, which writes varints in their shortest form and respects all limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

_TEXT, _NAME, _IDS, _INSTANCE = 4096, 255, 64, 64
_DECLARED, _PART = 16 << 20, 1 << 20
_SHOWN = 60


class Unreadable(Exception):
    """The octets are no message of the protocol; says why."""


class _Incomplete(Exception):
    """The rest of the message has not arrived."""


@dataclass(frozen=True)
class Message:
    """Any message.  `CODE` is its type, `LAYOUT` the type of each field, in order."""

    CODE: ClassVar[int] = 0
    LAYOUT: ClassVar[str] = ""


@dataclass(frozen=True)
class ClientHello(Message):
    """The client's first message."""

    CODE: ClassVar[int] = 0x01
    LAYOUT: ClassVar[str] = "byte ids"
    version: int
    extensions: tuple[int, ...]


@dataclass(frozen=True)
class ServerHello(Message):
    """The server's first message."""

    CODE: ClassVar[int] = 0x02
    LAYOUT: ClassVar[str] = "byte ids"
    version: int
    extensions: tuple[int, ...]


@dataclass(frozen=True)
class Goodbye(Message):
    """The end of the conversation, or the answer to it."""

    CODE: ClassVar[int] = 0x03
    LAYOUT: ClassVar[str] = "text"
    reason: str


@dataclass(frozen=True)
class GoodbyeAck(Message):
    """The answer to a goodbye (extension 3)."""

    CODE: ClassVar[int] = 0x04
    LAYOUT: ClassVar[str] = "text"
    message: str


@dataclass(frozen=True)
class Subscribe(Message):
    """Asks for a publisher's elements."""

    CODE: ClassVar[int] = 0x10
    LAYOUT: ClassVar[str] = "name varint varint"
    publisher: str
    subscriber: int
    demand: int


@dataclass(frozen=True)
class Request(Message):
    """Adds to the demand."""

    CODE: ClassVar[int] = 0x11
    LAYOUT: ClassVar[str] = "varint varint"
    subscriber: int
    demand: int


@dataclass(frozen=True)
class Cancel(Message):
    """The subscriber wants no more."""

    CODE: ClassVar[int] = 0x12
    LAYOUT: ClassVar[str] = "varint"
    subscriber: int


@dataclass(frozen=True)
class OnSubscribe(Message):
    """The answer to a subscription."""

    CODE: ClassVar[int] = 0x20
    LAYOUT: ClassVar[str] = "varint varint"
    subscriber: int
    size: int


@dataclass(frozen=True)
class OnNext(Message):
    """An element; *fixed* if its stream has a fixed size, so that no length is sent."""

    CODE: ClassVar[int] = 0x21
    subscriber: int
    element: bytes
    fixed: bool = False


@dataclass(frozen=True)
class OnComplete(Message):
    """The stream has no more elements."""

    CODE: ClassVar[int] = 0x22
    LAYOUT: ClassVar[str] = "varint"
    subscriber: int


@dataclass(frozen=True)
class OnError(Message):
    """The stream failed."""

    CODE: ClassVar[int] = 0x23
    LAYOUT: ClassVar[str] = "varint text"
    subscriber: int
    error: str


@dataclass(frozen=True)
class OnNextPacked(Message):
    """*count* elements of a fixed size, joined."""

    CODE: ClassVar[int] = 0x24
    subscriber: int
    count: int
    data: bytes


@dataclass(frozen=True)
class OnNextPart(Message):
    """A part of an element, not its last."""

    CODE: ClassVar[int] = 0x25
    LAYOUT: ClassVar[str] = "varint varint part"
    subscriber: int
    element: int
    data: bytes


@dataclass(frozen=True)
class OnNextLastPart(Message):
    """The last part of an element."""

    CODE: ClassVar[int] = 0x26
    LAYOUT: ClassVar[str] = "varint varint part"
    subscriber: int
    element: int
    data: bytes


@dataclass(frozen=True)
class Ping(Message):
    """Asks for a pong (extension 1)."""

    CODE: ClassVar[int] = 0x40
    LAYOUT: ClassVar[str] = "data"
    data: bytes


@dataclass(frozen=True)
class Pong(Message):
    """The answer, with the same octets."""

    CODE: ClassVar[int] = 0x41
    LAYOUT: ClassVar[str] = "data"
    data: bytes


@dataclass(frozen=True)
class SubscribeFrom(Message):
    """Asks for what follows the first *offset* elements (extension 2)."""

    CODE: ClassVar[int] = 0x42
    LAYOUT: ClassVar[str] = "name varint varint varint"
    publisher: str
    subscriber: int
    demand: int
    offset: int


@dataclass(frozen=True)
class Stored(Message):
    """The subscriber has the first *offset* elements safe."""

    CODE: ClassVar[int] = 0x43
    LAYOUT: ClassVar[str] = "varint varint"
    subscriber: int
    offset: int


@dataclass(frozen=True)
class Token(Message):
    """The client's identity (extension 4)."""

    CODE: ClassVar[int] = 0x44
    LAYOUT: ClassVar[str] = "name data"
    scheme: str
    data: bytes


@dataclass(frozen=True)
class Compress(Message):
    """Asks to send blocks (extension 6)."""

    CODE: ClassVar[int] = 0x45
    LAYOUT: ClassVar[str] = "varint"
    algorithm: int


@dataclass(frozen=True)
class CompressAck(Message):
    """Allows it, or not."""

    CODE: ClassVar[int] = 0x46
    LAYOUT: ClassVar[str] = "varint"
    algorithm: int


@dataclass(frozen=True)
class Block(Message):
    """Compressed messages."""

    CODE: ClassVar[int] = 0x47
    LAYOUT: ClassVar[str] = "part"
    data: bytes


@dataclass(frozen=True)
class Announce(Message):
    """The client publishes *publisher* in this life of it (extension 7)."""

    CODE: ClassVar[int] = 0x48
    LAYOUT: ClassVar[str] = "name instance varint"
    publisher: str
    instance: bytes
    resumed: int


@dataclass(frozen=True)
class Limits(Message):
    """The sender's limits for the streams that it will subscribe to (extension 8)."""

    CODE: ClassVar[int] = 0x49
    LAYOUT: ClassVar[str] = "varint"
    element_bytes: int


Laid: TypeAlias = tuple[type[Message], tuple[str, ...]]

_LAID: dict[int, Laid] = {
    kind.CODE: (kind, tuple(kind.LAYOUT.split())) for kind in Message.__subclasses__()
}
_MOST = {"text": _TEXT, "data": _TEXT, "name": _NAME, "part": _PART,
         "instance": _INSTANCE}  # fmt: skip


# -- write


def varint(value: int) -> bytes:
    """*value* in its shortest form."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def encode(message: Message) -> bytes:
    """The octets of a message."""
    head = bytes([message.CODE])
    match message:
        case OnNext(number, element, fixed):
            length = b"" if fixed else varint(len(element))
            return head + varint(number) + length + element
        case OnNextPacked(number, count, data):
            return head + varint(number) + varint(count) + data
    values = (getattr(message, each.name) for each in fields(message))
    kinds = _LAID[message.CODE][1]
    return head + b"".join(map(_field, kinds, values))


def _field(kind: str, value: Any) -> bytes:
    match kind:
        case "byte":
            return bytes([value])
        case "varint":
            return varint(value)
        case "ids":
            return varint(len(value)) + b"".join(map(varint, value))
        case "text" | "name":
            value = value.encode()
    return varint(len(value)) + bytes(value)


# -- read


class Decoder:
    """Messages out of octets that arrive in any pieces."""

    def __init__(
        self, size_of: Callable[[int], int | None], *, strict: bool = True
    ) -> None:
        """*size_of*: the elementSize of a stream by its Id, None if there is none.

        Not *strict*: longer varints are read as well, as every receiver must.
        """
        self._size_of = size_of
        self._strict = strict
        self._data = bytearray()
        self._at = 0

    @property
    def unread(self) -> int:
        """Octets of messages that have not arrived whole."""
        return len(self._data) - self._at

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are whole now.  Raises `Unreadable`."""
        self._data += data
        start = self._at = 0
        try:
            while self._at < len(self._data):
                start = self._at
                yield self._message()
                start = self._at
        except _Incomplete:
            pass
        finally:
            del self._data[:start]
            self._at = 0

    def _message(self) -> Message:
        code = self._take(1)[0]
        if code == OnNext.CODE:
            return self._on_next()
        if code == OnNextPacked.CODE:
            return self._packed()
        known = _LAID.get(code)
        if known is None:
            raise Unreadable(f"a message of the unknown type 0x{code:02x}")
        kind, layout = known
        return kind(*[self._read(each) for each in layout])

    def _on_next(self) -> OnNext:
        number = self._varint()
        size = self._known_size(number)
        if not size:
            return OnNext(number, self._octets(_DECLARED, "an element"))
        return OnNext(number, self._take(size), fixed=True)

    def _packed(self) -> OnNextPacked:
        number = self._varint()
        size = self._known_size(number)
        if not size:
            raise Unreadable("onNextPacked in a stream without a fixed size")
        count = self._varint()
        if count * size > _DECLARED:
            raise Unreadable(f"onNextPacked of {count * size} octets")
        return OnNextPacked(number, count, self._take(count * size))

    def _known_size(self, number: int) -> int:
        size = self._size_of(number)
        if size is None:
            raise Unreadable(f"an element of stream {number}, which has no onSubscribe")
        return size

    def _read(self, kind: str) -> Any:
        match kind:
            case "byte":
                return self._take(1)[0]
            case "varint":
                return self._varint()
            case "ids":
                count = self._varint()
                if count > _IDS:
                    raise Unreadable(f"an array of {count} extensions")
                return tuple(self._varint() for _ in range(count))
        data = self._octets(_MOST[kind], kind)
        if kind not in ("text", "name"):
            return data
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise Unreadable("a String that is not UTF-8") from None

    def _octets(self, most: int, what: str) -> bytes:
        length = self._varint()
        if length > most:
            raise Unreadable(f"{what} of {length} octets; the limit is {most}")
        return self._take(length)

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise _Incomplete
        taken = bytes(self._data[self._at : end])
        self._at = end
        return taken

    def _varint(self) -> int:
        value = shift = 0
        while True:
            if shift == 70:
                raise Unreadable("a varint of more than ten octets")
            octet = self._take(1)[0]
            value |= (octet & 0x7F) << shift
            shift += 7
            if octet < 0x80:
                break
        if value >> 64:
            raise Unreadable("a varint of more than 64 bits")
        if self._strict and octet == 0 and shift > 7:
            raise Unreadable("a varint that is not in its shortest form")
        return value


# -- show


def spell(message: object) -> str:
    """A message for people, long contents cut."""
    name = type(message).__name__
    if not isinstance(message, Message):
        return str(message)
    shown = []
    for each in fields(message):
        text = repr(getattr(message, each.name))
        shown.append(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
    return f"{name[0].lower()}{name[1:]}({', '.join(shown)})"
