"""What lies in the journal and in directories of spool files; nothing is written.

The gateway and the Spark job may be at work meanwhile: what is gone when it is
opened has moved on, and the next place has it.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gateway.audit.lake import Problem, Unusable, columns
from gateway.audit.ranges import Ranges
from gateway.event import Stored
from gateway.store.journal import segment
from gateway.store.spool import catalog
from gateway.store.spool.names import parse_file_name

if TYPE_CHECKING:
    from gateway.config import Config

__all__ = [
    "JournalSeen",
    "Places",
    "SpoolFile",
    "look_at_journal",
    "look_at_spool",
    "segments",
]


@dataclass(frozen=True, slots=True)
class Places:
    """Where events can be, in the order in which they move."""

    journal: Path
    spool: Path
    lake: Path
    archive: Path

    @classmethod
    def under(cls, data_dir: Path) -> Places:
        """With the default names."""
        return cls(
            data_dir / "journal",
            data_dir / "spool",
            data_dir / "lake",
            data_dir / "archive",
        )

    @classmethod
    def of(cls, config: Config) -> Places:
        """Where this configuration has them."""
        root = config.data_dir
        return cls(
            root / config.journal.directory,
            root / config.spool.directory,
            root / "lake",
            root / "archive",
        )


@dataclass(slots=True)
class JournalSeen:
    """The journal of one node."""

    events: Ranges = field(default_factory=Ranges)
    last: int = 0
    """The greatest lsn that it knows to have been acknowledged."""
    published: list[catalog.Entry] = field(default_factory=list)
    set_aside: list[tuple[int, int, Path]] = field(default_factory=list)
    """Damaged segments: first lsn, last lsn that it can have held, file."""
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SpoolFile:
    """A file with events, as its name says."""

    path: Path
    node: str
    first: int
    last: int

    def overlaps(self, first: int, last: int) -> bool:
        """Whether its name says that it holds events of this range."""
        return self.first <= last and first <= self.last

    def runs(self) -> list[tuple[int, int]]:
        """The lsns that are really in it, in their order, as (first, last).

        Raises `Unusable`, FileNotFoundError, PermissionError.
        """
        runs: list[tuple[int, int]] = []
        for node, lsns in columns(self.path):
            if node != self.node:
                raise Unusable(f"it has an event of node {node!r}")
            ends = np.append(np.flatnonzero(np.diff(lsns) != 1), len(lsns) - 1)
            begins = np.append(0, ends[:-1] + 1)
            found = zip(lsns[begins].tolist(), lsns[ends].tolist(), strict=True)
            for first, last in found:
                follows = runs and runs[-1][1] + 1 == first
                runs.append((runs.pop()[0] if follows else first, last))
        return runs


def look_at_journal(directory: Path) -> dict[str, JournalSeen]:
    """Each node's journal.  Raises OSError."""
    return {
        path.name: _look_at_node(path) for path in _entries(directory) if path.is_dir()
    }


def look_at_spool(directory: Path) -> dict[str, list[SpoolFile]]:
    """The public files of a spool or an archive, by node, in order of lsn."""
    found = defaultdict(list)
    for path in _entries(directory):
        if parsed := parse_file_name(path.name):
            found[parsed[0]].append(SpoolFile(path, *parsed))
    for files in found.values():
        files.sort(key=lambda file: (file.first, file.last))
    return dict(found)


def segments(
    directory: Path, problems: list[Problem]
) -> Iterator[tuple[Path, segment.Scan]]:
    """A node's segments, each with a scan that has not begun; oldest first.

    What is no segment goes to *problems*.  Raises OSError.
    """
    names = sorted(
        (parsed, path)
        for path in _entries(directory)
        if (parsed := segment.parse_name(path.name))
    )
    followers = [parsed[0] for parsed, _ in names[1:]]
    for (_, path), before in zip_longest(names, followers):
        with contextlib.suppress(FileNotFoundError):
            data = path.read_bytes()
            # Else it is being made, and holds no event yet.
            if len(data) > segment.HEADER_BYTES:
                try:
                    scan = segment.Scan(data, before=before)
                except segment.Foreign as why:
                    problems.append(Problem(str(path), str(why)))
                    continue
                yield path, scan


def _look_at_node(directory: Path) -> JournalSeen:
    seen = JournalSeen()
    with contextlib.suppress(FileNotFoundError):
        seen.published = catalog.entries((directory / "catalog").read_bytes())
    pairs: list[tuple[int, int]] = []
    for path, scan in segments(directory, seen.problems):
        pairs += _runs(scan)
        seen.problems += [
            Problem(str(path), f"{d.length} damaged bytes at {d.offset}")
            for d in scan.damage
        ]
    seen.events = Ranges.of(pairs)
    seen.last = max(
        seen.events.last, max((entry.last for entry in seen.published), default=0)
    )
    for path in _entries(directory):
        parsed = segment.parse_name(path.name.removesuffix(".damaged"))
        if parsed and path.suffix == ".damaged":
            last = parsed[0] + path.stat().st_size - 1
            seen.set_aside.append((parsed[0], last, path))
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


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []
