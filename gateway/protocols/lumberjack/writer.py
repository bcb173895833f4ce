"""The writer's side of the protocol: what to send next, and what is acknowledged.

A *lot* is what the caller wants acknowledged as a whole.  It travels as one or more
windows, of at most as many events as the slow start allows; several windows are in
flight at once.  What was not acknowledged when a connection ends is sent again on the
next one: at least once, in order.

v2 numbers the events of each window from 1, as Filebeat does, and sends `J` frames.
v1 numbers the events of its life, as logstash-forwarder does, and sends `D` frames: a
JSON object's text values under their dotted keys, anything else as `line`.

No I/O, no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from gateway.protocols.lumberjack import wire
from gateway.protocols.sender import Lot, Unexpected

__all__ = ["Lot", "Writer", "WrongAck"]

_V1, _V2 = b"12"
_SLOW_START = 10


class WrongAck(Unexpected):
    """The reader sent something that acknowledges nothing of ours."""


class Writer:
    """One connection after the other, from the writer's side."""

    def __init__(
        self,
        *,
        v1: bool = False,
        window: int = 2048,
        pipelining: int = 2,
        compression: int = 3,
        slow_start: bool = True,
    ) -> None:
        """*window* is the most events in one, *pipelining* the most windows in flight;
        *compression* is zlib's level, 0 for none.
        """
        self._version = _V1 if v1 else _V2
        self._window = window
        self._pipelining = pipelining
        self._compression = compression
        self._size = min(_SLOW_START, window) if slow_start else window
        self._slow_start = slow_start
        self._lots: deque[Lot] = deque()  # what is not acknowledged …
        self._next = 0  # … and which of them is not wholly on its way
        self._flight: deque[tuple[Lot, int, int]] = deque()  # lot, events, last seq
        self._seq = 0
        self._tail = b""
        self.resent = 0
        """Events that were sent more than once."""
        self.keepalives = 0

    @property
    def waiting(self) -> bool:
        """Something is on its way and not acknowledged."""
        return bool(self._flight)

    @property
    def lots(self) -> Sequence[Lot]:
        """What is not acknowledged, oldest first."""
        return self._lots

    def connected(self) -> bytes:
        """Nothing: windows come first."""
        return b""

    def add(self, lot: Lot) -> None:
        """Send this as well."""
        if not lot.events:
            raise ValueError("an empty lot is never acknowledged")
        self._lots.append(lot)

    def take(self) -> bytes:
        """The next window, to be written now; empty if nothing may be."""
        if len(self._flight) >= self._pipelining or self._next >= len(self._lots):
            return b""
        lot = self._lots[self._next]
        events = lot.events[lot.sent : lot.sent + self._size]
        lot.sent += len(events)
        if lot.sent == len(lot.events):
            self._next += 1
        frames, last = self._frames(events)
        self._flight.append((lot, len(events), last))
        if self._compression:
            frames = wire.compressed(self._version, frames, self._compression)
        return wire.window(self._version, len(events)) + frames

    def received(self, data: bytes) -> Iterator[Lot]:
        """What the reader sent; the lots that are safe now, then maybe `WrongAck`."""
        data = self._tail + data
        whole = len(data) - len(data) % 6
        self._tail = data[whole:]
        for at in range(0, whole, 6):
            if data[at : at + 2] != bytes((self._version, b"A"[0])):
                raise WrongAck(f"not an acknowledgement: {data[at : at + 6].hex(' ')}")
            lot = self._acknowledged(int.from_bytes(data[at + 2 : at + 6]))
            if lot is not None and lot.done:
                yield lot

    def disconnected(self) -> None:
        """The connection ended: what is not acknowledged is to be sent again."""
        self._tail = b""
        if self._flight and self._slow_start:
            self._size = max(1, self._size // 2)
        self.resent += sum(count for _, count, _ in self._flight)
        self._flight.clear()
        for lot in self._lots:
            lot.sent = lot.acknowledged
        self._next = 0

    def _acknowledged(self, seq: int) -> Lot | None:
        if seq == 0 and self._version == _V2:
            self.keepalives += 1
            return None
        if not self._flight:
            raise WrongAck(f"acknowledgement of {seq}, nothing was sent")
        lot, count, last = self._flight[0]
        if seq != last:
            if self._version == _V2 and seq < last:
                return None  # of a part of the window: another sign of life
            raise WrongAck(f"acknowledgement of {seq}, expected {last}")
        self._flight.popleft()
        lot.acknowledged += count
        if self._size < self._window:
            self._size = min(self._window, self._size + (self._size + 1) // 2)
        if lot.done:
            self._lots.popleft()
            self._next -= 1
        return lot

    def _frames(self, events: Sequence[bytes]) -> tuple[bytes, int]:
        """Of these events, and the sequence number of the last one."""
        frames = []
        if self._version == _V2:
            for seq, event in enumerate(events, 1):
                frames.append(wire.json(_V2, seq, event))
            return b"".join(frames), len(events)
        for event in events:
            self._seq = (self._seq + 1) % 2**32
            frames.append(wire.data(_V1, self._seq, _pairs(event)))
        return b"".join(frames), self._seq


def _pairs(event: bytes) -> list[tuple[bytes, bytes]]:
    try:
        found = msgspec.json.decode(event)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if isinstance(found, dict):
        return list(_flat(found, ""))
    return [(b"line", event)]


def _flat(found: dict[str, Any], prefix: str) -> Iterator[tuple[bytes, bytes]]:
    for key, value in found.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            text = isinstance(value, str)
            spelled = value.encode() if text else msgspec.json.encode(value)
            yield f"{prefix}{key}".encode(), spelled
