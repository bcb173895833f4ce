"""`gateway send pravega`: a writer for each connection; each event is stored once."""

from __future__ import annotations

from argparse import Namespace
from uuid import uuid4

from gateway.protocols.pravega.client import DraftWriter, EventWriter, V17Writer
from gateway.protocols.pravega.sample import readings
from gateway.protocols.pravega.writer import Writer
from gateway.sdk.command import endpoint
from gateway.sdk.sender import Sender
from gateway.sdk.sending import Feeding

_LOTS = 4


class Sending(Feeding):
    def __init__(self, args: Namespace) -> None:
        size = max(1, args.window // _LOTS)
        super().__init__(args, readings, size=size, lots=_LOTS)

    def client(self) -> Sender:
        args = self.args
        writer: EventWriter
        if args.dialect == "seed":
            writer = DraftWriter(uuid4().bytes, args.segment)
        else:
            token = args.token or ""
            writer = V17Writer(uuid4().bytes, args.segment, token=token)
        return Sender(
            endpoint(self.reactor, args),
            Writer(writer, window=args.window),
            clock=self.reactor,
            sets_aside=True,
        )
