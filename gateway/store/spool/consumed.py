"""Removes objects from a bucket that all consumers have read, when they were there for
`spool.retention`: where there is no job of ours (`spool.after: keep`).

Each gateway looks after its own, and those that are brought to it: a listing of each node's
names, once a minute while files of it may come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from attrs import define

from gateway.store.names import parse_file_name
from gateway.store.objects.bucket import Bucket, StoredObject
from gateway.store.readers.consumers import Consumers, There

LOOK_SECONDS = 60.0
_AT_ONCE = 1000
"""The most objects that go in a look: a stop waits for no more."""
_QUIET_SECONDS = 3600.0
"""Where nothing is left, and no files come, it is listed again after so long."""


@define(eq=False, slots=False)
class BucketExpiry:
    """The expiry of the objects of *nodes*.  *retention*, in seconds, may change.

    *comes* says of a node whether files of it may come now.
    """

    _bucket: Bucket
    _nodes: Callable[[], Iterable[str]]
    _consumers: Consumers
    retention: float
    _clock: Callable[[], float]
    """The clock by which they are old: one that does not leap."""
    _comes: Callable[[str], bool] = lambda _: True

    def __attrs_post_init__(self) -> None:
        self._quiet: dict[str, float] = {}
        """Nodes of which nothing is left, as of when."""

    def look(self) -> int:
        """Remove what may go; how many objects went.  Raises `BucketError`; blocks."""
        consumers = self._consumers
        if not consumers.names:
            return 0
        now = self._clock()
        consumers.look()
        nodes, quiet = [*self._nodes()], self._quiet
        self._quiet = {node: quiet[node] for node in nodes if node in quiet}
        there = [self._objects(node, now) for node in nodes]
        files = (_there(one) for one in chain.from_iterable(there))
        consumers.count(files, now, self.retention)
        due = [
            one.name
            for objects in there
            for one in objects
            if now - one.modified > self.retention and consumers.all_have(one.name)
        ]
        for name in due[:_AT_ONCE]:
            self._bucket.remove(name)
        return len(due[:_AT_ONCE])

    def _objects(self, node: str, now: float) -> list[StoredObject]:
        comes = self._comes(node)  # before what came last is listed
        at = self._quiet.get(node)
        if not comes and at is not None and abs(now - at) < _QUIET_SECONDS:
            return []
        objects = objects_of(self._bucket, node)
        if comes or objects:
            self._quiet.pop(node, None)
        else:
            self._quiet[node] = now
        return objects


def _there(one: StoredObject) -> There:
    return There(one.name, one.bytes, one.modified)


def objects_of(bucket: Bucket, node: str) -> list[StoredObject]:
    """A node's files in a bucket, in order of lsn.  Raises `BucketError`."""
    found = [
        (file.first, file.last, one.name, one)
        for one in bucket.list(f"events-{node}_")
        if (file := parse_file_name(one.name)) is not None
    ]
    return [one for *_, one in sorted(found)]
