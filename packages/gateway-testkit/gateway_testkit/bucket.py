"""Object storage in memory for tests, with the faults that real ones have."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from gateway.store.objects.bucket import (
    AlreadyThere,
    BucketError,
    Changed,
    NotThere,
    StoredObject,
)

__all__ = ["MemoryBucket"]

_PAGE_OBJECTS = 1000


class MemoryBucket:
    """A `gateway.store.objects.bucket.Bucket`.

    *fault* is asked before each request, by its name and the object's: it may raise.
    *after* is asked when it was carried out: what it raises is what a time-out is.
    """

    url = "s3://bucket/prefix"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.written: dict[str, float] = {}
        """When objects were replaced, in seconds since the epoch."""
        self.fault: Callable[[str, str], None] = lambda request, name: None
        self.after: Callable[[str, str], None] = lambda request, name: None
        self.conditional = True
        """Whether a PUT that must not exist yet is refused where it does."""
        self.tagged = True
        """Whether one in place of another is refused where that is no longer there."""
        self._lock = threading.Lock()

    def _ask(self, request: str, name: str) -> None:
        self.requests.append((request, name))
        self.fault(request, name)

    def create(self, name: str, data: bytes) -> str:
        self._ask("create", name)
        with self._lock:
            if self.conditional and name in self.objects:
                raise AlreadyThere(f"{name}: 412 Precondition Failed")
            self.objects[name] = bytes(data)
        self.after("create", name)
        return _tag(data)

    def replace(self, name: str, data: bytes) -> None:
        self._ask("replace", name)
        self.objects[name] = bytes(data)
        self.written[name] = time.time()
        self.after("replace", name)

    def read(self, name: str, first: int = 0) -> bytes:
        self._ask("read", name)
        try:
            return self.objects[name][first:]
        except KeyError:
            raise NotThere(f"{name}: 404 Not Found") from None

    def read_tagged(self, name: str) -> tuple[bytes, str]:
        data = self.read(name)
        return data, _tag(data)

    def swap(self, name: str, data: bytes, tag: str) -> str:
        self._ask("swap", name)
        with self._lock:
            there = self.objects.get(name)
            if self.tagged and (there is None or _tag(there) != tag):
                raise Changed(f"{name}: 412 Precondition Failed")
            self.objects[name] = bytes(data)
        self.after("swap", name)
        return _tag(data)

    def list(self, begin: str, after: str = "") -> Iterator[StoredObject]:
        """List objects as `Bucket` does; each page is a request."""
        self._ask("list", begin)
        found = [
            StoredObject(name, len(data), self.written.get(name, 0.0))
            for name, data in sorted(self.objects.items())
            if name.startswith(begin) and name > after
        ]
        for number, one in enumerate(found):
            if number and number % _PAGE_OBJECTS == 0:
                self._ask("list", begin)
            yield one

    def copy(self, name: str, other: str) -> None:
        self._ask("copy", name)
        try:
            self.objects[other] = self.objects[name]
        except KeyError:
            raise NotThere(f"{name}: 404 Not Found") from None
        self.after("copy", name)

    def remove(self, name: str) -> None:
        self._ask("remove", name)
        self.objects.pop(name, None)

    def remove_all(self, names: Sequence[str]) -> None:
        """Remove objects as `Bucket` does; one that is refused keeps none of the others."""
        self._ask("remove_all", names[0])
        refused: list[BucketError] = []
        for name in names:
            try:
                self.fault("remove", name)
            except BucketError as why:
                refused.append(why)
            else:
                self.objects.pop(name, None)
        self.after("remove_all", names[0])
        if refused:
            raise refused[0]

    def away(self, why: str = "500 Internal Server Error") -> None:
        """Every request fails from now on."""

        def fault(request: str, name: str) -> None:
            raise BucketError(f"{request} {name}: {why}")

        self.fault = fault

    def back(self) -> None:
        """Requests go well again."""
        self.fault = self.after = lambda request, name: None


def _tag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
