"""A node's incarnations: which goes on from which, and where each ended.

An event's name is (node, incarnation, lsn), and each incarnation accounts for its own lsns.
Its end must be vouched for (`REASONS`).  These say something of one:

    journals     that is seen here: of itself, and those before it in its directory
    gateways     that are asked, and answer
    node records        in buckets and at hubs (`gateway.store.objects.node_record`)
    ledgers      of jobs: how some ended, and what files have said of theirs
    arrivals     at hubs: what has come of each

A directory may start while neither bucket nor hub is there.  So a clean stop ends an
incarnation, and not its directory.  The newest one of a directory that is not seen here must
have been heard lately, or it must be said that nothing follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from gateway.store.lsns import Lsns
from gateway.store.node.incarnation import Incarnation, Record
from gateway.store.objects.node_record import NodeRecord
from gateway.store.readers.lake import End

_SHORT = 8


def short(incarnation: str) -> str:
    """The incarnation as people read it."""
    shown = incarnation[:_SHORT]
    return shown if shown == incarnation else f"{shown}…"


class Reason(Enum):
    """Why an end is vouched for, or not."""

    DERIVED = (
        "its events are another past of an incarnation, which is asked for them all"
    )
    HERE = "its journal is seen here"
    HEARD = "it has said something of itself lately"
    CONTINUED = "another incarnation of its directory goes on from there"
    SPOOL = "what it acknowledged was in the bucket by then (ack: spool)"
    DECOMMISSIONED = "it was decommissioned"
    UNHEARD = "nobody ever says something of this node, and nothing contradicts"

    SET_BACK = "its directory goes on from an earlier lsn: its disk was set back"
    COPIED = "an older copy of its directory goes on"
    REPLACED = "another directory has its node's name, and knows nothing of it"
    SILENT = "nobody has heard of it since"
    ENDED = "it stopped in good order, and nobody has heard of its directory since"

    @property
    def vouches(self) -> bool:
        """Whether all that was acknowledged is known."""
        return self not in _SENTENCES


_SENTENCES = {
    Reason.SET_BACK: (
        "{name} is known up to lsn {last}, and its directory goes on from lsn {since}: it was"
        " set back, and what it acknowledged behind that nobody knows"
    ),
    Reason.COPIED: (
        "{name} is known up to lsn {last}, and an older copy of its directory goes on: what"
        " it acknowledged behind that nobody knows"
    ),
    Reason.REPLACED: (
        "{name} is known up to lsn {last}{heard}, and not to {who}, which has the name now:"
        " what it acknowledged behind that nobody knows"
    ),
    Reason.SILENT: (
        "{name} had acknowledged up to lsn {last}{heard}, and nobody has heard of it since:"
        " what it acknowledged behind that nobody knows"
    ),
    Reason.ENDED: (
        "{name} stopped in good order at lsn {last}{heard}; whether its directory went on"
        " since nobody knows: gateway decommission {node} says that it did not"
    ),
}


@dataclass(frozen=True, slots=True)
class Unknown:
    """An incarnation whose end is not known."""

    node: str
    incarnation: str
    last: int
    """The last lsn that it is known to have acknowledged."""
    why: Reason
    heard: float = 0.0
    """When it was heard of last, in seconds since the epoch; 0: never."""
    ack: str = ""
    """How it acknowledged, if that is known."""
    successor: str = ""
    """The incarnation that goes on without it."""
    since: int = 0
    """The lsn from which on that goes on."""
    accepted: bool = False
    """Whether it was accepted that what it acknowledged behind that is lost."""

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.heard, UTC)
        return _SENTENCES[self.why].format(
            name=f"{self.node} (incarnation {short(self.incarnation)})",
            node=self.node,
            last=self.last,
            heard=f" when last heard, {at:%Y-%m-%d %H:%M:%S} UTC" if self.heard else "",
            who=short(self.successor),
            since=self.since,
        )


class Heard(NamedTuple):
    """A record, and when it was said, by the clock of where it lies."""

    record: NodeRecord
    at: float
    lately: bool


@dataclass(slots=True)
class Known:
    """The knowledge of one incarnation.

    16 attributes: what several places say of it, before these are weighed.
    """

    since: int = 0
    """The first lsn that it may have given; 0 if that is not known."""
    said: int = 0
    """The last one that it has said to have acknowledged."""
    heard: float = 0.0
    """When it was heard of last."""
    ack: str = ""
    exact: bool = False
    """Whether it has ended, and `said` was all."""
    here: bool = False
    """Whether its journal is seen, or a gateway is asked that has it."""
    lately: bool = False
    """Whether it has said something of itself lately."""
    began: float = 0.0
    """The time when its daemon had begun, by the clock of `heard`, if it was heard lately."""
    decommissioned: bool = False
    derived: bool = False
    """The job has made it of events that have the names of others."""
    published: int = 0
    """The lsn up to which all of its directory is in files, it said."""
    copied: bool = False
    """A directory goes on that has not all of it."""
    following: dict[str, int] = field(default_factory=dict)
    """The incarnations that go on from it, and from which lsn on."""
    before: str = ""
    """The incarnation before it in its directory."""
    unnamed: int = 0
    """Lsns up to this one may be holes that its word does not name."""
    heads: set[str] = field(default_factory=set)
    """The newest incarnations of directories that have all of it."""

    @property
    def all_told(self) -> bool:
        """Whether there is nothing behind `said` that is in no file, if it has ended."""
        return self.exact or self.ack == "spool"


class Lives:
    """The knowledge of one node's incarnations beside their events.

    26 methods: half take what a place says, half answer the audit and the job.
    """

    def __init__(self, node: str, heard: Sequence[Heard] = ()) -> None:
        self.node = node
        said = [one.record for one in heard]
        self._records = {
            each.incarnation: each.records for each in said if not each.exact
        }
        """How many node records the directory had written by the newest one of each."""
        self._records_before = {each.incarnation: each.records_before for each in said}
        """How many it had written when each was started, as far as is known."""
        self.by: dict[str, Known] = {}
        self.gave: dict[str, int] = {}
        """The last lsn of some, as those say which go on from them."""
        self._holes: dict[str, Lsns] = {}
        """The lsns that disks did not give back, also of incarnations that have long ended."""
        self._there: list[str] = []
        """Incarnations whose journal is seen, or that were heard lately."""
        self._spoken_of = False
        """Whether anything but its files tells of this node."""

    def of(self, incarnation: str) -> Known:
        """The knowledge of one incarnation."""
        return self.by.setdefault(incarnation, Known())

    def holes_of(self, incarnation: str) -> Lsns:
        """The lsns of one that the disk of its directory did not give back."""
        return self._holes.get(incarnation, Lsns())

    # -- who says something -------------------------------------------------------------

    def journal(self, this: Incarnation) -> None:
        """One is seen here."""
        for each, since in ((this.id, this.since), *this.began.items()):
            self._begins(each, since)
        self.of(this.id).here = True
        self._records_before[this.id] = this.records
        self._directory([*this.earlier, this.id], this.lost, all_of_them=True)
        for each, last in this.lost.items():
            self.of(each).said = max(self.of(each).said, last)

    def node_records(self, heard: Sequence[Heard]) -> None:
        """Add the node records of incarnations about themselves."""
        for one in heard:
            record, known = one.record, self.of(one.record.incarnation)
            self._begins(record.incarnation, record.since)
            self._ended(known, record.lsn, one.at, record.ack, exact=record.exact)
            known.published = max(known.published, record.published)
            known.unnamed = max(known.unnamed, record.unnamed)
            known.lately |= one.lately
            known.began = one.at - (record.at - record.began)
            known.decommissioned |= bool(record.decommissioned)
            for each, since in zip(record.earlier, record.begins, strict=False):
                self._begins(each, since)
            self.holes({by: Lsns(spans) for by, spans in record.holes.items()})
        for one in heard:
            self._directory([*one.record.earlier, one.record.incarnation])

    def holes(self, holes: Mapping[str, Lsns]) -> None:
        """Add lsns that a directory's disk did not give back."""
        for each, lsns in holes.items():
            self._holes[each] = self.holes_of(each) | lsns

    def ends(self, ends: Mapping[str, End]) -> None:
        """How some ended, as a job has it."""
        for each, end in ends.items():
            self._begins(each, end.since)
            known = self.of(each)
            self._ended(known, end.acknowledged, end.heard, end.ack, exact=end.exact)

    def records(self, records: Mapping[str, Record]) -> None:
        """Add the records that files have of their incarnations."""
        for each, record in records.items():
            self._begins(each, record.first)
            self.of(each).derived = bool(record.of)
            if record.continues and not record.of:
                self.of(record.continues).following[each] = record.first
                self._gave(record.continues, record.first - 1)

    def asked(self, incarnation: str, since: int, earlier: Sequence[str]) -> None:
        """Add the answer of its gateway, with those before it in its directory."""
        self._begins(incarnation, since)
        self.of(incarnation).here = True
        self._directory([*earlier, incarnation])

    def settle(self) -> None:
        """All was said."""
        self._there = [
            each for each, known in self.by.items() if known.here or known.lately
        ]
        self._spoken_of = any(known.heads or known.heard for known in self.by.values())

    def _begins(self, each: str, since: int) -> None:
        known = self.of(each)
        known.since = known.since or since

    @staticmethod
    def _ended(known: Known, lsn: int, heard: float, ack: str, *, exact: bool) -> None:
        """The one counts that knows more."""
        if (exact, lsn) > (known.exact, known.said):
            known.exact, known.said = exact, max(lsn, known.said)
        known.heard, known.ack = max(known.heard, heard), ack or known.ack

    def _directory(
        self, ids: Sequence[str], lost: Iterable[str] = (), *, all_of_them: bool = False
    ) -> None:
        """Add incarnations of one directory, oldest first; of the *lost* it has not all.

        Where they are not *all of them*, others may have given lsns between.
        """
        lost = {*lost, *self._ahead(ids)}
        head, (*earlier, successor) = ids[-1], ids
        first, behind = self.of(head).since, head
        self.of(head).heads.add(head)
        for each in reversed(earlier):
            known = self.of(each)
            self.of(behind).before = each
            if each in lost:
                known.copied = True
            else:
                known.following[successor] = first
                known.heads.add(head)
                if all_of_them and known.since and successor == behind:
                    self._gave(each, first - 1)
            if known.since:
                successor, first = each, known.since
            behind = each

    def _ahead(self, ids: Sequence[str]) -> Iterator[str]:
        """The ones that wrote a record of which the directory that goes on knows nothing: it is
        older than that record, also where no lsn tells.
        """
        for each, behind in pairwise(ids):
            known = self._records_before.get(behind)
            if known is not None and self._records.get(each, 0) > known:
                yield each

    def _gave(self, each: str, last: int) -> None:
        self.gave[each] = max(last, self.gave.get(each, 0))

    # -- what it means ------------------------------------------------------------------

    def follows(self, incarnation: str) -> dict[str, int]:
        """The incarnations that go on from it, and from which lsn on; several are a fork."""
        found = self.of(incarnation).following
        if len(found) < 2:
            return found
        behind: set[str] = set()
        ahead = [each for one in found for each in self.of(one).following]
        while ahead:
            if (one := ahead.pop()) not in behind:
                behind.add(one)
                ahead += self.of(one).following
        return {each: first for each, first in found.items() if each not in behind}

    def has_directory(self, incarnation: str) -> Known | None:
        """The gateway that was heard lately and has what is left of it, if one was."""
        heads = (self.of(head) for head in self.of(incarnation).heads)
        return next((one for one in heads if one.lately), None)

    def of_its_directory(
        self, incarnation: str, others: Iterable[str]
    ) -> Sequence[str]:
        """The ones of the *others* that are known to have had its directory, too."""
        heads = self.of(incarnation).heads
        return [each for each in others if heads & self.of(each).heads]

    def reason(self, incarnation: str, last: int) -> Reason:
        """Whether anybody knows where it ended, which gave lsns up to *last*."""
        known, follows = self.of(incarnation), self.follows(incarnation)
        if known.derived:
            return Reason.DERIVED
        if known.here:
            return Reason.HERE
        if follows and last < max(follows.values()):
            return Reason.CONTINUED
        if known.ack == "spool":
            return Reason.SPOOL
        if known.lately and not self.spoken_since(incarnation):
            return (
                Reason.SET_BACK if self._was_replaced(known, follows) else Reason.HEARD
            )
        if known.decommissioned:
            return Reason.DECOMMISSIONED
        if follows:
            return Reason.SET_BACK
        if known.copied:
            return Reason.COPIED
        if known.exact:
            return Reason.ENDED
        if self._present(incarnation):
            return Reason.REPLACED
        return Reason.SILENT if self._spoken_of else Reason.UNHEARD

    def _was_replaced(self, known: Known, follows: Iterable[str]) -> bool:
        """Whether one that goes on from before its end may have begun after it was heard last.

        A machine that was resumed beside it had begun before, and takes nothing from it.
        """
        began = [self.of(each).began for each in follows]
        return any(not one or one > known.heard for one in began)

    def spoken_since(self, incarnation: str) -> bool:
        """Whether another directory with the node's name began later than this one was heard:
        its disk may be lost, or else it says something again.
        """
        heads, heard = self.of(incarnation).heads, self.of(incarnation).heard
        return any(
            self.of(each).began > heard
            and each not in heads
            and incarnation not in self.of(each).heads
            for each in self._there
        )

    def _present(self, incarnation: str) -> str:
        """Another one of the node that is here, or was heard lately."""
        return next((each for each in self._there if each != incarnation), "")

    def unknown(self, last: Mapping[str, int]) -> Iterator[Unknown]:
        """The incarnations whose end is not known, by the *last* lsn that is known of each."""
        unheard = []
        for each, lsn in sorted(last.items(), key=lambda one: one[1]):
            why = self.reason(each, lsn)
            if why is Reason.UNHEARD:
                unheard.append((each, lsn))
            elif not why.vouches:
                yield self._unknown(each, lsn, why)
        # Of several directories that nobody says anything of, one may be there.
        for each, lsn in unheard[:-1]:
            yield self._unknown(each, lsn, Reason.SILENT)

    def quiet(self, last: Mapping[str, int]) -> Iterator[Unknown]:
        """The incarnations whose *last* lsns are vouched for, and that may go on nevertheless:
        days that are complete wait for them.
        """
        for each, lsn in last.items():
            known, why = self.of(each), self.reason(each, lsn)
            if why in (Reason.SPOOL, Reason.UNHEARD) and not (
                known.lately or known.decommissioned
            ):
                yield self._unknown(each, lsn, why)

    def _unknown(self, each: str, last: int, why: Reason) -> Unknown:
        known, successor, since = self.of(each), "", 0
        if why is Reason.SET_BACK:
            successor, since = max(self.follows(each).items(), key=lambda one: one[1])
        elif why is Reason.REPLACED:
            successor = self._present(each)
            since = self.of(successor).since
        return Unknown(
            self.node, each, last, why, known.heard, known.ack, successor, since
        )

    def forks(self) -> Iterator[tuple[str, list[str]]]:
        """The incarnations from which several go on, as copies of a directory do, and these."""
        for each in list(self.by):
            if len(follows := self.follows(each)) > 1:
                yield each, sorted(follows)
