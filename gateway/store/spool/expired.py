"""Which of each node's files have left the archive for good: kept beside its state, so
that what retention removed is told from what somebody removed.

    state/NODE/expired     {"lsns": {incarnation: [[first, last], …]}}, a `statefile`

It is written before the files go; what it speaks of may still be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from attrs import define

from gateway.sdk.disk import Disk
from gateway.store.lsns import Lsns
from gateway.store.names import parse_file_name
from gateway.store.system.statefile import StateFile

NAME = "expired"


class Expired(msgspec.Struct, frozen=True, omit_defaults=True):
    """What has left the archive of one node."""

    lsns: Mapping[str, Lsns] = {}
    """The lsns of files that retention may have removed, by incarnation."""

    def joined(self, more: Mapping[str, Lsns]) -> Expired:
        """When files go, too, that have these lsns."""
        known = self.lsns
        return Expired(
            {**known, **{by: known.get(by, Lsns()) | each for by, each in more.items()}}
        )


@define(eq=False, slots=False)
class ExpiredRecord:
    """Of all nodes of an archive, below the directory `state`.  Blocks."""

    _state: Path
    _disk: Disk

    def __attrs_post_init__(self) -> None:
        self._known: dict[str, Expired] = {}

    def note(self, names: Iterable[str]) -> None:
        """Files with these names are about to go.  Raises OSError."""
        gone: dict[str, dict[str, Lsns]] = {}
        for name in names:
            if (file := parse_file_name(name)) is not None:
                lsns = gone.setdefault(file.node, {}).setdefault(
                    file.incarnation, Lsns()
                )
                lsns.add(file.first, file.last)
        for node, more in gone.items():
            before = self._of(node)
            if (now := before.joined(more)) != before:
                self._disk.make_directory(self._state / node)
                self._file(node).write(now)
                self._known[node] = now

    def _of(self, node: str) -> Expired:
        if node not in self._known:
            found, _ = self._file(node).read()
            self._known[node] = found or Expired()
        return self._known[node]

    def _file(self, node: str) -> StateFile[Expired]:
        return StateFile(self._state / node / NAME, Expired, self._disk)
