"""The mark: how far a node had come, kept beside its state, about a second late.

A journal whose end is cut, damaged or gone looks like one that was never longer, and so
does a catalog.  The mark says how far at least they reached: what is missing is told, and
no lsn is given twice.

    state/NODE/mark     {"durable": …, …}, as `gateway.store.summed` has it
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from attrs import define

from gateway.store import summed
from gateway.store.disk import Disk, read_patiently, replace_file

__all__ = ["NAME", "Mark", "Marker", "decode"]

NAME = "mark"
_SECONDS = 1.0


class Mark(msgspec.Struct, frozen=True):
    """How far it had come, in lsns."""

    given: int = 0
    """None up to here is given to another event."""
    durable: int = 0
    """Events up to here were acknowledged."""
    published: int = 0
    """Events up to here are in files, says the catalog."""
    link: str = ""
    """The link of the last of these files (`gateway.store.digests`), if it is known."""
    incarnation: str = ""
    """Of the journal that had come so far (`gateway.store.incarnation`)."""
    earlier: tuple[str, ...] = ()
    """Those it knew, oldest first: a journal that is lost knows them no more."""


def decode(data: bytes) -> Mark | None:
    """What a file says; None if it is damaged."""
    return summed.decode(data[:-1], Mark)


@define(eq=False, slots=False)
class Marker:
    """Writes the mark of one node, in its state directory.  Blocks."""

    _directory: Path
    _disk: Disk
    _clock: Callable[[], float] = time.monotonic

    def __attrs_post_init__(self) -> None:
        self._written = Mark()
        self._next = self._clock()

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._directory / NAME

    def read(self) -> tuple[Mark, str | None]:
        """What was marked, and a sentence if that can not be told.  Raises OSError."""
        if not self._disk.exists(self.path):
            return Mark(), None
        data, _ = read_patiently(self._disk, self.path)
        if (found := decode(data)) is None:
            return Mark(), f"{self.path} is damaged; it is written anew"
        return found, None

    def write(self, mark: Mark, *, now: bool = False) -> None:
        """Once a second, or *now*, if anything has changed.  Raises OSError."""
        if mark == self._written or not (now or self._clock() >= self._next):
            return
        self._next = self._clock() + _SECONDS
        replace_file(self._disk, self.path, [summed.encode(mark)]).close()
        self._written = mark
