"""HTTP/2, server side, without I/O: what a server needs beside h2.

`h2` takes all that it is given at once.  Frames that cost their sender a few bytes cost
it much more, so it is given no more of them than a turn may cost (`FrameCutter`).  Nor is
it given a frame that is too long, or too long a head in frames, which it would wait for
and only then refuse.  Its limits are to be in force from the first byte on, and it would
keep much for nothing: streams that are over, settings that it does not know (`served`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from gateway.sdk.costs import BYTE, Turn
from gateway.sdk.interfaces import Refusal

if TYPE_CHECKING:
    from h2.connection import H2Connection
    from h2.settings import SettingCodes, Settings

__all__ = ["CONTROL_BYTES", "PREFACE", "FrameCutter", "is_open", "served"]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of a client's side of a connection."""
HEADER_LIST_BYTES = 16 << 10
"""Bytes of one request's fields."""
CONTROL_BYTES = 1024
"""A head counts as one more frame for each of so many bytes of its fields: a few bytes may
refer to many in HPACK's table."""
_HEAD_BYTES = 4 * HEADER_LIST_BYTES
"""Bytes of a head in all its frames: Huffman's code can make fields longer, too."""
_CLOSED_STREAMS = 1 << 10
"""The streams known to be over: a frame for one of them is no violation yet."""
_HEADER_BYTES = 9
_MOST_BYTES = 1 << 14
"""Bytes of a frame, where SETTINGS say nothing else."""
_END_STREAM = 0x1

_COSTS = {
    0x0: 10.0,  # DATA
    0x1: 150.0,  # HEADERS
    0x3: 30.0,  # RST_STREAM
    0x9: 30.0,  # CONTINUATION
}
_CARRYING = (0x0, 0x1)
"""Types that may have END_STREAM."""
_COST = 15.0
"""The cost of frames of all other types."""
_ENTRY_COST = 1.0
"""The cost of each byte of SETTINGS, whose entries are of six bytes."""
_SETTINGS = 0x4
_GOAWAY = 0x7
_CONTINUATION = 0x9
_PLAIN_BYTES = 128
"""A frame that carries no call counts as one more for each of so many bytes."""
_CALL_COST = 150.0
"""The cost of the call that a frame with END_STREAM completes."""


class FrameCutter:
    """The bytes of one connection that h2 has not got yet."""

    __slots__ = ("_buffer", "_head", "_rest")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._rest = len(PREFACE)
        """Bytes that are to come of the frame at hand; first, of the preface."""
        self._head = 0
        """Bytes of the head that the frame at hand belongs to, if it does."""

    @property
    def unread(self) -> bool:
        """More can be taken in another turn."""
        return len(self._buffer) >= (1 if self._rest else _HEADER_BYTES)

    @property
    def unread_bytes(self) -> int:
        """Bytes that wait for other turns."""
        return len(self._buffer) if self.unread else 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._buffer += data

    def take(self, turn: Turn) -> tuple[bytes, int]:
        """The next frames, which *turn* is charged for, and how many begin there.

        Nothing if the turn is over, or without more bytes.  Large frames that carry no
        call count as several.  None is taken together with a GOAWAY before it: h2 would
        refuse it, and forget what came before both.  Raises `Refusal` at the header of a
        frame that is too long, or makes a head so.
        """
        buffer = self._buffer
        at = frames = 0
        kind = -1
        while not turn.over:
            if self._rest:
                size = min(self._rest, len(buffer) - at)
                self._rest -= size
                at += size
                turn.charge(BYTE * size)
            if self._rest or kind == _GOAWAY or len(buffer) - at < _HEADER_BYTES:
                break
            size, kind = int.from_bytes(buffer[at : at + 3]), buffer[at + 3]
            if size > _MOST_BYTES:
                raise Refusal(f"HTTP/2: frame of {size} bytes", limit=_MOST_BYTES)
            self._head = size + (self._head if kind == _CONTINUATION else 0)
            if self._head > _HEAD_BYTES:
                raise Refusal(f"HTTP/2: head of {self._head} bytes", limit=_HEAD_BYTES)
            self._rest = _HEADER_BYTES + size
            frames += 1
            turn.charge(_COSTS.get(kind, _COST))
            if kind not in _CARRYING:
                frames += size // _PLAIN_BYTES
            if kind == _SETTINGS:
                turn.charge(_ENTRY_COST * size)
            elif kind in _CARRYING and buffer[at + 4] & _END_STREAM:
                turn.charge(_CALL_COST)
        piece = bytes(buffer[:at])
        del buffer[:at]
        return piece, frames


def served(settings: Mapping[SettingCodes, int]) -> H2Connection:
    """The server's side of a connection, whose SETTINGS are the first to be sent.

    They hold for what a client sends before it has seen them, too.
    """
    from h2.config import H2Configuration
    from h2.settings import SettingCodes, Settings

    connection, known = _frugal()
    made = connection(H2Configuration(client_side=False, header_encoding=None))
    made.remote_settings = known(client=True)
    limit = {SettingCodes.MAX_HEADER_LIST_SIZE: HEADER_LIST_BYTES}
    # Before the preface: later changes take effect only when the client agrees.
    made.local_settings = Settings(client=False, initial_values={**settings, **limit})
    made.decoder.max_header_list_size = HEADER_LIST_BYTES
    made.initiate_connection()
    return made


@cache
def _frugal() -> tuple[type[H2Connection], type[Settings]]:
    """h2's connection, and its settings of a peer, which keep little whatever it sends."""
    from h2.connection import H2Connection
    from h2.settings import SettingCodes, Settings

    known = frozenset(SettingCodes)

    class Connection(H2Connection):
        MAX_CLOSED_STREAMS = _CLOSED_STREAMS

    class Known(Settings):
        def __setitem__(self, key: SettingCodes | int, value: int) -> None:
            if key == SettingCodes.HEADER_TABLE_SIZE:
                # Less than allowed will do; each change is kept until the next head.
                value = min(value, self.header_table_size)
            if key in known:
                super().__setitem__(key, value)

    return Connection, Known


def is_open(connection: H2Connection, stream: int) -> bool:
    """Whether frames can still be sent on the stream."""
    from h2.connection import ConnectionState

    found = connection.streams.get(stream)
    closed = connection.state_machine.state is ConnectionState.CLOSED
    return found is not None and found.open and not closed
