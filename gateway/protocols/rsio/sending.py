"""`gateway send rsio`: publishes on connections that each have a name of their own."""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Iterator, Sequence

from gateway.protocols.rsio.client.on_twisted import connect
from gateway.protocols.rsio.client.sender import Sender
from gateway.protocols.rsio.messages import CONTENT_TYPE, alpn
from gateway.sdk.command import WrongUse, endpoint, http2, websocket
from gateway.sdk.sending import Feeding
from gateway.sdk.source import identified, timestamp

#: Of events; the gateway's demand decides how many of them are on their way.
_LOT, _LOTS = 128, 8
_METERS = 60


def meters(seed: int) -> Iterator[tuple[str, bytes]]:
    """Made-up readings of electricity meters, ~125 bytes each; with their ids."""
    chance, ids = identified(seed)
    counted = [chance.uniform(0, 9999) for _ in range(_METERS)]
    for identity in ids:
        meter, watts = chance.randrange(_METERS), chance.randrange(50, 9000)
        counted[meter] += watts / 3.6e6
        yield (
            identity,
            f'{{"@timestamp":"{timestamp()}","event":{{"id":"{identity}"}},'
            f'"meter":"m{meter:02d}","W":{watts},"kWh":{counted[meter]:.6f}}}'.encode(),
        )


class _Sender(Sender):
    """Leaves out, and names, what the gateway has said that it does not take."""

    async def offer(self, events: Sequence[bytes]) -> dict[int, str]:
        most = await self.element_bytes()
        refused = {
            at: f"the gateway takes {most:,} bytes (options.element_bytes, or limits.message_bytes)"
            for at, event in enumerate(events)
            if most is not None and len(event) > most
        }
        await self.send([one for at, one in enumerate(events) if at not in refused])
        return refused


class Sending(Feeding):
    def __init__(self, args: Namespace) -> None:
        super().__init__(args, meters, size=_LOT, lots=_LOTS)
        unique = random.SystemRandom().getrandbits(48)
        self._name = args.name or f"send-{unique:012x}"
        self._made = 0

    def client(self) -> _Sender:
        args = self.args
        self._made += 1
        name = self._name if args.connections == 1 else f"{self._name}-{self._made}"
        asked = http2(args, CONTENT_TYPE)
        target = endpoint(self.reactor, args, [alpn(asked)])
        return _Sender(
            lambda: connect(
                target,
                clock=self.reactor,
                websocket=websocket(args),
                http2=asked,
                name=name,
                token=args.token,
                compress=args.compress,
            ),
            args.publisher,
            clock=self.reactor,
            size=args.packed,
        )

    def bodies(self, events: Sequence[bytes]) -> list[bytes]:
        size = self.args.packed
        if not size:
            return super().bodies(events)
        longest = max(map(len, events))
        if longest > size:
            raise WrongUse(f"an event of {longest} bytes does not fit --packed {size}")
        return [event.ljust(size) for event in events]
