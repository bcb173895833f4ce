"""What goes to a peer, which may not read it: writes, back-pressure, and its cut-off."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from gateway.net.handshake import CALLBACK_ERRORS, READ_BYTES
from gateway.net.reading import Reading
from gateway.net.websocket_frames import binary_message, binary_messages
from gateway.sdk.interfaces import Publishing, Refusal

if TYPE_CHECKING:
    from gateway.net.listen import Listener

__all__ = ["STALL_SECONDS", "Writing"]

STALL_SECONDS = 45.0
"""A peer with more than `READ_BYTES` of unsent output counts as not reading.  Then we
stop reading from it (or writing, if its server can: `interfaces.Publishing`), and cut
it off if the output grows by more than the listener's `unread_bytes`, or if so much
time passes in which it takes nothing.

Less than TCP_USER_TIMEOUT (`bind`): the kernel would end the connection unlogged."""

OUTPUT_BYTES = 1 << 16
"""Unsent output that is counted at once; what is less waits for the next look."""


class Writing(Reading):
    """The part of `connection.AcceptedConnection` that writes."""

    __slots__ = ("_output", "_stalled_since", "_unsent", "_unsent_limit", "_writing")

    def __init__(self, listener: Listener, host: str, peer: str) -> None:
        super().__init__(listener, host, peer)
        self._stalled_since: float | None = None
        """Since when the peer counts as not reading; None: it reads."""
        self._unsent = self._unsent_limit = 0
        """While stalled: output if it takes nothing (TLS adds to it); output at which
        it is cut off."""
        self._output = 0
        """Bytes of output that it holds, as of late."""
        self._writing = False
        """A write is under way, whose data is not all in the transport's hands."""

    @abstractmethod
    def abort(self) -> None:
        """See `interfaces.Connection`."""

    @abstractmethod
    def _count_memory(self) -> None:
        """What it holds has changed."""

    # The transport's back-pressure

    def pauseProducing(self) -> None:
        """The transport holds more than `READ_BYTES` unsent: the peer does not read.

        It says so again at every write, until all is sent.
        """
        if self._stalled_since is not None:
            return
        self._stalled_since = self._listener.clock.seconds()
        self._unsent = self.unsent_bytes
        self._unsent_limit = self._unsent + self._listener.unread_bytes
        self._count_output(self._unsent)
        if self._closing:
            return
        if self._publishes():
            self._writable(ready=False)
        else:
            self._read_or_not()

    def resumeProducing(self) -> None:
        """All is sent."""
        self._stalled_since = None
        self._count_output(0)
        self._read_or_not()
        self._ask_to_deliver()
        if self._publishes() and not self._closing:
            self._writable(ready=True)

    def stopProducing(self) -> None:
        """See IPushProducer."""

    def _publishes(self) -> bool:
        """Whether the server stops writing, so that we need not stop reading."""
        return isinstance(self._server, Publishing)

    def _writable(self, *, ready: bool) -> None:
        try:
            cast(Publishing, self._server).writable(ready)
        except CALLBACK_ERRORS as error:
            self._raised("writable()", error)

    def _stalled(self, now: float) -> bool:
        """Whether the peer has taken nothing for long of what waits for it."""
        if self._stalled_since is None:
            return False
        unsent = self.unsent_bytes
        if unsent < self._unsent:
            self._unsent = unsent
            self._stalled_since = now
            self._active = True
        return now - self._stalled_since > STALL_SECONDS

    def _count_output(self, unsent: int) -> None:
        if unsent != self._output:
            self._output = unsent
            self._count_memory()

    # interfaces.Connection

    @property
    def framed(self) -> bool:
        """See `interfaces.Connection`."""
        return self._frames is not None

    @property
    def unsent_bytes(self) -> int:
        """See `interfaces.Connection`."""
        return self._transport.unsent_bytes

    def write(self, data: bytes) -> None:
        """See `interfaces.Connection`."""
        if self._closing:
            return
        self._send(data if self._frames is None else binary_message(data))

    def write_each(self, messages: Sequence[bytes | memoryview]) -> None:
        """See `interfaces.Connection`."""
        if self._closing:
            return
        if self._frames is None:
            self._send_pieces(messages)
        else:
            self._send(binary_messages(messages))

    def _send(self, data: bytes) -> None:
        self._send_pieces((data,))

    def _send_pieces(self, pieces: Sequence[bytes | memoryview]) -> None:
        if self._stalled_since is not None:
            size = sum(map(len, pieces))
            self._unsent += size
            if self.unsent_bytes + size > self._unsent_limit:
                self._cut_off(READ_BYTES + self._listener.unread_bytes)
                return
        self._writing = True
        try:
            transport = self._tls or self._transport
            if len(pieces) > 1:
                transport.writeSequence(pieces)
            else:
                transport.write(b"".join(pieces))
        finally:
            self._writing = False
        unsent = self._transport.unsent_bytes
        if unsent > OUTPUT_BYTES:
            self._count_output(unsent)

    def _cut_off(self, limit: str | int) -> None:
        why = Refusal("peer does not read what we send", limit=limit)
        self._listener.reject(self, why, "unread")
        self.abort()
