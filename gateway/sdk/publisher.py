"""Publishers by name: the gateway's own streams for subscribers.

A `Publisher` has a name and makes a `Source` for each subscription.  The carrier of a
subscription (a connection, the admin port) asks its source for elements when there is both
demand and a transport that takes them.  So a source never holds what a slow subscriber does
not want.  A source that has none says so, and wakes its subscription when it has some.

    publishers = Publishers({"tap": tap, "events": replay})
    publishers.subscribe("tap?channel=orders", None, origin, wake)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import parse_qsl

from gateway.event import Origin

__all__ = [
    "Elements",
    "Fault",
    "Finished",
    "Publisher",
    "Publishers",
    "Request",
    "Source",
]

_NAME = re.compile(r"[A-Za-z0-9._~/-]+")


class Fault(Exception):
    """Why a stream ends, or never begins: `E<number> <text>`; numbers as in HTTP."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"E{number} {text}")
        self.number = number
        self.text = text


class Finished(Exception):
    """The source has given all it ever will."""


@dataclass(slots=True, frozen=True)
class Request:
    """A subscription that a peer asks for."""

    name: str
    """The publisher's name: the text before `?`."""
    query: Mapping[str, str]
    offset: int | None
    """How many of its elements the peer has already; None if it did not say."""
    origin: Origin
    """The peer."""


class Elements:
    """Elements to be published, to one subscriber or to many.

    The connections of many subscribers may encode them alike; then they do it once.
    """

    __slots__ = ("_encoded", "elements", "largest", "octets")

    def __init__(self, elements: Sequence[bytes]) -> None:
        self.elements = elements
        self.octets = sum(map(len, elements))
        self.largest = max(map(len, elements), default=0)
        self._encoded: tuple[int, bytes] | None = None

    def __len__(self) -> int:
        return len(self.elements)

    def encoded(
        self, stream: int, encode: Callable[[int, Sequence[bytes]], bytes]
    ) -> bytes:
        """`encode(stream, elements)`, remembered for the latest *stream* number.

        *encode* is the same for all who share these elements.
        """
        if self._encoded is None or self._encoded[0] != stream:
            self._encoded = (stream, encode(stream, self.elements))
        return self._encoded[1]


class Source(Protocol):
    """The elements of one subscriber."""

    @property
    def size(self) -> int:
        """Octets of every element; 0 if they differ."""

    def take(self, most: int) -> Elements | None:
        """The next elements, *most* at most; None for now, and `wake` when there are.

        Raises `Finished`, or `Fault`.  Some 64 KiB are a good amount.
        """

    def close(self) -> None:
        """End it.  Called once, in any case."""


class Publisher(Protocol):
    """Something that can be subscribed to."""

    def subscribe(self, request: Request, wake: Callable[[], None]) -> Source:
        """A source for a new subscriber.  Raises `Fault`.

        *wake* says that `take` is worth a try, to elements, the end or a failure.  It
        may be called at any time in the reactor's thread, and must not be called from
        within `take`.
        """


class Publishers:
    """All there are, by name."""

    def __init__(self, named: Mapping[str, Publisher] | None = None) -> None:
        self._named = dict(named or {})

    def add(self, name: str, publisher: Publisher) -> None:
        """One more; KeyError if the name is taken."""
        if name in self._named:
            raise KeyError(name)
        self._named[name] = publisher

    def with_(self, more: Mapping[str, Publisher]) -> Publishers:
        """The publishers, and *more*."""
        return Publishers({**self._named, **more})

    def subscribe(
        self,
        publisher: str,
        offset: int | None,
        origin: Origin,
        wake: Callable[[], None],
    ) -> Source:
        """A source for `NAME[?KEY=VALUE&…]`.  Raises `Fault`."""
        name, _, query = publisher.partition("?")
        if not _NAME.fullmatch(name):
            raise Fault(400, "not a publisher's name")
        try:
            found = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True))
        except ValueError:
            if query:
                raise Fault(400, "not a query: KEY=VALUE&…") from None
            found = {}
        known = self._named.get(name)
        if known is None:
            raise Fault(404, f"no publisher {name}")
        return known.subscribe(Request(name, found, offset, origin), wake)
