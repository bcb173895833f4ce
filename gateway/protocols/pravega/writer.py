"""Batches of events, written to one segment by a `gateway.protocols.sender.Sender`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from gateway.protocols.pravega.client import EventWriter
from gateway.protocols.sender import Batch

__all__ = ["Writer"]


class Writer:
    """A `gateway.protocols.sender.Writer`.  No I/O, no clock."""

    def __init__(self, events: EventWriter, *, window: int = 4096) -> None:
        """When *window* events of *events* are in flight, further batches wait."""
        self._events = events
        self._window = window
        self._batches: deque[Batch] = deque()
        self._waiting: deque[Batch] = deque()

    @property
    def resent(self) -> int:
        """Events that were sent more than once."""
        return self._events.resent

    @property
    def waiting(self) -> bool:
        """The server owes us an acknowledgement, or the setup."""
        return bool(self._batches) or not self._events.ready

    @property
    def batches(self) -> Sequence[Batch]:
        """What is not acknowledged, oldest first."""
        return [*self._batches, *self._waiting]

    def connected(self) -> bytes:
        """The setup."""
        return self._events.connected()

    def add(self, batch: Batch) -> None:
        """Write this as well."""
        self._waiting.append(batch)

    def take(self) -> bytes:
        """Blocks, or nothing."""
        events = self._events
        while self._waiting and events.unacknowledged < self._window:
            batch = self._waiting.popleft()
            events.add(batch.events)
            batch.sent = len(batch.events)
            self._batches.append(batch)
        return b"".join(events.blocks())

    def received(self, data: bytes) -> Iterator[Batch]:
        """The batches that are stored now.  Raises `Refusal`."""
        stored = self._events.received(data)
        while stored:
            batch = self._batches[0]
            count = min(stored, batch.sent - batch.acknowledged)
            batch.acknowledged += count
            stored -= count
            if batch.done:
                yield self._batches.popleft()

    def disconnected(self) -> None:
        """`connected` begins anew."""
