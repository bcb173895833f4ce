"""`/api/tap` on the admin port: a sample of the live events, as server-sent events.

    GET /api/tap?protocol=pomelo&rate=20        data: {"node":"gw-1","lsn":7,…}

The keys are those of the publisher `tap`, in JSON, and

    rate=20            how many events a second at most (100)
    find.peer=10.0.    events with this text in that column; any column, several at once
    fair=yes           each listener gets the same share of the rate, if it has so much
    payload=no         without payload and attributes, as is all that a viewer without a
                       token may have (`admin.trust_loopback`)

What is more than the rate is left out, and the gap told: `data: {"gap":{…}}`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec
from twisted.internet.interfaces import IReactorTime

from gateway.admin.site import UNTRUSTED, Page, number, plain
from gateway.admin.site import Request as PageRequest
from gateway.admin.stream import KIND, EventStream
from gateway.event import SCHEMA, Origin
from gateway.feeds import lines
from gateway.feeds.live import Tap, TapSource
from gateway.sdk.protocol import Answer
from gateway.sdk.publisher import Elements, Fault, Request

FIND = "find."
"""The prefix of keys of the query: `find.peer=10.0.`."""
_PAYLOADS = ("payload", "payload_text", "payload_base64")
_PRIVATE = (*_PAYLOADS, "attributes")
_COLUMNS = tuple(SCHEMA.names)
_columns = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Choice:
    """*wanted* has texts by column, all of which an event must contain, whatever their
    case; without *payloads* events come without payload and attributes.

    Raises `Fault` for what is no column, or not to be seen.
    """

    def __init__(self, wanted: Mapping[str, str], *, payloads: bool) -> None:
        for column in wanted:
            if column not in _COLUMNS:
                there = ", ".join(_COLUMNS)
                raise Fault(400, f"no column {column[:40]!r}; there is {there}")
            if column in _PRIVATE and not payloads:
                raise Fault(403, f"{column} is not shown here without a token")
        self._wanted = {name: text.lower() for name, text in wanted.items() if text}
        self._needles = [_needle(text) for text in self._wanted.values()]
        self._payloads = payloads

    @property
    def any(self) -> bool:
        """Every event will do."""
        return not self._wanted

    def of(self, elements: Sequence[bytes], most: int) -> Sequence[bytes]:
        """The wanted *elements*, *most* at most, and a gap if there are more; gaps always are."""
        if self.any and self._payloads:
            return elements
        chosen: list[bytes] = []
        for element in elements:
            if is_gap(element):
                chosen.append(element)
                continue
            lower = element.lower() if self._needles else b""
            if not all(needle in lower for needle in self._needles):
                continue
            event = _columns(element)
            if any(
                text not in _text(event, name) for name, text in self._wanted.items()
            ):
                continue
            if len(chosen) >= most:
                last = _columns(elements[-1])
                return [*chosen, lines.gap(_lsn(event), _lsn(last))]
            chosen.append(element if self._payloads else _public(event))
        return chosen


def is_gap(element: bytes) -> bool:
    """Whether an element tells of events that were left out."""
    return element.startswith(b'{"gap"')


def _needle(text: str) -> bytes:
    """Bytes that the JSON of a match has in any case: its longest part without what may be
    escaped, and without colons, which may stand before blanks.
    """
    plain = "".join(
        one if (one.isascii() and one.isalnum()) or one in " ._-" else "\0"
        for one in text
    )
    return max(plain.split("\0"), key=len).encode()


def _text(event: Mapping[str, msgspec.Raw], column: str) -> str:
    names = _PAYLOADS if column == "payload" else (column,)
    raw = next((bytes(event[name]) for name in names if name in event), b'""')
    try:
        found = json.loads(raw)
    except ValueError:  # it has a number of more digits than Python takes
        return raw.decode().lower()
    if isinstance(found, str):
        return found.lower()
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).lower()


def _lsn(event: Mapping[str, msgspec.Raw]) -> int:
    return int(bytes(event["lsn"]))


def _public(event: Mapping[str, msgspec.Raw]) -> bytes:
    shown = {name: value for name, value in event.items() if name not in _PRIVATE}
    return msgspec.json.encode(shown)


_RATE = 100
_MOST_RATE = 10_000
_VIEWERS = 16
_TICK_SECONDS = 0.25
_SILENT_TICKS = 60  # then a comment, so that proxies keep the connection
_LOOKS = 2000
"""Events that are looked at in one tick, where few of them are wanted."""
_AT_ONCE = 256
_FAIR = 16
"""More listeners than these share one source."""


def tap_page(
    tap: Tap,
    clock: IReactorTime,
    listeners: Callable[[], Sequence[str]] = lambda: (),
) -> Page:
    """The page `/api/tap`; *listeners* are their names."""
    viewers: set[_Viewer] = set()

    def page(request: PageRequest) -> Answer | EventStream:
        try:
            return _view(request, tap, clock, viewers, listeners())
        except Fault as why:
            return plain(why.number, why.text, request.path)

    return page


def _view(
    request: PageRequest,
    tap: Tap,
    clock: IReactorTime,
    viewers: set[_Viewer],
    listeners: Sequence[str],
) -> Answer | EventStream:
    given = dict(request.query)
    rate = _rate(given.pop("rate", str(_RATE)))
    fair = _yes(given, "fair", usual=False)
    payloads = _yes(given, "payload", usual=True)
    if payloads and not request.trusted:
        raise Fault(403, f"payload=no shows events without payloads; or {UNTRUSTED}")
    wanted = {
        name.removeprefix(FIND): given.pop(name)
        for name in tuple(given)
        if name.startswith(FIND)
    }
    choice = Choice(wanted, payloads=payloads)
    if given.get("format", "json") != "json":
        raise Fault(400, "only format=json here")
    if request.method == "HEAD":
        return Answer(b"", KIND)
    if len(viewers) >= _VIEWERS:
        raise Fault(503, f"{_VIEWERS} are looking already")
    sources = _sources(tap, given, listeners if fair else ())
    viewer = _Viewer(sources, clock, rate, choice, viewers)
    viewers.add(viewer)
    return viewer.stream


def _sources(
    tap: Tap, given: Mapping[str, str], listeners: Sequence[str]
) -> list[TapSource]:
    """A source for each of *listeners*, for the given one, or for all; or none and a `Fault`."""
    each: list[Mapping[str, str]] = [given]
    if "listener" not in given and 0 < len(listeners) <= _FAIR:
        each = [{**given, "listener": name} for name in listeners]
    peer = Origin("admin", "admin", "", "")
    found: list[TapSource] = []
    try:
        for one in each:
            # Nobody need wake us: the next tick will see that there are new events.
            source = tap.subscribe(Request("tap", one, None, peer), lambda: None)
            found.append(source)
    except Fault:
        for source in found:
            source.close()
        raise
    return found


def _rate(text: str) -> int:
    if (rate := number(text, _MOST_RATE)) is None:
        raise Fault(400, f"rate={text[:20]}: events a second, 1 to {_MOST_RATE}")
    return rate


def _yes(given: dict[str, str], name: str, *, usual: bool) -> bool:
    text = given.pop(name, "yes" if usual else "no")
    if text not in ("yes", "no"):
        raise Fault(400, f"{name}={text[:20]}: yes or no")
    return text == "yes"


class _Viewer:
    """One who looks, at *rate* events a second of all sources together."""

    def __init__(
        self,
        sources: Sequence[TapSource],
        clock: IReactorTime,
        rate: int,
        choice: Choice,
        viewers: set[_Viewer],
    ) -> None:
        self.stream = EventStream(self._close, b": events as they become durable\n\n")
        self._viewers = viewers
        self._sources = deque(sources)
        self._clock = clock
        self._rate = rate
        self._choice = choice
        self._credit = 0.0
        self._silent = 0
        self._next = clock.callLater(_TICK_SECONDS, self._tick)

    def _close(self) -> None:
        self._viewers.discard(self)
        for source in self._sources:
            source.close()
        if self._next.active():
            self._next.cancel()

    def _tick(self) -> None:
        self._credit = min(self._credit, 1) + self._rate * _TICK_SECONDS
        try:
            self._show()
        except Fault:  # the daemon stops
            self.stream.end()
            return
        self._next = self._clock.callLater(_TICK_SECONDS, self._tick)

    def _show(self) -> None:
        """Show each source's share; what one leaves is for the others."""
        self._silent += 1
        self._sources.rotate(-1)
        looks = _LOOKS
        left = list(self._sources)
        while self.stream.writable and self._credit >= 1 and left and looks > 0:
            share = max(1, int(self._credit) // len(left))
            for source in tuple(left):
                if self._credit < 1 or not self.stream.writable:
                    break
                elements = source.take(share if self._choice.any else _AT_ONCE)
                if elements is None:
                    left.remove(source)
                else:
                    looks -= len(elements)
                    self._write(elements)
        for source in left:
            skipped = source.skip() if self.stream.writable else None
            if skipped is not None:
                self._write(skipped)
        if self.stream.writable and self._silent >= _SILENT_TICKS:
            self._silent = 0
            self.stream.write(b":\n\n")

    def _write(self, elements: Elements) -> None:
        chosen = self._choice.of(elements.elements, int(self._credit) + 1)
        if not chosen:
            return
        self._credit -= sum(not is_gap(one) for one in chosen)
        self._silent = 0
        self.stream.write(b"".join(b"data: %b\n\n" % one for one in chosen))
