"""What a gateway says to the one that takes its files, and hears: frames, and no I/O.

    frame   type u8 | length u32, big-endian | body

The body is a JSON object, which may have more members than are named here, but for `DATA`,
whose body is octets of the file that was begun.  docs/forward-v0.md is the whole of it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from gateway.sdk.interfaces import Refusal

__all__ = [
    "ALPN",
    "DATA_BYTES",
    "SUBPROTOCOL",
    "VERSION",
    "Begun",
    "File",
    "Frames",
    "Hello",
    "Life",
    "Message",
    "Ping",
    "Position",
    "Refused",
    "Said",
    "Stored",
    "Welcome",
    "Word",
    "data",
    "encode",
]

VERSION = 0
ALPN = b"gateway-forward/0"
SUBPROTOCOL = "gateway-forward.v0"

DATA_BYTES = 1 << 14
"""So many octets of a file are sent in a frame: what a line that is cut may cost."""
_MOST_DATA_BYTES = 1 << 18
_MOST_OBJECT_BYTES = 1 << 16
_HEAD = struct.Struct(">BI")


class Hello(msgspec.Struct, frozen=True):
    """The first message of who brings files."""

    version: int
    name: str
    """Who it is."""
    token: str = ""
    """That proves it, where the other side asks for one."""
    time: float = 0.0
    """What its clock shows, in seconds since the epoch; 0: it does not say."""


class Life(msgspec.Struct, frozen=True):
    """Files of this node come next, of this life of it and of those before."""

    node: str
    incarnation: str
    earlier: tuple[str, ...] = ()
    """Those that its directory had before, oldest first."""


class Said(msgspec.Struct, frozen=True):
    """What an incarnation of this node says of itself: how far it has acknowledged."""

    node: str
    word: msgspec.Raw
    """A JSON object, as the gateway keeps it."""


class File(msgspec.Struct, frozen=True):
    """A file begins, or goes on; its octets come in the frames of `data` that follow."""

    name: str
    incarnation: str
    """Who gave its lsns."""
    bytes: int
    sha256: str
    """Of all of it, in hex digits."""
    at: int = 0
    """Where the octets that follow belong."""


class Ping(msgspec.Struct, frozen=True):
    """It is there, and has nothing to say."""


class Welcome(msgspec.Struct, frozen=True):
    """The answer to a hello."""

    version: int
    node: str
    """Who takes the files."""


class Begun(msgspec.Struct, frozen=True):
    """A file of which the beginning is there."""

    name: str
    incarnation: str
    sha256: str
    at: int
    """So many octets."""


class Position(msgspec.Struct, frozen=True):
    """The answer to a `Life`: what is there of that node."""

    node: str
    last: Mapping[str, int]
    """The last lsn, by incarnation."""
    begun: Begun | None = None


class Stored(msgspec.Struct, frozen=True):
    """A file is on disk, and is public or will be."""

    name: str
    incarnation: str
    waiting: int = 0
    """So many files, of all nodes, wait there for whoever reads them."""


class Word(msgspec.Struct, frozen=True):
    """A sign of life of who takes files."""

    why: str = ""
    """Why it takes nothing now; empty: it does."""


class Refused(msgspec.Struct, frozen=True):
    """The last message of who takes files: it ends the connection."""

    code: int
    """As in docs/forward-v0.md: 400, 401, 403, 409, 422, 503."""
    why: str


Message: TypeAlias = (
    Hello | Life | File | Ping | Said | Welcome | Position | Stored | Word | Refused
)

_DATA = 0x04
_TYPES: dict[int, type[Message]] = {
    0x01: Hello,
    0x02: Life,
    0x03: File,
    0x05: Ping,
    0x06: Said,
    0x81: Welcome,
    0x82: Position,
    0x83: Stored,
    0x84: Word,
    0x85: Refused,
}
_CODES = {kind: code for code, kind in _TYPES.items()}
_decoders = {code: msgspec.json.Decoder(kind) for code, kind in _TYPES.items()}


def encode(message: Message) -> bytes:
    """Its frame."""
    body = msgspec.json.encode(message)
    return _HEAD.pack(_CODES[type(message)], len(body)) + body


def data(octets: bytes) -> bytes:
    """A frame with these octets of a file, at most 256 KiB."""
    return _HEAD.pack(_DATA, len(octets)) + octets


class Frames:
    """Bytes to messages, in any slicing; a frame of data is its octets."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def held_bytes(self) -> int:
        """Received, and in no message yet."""
        return len(self._buffer)

    def feed(self, received: bytes) -> None:
        """More of the stream."""
        self._buffer += received

    def next(self) -> Message | bytes | None:
        """The next one that is complete.  Raises `Refusal` for what is none."""
        buffer = self._buffer
        if len(buffer) < _HEAD.size:
            return None
        code, length = _HEAD.unpack_from(buffer)
        most = _MOST_DATA_BYTES if code == _DATA else _MOST_OBJECT_BYTES
        if code != _DATA and code not in _TYPES:
            raise Refusal(f"a frame of unknown type 0x{code:02x}")
        if length > most:
            raise Refusal(f"a frame of type 0x{code:02x}: {length} bytes", limit=most)
        end = _HEAD.size + length
        if len(buffer) < end:
            return None
        body = bytes(buffer[_HEAD.size : end])
        del buffer[:end]
        if code == _DATA:
            return body
        try:
            return _decoders[code].decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as why:
            raise Refusal(f"a frame of type 0x{code:02x}: {why}") from None
