"""One look of the audit at all places: journals, spools, tables, archives, buckets.

They are read in the order in which events move, so that an event on its way is met at
least once (`gateway.audit.proof` says why that suffices).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from gateway.audit.consumed import Consumed
from gateway.audit.files import JournalContent, runs_in
from gateway.audit.lake import Problem, Unusable
from gateway.audit.sites import (
    Ask,
    Asked,
    Journals,
    Lakes,
    Ledgers,
    NodeRecords,
    Site,
    Spools,
    joined,
    lives_of,
)
from gateway.store.finder import SpoolFile, spool_files
from gateway.store.lsns import Lsns
from gateway.store.spool.mending import Entry
from gateway.store.system.lock import is_locked


class Files:
    """A node's files in spool and archive."""

    def __init__(self, spool: list[SpoolFile], archive: list[SpoolFile]) -> None:
        self.spool = spool
        """The files that wait for a job; without one, those in the archive."""
        self.archive = archive
        self.of: dict[str, list[SpoolFile]] = {}
        """All of them, by incarnation; each name once."""
        by_name = {file.path.name: file for file in (*archive, *spool)}
        for file in sorted(by_name.values(), key=lambda file: (file.first, file.last)):
            self.of.setdefault(file.incarnation, []).append(file)

    def spans(self, incarnation: str) -> list[tuple[int, int]]:
        """The lsns of one's files."""
        return [(file.first, file.last) for file in self.of.get(incarnation, ())]


class View:
    """All places of all nodes, as the last look found them.

    17 attributes: a place each, and what the last look made of all.
    """

    def __init__(
        self,
        sites: Sequence[Site],
        node: str | None,
        first: int,
        gateways: Iterable[tuple[str, Ask]],
        silent_after: float,
    ) -> None:
        self._sites = sites
        self._node = node
        self._gateways = list(gateways)
        self.first = first
        self.keeps = any(site.keeps for site in sites)
        """Whether files are for others than a job of ours."""
        self._spools = Spools(sites)
        self.lake = Lakes(sites, node=node, first=first)
        buckets = [*self._spools.stores.values()]
        self.node_records = NodeRecords(sites, buckets, node, silent_after)
        self._runs: dict[SpoolFile, list[tuple[int, int]]] = {}
        self.until: dict[tuple[str, str], int] = {}
        """The last lsn of each incarnation of a node, at the first look."""

    def look(self) -> None:
        """Go through all places, in the order in which events move."""
        # First of all, so that what they speak of can be found in a place read later.
        self.asked = Asked(self._gateways, self._spools.stores)
        self.node_records.look()
        self.journals = Journals(self._sites)
        spool = self._spools.list()
        self.lake.look()
        self.ledgers = Ledgers(self._sites)
        archive = joined(*(spool_files(one.directories.archive) for one in self._sites))
        # Files that no job takes stay there.
        kept = joined(
            *(
                spool_files(site.directories.archive)
                for site in self._sites
                if site.keeps and site.bucket is None
            )
        )
        self.consumed = Consumed(self._sites)
        seen = spool.keys() | self.lake.nodes.keys() | archive.keys()
        places = (self.asked, self.node_records, self.lake, self.ledgers, self.consumed)
        self.problems = [
            *(problem for place in places for problem in place.problems),
            *self._forwarded_elsewhere(),
            *self.asked.apart(seen),
            *self.node_records.left,
        ]
        names = seen | self.journals.nodes | self.asked.answers.keys()
        names |= self.journals.marked.keys() | {node for node, _ in self.until}
        names |= self.node_records.heard.keys() | self.node_records.arrived.keys()
        names |= self.ledgers.ends.keys() | self.ledgers.committed.keys()
        names |= self.consumed.nodes
        names |= {node for one in self.ledgers.deletions for node in one.events}
        names |= {hole.node for hole in self.ledgers.holes}
        if self._node is not None:
            names &= {self._node}
        self.lives = {
            name: lives_of(
                name, self.journals, self.node_records, self.ledgers, self.asked
            )
            for name in sorted(names)
        }
        self.files = {
            name: Files(
                [*spool.get(name, []), *kept.get(name, [])], archive.get(name, [])
            )
            for name in self.lives
        }

    def _forwarded_elsewhere(self) -> Iterator[Problem]:
        """Problems of files that an edge has at a hub which is not looked at."""
        seen = {site.served for site in self._sites} | self.journals.nodes
        seen |= {node for node, answer in self.asked.answers.items() if answer.forwards}
        for node, answer in self.asked.answers.items():
            if answer.hub and answer.hub not in seen:
                yield Problem(
                    node,
                    f"its files go to {answer.hub} now, which is not looked at here",
                )

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

    def taken(self, published: Iterable[Entry], waiting: Lsns) -> Lsns:
        """The lsns of *waiting* that were published, and will not be again.

        Their segment may stay for what else is in it (`gateway.store.checkpoint`).
        """
        return Lsns(
            (entry.first, entry.last)
            for entry in published
            if waiting.touches(entry.first, entry.last)
            and not any(
                (site.directories.spool / entry.hidden).exists() for site in self._sites
            )
        )

    def runs(
        self, file: SpoolFile, journal: JournalContent, problems: list[Problem]
    ) -> list[tuple[int, int]]:
        """The ranges that really are in a file that should have what no table has.

        It is read whole: there is no other copy of these events.
        """
        if file in self._runs:
            return self._runs[file]
        name = file.path.name
        entry = next((one for one in journal.published if one.name == name), None)
        try:
            with self._spools.local(file) as there:
                self._runs[file] = runs_in(there, entry)
        except FileNotFoundError:
            # It was public when we listed it, and has gone to the tables since.
            return [(file.first, file.last)]
        except Unusable as why:
            problems.append(Problem(str(file.path), str(why)))
            return []
        return self._runs[file]

    def archived(self, name: str) -> list[SpoolFile]:
        """A node's files in the archives of buckets, which are listed for what is missing alone."""
        return self._in_buckets.get(name, [])

    @cached_property
    def _in_buckets(self) -> dict[str, list[SpoolFile]]:
        return self._spools.archives()
