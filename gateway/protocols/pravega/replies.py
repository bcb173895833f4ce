"""Replies that wait for the disk, in the order of their requests.

A reply may depend on anything that was decided before it, so it goes out when all of
that is durable.  Acknowledgements that fall due together are one, per writer: each
says what the last one said, so none is ever missed.  Of conditional appends each has
its own: who makes them waits for the answer to each request (Java's large events).

No I/O, no clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from gateway.interfaces import Refusal
from gateway.protocols.pravega.codec import Message, encode
from gateway.protocols.pravega.frames import HEADER_BYTES, MAX_LENGTH
from gateway.protocols.pravega.segments import Segments
from gateway.protocols.pravega.wire import DataAppended

__all__ = ["Replies", "Writer"]

#: What may wait for the disk; the largest reply is half of it.
_MOST = 2 * MAX_LENGTH

#: What a reply costs in memory beside its bytes.
_REPLY_BYTES = 256


@dataclass(slots=True, eq=False)
class Writer:
    """A writer id that a connection has set up."""

    id: bytes
    segment: str
    last: int
    """The number of what it wrote last, as far as this connection knows."""
    acked: int
    """What was acknowledged last."""
    sent: int = 0
    """The highest number that came since it was set up."""
    token: str = ""
    """What it was set up with; it may be good no longer."""
    failed: bool = False
    """An append was refused; the writer may not know yet."""


@dataclass(slots=True)
class _Owed:
    after: int
    """The change that must be durable."""
    reply: bytes
    """Empty: an acknowledgement."""
    writer: Writer | None = None
    number: int = 0
    request_id: int = -1
    offset: int = 0
    alone: bool = False
    """No later acknowledgement stands for this one."""


class Replies:
    """What one connection is owed."""

    def __init__(self, state: Segments, writers: dict[bytes, Writer]) -> None:
        """*writers* loses those whose failure was replied."""
        self._state = state
        self._writers = writers
        self._owed: deque[_Owed] = deque()
        self.held_bytes = 0
        """In replies; those that only acknowledge do not count."""

    def __len__(self) -> int:
        return len(self._owed)

    def add(self, reply: Message, failed: Writer | None = None) -> None:
        """A reply to what was asked just now; after it, *failed* is not set up."""
        written = encode(reply)
        if len(written) > HEADER_BYTES + MAX_LENGTH:
            raise Refusal(f"reply of {len(written)} bytes", limit=MAX_LENGTH)
        self.held_bytes += len(written) + _REPLY_BYTES
        if self.held_bytes > _MOST:
            raise Refusal(
                f"{self.held_bytes} bytes of replies that wait for the disk",
                limit=_MOST,
            )
        self._owed.append(_Owed(self._state.number, written, failed))

    def acknowledge(
        self, writer: Writer, request_id: int, offset: int, *, alone: bool
    ) -> None:
        """`writer.last` was stored by the change that was made just now.

        *alone* is whether it must not be left to the next acknowledgement.
        """
        after, number = self._state.number, writer.last
        self._owed.append(_Owed(after, b"", writer, number, request_id, offset, alone))

    def clear(self) -> None:
        """Nobody is there to be told."""
        self._owed.clear()
        self.held_bytes = 0

    def due(self) -> bytes:
        """What may be said now."""
        durable, owed = self._state.durable, self._owed
        out: list[bytes] = []
        acks: dict[Writer, _Owed] = {}
        while owed and owed[0].after <= durable:
            one = owed.popleft()
            if one.writer is not None and not one.reply:
                before = acks.get(one.writer)
                if before is not None and before.alone:
                    out.append(_ack(before))
                acks[one.writer] = one
                continue
            out += map(_ack, acks.values())
            acks.clear()
            out.append(one.reply)
            self.held_bytes -= len(one.reply) + _REPLY_BYTES
            failed = one.writer
            if failed is not None and self._writers.get(failed.id) is failed:
                del self._writers[failed.id]
        out += map(_ack, acks.values())
        return b"".join(out)


def _ack(owed: _Owed) -> bytes:
    writer = owed.writer
    assert writer is not None
    previous, writer.acked = writer.acked, owed.number
    return encode(
        DataAppended(writer.id, owed.number, previous, owed.request_id, owed.offset)
    )
