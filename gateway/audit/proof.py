"""The audit: checks that every acknowledged event is in lake, spool or journal, once.

An event moves journal → spool → lake, and is in its next place before it leaves the
one before.  One look goes through the places in that order, so an event that moves
meanwhile is met at least once; what has left a place before we came there is found in
a later one.  Being met in two places is therefore no double: it is the same event on
its way.  Doubles are the same (node, incarnation, lsn) twice in the tables, or in two files
of spool and archive.

A spool in a bucket is two places: files are in the directory, and then in the bucket.
Gateways on other machines are asked first of all: what one says is only in its journal may
be met in the bucket later.

A directory is not listed at one instant, though.  So what looks like a fault is looked
at afresh a few times, and only what the last look finds is one.

The last acknowledged lsn of an incarnation is the greatest that any place knew of at the
first look; that includes the journal's catalog, which outlives segments and files, and what
a successor found of it.  Later events are not asked for: they would be news in every look.

Each incarnation has to account for its lsns from its first one on (`_Judge`).  What lies
before or between them must be there as whosever.  Rows of before name no incarnation: they
count for each whose own rows do not meet them.
"""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gateway.audit.counts import GREATEST, Counts
from gateway.audit.files import JournalContent, runs_in
from gateway.audit.incarnations import Footers, Lives, Unknown
from gateway.audit.lake import Problem, Unusable, received_at
from gateway.audit.ranges import Ranges
from gateway.audit.remote import Access
from gateway.audit.report import Double, Hole, Life, Node, Report
from gateway.audit.sites import (
    Ask,
    Asked,
    Journals,
    Lakes,
    Ledgers,
    Site,
    Spools,
    Words,
    distinct,
    joined,
    lives_of,
)
from gateway.store.bucket import Bucket
from gateway.store.directories import Directories
from gateway.store.finder import SpoolFile, spool_files
from gateway.store.lock import is_locked

__all__ = ["audit"]

_LOOKS = 4
_PAUSE_SECONDS = 0.3
_NAMED = 20
_NEWEST = 64
"""Of a node's archived files, whose footers are always read."""


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


@dataclass(slots=True)
class _Files:
    """A node's files in spool and archive."""

    spool: list[SpoolFile]
    archive: list[SpoolFile]
    of: dict[str, list[SpoolFile]] = field(default_factory=dict)
    """Those whose incarnation was looked at, by it; each name once."""

    def spans(self, incarnation: str) -> list[tuple[int, int]]:
        """The lsns of one's files."""
        return [(file.first, file.last) for file in self.of.get(incarnation, ())]


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
        self.first = first
        self.journals = Journals(sites)
        self._spools = Spools(sites)
        self.lake = Lakes(sites, node=node, first=first)
        self.asked = Asked(gateways, self._spools.urls)
        self.words = Words(self._spools.buckets, node)
        self.ledgers = Ledgers(sites)
        self._footers = Footers(self._spools.buckets)
        self._spool: dict[str, list[SpoolFile]] = {}
        self._archive: dict[str, list[SpoolFile]] = {}
        self._in_buckets: dict[str, list[SpoolFile]] | None = None
        """The archives in buckets; None before they were listed."""
        self._files: dict[str, _Files] = {}
        self._lives: dict[str, Lives] = {}
        self._runs: dict[SpoolFile, list[tuple[int, int]]] = {}
        self.until: dict[tuple[str, str | None], int] = {}
        """The last lsn of each incarnation, and of each node, at the first look."""

    def look(self) -> Report:
        # First of all, so that what they speak of can be found in a place read later.
        self.asked.look()
        self.words.look()
        self.journals.look()
        self._spool = self._spools.list()
        self.lake.look()
        self.ledgers.look()
        self._archive = joined(
            *(spool_files(site.directories.archive) for site in self._sites)
        )
        names = self.journals.nodes | self._spool.keys() | self.lake.nodes.keys()
        names |= self._archive.keys() | self.asked.words.keys()
        names |= self.journals.marked.keys() | {node for node, _ in self.until}
        names |= self.words.reached.keys() | self.words.ends.keys()
        names |= self.ledgers.ends.keys()
        if self._node is not None:
            names &= {self._node}
        report = Report(
            [],
            [
                problem
                for place in (self.asked, self.words, self.lake, self.ledgers)
                for problem in place.problems
            ],
            accepted=[one for one in self.ledgers.accepted if one.node in names],
            told=self.lake.told,
            asked=sorted(self.asked.words.keys() & names),
        )
        for name in sorted(names):
            self._lives[name] = lives_of(
                name, self.journals, self.words, self.ledgers, self.asked
            )
            self._files[name] = self._sorted_files(name)
            judge = _Judge(self, name, self._lives[name], self._files[name], report)
            report.nodes.append(judge.judge())
            report.unknown += judge.unknown()
        return report

    def _sorted_files(self, name: str) -> _Files:
        """Who published which: of what waits, of the newest in the archive, and where two
        have one lsn.
        """
        found = _Files(self._spool.get(name, []), self._archive.get(name, []))
        both = sorted(
            [*found.spool, *found.archive], key=lambda file: (file.first, file.last)
        )
        looked = [*found.spool, *found.archive[-_NEWEST:], *_meeting(both)]
        names: set[tuple[str, str]] = set()
        for file in sorted(dict.fromkeys(looked), key=lambda file: file.first):
            incarnation = self._footers.of(file)
            if incarnation is None:  # it has moved, and is met where it is now
                continue
            if (incarnation, file.path.name) not in names:
                names.add((incarnation, file.path.name))
                found.of.setdefault(incarnation, []).append(file)
        return found

    def unserved(self, name: str) -> Iterable[Problem]:
        """Why what waits in a node's journal would wait for ever."""
        for home in self.journals.homes(name):
            path = home.site.directories.journal_of(name)
            if home.site.served not in (None, name) and not is_locked(path):
                yield Problem(
                    str(path),
                    f"nobody serves node {name}: the gateway of node {home.site.served} "
                    "publishes its events when it starts",
                )

    def taken(self, journal: JournalContent, waiting: Ranges) -> Ranges:
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

    def incarnation_of(self, file: SpoolFile) -> str | None:
        """Who published it; None if it is gone."""
        return self._footers.of(file)

    def runs(
        self, file: SpoolFile, journal: JournalContent, problems: list[Problem]
    ) -> list[tuple[int, int]]:
        """What really is in a file that should have what no table has.

        It is read whole: nobody else has these events.
        """
        if file in self._runs:
            return self._runs[file]
        name = file.path.name
        life = self._footers.of(file) or ""
        entry = next((one for one in journal.published if one.name == name), None)
        if entry is not None and life and entry.incarnation not in ("", life):
            entry = None
        bucket = self._spools.bucket_of(file)
        try:
            with (
                bucket.local(file) if bucket else contextlib.nullcontext(file)
            ) as there:
                self._runs[file] = runs_in(there, entry)
        except FileNotFoundError:
            # It was public when we listed it, and has gone to the tables since.
            return [(file.first, file.last)]
        except Unusable as why:
            problems.append(Problem(str(file.path), str(why)))
            return []
        return self._runs[file]

    def received(self, file: SpoolFile, lsn: int) -> int | None:
        """When an event of a file in spool, archive or bucket came, if it can be told."""
        bucket = self._spools.bucket_of(file)
        with (
            contextlib.suppress(OSError),
            bucket.local(file) if bucket else contextlib.nullcontext(file) as there,
        ):
            return received_at(there.path, file.node, "", lsn)
        return None

    def explain(self, report: Report) -> None:
        """Say of the first faults what is known, of the others where they are."""
        for node in report.nodes:
            for life in node.lives:
                who = life.incarnation
                holes = report.holes.setdefault(node.node, []) if life.holes else []
                for first, last in life.holes:
                    hole = Hole(first, last, incarnation=who)
                    if len(holes) < _NAMED:
                        self._explain_hole(node.node, hole)
                    holes.append(hole)
                twice = report.doubles.setdefault(node.node, []) if life.doubles else []
                for first, last in life.doubles:
                    double = Double(first, last, incarnation=who)
                    if len(twice) < _NAMED:
                        double.files = self._files_with(node.node, double)
                    twice.append(double)

    def _explain_hole(self, name: str, hole: Hole) -> None:
        files = self._files[name]
        hole.archive = self._overlapping([*files.archive, *self._archived(name)], hole)
        if hole.archive:
            return
        if spool := self._overlapping(files.spool, hole):
            hole.note = f"{spool[0]}, which should have them, is damaged"
            return
        end = self._lives[name].ends.get(hole.incarnation)
        if end is not None and hole.last <= end.acknowledged:
            hole.note = (
                f"acknowledged by {name} with ack: {end.ack} before its disk was lost"
            )
            return
        seen = self.journals.content(name)
        for first, last, path in seen.damaged:
            if first <= hole.last and hole.first <= last:
                hole.note = f"{path}, which was found damaged, may have held them"
                return
        for entry in seen.published:
            theirs = "" not in (entry.incarnation, hole.incarnation)
            if theirs and entry.incarnation != hole.incarnation:
                continue
            if entry.first <= hole.last and hole.first <= entry.last:
                hole.note = f"the journal published {entry.name}, which is gone"
                return

    def _archived(self, name: str) -> list[SpoolFile]:
        """A node's files in the archives of buckets, which are listed for what is missing
        alone.
        """
        if self._in_buckets is None:
            self._in_buckets = self._spools.archives()
        return self._in_buckets.get(name, [])

    def _overlapping(
        self, files: Iterable[SpoolFile], some: Hole | Double
    ) -> list[str]:
        """Where events of this range, and this incarnation, should be."""
        return [
            str(file.path)
            for file in files
            if file.overlaps(some.first, some.last)
            and (
                not some.incarnation
                or self._footers.of(file) in (None, "", some.incarnation)
            )
        ]

    def _files_with(self, name: str, double: Double) -> list[str]:
        files = self._files[name]
        spooled = self._overlapping([*files.spool, *files.archive], double)
        if len({path.rpartition("/")[2] for path in spooled}) < 2:
            spooled = []
        lives = dict.fromkeys((double.incarnation, ""))
        tables = [
            str(place)
            for each in lives
            for place in self.lake.files_with(name, each, double.first, double.last)
        ]
        return list(dict.fromkeys(tables)) + spooled


class _Judge:
    """One node, as one look found it."""

    def __init__(
        self, view: _View, name: str, lives: Lives, files: _Files, report: Report
    ) -> None:
        self._view = view
        self._name = name
        self._lives = lives
        self._files = files
        self._report = report
        self._counts: Mapping[str, Counts] = view.lake.nodes.get(name, {})
        self._journal = view.journals.content(name)
        self._waiting = view.journals.events(name)
        self._reached = {
            one.incarnation: one for one in view.words.reached.get(name, ())
        }
        self._lines: dict[str, list[tuple[int, int]]] = defaultdict(list)
        """What the catalog says, by incarnation."""
        for entry in self._journal.published:
            self._lines[entry.incarnation].append((entry.first, entry.last))
        self._last = 0
        self._until = self._ends()

    # -- whose lsns are asked for -------------------------------------------------------

    def _ends(self) -> dict[str, int]:
        """The last acknowledged lsn of each incarnation that is known, at the first look."""
        found: dict[str, int] = defaultdict(int)

        def see(incarnation: str, last: int) -> None:
            found[incarnation] = max(found[incarnation], last)

        for each, counts in self._counts.items():
            see(each, counts.last)
        for each, spans in (*self._lines.items(), *self._spans()):
            for _, last in spans:
                see(each, last)
        for each, lsns in self._waiting.items():
            see(each, lsns.last)
        for home in self._view.journals.homes(self._name):
            see(home.this.id if home.this is not None else "", home.last)
        for each, reached in self._reached.items():
            see(each, reached.lsn)
        for each, end in self._lives.ends.items():
            see(each, end.acknowledged)
        if (word := self._view.asked.words.get(self._name)) is not None:
            see(word.incarnation, word.durable)
        see("", self._view.journals.marked.get(self._name, 0))
        for file in (*self._files.spool, *self._files.archive):
            see("", file.last)
        until = self._view.until
        self._last = until.setdefault((self._name, None), max(found.values()))
        return {
            each: until.setdefault((self._name, each), last)
            for each, last in found.items()
            if each
        }

    def _spans(self) -> Iterable[tuple[str, list[tuple[int, int]]]]:
        return ((each, self._files.spans(each)) for each in self._files.of)

    def _since(self, each: str) -> int:
        """The first lsn that an incarnation has to account for."""
        if since := self._lives.since(each):
            return since
        seen = [first for first, _ in (*self._lines[each], *self._files.spans(each))]
        seen += [first for first, _ in self._waiting.get(each, ())]
        if (counts := self._counts.get(each)) is not None and counts.first:
            seen.append(counts.first)
        if seen:
            return min(seen)
        # Nothing is left of it: it began behind whoever was before it.
        last = self._until[each]
        return 1 + max((one for one in self._until.values() if one < last), default=0)

    def _present(self, each: str) -> Ranges:
        """Its lsns that are in the tables."""
        counts = self._counts.get(each)
        return Ranges() if counts is None else counts.seen(self._view.first, GREATEST)

    def _known(self, each: str) -> Ranges:
        """Its lsns that are anywhere."""
        files = Ranges.of(self._files.spans(each))
        return self._present(each) | files | self._waiting.get(each, Ranges())

    def _own(self, each: str) -> Ranges:
        """Likewise, or were."""
        return self._known(each) | Ranges.of(self._lines[each])

    def _asked(self) -> dict[str, Ranges]:
        """The lsns that each incarnation has to account for; "" has what is left."""
        found = {
            each: Ranges.of([(max(self._view.first, self._since(each)), last)])
            for each, last in self._until.items()
        }
        for each, span in list(found.items()):
            for mate in self._lives.mates(each, found):
                known = self._known(mate)
                if len(known & span) and not len(known & self._own(each)):
                    found[each] = found[each] - known
        all_of_it = Ranges.of([(self._view.first, self._last)])
        found[""] = all_of_it - Ranges.joined(found.values())
        return found

    # -- where they are -----------------------------------------------------------------

    def judge(self) -> Node:
        """Also adds problems to the report."""
        problems = self._report.problems
        problems += self._journal.problems
        asked = self._asked()
        missing = {each: self._missing(each, lsns) for each, lsns in asked.items()}
        runs = self._read(missing)
        lives = [
            self._life(each, lsns, missing[each], runs) for each, lsns in asked.items()
        ]
        if any(life.in_journal for life in lives) or self._lost_in_journal(lives):
            problems += self._view.unserved(self._name)
        named = [life for life in lives if life.incarnation and len(life.asked)]
        nobody = lives[-1]
        if not len(nobody.asked) and len(named) == 1:
            named[0].doubles = named[0].doubles | nobody.doubles
            nobody.doubles = Ranges()
        there = [life for life in lives if len(life.asked) or len(life.doubles)]
        there.sort(key=self._order)
        return Node(self._name, self._view.first, self._last, there)

    def _order(self, life: Life) -> tuple[int, bool, str]:
        """By first lsns, those that have ended first."""
        first, _ = next(iter(life.asked), (0, 0))
        lives = self._lives.line(life.incarnation) is not None
        return first, lives, life.incarnation

    def _lost_in_journal(self, lives: Iterable[Life]) -> bool:
        """Whether a hole is in the journal all the same."""
        journal = Ranges.joined(self._waiting.values())
        return any(len(life.holes & journal) for life in lives)

    def _missing(self, each: str, asked: Ranges) -> Ranges:
        """What of it is not in the tables."""
        if not each:
            for one in self._counts:
                if len(asked):
                    asked = asked - self._present(one)
            return asked
        own = self._present(each)
        missing = asked - own
        if len(missing) and "" in self._counts:
            missing = missing - self._before(each, own)
        return missing

    def _before(self, each: str, own: Ranges) -> Ranges:
        """Which of the rows of no known incarnation are of this one.

        All of them, as a rule: it was there when the tables got none.  But where a machine
        had been rebuilt, the job of then took what it gave again for what was there, and
        dropped it, up to where the one before had come.  The first events of files tell.
        """
        old = self._present("")
        begin = 1 + max((last for _, last in own & old), default=0)
        files = [
            file
            for file in self._files.of.get(each, ())
            if file.last >= begin and old.touches(file.first, file.last)
        ]
        dropped = bisect_left(files, True, key=lambda file: self._is_among(file, old))
        if dropped:
            begin = files[dropped - 1].last + 1
        return old & Ranges.of([(begin, GREATEST)])

    def _is_among(self, file: SpoolFile, old: Ranges) -> bool:
        """Whether a row of no known incarnation is the first event of *file* that could be,
        as far as can be told.
        """
        (lsn, _), *_ = old & Ranges.of([(file.first, file.last)])
        row, event = self._received("", lsn), self._view.received(file, lsn)
        return row is None or event is None or row == event

    def _read(self, missing: Mapping[str, Ranges]) -> dict[str, list[tuple[int, int]]]:
        """What is in the spool of it, by incarnation."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for file in self._files.spool:
            life = self._view.incarnation_of(file) or ""
            if any(
                lsns.touches(file.first, file.last)
                for each, lsns in missing.items()
                if not each or life in (each, "")
            ):
                found[life] += self._view.runs(
                    file, self._journal, self._report.problems
                )
        return found

    def _life(
        self,
        each: str,
        asked: Ranges,
        missing: Ranges,
        runs: Mapping[str, list[tuple[int, int]]],
    ) -> Life:
        there = [
            run for life in runs if not each or life in (each, "") for run in runs[life]
        ]
        lacking = missing - Ranges.of(there)
        journal = Ranges.joined(
            lsns
            for life, lsns in self._waiting.items()
            if not each or life in (each, "")
        )
        waiting = lacking & journal
        said = lacking & self._said(each)
        holes = lacking - waiting - said
        holes = holes | ((waiting & self._view.taken(self._journal, waiting)) - said)
        aside = holes & self._aside(each)
        nowhere = holes - aside
        accepted = nowhere & self._accepted(each)
        return Life(
            each,
            asked,
            in_lake=asked.events - missing.events,
            in_spool=missing.events - lacking.events,
            in_journal=lacking.events - holes.events,
            holes=nowhere - accepted,
            aside=aside,
            accepted=accepted,
            doubles=self._doubles(each, runs.get(each, [])),
        )

    def _said(self, each: str) -> Ranges:
        """What is in a journal that is not seen here, by its gateway's word."""
        found = Ranges()
        if (word := self._view.asked.words.get(self._name)) is not None:
            mine = word.incarnation or next(iter(self._reached), "")
            if not each or mine in ("", each):
                found = self._view.asked.waiting(self._name)
        reached = self._reached.get(each)
        homes = self._view.journals.homes(self._name)
        if (
            reached is not None
            and reached.ack != "spool"
            and not any(home.this and home.this.id == each for home in homes)
        ):
            counts = self._counts.get(each)
            ends = [last for _, last in self._files.spans(each)]
            ends += [counts.last] if counts is not None else []
            seen = max(ends, default=reached.since - 1)
            if word is None and seen < reached.lsn:
                self._report.worded = sorted({*self._report.worded, self._name})
            found = found | Ranges.of([(seen + 1, reached.lsn)])
        return found

    def _aside(self, each: str) -> Ranges:
        return Ranges.of(
            (hole.first, hole.last)
            for hole in self._view.ledgers.holes
            if hole.node == self._name and (not each or hole.incarnation in ("", each))
        )

    def _accepted(self, each: str) -> Ranges:
        return Ranges.of(
            (one.first, GREATEST if one.last is None else one.last)
            for one in self._view.ledgers.accepted
            if one.node == self._name and one.incarnation in ("", each)
        )

    def _doubles(self, each: str, runs: list[tuple[int, int]]) -> Ranges:
        """Of one incarnation; a file of which none is known may be anybody's."""
        mine, old = self._files.spans(each), self._files.spans("")
        twice = Ranges.twice(mine) | Ranges.twice(runs)
        if each:
            twice = twice | (Ranges.of(mine) & Ranges.of(old))
        last = self._until.get(each, self._last)
        found = twice & Ranges.of([(self._view.first, last)])
        if (counts := self._counts.get(each)) is not None:
            found = found | counts.doubled(self._view.first, last)
        return found

    # -- where they ended ---------------------------------------------------------------

    def unknown(self) -> list[Unknown]:
        """Incarnations that nobody vouches for."""
        # One that was heard of before it had acknowledged anything may have, behind that.
        last = {
            each: lsn
            for each, lsn in self._until.items()
            if lsn + 1 >= self._view.first
        }
        found = self._lives.unknown(self._name, last, self._later)
        return [replace(one, accepted=self._is_accepted(one)) for one in found]

    def _is_accepted(self, unknown: Unknown) -> bool:
        return any(
            one.has_end_of(self._name, unknown.incarnation, unknown.last)
            for one in self._view.ledgers.accepted
        )

    def _later(self, each: str) -> str | None:
        """Who gave lsns of this one again, after it."""
        own = self._present(each)
        for other in self._counts:
            if other in ("", each):
                continue
            for lsn, _ in own & self._present(other):
                mine, theirs = (self._received(who, lsn) for who in (each, other))
                if mine is None or theirs is None or mine < theirs:
                    return other
                break
        return None

    def _received(self, each: str, lsn: int) -> int | None:
        """When the event came, by its row."""
        for place in self._view.lake.files_with(self._name, each, lsn, lsn):
            if (at := received_at(place, self._name, each, lsn)) is not None:
                return at
        return None


def _meeting(files: Sequence[SpoolFile]) -> list[SpoolFile]:
    """Of files in order of lsn those that have an lsn which another one has, too."""
    found: list[SpoolFile] = []
    group: list[SpoolFile] = []
    reach = 0
    for file in files:
        if file.first > reach:
            found += group if len(group) > 1 else []
            group = []
        group.append(file)
        reach = max(reach, file.last)
    return [*found, *(group if len(group) > 1 else [])]
