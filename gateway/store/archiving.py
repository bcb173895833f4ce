"""Moves files into the archive, and none into the place of another one.

A node that was rebuilt gives its lsns again, and may bring a file under a name that is there:
what is in the other one may be nowhere else.  So the later one waits until that has gone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attrs import define, field
from twisted.logger import Logger

from gateway.sdk.disk import Disk


@define(eq=False, slots=False)
class Archiving:
    """Of one archive.  Blocks; any thread.

    *are_same* says of two files of one name whether one came again: None, if they have the
    same bytes.
    """

    _log = Logger()

    _archive: Path
    _disk: Disk
    _are_same: Callable[[Path, Path], bool] | None = None
    _waiting: set[str] = field(factory=set, init=False)
    """Files that wait, as was told."""

    def move(self, path: Path) -> bool:
        """Whether it went there, or was there.  Raises OSError: FileNotFoundError, if it is
        gone.
        """
        name = path.name
        there = self._archive / name
        if not self._disk.exists(there):
            self._disk.rename(path, there)
        elif name not in self._waiting and self._is_same(path, there):
            # It came again, or a power cut undid the half of a rename.
            self._disk.unlink(path)
        else:
            if name not in self._waiting:
                self._waiting.add(name)
                self._log.warn(
                    "{path} waits until a file of an earlier life of its node, which has "
                    "the same name, has left {archive}",
                    path=path,
                    archive=self._archive,
                )
            return False
        self._waiting.discard(name)
        return True

    def _is_same(self, path: Path, there: Path) -> bool:
        if self._are_same is not None:
            return self._are_same(path, there)
        disk = self._disk
        return disk.size(there) == disk.size(path) and disk.read(there) == disk.read(
            path
        )
