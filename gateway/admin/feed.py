"""The live page's feed: server-sent events with the daemon's state, for few viewers.

    GET /api/feed      event: status      data: {"status": {…}, "sample": {…}}   every 2 s
                       event: rejections  data: [{…}]                     when there are new
    GET /api/history   the last hour, a list for each column

What is told is made once for all viewers, and only while there are some.  A viewer that
does not read misses states, and gets the next one whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from attrs import define
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from gateway.admin.history import History
from gateway.admin.site import Request, plain
from gateway.admin.status import Probe, as_json
from gateway.admin.stream import KIND, EventStream
from gateway.sdk.protocol import Answer

_VIEWERS = 16
_EVERY_SECONDS = 2.0

#: How many rejections there were ever, and what they are as JSON.
Rejections = Callable[[], tuple[int, Callable[[], bytes]]]


@define(eq=False, slots=False)
class Feed:
    """All viewers."""

    _probe: Probe
    _history: History
    _rejections: Rejections
    _clock: IReactorTime

    def __attrs_post_init__(self) -> None:
        self._viewers: dict[EventStream, int] = {}
        """And the number of rejections that each was told of; -1: none."""
        self._next: IDelayedCall | None = None

    def page(self, request: Request) -> Answer | EventStream:
        """`/api/feed`."""
        if request.method == "HEAD":
            return Answer(b"", KIND)
        if len(self._viewers) >= _VIEWERS:
            return plain(503, f"{_VIEWERS} are looking already", request.path)

        def gone() -> None:
            del self._viewers[viewer]
            if not self._viewers and self._next is not None:
                self._next.cancel()
                self._next = None

        viewer = EventStream(gone, self._state())
        self._viewers[viewer] = -1
        self._tell_rejections()
        if self._next is None:
            self._next = self._clock.callLater(_EVERY_SECONDS, self._tick)
        return viewer

    def history(self, _: Request) -> Answer:
        """`/api/history`."""
        return Answer(self._history.as_json(), "application/json")

    def _tick(self) -> None:
        self._next = self._clock.callLater(_EVERY_SECONDS, self._tick)
        state = self._state()
        for viewer in self._viewers:
            if viewer.writable:
                viewer.write(state)
        self._tell_rejections()

    def _state(self) -> bytes:
        latest = self._history.latest
        sample = json.dumps(latest and latest._asdict()).encode()
        return b'event: status\ndata: {"status": %b, "sample": %b}\n\n' % (
            as_json(self._probe()),
            sample,
        )

    def _tell_rejections(self) -> None:
        serial, listed = self._rejections()
        told = b""
        for viewer, known in self._viewers.items():
            if known != serial and viewer.writable:
                told = told or b"event: rejections\ndata: %b\n\n" % listed()
                viewer.write(told)
                self._viewers[viewer] = serial
