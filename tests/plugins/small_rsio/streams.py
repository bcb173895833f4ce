"""The streams of the small server: what it publishes, and what it consumes."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import parse_qs

from rsio_check.wire import Message

UNBOUNDED = 2**63 - 1


class Refused(Exception):
    """There is no such publisher, or it can not resume there."""


@dataclass
class Source:
    """A publisher's elements for one subscriber."""

    values: Iterator[bytes]
    error: str | None = None
    """How it ends; None: with onComplete."""
    size: int = 0
    ready: Callable[[], int] = lambda: UNBOUNDED
    """How many elements are there by now, counted from the first."""
    given: int = 0
    first: list[bytes] = field(default_factory=list)

    def over(self) -> bool:
        """No element is left."""
        if not self.first and self.given < self.ready():
            for value in self.values:
                self.first.append(value)
                return False
            return True
        return False

    def take(self, most: int) -> list[bytes]:
        """At most so many of those that are ready."""
        found: list[bytes] = []
        while len(found) < most and self.given < self.ready() and not self.over():
            found.append(self.first.pop())
            self.given += 1
        return found


@dataclass(eq=False)
class Served:
    """A stream that the server publishes."""

    id: int
    source: Source
    demand: int = 0
    split: int = 0
    """Elements sent in parts, whose number is the next one's Id."""
    unsent: deque[Message] = field(default_factory=deque)
    """Parts, and many elements, that are sent one by one, in turn with other streams."""


@dataclass(eq=False)
class Consumed:
    """A stream that the server subscribed to."""

    id: int
    publisher: str
    room: int
    offset: int = 0
    named: bytes | None = None
    size: int | None = None
    dropped: bool = False
    taken: int = 0
    granted: int = 0
    parts: dict[int, bytes] = field(default_factory=dict)


def source(server: Any, asked: str, offset: int, now: float) -> Source:
    """The source of a publisher.  Raises `Refused`."""
    name, _, query = asked.partition("?")
    keys = {key: values[0] for key, values in parse_qs(query).items()}
    n = int(keys.get("n", 0))
    size = int(keys.get("size", 0))
    if name in ("check/count", "check/fail"):
        if offset > n:
            raise Refused("E416 offset out of range")
        error = "E500 as asked" if name == "check/fail" else None
        return Source(numbers(range(offset, n), size), error, size)
    if name == "check/endless":
        return Source(numbers(count(offset), 0))
    if name == "events":
        first = len(server.events) if keys["from"] == "latest" else int(keys["from"])
        return Source(server.stored_from(first + offset), size=0,
                      ready=lambda: len(server.events) - first - offset)  # fmt: skip
    if offset:
        raise Refused("E416 this can not resume")
    if name == "check/slow":
        ticks = numbers(range(n), 0)
        return Source(ticks, ready=lambda: n + 1 if server.ticks(now) >= n
                      else server.ticks(now))  # fmt: skip
    if name == "check/never":
        return Source(iter(()), ready=lambda: 0)
    if name == "check/large":
        return Source(iter([b"x" * int(keys["octets"])] * n))
    raise Refused("E404 no such publisher")


def numbers(values: Any, size: int) -> Iterator[bytes]:
    for value in values:
        if size:
            yield (value % (1 << 8 * size)).to_bytes(size)
        else:
            yield b"%d" % value
