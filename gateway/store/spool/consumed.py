"""Removes objects from a bucket that all consumers have read, when they were there for
`spool.retention`: where there is no job of ours (`spool.after: keep`).

Each gateway looks after its own, and those that are brought to it: a listing of each node's
names, once a minute while files of it may come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from attrs import define

from gateway.store.names import FoundFile, found_file
from gateway.store.objects.bucket import Bucket
from gateway.store.readers.consumers import Consumers

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
        files = [*chain.from_iterable(there)]
        consumers.count(files, now, self.retention)
        due = [
            one.name
            for one in files
            if now - one.since > self.retention and consumers.all_have(one.file)
        ]
        for name in due[:_AT_ONCE]:
            self._bucket.remove(name)
        return len(due[:_AT_ONCE])

    def _objects(self, node: str, now: float) -> list[FoundFile]:
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


def objects_of(bucket: Bucket, node: str) -> list[FoundFile]:
    """A node's files in a bucket, in order of lsn.  Raises `BucketError`."""
    listed = bucket.list(f"events-{node}_")
    found = (found_file(one.name, one.bytes, one.modified) for one in listed)
    return sorted(filter(None, found), key=lambda one: (one.file.first, one.file.last))
