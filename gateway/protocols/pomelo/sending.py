"""`gateway send pomelo`: as a game's client, with requests that 200 acknowledges."""

from __future__ import annotations

from argparse import Namespace

from gateway.protocols.pomelo.sample import moves
from gateway.protocols.pomelo.writer import Writer
from gateway.sdk.command import endpoint, websocket
from gateway.sdk.sender import Sender
from gateway.sdk.sending import Feeding

_NOTIFIES = 100
"""Notifies in one lot, with the request at its end."""


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
