"""`gateway send lumberjack`: as a Beats shipper."""

from __future__ import annotations

from argparse import Namespace

from gateway.protocols.lumberjack.client import Client
from gateway.protocols.lumberjack.sample import access_log
from gateway.protocols.lumberjack.writer import Writer
from gateway.sdk.command import endpoint, websocket
from gateway.sdk.sending import Feeding


class Sending(Feeding):
    def __init__(self, args: Namespace) -> None:
        # One lot more than may be in flight, so that no window waits for us.
        super().__init__(args, access_log, size=args.window, lots=args.pipelining + 1)

    def client(self) -> Client:
        args = self.args
        writer = Writer(
            v1=args.v1,
            window=args.window,
            pipelining=args.pipelining,
            compression=args.compression,
        )
        return Client(
            endpoint(self.reactor, args),
            clock=self.reactor,
            sets_aside=True,
            writer=writer,
            websocket=websocket(args),
        )
