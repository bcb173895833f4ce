"""How a connection ends: by its server, its peer, a refusal, a limit, or what was raised.

It ends with FIN and then waits for the peer's, dropping what comes, for the listener's
`linger` seconds.  A socket closed with unread input would send RST, and RST can destroy the
last acknowledgement or the refusal on its way.

A `Refusal` that a protocol's code raises is answered, with FIN behind it; everything else
ends the connection at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.net.phase import Phase
from gateway.net.reading import Unread
from gateway.net.websocket_frames import close_frame
from gateway.sdk.interfaces import Refusal

if TYPE_CHECKING:
    from gateway.net.connection import AcceptedConnection
    from gateway.net.listen import Listener

CALLBACK_ERRORS = (Exception, SystemExit)
"""Exceptions of a protocol's code that cost its connection, and not the daemon."""
_REFUSING, _CLOSING, _LOST = Phase.REFUSING, Phase.CLOSING, Phase.LOST


class Ending:
    """The end of one connection, and why it comes."""

    __slots__ = ("_connection", "_failed", "_listener", "_logged", "last_error", "why")

    def __init__(self, connection: AcceptedConnection, listener: Listener) -> None:
        self._connection = connection
        self._listener = listener
        self.why = ""
        """Why it ends, once that is known: `peer`, `stopping`, a reason of rejections."""
        self.last_error: str | None = None
        """The text that its server reported last."""
        self._failed = False
        """Something was raised for it, and is in the log."""
        self._logged: Refusal | None = None
        """The refusal that is in the log already, before the server comes to refuse for it."""

    def by_peer(self) -> None:
        """Note that the peer has ended it, if nothing did before."""
        if self._connection.phase < _CLOSING:
            self.why = self.why or "peer"

    def close(self) -> None:
        connection = self._connection
        if connection.phase >= _REFUSING:  # the answer ends it
            return
        layers = connection.layers
        if layers is not None and layers.frames and not layers.frames.closed:
            connection.output.send(close_frame(1000))
        self.end()

    def end(self) -> None:
        """FIN after what is written; then wait a little for the peer's."""
        connection, listener = self._connection, self._listener
        if connection.phase >= _CLOSING:
            return
        connection.become(_CLOSING)
        connection.times.deadline = listener.seconds() + listener.linger
        if connection.layers is not None and connection.layers.tls is not None:
            connection.layers.tls.close()
        if connection.input.unread & Unread.FIN:
            connection.transport.loseConnection()
        else:
            connection.transport.loseWriteConnection()
            connection.input.read_or_not()

    def abort(self) -> None:
        connection = self._connection
        if connection.phase < _CLOSING:
            connection.become(_CLOSING)
        connection.transport.abortConnection()

    # Rules that the peer broke

    def refuse(self, why: Refusal, reply: bytes | None = None) -> None:
        """Log, send the reply, close; *reply*: in place of that of *why*."""
        connection, listener = self._connection, self._listener
        if connection.phase >= _REFUSING:
            return
        if why is not self._logged:
            self.broke(why, "protocol")
        seconds = listener.penalty(connection) if why.wrong_credentials else 0.0
        reply = why.reply if reply is None else reply
        if not seconds:
            self._answer_refused(why, reply)
            return
        connection.become(_REFUSING)
        connection.input.add(Unread.REFUSED)
        listener.clock.callLater(seconds, self._answer_refused, why, reply)

    def _answer_refused(self, why: Refusal, reply: bytes) -> None:
        connection = self._connection
        if connection.phase >= _CLOSING:
            return
        if reply:
            connection.write(reply)
        layers = connection.layers
        if layers is not None and layers.frames and connection.phase < _CLOSING:
            connection.output.send(close_frame(1008, why.rule))
        self.end()

    def broke(self, why: Refusal, reason: str) -> None:
        """Count and log that its peer broke a rule, which ends it."""
        connection = self._connection
        self.why = reason
        self._listener.rejections.refused(
            connection.host, connection.origin.peer, why, reason
        )

    def reject(self, why: Refusal, reason: str) -> None:
        """Refuse below the server, where the reply is already in the peer's terms."""
        self.broke(why, reason)
        if why.reply:
            self._connection.output.send(why.reply)
        self.end()

    def report(self, why: Refusal) -> float:
        connection, listener = self._connection, self._listener
        listener.rejections.reported(connection.host, connection.origin.peer, why)
        self.last_error = str(why)
        return listener.penalty(connection) if why.wrong_credentials else 0.0

    # Faults, and memory

    def raised(self, what: str, error: BaseException) -> None:
        """End this connection, because *what* raised *error*."""
        if isinstance(error, Refusal):
            try:
                self.refuse(error)
            except CALLBACK_ERRORS as unusable:  # a reply that is no bytes
                self.raised(what, unusable)
            return
        if not self._failed:
            self._failed = True
            self.why = "failure"
            host, peer = self._connection.host, self._connection.origin.peer
            self._listener.rejections.failed(host, peer, what, error)
        self.abort()

    def let_go(self, why: Refusal) -> None:
        """All connections hold too much, and this one more than others."""
        connection = self._connection
        if connection.phase is _LOST:
            return
        if connection.output.writing:  # it may be an acknowledgement: it goes first
            self._listener.clock.callLater(0, self.let_go, why)
        elif connection.phase >= _CLOSING or connection.holding.mostly_output:
            self.broke(why, "memory")
            self.abort()
        else:
            self.give_up(why)

    def give_up(self, why: Refusal) -> None:
        """The server drops what it holds, answers what is complete, and refuses.

        That may take as long as the disk does; the log has it at once.
        """
        connection = self._connection
        self.broke(why, "protocol")
        self._logged = why
        connection.drop_input()
        connection.calls.give_up(why)
