"""The audit's judgement: what one look found of each node, against what it has to have.

Each incarnation has to account for its lsns, from the first one that it gave to the last one
that any file, record or other node tells of.  `_PLACES` lists where an lsn may be that is in
no table, with a reason for each place; the first that has it counts.  An lsn that is in none
of them is a hole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gateway.audit.counts import GREATEST, Counts
from gateway.audit.lake import Problem
from gateway.audit.look import View
from gateway.audit.report import TABLES, Fork, Life, Node, Report
from gateway.store.lsns import Lsns
from gateway.store.node.lives import Reason, Unknown
from gateway.store.readers.deleted import EXPIRED, lsns_of


def judge(view: View) -> Report:
    """Every node that the look at *view* met."""
    report = Report(
        [],
        view.problems,
        accepted=[one for one in view.ledgers.accepted if one.node in view.files],
        told=view.lake.told,
        deletions=view.ledgers.deletions,
        asked=sorted(view.asked.answers.keys() & view.files.keys()),
    )
    for name in view.files:
        node = _Judge(view, name)
        found = node.judge(report.problems)
        report.nodes.append(found)
        report.unknown += node.unknown()
        report.quiet += view.lives[name].quiet(node.last)
        forks = view.lives[name].forks()
        report.forks += [Fork(name, each, several) for each, several in forks]
        if any(life.has("word") for life in found.lives):
            report.worded.append(name)
    return report


class _Judge:
    """One node, as one look found it.

    26 methods: ten of them are the places in which an lsn may be (`_PLACES`).
    """

    def __init__(self, view: View, name: str) -> None:
        self._view = view
        self._name = name
        self._lives = view.lives[name]
        self._files = view.files[name]
        self._counts: Mapping[str, Counts] = view.lake.nodes.get(name, {})
        self._journal = view.journals.content(name)
        self._lines: dict[str, Lsns] = defaultdict(Lsns)
        """The lsns in the catalog's lines, holes among them, by incarnation."""
        for entry in self._journal.published:
            self._lines[entry.incarnation].add(entry.first, entry.last)
        for each, lsns in self._journal.holes.items():
            self._lines[each].update(lsns)
        self._deleted: dict[str, Lsns] = defaultdict(Lsns)
        """The lsns taken out of the tables on purpose, by incarnation."""
        for one in view.ledgers.deletions:
            for each, spans in one.events.get(name, {}).items():
                self._deleted[each].update(Lsns(spans))
        self._runs: Mapping[str, list[tuple[int, int]]] = {}
        self._twice: dict[str, Lsns] = defaultdict(Lsns)
        """The lsns that are twice in one file, by incarnation."""
        self._begins: dict[str, int] = {}
        """The first lsn of each incarnation that any place knows."""
        self._until: dict[str, int] = {}
        """The last acknowledged lsn of each, at the first look."""
        for each, first, last in self._seen():
            self._begins[each] = min(first, self._begins.get(each, first))
            self._until[each] = max(last, self._until.get(each, 0))
        for each, last in self._until.items():
            self._until[each] = view.until.setdefault((name, each), last)

    # -- whose lsns are asked for -------------------------------------------------------

    def _seen(self) -> Iterator[tuple[str, int, int]]:
        """Incarnations, and the first and last lsn of each that any place knows."""
        view, name = self._view, self._name
        for each, counts in self._counts.items():
            yield each, counts.first, counts.last
        spans: list[tuple[str, Iterable[tuple[int, int]]]] = [
            (each, self._files.spans(each)) for each in self._files.of
        ]
        taken = view.ledgers.committed.get(name, {})
        for some in (self._lines, self._deleted, self._journal.events, taken):
            spans += some.items()
        spans += view.consumed.of(name)
        spans += [
            (hole.incarnation, [(hole.first, hole.last)])
            for hole in view.ledgers.holes
            if hole.node == name and hole.incarnation
        ]
        for each, lsns in spans:
            for first, last in lsns:
                yield each, first, last
        ends = [
            *view.journals.marked.get(name, ()),
            *view.node_records.arrived.get(name, {}).items(),
        ]
        if (asked := view.asked.answers.get(name)) is not None:
            ends.append((asked.incarnation, asked.durable))
        for each, known in self._lives.by.items():
            if known.said or known.heard or known.here:
                ends.append((each, known.said))
        for each, last in self._lives.gave.items():
            if self._lives.of(each).ack != "spool":  # else it need not be acknowledged
                ends.append((each, last))
        for each, last in ends:
            yield each, last + 1, last

    def _since(self, each: str) -> int:
        """The first lsn that an incarnation has to account for."""
        if since := self._lives.of(each).since:
            return since
        # Nobody says: it began behind who was before it in its directory, if that is known,
        # or else behind whom nobody goes on from.
        before, last = self._lives.of(each).before, self._until[each]
        while before and before not in self._until:
            before = self._lives.of(before).before
        others = (
            until
            for other, until in self._until.items()
            if until < last
            and (other == before or not (before or self._lives.follows(other)))
        )
        return min(self._begins[each], 1 + max(others, default=0))

    def _asked(self) -> dict[str, Lsns]:
        """The lsns that each incarnation has to account for.

        Lsns before the first one of a directory that is known were given there: that one has to
        account for them.
        """
        begin = self._view.first
        found = {
            each: Lsns([(max(begin, self._since(each)), last)])
            for each, last in self._until.items()
        }
        taken = self._view.ledgers.committed.get(self._name, {})
        for each, lsns in found.items():
            if self._lives.of(each).derived:  # it has what differs, and no other lsns
                there = self._present(each) | Lsns(self._files.spans(each))
                found[each] = lsns & (there | taken.get(each, Lsns()))
        everything = Lsns.joined(found.values())
        nobodys = Lsns([(begin, everything.last)]) - everything
        by_first = {first: each for each in found for first, _ in found[each]}
        for first, last in nobodys:
            each = by_first[last + 1]
            found[each] = found[each] | Lsns([(first, last)])
        return found

    # -- where they are -----------------------------------------------------------------

    def judge(self, problems: list[Problem]) -> Node:
        """The findings about it; what is wrong with its files is added to *problems*."""
        problems += self._journal.problems
        asked = self._asked()
        missing = {each: lsns - self._present(each) for each, lsns in asked.items()}
        self._runs = self._read(missing, problems)
        lives = [self._life(each, asked[each], missing[each]) for each in asked]
        lives = [life for life in lives if len(life.asked) or len(life.doubles)]
        lives.sort(key=self._order)
        if any(map(self._waits, lives)):
            problems += self._view.unserved(self._name)
        last = max(self._until.values(), default=0)
        return Node(self._name, self._view.first, last, lives)

    def _order(self, life: Life) -> tuple[int, bool, str]:
        """A sort key: by first lsns, those that have ended first."""
        first, _ = next(iter(life.asked), (0, 0))
        known = self._lives.of(life.incarnation)
        return first, known.here or known.lately, life.incarnation

    def _waits(self, life: Life) -> bool:
        """Whether something of it is in the journal alone, or was there."""
        there = self._journal.events.get(life.incarnation, Lsns())
        return bool(life.in_journal) or len(life.holes & there) > 0

    def _present(self, each: str) -> Lsns:
        """The lsns that are in the tables."""
        counts = self._counts.get(each)
        return Lsns() if counts is None else counts.seen(self._view.first, GREATEST)

    def _read(
        self, missing: Mapping[str, Lsns], problems: list[Problem]
    ) -> Mapping[str, list[tuple[int, int]]]:
        """The ranges that really are in files of the spool that should have what no table has."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        files = {file.path.name: file for file in reversed(self._files.spool)}
        for file in files.values():  # one that moves may be met twice
            if missing[file.incarnation].touches(file.first, file.last):
                runs = self._view.runs(file, self._journal, problems)
                found[file.incarnation] += runs
                self._twice[file.incarnation].update(Lsns.twice(runs))
        return found

    def _life(self, each: str, asked: Lsns, missing: Lsns) -> Life:
        places, left = {TABLES: asked - missing}, missing
        for place, has in _PLACES:
            if len(left):
                places[place] = left & has(self, each, left)
                left = left - places[place]
        return Life(each, asked, places, left, self._doubles(each))

    def in_spool(self, each: str, left: Lsns) -> Lsns:
        return Lsns(self._runs.get(each, ()))

    def in_journal(self, each: str, left: Lsns) -> Lsns:
        """But for what was published, and is not published again."""
        waiting = left & self._journal.events.get(each, Lsns())
        published = (
            entry for entry in self._journal.published if entry.incarnation == each
        )
        return waiting - self._view.taken(published, waiting)

    def told_by_gateway(self, each: str, left: Lsns) -> Lsns:
        """The lsns in a journal that is not seen here, by its gateway's word."""
        said = self._view.asked.answers.get(self._name)
        if said is None or each not in (said.incarnation, *said.earlier):
            return Lsns()
        unnamed = Lsns([(1, self._lives.of(said.incarnation).unnamed)])
        waiting = self._view.asked.waiting(self._name) - unnamed
        return waiting - self._lives.holes_of(each)

    def told_by_word(self, each: str, left: Lsns) -> Lsns:
        """The lsns in a journal that is not seen here, by a recent word in a bucket, or
        to a hub.
        """
        there = Reason.HEARD, Reason.CONTINUED
        holder = self._lives.has_directory(each)
        if (
            holder is None
            or self._lives.of(each).all_told
            or self._reason(each) not in there
        ):
            return Lsns()
        return self._acknowledged(each, max(holder.published, holder.unnamed))

    def _reason(self, each: str) -> Reason:
        """Why its end is vouched for, or not."""
        return self._lives.reason(each, self._until.get(each, 0))

    def _acknowledged(self, each: str, published: int) -> Lsns:
        """The lsns that it has said to have acknowledged behind all that is seen of it, but for
        holes.
        """
        known, counts = self._lives.of(each), self._counts.get(each)
        ends = [last for _, last in self._files.spans(each)]
        ends += [counts.last] if counts is not None else []
        seen = max(published, *ends, known.since - 1)
        return Lsns([(seen + 1, known.said)]) - self._lives.holes_of(each)

    def aside(self, each: str, left: Lsns) -> Lsns:
        return Lsns(
            (hole.first, hole.last)
            for hole in self._view.ledgers.holes
            if hole.node == self._name and hole.incarnation == each
        )

    def consumed(self, each: str, left: Lsns) -> Lsns:
        return self._view.consumed.read(self._name, each)

    def expired(self, each: str, left: Lsns) -> Lsns:
        """The lsns whose day was over for so long, or that have left an archive.

        The latter where no job made tables of it, and only behind all that is in some.
        """
        counts, lives = self._counts.get(each), self._lives
        behind = Lsns([((counts.last if counts else 0) + 1, GREATEST)])
        gone = self._view.consumed.left(self._name)
        # One that has a line again may have had one before, which is in those behind it.
        its = {each, *lives.of_its_directory(each, gone)} & gone.keys()
        left = Lsns.joined(gone[one] for one in its)
        return self._gone(each, expired=True) | (left & behind)

    def deleted_on_purpose(self, each: str, left: Lsns) -> Lsns:
        return self._gone(each, expired=False)

    def _gone(self, each: str, *, expired: bool) -> Lsns:
        deletions = self._view.ledgers.deletions
        found = [one for one in deletions if (one.kind == EXPIRED) is expired]
        return lsns_of(found, self._name, each)

    def accepted(self, each: str, left: Lsns) -> Lsns:
        return Lsns(
            (one.first, GREATEST if one.last is None else one.last)
            for one in self._view.ledgers.accepted
            if one.node == self._name and one.incarnation in ("", each)
        )

    def not_verified(self, each: str, left: Lsns) -> Lsns:
        """The lsns for which there is only an old word: its own, or that of who went on."""
        heads = [
            one
            for one in self._lives.of(each).heads or {each}
            if self._reason(one) is Reason.SILENT
        ]
        if not heads or self._lives.of(each).all_told:
            return Lsns()
        published = max(self._lives.of(one).published for one in heads)
        return self._acknowledged(each, published)

    def _doubles(self, each: str) -> Lsns:
        twice, last = self._twice[each], self._until[each]
        # A job of ours compares files that meet: copies of a directory cut their past anew.
        if self._view.keeps:
            twice = twice | Lsns.twice(self._files.spans(each))
        found = twice & Lsns([(self._view.first, last)])
        if (counts := self._counts.get(each)) is not None:
            found = found | counts.doubled(self._view.first, last)
        return found

    # -- where they ended ---------------------------------------------------------------

    @property
    def last(self) -> Mapping[str, int]:
        """The last lsn of each that is asked for."""
        # One that was heard of before it had acknowledged anything may have, behind that.
        return {
            each: lsn
            for each, lsn in self._until.items()
            if lsn + 1 >= self._view.first
        }

    def unknown(self) -> Iterator[Unknown]:
        """Incarnations whose end is not vouched for."""
        for one in self._lives.unknown(self.last):
            accepted = any(
                each.has_end_of(self._name, one.incarnation, one.last)
                for each in self._view.ledgers.accepted
            )
            yield replace(one, accepted=accepted)


_PLACES: Sequence[tuple[str, Callable[[_Judge, str, Lsns], Lsns]]] = (
    ("spool", _Judge.in_spool),
    ("journal", _Judge.in_journal),
    ("gateway", _Judge.told_by_gateway),
    ("word", _Judge.told_by_word),
    # In files that the Spark job could not read; it has written them down.
    ("aside", _Judge.aside),
    # In no archive and no bucket any more, and consumers have them.
    ("read", _Judge.consumed),
    ("expired", _Judge.expired),
    ("deleted", _Judge.deleted_on_purpose),
    ("accepted", _Judge.accepted),
    ("unverified", _Judge.not_verified),
)
"""Where what is in no table may be, or why it need not be, in this order."""
