"""Objects of a bucket that are spool files, listed again and again.

A backlog of many pages is not listed each time: a listing leaps over it, to what is new.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator

from attrs import define, field

from gateway.store.names import FoundFile, Life, found_file, parse_file_name
from gateway.store.objects.bucket import Bucket

LEAP_OBJECTS = 1000
"""A server tells so many names in one page: where more of a node were seen, the next page is
asked for behind the last of them."""
ANEW_SECONDS = 300.0
"""Time for which what was leapt over is taken to be there still."""


@define(eq=False, slots=False)
class Listing:
    """The spool files of one bucket."""

    _bucket: Bucket
    _clock: Callable[[], float]
    _seen: dict[Life, dict[str, FoundFile]] = field(factory=dict, init=False)
    """Files of the last listing, of each incarnation in order of lsn, by name."""
    _seen_whole: float = field(default=-math.inf, init=False)
    """When all of the prefix was listed."""

    def newest(self) -> dict[str, int]:
        """The last lsn of each node that is in the bucket now.  Raises `BucketError`."""
        found: dict[str, int] = {}
        for one in self._bucket.list("events-"):
            if (file := parse_file_name(one.name)) is not None:
                found[file.node] = max(file.last, found.get(file.node, 0))
        return found

    def forget(self, name: str) -> None:
        """Leave out an object that is not there any more.  Any thread may say so."""
        if (file := parse_file_name(name)) is not None:
            self._seen.get(file.life, {}).pop(name, None)

    def files(self) -> Iterator[FoundFile]:
        """All files that are in the bucket now; those of an incarnation in order of lsn."""
        before, self._seen = self._seen, {}
        if self._clock() - self._seen_whole >= ANEW_SECONDS:
            before, self._seen_whole = {}, self._clock()
        after: str | None = ""
        while after is not None:
            after = yield from self._until_seen(after, before)

    def _until_seen(
        self, after: str, before: dict[Life, dict[str, FoundFile]]
    ) -> Generator[FoundFile, None, str | None]:
        """The files whose names come after *after*, until one is met that was seen *before* with
        many of its incarnation; then those from it on.  Returns the last of their names.
        """
        for one in self._bucket.list("events-", after):
            found = found_file(one.name, one.bytes, one.modified)
            if found is None:
                continue
            life = found.file.life
            mine = self._seen.setdefault(life, {})
            earlier = before.get(life, {})
            if len(earlier) >= LEAP_OBJECTS and found == earlier.get(one.name):
                del before[life]
                # What comes before it was listed now, as it is.
                still = {
                    name: seen for name, seen in earlier.items() if name >= one.name
                }
                mine.update(still)
                yield from still.values()
                return max(still)
            mine[one.name] = found
            yield found
        return None
