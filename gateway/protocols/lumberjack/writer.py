"""The sending side of Lumberjack, without I/O: makes windows, takes acknowledgements.

A batch is the caller's unit of acknowledgement.  It is sent as one or more windows; the
slow start limits their size, and several are in flight at once.  Events that were not
acknowledged when a connection ends are sent again on the next one: at least once, in
order.

Version 2 numbers the events of each window from 1, as Filebeat does, and sends `J` frames.
Version 1 counts on from window to window, as logstash-forwarder does, and sends `D` frames:
a JSON object's text values under their dotted keys, anything else as `line`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from attrs import define

from gateway.protocols.lumberjack import wire
from gateway.sdk.sender import Batch, Unexpected

_V1, _V2 = b"12"
_SLOW_START = 10


class WrongAck(Unexpected):
    """The reader sent something that is not the acknowledgement that is due."""


@define(eq=False, slots=False, kw_only=True)
class Writer:
    """Sends events over one connection after the other: implements `sender.Writer`.

    16 attributes: half of them are its interface, or are given.
    """

    _v1: bool = False
    _window: int = 2048
    """The most events in one."""
    _pipelining: int = 2
    """The most windows in flight."""
    _compression: int = 3
    """Zlib's level, 0 for none."""
    _slow_start: bool = True

    def __attrs_post_init__(self) -> None:
        self._version = _V1 if self._v1 else _V2
        self._size = self._window
        if self._slow_start:
            self._size = min(_SLOW_START, self._window)
        self._batches: deque[Batch] = deque()  # not acknowledged …
        self._next = 0  # … and the first of them that is not wholly sent
        self._flight: deque[tuple[Batch, int, int]] = deque()  # batch, events, last seq
        self._seq = 0
        self._tail = b""
        self.resent = 0
        self.at_once: int | None = None
        self.alive_every = 0.0
        self.keepalives = 0

    @property
    def waiting(self) -> bool:
        return bool(self._flight)

    @property
    def in_flight(self) -> int:
        return sum(count for _, count, _ in self._flight)

    @property
    def batches(self) -> Sequence[Batch]:
        return self._batches

    def connected(self) -> bytes:
        return b""

    def add(self, batch: Batch) -> None:
        if not batch.events:
            raise ValueError("an empty batch is never acknowledged")
        self._batches.append(batch)

    def take(self) -> bytes:
        """The next window, to be written now; empty if none may be sent now."""
        if len(self._flight) >= self._pipelining or self._next >= len(self._batches):
            return b""
        size = self._size
        if self.at_once is not None:
            size = min(size, self.at_once - self.in_flight)
            if size <= 0:
                return b""
        batch = self._batches[self._next]
        events = batch.events[batch.sent : batch.sent + size]
        batch.sent += len(events)
        if batch.sent == len(batch.events):
            self._next += 1
        frames, last = self._frames(events)
        self._flight.append((batch, len(events), last))
        if self._compression:
            frames = wire.compressed(self._version, frames, self._compression)
        return wire.window(self._version, len(events)) + frames

    def received(self, data: bytes) -> Iterator[Batch]:
        """The acknowledged batches.  Raises `WrongAck`, after those acknowledged before it."""
        data = self._tail + data
        whole = len(data) - len(data) % 6
        self._tail = data[whole:]
        for at in range(0, whole, 6):
            if data[at : at + 2] != bytes((self._version, b"A"[0])):
                raise WrongAck(_spoken(data[at : at + 6]))
            batch = self._acknowledged(int.from_bytes(data[at + 2 : at + 6]))
            if batch is not None and batch.done:
                yield batch

    def disconnected(self) -> None:
        self._tail = b""
        if self._flight and self._slow_start:
            self._size = max(1, self._size // 2)
        self.resent += self.in_flight
        self._flight.clear()
        for batch in self._batches:
            batch.sent = batch.acknowledged
        self._next = 0

    def set_aside(self) -> Batch | None:
        batch = self._batches[0]
        batch.set_aside()
        return self._batches.popleft() if batch.done else None

    def alive(self) -> bytes:
        """No bytes: the reader asks for no sign of life."""
        return b""

    def _acknowledged(self, seq: int) -> Batch | None:
        if seq == 0 and self._version == _V2:
            self.keepalives += 1
            return None
        if not self._flight:
            raise WrongAck(f"acknowledgement of {seq}, nothing was sent")
        batch, count, last = self._flight[0]
        if seq != last:
            if (last - seq) % 2**32 < count:
                return None  # of a part of the window: as good as a keepalive
            raise WrongAck(f"acknowledgement of {seq}, expected {last}")
        self._flight.popleft()
        batch.acknowledged += count
        if self._size < self._window:
            self._size = min(self._window, self._size + (self._size + 1) // 2)
        if batch.done:
            self._batches.popleft()
            self._next -= 1
        return batch

    def _frames(self, events: Sequence[bytes]) -> tuple[bytes, int]:
        """The frames of these events, and the last one's sequence number."""
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


_OTHERS = (
    (b"\x15\x03", "TLS is spoken there (--tls)"),
    (b"HTTP/", "HTTP is spoken there"),
)


def _spoken(data: bytes) -> str:
    """The name of the protocol that six octets look like, which are no acknowledgement."""
    for begin, what in _OTHERS:
        if data.startswith(begin):
            return what
    return f"no Lumberjack is spoken there: {data.hex(' ')} is no acknowledgement"
