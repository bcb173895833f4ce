"""Queue of the replies of one connection, each waiting for a change to be durable.

A reply may depend on every change before it, so it is due when all of them are durable.
Acknowledgements that are due together become one `DataAppended` for each writer, which
names the last one's number as the previous.  Each conditional append gets its own, as
clients wait for the answer to each (Java's large events).

No I/O, no clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from gateway.protocols.pravega.codec import Message, encode
from gateway.protocols.pravega.frames import HEADER_BYTES, MAX_LENGTH
from gateway.protocols.pravega.segments import Segments
from gateway.protocols.pravega.wire import DataAppended
from gateway.sdk.interfaces import Refusal

#: Limit of the replies that wait, in bytes: twice the largest reply.
_MOST_HELD_BYTES = 2 * MAX_LENGTH

#: Memory that a waiting reply takes beside its bytes.
_REPLY_BYTES = 256


@dataclass(slots=True, eq=False)
class Writer:
    """A writer that a connection has set up on a segment."""

    id: bytes
    segment: str
    last: int
    """The last event number that is stored, as far as this connection knows."""
    acked: int
    """The last event number that was acknowledged."""
    sent: int = 0
    """The highest event number that came since the setup."""
    token: str = ""
    """The token of the setup, which may have expired since."""
    failed: bool = False
    """An append was refused: its segment is sealed or gone."""


@dataclass(slots=True)
class _Pending:
    after: int
    """Number of the change that must be durable."""
    reply: bytes
    """Empty for an acknowledgement."""
    writer: Writer | None = None
    number: int = 0
    request_id: int = -1
    offset: int = 0
    alone: bool = False
    """Must not be joined with later acknowledgements."""


class Replies:
    """The replies that wait, in the order of their requests."""

    def __init__(self, state: Segments, writers: dict[bytes, Writer]) -> None:
        """*writers* are by id; a failed one is removed when its refusal is sent."""
        self._state = state
        self._writers = writers
        self._queue: deque[_Pending] = deque()
        self.held_bytes = 0
        """Memory of the replies; acknowledgements do not count."""

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, reply: Message, failed: Writer | None = None) -> None:
        """Queue a reply, behind the last change; it ends the setup of *failed*.

        Raises `Refusal` if it, or all that wait, would be too large.
        """
        written = encode(reply)
        if len(written) > HEADER_BYTES + MAX_LENGTH:
            raise Refusal(f"reply of {len(written)} bytes", limit=MAX_LENGTH)
        self.held_bytes += len(written) + _REPLY_BYTES
        if self.held_bytes > _MOST_HELD_BYTES:
            raise Refusal(
                f"{self.held_bytes} bytes of replies that wait for the disk",
                limit=_MOST_HELD_BYTES,
            )
        self._queue.append(_Pending(self._state.number, written, failed))

    def acknowledge(
        self, writer: Writer, request_id: int, offset: int, *, alone: bool
    ) -> None:
        """Queue the acknowledgement of `writer.last`, stored by the last change.

        *offset* is the segment's length.  *alone*: do not join it with later ones.
        """
        after, number = self._state.number, writer.last
        self._queue.append(
            _Pending(after, b"", writer, number, request_id, offset, alone)
        )

    def clear(self) -> None:
        self._queue.clear()
        self.held_bytes = 0

    def due(self) -> bytes:
        durable, queue = self._state.durable, self._queue
        out: list[bytes] = []
        acks: dict[Writer, _Pending] = {}
        while queue and queue[0].after <= durable:
            one = queue.popleft()
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


def _ack(pending: _Pending) -> bytes:
    writer = pending.writer
    assert writer is not None
    previous, writer.acked = writer.acked, pending.number
    return encode(
        DataAppended(
            writer.id, pending.number, previous, pending.request_id, pending.offset
        )
    )
