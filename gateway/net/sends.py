"""Sends what connections wrote in one turn of the reactor at its end, or at once if much.

Twisted asks the kernel first when a socket can be written to, though it nearly always
can.  A short answer would cost two changes of the epoll set and one more event, and another
thread may take the interpreter at each of the three.  Here it is sent without asking.
What the kernel does not take waits for the reactor, as all output does in Twisted, and so
does the end of a connection.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from twisted.internet import unix
from twisted.internet.interfaces import IListeningPort, IReactorTime

from gateway.net.twisted_internals import (
    MOST_SOCKETS,
    AcceptedSocket,
    AcceptedUnixSocket,
    send_little,
)

_BYTES_AT_ONCE = 1 << 20
"""Bytes that are sent at the end of a turn, to `MOST_SOCKETS`, before the reactor serves others."""


class Sends:
    """The sockets of one port that have something to send."""

    __slots__ = ("_clock", "_scheduled", "_waiting")

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: dict[AcceptedSocket, None] = {}
        self._scheduled = False

    def serve(self, port: IListeningPort) -> None:
        """Send for each connection that *port*, one of Twisted's, accepts from now on."""
        kind = AcceptedUnixSocket if isinstance(port, unix.Port) else AcceptedSocket

        def accepted(*given: Any) -> AcceptedSocket:
            server = kind(*given)
            server.sends = self
            return server

        port.transport = accepted  # type: ignore[attr-defined]

    def add(self, server: AcceptedSocket) -> None:
        """Send for *server* at the end of the turn."""
        self._waiting[server] = None
        if not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._end_turn)

    def remove(self, server: AcceptedSocket) -> None:
        """Forget *server*, which has nothing to send any more."""
        self._waiting.pop(server, None)

    def flush(self) -> None:
        """Send now, before other work takes the reactor's time."""
        if self._waiting:
            self._send()

    def _end_turn(self) -> None:
        self._scheduled = False
        self._send()

    def _send(self) -> None:
        try:
            left = _BYTES_AT_ONCE
            some: list[AcceptedSocket] = []
            for server in islice(self._waiting, MOST_SOCKETS):
                if left <= 0:
                    break
                left -= server.unsent_bytes
                some.append(server)
            done = send_little(some)
            for server in done:  # which may have more to send once others are sent to
                self._waiting.pop(server, None)
            for server in some:
                if server not in done and server in self._waiting:  # not lost meanwhile
                    del self._waiting[server]
                    server.send()
        finally:
            if self._waiting and not self._scheduled:
                self._scheduled = True
                self._clock.callLater(0, self._end_turn)
