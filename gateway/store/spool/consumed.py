"""Removes objects from a bucket that all consumers have read, when they were there for
`spool.retention`: where there is no job of ours (`spool.after: keep`).

Each gateway looks after its own, and those that are brought to it: a listing of each node's
names, once a minute.  The newest one stays, as a gateway that lost its disk goes on behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from attrs import define

from gateway.store.bucket import Bucket
from gateway.store.consumers import Consumers
from gateway.store.in_bucket import objects_of

LOOK_SECONDS = 60.0
_AT_ONCE = 1000
"""So many go in a look at most: whoever stops waits for no more."""


@define(eq=False, slots=False)
class BucketExpiry:
    """Of the objects of *nodes*.  *retention*, in seconds, may change."""

    _bucket: Bucket
    _nodes: Callable[[], Iterable[str]]
    _consumers: Consumers
    retention: float
    _clock: Callable[[], float]
    """By which they are old: one that does not leap."""

    def look(self) -> int:
        """Remove what may go; how many objects went.  Raises `BucketError`; blocks."""
        consumers = self._consumers
        if not consumers.names:
            return 0
        now = self._clock()
        consumers.look()
        there = [objects_of(self._bucket, node) for node in self._nodes()]
        ages = (
            (one.name, one.bytes, now - one.modified)
            for one in chain.from_iterable(there)
        )
        consumers.count(ages, self.retention)
        due = [
            one.name
            for objects in there
            for one in objects[:-1]
            if now - one.modified > self.retention and consumers.all_have(one.name)
        ]
        for name in due[:_AT_ONCE]:
            self._bucket.remove(name)
        return len(due[:_AT_ONCE])
