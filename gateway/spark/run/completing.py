"""Looks how far the job's tables are complete, and has days said to be (`complete`).

with a bucket     the words of incarnations there
with a directory  the marks of gateways whose `data_dir` this is, and words to a hub
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define, field

from gateway.spark.commit.ledger import Ledger
from gateway.spark.commit.sink import Sink
from gateway.store.directories import Directories
from gateway.store.lsns import Lsns
from gateway.store.names import Life, SpoolFile
from gateway.store.node import catalog, mark
from gateway.store.node.holes import holes_in
from gateway.store.node.incarnation import Incarnation
from gateway.store.node.lives import Heard, Lives
from gateway.store.node.through import EVERY_SECONDS
from gateway.store.objects import node_record
from gateway.store.objects.node_record import NodeRecord
from gateway.store.readers import complete
from gateway.store.readers.complete import Found, Holder
from gateway.store.system.statefile import look

_log = logging.getLogger("gateway.spark")

_MOST_TOLD = 20

Words = Callable[[], tuple[float, Sequence[node_record.Heard]]]
"""When words were listed, 0 if they were not yet, and these."""


@define(eq=False, slots=False)
class Completing:
    """One job's; *heard* gives the words in its bucket, None where its spool is a directory."""

    _directories: Directories
    _sink: Sink
    _heard: Words | None
    _waiting: Callable[[], Iterable[SpoolFile]]
    """Gives the files that are there, and not in the tables yet; those that are may be among them."""
    _silent_after: float
    _clock: Callable[[], float] = time.time
    _monotonic: Callable[[], float] = time.monotonic
    _looked: float = field(default=-EVERY_SECONDS, init=False)
    _held: str = field(default="", init=False)
    _unknown_since: float | None = field(default=None, kw_only=True)
    """The moment from which on it is not known how far they are complete, also over restarts."""

    def look(self, *, now: bool = False) -> dict[str, Any] | None:
        """Words for the job's health, every ten seconds, or *now*; None: it is not time.

        Raises OSError.
        """
        if not now and self._monotonic() - self._looked < EVERY_SECONDS:
            return None
        if (found := self._found(self._sink.ledger)) is not None:
            self._sink.through = found.completeness
            for day in self._sink.say_complete():
                _log.info("%s is complete", complete.spelled(day))
            self._looked = self._monotonic()
        known = self._sink.ledger.complete.now(self._sink.through)
        others = {one.job: one.complete for one in self._sink.others}
        moments = [known.through, *(one.through for one in others.values())]
        through = None if None in moments else min(filter(None, moments))
        day = min(one.days.last for one in (known, *others.values()))
        if through is not None:
            self._unknown_since = None
        elif self._unknown_since is None:
            self._unknown_since = self._clock()
        holders = [] if found is None else [*found.holders]
        holders += complete.held_by_jobs(others, int(self._clock() * 1e6))
        self._tell(holders)
        return {
            "complete_through": None if through is None else through / 1e6,
            "complete_unknown_since": self._unknown_since,
            "complete_day": complete.spelled(day) if day else None,
            "days_taken_back": sum(known.taken_back.values()),
            "held_by": [one._asdict() for one in holders[:_MOST_TOLD]],
            "clocks_off": {} if found is None else dict(found.clocks),
        }

    def _tell(self, holders: Sequence[Holder]) -> None:
        """Log who holds most, once."""
        first = next(iter(holders), None)
        held = "" if first is None else f"{first.node} {first.why}"
        if held and held != self._held:
            _log.warning("the tables are not complete any further: %s", held)
        self._held = held

    def _found(self, ledger: Ledger) -> Found | None:
        listed = self._clock()
        heard: dict[str, list[Heard]] = {}
        here: dict[str, Incarnation] = {}
        if self._heard is not None:
            listed, words = self._heard()
        else:
            words = [*self._words_here(here)]
        if not listed:
            return None
        unread: dict[str, str] = {}
        for one in words:
            if one.record is None:
                unread[one.node] = one.why
            else:
                lately = abs(listed - one.modified) <= self._silent_after
                mine = heard.setdefault(one.node, [])
                mine.append(Heard(one.record, one.modified, lately))
        before = ledger.complete.now(self._sink.through)
        # A bucket may have forgotten words: what was known of one counts until it has ended.
        lives_known = {
            *(life for life, _ in ledger.committed.open()),
            *ledger.ends,
            *before.of_lives,
        }
        known = {
            node: (Lives(node, heard.get(node, ())), heard.get(node, ()))
            for node in {*heard, *here, *(life.node for life in lives_known)}
        }
        for life in lives_known:
            known[life.node][0].of(life.incarnation)
        for life, record in ledger.records.items():
            if life.node in known:
                known[life.node][0].records({life.incarnation: record})
        for life, end in ledger.ends.items():
            known[life.node][0].ends({life.incarnation: end})
        for node, (lives, words_of) in known.items():
            if node in here:
                lives.journal(here[node])
            lives.node_records(words_of)
            lives.settle()
        aside: dict[Life, Lsns] = {}
        for hole in ledger.holes:
            aside.setdefault(hole.of.life, Lsns()).add(hole.first, hole.last)
        waiting: dict[Life, Lsns] = {}
        for file in self._waiting():
            if not ledger.committed.covers(file):
                waiting.setdefault(file.life, Lsns()).add(file.first, file.last)
        of_life, accepted = ledger.committed.of_life, ledger.accepted
        job = complete.Job(of_life, waiting, aside, accepted, before)
        # One that has begun since may have events, and no word.
        return complete.look(known, job, unread, int(listed * 1e6))

    def _words_here(self, here: dict[str, Incarnation]) -> Iterator[node_record.Heard]:
        """The marks that lie here, as words, and words of edges; *here* gets the incarnation of
        each node whose journal is here.
        """
        for path in sorted(self._directories.journal.glob("*")):
            try:
                lines = catalog.look(path)
                if (this := lines.newest(Incarnation)) is not None:
                    here[path.name] = this
                    yield from self._marked(path.name, this, holes_in(lines))
            except (OSError, ValueError) as why:  # a newer version's, or another user's
                yield node_record.Heard(path.name, None, str(why), 0.0)
        yield from node_record.at_hub(self._directories.arrivals)

    def _marked(
        self, node: str, this: Incarnation, holes: Mapping[str, Lsns]
    ) -> Iterator[node_record.Heard]:
        """The word that the mark of a node here has, if it is of its journal."""
        path = self._directories.state_of(node) / mark.NAME
        said = look(path, mark.Mark)
        if said is None or said.incarnation not in (this.id, *this.earlier):
            return
        own = said.incarnation == this.id
        at = path.stat().st_mtime
        record = NodeRecord(
            said.incarnation,
            this.since if own else this.began[said.incarnation],
            said.durable,
            at,
            "journal",
            earlier=this.whole if own else (),
            begins=tuple(this.began[one] for one in this.whole) if own else (),
            through=said.through,
            holes=node_record.newest(holes),
        )
        yield node_record.Heard(node, record, "", at)
