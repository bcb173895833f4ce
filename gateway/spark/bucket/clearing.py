"""Takes objects out of a bucket once the tables have their events."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from attrs import define

from gateway.sdk.disk import Disk
from gateway.spark.bucket.requests import AtOnce, asked
from gateway.spark.later.deleted_ranges import DeletedRanges
from gateway.store.names import parse_file_name
from gateway.store.objects.bucket import ARCHIVE, Bucket, BucketError, NotThere


@define(eq=False, slots=False)
class Clearing:
    """Moves objects of one bucket to its archive if *archived*, or removes them.

    *forget* is told the name of each that is gone.  *deleted* learns of files whose events
    were deleted before, and which come to the archive once more.
    """

    _bucket: Bucket
    _disk: Disk
    _forget: Callable[[str], None]
    _archived: bool
    _deleted: DeletedRanges | None

    def clear(self, names: Sequence[str], at_once: AtOnce) -> list[OSError]:
        """Take these out of the bucket; the requests that failed."""
        failures: list[OSError] = []
        if self._archived and names:
            if self._deleted is not None:
                files = filter(None, map(parse_file_name, names))
                self._deleted.come_again(self._disk, files)
            kept, failures = asked(at_once, lambda one: keep(self._bucket, one), names)
            names = [name for name, _ in kept]
        if not names:
            return failures
        try:
            self._bucket.remove_all(names)
        except BucketError:  # for one of them; or the server knows no such request
            gone, more = asked(at_once, self._bucket.remove, names)
            names = [name for name, _ in gone]
            failures += more
        for name in names:
            self._forget(name)
        return failures

    def drop(self, name: str) -> None:
        """Remove an object without a copy in the archive.  Raises `BucketError`."""
        self._bucket.remove(name)
        self._forget(name)


def keep(bucket: Bucket, name: str) -> None:
    """Have a file that is in the tables in the bucket's archive, too, before it goes."""
    with contextlib.suppress(NotThere):
        bucket.copy(name, f"{ARCHIVE}/{name}")
