"""The report of an audit: of each node, and of each of its incarnations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.audit.lake import Problem
from gateway.store.lsns import Lsns
from gateway.store.node.lives import Unknown
from gateway.store.readers.deleted import Deletion
from gateway.store.readers.lake import Accepted


@dataclass(slots=True)
class Hole:
    """Acknowledged events that are nowhere."""

    first: int
    last: int
    incarnation: str
    archive: list[str] = field(default_factory=list)
    """Files that still have some of them: the tables lost them, we did not."""
    note: str | None = None
    """A note on them."""


@dataclass(slots=True)
class Double:
    """Events that are there more than once."""

    first: int
    last: int
    incarnation: str
    files: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fork:
    """Several incarnations that go on from one, as copies of a directory do."""

    node: str
    incarnation: str
    following: list[str]


TABLES = "tables"


@dataclass(slots=True)
class Life:
    """The findings about one incarnation's events; all places and the holes add up to all."""

    incarnation: str
    asked: Lsns
    """The incarnation's lsns, up to the last acknowledged."""
    places: Mapping[str, Lsns]
    """Where they are, or why they need not be anywhere (`gateway.audit.judge`)."""
    holes: Lsns
    doubles: Lsns

    def has(self, *places: str) -> Lsns:
        """The lsns that are in these places, or for these reasons in none."""
        return Lsns.joined(self.places[each] for each in places if each in self.places)

    @property
    def in_lake(self) -> int:
        return self.has(TABLES).size

    @property
    def in_spool(self) -> int:
        """Not in the lake, but in the spool."""
        return self.has("spool").size

    @property
    def in_journal(self) -> int:
        """Only there, or its gateway says so."""
        return self.has("journal", "gateway", "word").size


@dataclass(slots=True)
class Node:
    """The findings about one node's events: the sums of its incarnations'."""

    node: str
    first: int
    last: int
    """The last acknowledged."""
    lives: list[Life]
    """Incarnations by their first lsns; an event's name is (node, incarnation, lsn)."""

    @property
    def events(self) -> int:
        return sum(life.asked.size for life in self.lives)

    @property
    def in_lake(self) -> int:
        return sum(life.in_lake for life in self.lives)

    @property
    def in_spool(self) -> int:
        return sum(life.in_spool for life in self.lives)

    @property
    def in_journal(self) -> int:
        """How many are in the journal only."""
        return sum(life.in_journal for life in self.lives)

    @property
    def holes(self) -> Lsns:
        """Lsns that are nowhere, of all incarnations."""
        return Lsns.joined(life.holes for life in self.lives)

    @property
    def doubles(self) -> Lsns:
        """Lsns that are there more than once."""
        return Lsns.joined(life.doubles for life in self.lives)

    @property
    def aside(self) -> Lsns:
        """Lsns in files that the Spark job could not read."""
        return Lsns.joined(life.has("aside") for life in self.lives)

    @property
    def fine(self) -> bool:
        """Whether all of them are there once."""
        return not any(
            len(life.holes) or len(life.doubles) or life.has("unverified")
            for life in self.lives
        )


@dataclass(slots=True)
class Report:
    """The result."""

    nodes: list[Node]
    problems: list[Problem]
    holes: dict[str, list[Hole]] = field(default_factory=dict)
    """Holes by node; the first of them with all that is known."""
    doubles: dict[str, list[Double]] = field(default_factory=dict)
    unknown: list[Unknown] = field(default_factory=list)
    """Incarnations whose end is not known."""
    quiet: list[Unknown] = field(default_factory=list)
    """Others that may go on, for all that is known (`Lives.quiet`)."""
    forks: list[Fork] = field(default_factory=list)
    accepted: list[Accepted] = field(default_factory=list)
    """The losses that were accepted, whether or not they are any."""
    deletions: list[Deletion] = field(default_factory=list)
    """The deletions from the tables on purpose."""
    looks: int = 1
    told: bool = False
    """Whether what is in the tables is only what the job's ledger says."""
    asked: list[str] = field(default_factory=list)
    """Nodes of which what is in the journal is only what their gateway says."""
    worded: list[str] = field(default_factory=list)
    """Nodes of which it is only what their gateway last said in the bucket."""

    @property
    def events(self) -> int:
        """All nodes' acknowledged events."""
        return sum(node.events for node in self.nodes)

    def count(self, place: str) -> int:
        """How many of them are in that place, or for that reason in none (`Life.has`)."""
        return sum(life.has(place).size for node in self.nodes for life in node.lives)

    @property
    def complete(self) -> bool:
        """The promise holds, but for what was accepted."""
        vouched = all(one.accepted for one in self.unknown)
        return vouched and not self.problems and all(one.fine for one in self.nodes)
