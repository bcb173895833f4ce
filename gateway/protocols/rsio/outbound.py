"""Shared state of a session's parts: handshake state, extensions, outgoing messages.

`Session`, `Consumer` and `Producer` all send through one `Outbound`, so that messages
leave in the order in which they were sent, and are compressed together.

No I/O, no clock.
"""

from __future__ import annotations

import zlib
from enum import Enum, auto

from gateway.protocols.rsio import messages, wire
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import Code, Extension, Message

_COMPRESS_FROM_BYTES = 256
"""Less is not worth compressing."""


class State(Enum):
    NEW = auto()
    GREETING = auto()
    """Waiting for the peer's hello."""
    OPEN = auto()
    LEAVING = auto()
    """We sent goodbye and wait for the answer."""
    CLOSED = auto()
    """Write what is left, then close the transport."""


_ENDING = (State.LEAVING, State.CLOSED)


class Outbound:
    """Queues messages until `take` collects their bytes."""

    __slots__ = ("_deflater", "_queue", "_server", "extensions", "limits", "state")

    def __init__(self, limits: Limits, *, server: bool) -> None:
        self.limits = limits
        self.state = State.GREETING if server else State.NEW
        self.extensions: frozenset[Extension] = frozenset()
        """The extensions that both hellos listed."""
        self._server = server
        self._queue: list[bytes] = []
        self._deflater: zlib._Compress | None = None

    def send(self, message: Message) -> None:
        """Queue a message; nothing follows our goodbye."""
        if self.state not in _ENDING:
            self._queue.append(wire.encode(message))

    def send_encoded(self, messages: bytes) -> None:
        """Queue whole messages that are bytes already."""
        self._queue.append(messages)

    def take(self) -> bytes:
        """The bytes to write now; compressed if `compress` was called."""
        queue, self._queue = self._queue, []
        data = b"".join(queue)
        if self._deflater is None or len(data) < _COMPRESS_FROM_BYTES:
            return data
        # zlib may add to what it can not shrink; the limit is on the result.
        most, size = self.limits.part_bytes // 2, 0
        sent: list[bytes] = []
        some: list[bytes] = []
        for piece in queue:
            if size and size + len(piece) > most:
                sent.append(self._block(some))
                some, size = [], 0
            if len(piece) > most:
                sent.append(piece)  # a block is whole messages, and so are these
                continue
            some.append(piece)
            size += len(piece)
        if some:
            sent.append(self._block(some))
        return b"".join(sent)

    def _block(self, pieces: list[bytes]) -> bytes:
        deflater = self._deflater
        assert deflater is not None
        octets = deflater.compress(b"".join(pieces))
        return wire.block(octets + deflater.flush(zlib.Z_SYNC_FLUSH))

    def compress(self) -> None:
        """Send blocks of compressed messages from now on (extension 6)."""
        if self._deflater is None:
            self._deflater = zlib.compressobj(1)

    def check_open(self) -> None:
        """Raises ValueError if messages of streams may not be sent now."""
        if self.state in _ENDING:
            raise ValueError("the connection is ending")
        if self.state is State.NEW or (self._server and self.state is State.GREETING):
            raise ValueError("hello comes first")

    def require(self, extension: Extension) -> None:
        """Raises ValueError if the extension is not in use."""
        if extension not in self.extensions:
            raise ValueError(f"extension {extension} was not agreed on")

    def legal_types(self) -> frozenset[int]:
        """The types of message that may arrive once both hellos were exchanged."""
        legal: set[Code] = set(messages.CORE)
        for extension in self.extensions:
            legal |= messages.EXTENSION.get(extension, frozenset())
        return frozenset(legal)

    def with_code(self, number: int, text: str) -> str:
        """*text*, shortened if need be; behind `E<number>` if extension 5 is in use."""
        if Extension.CODES in self.extensions and not text.startswith("E"):
            text = f"E{number} {text}"
        return self.shortened(text)

    def shortened(self, text: str) -> str:
        """*text*, cut to `limits.text_bytes`."""
        octets, most = text.encode(), self.limits.text_bytes
        return text if len(octets) <= most else octets[:most].decode(errors="ignore")
