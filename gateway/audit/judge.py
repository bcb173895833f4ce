"""The audit's judgement: what one look found of each node, against what it has to have.

Each incarnation has to account for its lsns from its first one on.  What lies before or
between them must be there as whosever.  Rows of before name no incarnation: they count for
each whose own rows do not meet them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gateway.audit.counts import GREATEST, Counts
from gateway.audit.incarnations import Unknown
from gateway.audit.lake import received_at
from gateway.audit.look import View
from gateway.audit.report import Life, Node, Report
from gateway.store.deleted import EXPIRED, lsns_of
from gateway.store.finder import SpoolFile
from gateway.store.lsns import Lsns


def judge(view: View) -> Report:
    """Every node that the look at *view* met."""
    report = Report(
        [],
        view.problems,
        accepted=[one for one in view.ledgers.accepted if one.node in view.files],
        told=view.lake.told,
        deletions=view.ledgers.deletions,
        asked=sorted(view.asked.words.keys() & view.files.keys()),
    )
    for name in view.files:
        node = _Judge(view, name, report)
        report.nodes.append(node.judge())
        report.unknown += node.unknown()
    return report


class _Judge:
    """One node, as one look found it."""

    def __init__(self, view: View, name: str, report: Report) -> None:
        self._view = view
        self._name = name
        self._lives = view.lives[name]
        self._files = view.files[name]
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
        self._deleted: dict[str, list[tuple[int, int]]] = defaultdict(list)
        """What was taken out of the tables on purpose, by incarnation."""
        for one in view.ledgers.deletions:
            for each, spans in one.events.get(name, {}).items():
                self._deleted[each] += spans
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
        for each, spans in (
            *self._lines.items(),
            *self._spans(),
            *self._deleted.items(),
        ):
            for _, last in spans:
                see(each, last)
        for each, lsns in self._waiting.items():
            see(each, lsns.last)
        for home in self._view.journals.homes(self._name):
            see(home.this.id if home.this is not None else "", home.last)
            for each, last in home.this.lost.items() if home.this is not None else ():
                see(each, last)
        for each, reached in self._reached.items():
            see(each, reached.lsn)
        for each, end in self._lives.ends.items():
            see(each, end.acknowledged)
        for record in self._lives.records.values():
            if record.continues:
                see(record.continues, record.first - 1)
        if (word := self._view.asked.words.get(self._name)) is not None:
            see(word.incarnation, word.durable)
        see("", self._view.journals.marked.get(self._name, 0))
        for each, last in self._view.consumed.ends(self._name):
            see(each, last)
        for file in (*self._files.spool, *self._files.archive):
            see("", file.last)
        until = self._view.until
        # Whoever has acknowledged nothing yet says what comes before its first lsn.
        begun = [
            last for each, last in found.items() if last >= self._lives.since(each)
        ]
        self._last = until.setdefault((self._name, None), max(begun))
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
        seen += [first for first, _ in self._deleted.get(each, ())]
        seen += [first for first, _ in self._view.consumed.spans(self._name, each)]
        if (counts := self._counts.get(each)) is not None and counts.first:
            seen.append(counts.first)
        if seen:
            return min(seen)
        # Nothing is left of it: it began behind whoever was before it.
        last = self._until[each]
        return 1 + max((one for one in self._until.values() if one < last), default=0)

    def _present(self, each: str) -> Lsns:
        """Its lsns that are in the tables."""
        counts = self._counts.get(each)
        return Lsns() if counts is None else counts.seen(self._view.first, GREATEST)

    def _known(self, each: str) -> Lsns:
        """Its lsns that are anywhere."""
        files = Lsns(self._files.spans(each))
        return self._present(each) | files | self._waiting.get(each, Lsns())

    def _own(self, each: str) -> Lsns:
        """Its lsns that are anywhere, or were: the catalog names them, or who has read them."""
        were = [*self._lines[each], *self._view.consumed.spans(self._name, each)]
        return self._known(each) | Lsns(were)

    def _asked(self) -> dict[str, Lsns]:
        """The lsns that each incarnation has to account for; "" has what is left."""
        found = {
            each: Lsns([(max(self._view.first, self._since(each)), last)])
            for each, last in self._until.items()
        }
        for each, span in list(found.items()):
            for mate in self._lives.mates(each, found):
                known = self._known(mate)
                if len(known & span) and not len(known & self._own(each)):
                    found[each] = found[each] - known
        all_of_it = Lsns([(self._view.first, self._last)])
        found[""] = all_of_it - Lsns.joined(found.values())
        return found

    # -- where they are -----------------------------------------------------------------

    def judge(self) -> Node:
        """What was found of it; problems are added to the report."""
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
            nobody.doubles = Lsns()
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
        journal = Lsns.joined(self._waiting.values())
        return any(len(life.holes & journal) for life in lives)

    def _missing(self, each: str, asked: Lsns) -> Lsns:
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

    def _before(self, each: str, own: Lsns) -> Lsns:
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
        return old & Lsns([(begin, GREATEST)])

    def _is_among(self, file: SpoolFile, old: Lsns) -> bool:
        """Whether a row of no known incarnation is the first event of *file* that could be,
        as far as can be told.
        """
        (lsn, _), *_ = old & Lsns([(file.first, file.last)])
        row, event = self._received("", lsn), self._view.received(file, lsn)
        return row is None or event is None or row == event

    def _read(self, missing: Mapping[str, Lsns]) -> dict[str, list[tuple[int, int]]]:
        """What is in the spool of it, by incarnation."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        seen: set[tuple[str, str]] = set()  # one that moves may be met twice
        for file in self._files.spool:
            life = file.incarnation
            if (life, file.path.name) in seen:
                continue
            seen.add((life, file.path.name))
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
        asked: Lsns,
        missing: Lsns,
        runs: Mapping[str, list[tuple[int, int]]],
    ) -> Life:
        there = [
            run for life in runs if not each or life in (each, "") for run in runs[life]
        ]
        lacking = missing - Lsns(there)
        journal = Lsns.joined(
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
        read = nowhere & self._view.consumed.read(self._name, each)
        nowhere = nowhere - read
        expired = nowhere & (self._gone(each, expired=True) | self._left(each))
        nowhere = nowhere - expired
        deleted = nowhere & self._gone(each, expired=False)
        nowhere = nowhere - deleted
        accepted = nowhere & self._accepted(each)
        return Life(
            each,
            asked,
            in_lake=asked.size - missing.size,
            in_spool=missing.size - lacking.size,
            in_journal=lacking.size - holes.size,
            holes=nowhere - accepted,
            aside=aside,
            expired=expired,
            deleted=deleted,
            read=read,
            accepted=accepted,
            doubles=self._doubles(each, runs.get(each, [])),
        )

    def _said(self, each: str) -> Lsns:
        """What is in a journal that is not seen here, by its gateway's word."""
        found = Lsns()
        if (word := self._view.asked.words.get(self._name)) is not None:
            mine = word.incarnation or next(iter(self._reached), "")
            if not each or mine in ("", each):
                found = self._view.asked.waiting(self._name)
        reached = self._reached.get(each)
        homes = self._view.journals.homes(self._name)
        if (
            reached is not None
            and not reached.all_told
            and not any(home.line and each in home.line for home in homes)
            and self._lives.has_directory(each)
        ):
            counts = self._counts.get(each)
            ends = [last for _, last in self._files.spans(each)]
            ends += [counts.last] if counts is not None else []
            line = self._lives.line(each)
            holder = None if line is None else self._reached.get(line.id)
            ends += [holder.published] if holder is not None else []
            seen = max(ends, default=reached.since - 1)
            if word is None and seen < reached.lsn:
                self._report.worded = sorted({*self._report.worded, self._name})
            found = found | Lsns([(seen + 1, reached.lsn)])
        return found

    def _aside(self, each: str) -> Lsns:
        return Lsns(
            (hole.first, hole.last)
            for hole in self._view.ledgers.holes
            if hole.node == self._name and (not each or hole.incarnation in ("", each))
        )

    def _accepted(self, each: str) -> Lsns:
        return Lsns(
            (one.first, GREATEST if one.last is None else one.last)
            for one in self._view.ledgers.accepted
            if one.node == self._name and one.incarnation in ("", each)
        )

    def _gone(self, each: str, *, expired: bool) -> Lsns:
        """What is in no table on purpose: because its day was over for so long, or because
        somebody asked for it.
        """
        found = [
            one
            for one in self._view.ledgers.deletions
            if (one.kind == EXPIRED) is expired
        ]
        return lsns_of(found, self._name, each or None)

    def _left(self, each: str) -> Lsns:
        """What of it has left an archive of which no job made tables, and is behind all that
        is in some.
        """
        lives = (one for one in self._counts if not each or one in ("", each))
        last = max((self._counts[one].last for one in lives), default=0)
        left = self._view.consumed.left(self._name, each)
        return left & Lsns([(last + 1, GREATEST)])

    def _doubles(self, each: str, runs: list[tuple[int, int]]) -> Lsns:
        """Of one incarnation; a file of which none is known may be anybody's."""
        mine, old = self._files.spans(each), self._files.spans("")
        twice = Lsns.twice(mine) | Lsns.twice(runs)
        if each:
            twice = twice | (Lsns(mine) & Lsns(old))
        last = self._until.get(each, self._last)
        found = twice & Lsns([(self._view.first, last)])
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
