"""Copies of a bucket's objects in a directory.

Where tasks read the bucket, as those of a cluster do, nothing reads the copies, and only the
end of each file is fetched.  That is its footer, behind zeros that take no place on the disk.
So it has its size, and says which events it has, as a copy would.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import define, field

from gateway.sdk.disk import Disk, replace_file
from gateway.spark.commit.ledger import Ranges
from gateway.spark.files import footers
from gateway.store import digests
from gateway.store.names import FoundFile, parse_file_name
from gateway.store.objects.bucket import Bucket, NotThere

_log = logging.getLogger("gateway.spark")

FOOTER_BYTES = 8192
"""Bytes that are asked for where only a footer is wanted, until one has more."""
MOST_FOOTER_BYTES = 128 << 10
"""No more than this is asked for at first, whatever a footer had: a damaged one may say
anything."""


@define(eq=False, slots=False)
class Copies:
    """The copies in *folder*, *whole* or their footers alone.

    *stopping* tells that no more is to come; *forget* is told the names of objects that are
    gone.  Any thread may fetch.
    """

    _bucket: Bucket
    _folder: Path
    _disk: Disk
    _stopping: Callable[[], bool]
    _forget: Callable[[str], None]
    whole: bool
    took: dict[str, FoundFile] = field(factory=dict, init=False)
    """The object of each name that was fetched, as long as it is there."""
    again: set[str] = field(factory=set, init=False)
    """Files that were fetched though the tables had their events: by others, perhaps."""
    _odd: set[str] = field(factory=set, init=False)
    """Objects that are not what the listing says, and were told."""
    _footer_bytes: int = field(factory=lambda: FOOTER_BYTES, init=False)
    """Bytes of the largest footer, or more; within a bound."""

    def recover(self) -> None:
        """Remove what a crash left half written.  Raises OSError."""
        self._disk.make_directory(self._folder)
        for name in self._disk.names(self._folder):
            if name.startswith("."):
                self._disk.unlink(self._folder / name)

    def here(self) -> dict[str, int]:
        """The bytes of each copy, as its file says; 0 where the job has it by now."""
        names = self._disk.names(self._folder)
        return {name: self._size(name) for name in names if parse_file_name(name)}

    def _size(self, name: str) -> int:
        try:
            return self._disk.size(self._folder / name)
        except FileNotFoundError:
            return 0

    def forgotten(self, name: str) -> None:
        """An object is gone."""
        self.took.pop(name, None)
        self.again.discard(name)

    def fetch(self, one: FoundFile) -> bool:
        """Whether it is here now, under its hidden name.  Any thread may do it."""
        name = one.name
        if self._stopping():
            return False
        try:
            first, data = self._read(one)
        except NotThere:
            self._forget(name)
            return False
        if self._stopping():
            return False  # the folder may be another job's by now
        if first + len(data) != one.bytes:
            if name not in self._odd:
                self._odd.add(name)
                _log.error(
                    "%s/%s has %d bytes, says its listing, and %d came: it is asked for"
                    " again until they are the same",
                    *(self._bucket.url, name, one.bytes, first + len(data)),
                )
            return False
        self._odd.discard(name)
        hidden = self._hidden(one)
        self._disk.unlink(hidden)
        file = self._disk.create(hidden)
        try:
            if first:
                file.truncate(first)
            file.write([data])
            file.sync()
        finally:
            file.close()
        return True

    def _read(self, one: FoundFile) -> tuple[int, bytes]:
        """The position of the first byte that is to be here of an object, and the bytes."""
        name, size = one.name, one.bytes
        if self.whole:
            return 0, self._bucket.read(name)
        first = size - self._footer_bytes
        if first < self._footer_bytes:
            return 0, self._bucket.read(name)
        data = self._bucket.read(name, first)
        if (length := digests.footer_bytes(data)) > len(data):
            likely = min(length + length // 8, MOST_FOOTER_BYTES)
            self._footer_bytes = max(self._footer_bytes, likely)
            first = max(0, size - length)  # all of it, where that is more than there is
            data = self._bucket.read(name, first)
        return first, data

    def admit(self, fetched: Sequence[FoundFile], committed: Ranges) -> int:
        """Let the job see files that were fetched, of which the tables have some already; how
        many they are.
        """
        for one in fetched:
            self.took[one.name] = one
            if committed.covers(one.file):
                self.again.add(one.name)
            self._disk.rename(self._hidden(one), self._folder / one.name)
        return len(fetched)

    def _hidden(self, one: FoundFile) -> Path:
        return self._folder / f".{one.name}"

    def complete(self, name: str) -> bool:
        """Fetch all of what is a footer; False: it is no footer alone."""
        path = self._folder / name
        if not self._disk.exists(path) or not footers.is_alone(path):
            return False
        there = self._there(name)
        if len(there) == self._disk.size(path):
            replace_file(self._disk, path, [there]).close()
            return True
        self._disk.unlink(path)
        self._forget(name)
        self._tell_changed(
            name, "had only been fetched in part: what it had is in no table"
        )
        return True

    def mend(self, name: str) -> bool:
        """Put an object back that is not what was fetched; False: it is."""
        path = self._folder / name
        if not self._disk.exists(path) or footers.is_alone(path):
            return False
        copy = self._disk.read(path)
        if self._there(name) == copy:
            return False
        put_back(self._bucket, name, copy)
        self._tell_changed(name, "is put back from what was fetched")
        return True

    def _there(self, name: str) -> bytes:
        """An object; nothing if it is gone."""
        try:
            return self._bucket.read(name)
        except NotThere:
            return b""

    def _tell_changed(self, name: str, done: str) -> None:
        _log.error(
            "%s/%s was gone, or was another than it was when it was fetched, and %s."
            " Somebody, or a lifecycle rule, changes what is there",
            *(self._bucket.url, name, done),
        )


def put_back(bucket: Bucket, name: str, data: bytes) -> None:
    """Have the object of a spool file be *data*, where it is gone or damaged: a cluster's
    tasks read it, and it goes to the archive.

    Raises `BucketError`.
    """
    try:
        there, tag = bucket.read_tagged(name)
    except NotThere:
        bucket.create(name, data)
        return
    if there != data:
        bucket.swap(name, data, tag)
