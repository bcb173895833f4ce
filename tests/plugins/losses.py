"""Segments of a journal that are damaged, and what a start says is lost of it."""

from pathlib import Path
from typing import Any

__all__ = ["damage", "losses", "places"]

_ZEROS = 64  # the header, and some of what is behind it


def damage(path: Path) -> None:
    """Make it no segment any more: it begins with zeros."""
    path.write_bytes(bytes(_ZEROS) + path.read_bytes()[_ZEROS:])


def losses(found: Any) -> list[tuple[int, int]]:
    """What *found*, of a journal or a node, is lost: first lsn, and how many events."""
    return [(one.first_lsn, one.events) for one in found.losses]


def places(found: Any) -> list[tuple[int, int, int]]:
    """First and last lsn of each segment, and how many events in it are lost."""
    return [(one.first_lsn, one.last_lsn, one.lost) for one in found.segments]
