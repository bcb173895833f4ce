"""Server-sent events to one viewer of the admin port.

Nothing is buffered for a viewer that does not read: whoever writes asks `writable`
first, and leaves out what is more.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from gateway.admin.site import AdminRequest

__all__ = ["KIND", "EventStream"]

KIND = "text/event-stream"


@implementer(IPushProducer)
class EventStream:
    """The response to one request."""

    def __init__(self, request: AdminRequest) -> None:
        self._request: Any = request
        self.writable = True

    def begin(self, first: bytes) -> None:
        """Send the headers, and *first*."""
        for name, value in (
            ("Content-Type", KIND),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Accel-Buffering", "no"),
        ):
            self._request.setHeader(name, value)
        self._request.registerProducer(self, True)
        self._request.write(first)

    def write(self, data: bytes) -> None:
        """Whole events."""
        self._request.write(data)

    def end(self) -> None:
        """No more comes."""
        self._request.unregisterProducer()
        self._request.finish()

    def pauseProducing(self) -> None:
        """The network takes no more."""
        self.writable = False

    def resumeProducing(self) -> None:
        """It does again."""
        self.writable = True

    def stopProducing(self) -> None:
        """It never will; the request's `notifyFinish` fires as well."""
        self.writable = False
