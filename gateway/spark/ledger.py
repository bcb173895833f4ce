"""What has been committed to the lake, by lsn: the sink's own memory.

Spark's checkpoint says which batches are done.  This file says which *events* are in
the tables, so a checkpoint may be lost or thrown away and nothing is doubled.  It is
tiny: lsns have no holes, so a node is one interval.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gateway.store.disk import Disk
from gateway.store.names import parse_file_name

__all__ = ["Broken", "Hole", "Ledger", "Ranges", "SpoolFile", "write_json"]

_FORMAT = 2


class Broken(Exception):
    """Lake, checkpoint and spool contradict each other; says how and what to do."""


@dataclass(frozen=True)
class SpoolFile:
    """A published file; its name says which events it holds (docs/design.md §4)."""

    name: str
    node: str
    first: int
    last: int

    @classmethod
    def parse(cls, name: str) -> SpoolFile | None:
        """None for any name that the gateway does not give."""
        parsed = parse_file_name(name)
        return None if parsed is None else cls(name, *parsed)


def _start(span: tuple[int, int]) -> int:
    return span[0]


def _end(span: tuple[int, int]) -> int:
    return span[1]


class Ranges:
    """A set of (node, lsn), kept as few intervals as possible."""

    def __init__(
        self, spans: Mapping[str, Iterable[tuple[int, int]]] | None = None
    ) -> None:
        self._spans: dict[str, list[tuple[int, int]]] = {}
        for node, intervals in (spans or {}).items():
            for first, last in intervals:
                self.add(node, first, last)

    @classmethod
    def of(cls, files: Iterable[SpoolFile]) -> Ranges:
        """The events of these files."""
        ranges = cls()
        for file in files:
            ranges.add(file.node, file.first, file.last)
        return ranges

    def add(self, node: str, first: int, last: int) -> None:
        """Add an interval, both ends included."""
        spans = self._spans.setdefault(node, [])
        # Those that touch it are neighbours: spans are in order and apart.
        low = bisect_left(spans, first - 1, key=_end)
        high = bisect_right(spans, last + 1, key=_start)
        if low < high:
            first, last = min(first, spans[low][0]), max(last, spans[high - 1][1])
        spans[low:high] = [(first, last)]

    def update(self, other: Ranges) -> None:
        """Add all of *other*."""
        for node, first, last in other:
            self.add(node, first, last)

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        for node, intervals in sorted(self._spans.items()):
            for first, last in intervals:
                yield node, first, last

    def __len__(self) -> int:
        return sum(last - first + 1 for _, first, last in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def common(self, other: Ranges) -> Ranges:
        """The events that are in both."""
        both = Ranges()
        for node, first, last in self:
            spans = other._spans.get(node, [])
            low = bisect_left(spans, first, key=_end)
            high = bisect_right(spans, last, key=_start)
            for start, end in spans[low:high]:
                both.add(node, max(first, start), min(last, end))
        return both

    def minus(self, other: Ranges) -> Ranges:
        """The events that *other* does not have."""
        left = Ranges()
        for node, first, last in self:
            at = first
            for start, end in other._spans.get(node, []):
                if end < at:
                    continue
                if start > last:
                    break
                if start > at:
                    left.add(node, at, start - 1)
                at = end + 1
            if at <= last:
                left.add(node, at, last)
        return left

    def last(self) -> dict[str, int]:
        """The greatest lsn of each node."""
        return {node: spans[-1][1] for node, spans in self._spans.items()}

    def covers(self, file: SpoolFile) -> bool:
        """Whether every event of *file* is in here."""
        spans = self._spans.get(file.node, [])
        at = bisect_left(spans, file.last, key=_end)
        return at < len(spans) and spans[at][0] <= file.first

    def plain(self) -> dict[str, list[tuple[int, int]]]:
        """For JSON; what the constructor takes."""
        return {node: list(spans) for node, spans in sorted(self._spans.items())}


def write_json(disk: Disk, path: Path, content: Any) -> None:
    """Make *path* hold *content* as JSON, durably and in one step."""
    new = path.with_name(f".{path.name}.new")
    disk.unlink(new)
    file = disk.create(new)
    try:
        file.write([json.dumps(content, indent=1).encode(), b"\n"])
        file.sync()
    finally:
        file.close()
    disk.rename(new, path)
    disk.sync_directory(path.parent)


@dataclass(frozen=True)
class Hole:
    """Events that are in no table because their spool file could not be read."""

    node: str
    first: int
    last: int
    file: str
    """The spool file's name; it was moved aside under it."""
    why: str
    at: float
    """When, in seconds since the epoch."""

    def is_in(self, committed: Ranges) -> bool:
        """Whether its events are in the tables after all."""
        return committed.covers(SpoolFile(self.file, self.node, self.first, self.last))


@dataclass(frozen=True)
class Ledger:
    """What all batches have committed, and which was the last."""

    query: str | None = None
    """Spark's id of the last query: it lives in the checkpoint and dies with it."""
    batch: int = -1
    """That query's last batch that is in the tables."""
    latest: Ranges = field(default_factory=Ranges)
    """What that batch took from the spool."""
    committed: Ranges = field(default_factory=Ranges)
    """What all batches of all queries took."""
    sequence: int = 0
    """How many batches there were, over all queries; part of the files' names."""
    holes: tuple[Hole, ...] = ()
    """What was moved aside."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Columns of `events` so far, and their types as Spark names them."""

    @classmethod
    def load(cls, disk: Disk, path: Path) -> Ledger:
        """An empty one if there is no file.  Raises `Broken`, OSError."""
        if not disk.exists(path):
            return cls()
        return cls.parse(disk.read(path), str(path))

    @classmethod
    def parse(cls, text: str | bytes, where: str) -> Ledger:
        """What `text` gave.  Raises `Broken`, which names *where* it was found."""
        try:
            kept = json.loads(text)
            if kept["format"] not in (1, _FORMAT):
                raise Broken(f"{where}: written by another version of gateway")
            # The first format knew no more; its tables had a VARIANT.
            first = kept["format"] == 1
            return cls(
                kept["query"],
                kept["batch"],
                Ranges(kept["latest"]),
                Ranges(kept["committed"]),
                0 if first else kept["sequence"],
                () if first else tuple(Hole(**hole) for hole in kept["holes"]),
                {"body": "variant"} if first else kept["types"],
            )
        except (ValueError, KeyError, TypeError, AttributeError) as why:
            raise Broken(f"{where}: {why!r}") from None

    def after(self, query: str | None, batch: int, took: Ranges) -> Ledger:
        """This, once *batch* of *query* is in the tables."""
        committed = Ranges(self.committed.plain())
        committed.update(took)
        holes = tuple(hole for hole in self.holes if not hole.is_in(committed))
        return replace(
            self,
            query=query,
            batch=batch,
            latest=took,
            committed=committed,
            sequence=self.sequence + 1,
            holes=holes,
        )

    def with_hole(self, hole: Hole) -> Ledger:
        """This, and the events of one more file in no table."""
        others = tuple(one for one in self.holes if one.file != hole.file)
        return replace(self, holes=(*others, hole))

    def save(self, disk: Disk, path: Path) -> None:
        """Durably.  Raises OSError."""
        write_json(disk, path, self._plain())

    def text(self, **beside: int) -> str:
        """All of it in a line, for the words of a table's commit.

        *beside* are words of whoever writes them; `parse` passes them over.
        """
        return json.dumps({**self._plain(), **beside}, separators=(",", ":"))

    def _plain(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "query": self.query,
            "batch": self.batch,
            "latest": self.latest.plain(),
            "committed": self.committed.plain(),
            "sequence": self.sequence,
            "holes": [asdict(hole) for hole in self.holes],
            "types": dict(self.types),
        }
