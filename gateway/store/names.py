"""Names of spool files: `events-NODE_INCARNATION-FIRST-LAST.parquet`, a contract
(docs/design.md §4).  And those of what is retained of such files.

FIRST and LAST are lsns.  A name says whose events a file has: two incarnations never give
one name, so what has the same name is the same file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from gateway.event import MAX_LSN
from gateway.store.lsns import Lsns

INCARNATION = r"[a-z2-7]{10}"
"""The form of an incarnation's id, as a regular expression."""

_NAME = re.compile(
    rf"events-([a-z0-9.-]+)_({INCARNATION})-(\d{{20}})-(\d{{20}})\.parquet", re.ASCII
)
_HIDDEN = re.compile(rf"\.({_NAME.pattern})(\.\d+-\d+)?", re.ASCII)

_KEPT = re.compile(r"kept-(\d{20})-(\d{20})-(\d{6})\.parquet")


#: Spark reads a path as a pattern, and can not read one with a colon at all.
_ODD = frozenset("*?[]{}\\:")


def odd_for_spark(path: str) -> str:
    """The characters of a directory's path that keep Spark from reading it, with spaces between."""
    return " ".join(sorted(_ODD.intersection(path)))


def is_node_name(text: str) -> bool:
    """Whether spool files can be named by a node of this name."""
    return parse_file_name(file_name(text, "a" * 10, 1, 1)) is not None


def file_name(node: str, incarnation: str, first: int, last: int) -> str:
    """The public name of the file with events *first* to *last* of an incarnation."""
    return f"events-{node}_{incarnation}-{first:020d}-{last:020d}.parquet"


class Life(NamedTuple):
    """The giver of an lsn: one incarnation of a node (`gateway.store.node.incarnation`)."""

    node: str
    incarnation: str

    def __str__(self) -> str:
        """The text in names: `NODE_INCARNATION`."""
        return f"{self.node}_{self.incarnation}"


class SpoolFile(NamedTuple):
    """A spool file, as its name says: whose events it has, and which."""

    node: str
    incarnation: str
    first: int
    """The first event's lsn."""
    last: int
    """The last event's lsn."""

    @property
    def name(self) -> str:
        """The file's public name."""
        return file_name(*self)

    @property
    def life(self) -> Life:
        """The incarnation that gave its lsns."""
        return Life(self.node, self.incarnation)

    @property
    def events(self) -> int:
        """How many events it has."""
        return self.last - self.first + 1


class FoundFile(NamedTuple):
    """A spool file as a listing found it, in a directory or a bucket."""

    since: float
    """The time since when it is there, in seconds since the epoch."""
    name: str
    bytes: int
    file: SpoolFile
    """The parts of the name."""


def found_file(name: str, size: int, since: float) -> FoundFile | None:
    """The spool file of this name; None for a file that is none."""
    file = parse_file_name(name)
    return file and FoundFile(since, name, size, file)


def lsns_by_life(files: Iterable[SpoolFile]) -> dict[str, Lsns]:
    """The lsns of these files, by `NODE_INCARNATION`."""
    found: dict[str, Lsns] = {}
    for file in files:
        found.setdefault(str(file.life), Lsns()).add(file.first, file.last)
    return found


def parse_file_name(name: str) -> SpoolFile | None:
    """The parts of a file's name; None for a file that is no spool file."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    first, last = int(match[3]), int(match[4])
    valid = 0 < first <= last <= MAX_LSN
    return SpoolFile(match[1], match[2], first, last) if valid else None


def hidden_name(name: str, of: tuple[int, int] | None = None) -> str:
    """The name of a file *name* before it is public.

    *of*, a process and a number, make it one that no other writes.
    """
    return f".{name}" if of is None else f".{name}.{of[0]}-{of[1]}"


def parse_hidden_name(name: str) -> SpoolFile | None:
    """The parts of the name of a file that is not public, as of `parse_file_name`."""
    match = _HIDDEN.fullmatch(name)
    return match and parse_file_name(match[1])


def last_lsn(node: str, names: Iterable[str]) -> int:
    """The greatest lsn of *node* in files with these names; 0 if there are none."""
    found = (parse_file_name(name) for name in names)
    return max(
        (parsed.last for parsed in found if parsed and parsed.node == node), default=0
    )


def kept_name(first_lsn: int, last_lsn: int, generation: int) -> str:
    """The name of a file with what is needed of these lsns."""
    return f"kept-{first_lsn:020d}-{last_lsn:020d}-{generation:06d}.parquet"


def parse_kept_name(name: str) -> tuple[int, int, int] | None:
    """(first lsn, last lsn, generation), or None for any other file."""
    match = _KEPT.fullmatch(name)
    if match is None or int(match[2]) > MAX_LSN:
        return None
    return int(match[1]), int(match[2]), int(match[3])
