"""Server-sent events to one viewer of the admin port: an answer that goes on.

Nothing is buffered for a viewer that does not read: a writer asks `writable` first, and
leaves out what is more.  A viewer that takes nothing for long is disconnected, as any peer
of a listener (`gateway.net`): others want to look, and only so many can at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

KIND = "text/event-stream"


class EventStream:
    """The response to one request; it begins when its page has returned it."""

    headers: Mapping[str, str] = {"Content-Type": KIND, "X-Accel-Buffering": "no"}

    def __init__(self, gone: Callable[[], object], first: bytes = b"") -> None:
        """*gone* is called once, when it has ended, at either end."""
        self.gone = gone
        self.writable = True
        """The network takes more."""
        self._first = first
        self._send: Callable[[bytes | None], None] | None = None

    def begin(self, send: Callable[[bytes | None], None]) -> None:
        """*send* sends whole events from now on; None: no more comes."""
        self._send = send
        send(self._first)

    def write(self, data: bytes) -> None:
        """Whole events."""
        if self._send is None:
            self._first += data
        else:
            self._send(data)

    def end(self) -> None:
        """No more comes."""
        if self._send is not None:
            self._send(None)
