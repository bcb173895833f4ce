"""How far each node's files have left the archive for good: kept beside its state, so
that what retention removed is told from what somebody removed.

    state/NODE/expired     {"last": lsn, "lives": {incarnation: lsn}}, a `statefile`

It is written before the files go; what it speaks of may still be there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from attrs import define

from gateway.sdk.disk import Disk
from gateway.store import digests
from gateway.store.names import parse_file_name
from gateway.store.statefile import StateFile

NAME = "expired"
_MOST_LIVES = 64
"""Of a node; the oldest go, as in marks of consumers."""


class Expired(msgspec.Struct, frozen=True, omit_defaults=True):
    """What has left the archive of one node."""

    last: int = 0
    """The greatest lsn of these: retention may have removed what has it, and all before."""
    lives: Mapping[str, int] = {}
    """Likewise that of each incarnation; under "" that of whom is not known, which counts for
    each."""

    @property
    def of(self) -> Mapping[str, int]:
        """`lives`; an earlier version said nothing of those."""
        return self.lives or ({"": self.last} if self.last else {})

    def joined(self, last: Mapping[str, int]) -> Expired:
        """When files go, too, that have these lsns, by incarnation."""
        lives = {**self.of}
        for life, lsn in last.items():
            lives[life] = max(lsn, lives.get(life, 0))
        kept = dict([*lives.items()][-_MOST_LIVES:])
        return Expired(max(self.last, *last.values()), kept)


@define(eq=False, slots=False)
class ExpiredRecord:
    """Of all nodes of an *archive*, below the directory `state`.  Blocks."""

    _state: Path
    _archive: Path
    _disk: Disk

    def __attrs_post_init__(self) -> None:
        self._known: dict[str, Expired] = {}

    def note(self, names: Iterable[str]) -> None:
        """Files with these names are about to go.  Raises OSError."""
        gone: dict[str, dict[str, int]] = {}
        for name in names:
            if (parsed := parse_file_name(name)) is not None:
                last, life = gone.setdefault(parsed.node, {}), self._life_of(name)
                last[life] = max(last.get(life, 0), parsed.last)
        for node, last in gone.items():
            before = self._of(node)
            if (now := before.joined(last)) != before:
                self._disk.make_directory(self._state / node)
                self._file(node).write(now)
                self._known[node] = now

    def _life_of(self, name: str) -> str:
        with contextlib.suppress(OSError):  # it has gone already, for want of room
            return digests.incarnation_of(self._archive / name)
        return ""

    def _of(self, node: str) -> Expired:
        if node not in self._known:
            found, _ = self._file(node).read()
            self._known[node] = found or Expired()
        return self._known[node]

    def _file(self, node: str) -> StateFile[Expired]:
        return StateFile(self._state / node / NAME, Expired, self._disk)
