"""Names of spool files: `events-<node>-<first lsn>-<last lsn>.parquet`, a contract
(docs/design.md §4).  And those of what is retained of such files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from gateway.event import MAX_LSN

_NAME = re.compile(r"events-([a-z0-9.-]+)-(\d{20})-(\d{20})\.parquet", re.ASCII)
_HIDDEN = re.compile(rf"\.({_NAME.pattern})(\.\d+-\d+)?", re.ASCII)

_KEPT = re.compile(r"kept-(\d{20})-(\d{20})-(\d{6})\.parquet")


#: Spark reads a path as a pattern, and can not read one with a colon at all.
_ODD = frozenset("*?[]{}\\:")


def odd_for_spark(path: str) -> str:
    """What of a directory's path keeps Spark from reading it: such characters, with
    spaces between; empty if nothing does.
    """
    return " ".join(sorted(_ODD.intersection(path)))


def is_node_name(text: str) -> bool:
    """Whether files can be named by it."""
    return parse_file_name(file_name(text, 1, 1)) is not None


def file_name(node: str, first_lsn: int, last_lsn: int) -> str:
    """The public name of the file with these events."""
    return f"events-{node}-{first_lsn:020d}-{last_lsn:020d}.parquet"


class Named(NamedTuple):
    """What the name of a file says: which events it has."""

    node: str
    first: int
    """Their first lsn …"""
    last: int
    """… and the last one."""


def parse_file_name(name: str) -> Named | None:
    """None for any other file."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    first, last = int(match[2]), int(match[3])
    return Named(match[1], first, last) if 0 < first <= last <= MAX_LSN else None


def hidden_name(name: str, of: tuple[int, int] | None = None) -> str:
    """The name of a file *name* before it is public.

    *of*, a process and a number, make it one that nobody else writes.
    """
    return f".{name}" if of is None else f".{name}.{of[0]}-{of[1]}"


def parse_hidden_name(name: str) -> Named | None:
    """As `parse_file_name`, of a file that is not public."""
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
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))
