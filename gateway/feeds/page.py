"""`/api/tap` on the admin port: a sample of the live events, as server-sent events.

    GET /api/tap?protocol=pomelo&rate=20        data: {"node":"gw-1","lsn":7,…}

The keys are those of the publisher `tap`, in JSON, and `rate`: how many events a second
at most (100).  What is more is left out, and the gap told: `data: {"gap":{…}}`.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

from twisted.internet.interfaces import IPushProducer, IReactorTime
from zope.interface import implementer

from gateway.admin.site import AdminRequest, Answer, Page
from gateway.event import Origin
from gateway.feeds.live import Tap, TapSource
from gateway.feeds.publisher import Elements, Fault, Request

__all__ = ["tap_page"]

_RATE = 100
_MOST_RATE = 10_000
_VIEWERS = 16
_TICK_SECONDS = 0.25
_SILENT_TICKS = 60  # then a comment, so that proxies keep the connection
_KIND = "text/event-stream"


def tap_page(tap: Tap, clock: IReactorTime) -> Page:
    """The page, for `Admin(more={"/api/tap": …})`."""
    viewers: set[_Viewer] = set()

    def page(request: AdminRequest) -> Answer | None:
        try:
            return _view(request, tap, clock, viewers)
        except Fault as why:
            body = json.dumps({"error": why.text}).encode()
            return Answer(body, "application/json", why.number)

    return page


def _view(
    request: AdminRequest, tap: Tap, clock: IReactorTime, viewers: set[_Viewer]
) -> Answer | None:
    given = dict(parse_qsl(_query(request), keep_blank_values=True))
    rate = _rate(given.pop("rate", str(_RATE)))
    if given.get("format", "json") != "json":
        raise Fault(400, "only format=json here")
    if request.method == b"HEAD":
        return Answer(b"", _KIND)
    if len(viewers) >= _VIEWERS:
        raise Fault(503, f"{_VIEWERS} are looking already")
    peer = Origin("admin", "admin", "", "")
    source = tap.subscribe(Request("tap", given, None, peer), _ignore)
    viewer = _Viewer(request, source, clock, rate)
    viewers.add(viewer)

    def gone(_: object) -> None:
        viewers.discard(viewer)
        viewer.close()

    request.notifyFinish().addBoth(gone)
    viewer.begin()
    return None


def _query(request: AdminRequest) -> str:
    uri: bytes = request.uri
    return uri.partition(b"?")[2].decode("latin-1")


def _rate(text: str) -> int:
    if text.isascii() and text.isdecimal() and 0 < int(text[:9]) <= _MOST_RATE:
        return int(text)
    raise Fault(400, f"rate={text[:20]}: events a second, 1 to {_MOST_RATE}")


def _ignore() -> None:
    """There are new events; the next tick will do."""


@implementer(IPushProducer)
class _Viewer:
    """One who looks."""

    def __init__(
        self, request: AdminRequest, source: TapSource, clock: IReactorTime, rate: int
    ) -> None:
        self._request: Any = request
        self._source = source
        self._clock = clock
        self._rate = rate
        self._credit = 0.0
        self._silent = 0
        self._writable = True
        self._next: Any = None

    def begin(self) -> None:
        """Say that it works, and go on until it is closed."""
        for name, value in (
            ("Content-Type", _KIND),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Accel-Buffering", "no"),
        ):
            self._request.setHeader(name, value)
        self._request.registerProducer(self, True)
        self._request.write(b": events as they become durable\n\n")
        self._next = self._clock.callLater(_TICK_SECONDS, self._tick)

    def close(self) -> None:
        """Nobody looks any more."""
        self._source.close()
        if self._next is not None and self._next.active():
            self._next.cancel()

    def pauseProducing(self) -> None:
        """The network takes no more."""
        self._writable = False

    def resumeProducing(self) -> None:
        """It does again."""
        self._writable = True

    def stopProducing(self) -> None:
        """It never will; `close` is called as well."""
        self._writable = False

    def _tick(self) -> None:
        self._credit = min(self._credit, 1) + self._rate * _TICK_SECONDS
        try:
            self._show()
        except Fault:  # the daemon stops
            self._request.unregisterProducer()
            self._request.finish()
            return
        self._next = self._clock.callLater(_TICK_SECONDS, self._tick)

    def _show(self) -> None:
        self._silent += 1
        while self._writable and self._credit >= 1:
            elements = self._source.take(int(self._credit))
            if elements is None:
                break
            self._write(elements)
        else:
            elements = self._source.skip() if self._writable else None
            if elements is not None:
                self._write(elements)
        if self._writable and self._silent >= _SILENT_TICKS:
            self._silent = 0
            self._request.write(b":\n\n")

    def _write(self, elements: Elements) -> None:
        self._credit -= len(elements)
        self._silent = 0
        self._request.write(
            b"".join(b"data: %b\n\n" % one for one in elements.elements)
        )
