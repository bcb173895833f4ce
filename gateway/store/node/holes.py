"""Holes: lsns that were acknowledged, and that the journal's disk did not give back.

They are in the record of the incarnation that gave them, a line of the catalog.  No file has
them: one ends before a hole, and the next one begins behind it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gateway.store.lsns import Lsns
from gateway.store.node.catalog import Line, Lines


class Holes(Line, frozen=True, tag="holes"):
    """The holes of one incarnation."""

    incarnation: str = msgspec.field(name="key")
    lsns: Lsns


def all_of(holes: Mapping[str, Lsns]) -> Lsns:
    """The holes of all incarnations of one directory, whose lsns are given once."""
    return Lsns.joined(holes.values())


def holes_in(lines: Lines) -> Mapping[str, Lsns]:
    """The holes by incarnation."""
    return {one.incarnation: one.lsns for one in lines.all(Holes)}
