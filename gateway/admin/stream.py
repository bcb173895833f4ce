"""Server-sent events to one viewer of the admin port.

Nothing is buffered for a viewer that does not read: whoever writes asks `writable`
first, and leaves out what is more.  One that does not take what it has for long is let go
of: there are few places for viewers.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IDelayedCall, IPushProducer
from zope.interface import implementer

from gateway.admin.site import AdminRequest

__all__ = ["KIND", "EventStream"]

KIND = "text/event-stream"

_UNREAD_SECONDS = 45.0
"""As long as peers of listeners have (`gateway.net.writing`)."""


@implementer(IPushProducer)
class EventStream:
    """The response to one request."""

    def __init__(self, request: AdminRequest) -> None:
        self._request: Any = request
        self.writable = True
        self._deadline: IDelayedCall | None = None

    def begin(self, first: bytes) -> None:
        """Send the headers, and *first*."""
        for name, value in (
            ("Content-Type", KIND),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Accel-Buffering", "no"),
        ):
            self._request.setHeader(name, value)
        self._request.notifyFinish().addBoth(self._read)
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
        """The network takes no more; it says so at every write."""
        self.writable = False
        if self._deadline is None:
            later = self._request.channel.callLater
            self._deadline = later(_UNREAD_SECONDS, self._does_not_read)

    def resumeProducing(self) -> None:
        """It has taken everything."""
        self.writable = True
        self._read()

    def stopProducing(self) -> None:
        """It never will; the request's `notifyFinish` fires as well."""
        self.writable = False

    def _read(self, _: object = None) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()

    def _does_not_read(self) -> None:
        self._deadline = None
        self._request.channel.drop("viewer does not read what we send", _UNREAD_SECONDS)
