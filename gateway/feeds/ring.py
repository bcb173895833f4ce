"""A bounded ring of the latest elements of one query, shared by all its subscribers.

    chunk   chunk   chunk   chunk          elements, encoded once
      ^               ^        ^
    slow            quick    quick         followers; what all have passed is dropped

A follower that is too slow finds that its place is gone (`Lagged`).  Then `tap` tells
its subscriber of a gap, and `events` goes back to the files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence

from gateway.feeds import columns
from gateway.feeds.query import ARROW, Query
from gateway.sdk.publisher import Elements

_OVERHEAD = 120  # bytes of Python objects that an element needs
_ENCODED_BYTES = 1 << 16  # larger elements leave in parts, and nobody keeps those


class Lagged(Exception):
    """The next element of a follower is not in the ring any more."""


class Chunk:
    """Elements of the events from lsn `first` to before `end` that a query wants."""

    __slots__ = ("_shared", "elements", "end", "first", "lasts", "size", "waiting")

    def __init__(
        self, first: int, end: int, elements: Sequence[bytes], lasts: Sequence[int]
    ) -> None:
        self.first = first
        self.end = end
        self.elements = elements
        self.lasts = lasts
        """The lsn of the last event of each element."""
        whole = Elements(elements)
        copies = 2 if whole.largest <= _ENCODED_BYTES else 1
        self.size = copies * whole.octets + _OVERHEAD * len(elements)
        """Bytes of memory, with the messages that followers share."""
        self.waiting = 0
        """Followers that have not passed it."""
        self._shared = 0, len(elements), whole

    def cut(self, begin: int, end: int) -> Elements:
        """Some of its elements; the same object for all who ask for the same."""
        if self._shared[:2] != (begin, end):
            self._shared = begin, end, Elements(self.elements[begin:end])
        return self._shared[2]


class Ring:
    """The elements of one query.  Only `Live` adds to it, and takes from it what is too much.

    It is to have *ahead* bytes that no follower took of.  *more* is called when one
    takes of them.
    """

    def __init__(
        self, query: Query, start: int, ahead: int, more: Callable[[], None]
    ) -> None:
        self.query = query
        self.asleep = False
        """No follower took the last elements: none are made until one comes."""
        self.end = start
        """Everything before this lsn has been looked at."""
        self.since = start
        """The lsn from which on no event up to `end` was wanted, behind all chunks."""
        self.bytes = 0
        self.followers: set[Follower] = set()
        self._ahead = ahead
        self._more = more
        self._chunks: deque[Chunk] = deque()
        self._gone = 0
        """The number of the first chunk that is here."""
        self._begun = 0
        """The number of the first chunk that no follower took of."""
        self._untaken = 0
        """Bytes of the chunks from `_begun` on."""

    @property
    def hungry(self) -> bool:
        """Whether the quickest follower takes what there is."""
        return self._untaken < self._ahead and not self.asleep

    @property
    def next(self) -> int:
        """The number of the chunk that is still to come."""
        return self._gone + len(self._chunks)

    def wanted(self, number: int) -> None:
        """A follower takes of the chunk of this number, or waits for it."""
        if number >= self._begun:
            self._begin(number + 1)
            self.asleep = False
            self._more()

    def _begin(self, number: int) -> None:
        while self._begun < min(number, self.next):
            self._untaken -= self._chunks[self._begun - self._gone].size
            self._begun += 1

    def add(self, chunk: Chunk) -> None:
        """The next chunk.  A hole before it is one that followers will notice."""
        if chunk.end <= self.end:
            return  # from before it began
        if chunk.first > self.end:
            self.since = chunk.first
        self.end = chunk.end
        if chunk.elements and self.followers:
            chunk.first, self.since = self.since, chunk.end
            chunk.waiting = len(self.followers)
            self._chunks.append(chunk)
            self.bytes += chunk.size
            self._untaken += chunk.size

    def drop(self) -> None:
        """Forget the oldest chunk, or all if no follower took of it, though it be wanted."""
        if self._gone < self._begun:
            self._forget()
        else:
            self.sleep(self.end)

    def sleep(self, end: int) -> None:
        """Leave out the chunks that no follower took of, and all before lsn *end*."""
        self.asleep = True
        while self._begun < self.next:
            self.bytes -= self._chunks.pop().size
        self._untaken = 0
        for follower in self.followers:
            follower.number = min(follower.number, self._begun)
        self.since = self.end = max(self.end, end)

    def enter(self, follower: Follower) -> None:
        follower.number = self.next
        follower.lsn = self.end
        self.followers.add(follower)

    def at(self, number: int) -> Chunk | None:
        """The chunk of this number, None if it is still to come.  Raises `Lagged`."""
        if number < self._gone:
            raise Lagged
        at = number - self._gone
        return self._chunks[at] if at < len(self._chunks) else None

    def passed(self, number: int) -> None:
        """A follower needs this chunk no more."""
        if number >= self._gone:
            self._chunks[number - self._gone].waiting -= 1
            self._drop_unwanted()

    def leave(self, follower: Follower) -> None:
        self.followers.discard(follower)
        for at in range(max(follower.number - self._gone, 0), len(self._chunks)):
            self._chunks[at].waiting -= 1
        self._drop_unwanted()

    def _drop_unwanted(self) -> None:
        while self._chunks and not self._chunks[0].waiting:
            self._forget()

    def _forget(self) -> None:
        self._begin(self._gone + 1)
        self.bytes -= self._chunks.popleft().size
        self._gone += 1


class Follower:
    """One subscriber's place in a ring."""

    __slots__ = ("_index", "_ring", "lsn", "number", "wake")

    def __init__(self, ring: Ring, wake: Callable[[], None]) -> None:
        self.lsn = 0
        """The next element is of this lsn or a later one, unless it is behind."""
        self.number = 0
        """The number of the chunk that it takes from."""
        self.wake = wake
        self._ring = ring
        self._index = 0
        ring.enter(self)

    def gap(self, wanted: int) -> int | None:
        """The lsn that comes next, if events before it are missing.  Raises `Lagged`.

        Behind all chunks that have nothing from lsn *wanted* on.
        """
        while (chunk := self._ring.at(self.number)) and chunk.lasts[-1] < wanted:
            self._pass(chunk)
        first = self._ring.since if chunk is None else chunk.first
        return first if first > self.lsn else None

    def take(self, most: int, wanted: int = 0) -> Elements | None:
        """The next elements, *most* at most, of events from lsn *wanted* on.

        None if there are none yet.  No `gap` from there on is before them.
        """
        ring = self._ring
        ring.wanted(self.number)
        chunk = ring.at(self.number)
        if chunk is None:
            self.lsn = max(self.lsn, ring.end)
            return None
        lasts = chunk.lasts
        begin = bisect_right(lasts, wanted - 1, self._index)
        if ring.query.format == ARROW and self.lsn < wanted:
            # It may begin with events that are not wanted.
            end = begin + 1
            found = Elements([columns.since(chunk.elements[begin], wanted)])
        else:
            end = min(begin + most, len(lasts))
            found = chunk.cut(begin, end)
        self._index = end
        self.lsn = lasts[end - 1] + 1
        if end == len(lasts):
            self._pass(chunk)
        return found

    def skip(self) -> tuple[int, int]:
        """Go to the ring's end; the first and last lsn between which this leaves out
        something, in this order where it does not.
        """
        ring, first = self._ring, self.lsn
        if self.number == ring.next and ring.since <= first:
            self.lsn = first = ring.end  # nothing behind it was wanted
        ring.leave(self)
        self._index = 0
        self._ring.enter(self)
        return first, self.lsn - 1

    def leave(self) -> None:
        self._ring.leave(self)

    def _pass(self, chunk: Chunk) -> None:
        self.lsn = chunk.end
        self._index = 0
        self.number += 1
        self._ring.passed(self.number - 1)
