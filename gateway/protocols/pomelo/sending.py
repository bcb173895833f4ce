"""`gateway send pomelo`: as a game's client, with requests that 200 acknowledges."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from gateway.protocols.pomelo.writer import Writer
from gateway.sdk.command import endpoint, websocket
from gateway.sdk.sender import Sender
from gateway.sdk.sending import Feeding
from gateway.sdk.source import identified

_NOTIFIES = 100
"""Notifies in one lot, with the request at its end."""
_PLAYERS = 50


def moves(seed: int) -> Iterator[tuple[str, bytes]]:
    """Made-up moves of players, ~85 bytes each, no two alike; with their ids."""
    chance, ids = identified(seed)
    for identity in ids:
        x, y = chance.randrange(1000), chance.randrange(1000)
        player, points = chance.randrange(_PLAYERS), chance.randrange(10)
        yield (
            identity,
            f'{{"event":{{"id":"{identity}"}},"player":"p{player}","x":{x},"y":{y},'
            f'"points":{points}}}'.encode(),
        )


class Sending(Feeding):
    def __init__(self, args: Namespace) -> None:
        size = _NOTIFIES if args.notify else 1
        super().__init__(args, moves, size=size, lots=args.depth)

    def client(self) -> Sender:
        args = self.args
        user = {} if args.token is None else {"token": args.token}
        return Sender(
            endpoint(self.reactor, args),
            Writer(args.route, user),
            clock=self.reactor,
            sets_aside=True,
            websocket=websocket(args),
        )
