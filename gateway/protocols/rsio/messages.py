"""RS.io messages: types, fields, and the extension that each belongs to.

    either side -> clientHello, serverHello, goodbye, goodbyeAck
    subscriber  -> subscribe, request, cancel
    publisher   -> onSubscribe, onNext, onComplete, onError,
                   onNextPacked, onNextPart, onNextLastPart
    extensions  -> ping, pong, subscribeFrom, stored, token,
                   compress, compressAck, block, announce, limits

A class declares the fields of its message in the order of the wire, and how each is
written; `wire` encodes and parses them all from these declarations.

Whole elements (onNext, onNextPacked) and blocks have no class.  How an element ends
depends on its stream, and there are too many elements for an object each: they are
`decoder.Run`.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Annotated, ClassVar, TypeAlias

import msgspec

VERSION = 0

FENCED = "E412"
"""How the reason begins with which a sender is refused whose name another one has."""

INSTANCE_BYTES = 64
"""Octets of an instance, at most."""

ALPN = b"rsio/0"
"""The protocol's name in TLS."""

SUBPROTOCOL = "rsio.v0"
"""The protocol's name in WebSocket's handshake."""

CONTENT_TYPE = "application/rs-io"
"""The protocol's name in HTTP/2: of a POST; what follows the slash, of extended CONNECT."""


def alpn(http2: object | None) -> bytes:
    """The ALPN protocol of a client in TLS, by whether it asks for HTTP/2."""
    return ALPN if http2 is None else b"h2"


class Code(IntEnum):
    """The type of a message: its first octet."""

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
    ANNOUNCE = 0x48
    LIMITS = 0x49


class Extension(IntEnum):
    """An extension is in use if both hellos list it; 7 only if 2 is in use, too."""

    KEEPALIVE = 1
    OFFSETS = 2
    GOODBYE_ACK = 3
    AUTH = 4
    CODES = 5
    COMPRESSION = 6
    INSTANCES = 7
    LIMITS = 8


#: Types that are legal on every connection, once both hellos were exchanged.
CORE = frozenset(
    code
    for code in Code
    if code < Code.PING and code not in (Code.CLIENT_HELLO, Code.SERVER_HELLO)
)

#: Types that are legal if the extension is in use.
EXTENSION: dict[Extension, frozenset[Code]] = {
    Extension.KEEPALIVE: frozenset({Code.PING, Code.PONG}),
    Extension.OFFSETS: frozenset({Code.SUBSCRIBE_FROM, Code.STORED}),
    Extension.AUTH: frozenset({Code.TOKEN}),
    Extension.COMPRESSION: frozenset({Code.COMPRESS, Code.COMPRESS_ACK, Code.BLOCK}),
    Extension.INSTANCES: frozenset({Code.ANNOUNCE}),
    Extension.LIMITS: frozenset({Code.LIMITS}),
}


class Form(Enum):
    """How a field is written, and which of `Limits` holds for it."""

    BYTE = "byte"
    VARINT = "varint"
    IDS = "Array of Id, extensions"
    NAME = "String, name_bytes"
    TEXT = "String, text_bytes"
    SHORT = "bytes, text_bytes"
    PART = "bytes, part_bytes"
    INSTANCE = "bytes, 64"


_Byte = Annotated[int, Form.BYTE]
_Id = Annotated[int, Form.VARINT]
_Long = Annotated[int, Form.VARINT]
_Varint = Annotated[int, Form.VARINT]
_Ids = Annotated[tuple[int, ...], Form.IDS]
_Name = Annotated[str, Form.NAME]
_Text = Annotated[str, Form.TEXT]
_Short = Annotated[bytes, Form.SHORT]
_Part = Annotated[bytes, Form.PART]
_Instance = Annotated[bytes, Form.INSTANCE]


class _Message(msgspec.Struct, frozen=True):
    code: ClassVar[Code]


class ClientHello(_Message, frozen=True):
    """The first message of the side that opened the connection."""

    code = Code.CLIENT_HELLO
    version: _Byte
    extensions: _Ids


class ServerHello(_Message, frozen=True):
    """The first message of the other side; it need not wait for clientHello."""

    code = Code.SERVER_HELLO
    version: _Byte
    extensions: _Ids


class Goodbye(_Message, frozen=True):
    """Ends the connection and all its streams; answered with goodbye."""

    code = Code.GOODBYE
    reason: _Text


class GoodbyeAck(_Message, frozen=True):
    """The answer to goodbye if extension 3 is in use."""

    code = Code.GOODBYE_ACK
    message: _Text


class Subscribe(_Message, frozen=True):
    """Asks for a stream; the subscriber chooses the Id that names it from now on."""

    code = Code.SUBSCRIBE
    publisher: _Name
    subscriber: _Id
    demand: _Long


class Request(_Message, frozen=True):
    """Adds *demand* elements to what the publisher may send."""

    code = Code.REQUEST
    subscriber: _Id
    demand: _Long


class Cancel(_Message, frozen=True):
    """The subscriber wants no more elements."""

    code = Code.CANCEL
    subscriber: _Id


class OnSubscribe(_Message, frozen=True):
    """Answers subscribe; always, even if onError follows at once (1.9)."""

    code = Code.ON_SUBSCRIBE
    subscriber: _Id
    size: _Varint
    """Octets of every element; 0: each element has its own length."""


class OnComplete(_Message, frozen=True):
    """The stream is complete."""

    code = Code.ON_COMPLETE
    subscriber: _Id


class OnError(_Message, frozen=True):
    """The stream failed, or was never accepted."""

    code = Code.ON_ERROR
    subscriber: _Id
    error: _Text


class OnNextPart(_Message, frozen=True):
    """A part of an element, and not the last one."""

    code = Code.ON_NEXT_PART
    subscriber: _Id
    element: _Id
    data: _Part


class OnNextLastPart(_Message, frozen=True):
    code = Code.ON_NEXT_LAST_PART
    subscriber: _Id
    element: _Id
    data: _Part


class Ping(_Message, frozen=True):
    """Asks for a pong, as a sign of life (extension 1)."""

    code = Code.PING
    data: _Short


class Pong(_Message, frozen=True):
    """Answers ping with the same octets."""

    code = Code.PONG
    data: _Short


class SubscribeFrom(_Message, frozen=True):
    """Subscribes to what follows the first *offset* elements (extension 2)."""

    code = Code.SUBSCRIBE_FROM
    publisher: _Name
    subscriber: _Id
    demand: _Long
    offset: _Long


class Stored(_Message, frozen=True):
    """The subscriber has the first *offset* elements safe (extension 2)."""

    code = Code.STORED
    subscriber: _Id
    offset: _Long


class Token(_Message, frozen=True):
    """Says who the client is (extension 4)."""

    code = Code.TOKEN
    scheme: _Name
    data: _Short


class Compress(_Message, frozen=True):
    """Asks to send blocks that are compressed with *algorithm* (extension 6)."""

    code = Code.COMPRESS
    algorithm: _Varint


class CompressAck(_Message, frozen=True):
    """Answers compress: the same algorithm to allow it, 0 to refuse it."""

    code = Code.COMPRESS_ACK
    algorithm: _Varint


class Announce(_Message, frozen=True):
    """The client publishes *publisher* as this instance (extension 7)."""

    code = Code.ANNOUNCE
    publisher: _Name
    instance: _Instance
    """Octets that no other instance has; none: it does not say."""
    resumed: _Varint
    """1: this instance was asked to resume before; else 0."""


class Limits(_Message, frozen=True):
    """The sender's limits for the streams that it will subscribe to (extension 8)."""

    code = Code.LIMITS
    element_bytes: _Varint
    """The most octets of an element."""


Message: TypeAlias = (
    ClientHello | ServerHello | Goodbye | GoodbyeAck | Subscribe | Request | Cancel
    | OnSubscribe | OnComplete | OnError | OnNextPart | OnNextLastPart
    | Ping | Pong | SubscribeFrom | Stored | Token | Compress | CompressAck | Announce
    | Limits
)  # fmt: skip
