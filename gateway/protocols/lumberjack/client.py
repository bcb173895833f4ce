"""A Lumberjack client on Twisted: sends events until they are acknowledged.

    client = Client(endpoint(reactor, "gw.example", 5044), clock=reactor)
    client.start()
    await client.send([b'{"message":"hi"}'])     # acknowledged: it is on disk

What was not acknowledged when a connection ended is sent again on the next one.  Only
an acknowledgement that is due counts.
"""

from __future__ import annotations

from attrs import define, field

from gateway.protocols.lumberjack.writer import Writer
from gateway.sdk.sender import Sender, Unacknowledged

__all__ = ["Client", "Unacknowledged"]


@define(eq=False, slots=False)
class Client(Sender):
    """Sends events to one Lumberjack reader, between `start` and `stop`."""

    writer: Writer = field(factory=Writer, kw_only=True)
    """Says how events become windows."""
