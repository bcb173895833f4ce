"""Sites of one audit: directories, buckets and tables, and gateways that it asks.

Many gateways may write for one job, each on a disk of its own.  Events in a table are found
below the job's directory, those that wait in a bucket below its address.  Those only in a
journal are found below the directory of its gateway, or by that gateway's answer.
"""

from __future__ import annotations

import time
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from gateway.audit.bucket import BucketFiles
from gateway.audit.counts import Counts
from gateway.audit.files import JournalContent, read_journal
from gateway.audit.lake import Lake, Problem
from gateway.audit.remote import Access, Place
from gateway.audit.sinks import lake_of
from gateway.store.directories import Directories
from gateway.store.finder import SpoolFile, spool_files
from gateway.store.hub import arrivals
from gateway.store.lsns import Lsns, spelled
from gateway.store.node import mark
from gateway.store.node.incarnation import Record
from gateway.store.node.lives import Heard, Lives
from gateway.store.objects import node_record
from gateway.store.objects.bucket import Bucket
from gateway.store.readers.deleted import Deletion, deletions
from gateway.store.readers.lake import (
    Accepted,
    End,
    KnownHole,
    accepted,
    committed,
    ends,
    known_holes,
    records,
)
from gateway.store.system.statefile import of_nodes


@dataclass(frozen=True, slots=True)
class Site:
    """A data directory, and what its configuration says."""

    directories: Directories
    served: str | None = None
    """The node of the configuration.

    Events in the journal of another one wait in vain, unless a daemon has it locked."""
    bucket: Bucket | None = None
    """Where files of the spool go, if it has one."""
    access: Access | None = None
    """How to reach tables in object storage."""
    keeps: bool = False
    """No job of ours takes files (`spool.after: keep`): they stay in the archive, or in the
    bucket."""
    forwards: bool = False
    """Files go to a hub."""


def site_of(place: Site | Directories) -> Site:
    """The place; directories alone are one without a configuration."""
    return place if isinstance(place, Site) else Site(place)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a running gateway about itself."""

    node: str
    durable: int
    """The last lsn that is acknowledged, or may be."""
    published: int
    """The lsn up to which all is in files that the job can read."""
    bucket: str | None
    """Where those go; None: a directory of its machine."""
    incarnation: str
    """The incarnation that gives its lsns."""
    since: int = 1
    """The lsn from which on it gives them."""
    earlier: tuple[str, ...] = ()
    """The incarnations before it in its directory, as far as it vouches for them."""
    forwards: bool = False
    """Whether files go to a hub, whose directories are looked at; published is what is there."""
    hub: str = ""
    """The node of that hub; "" if it does not say."""
    relays: Mapping[str, int] = field(default_factory=dict)
    """Others whose files go over there from it: up to which lsn they are there."""


Ask = Callable[[], Answer]
"""Asks one gateway.  Raises OSError."""


class Asked:
    """Gateways whose journals can not be read from here, by name."""

    def __init__(
        self, gateways: Iterable[tuple[str, Ask]], urls: Collection[str]
    ) -> None:
        """Ask all of them: addresses, and how; *urls* of the buckets that are looked at."""
        self._urls = urls
        self.answers: dict[str, Answer] = {}
        """Words by node."""
        self.problems: list[Problem] = []
        self._apart: dict[str, Problem] = {}
        for address, ask in gateways:
            try:
                self._hear(address, ask())
            except OSError as error:
                why = f"the gateway can not be asked: {error}"
                self.problems.append(Problem(address, why))

    def _hear(self, address: str, answer: Answer) -> None:
        node, where = answer.node, answer.bucket or "a directory of its machine"
        why = f"node {node} puts its files into {where}, which is not seen here"
        if not answer.forwards and answer.bucket not in self._urls:
            if answer.bucket is not None:
                self.problems.append(Problem(address, why))
                return
            self._apart[node] = Problem(address, why)  # which may be shared
        if node in self.answers:
            why = f"node {node} answers here and at another address"
            self.problems.append(Problem(address, why))
        self.answers[node] = answer

    def apart(self, seen: Collection[str]) -> Iterator[Problem]:
        """The problems of gateways whose files go to none of the directories looked at.

        A node that is *seen* there has none.
        """
        for node, problem in self._apart.items():
            if self.answers[node].published and node not in seen:
                yield problem

    def waiting(self, node: str) -> Lsns:
        """The lsns that are in its journal alone, it says."""
        answer = self.answers.get(node)
        return Lsns([(self._arrived(answer) + 1, answer.durable)] if answer else [])

    def _arrived(self, answer: Answer) -> int:
        """The last lsn that has arrived: what it has handed on may wait on the way."""
        way = (one.relays.get(answer.node) for one in self.answers.values())
        return min([answer.published, *(last for last in way if last is not None)])


class NodeRecords:
    """The node records of incarnations about themselves, in buckets and at hubs."""

    def __init__(
        self,
        sites: Sequence[Site],
        buckets: Sequence[Bucket],
        node: str | None,
        silent_after: float,
    ) -> None:
        self._sites, self._buckets = sites, buckets
        self._node, self._silent_after = node, silent_after
        self._read: dict[tuple[str, str], node_record.Heard] = {}
        """Node records in buckets, by where they are."""
        self.heard: dict[str, list[Heard]] = {}
        """Node records by node."""
        self.left: list[Problem] = []
        """Problems: events that gateways have of others, and can not bring anywhere."""
        self.arrived: dict[str, dict[str, int]] = {}
        """The last lsns that have come to a hub, by node and incarnation."""
        self.problems: list[Problem] = []

    def look(self) -> None:
        """Read them.  Raises `BucketError`, OSError."""
        self.heard, self.arrived, self.problems, self.left = {}, {}, [], []
        now, found = time.time(), [*self._in_buckets()]
        for site in self._sites:
            found += node_record.at_hub(site.directories.arrivals, self._node)
            for node, came in arrivals.come(site.directories.arrivals):
                known = self.arrived.setdefault(node, {})
                for each, last in came.items():
                    known[each] = max(last, known.get(each, 0))
        for one in found:
            if one.record is None:
                self.problems.append(Problem(f"node {one.node}", one.why))
                continue
            # One from the future was said by a wrong clock, who knows when.
            lately = abs(now - one.modified) <= self._silent_after
            heard = Heard(one.record, one.modified, lately)
            self.heard.setdefault(one.node, []).append(heard)
        for node, node_records in self.heard.items():
            over = {each for heard in node_records for each in heard.record.earlier}
            for heard in node_records:
                if heard.record.incarnation not in over:
                    left = heard.record.left.items()
                    self.left += [_left(node, life, spans) for life, spans in left]

    def _in_buckets(self) -> Iterator[node_record.Heard]:
        """The node records in buckets; those that were not written again are not read again."""
        before, self._read = self._read, {}
        for bucket in self._buckets:
            for one in node_record.listed(bucket, self._node):
                key = bucket.url, one.name
                known = before.get(key)
                if known is None or known.modified != one.modified:
                    known = node_record.read(bucket, one)
                self._read[key] = known
                yield known


def _left(by: str, life: str, spans: Iterable[Sequence[int]]) -> Problem:
    which = ", ".join(spelled(first, last) for first, last in spans)
    why = f"{which} of {life} lie in its spool, and it can not bring them anywhere"
    return Problem(f"the gateway of node {by}", why)


def _add_end(known: dict[str, End], each: str, end: End) -> None:
    """The one that knows more."""
    before = known.get(each)
    if before is None or (end.exact, end.acknowledged) > (
        before.exact,
        before.acknowledged,
    ):
        known[each] = end


class Ledgers:
    """The ledgers of the jobs of all sites, beside their tables."""

    def __init__(self, sites: Iterable[Site]) -> None:
        """Read them.  Raises OSError."""
        self.holes: list[KnownHole] = []
        self.accepted: list[Accepted] = []
        self.deletions: list[Deletion] = []
        self.ends: dict[str, dict[str, End]] = {}
        """Ends by node and incarnation."""
        self.records: dict[str, dict[str, Record]] = {}
        """The files' records by node and incarnation."""
        self.committed: dict[str, dict[str, Lsns]] = {}
        """The lsns that jobs have committed, by node and incarnation."""
        self.problems: list[Problem] = []
        for site in with_tables(sites):
            try:
                self._read(site.directories.lake)
            except ValueError as why:
                self.problems.append(Problem(str(site.directories.lake), str(why)))

    def _read(self, lake: Path) -> None:
        # Accepted first: it goes into the ledger.
        self.accepted += accepted(lake)
        self.holes += known_holes(lake)
        self.deletions += deletions(lake)
        for node, lives in committed(lake).items():
            self.committed[node] = union(self.committed.get(node, {}), lives)
        for node, told in records(lake).items():
            self.records.setdefault(node, {}).update(told)
        for node, found in ends(lake).items():
            for each, end in found.items():
                _add_end(self.ends.setdefault(node, {}), each, end)


@dataclass(slots=True)
class Home:
    """A node's journal in one site."""

    site: Site
    content: JournalContent


class Journals:
    """The journals of all sites, by node."""

    def __init__(self, sites: Sequence[Site]) -> None:
        """Read them.  Raises OSError."""
        self.marked: dict[str, list[tuple[str, int]]] = {}
        """How far each node had come at least, and which incarnation of it says so."""
        for site in sites:
            for node, one in of_nodes(site.directories.state, mark.NAME, mark.Mark):
                said = one.incarnation, one.durable
                self.marked.setdefault(node, []).append(said)
        self._homes: dict[str, list[Home]] = {}
        for site in sites:
            for node, content in read_journal(site.directories.journal).items():
                home = Home(site, content)
                self._homes.setdefault(node, []).append(home)

    @property
    def nodes(self) -> set[str]:
        """The nodes that have a journal."""
        return set(self._homes)

    def homes(self, node: str) -> Sequence[Home]:
        """Where there is a journal of it."""
        return self._homes.get(node, ())

    def content(self, node: str) -> JournalContent:
        """The content of all journals of a node; that there are several is told."""
        homes = self.homes(node)
        if not homes:
            return JournalContent()
        found = homes[0].content
        for home in homes[1:]:
            found = _both(found, home.content, (homes[0].site, home.site))
        return found


def lives_of(
    node: str,
    journals: Journals,
    node_records: NodeRecords,
    ledgers: Ledgers,
    asked: Asked,
) -> Lives:
    """The knowledge of a node's incarnations from all of these."""
    heard = node_records.heard.get(node, ())
    lives = Lives(node, heard)
    for home in journals.homes(node):
        if (this := home.content.this) is not None:
            lives.journal(this)
        lives.holes(home.content.holes)
    lives.records(ledgers.records.get(node, {}))
    lives.ends(ledgers.ends.get(node, {}))
    if (said := asked.answers.get(node)) is not None:
        lives.asked(said.incarnation, said.since, said.earlier)
    lives.node_records(heard)
    lives.settle()
    return lives


def _both(
    one: JournalContent, other: JournalContent, homes: tuple[Site, Site]
) -> JournalContent:
    """A node with a journal in two directories; that is told."""
    first, last = (site.directories.journal for site in homes)
    why = f"another directory has a journal of this node, too: {first}"
    return JournalContent(
        union(one.events, other.events),
        None,
        [*one.published, *other.published],
        union(one.holes, other.holes),
        [*one.damaged, *other.damaged],
        [*one.problems, *other.problems, Problem(str(last), why)],
    )


def union(one: Mapping[str, Lsns], other: Mapping[str, Lsns]) -> dict[str, Lsns]:
    """The lsns of either, by incarnation."""
    return {
        each: one.get(each, Lsns()) | other.get(each, Lsns())
        for each in one.keys() | other.keys()
    }


class Spools:
    """The files of all sites that wait for a job, in directories and buckets."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = sites
        self.stores = {site.bucket.url: site.bucket for site in sites if site.bucket}
        """Buckets by their URLs."""
        self.buckets = [BucketFiles(one) for one in self.stores.values()]

    def archives(self) -> dict[str, list[SpoolFile]]:
        """Files that the job has committed, by node, where those are kept in a bucket.

        Raises `BucketError`.
        """
        return joined(*(bucket.list(archive=True) for bucket in self.buckets))

    def list(self) -> dict[str, list[SpoolFile]]:
        """The files by node, in order of lsn; of directories first, from where they go to buckets.

        Raises OSError.
        """
        here = [spool_files(site.directories.spool) for site in self._sites]
        return joined(*here, *(bucket.list() for bucket in self.buckets))

    def local(self, file: SpoolFile) -> AbstractContextManager[SpoolFile]:
        """The same file, or a copy of it on this machine; see `BucketFiles`."""
        bucket = next((one for one in self.buckets if one.has(file)), None)
        return nullcontext(file) if bucket is None else bucket.local(file)


class Lakes:
    """The tables of all sites, as one."""

    def __init__(self, sites: Sequence[Site], *, node: str | None, first: int) -> None:
        self._lakes: list[Lake] = [
            lake_of(site.directories.lake, node=node, first=first, access=site.access)
            for site in with_tables(sites)
        ]
        self.nodes: dict[str, dict[str, Counts]] = {}
        """Counts by node and incarnation."""

    def look(self) -> None:
        """Count what is new.  Raises OSError."""
        found: dict[str, dict[str, list[Counts]]] = {}
        for lake in self._lakes:
            lake.look()
            for node, lives in lake.nodes.items():
                for each, counts in lives.items():
                    found.setdefault(node, {}).setdefault(each, []).append(counts)
        self.nodes = {
            node: {
                each: counts[0] if len(counts) == 1 else Counts.summed(counts)
                for each, counts in lives.items()
            }
            for node, lives in found.items()
        }

    @property
    def problems(self) -> Iterator[Problem]:
        return (problem for lake in self._lakes for problem in lake.problems)

    @property
    def told(self) -> bool:
        """Whether a ledger is believed."""
        return any(lake.told for lake in self._lakes)

    def files_with(
        self, node: str, incarnation: str, first: int, last: int
    ) -> list[Place]:
        """The files that hold an event of this range."""
        return [
            place
            for lake in self._lakes
            for place in lake.files_with(node, incarnation, first, last)
        ]


def joined(*places: dict[str, list[SpoolFile]]) -> dict[str, list[SpoolFile]]:
    """Files in several places, those of the first ones preferred; one that is in two is on
    its way, and counts once.
    """
    found: dict[str, dict[str, SpoolFile]] = {}
    for place in reversed(places):
        for node, files in place.items():
            found.setdefault(node, {}).update((file.path.name, file) for file in files)
    return {
        node: sorted(files.values(), key=lambda file: (file.first, file.last))
        for node, files in found.items()
    }


def with_tables(sites: Iterable[Site]) -> list[Site]:
    """The sites but for those that share another one's tables."""
    known: dict[Path, Site] = {}
    for site in sites:
        known.setdefault(site.directories.lake.resolve(), site)
    return list(known.values())


def distinct(sites: Iterable[Site]) -> list[Site]:
    """The sites without those whose directories were named before."""
    known: dict[tuple[Path, Path, Path], Site] = {}
    for site in sites:
        places = site.directories
        key = places.root.resolve(), places.journal.resolve(), places.spool.resolve()
        known.setdefault(key, site)
    return list(known.values())
