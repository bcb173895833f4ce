"""Server-sent events to one viewer of the admin port.

Nothing is buffered for a viewer that does not read: whoever writes asks `writable`
first, and leaves out what is more.  A viewer that has not taken after 45 s what waits for
it is disconnected: others want to look, and only so many can at once.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IDelayedCall, IPushProducer
from zope.interface import implementer

from gateway.admin.site import AdminRequest

__all__ = ["KIND", "EventStream"]

KIND = "text/event-stream"

_UNREAD_SECONDS = 45.0
"""As `STALL_SECONDS` of `gateway.net.writing`, for peers of listeners."""


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
        self._request.notifyFinish().addBoth(self._cancel_deadline)
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
        self._cancel_deadline()

    def stopProducing(self) -> None:
        """It never will; the request's `notifyFinish` fires as well."""
        self.writable = False

    def _cancel_deadline(self, _: object = None) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()

    def _does_not_read(self) -> None:
        self._deadline = None
        self._request.channel.drop("viewer does not read what we send", _UNREAD_SECONDS)
