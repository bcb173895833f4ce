"""Connections: bytes to messages, as RFC 6587 frames them, and to batches.

    by count      12 <13>a message
    by trailer    <13>a message LF          or NUL

The first byte of a connection says which it is.  The messages that are complete after a
read are one batch, or a few.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from twisted.internet.interfaces import IReactorTime

from gateway.event import Origin
from gateway.sdk.batches import Ready
from gateway.sdk.interfaces import Refusal
from gateway.sdk.protocol import Settings
from gateway_syslog.messages import pack
from gateway_syslog.options import Options

__all__ = ["Session"]

_COUNT = re.compile(rb"([1-9][0-9]{0,9})(?: |\Z)")
#: In one batch, so that a turn of the event loop can end after it.
_MOST = 1000
_TRAILERS = {"any": rb"[\n\0]", "newline": rb"\n", "nul": rb"\0"}


class Session:
    """One connection.  Raises `Refusal` only."""

    def __init__(
        self, settings: Settings[Options], clock: IReactorTime, origin: Origin
    ) -> None:
        self._limit = settings.limits.message_bytes
        self._trailer = re.compile(_TRAILERS[settings.options.trailer])
        self._zone = settings.options.timezone
        self._clock = clock
        self._buffer = bytearray()
        self._searched = 0
        self._counts: bool | None = None

    @property
    def held_bytes(self) -> int:
        """How many bytes of an incomplete message are buffered."""
        return len(self._buffer)

    def received(self, data: bytes) -> Iterator[Ready]:
        """Take any slicing of the stream; yields the batches that it completes."""
        self._buffer += data
        if self._counts is None and data:
            self._counts = data[:1].isdigit()
        messages: list[bytes] = []
        try:
            for message in self._by_count() if self._counts else self._by_trailer():
                messages.append(message.rstrip(b"\r\n\0"))
                if len(messages) == _MOST:
                    yield self._batch(messages)
                    messages = []
        except Refusal:  # what came before it is complete
            yield self._batch(messages)
            raise
        yield self._batch(messages)

    def _by_count(self) -> Iterator[bytes]:
        at, buffer = 0, self._buffer
        while at < len(buffer):
            count = _COUNT.match(buffer, at)
            if count is None:
                raise Refusal(
                    f"{bytes(buffer[at : at + 12])!r} where a length should be"
                )
            start, end = count.end(), count.end() + int(count[1])
            self._check(end - start)
            if end > len(buffer):
                break
            yield bytes(buffer[start:end])
            at = end
        del buffer[:at]

    def _by_trailer(self) -> Iterator[bytes]:
        if self._trailer.search(self._buffer, self._searched):
            *messages, rest = self._trailer.split(self._buffer)
            self._buffer = bytearray(rest)
            for message in messages:
                self._check(len(message))
                yield message
        self._searched = len(self._buffer)
        self._check(self._searched)

    def _check(self, size: int) -> None:
        if size > self._limit:
            rule = f"message of {size} bytes"
            raise Refusal(rule, limit=self._limit, key="limits.message_bytes")

    def _batch(self, messages: list[bytes]) -> Ready:
        found = list(filter(None, messages))
        body = pack(self._clock.seconds(), self._zone, found)
        empty = len(messages) - len(found)
        return Ready(len(found), body, sum(map(len, found)), control=empty)
