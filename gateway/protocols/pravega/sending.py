"""`gateway send pravega`: a writer for each connection; each event is stored once."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from uuid import uuid4

from gateway.protocols.pravega.client import DraftWriter, EventWriter, V17Writer
from gateway.protocols.pravega.writer import Writer
from gateway.sdk.command import endpoint
from gateway.sdk.sender import Sender
from gateway.sdk.sending import Feeding
from gateway.sdk.source import identified, timestamp

_LOTS = 4
_SENSORS = 40


def readings(seed: int) -> Iterator[tuple[str, bytes]]:
    """Made-up readings of sensors, ~115 bytes each; with their ids."""
    chance, ids = identified(seed)
    warmth = [chance.uniform(15, 80) for _ in range(_SENSORS)]
    for identity in ids:
        sensor = chance.randrange(_SENSORS)
        warmth[sensor] += chance.gauss(0, 0.2)
        yield (
            identity,
            f'{{"@timestamp":"{timestamp()}","event":{{"id":"{identity}"}},'
            f'"sensor":"t{sensor:02d}","celsius":{warmth[sensor]:.2f}}}'.encode(),
        )


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
