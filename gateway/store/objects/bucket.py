"""The calls to object storage that a spool in a bucket rests on, as an interface.

An object is there as a whole or not at all, and is never changed.  It is made by one
request, which fails if the name is taken.  So a name is committed once, and one that asked
and got no answer asks again: `commit`.

Calls block, and any thread may make them.  `gateway.store.objects.s3` makes them over HTTP,
`gateway_testkit.bucket` in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

ARCHIVE = "_archive"
"""The prefix of what the job has committed, if that is kept; Spark passes it over."""
PROBE = ".gateway-probe"
"""The prefix of the object that `probe` makes; Spark passes it over."""


class BucketError(OSError):
    """A request failed.  It may have been carried out all the same."""


class AlreadyThere(BucketError):
    """There is an object of that name, or one is being made."""


class NotThere(BucketError):
    """There is no object of that name."""


class Changed(BucketError):
    """The object is no longer what it was when it was read."""


class Conflict(BucketError):
    """There is an object of that name which is not ours; trying again does not help."""


class Unfit(Conflict):
    """This server does not do what is asked of one."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object, as a listing tells of it."""

    name: str
    """The name below the prefix."""
    bytes: int
    modified: float
    """Seconds since the epoch, by the bucket's clock."""


class Bucket(Protocol):
    """The objects below one prefix, which is no part of their names here.

    Every call raises `BucketError`.
    """

    @property
    def url(self) -> str:
        """Where it is, for people: `s3://bucket/prefix`."""

    def create(self, name: str, data: bytes) -> str:
        """Make an object, in one step; its tag, empty if the server tells none.

        Raises `AlreadyThere` and changes nothing.
        """

    def replace(self, name: str, data: bytes) -> None:
        """Make an object, whatever is there of that name."""

    def read(self, name: str, first: int = 0) -> bytes:
        """An object, from its byte *first* on.  Raises `NotThere`."""

    def read_tagged(self, name: str) -> tuple[bytes, str]:
        """All of an object, and a tag of what it is now.  Raises `NotThere`."""

    def swap(self, name: str, data: bytes, tag: str) -> str:
        """Make an object in place of the one with that tag, in one step; the new one's.

        Raises `Changed` and changes nothing where another one is there by now, or none.
        """

    def list(self, begin: str, after: str = "") -> Iterator[StoredObject]:
        """Objects whose names begin so, and come after *after*, in order.

        Not those whose names have a slash after that.
        """

    def copy(self, name: str, other: str) -> None:
        """Make the object *other* of one that is there.  Raises `NotThere`."""

    def remove(self, name: str) -> None:
        """Remove an object; one that is gone already is fine."""

    def remove_all(self, names: Sequence[str]) -> None:
        """Remove many by few requests, which not every server knows: where it fails, some
        may be gone.
        """


def commit(bucket: Bucket, name: str, data: bytes) -> bool:
    """Make an object, once: false if it was there already, with these events.

    So it may be called again after a request whose fate is unknown, and by another version,
    whose bytes differ.  Raises `Conflict` if other events are there, `BucketError`.
    """
    try:
        bucket.create(name, data)
    except AlreadyThere:
        there = bucket.read(name)  # its maker may have given it up meanwhile: NotThere
        refuse_others(f"{bucket.url}/{name}", there, data)
        return False
    return True


def refuse_others(where: str, there: bytes, data: bytes) -> None:
    """Raise `Conflict` if what is *there* under the name of a file has other events than it."""
    if not (there == data or _are_same(there, data)):
        raise Conflict(
            f"{where} is there with other events: {_told(there)}; here it is "
            f"{_told(data)}.  Two gateways are the same incarnation: a machine was copied "
            "as it ran"
        )


def _are_same(one: bytes, other: bytes) -> bool:
    """Whether two files have the same events."""
    # Late: it is rare, and a process that only lists needs no Arrow.
    import pyarrow as pa

    from gateway.store.digests import are_same

    return are_same(pa.BufferReader(one), pa.BufferReader(other)) is True


def _told(data: bytes) -> str:
    return f"{len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}"


def probe(
    bucket: Bucket, node: str, said: Callable[[str], None] = lambda _: None
) -> None:
    """Try all that is asked of a bucket, with one small object, which is removed.

    *said* is told of each request that went well.  Raises `Unfit`, `BucketError`.
    """
    name = f"{PROBE}-{node}"
    bucket.replace(name, node.encode())
    said("objects can be made")
    try:
        if bucket.read(name) != node.encode():
            raise Unfit(f"{bucket.url}/{name} does not read as it was written")
        said("read")
        if name not in (one.name for one in bucket.list(name)):
            raise Unfit(f"{bucket.url}: a listing lacks an object that is there")
        said("listed")
        try:
            bucket.create(name, b"")
        except AlreadyThere:
            said("not made twice")
        else:
            raise Unfit(
                f"{bucket.url}: a PUT with If-None-Match: * replaced an object.  This "
                "server can not hold a spool: two files of one name would be one"
            )
        _, tag = bucket.read_tagged(name)
        bucket.swap(name, b"one", tag)
        try:
            bucket.swap(name, b"other", tag)
        except Changed:
            said("and swapped once")
        else:
            said("but swapped by whoever asks: If-Match is passed over")
    finally:
        try:
            bucket.remove(name)
        except BucketError as why:  # the next probe uses it again
            said(f"but not removed: {why}")
