"""The events that journal segments and spool files really hold, whatever their names say.

Nothing is written.  The gateway and the Spark job may be at work meanwhile: a file
that is gone when it is opened has moved on, and the next place has it
(`gateway.store.finder`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gateway.audit.lake import Problem, Unusable, columns
from gateway.event import Stored
from gateway.store import digests
from gateway.store.finder import SpoolFile, journals_in, list_names, scans
from gateway.store.journal import segment
from gateway.store.journal.recovery import DAMAGED
from gateway.store.lsns import Lsns
from gateway.store.node.catalog import CATALOG, look
from gateway.store.node.holes import holes_in
from gateway.store.node.incarnation import Incarnation
from gateway.store.spool.mending import Entry


@dataclass(slots=True)
class JournalContent:
    """The journal of one node."""

    events: dict[str, Lsns] = field(default_factory=dict)
    """The lsns by incarnation."""
    this: Incarnation | None = None
    """The incarnation that gives lsns there; None if that is not known."""
    published: list[Entry] = field(default_factory=list)
    holes: Mapping[str, Lsns] = field(default_factory=dict)
    """The lsns that the disk did not give back, by incarnation."""
    damaged: list[tuple[int, int, Path]] = field(default_factory=list)
    """Damaged segments: first lsn, last lsn that it can have held, file."""
    problems: list[Problem] = field(default_factory=list)


def read_journal(directory: Path) -> dict[str, JournalContent]:
    """Each node's journal.  Raises OSError."""
    return {path.name: _read_node(path) for path in journals_in(directory)}


def runs_in(file: SpoolFile, entry: Entry | None = None) -> list[tuple[int, int]]:
    """The lsns that are really in a file, in their order, as (first, last).

    Every byte is read: its events must be those of its own digest, and of *entry* of the
    catalog.
    Raises `Unusable`, FileNotFoundError, PermissionError.
    """
    runs: list[tuple[int, int]] = []
    metadata = digests.metadata_of(file.path)
    wanted = {"it says": digests.events_said(metadata)}
    if entry is not None and digests.DELETED_KEY not in metadata:
        wanted["the catalog says"] = entry.events
    found = digests.EventsDigest(file.first)
    for node, _, lsns in columns(file.path, found):
        if node != file.node:
            raise Unusable(f"it has an event of node {node!r}")
        ends = np.append(np.flatnonzero(np.diff(lsns) != 1), len(lsns) - 1)
        begins = np.append(0, ends[:-1] + 1)
        each = zip(lsns[begins].tolist(), lsns[ends].tolist(), strict=True)
        for first, last in each:
            follows = runs and runs[-1][1] + 1 == first
            runs.append((runs.pop()[0] if follows else first, last))
    for who, said in wanted.items():
        if said and said != (events := found.hexdigest()):
            raise Unusable(f"its events were changed: BLAKE3 {events}, {who} {said}")
    if (
        entry is not None
        and entry.octets
        and digests.DELETED_KEY not in metadata
        and entry.octets != digests.of_octets(file.path)
    ):
        raise Unusable("it is not as it was published: the catalog has another BLAKE3")
    return runs


def _read_node(directory: Path) -> JournalContent:
    seen = JournalContent()
    lines = look(directory)
    seen.this, seen.published = lines.newest(Incarnation), lines.all(Entry)
    seen.holes = holes_in(lines)
    for number in lines.damaged_numbers:
        path = directory / CATALOG[0]
        seen.problems.append(Problem(str(path), f"line {number} is damaged"))
    pairs: dict[str, list[tuple[int, int]]] = {}

    def refused(path: Path, why: segment.InvalidSegment) -> None:
        seen.problems.append(Problem(str(path), str(why)))

    for path, scan in scans(directory, refused):
        pairs.setdefault(segment.incarnation_of(path.name), []).extend(_runs(scan))
        seen.problems += [Problem(str(path), str(damage)) for damage in scan.damage]
    seen.events = {each: Lsns(runs) for each, runs in pairs.items()}
    for name in sorted(list_names(directory)):
        parsed = segment.parse_name(name.removesuffix(DAMAGED))
        if parsed and name.endswith(DAMAGED):
            first, path = parsed.first_lsn, directory / name
            seen.damaged.append((first, first + path.stat().st_size - 1, path))
    return seen


def _runs(stored: Iterable[Stored]) -> list[tuple[int, int]]:
    """The lsns of batches in order, as few ranges."""
    runs: list[tuple[int, int]] = []
    for one in stored:
        last = one.lsn + one.batch.count - 1
        if runs and runs[-1][1] + 1 == one.lsn:
            runs[-1] = runs[-1][0], last
        else:
            runs.append((one.lsn, last))
    return runs
