"""Lots of events, written to one segment by a `gateway.protocols.sender.Sender`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from gateway.protocols.pravega.client import EventWriter
from gateway.protocols.sender import Lot

__all__ = ["Writer"]


class Writer:
    """A `gateway.protocols.sender.Writer`.  No I/O, no clock."""

    def __init__(self, events: EventWriter, *, window: int = 4096) -> None:
        """When *window* events of *events* are in flight, further lots wait."""
        self._events = events
        self._window = window
        self._lots: deque[Lot] = deque()
        self._waiting: deque[Lot] = deque()

    @property
    def resent(self) -> int:
        """Events that were sent more than once."""
        return self._events.resent

    @property
    def waiting(self) -> bool:
        """The server owes us an acknowledgement, or the setup."""
        return bool(self._lots) or not self._events.ready

    @property
    def lots(self) -> Sequence[Lot]:
        """What is not acknowledged, oldest first."""
        return [*self._lots, *self._waiting]

    def connected(self) -> bytes:
        """The setup."""
        return self._events.connected()

    def add(self, lot: Lot) -> None:
        """Write this as well."""
        self._waiting.append(lot)

    def take(self) -> bytes:
        """Blocks, or nothing."""
        events = self._events
        while self._waiting and events.unacknowledged < self._window:
            lot = self._waiting.popleft()
            events.add(lot.events)
            lot.sent = len(lot.events)
            self._lots.append(lot)
        return b"".join(events.blocks())

    def received(self, data: bytes) -> Iterator[Lot]:
        """The lots that are stored now.  Raises `Refusal`."""
        stored = self._events.received(data)
        while stored:
            lot = self._lots[0]
            count = min(stored, lot.sent - lot.acknowledged)
            lot.acknowledged += count
            stored -= count
            if lot.done:
                yield self._lots.popleft()

    def disconnected(self) -> None:
        """`connected` begins anew."""
