"""RS.io messages: their codes, their fields, and which extension they belong to.

    either side -> clientHello, serverHello, goodbye, goodbyeAck
    subscriber  -> subscribe, request, cancel
    publisher   -> onSubscribe, onNext, onComplete, onError,
                   onNextPacked, onNextPart, onNextLastPart
    extensions  -> ping, pong, subscribeFrom, stored, token,
                   compress, compressAck, block

Whole elements (onNext, onNextPacked) have no class here: how they end depends on their
stream, and there are too many of them for an object each.  They are `decoder`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

__all__ = [
    "CORE",
    "EXTENSION",
    "VERSION",
    "Cancel",
    "ClientHello",
    "Code",
    "Compress",
    "CompressAck",
    "Extension",
    "Goodbye",
    "GoodbyeAck",
    "Message",
    "OnComplete",
    "OnError",
    "OnNextLastPart",
    "OnNextPart",
    "OnSubscribe",
    "Ping",
    "Pong",
    "Request",
    "ServerHello",
    "Stored",
    "Subscribe",
    "SubscribeFrom",
    "Token",
]

VERSION = 0


class Code(IntEnum):
    """The first octet of a message."""

    CLIENT_HELLO = 0x01
    SERVER_HELLO = 0x02
    GOODBYE = 0x03
    GOODBYE_ACK = 0x04
    SUBSCRIBE = 0x10
    REQUEST = 0x11
    CANCEL = 0x12
    ON_SUBSCRIBE = 0x20
    ON_NEXT = 0x21
    ON_COMPLETE = 0x22
    ON_ERROR = 0x23
    ON_NEXT_PACKED = 0x24
    ON_NEXT_PART = 0x25
    ON_NEXT_LAST_PART = 0x26
    PING = 0x40
    PONG = 0x41
    SUBSCRIBE_FROM = 0x42
    STORED = 0x43
    TOKEN = 0x44
    COMPRESS = 0x45
    COMPRESS_ACK = 0x46
    BLOCK = 0x47


class Extension(IntEnum):
    """What both hellos must list before it may be used."""

    KEEPALIVE = 1
    OFFSETS = 2
    GOODBYE_ACK = 3
    AUTH = 4
    CODES = 5
    COMPRESSION = 6


#: Legal on every connection, once both have said hello.
CORE = frozenset(
    code
    for code in Code
    if code < Code.PING and code not in (Code.CLIENT_HELLO, Code.SERVER_HELLO)
)

#: Legal if the extension was agreed on.
EXTENSION: dict[Extension, frozenset[Code]] = {
    Extension.KEEPALIVE: frozenset({Code.PING, Code.PONG}),
    Extension.OFFSETS: frozenset({Code.SUBSCRIBE_FROM, Code.STORED}),
    Extension.AUTH: frozenset({Code.TOKEN}),
    Extension.COMPRESSION: frozenset({Code.COMPRESS, Code.COMPRESS_ACK, Code.BLOCK}),
}


@dataclass(slots=True, frozen=True)
class ClientHello:
    """From the side that opened the connection; its first message."""

    version: int
    extensions: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class ServerHello:
    """From the other side, when it likes."""

    version: int
    extensions: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class Goodbye:
    """All streams end here; answered with the same, then the connection closes."""

    reason: str


@dataclass(slots=True, frozen=True)
class GoodbyeAck:
    """The answer in extension 3."""

    message: str


@dataclass(slots=True, frozen=True)
class Subscribe:
    """The subscriber names the stream, here and in all that follows."""

    publisher: str
    subscriber: int
    demand: int


@dataclass(slots=True, frozen=True)
class Request:
    """So many elements more."""

    subscriber: int
    demand: int


@dataclass(slots=True, frozen=True)
class Cancel:
    """No more elements."""

    subscriber: int


@dataclass(slots=True, frozen=True)
class OnSubscribe:
    """The answer to a subscribe, even when an error follows (rule 1.9)."""

    subscriber: int
    size: int
    """Of every element; 0: each says its own."""


@dataclass(slots=True, frozen=True)
class OnComplete:
    """The stream has ended well."""

    subscriber: int


@dataclass(slots=True, frozen=True)
class OnError:
    """The stream has ended otherwise."""

    subscriber: int
    error: str


@dataclass(slots=True, frozen=True)
class OnNextPart:
    """More of an element that comes in parts."""

    subscriber: int
    element: int
    data: bytes


@dataclass(slots=True, frozen=True)
class OnNextLastPart:
    """The rest of it."""

    subscriber: int
    element: int
    data: bytes


@dataclass(slots=True, frozen=True)
class Ping:
    """Are you there?"""

    data: bytes


@dataclass(slots=True, frozen=True)
class Pong:
    """Yes; with the same octets."""

    data: bytes


@dataclass(slots=True, frozen=True)
class SubscribeFrom:
    """Subscribe, to what comes after the publisher's first *offset* elements."""

    publisher: str
    subscriber: int
    demand: int
    offset: int


@dataclass(slots=True, frozen=True)
class Stored:
    """The subscriber has the publisher's first *offset* elements safe."""

    subscriber: int
    offset: int


@dataclass(slots=True, frozen=True)
class Token:
    """Who the client is."""

    scheme: str
    data: bytes


@dataclass(slots=True, frozen=True)
class Compress:
    """May I send blocks of this algorithm?"""

    algorithm: int


@dataclass(slots=True, frozen=True)
class CompressAck:
    """Yes; or, with 0, no."""

    algorithm: int


Message: TypeAlias = (
    ClientHello | ServerHello | Goodbye | GoodbyeAck | Subscribe | Request | Cancel
    | OnSubscribe | OnComplete | OnError | OnNextPart | OnNextLastPart
    | Ping | Pong | SubscribeFrom | Stored | Token | Compress | CompressAck
)  # fmt: skip
