"""Verifies the chain of a node's spool files, in which no file can be exchanged unseen.

Each names the digest of the one before it (`gateway.store.digests`), so a file that was
removed, exchanged or changed is evident.

The files of spool, archive and `poison/` are read, in order of lsn.  What must be there
besides is known from the catalog and the mark.  The head of the chain may be gone: what
retention has removed is written down (`gateway.store.node.expired`), and with `spool.after:
delete` the Spark job removes what it has committed.

A machine that lost its disk goes on as another incarnation, which knows nothing of the files
before it: it begins a chain of its own, and that is said.

One who can write to the directory can also make another chain; only a link that was kept
elsewhere tells (*links*).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from gateway.audit.lake import Problem
from gateway.audit.sites import union
from gateway.store import digests
from gateway.store.directories import Directories
from gateway.store.finder import SpoolFile, spool_files
from gateway.store.lsns import Lsns, spelled
from gateway.store.node import mark
from gateway.store.node.catalog import catalogs_in
from gateway.store.node.expired import expired_in
from gateway.store.node.holes import all_of, holes_in
from gateway.store.node.incarnation import Incarnation
from gateway.store.node.lives import short
from gateway.store.readers.deleted import deletions, digests_before, stamps
from gateway.store.readers.lake import committed
from gateway.store.spool.mending import Entry
from gateway.store.system.statefile import of_nodes

_LOOKS = 4
_PAUSE_SECONDS = 0.3


@dataclass(slots=True)
class Chain:
    """One node's files, as they were found."""

    node: str
    files: int = 0
    first: int = 0
    """The first lsn of the oldest file with a link; 0 if there is none."""
    last: int = 0
    """The last lsn of the newest file; 0 if there is none."""
    link: str = ""
    """The link of the newest file."""
    notes: list[str] = field(default_factory=list)
    """Notes on what is as it should be."""
    problems: list[Problem] = field(default_factory=list)


@dataclass(slots=True)
class Chains:
    """The chains of all nodes."""

    chains: list[Chain]
    unknown: list[str] = field(default_factory=list)
    """Links that were asked for, and are in none of them."""

    @property
    def whole(self) -> bool:
        """Nothing was removed, exchanged or changed."""
        return not self.unknown and not any(one.problems for one in self.chains)


@dataclass(slots=True)
class _File:
    """A file as it was read."""

    file: SpoolFile
    link: str
    """The link of the events that it has."""
    previous: str | None
    """The link of the file before it, as it says."""


@dataclass(slots=True)
class _Known:
    """One node's files, as they are written down."""

    entries: dict[str, Entry] = field(default_factory=dict)
    """The catalog's, by name."""
    published: int = 0
    """The last lsn that is in a file."""
    link: str = ""
    """The link of the file that ends with it."""
    gone: dict[str, Lsns] = field(default_factory=dict)
    """Lsns whose files may be gone, by incarnation."""
    holes: Lsns = field(default_factory=Lsns)
    """Lsns that its disk did not give back."""
    this: Incarnation | None = None
    """The incarnation of the journal, which knows whose files are its own."""

    def may_be_gone(self, *, ours: bool) -> Lsns:
        """The lsns that may be gone of incarnations that the journal knows, or of all others."""
        this = self.this
        return Lsns.joined(
            lsns
            for by, lsns in self.gone.items()
            if this is None or this.knows(by) is ours
        )

    @property
    def begin(self) -> int:
        """The first lsn that was ever here."""
        if self.this is None:
            return 1
        return max(1, min([self.this.since, *self.this.began.values()]))


def verify_chains(
    directories: Directories,
    *,
    node: str | None = None,
    first: int = 1,
    links: Iterable[str] = (),
    deleting: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> Chains:
    """Verify the chains of all nodes, or of one, from lsn *first* on.  Raises OSError.

    *links* must be in one of them.  *deleting*: the Spark job deletes what it has
    committed.  A file that is on its way may look gone, so a fault is looked at afresh,
    *pause* (seconds) later.
    """
    reader = _Reader(directories, first)
    wanted = list(links)
    for look in range(_LOOKS):
        if look:
            pause(_PAUSE_SECONDS)
        found = _look(reader, node, wanted, deleting=deleting)
        if found.whole:
            break
    return found


def _look(
    reader: _Reader, node: str | None, links: Sequence[str], *, deleting: bool
) -> Chains:
    directories = reader.directories
    # First what must be there, so that it is there by now.
    known = _known(directories, deleting=deleting)
    files = reader.files()
    names = sorted(known.keys() | files.keys())
    chains: list[Chain] = []
    seen: set[str] = set()
    for name in names:
        if node not in (None, name):
            continue
        about = known.get(name, _Known())
        judge = _Judge(name, about, directories.spool, reader.first)
        chains.append(judge.judge(list(reader.read(files.get(name, [])))))
        seen |= judge.links
    return Chains(chains, [link for link in links if link.lower() not in seen])


@dataclass(slots=True)
class _Reader:
    """Reads each file once, wherever it goes meanwhile."""

    directories: Directories
    first: int
    """Files with earlier lsns alone are passed over."""
    _read: dict[tuple[str, int, int, int], _File] = field(default_factory=dict)
    _links: tuple[list[tuple[str, int, int]], dict[str, str]] = ([], {})
    """Stamps of deletions, and the digests of `_before` for these."""

    @property
    def _places(self) -> tuple[Path, ...]:
        """The directories in the order in which files move."""
        root = self.directories
        return root.spool, root.archive, root.root / "poison"

    def files(self) -> dict[str, list[SpoolFile]]:
        """The files of each node, in order of lsn; one that moves may be there in two places."""
        found: dict[str, list[SpoolFile]] = {}
        for place in self._places:
            for node, files in spool_files(place).items():
                wanted = (one for one in files if one.last >= self.first)
                found.setdefault(node, []).extend(wanted)
        for files in found.values():
            files.sort(key=lambda one: (one.first, one.last))
        return found

    def read(self, files: Iterable[SpoolFile]) -> Iterator[_File]:
        """The files, each once; those that are gone are left out.  Raises OSError.

        Two incarnations may have given one name to two files.
        """
        known: set[tuple[str, str]] = set()
        for file in files:
            name = file.path.name
            at = self._places.index(file.path.parent)
            for place in (*self._places[at:], *self._places[:at]):
                with contextlib.suppress(FileNotFoundError):
                    one = self._one(file, place / name)
                    if (name, one.link) not in known:
                        known.add((name, one.link))
                        yield one
                    break

    def _before(self) -> dict[str, str]:
        """Digests of files in which events were redacted, before that was done."""
        lake = self.directories.lake
        if self._links[0] != (now := stamps(lake)):
            try:
                self._links = now, digests_before(deletions(lake))
            except ValueError:  # the audit's other half says so
                self._links = now, {}
        return self._links[1]

    def _one(self, file: SpoolFile, path: Path) -> _File:
        stat = path.stat()
        key = path.name, stat.st_ino, stat.st_size, stat.st_mtime_ns
        if key not in self._read:
            metadata = digests.metadata_of(path)
            previous = digests.said(metadata, digests.PREVIOUS_KEY)
            self._read[key] = _File(
                replace(file, path=path),
                self._link_of(path, previous or ""),
                previous,
            )
        return self._read[key]

    def _link_of(self, path: Path, previous: str) -> str:
        """Raises FileNotFoundError, PermissionError."""
        try:
            events = digests.of_file(path)
        except (FileNotFoundError, PermissionError):
            raise
        except Exception:  # damaged bytes make pyarrow raise anything
            return "damaged"
        return digests.link_of(self._before().get(events, events), previous)


def _known(directories: Directories, *, deleting: bool) -> dict[str, _Known]:
    """Each node's catalog, mark and expired files.  Raises OSError."""
    found: dict[str, _Known] = {}
    # The mark is behind the catalog, so it comes first.
    for node, marked in of_nodes(directories.state, mark.NAME, mark.Mark):
        one = found.setdefault(node, _Known())
        one.published, one.link = marked.published, marked.link
    for node, lines in catalogs_in(directories.journal).items():
        one = found.setdefault(node, _Known())
        one.entries = {entry.name: entry for entry in lines.all(Entry)}
        one.this = lines.newest(Incarnation)
        one.holes = all_of(holes_in(lines))
    gone = [expired_in(directories)]
    if deleting:
        with contextlib.suppress(ValueError):  # the audit's other half says so
            gone.append(committed(directories.lake))
    for node, incarnations in (each for some in gone for each in some.items()):
        one = found.setdefault(node, _Known())
        one.gone = union(one.gone, incarnations)
    return found


@dataclass(slots=True)
class _Judge:
    """Judges one node's files."""

    node: str
    known: _Known
    spool: Path
    first: int
    """Earlier lsns may be in no place."""
    links: set[str] = field(default_factory=set)
    """The links of the chain."""

    def judge(self, files: Sequence[_File]) -> Chain:
        chain = Chain(self.node, len(files))
        for one in files:
            self._judge_bytes(one, chain)
        parts = self._parts(files)
        for number, part in enumerate(parts):
            self._judge_part(part, chain, anew=number > 0)
        if parts:
            mine = [part for part in parts if self._is_ours(part[-1])]
            first, last = (mine or parts)[-1][0], (mine or parts)[-1][-1]
            chain.first, chain.last = first.file.first, last.file.last
            chain.link = last.link
        self._judge_end(chain)
        return chain

    def _is_ours(self, one: _File) -> bool:
        """Whether the journal here published it, as far as is known."""
        this = self.known.this
        return this is None or this.knows(one.file.incarnation)

    def _parts(self, files: Iterable[_File]) -> list[list[_File]]:
        """The chains that they are: an incarnation that knows nothing of those before it
        begins one of its own.
        """
        parts: list[list[_File]] = []
        of: dict[str, list[_File]] = {}
        for one in files:
            part = of.get(one.file.incarnation) or self._followed(one, parts)
            if part is None:
                part = []
                parts.append(part)
            part.append(one)
            of[one.file.incarnation] = part
        return parts

    def _followed(self, one: _File, parts: Sequence[list[_File]]) -> list[_File] | None:
        """The chain that an incarnation's first file goes on with."""
        for part in parts:
            if one.previous == part[-1].link:
                return part
        for part in reversed(parts):
            before = part[-1]
            meets = one.file.first <= before.file.last
            if not meets and self._is_ours(before) == self._is_ours(one):
                return part
        return None

    def _judge_part(self, files: Sequence[_File], chain: Chain, *, anew: bool) -> None:
        begin = self._note_begin if anew else self._judge_begin
        begin(files[0], chain)
        for before, one in pairwise(files):
            self._judge_link(before, one, chain)
        self.links |= {one.link for one in files}

    def _note_begin(self, one: _File, chain: Chain) -> None:
        """One that knew nothing of files before it, or not of those that are here."""
        who = f"incarnation {short(one.file.incarnation)} begins a chain of its own"
        behind = ""
        if one.previous not in (None, digests.NOTHING):
            assert one.previous is not None
            self.links.add(one.previous)
            behind = f", behind a file with link {one.previous}"
        chain.notes.append(f"{who} with lsn {one.file.first}{behind}")

    def _judge_bytes(self, one: _File, chain: Chain) -> None:
        """Whether it is as it was written."""
        if not self._is_ours(one):
            return
        entry = self.known.entries.get(one.file.path.name)
        wanted = entry.link if entry is not None else ""
        who = "the catalog"
        if not wanted and one.file.last == self.known.published:
            wanted, who = self.known.link, "the mark"
        if wanted and wanted != one.link:
            why = f"changed or exchanged: {who} says {wanted}, it is {one.link}"
            chain.problems.append(Problem(str(one.file.path), why))

    def _judge_begin(self, one: _File, chain: Chain) -> None:
        """The oldest file."""
        first, last = one.file.first, one.file.first - 1
        if one.previous is not None:
            self.links.add(one.previous)
        if one.previous != digests.NOTHING and last > 0:
            begin = self.known.begin if self._is_ours(one) else 1
            if begin > 1:
                self._note_begin(one, chain)
            self._judge_gap(begin, last, one, chain)
        elif one.previous != digests.NOTHING:
            why = f"the first file of all says that {one.previous} was before it"
            chain.problems.append(Problem(str(one.file.path), why))
        elif last > 0:
            chain.notes.append(f"no file was before lsn {first}")

    def _judge_link(self, before: _File, one: _File, chain: Chain) -> None:
        """Whether *one* was written behind *before*."""
        if one.previous == before.link:
            return
        path = str(one.file.path)
        if one.file.first > before.file.last + 1:
            self._judge_gap(before.file.last + 1, one.file.first - 1, one, chain)
        elif one.previous is None:
            why = "the chain is broken before it: the gateway did not know that file"
            chain.problems.append(Problem(path, why))
        elif not any(str(before.file.path) == each.file for each in chain.problems):
            chain.problems.append(self._changed(before, one))

    def _changed(self, before: _File, one: _File) -> Problem:
        entry = self.known.entries.get(before.file.path.name)
        if entry is not None and entry.link == before.link:
            why = f"exchanged: it says that {one.previous} was before it, and not"
            return Problem(str(one.file.path), f"{why} {before.file.path.name}")
        why = f"changed or exchanged: {one.file.path.name}, which follows it, says"
        return Problem(
            str(before.file.path), f"{why} {one.previous}, it is {before.link}"
        )

    def _judge_gap(
        self, first: int, last: int, one: _File | None, chain: Chain
    ) -> None:
        """Files with lsns from *first* to *last* are not there, before *one*."""
        first = max(first, self.first)
        if last < first:
            return
        ours = one is None or self._is_ours(one)
        missing = Lsns([(first, last)])
        if ours:
            for begin, end in missing & self.known.holes:
                chain.notes.append(f"{spelled(begin, end)}: a hole")
            missing = missing - self.known.holes
        if not missing:
            return
        missing = missing - self.known.may_be_gone(ours=ours)
        if not len(missing):
            chain.notes.append(f"{spelled(first, last)}: not kept any longer")
            return
        where = str(self.spool) if one is None else f"before {one.file.path.name}"
        for start, end in missing:
            named = [
                entry
                for entry in self.known.entries.values()
                if start <= entry.last and entry.first <= end
            ]
            what = f"removed: what had {spelled(start, end)} is in no place"
            names = ", ".join(entry.name for entry in named[:4])
            chain.problems.append(Problem(names or where, f"{what}, {where}"))

    def _judge_end(self, chain: Chain) -> None:
        """Whether files are missing behind the newest."""
        ends = [
            entry.last
            for entry in self.known.entries.values()
            if not (self.spool / entry.hidden).exists()
        ]
        last = max([self.known.published, *ends])
        if last > chain.last:
            self._judge_gap(chain.last + 1, last, None, chain)
