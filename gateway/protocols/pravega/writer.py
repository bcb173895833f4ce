"""Writes to one segment for a `gateway.sdk.sender.Sender`, which reconnects."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from gateway.protocols.pravega.client import EventWriter
from gateway.sdk.sender import Batch


class Writer:
    """Implements `gateway.sdk.sender.Writer`.  No I/O, no clock."""

    def __init__(self, events: EventWriter, *, window: int = 4096) -> None:
        """When *window* events of *events* are in flight, further batches wait."""
        self._events = events
        self._window = window
        self.at_once: int | None = None
        self.alive_every = 0.0
        self._batches: deque[Batch] = deque()
        self._waiting: deque[Batch] = deque()

    @property
    def resent(self) -> int:
        """How many events were sent more than once."""
        return self._events.resent

    @property
    def in_flight(self) -> int:
        return self._events.in_flight

    @property
    def waiting(self) -> bool:
        """Whether the server must acknowledge events, or the setup."""
        return bool(self._batches) or not self._events.ready

    @property
    def batches(self) -> Sequence[Batch]:
        """The batches that are not acknowledged yet, oldest first."""
        return [*self._batches, *self._waiting]

    def connected(self) -> bytes:
        return self._events.connected()

    def add(self, batch: Batch) -> None:
        self._waiting.append(batch)

    def take(self) -> bytes:
        """The appends to send now; empty if there are none."""
        events = self._events
        events.at_once = self.at_once
        while self._waiting and events.unacknowledged < self._window:
            batch = self._waiting.popleft()
            events.add(batch.events)
            batch.sent = len(batch.events)
            self._batches.append(batch)
        return b"".join(events.blocks())

    def received(self, data: bytes) -> Iterator[Batch]:
        """The batches that are stored now.  Raises `Refusal`."""
        known = self._events.received(data)
        refused = self._events.refused
        for number in range(known):
            batch = self._batches[0]
            if number == refused:
                batch.set_aside()
            else:
                batch.acknowledged += 1
            if batch.done:
                yield self._batches.popleft()

    def disconnected(self) -> None:
        """Nothing to do: `connected` starts again with what is not acknowledged."""

    def set_aside(self) -> Batch | None:
        """Set the event in flight aside; no batch is done before the server says what it has."""
        self._events.set_aside()
        return None

    def alive(self) -> bytes:
        """No bytes: the server asks for no sign of life."""
        return b""
