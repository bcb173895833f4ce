"""The outbox directory: which files wait in it, in which order, and what becomes of them.

    outbox/0001.json                  a file of pushes, as `rows` reads it
    outbox/part-….snappy.parquet
    outbox/batch-7/part-….json        as Spark's writers leave them
    outbox/.done/                     taken already; kept for `retention`
    outbox/.bad-NAME                  set aside, with its reason in .bad-NAME.reason

A file is there once its name is: write it elsewhere or under a hidden name, then rename
it.  Files are taken in the order of their names.  One that can not be taken is set
aside, whole, and the next one is taken.  Only regular files are opened, and no symbolic
link is followed.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from twisted.logger import Logger

from gateway.protocols.pomelo.push.rows import Row, Unreadable, read

__all__ = ["File", "Folder"]

_SPARK_METADATA = "_spark_metadata"
_BAD, _REASON = ".bad-", ".reason"
_MOST_NAME = 255
_CHUNK_ROWS = 256
_CHUNK_BYTES = 1 << 20
"""At which a chunk ends; its last row may be larger."""


class File:
    """A file that was taken; its methods block."""

    def __init__(self, name: str, file: BinaryIO, rows: Iterator[Row]) -> None:
        self.name = name
        self._file = file
        self._rows = rows

    def chunk(self) -> list[Row]:
        """The next rows, of about 1 MiB together; none when all were read.

        Raises `Unreadable` if the file changed since it was checked.
        """
        chunk: list[Row] = []
        size = 0
        for row in islice(self._rows, _CHUNK_ROWS):
            chunk.append(row)
            size += len(row.body)
            if size >= _CHUNK_BYTES:
                break
        return chunk

    def close(self) -> None:
        """Read nothing more."""
        self._file.close()


class Folder:
    """The outbox directory; its methods block, and belong in a thread."""

    _log = Logger()

    def __init__(self, path: Path, retention: float, file_bytes: int) -> None:
        """*retention* is in seconds, 0 to keep nothing; *file_bytes* is the limit."""
        self._path = path
        self._done = path / ".done"
        self._retention = retention
        self._file_bytes = file_bytes
        self._sinks: set[Path] = set()
        self._stuck: set[tuple[Path, int]] = set()
        """Paths and inodes of what could not even be set aside."""
        self.set_aside = 0
        """Files that could not be taken."""

    def take(self) -> File | None:
        """The next file, each file once; None if there is none.

        It is readable to its end, and its rename is on disk.
        """
        for entry in self._waiting():
            path = Path(entry.path)
            try:
                return self._take(path)
            except FileNotFoundError:
                continue
            except (Unreadable, OSError) as why:
                self._set_aside(path, entry.inode(), str(why))
        return None

    def sweep(self) -> None:
        """Remove the files that were taken longer than `retention` ago."""
        oldest = time.time() - self._retention
        for entry in list(os.scandir(self._done)):
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime <= oldest:
                    Path(entry.path).unlink()
        self._stuck = {key for key in self._stuck if os.path.lexists(key[0])}

    def prepare(self) -> None:
        """Make the directory."""
        self._done.mkdir(parents=True, exist_ok=True)

    # Which files wait

    def _waiting(self) -> Iterator[os.DirEntry[str]]:
        sink = self._is_sink(self._path)
        for entry in self._visible(self._path):
            if entry.is_dir(follow_symlinks=False):
                yield from self._inside(entry)
            elif not sink:
                yield entry

    def _inside(self, folder: os.DirEntry[str]) -> Iterator[os.DirEntry[str]]:
        path = Path(folder.path)
        try:
            if self._is_sink(path):
                return
            entries = self._visible(path)
        except OSError as why:
            self._set_aside(path, folder.inode(), str(why))
            return
        yield from entries
        if not entries and (path / "_SUCCESS").exists():
            for each in (path / "_SUCCESS", *path.glob(".*.crc")):
                each.unlink(missing_ok=True)
            if not any(path.iterdir()):
                path.rmdir()

    def _visible(self, folder: Path) -> list[os.DirEntry[str]]:
        """Without `.hidden`, `_temporary` and `_SUCCESS`, as Spark itself sees it."""
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if entry.name[0] not in "._"]
        if self._stuck:
            found = [
                entry
                for entry in found
                if (Path(entry.path), entry.inode()) not in self._stuck
            ]
        return sorted(found, key=lambda entry: entry.name)

    def _is_sink(self, folder: Path) -> bool:
        if not (folder / _SPARK_METADATA).exists():
            return False
        if folder not in self._sinks:
            self._sinks.add(folder)
            self._log.error(
                "outbox: {folder} is ignored: Spark's streaming file sink writes files "
                "under their final names; write in foreachBatch",
                folder=str(folder),
            )
        return True

    # What becomes of a file

    def _take(self, path: Path) -> File:
        """Open it, read all of it once, and move it away.

        Raises `Unreadable`, or OSError.
        """
        file = self._open(path)
        try:
            for _ in read(file, path.name, self._file_bytes):
                pass
            self._finish(path)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        name = _shown(str(path.relative_to(self._path)))
        return File(name, file, read(file, path.name, self._file_bytes))

    def _open(self, path: Path) -> BinaryIO:
        kind = stat.S_IFMT(path.lstat().st_mode)
        if kind == stat.S_IFDIR:
            raise Unreadable("a directory inside a directory")
        if kind != stat.S_IFREG:
            raise Unreadable("not a regular file")
        # It may have become something else by now: O_NONBLOCK does not wait for a FIFO.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.fdopen(os.open(path, flags), "rb")
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            file.close()
            raise Unreadable("not a regular file")
        if found.st_size > self._file_bytes:
            file.close()
            raise Unreadable(
                f"{found.st_size} bytes, limit {self._file_bytes} "
                "(options.outbox.file_bytes)"
            )
        return file

    def _finish(self, path: Path) -> None:
        """Move it to `.done`, so that it is not taken again after a crash."""
        kept = self._done / _fitting(f"{time.time_ns()}-", path.name)
        path.rename(kept)
        try:
            _sync(self._done)
            _sync(path.parent)
        except OSError:
            kept.rename(path)
            raise
        with contextlib.suppress(OSError):
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        if self._retention:
            os.utime(kept)
        else:
            kept.unlink()

    def _set_aside(self, path: Path, inode: int, why: str) -> None:
        self.set_aside += 1
        name, why = _shown(str(path.relative_to(self._path))), _shown(why)
        self._log.error("outbox: {name} set aside: {why}", name=name, why=why)
        bad = path.with_name(_fitting(_BAD, path.name, _REASON))
        try:
            path.rename(bad)
        except OSError as error:
            self._stuck.add((path, inode))
            self._log.error(
                "outbox: {name} stays where it is, unread: {why}",
                name=name,
                why=error.strerror,
            )
            return
        reason = bad.with_name(bad.name + _REASON)
        with contextlib.suppress(OSError):
            reason.unlink(missing_ok=True)
            with reason.open("x", encoding="utf-8") as file:
                file.write(f"{why}\n")


def _fitting(prefix: str, name: str, suffix: str = "") -> str:
    """*prefix* and *name*, cut at its begin if no file could be called so.

    There is room left for *suffix*.
    """
    most = _MOST_NAME - len(prefix) - len(suffix)
    encoded = os.fsencode(name)
    if len(encoded) > most:
        mark = f"{crc32(encoded):08x}-"
        name = mark + os.fsdecode(encoded[len(mark) - most :])
    return prefix + name


def _shown(text: str) -> str:
    """For the log: names of files need not be UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _sync(folder: Path) -> None:
    found = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(found)
    finally:
        os.close(found)
