"""RS.io client for Python programs, on asyncio and on Twisted.

On asyncio; with `on_twisted`, in `Deferred.fromCoroutine`, it reads the same:

    from gateway.protocols.rsio.client.on_asyncio import connect

    async with connect("gw.example", 7400) as peer:
        async for element in peer.subscribe("tap?channel=orders"):
            print(element)

    outbox = Outbox()       # keeps what is not acknowledged, across connections
    async with connect("gw.example", 7400, name="meter-17") as peer:
        async with peer.publisher("events", outbox=outbox) as publisher:
            await publisher.send(b'{"kWh": 17.5}')      # waits for demand
            await publisher.flush()                     # … until it is on disk

A subscription requests more as its elements are taken out of it, so a slow loop slows
down that publisher and nothing else.
"""

from gateway.protocols.rsio.client.outbox import Outbox
from gateway.protocols.rsio.client.peer import Peer
from gateway.protocols.rsio.client.publishing import Publishing
from gateway.protocols.rsio.client.runtime import (
    CanNotResume,
    Disconnected,
    Fenced,
    StreamFailed,
    TooLarge,
)
from gateway.protocols.rsio.client.subscription import Subscription
from gateway.protocols.rsio.limits import Limits

__all__ = [
    "CanNotResume",
    "Disconnected",
    "Fenced",
    "Limits",
    "Outbox",
    "Peer",
    "Publishing",
    "StreamFailed",
    "Subscription",
    "TooLarge",
]
