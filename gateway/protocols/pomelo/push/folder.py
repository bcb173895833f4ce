"""The outbox directory: which files wait in it, in which order, and what becomes of them.

    outbox/0001.json                  a file of pushes, as `rows` reads it
    outbox/part-….snappy.parquet
    outbox/batch-7/part-….json        as Spark's writers leave them
    outbox/.done/                     read already; kept for `retention`

A file is there once its name is: write it elsewhere or under a hidden name, then rename
it.  Files are read in the order of their names.  A file that can not be read is renamed
to `.bad-NAME`, whole.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from twisted.logger import Logger

from gateway.protocols.pomelo.push.message import Push
from gateway.protocols.pomelo.push.rows import Unreadable, read

__all__ = ["Batch", "Folder"]

_SPARK_METADATA = "_spark_metadata"


class Batch(NamedTuple):
    """The pushes of one file."""

    name: str
    pushes: list[Push]


class Folder:
    """The outbox directory; its methods block, and belong in a thread."""

    _log = Logger()

    def __init__(self, path: Path, retention: float, file_bytes: int) -> None:
        """*retention* is in seconds, 0 to keep nothing; *file_bytes* is the limit."""
        self._path = path
        self._done = path / ".done"
        self._retention = retention
        self._file_bytes = file_bytes
        self._reported: set[Path] = set()
        self.set_aside = 0
        """Files that could not be read."""

    def take(self) -> Batch | None:
        """The pushes of the next file, each file once; None if there is none."""
        for path in self._waiting():
            name = str(path.relative_to(self._path))
            try:
                pushes = read(path, self._file_bytes)
            except (Unreadable, OSError) as why:
                self._log.error(
                    "outbox: {name} set aside: {why}", name=name, why=str(why)
                )
                path.rename(path.with_name(f".bad-{path.name}"))
                self.set_aside += 1
                continue
            self._finish(path)
            return Batch(name, pushes)
        return None

    def sweep(self) -> None:
        """Remove the files that were read longer than `retention` ago."""
        oldest = time.time() - self._retention
        for path in self._done.iterdir():
            if path.stat().st_mtime <= oldest:
                path.unlink()

    def prepare(self) -> None:
        """Make the directory."""
        self._done.mkdir(parents=True, exist_ok=True)

    def _waiting(self) -> Iterator[Path]:
        for path in _visible(self._path):
            if path.is_dir():
                yield from self._inside(path)
            elif not self._is_sink(self._path):
                yield path

    def _inside(self, folder: Path) -> Iterator[Path]:
        if self._is_sink(folder):
            return
        files = [path for path in _visible(folder) if path.is_file()]
        yield from files
        if not files and (folder / "_SUCCESS").exists():
            for path in (folder / "_SUCCESS", *folder.glob(".*.crc")):
                path.unlink(missing_ok=True)
            if not any(folder.iterdir()):
                folder.rmdir()

    def _is_sink(self, folder: Path) -> bool:
        if not (folder / _SPARK_METADATA).exists():
            return False
        if folder not in self._reported:
            self._reported.add(folder)
            self._log.error(
                "outbox: {folder} is ignored: Spark's streaming file sink writes files "
                "under their final names; write in foreachBatch",
                folder=str(folder),
            )
        return True

    def _finish(self, path: Path) -> None:
        kept = self._done / f"{time.time_ns()}-{path.name}"
        path.rename(kept)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        if self._retention:
            os.utime(kept)
        else:
            kept.unlink()


def _visible(folder: Path) -> list[Path]:
    """Without `.hidden`, `_temporary` and `_SUCCESS`, as Spark itself sees it."""
    return sorted(path for path in folder.iterdir() if path.name[0] not in "._")
