"""Where one audit looks: the directories of gateways and jobs, their buckets and tables; and
gateways on other machines, which are asked.

Many gateways may write for one job, each on a disk of its own.  What is in a table is found
below the job's directory, what waits in a bucket below its address, and what is only in a
journal below the directory of its gateway, or by that gateway's word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.audit.bucket import BucketFiles
from gateway.audit.counts import Counts
from gateway.audit.files import JournalContent, read_journal
from gateway.audit.incarnations import Incarnations
from gateway.audit.lake import Lake, Problem
from gateway.audit.ranges import Ranges
from gateway.audit.remote import Access
from gateway.audit.sinks import lake_of
from gateway.store.bucket import Bucket
from gateway.store.directories import Directories
from gateway.store.finder import SpoolFile, spool_files

__all__ = [
    "Ask",
    "Asked",
    "Journals",
    "Lakes",
    "Site",
    "Spools",
    "Word",
    "distinct",
    "joined",
]


@dataclass(frozen=True, slots=True)
class Site:
    """A data directory, and what its configuration says."""

    directories: Directories
    served: str | None = None
    """The node of the configuration: what is in the journal of another one waits for
    nobody, unless a daemon has it locked."""
    bucket: Bucket | None = None
    """Where files of the spool go, if it has one."""
    access: Access | None = None
    """How to reach tables in object storage."""


@dataclass(frozen=True, slots=True)
class Word:
    """What a running gateway says of itself."""

    node: str
    durable: int
    """Its last lsn that is acknowledged, or may be."""
    published: int
    """Up to this one all is in files that the job can read."""
    bucket: str | None
    """Where those go; None: a directory of its machine."""


Ask = Callable[[], Word]
"""Asks one gateway.  Raises OSError."""


class Asked:
    """Gateways whose journals can not be read from here, by name."""

    def __init__(
        self, gateways: Iterable[tuple[str, Ask]], urls: Iterable[str]
    ) -> None:
        """Addresses, and how to ask; *urls* of the buckets that are looked at."""
        self._gateways = list(gateways)
        self._urls = set(urls)
        self.words: dict[str, Word] = {}
        """By node."""
        self.problems: list[Problem] = []

    def look(self) -> None:
        """Ask all of them."""
        self.words, self.problems = {}, []
        for address, ask in self._gateways:
            try:
                word = ask()
            except OSError as error:
                why = f"the gateway can not be asked: {error}"
                self.problems.append(Problem(address, why))
            else:
                self._hear(address, word)

    def _hear(self, address: str, word: Word) -> None:
        why = None
        if word.bucket not in self._urls:
            where = word.bucket or "a directory of its machine"
            why = (
                f"node {word.node} puts its files into {where}, which is not seen here"
            )
        else:
            if word.node in self.words:
                why = f"node {word.node} answers here and at another address"
            self.words[word.node] = word
        if why is not None:
            self.problems.append(Problem(address, why))

    def waiting(self, node: str) -> Ranges:
        """What is in its journal alone, it says."""
        word = self.words.get(node)
        return Ranges.of([(word.published + 1, word.durable)] if word else [])


class Journals:
    """Of all sites, by node."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = sites
        self._homes: dict[str, list[Site]] = {}
        self._incarnations = {
            site.directories.journal: Incarnations(site.directories.journal)
            for site in sites
        }
        self.nodes: dict[str, JournalContent] = {}

    def look(self) -> None:
        """Read them.  Raises OSError."""
        self.nodes, self._homes = {}, {}
        for site in self._sites:
            for node, content in read_journal(site.directories.journal).items():
                homes = self._homes.setdefault(node, [])
                homes.append(site)
                before = self.nodes.get(node)
                self.nodes[node] = _both(before, content, homes) if before else content

    def homes(self, node: str) -> Sequence[Site]:
        """Where there is a journal of it."""
        return self._homes.get(node, ())

    def foreign(self, node: str, files: Iterable[SpoolFile]) -> list[Problem]:
        """Of a node's files those that another journal published."""
        site = (*self.homes(node), *self._sites)[0]
        return self._incarnations[site.directories.journal].problems(node, files)


def _both(
    one: JournalContent, other: JournalContent, homes: Sequence[Site]
) -> JournalContent:
    """A node with a journal in two directories; that is told."""
    first, *_, last = (site.directories.journal for site in homes)
    why = f"another directory has a journal of this node, too: {first}"
    return JournalContent(
        one.events | other.events,
        max(one.last, other.last),
        [*one.published, *other.published],
        [*one.damaged, *other.damaged],
        [*one.problems, *other.problems, Problem(str(last), why)],
    )


class Spools:
    """The files of all sites that wait for a job, in directories and buckets."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = sites
        buckets = {site.bucket.url: site.bucket for site in sites if site.bucket}
        self.buckets = [BucketFiles(one) for one in buckets.values()]
        self.urls = list(buckets)

    def list(self) -> dict[str, list[SpoolFile]]:
        """By node, in order of lsn; of directories first, from where they go to buckets.

        Raises OSError.
        """
        here = [spool_files(site.directories.spool) for site in self._sites]
        return joined(*here, *(bucket.list() for bucket in self.buckets))

    def bucket_of(self, file: SpoolFile) -> BucketFiles | None:
        """Whose it is."""
        return next((one for one in self.buckets if one.has(file)), None)


class Lakes:
    """The tables of all sites, as one."""

    def __init__(self, sites: Sequence[Site], *, node: str | None, first: int) -> None:
        self._lakes: list[Lake] = [
            lake_of(site.directories.lake, node=node, first=first, access=site.access)
            for site in sites
        ]
        self.nodes: dict[str, Counts] = {}

    def look(self) -> None:
        """Count what is new.  Raises OSError."""
        found: dict[str, list[Counts]] = {}
        for lake in self._lakes:
            lake.look()
            for node, counts in lake.nodes.items():
                found.setdefault(node, []).append(counts)
        self.nodes = {
            node: counts[0] if len(counts) == 1 else Counts.summed(counts)
            for node, counts in found.items()
        }

    @property
    def problems(self) -> Iterator[Problem]:
        """Of all."""
        return (problem for lake in self._lakes for problem in lake.problems)

    @property
    def told(self) -> bool:
        """Whether a ledger is believed."""
        return any(lake.told for lake in self._lakes)

    def files_with(self, node: str, first: int, last: int) -> list[str]:
        """Names of the files that hold an event of this range."""
        return [
            name for lake in self._lakes for name in lake.files_with(node, first, last)
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


def distinct(sites: Iterable[Site]) -> list[Site]:
    """Without those whose directories were named before."""
    known: dict[tuple[Path, Path, Path], Site] = {}
    for site in sites:
        places = site.directories
        key = places.root.resolve(), places.journal.resolve(), places.spool.resolve()
        known.setdefault(key, site)
    return list(known.values())
