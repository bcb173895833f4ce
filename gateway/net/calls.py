"""Calls to the server of a connection: what it raises ends this connection, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gateway.net.ending import CALLBACK_ERRORS
from gateway.net.phase import Phase
from gateway.net.reading import Unread
from gateway.sdk.interfaces import Aging, Publishing, Refusal, Server, Yielding

if TYPE_CHECKING:
    from gateway.net.connection import AcceptedConnection
    from gateway.net.listen import Listener


class ServerCalls:
    """The server of one connection, and what the network tells it."""

    __slots__ = ("_connection", "_listener", "server")

    def __init__(self, connection: AcceptedConnection, listener: Listener) -> None:
        self._connection = connection
        self._listener = listener
        self.server: Server | None = None
        """None: there is none yet, or none any more.  One that is there may wait for what
        its peer says first."""

    def serve(
        self, accept: Callable[[AcceptedConnection], Server] | None = None
    ) -> None:
        """Make the server, once the peer is known.

        *accept*: not the port's own, but that of what the first bytes turned out to be.
        The port's own may be there already, and has had none of them.
        """
        connection = self._connection
        before, self.server = self.server, None
        connection.times.deadline = None
        connection.times.active = True
        with self._calling("accept()"):
            if before is not None:
                before.closed()
            self.server = (accept or self._listener.accept)(connection)
        if isinstance(self.server, Publishing):
            connection.input.unread &= ~Unread.STALLED

    def drain(self) -> None:
        """Begin to end: the daemon stops.

        The server is told once it has used what is here of its peer by now (`looks`), or has
        taken nothing for long.
        """
        connection = self._connection
        connection.ending.why = connection.ending.why or "stopping"
        if self.server is None:
            connection.ending.end()
            return
        connection.input.read_last()
        self.drain_if_used()

    def drain_if_used(self, *, late: bool = False) -> None:
        """Tell the server that the daemon stops, if that was put off and need not be, or if
        it is too *late* to put it off any more.
        """
        input_ = self._connection.input
        if input_.last_bytes is None or not (late or input_.is_used):
            return
        input_.last_is_over()
        if self.server is not None:
            with self._calling("drain()"):
                self.server.drain()

    def aged(self) -> None:
        """Have the server end a connection that is as old as it may be, when it can."""
        connection = self._connection
        if self.server is None or connection.phase >= Phase.ANSWERING:
            return
        connection.times.ages_at = None
        if isinstance(self.server, Aging):
            connection.ending.why = connection.ending.why or "age"
            with self._calling("aged()"):
                self.server.aged()

    def writable(self, ready: bool) -> bool:  # noqa: FBT001 - a state, not a mode
        """Tell the server whether the transport takes more; false: it can not stop sending."""
        if not isinstance(self.server, Publishing):
            return False
        if self._connection.phase < Phase.CLOSING:
            with self._calling("writable()"):
                self.server.writable(ready)
        return True

    def begun(self) -> str:
        """The message that has begun, in the server's words; empty: it says nothing."""
        with self._calling("begun()"):
            return self.server.begun() if isinstance(self.server, Yielding) else ""
        return ""

    def give_up(self, why: Refusal) -> None:
        """Have the server drop what it holds, answer what is complete, and refuse."""
        with self._calling("give_up()"):
            if isinstance(self.server, Yielding):
                self.server.give_up(why)
            else:
                self._connection.ending.refuse(why)

    def closed(self) -> None:
        """The transport is lost."""
        server, self.server = self.server, None
        if server is not None:
            with self._calling("closed()"):
                server.closed()

    @contextmanager
    def _calling(self, what: str) -> Iterator[None]:
        try:
            yield
        except CALLBACK_ERRORS as error:
            self._connection.ending.raised(what, error)
