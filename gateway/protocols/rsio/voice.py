"""What one end of a connection has agreed on, and what it has to say.

The parts of a `Session` share this, and nothing else.  No I/O.
"""

from __future__ import annotations

import zlib
from enum import Enum, auto

from gateway.protocols.rsio import messages, wire
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import Code, Extension, Message

__all__ = ["State", "Voice"]

_BLOCK_BYTES = 256
"""Less is not worth compressing."""


class State(Enum):
    """Of a connection."""

    NEW = auto()
    GREETING = auto()
    """We wait for the peer's hello."""
    OPEN = auto()
    LEAVING = auto()
    """We said goodbye and wait for the answer."""
    CLOSED = auto()
    """Write what is left, then close."""


class Voice:
    """Where messages wait to be written."""

    __slots__ = ("_deflater", "_out", "_server", "extensions", "limits", "state")

    def __init__(self, limits: Limits, *, server: bool) -> None:
        self.limits = limits
        self.state = State.GREETING if server else State.NEW
        self.extensions: frozenset[Extension] = frozenset()
        """What both sides know."""
        self._server = server
        self._out: list[bytes] = []
        self._deflater: zlib._Compress | None = None

    def say(self, message: Message) -> None:
        """Write this."""
        self._out.append(wire.encode(message))

    def say_encoded(self, messages: bytes) -> None:
        """Write these."""
        self._out.append(messages)

    def take(self) -> bytes:
        """What is to be written now."""
        out, self._out = self._out, []
        data = b"".join(out)
        if self._deflater is None or len(data) < _BLOCK_BYTES:
            return data
        deflater, blocks = self._deflater, []
        # zlib may add to what it can not shrink; the limit is on the result.
        step = self.limits.part_bytes // 2
        for at in range(0, len(data), step):
            octets = deflater.compress(data[at : at + step])
            blocks.append(wire.block(octets + deflater.flush(zlib.Z_SYNC_FLUSH)))
        return b"".join(blocks)

    def deflate(self) -> None:
        """From now on, compress."""
        if self._deflater is None:
            self._deflater = zlib.compressobj(1)

    def may_speak(self) -> None:
        """ValueError if it is not the time for messages of streams."""
        if self.state in (State.LEAVING, State.CLOSED):
            raise ValueError("the connection is ending")
        if self.state is State.NEW or (self._server and self.state is State.GREETING):
            raise ValueError("hello comes first")

    def need(self, extension: Extension) -> None:
        """ValueError if the peer does not know it."""
        if extension not in self.extensions:
            raise ValueError(f"extension {extension} was not agreed on")

    def legal(self) -> frozenset[int]:
        """The types of message that may come, now that hello was said."""
        legal: set[Code] = set(messages.CORE)
        for extension in self.extensions:
            legal |= messages.EXTENSION.get(extension, frozenset())
        return frozenset(legal)

    def coded(self, number: int, text: str) -> str:
        """*text* for programs too, if the peer knows extension 5; never too long."""
        if Extension.CODES in self.extensions and not text.startswith("E"):
            text = f"E{number} {text}"
        return self.short(text)

    def short(self, text: str) -> str:
        """*text*, cut to what a message may hold."""
        octets, most = text.encode(), self.limits.text_bytes
        return text if len(octets) <= most else octets[:most].decode(errors="ignore")
