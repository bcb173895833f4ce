"""Files that have left the archive for good, by age or for want of room: lines of the
catalog, which tell them from files that were removed by hand.

A line is written before the files go; its files may still be there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pyarrow as pa
from attrs import define

from gateway.sdk.disk import Disk
from gateway.store import digests
from gateway.store.directories import Directories
from gateway.store.lsns import Lsns
from gateway.store.names import SpoolFile, lsns_by_life, parse_file_name
from gateway.store.node.catalog import Catalog, Line, catalogs_in
from gateway.store.node.incarnation import CONTINUES_KEY

_MOST = 100
"""Incarnations of one node that have a line each."""


class Expired(Line, frozen=True, tag="expired"):
    """The lsns of files that have left, of one incarnation of a node."""

    life: str = msgspec.field(name="key")
    """`NODE_INCARNATION`."""
    lsns: Lsns
    """The lsns, with those of earlier incarnations of its directory that have no line any more."""
    continues: str = ""
    """The incarnation before those, as their files say; empty if no file says it."""


def expired_in(directories: Directories) -> dict[str, dict[str, Lsns]]:
    """The lsns that have left the archive of a `data_dir`, by node and incarnation.

    Directories of journals may be shared: a node that ran here has one in `state/`, too.
    Raises OSError.
    """
    found: dict[str, dict[str, Lsns]] = {}
    for node, lines in catalogs_in(directories.journal).items():
        if directories.state_of(node).exists():
            for one in lines.all(Expired):
                of, _, by = one.life.rpartition("_")
                found.setdefault(of, {}).setdefault(by, Lsns()).update(one.lsns)
    return found


@define(eq=False)
class ExpiredRecord:
    """The files that leave *archive*.  Blocks."""

    _catalog: Catalog
    _archive: Path
    _disk: Disk

    def note(self, names: Iterable[str]) -> None:
        """Files with these names are about to go.  Raises OSError."""
        files = [file for name in names if (file := parse_file_name(name))]
        first = {str(file.life): file for file in reversed(files)}
        for life, lsns in lsns_by_life(files).items():
            known = self._catalog.newest(Expired, life)
            now = known or Expired(life, Lsns(), self._before(first[life]))
            if known is None or lsns - known.lsns != Lsns():
                now = msgspec.structs.replace(now, lsns=now.lsns | lsns)
                self._catalog.put(now)
            if known is None:
                self._fold(first[life].node)

    def _before(self, file: SpoolFile) -> str:
        """The incarnation before that of the file, in one directory, as the file says."""
        with contextlib.suppress(OSError, pa.ArrowException):
            data = pa.BufferReader(self._disk.read(self._archive / file.name))
            return digests.said(digests.metadata_of(data), CONTINUES_KEY) or ""
        return ""

    def _fold(self, node: str) -> None:
        """Give the lsns of the oldest incarnations to those which went on from them."""
        lines = {each.life: each for each in self._catalog.all(Expired)}
        mine = [one for one in lines.values() if one.life.rpartition("_")[0] == node]
        over = len(mine) - _MOST
        for one in mine:
            before = lines.get(f"{node}_{one.continues}")
            if over > 0 and before is not None:
                both = Expired(one.life, one.lsns | before.lsns, before.continues)
                self._catalog.put(both)
                lines[one.life] = both
                del lines[before.life]
                over -= 1
        self._catalog.replace(Expired, lines.values())
