"""A Lumberjack writer on Twisted: give it events, hear when they are safe.

    client = Client(endpoint(reactor, "gw.example", 5044), clock=reactor)
    client.start()
    await client.send([b'{"message":"hi"}'])     # acknowledged: it is on disk

It sends again what was not acknowledged when a connection ended; it trusts no
acknowledgement that it does not expect.
"""

from __future__ import annotations

from twisted.internet import interfaces

from gateway.protocols.lumberjack.writer import Writer
from gateway.protocols.sender import Sender, Unacknowledged

__all__ = ["Client", "Unacknowledged"]


class Client(Sender):
    """Sends events to one reader for as long as it runs."""

    def __init__(
        self,
        target: interfaces.IStreamClientEndpoint,
        *,
        clock: interfaces.IReactorTime,
        writer: Writer | None = None,
        websocket: str | None = None,
        timeout: float = 30.0,
    ) -> None:
        """See `Sender`."""
        super().__init__(
            target,
            writer or Writer(),
            clock=clock,
            websocket=websocket,
            timeout=timeout,
        )
