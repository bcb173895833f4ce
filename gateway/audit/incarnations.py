"""What is known of a node's incarnations: who goes on from whom, and where each ended.

Of an end it is asked whether anybody can vouch for it (`gateway.store.incarnation`).

An event's name is (node, incarnation, lsn).  A journal knows itself and those before it in
its directory: a *line*, in which no lsn is given twice.  An incarnation in no line that is
seen here has lost its directory, or has it elsewhere.  What it acknowledged behind the last
that was heard of it nobody knows, unless it was heard that this was all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gateway.audit.counts import GREATEST
from gateway.store.incarnation import Incarnation, Record
from gateway.store.lake import End
from gateway.store.lsns import Lsns
from gateway.store.word import Word

_SHORT = 8


def short(incarnation: str) -> str:
    """As people read it."""
    shown = incarnation[:_SHORT]
    return shown if shown == incarnation else f"{shown}…"


@dataclass(frozen=True, slots=True)
class Line:
    """The incarnations of one directory, each of which went on from those before it."""

    id: str
    """The one that has it now."""
    since: int
    """Its first lsn."""
    earlier: Mapping[str, int]
    """Those before it, and the first lsn of each; 0 if that is not known."""
    lost: Collection[str] = ()
    """Those of these whose end it does not know."""

    @classmethod
    def of(cls, this: Incarnation) -> Line:
        """That of a journal."""
        return cls(this.id, this.since, this.began, this.lost)

    @classmethod
    def told(cls, said: Word, words: Mapping[str, Word], *, silent: bool) -> Line:
        """That of a gateway which says how far it is; of one that is *silent* nobody knows
        whether it acknowledged more.  Those before it said in *words* whom they went on from,
        and how far they were: farther than this directory knows, if it was set back.
        """
        lost = {said.incarnation} if silent and not said.all_told else set()
        earlier: dict[str, int] = {}
        ahead = [said]
        while ahead:
            one = ahead.pop()
            for each in one.earlier:
                before = words.get(each)
                if before is not None and not one.goes_on_from(before):
                    lost.add(each)
                if each not in earlier:
                    earlier[each] = 0 if before is None else before.since
                    ahead += () if before is None else [before]
        oldest_first = dict(sorted(earlier.items(), key=lambda one: one[1]))
        return cls(said.incarnation, said.since, oldest_first, lost)

    def __contains__(self, incarnation: str) -> bool:
        return incarnation == self.id or incarnation in self.earlier

    def since_of(self, incarnation: str) -> int:
        """The first lsn that one of them may have given; 0 if that is not known."""
        return (
            self.since if incarnation == self.id else self.earlier.get(incarnation, 0)
        )

    def vouches(self, incarnation: str, last: int) -> bool:
        """Whether this directory has all of one that gave lsns up to *last*: not, if another
        one of it began before that, as on a disk that was set back.
        """
        if incarnation not in self or incarnation in self.lost:
            return False
        ids = [*self.earlier, self.id]
        since = self.since_of(incarnation)
        later = [self.since_of(each) for each in ids[ids.index(incarnation) + 1 :]]
        begins = [each for each in later if each >= since] if since else later[-1:]
        return last < min(begins, default=last + 1)

    def parts(self) -> dict[str, Lsns]:
        """The lsns of its journal that each of them gave, as far as that is known."""
        found = {self.id: Lsns([(self.since, GREATEST)])}
        end = self.since - 1
        for each, first in reversed(list(self.earlier.items())):
            if 0 < first <= end:
                found[each] = Lsns([(first, end)])
                end = first - 1
        return found


@dataclass(frozen=True, slots=True)
class Unknown:
    """An incarnation of which nobody knows where it ended."""

    node: str
    incarnation: str
    last: int
    """The last lsn that it is known to have acknowledged."""
    end: End | None = None
    """What was heard of it."""
    successor: str = ""
    """Who goes on without it."""
    since: int = 0
    """From which lsn on."""
    accepted: bool = False
    """Somebody said that what it acknowledged behind that is lost."""

    def __str__(self) -> str:
        name = f"{self.node} (incarnation {short(self.incarnation)})"
        behind = "what it acknowledged behind that nobody knows"
        if self.end is None or self.end.heard <= 0:
            who = f"{short(self.successor)}, which goes on"
            where = f" from lsn {self.since} on" if self.since else ""
            return f"{name} is known up to lsn {self.last}, and not to {who}{where}: {behind}"
        at = datetime.fromtimestamp(self.end.heard, UTC)
        return (
            f"{name} had acknowledged up to lsn {self.last} when last heard,"
            f" {at:%Y-%m-%d %H:%M:%S} UTC; {behind}"
        )


@dataclass(slots=True)
class Lives:
    """What is known of one node's incarnations beside their events."""

    lines: list[Line] = field(default_factory=list)
    """Of journals here, and of gateways that say how far they are."""
    ends: Mapping[str, End] = field(default_factory=dict)
    """How those ended that a successor's directory does not go on from."""
    alive: frozenset[str] = frozenset()
    """Those that have said something of themselves lately."""
    records: Mapping[str, Record] = field(default_factory=dict)
    """What files have said of each, as the job has noted."""

    def line(self, incarnation: str) -> Line | None:
        """Which has it."""
        return next((line for line in self.lines if incarnation in line), None)

    def since(self, incarnation: str) -> int:
        """The first lsn that it may have given; 0 if that is not known."""
        for line in self.lines:
            if since := line.since_of(incarnation):
                return since
        if (record := self.records.get(incarnation)) is not None:
            return record.first
        end = self.ends.get(incarnation)
        return 0 if end is None else end.since

    def mates(self, incarnation: str, others: Iterable[str]) -> list[str]:
        """Those of *others* that may have given the lsns which it did not: of its line, or,
        as its line is not seen here, of no line that is.  Of one that came farther than its
        line knows nobody did.
        """
        mine = self.line(incarnation)
        if mine is not None and incarnation in mine.lost:
            return []
        return [
            other
            for other in others
            if other not in ("", incarnation)
            and (other in mine if mine is not None else self.line(other) is None)
        ]

    def has_directory(self, incarnation: str) -> bool:
        """Whether a gateway that was heard lately has what is left of it."""
        line = self.line(incarnation)
        if line is None or incarnation in line.lost:
            return False
        return line.id in self.alive

    def vouched(self, incarnation: str, last: int) -> bool:
        """Whether somebody knows where it ended, or has it; it gave lsns up to *last*."""
        if not incarnation or incarnation in self.alive:
            return True
        if any(line.vouches(incarnation, last) for line in self.lines):
            return True
        end = self.ends.get(incarnation)
        return end is not None and end.exact

    def unknown(
        self,
        node: str,
        last: Mapping[str, int],
        later: Callable[[str], str | None],
    ) -> list[Unknown]:
        """Incarnations that nobody vouches for, by the *last* lsn that is known of each.

        Where neither a journal nor a gateway's word is seen, one has ended if another has
        given its lsns again, *later*.
        """
        found = []
        for each, lsn in sorted(last.items(), key=lambda one: one[1]):
            if self.vouched(each, lsn):
                continue
            end, successor = self.ends.get(each), None
            others = [line for line in self.lines if line.id != each]
            if others:
                successor = others[0].id
            elif end is None:
                successor = later(each)
            if end is not None or successor is not None:
                since = others[0].since if others else 0
                found.append(Unknown(node, each, lsn, end, successor or "", since))
        return found
