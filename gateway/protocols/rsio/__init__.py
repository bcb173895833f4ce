"""Reactive Streams IO, version 0: demand from the table to the sender's code.

`accept` makes what a listener needs, `decode` turns a stored batch into rows; the
other way round, `client` subscribes and publishes, on Twisted and on asyncio.
docs/rsio-v0.md is the protocol, byte by byte.
"""

from gateway.protocols.rsio.events import decode
from gateway.protocols.rsio.limits import Options
from gateway.protocols.rsio.server import accept

__all__ = ["Options", "accept", "decode"]
