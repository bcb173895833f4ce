"""A Lumberjack client on Twisted: sends events until they are acknowledged.

    client = Client(endpoint(reactor, "gw.example", 5044), clock=reactor)
    client.start()
    await client.send([b'{"message":"hi"}'])     # acknowledged: it is on disk

What was not acknowledged when a connection ended is sent again on the next one.  Only
an acknowledgement that is due counts.
"""

from __future__ import annotations

from twisted.internet import interfaces

from gateway.protocols.lumberjack.writer import Writer
from gateway.sdk.sender import Sender, Unacknowledged

__all__ = ["Client", "Unacknowledged"]


class Client(Sender):
    """Sends events to one Lumberjack reader, between `start` and `stop`."""

    def __init__(
        self,
        target: interfaces.IStreamClientEndpoint,
        *,
        clock: interfaces.IReactorTime,
        writer: Writer | None = None,
        websocket: str | None = None,
        timeout: float = 30.0,
        sets_aside: bool = False,
    ) -> None:
        """*writer* says how events become windows; the rest is as for `Sender`."""
        super().__init__(
            target,
            writer or Writer(),
            clock=clock,
            websocket=websocket,
            timeout=timeout,
            sets_aside=sets_aside,
        )
