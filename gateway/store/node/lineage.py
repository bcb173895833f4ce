"""The lineage: who gives a node's lsns from a start on, and who did before.

Each start is an incarnation of its own (`gateway.store.node.incarnation`), and no other
start has its id.  So it asks nowhere where to begin: it goes on behind every lsn that its own
directory knows.  Of the one before it, it says whether that acknowledged more than is known
here.

An lsn whose write was tried and failed is never given again under that incarnation: a copy
of the disk may have its first use.  Nor is one where the machine's clocks parted, as they do
in a machine that is resumed from a snapshot of its memory, beside the one that went on.  The
journal begins another incarnation there (`Lineage.renew`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from attrs import define

from gateway.sdk.disk import Disk
from gateway.store.lsns import Lsns
from gateway.store.node.catalog import Catalog
from gateway.store.node.holes import holes_in
from gateway.store.node.incarnation import Incarnation, Record
from gateway.store.node.through import Through
from gateway.store.spool.mending import Entry

_FORGOT = (
    "incarnation {before} of this directory had acknowledged lsns that it does not know any "
    "more: it is an older copy, or its disk has lost what it synced.  It goes on as {this}, "
    "from lsn {first} on"
)
_COPIED = (
    "{journal} was copied, moved or restored since incarnation {before}; it goes on as "
    "{this}, from lsn {first} on.  See to it that no other copy of it runs under this "
    "node's name"
)
_END_UNKNOWN = (
    ".  What was acknowledged since and is in no file is lost, and nobody knows how much "
    "that is: `gateway audit` says so until it is accepted"
)
_LOST = (
    "incarnation {before} of this node had acknowledged lsns up to {last}, and the catalog in "
    "{journal} knows nothing of it: it or its disk was lost, or an older copy was put back.  "
    "It goes on as {this}, from lsn {first} on.  What was acknowledged since and is in no "
    "file is lost: `gateway audit` says what is missing"
)


@define(eq=False, slots=False)
class Lineage:
    """The incarnation that gives a node's lsns *now*, and those that follow while it runs.

    Any thread may read `now`; the journal's thread calls `renew`.
    """

    now: Incarnation
    _catalog: Catalog

    def __attrs_post_init__(self) -> None:
        self._gave = self.now
        """The newest before `now` that has given an lsn, or the one of the start."""

    def renew(self, first_lsn: int) -> str:
        """The id of another incarnation, which gives lsns from *first_lsn* on.  Blocks.

        What gave no lsn between is forgotten.
        """
        if self.now.since < first_lsn:
            self._gave = self.now
        before = self._gave
        directory = before.directory, before.generation
        self.now = Incarnation.new(first_lsn, directory, before)
        with contextlib.suppress(OSError):  # names of segments say it, too
            self._catalog.put(self.now)
        return self.now.id

    def at(self, lsn: int) -> Incarnation:
        """The newest that may have given *lsn*, or else the one before it."""
        return self.now if self.now.since <= lsn else self._gave

    def of_this(self, own: Incarnation, through: Through | None) -> Through | None:
        """*through*, if it is about that one, and not about one before it or behind."""
        if through is None or self.at(through.lsn).id != own.id:
            return None
        return through if through.lsn + 1 >= own.since else None

    def knows(self, incarnation: str) -> bool:
        """Whether this directory has, or had, the *incarnation* of this id."""
        return self.now.knows(incarnation)

    @property
    def holes(self) -> Mapping[str, Lsns]:
        """The holes of incarnations of this directory."""
        return holes_in(self._catalog)

    def record_of(self, incarnation: str) -> Record:
        """The record in the footers of files of an *incarnation* of this directory."""
        return self.now.record_of(incarnation)


def lost(
    doubted: Mapping[str, int], this: Incarnation, journal: Path, first_lsn: int
) -> str:
    """A sentence for people: the catalog of *this* has no record of those *doubted*, of which
    the last lsns that they are known to have acknowledged are given.
    """
    before, last = max(doubted.items(), key=lambda one: one[1])
    return _LOST.format(
        before=before, last=last, journal=journal, this=this.id, first=first_lsn
    )


def begin(
    before: Incarnation | None,
    journal: Path,
    disk: Disk,
    first_lsn: int,
    *,
    forgot: bool,
    ended: bool,
) -> tuple[Incarnation, str | None]:
    """The incarnation that gives lsns from *first_lsn* on, and a notice about the one *before*.

    *forgot*: that one has given lsns that this directory does not know; *ended*: the mark
    vouches that it has acknowledged nothing more.
    """
    directory = disk.identity(journal)
    this = Incarnation.new(first_lsn, directory, before)
    if before is None:
        return this, None
    moved = not before.lives_in(directory)
    told = None
    if forgot or moved:
        told = (_FORGOT if forgot else _COPIED).format(
            journal=journal, before=before.id, this=this.id, first=first_lsn
        )
        if not ended:  # what ran on in another copy of it nobody here knows
            lost = {**this.lost, before.id: first_lsn - 1}
            this = msgspec.structs.replace(this, lost=lost)
            told += _END_UNKNOWN
    return this, told


def in_lines(entries: Iterable[Entry]) -> Incarnation | None:
    """The incarnation whose line is lost, as those of published files tell of it."""
    began: dict[str, int] = {}
    for entry in entries:
        if entry.incarnation and entry.events:  # else a name alone tells of it
            began.setdefault(entry.incarnation, entry.first)
    if not began:
        return None
    *earlier, last = began
    begins = tuple(began[each] for each in earlier)
    return Incarnation(last, began[last], 0, tuple(earlier), begins=begins)
