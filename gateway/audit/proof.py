"""The audit: checks that every acknowledged event is in lake, spool or journal, once.

An event moves journal → spool → lake, and is in its next place before it leaves the
one before.  One look goes through the places in that order, so an event that moves
meanwhile is met at least once; what has left a place before we came there is found in
a later one.  Being met in two places is therefore no double: it is the same event on
its way.  Doubles are the same (node, lsn) twice in the tables, or in two files of
spool and archive.

A spool in a bucket is two places: files are in the directory, and then in the bucket.
Gateways on other machines are asked first of all: what one says is only in its journal may
be met in the bucket later.

A directory is not listed at one instant, though.  So what looks like a fault is looked
at afresh a few times, and only what the last look finds is one.

The last acknowledged lsn of a node is the greatest that any place knew of at the first
look; that includes the journal's catalog, which outlives segments and files.  Later
events are not asked for: they would be news in every look.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gateway.audit.counts import Counts
from gateway.audit.files import JournalContent, runs_in
from gateway.audit.lake import Problem, Unusable
from gateway.audit.ranges import Ranges
from gateway.audit.remote import Access
from gateway.audit.sites import (
    Ask,
    Asked,
    Journals,
    Lakes,
    Site,
    Spools,
    distinct,
    joined,
)
from gateway.store import mark
from gateway.store.bucket import Bucket
from gateway.store.directories import Directories
from gateway.store.finder import SpoolFile, spool_files
from gateway.store.lake import known_holes
from gateway.store.lock import is_locked

__all__ = ["Double", "Hole", "Node", "Report", "audit"]

_LOOKS = 4
_PAUSE_SECONDS = 0.3
_NAMED = 20


@dataclass(slots=True)
class Hole:
    """Acknowledged events that are nowhere."""

    first: int
    last: int
    archive: list[str] = field(default_factory=list)
    """Files that still have some of them: the tables lost them, we did not."""
    note: str | None = None
    """What else is known of them."""


@dataclass(slots=True)
class Double:
    """Events that are there more than once."""

    first: int
    last: int
    files: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Node:
    """What was found of one node's events; the three places add up to all but holes."""

    node: str
    first: int
    last: int
    """The last acknowledged."""
    in_lake: int
    in_spool: int
    """Not in the lake, but in the spool."""
    in_journal: int
    """Only there."""
    holes: Ranges
    doubles: Ranges
    aside: Ranges = field(default_factory=Ranges)
    """In spool files that the Spark job could not read; it has written them down."""

    @property
    def events(self) -> int:
        """How many were acknowledged."""
        return max(0, self.last - self.first + 1)

    @property
    def fine(self) -> bool:
        """Whether all of them are there once."""
        return not len(self.holes) and not len(self.doubles)


@dataclass(slots=True)
class Report:
    """The result."""

    nodes: list[Node]
    problems: list[Problem]
    holes: dict[str, list[Hole]] = field(default_factory=dict)
    """By node; the first of them with all that is known."""
    doubles: dict[str, list[Double]] = field(default_factory=dict)
    looks: int = 1
    told: bool = False
    """Whether what is in the tables is only what the job's ledger says."""
    asked: list[str] = field(default_factory=list)
    """Nodes of which what is in the journal is only what their gateway says."""

    @property
    def events(self) -> int:
        """All nodes' acknowledged events."""
        return sum(node.events for node in self.nodes)

    @property
    def complete(self) -> bool:
        """The promise holds."""
        return not self.problems and all(node.fine for node in self.nodes)


def audit(
    directories: Directories,
    *,
    node: str | None = None,
    first: int = 1,
    served: str | None = None,
    bucket: Bucket | None = None,
    access: Access | None = None,
    others: Iterable[Site] = (),
    gateways: Iterable[tuple[str, Ask]] = (),
    pause: Callable[[float], None] = time.sleep,
) -> Report:
    """Check all nodes, or one; from lsn *first* on.  Raises OSError.

    *others* are more directories, of gateways that write for one job; *gateways* those that
    are asked, because their directories are on other machines: addresses, for people, and
    how to ask.

    *bucket* is where files of the spool go, if it has one; *access* how to reach tables in
    object storage.

    *served* is the node of the configuration: what is in the journal of another one waits
    for nobody, unless a daemon has it locked.

    *pause* is called between two looks, with the seconds to wait.
    """
    sites = distinct([Site(directories, served, bucket, access), *others])
    view = _View(sites, node, first, gateways)
    report = view.look()
    while not report.complete and report.looks < _LOOKS:
        pause(_PAUSE_SECONDS)
        looks = report.looks + 1
        report = view.look()
        report.looks = looks
    view.explain(report)
    return report


class _View:
    """All places of all nodes, as the last look found them."""

    def __init__(
        self,
        sites: Sequence[Site],
        node: str | None,
        first: int,
        gateways: Iterable[tuple[str, Ask]],
    ) -> None:
        self._sites = sites
        self._node = node
        self._first = first
        self._journals = Journals(sites)
        self._spools = Spools(sites)
        self._lake = Lakes(sites, node=node, first=first)
        self._asked = Asked(gateways, self._spools.urls)
        self._journal: dict[str, JournalContent] = {}
        self._spool: dict[str, list[SpoolFile]] = {}
        self._archive: dict[str, list[SpoolFile]] = {}
        self._aside: dict[str, Ranges] = {}
        self._runs: dict[str, list[tuple[int, int]]] = {}
        self._until: dict[str, int] = {}

    def look(self) -> Report:
        # First of all, so that what they speak of can be found in a place read later.
        self._asked.look()
        marked = self._marked()
        self._journals.look()
        self._journal = self._journals.nodes
        self._spool = self._spools.list()
        self._lake.look()
        self._aside = self._moved_aside()
        self._archive = joined(
            *(spool_files(site.directories.archive) for site in self._sites)
        )
        names = {*self._journal, *self._spool, *self._lake.nodes, *self._archive}
        names |= self._until.keys() | marked.keys()
        if self._node is not None:
            names &= {self._node}
        problems = [*self._asked.problems, *self._lake.problems]
        nodes = [
            self._judge(name, problems, marked.get(name, 0)) for name in sorted(names)
        ]
        asked = sorted(self._asked.words.keys() & names)
        return Report(nodes, problems, told=self._lake.told, asked=asked)

    def _marked(self) -> dict[str, int]:
        """How far each node had come at least, by its mark, or its own word."""
        found = {word.node: word.durable for word in self._asked.words.values()}
        for site in self._sites:
            for path in site.directories.state.glob(f"*/{mark.NAME}"):
                with contextlib.suppress(FileNotFoundError):
                    if (read := mark.decode(path.read_bytes())) is not None:
                        node = path.parent.name
                        found[node] = max(found.get(node, 0), read.durable)
        return found

    def _judge(self, name: str, problems: list[Problem], marked: int) -> Node:
        journal = self._journal.get(name, JournalContent())
        spool, archive = self._spool.get(name, []), self._archive.get(name, [])
        lake = self._lake.nodes.get(name, Counts())
        last = max(marked, journal.last, lake.last, *_lasts(spool), *_lasts(archive))
        last = self._until.setdefault(name, last)
        asked = Ranges.of([(self._first, last)])
        problems += journal.problems
        files = sorted((*spool, *archive), key=lambda file: (file.first, file.last))
        problems += self._journals.foreign(name, files)
        missing = lake.missing(self._first, last)
        runs = self._read(spool, missing, journal, problems)
        lacking = missing - Ranges.of(runs)
        waiting = lacking & journal.events
        said = lacking & self._asked.waiting(name)
        holes = lacking - waiting - said
        holes = holes | ((waiting & self._taken(journal, waiting)) - said)
        aside = holes & self._aside.get(name, Ranges())
        holes = holes - aside
        if len(waiting):
            problems += self._unserved(name)
        spans = {file.path.name: (file.first, file.last) for file in (*spool, *archive)}
        twice = Ranges.twice(runs) | Ranges.twice(spans.values())
        return Node(
            name,
            self._first,
            last,
            in_lake=asked.events - missing.events,
            in_spool=missing.events - lacking.events,
            in_journal=lacking.events - holes.events - aside.events,
            holes=holes,
            aside=aside,
            doubles=lake.doubled(self._first, last) | (twice & asked),
        )

    def _unserved(self, name: str) -> Iterable[Problem]:
        """Why what waits in a node's journal would wait for ever."""
        for site in self._journals.homes(name):
            path = site.directories.journal_of(name)
            if site.served not in (None, name) and not is_locked(path):
                yield Problem(
                    str(path),
                    f"nobody serves node {name}: the gateway of node {site.served} "
                    "publishes its events when it starts",
                )

    def _taken(self, journal: JournalContent, waiting: Ranges) -> Ranges:
        """Which of *waiting* were published, and will not be again.

        Their segment may stay for what else is in it (`gateway.store.checkpoint`).
        """
        return Ranges.of(
            (entry.first, entry.last)
            for entry in journal.published
            if waiting.touches(entry.first, entry.last)
            and not any(
                (site.directories.spool / entry.hidden).exists() for site in self._sites
            )
        )

    def _read(
        self,
        files: list[SpoolFile],
        missing: Ranges,
        journal: JournalContent,
        problems: list[Problem],
    ) -> list[tuple[int, int]]:
        """What really is in those files that should have some of *missing*.

        They are read whole: nobody else has these events.
        """
        found: list[tuple[int, int]] = []
        entries = {entry.name: entry for entry in journal.published}
        for file in files:
            if not missing.touches(file.first, file.last):
                continue
            name = file.path.name
            if name not in self._runs:
                bucket = self._spools.bucket_of(file)
                try:
                    with (
                        bucket.local(file)
                        if bucket
                        else contextlib.nullcontext(file) as there
                    ):
                        self._runs[name] = runs_in(there, entries.get(name))
                except FileNotFoundError:
                    # It was public when we listed it, and has gone to the tables since.
                    found.append((file.first, file.last))
                    continue
                except Unusable as why:
                    problems.append(Problem(str(file.path), str(why)))
                    continue
            found += self._runs[name]
        return found

    def _moved_aside(self) -> dict[str, Ranges]:
        holes = []
        for site in self._sites:
            with contextlib.suppress(ValueError):  # then they are holes nobody knows
                holes += known_holes(site.directories.lake)
        return {
            node: Ranges.of((one.first, one.last) for one in holes if one.node == node)
            for node in {one.node for one in holes}
        }

    def explain(self, report: Report) -> None:
        """Say of the first faults what is known, of the others where they are."""
        for node in report.nodes:
            for number, (first, last) in enumerate(node.holes):
                hole = Hole(first, last)
                if number < _NAMED:
                    self._explain_hole(node.node, hole)
                report.holes.setdefault(node.node, []).append(hole)
            for number, (first, last) in enumerate(node.doubles):
                double = Double(first, last)
                if number < _NAMED:
                    double.files = self._files_with(node.node, double)
                report.doubles.setdefault(node.node, []).append(double)

    def _explain_hole(self, name: str, hole: Hole) -> None:
        hole.archive = _overlapping(self._archive.get(name, []), hole.first, hole.last)
        if hole.archive:
            return
        if spool := _overlapping(self._spool.get(name, []), hole.first, hole.last):
            hole.note = f"{spool[0]}, which should have them, is damaged"
            return
        seen = self._journal.get(name, JournalContent())
        for first, last, path in seen.damaged:
            if first <= hole.last and hole.first <= last:
                hole.note = f"{path}, which was found damaged, may have held them"
                return
        for entry in seen.published:
            if entry.first <= hole.last and hole.first <= entry.last:
                hole.note = f"the journal published {entry.name}, which is gone"
                return

    def _files_with(self, name: str, double: Double) -> list[str]:
        there = [*self._spool.get(name, []), *self._archive.get(name, [])]
        spooled = _overlapping(there, double.first, double.last)
        if len({path.rpartition("/")[2] for path in spooled}) < 2:
            spooled = []
        return self._lake.files_with(name, double.first, double.last) + spooled


def _lasts(files: Iterable[SpoolFile]) -> list[int]:
    return [0, *(file.last for file in files)]


def _overlapping(files: list[SpoolFile], first: int, last: int) -> list[str]:
    return [str(file.path) for file in files if file.overlaps(first, last)]
