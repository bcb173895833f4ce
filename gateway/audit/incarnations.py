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

from gateway.audit.counts import GREATEST
from gateway.spoken import duration
from gateway.store.incarnation import Incarnation
from gateway.store.lake import End
from gateway.store.lsns import Lsns
from gateway.store.word import Reached

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
    def told(cls, reached: Reached) -> Line:
        """That of a gateway which says how far it is."""
        earlier = dict.fromkeys(reached.earlier, 0)
        return cls(reached.incarnation, reached.since, earlier)

    def __contains__(self, incarnation: str) -> bool:
        return incarnation == self.id or incarnation in self.earlier

    def since_of(self, incarnation: str) -> int:
        """The first lsn that one of them may have given; 0 if that is not known."""
        return (
            self.since if incarnation == self.id else self.earlier.get(incarnation, 0)
        )

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
        seconds = self.end.found - self.end.heard
        before = f"{duration(seconds)} before" if seconds >= 0 else "before"
        return (
            f"{name} had acknowledged up to lsn {self.last} when last heard,"
            f" {before} its successor began; {behind}"
        )


@dataclass(slots=True)
class Lives:
    """What is known of one node's incarnations beside their events."""

    lines: list[Line] = field(default_factory=list)
    """Of journals here, and of gateways that say how far they are."""
    ends: Mapping[str, End] = field(default_factory=dict)
    """How those ended that a successor's directory does not go on from."""
    holders: frozenset[str] = frozenset()
    """Those that have the node's name."""

    def line(self, incarnation: str) -> Line | None:
        """Which has it."""
        return next((line for line in self.lines if incarnation in line), None)

    def since(self, incarnation: str) -> int:
        """The first lsn that it may have given; 0 if that is not known."""
        for line in self.lines:
            if since := line.since_of(incarnation):
                return since
        end = self.ends.get(incarnation)
        return 0 if end is None else end.since

    def mates(self, incarnation: str, others: Iterable[str]) -> list[str]:
        """Those of *others* that may have given the lsns which it did not: of its line, or,
        as its line is not seen here, of no line that is.
        """
        mine = self.line(incarnation)
        return [
            other
            for other in others
            if other not in ("", incarnation)
            and (other in mine if mine is not None else self.line(other) is None)
        ]

    def vouched(self, incarnation: str) -> bool:
        """Whether somebody knows where it ended, or has it."""
        if not incarnation or incarnation in self.holders:
            return True
        line = self.line(incarnation)
        if line is not None and incarnation not in line.lost:
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
            if self.vouched(each):
                continue
            end, successor = self.ends.get(each), None
            if self.lines:
                successor = self.lines[0].id
            elif end is None:
                successor = later(each)
            if end is not None or successor is not None:
                since = self.lines[0].since if self.lines else 0
                found.append(Unknown(node, each, lsn, end, successor or "", since))
        return found
