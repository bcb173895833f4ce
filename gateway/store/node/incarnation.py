"""Incarnations: which start of a daemon on which directory gave an lsn.

`(node, incarnation, lsn)` names an event for ever.  Each start has an id that no other start
has; the names of its segments and files say it.  Two starts never give one name, so nobody
is asked where to begin, and a copy of a directory takes nothing's place.

The journal's record says who gave its lsns, from which lsn on each: itself, and those before
it in this directory.  What an earlier one left unpublished is published under its id.  Of
one that came farther than its directory knows, as in an older copy that was put back, the
record says that nobody knows where it ended.

    journal/NODE/incarnation    {"id": …, …}, a `statefile`
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from gateway.sdk.disk import Disk
from gateway.store.system import statefile
from gateway.store.system.statefile import StateFile

INCARNATION = ("incarnation", ".incarnation")
"""Its file's names: as it is read, and while it is written."""

KEY = b"gateway.incarnation"
"""Under which a spool file's key-value metadata has the id."""

FIRST_KEY = b"gateway.first"
"""Under which a spool file's metadata has the first lsn of its incarnation, …"""
CONTINUES_KEY = b"gateway.continues"
"""… and the incarnation that gave all lsns of its directory before that, and has ended with
the one before it; not there if nobody knows that."""

OF_KEY = b"gateway.of"
"""In a file that the job made: whose lsns its incarnation has, for other events; see `derived`."""

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
    """What each file of an incarnation says of it."""

    first: int = 0
    """The first lsn that it may have given; 0 if that is not known."""
    continues: str = ""
    """Who gave the lsn before that, and none behind; empty if that is not known."""
    of: str = ""
    """Of whom it is derived, if it is."""


class Incarnation(msgspec.Struct, frozen=True):
    """The record of a start, and of those before it in its directory."""

    id: str
    """Ten characters, as names of files have them (`gateway.store.names`)."""
    since: int
    """The first lsn that it may have given."""
    directory: int
    """Which directory it lives in (`Disk.identity`), …"""
    earlier: tuple[str, ...] = ()
    """The ids before it, oldest first."""
    generation: int = 0
    """… of those that had this number; 0 if unknown."""
    begins: tuple[int, ...] = ()
    """The first lsn that each of `earlier` may have given here, the last ones' if there are
    fewer; 0 if that is not known."""
    lost: Mapping[str, int] = {}
    """Those of `earlier` that came farther than this directory knows, nobody knows how far:
    the last lsn that each is known to have acknowledged."""

    @classmethod
    def new(
        cls, since: int, directory: tuple[int, int], before: Incarnation | None = None
    ) -> Incarnation:
        """One that goes on where *before* was, if there was one."""
        known = {} if before is None else {**before.began, before.id: before.since}
        number, generation = directory
        new = new_id()
        lost = {} if before is None else before.lost
        return _knowing(cls(new, since, number, (), generation, lost=lost), known)

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
        """What the footers of its files say of *one* of them."""
        began = {**self.began, self.id: self.since}
        first = began.get(one, 0)
        before = [each for each, since in began.items() if 0 < since < first]
        vouched = bool(before) and before[-1] not in self.lost
        return Record(first, before[-1] if vouched else "")

    @property
    def began(self) -> dict[str, int]:
        """From which lsn on each of those before it gave lsns here, oldest first."""
        unknown = len(self.earlier) - len(self.begins)
        return dict(zip(self.earlier, (0,) * unknown + self.begins, strict=True))

    def of_lsn(self, lsn: int) -> str:
        """Who gave an lsn of this journal; empty if that is not known."""
        if lsn >= self.since:
            return self.id
        began = [each for each, first in self.began.items() if 0 < first <= lsn]
        return began[-1] if began else ""

    @property
    def whole(self) -> tuple[str, ...]:
        """Those of `earlier` that it vouches for."""
        return tuple(each for each in self.earlier if each not in self.lost)

    def knows(self, other: str) -> bool:
        """Whether what has this id was published here, or before; "" is nobody's."""
        return other in ("", self.id, *self.earlier)

    def save(self, journal: Path, disk: Disk) -> None:
        """Durably.  Blocks; raises OSError."""
        _file(journal, disk).write(self)


def _knowing(this: Incarnation, earlier: Mapping[str, int]) -> Incarnation:
    known = [one for one in earlier.items() if one[0] not in ("", this.id)]
    ids = tuple(each for each, _ in known[-_MOST_EARLIER:])
    begins = tuple(first for _, first in known[-_MOST_EARLIER:])
    return msgspec.structs.replace(this, earlier=ids, begins=begins)


def look(journal: Path) -> Incarnation | None:
    """That of a node's journal, for whoever only looks; None if it does not say: a damaged
    file is written anew by the next start.  Raises OSError.
    """
    return statefile.look(journal / INCARNATION[0], Incarnation)


def read(journal: Path, disk: Disk) -> tuple[Incarnation | None, str | None]:
    """That of a node's journal, and a sentence if it can not be told.  Raises OSError."""
    return _file(journal, disk).read()


def _file(journal: Path, disk: Disk) -> StateFile[Incarnation]:
    return StateFile(journal / INCARNATION[0], Incarnation, disk)
