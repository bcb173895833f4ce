"""Moves files into the archive, and none into the place of another one.

A node that was rebuilt gives its lsns again, and may bring a file under a name that is there:
what is in the other one may be nowhere else.  So the later one waits until that has gone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attrs import define, field

from gateway.sdk.disk import Disk


@define(eq=False, slots=False)
class Archiving:
    """Of one archive.  Blocks; any thread.  *tell* is told once of each file that waits."""

    _archive: Path
    _disk: Disk
    _tell: Callable[[str], None]
    _waiting: set[str] = field(factory=set, init=False)
    """Files that wait, as was told."""

    def move(self, path: Path) -> bool:
        """Whether it was moved.  Raises OSError: FileNotFoundError, if it is gone."""
        name = path.name
        if self._has_other(path):
            if name not in self._waiting:
                self._waiting.add(name)
                self._tell(
                    f"{path} waits until a file of an earlier life of its node, which has "
                    f"the same name, has left {self._archive}"
                )
            return False
        self._waiting.discard(name)
        self._disk.rename(path, self._archive / name)
        return True

    def _has_other(self, path: Path) -> bool:
        disk, there = self._disk, self._archive / path.name
        if not disk.exists(there):
            return False
        if path.name in self._waiting or disk.size(there) != disk.size(path):
            return True
        # Or it came again, or a power cut undid the half of a rename.
        return disk.read(there) != disk.read(path)
