"""Incarnations: which start of a daemon on which directory gave an lsn.

`(node, incarnation, lsn)` names an event for ever.  Each start has an id that no other start
has; the names of its segments and files say it.  Two starts never give one name, so a start
asks nowhere where to begin, and a copy of a directory takes nothing's place.

The journal's record says who gave its lsns, from which lsn on each: itself, and those before
it in this directory.  What an earlier one left unpublished is published under its id.  Of
one that came farther than its directory knows, as in an older copy that was put back, the
record says that its end is not known.

It is a line of the node's catalog (`gateway.store.node.catalog`).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import msgspec

from gateway.store.node.catalog import Line

KEY = b"gateway.incarnation"
"""The key of the id in a spool file's key-value metadata."""

FIRST_KEY = b"gateway.first"
"""The key of the first lsn of its incarnation in a spool file's metadata."""
CONTINUES_KEY = b"gateway.continues"
"""The key of the incarnation that gave all lsns of its directory before that, and has ended
with the one before it; not there if that is not known."""

OF_KEY = b"gateway.of"
"""The key, in a file that the job made, of the incarnation from which its own is `derived`."""

_CHARACTERS = 10
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_MOST_EARLIER = 1000


def new_id() -> str:
    """An id that no incarnation has had."""
    return _spelled(secrets.randbits(5 * _CHARACTERS))


def derived(incarnation: str, events: str) -> str:
    """The id for events whose names another past of *incarnation* has; *events* is their
    digest (`gateway.store.digests`).
    """
    made = hashlib.sha256(f"{incarnation} {events}".encode()).digest()
    return _spelled(int.from_bytes(made))


def _spelled(number: int) -> str:
    return "".join(_ALPHABET[number >> 5 * at & 31] for at in range(_CHARACTERS))


class Record(NamedTuple):
    """An incarnation as each of its files describes it."""

    first: int = 0
    """The first lsn that it may have given; 0 if that is not known."""
    continues: str = ""
    """The incarnation that gave the lsn before that, and none behind; empty if not known."""
    of: str = ""
    """The incarnation from which it is derived, if it is."""


class Incarnation(Line, frozen=True, tag="incarnation"):
    """The record of a start, and of those before it in its directory."""

    id: str
    """Ten characters, as names of files have them (`gateway.store.names`)."""
    since: int
    """The first lsn that it may have given."""
    directory: int
    """The number of the directory it lives in (`Disk.identity`)."""
    earlier: tuple[str, ...] = ()
    """The ids before it, oldest first."""
    generation: int = 0
    """The generation of that number; 0 if unknown."""
    begins: tuple[int, ...] = ()
    """The first lsn that each of `earlier` may have given here, the last ones' if there are
    fewer; 0 if that is not known."""
    lost: Mapping[str, int] = {}
    """The last lsns that some of `earlier` are known to have acknowledged: these came farther
    than this directory knows, how far is unknown."""
    number: int = 1
    """How many there were in this directory, with this one."""
    records: int | None = None
    """The number of node records of its directory when it was started (`Mark.records`).
    None: it began while its daemon ran, or that is not known."""

    @classmethod
    def new(
        cls, since: int, directory: tuple[int, int], before: Incarnation | None = None
    ) -> Incarnation:
        """One that goes on where *before* was, if there was one."""
        known = {} if before is None else {**before.began, before.id: before.since}
        number, generation = directory
        new = new_id()
        made = cls(new, since, number, (), generation)
        if before is not None:
            made = msgspec.structs.replace(
                made, lost=before.lost, number=before.number + 1
            )
        return _knowing(made, known)

    def lives_in(self, directory: tuple[int, int]) -> bool:
        """Whether it is that of this directory, as far as can be told."""
        number, generation = directory
        unknown = 0 in (self.generation, generation)
        return self.directory == number and (unknown or self.generation == generation)

    def aware_of(self, others: Iterable[str]) -> Incarnation:
        """The same one, which knows these ids too, oldest first."""
        others = tuple(others)
        if all(map(self.knows, others)):
            return self
        return _knowing(self, {**dict.fromkeys(others, 0), **self.began})

    def record_of(self, one: str) -> Record:
        """The record of *one* of them, for the footers of its files."""
        began = {**self.began, self.id: self.since}
        first = began.get(one, 0)
        before = [each for each, since in began.items() if 0 < since < first]
        vouched = bool(before) and before[-1] not in self.lost
        return Record(first, before[-1] if vouched else "")

    @property
    def began(self) -> dict[str, int]:
        """The first lsn of each of those before it here, oldest first."""
        unknown = len(self.earlier) - len(self.begins)
        return dict(zip(self.earlier, (0,) * unknown + self.begins, strict=True))

    def of_lsn(self, lsn: int) -> str:
        """The incarnation that gave an lsn of this journal; empty if not known."""
        if lsn >= self.since:
            return self.id
        began = [each for each, first in self.began.items() if 0 < first <= lsn]
        return began[-1] if began else ""

    def spans(self, first: int, last: int) -> Iterator[tuple[str, int, int]]:
        """The incarnations that gave lsns *first* to *last* of this directory, with the bounds
        of each; an empty one where that is not known.
        """
        began = {"": 1, **self.began, self.id: self.since}
        ordered = [(one, since) for one, since in began.items() if since]
        for (one, since), (_, behind) in pairwise([*ordered, ("", last + 1)]):
            low, high = max(first, since), min(last, behind - 1)
            if low <= high:
                yield one, low, high

    @property
    def whole(self) -> tuple[str, ...]:
        """The ones of `earlier` that it vouches for."""
        return tuple(each for each in self.earlier if each not in self.lost)

    def knows(self, other: str) -> bool:
        """Whether this id is its own or one of `earlier`; "" always is."""
        return other in ("", self.id, *self.earlier)


def _knowing(this: Incarnation, earlier: Mapping[str, int]) -> Incarnation:
    known = [one for one in earlier.items() if one[0] not in ("", this.id)]
    ids = tuple(each for each, _ in known[-_MOST_EARLIER:])
    begins = tuple(first for _, first in known[-_MOST_EARLIER:])
    return msgspec.structs.replace(this, earlier=ids, begins=begins)
