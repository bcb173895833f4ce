"""How far each node's files have left the archive for good: kept beside its state, so
that what retention removed is told from what somebody removed.

    state/NODE/expired     {"last": lsn}, a `statefile`

It is written before the files go; what it speaks of may still be there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from attrs import define

from gateway.sdk.disk import Disk
from gateway.store.names import parse_file_name
from gateway.store.statefile import StateFile

NAME = "expired"


class Expired(msgspec.Struct, frozen=True):
    """What has left the archive of one node."""

    last: int = 0
    """The greatest lsn of these: retention may have removed what has it, and all before."""


@define(eq=False, slots=False)
class ExpiredRecord:
    """Of all nodes, below the directory `state`.  Blocks."""

    _state: Path
    _disk: Disk

    def __attrs_post_init__(self) -> None:
        self._known: dict[str, int] = {}

    def note(self, names: Iterable[str]) -> None:
        """Files with these names are about to go.  Raises OSError."""
        last: dict[str, int] = {}
        for name in names:
            if (parsed := parse_file_name(name)) is not None:
                last[parsed.node] = max(last.get(parsed.node, 0), parsed.last)
        for node, lsn in last.items():
            if lsn > self._last(node):
                self._write(node, lsn)

    def _last(self, node: str) -> int:
        if node not in self._known:
            found, _ = self._file(node).read()
            self._known[node] = found.last if found is not None else 0
        return self._known[node]

    def _write(self, node: str, lsn: int) -> None:
        self._disk.make_directory(self._state / node)
        self._file(node).write(Expired(lsn))
        self._known[node] = lsn

    def _file(self, node: str) -> StateFile[Expired]:
        return StateFile(self._state / node / NAME, Expired, self._disk)
