"""The outbox directory: which files wait in it, in which order, and what becomes of them.

    outbox/0001.json                  a file of pushes, as `rows` reads it
    outbox/part-….snappy.parquet
    outbox/batch-7/part-….json        as Spark's writers leave them
    outbox/.done/                     taken already; kept for `retention`
    outbox/.bad-NAME                  set aside, with its reason in .bad-NAME.reason
    outbox/.pushed                    the names of files that were pushed (`pushed`)

A file is there once its name is: write it elsewhere or under a hidden name, then rename
it.  Files are taken in the order of their names, those first that are there when one
looks: a directory of 100,000 is not listed again for each of them.  One that can not be
taken is set aside, whole, and the next one is taken.  Only regular files are opened, and
no symbolic link is followed.

A file's name is its identity: once it was taken, no other of that name is, while the
name is remembered.  Taking a file is: move it to `.done`, sync both directories, note
its name.  Its first push is sent after that.  So whatever happens between two of these
steps, its pushes may be lost, and none is sent twice.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from attrs import define
from twisted.logger import Logger

from gateway.protocols.pomelo.push.pushed import PushedNames
from gateway.protocols.pomelo.push.row import Row
from gateway.protocols.pomelo.push.rows import BrokenFile, read
from gateway.sdk.disk import Disk

_SPARK_METADATA = "_spark_metadata"
_BAD, _REASON = ".bad-", ".reason"
_MOST_NAME = 255
_SPARK_PART = re.compile(r"(part-\d+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The UUID in the names that Spark's writers give is another one at each attempt."""
_CHUNK_ROWS = 256
_CHUNK_BYTES = 1 << 20
"""Bytes at which a chunk ends; its last row may be larger."""


class _NotNoted(Exception):
    """The name of a file can not be noted; it stays where it is, and waits."""


@define(eq=False)
class File:
    """A file that was taken; its methods block."""

    name: str
    _file: BinaryIO
    _rows: Iterator[Row]
    written_at: float
    """Seconds since the epoch: when its pushes began to age."""

    def chunk(self) -> list[Row]:
        """The next rows, some 1 MiB; none at the end.  Raises `BrokenFile` if the file has changed."""
        chunk: list[Row] = []
        size = 0
        for row in islice(self._rows, _CHUNK_ROWS):
            chunk.append(row)
            size += row.size
            if size >= _CHUNK_BYTES:
                break
        return chunk

    def close(self) -> None:
        self._file.close()


@define(eq=False, slots=False)
class Folder:
    """The outbox directory; its methods block, and belong in a thread.

    `retention` is in seconds, 0 to keep nothing; *file_bytes* is the limit.
    """

    _log = Logger()

    _path: Path
    _pushed: PushedNames
    _disk: Disk
    retention: float
    _file_bytes: int

    def __attrs_post_init__(self) -> None:
        self._done = self._path / ".done"
        self._sinks: set[Path] = set()
        self._stuck: set[tuple[Path, int]] = set()
        """Paths and inodes of what could not even be set aside."""
        self._waits = False
        """The disk takes no names, and the log says so."""
        self._left: Iterator[os.DirEntry[str]] | None = None
        """Files of the last look that have not had their turn."""
        self.set_aside = 0
        """Files that could not be taken."""
        self.trouble: str | None = None
        """Why the last file was not taken."""
        self.repeated = 0
        """Files that were not taken, because one of their name was."""

    @property
    def remembered(self) -> int:
        """Names of files that are not taken again."""
        return len(self._pushed)

    def take(self) -> File | None:
        """The next file, readable to its end and renamed durably, each once; None if there is none."""
        if self._left is not None and (file := self._take_next(self._left)) is not None:
            return file
        self._make_again()
        self._left = self._waiting()
        return self._take_next(self._left)

    def forget(self) -> None:
        """Forget the names that were remembered long enough, and what is stuck no more."""
        self._pushed.forget()
        self._stuck = {key for key in self._stuck if os.path.lexists(key[0])}

    def sweep(self) -> None:
        """Remove the files that were taken longer than `retention` ago, by their names."""
        oldest = time.time_ns() - int(self.retention * 1e9)
        for entry in list(os.scandir(self._done)):
            taken_at = entry.name.partition("-")[0]
            if taken_at.isdecimal() and int(taken_at) <= oldest:
                with contextlib.suppress(OSError):
                    Path(entry.path).unlink()

    def prepare(self) -> None:
        """Make the directory, and read what was pushed.  Raises OSError."""
        self._done.mkdir(parents=True, exist_ok=True)
        self._pushed.open()
        if self._pushed.damaged:
            self._log.error(
                "outbox: {count} names of files that were pushed can not be read: such a "
                "file would be pushed again",
                count=self._pushed.damaged,
            )

    def _make_again(self) -> None:
        """Make our directory again if it was removed."""
        if self._done.is_dir():
            return
        self._done.mkdir(parents=True, exist_ok=True)
        self._pushed.close()  # the names are written anew with the next one
        self._log.warn("outbox: {path} was removed, and made again", path=self._done)

    # Which files wait

    def _take_next(self, left: Iterator[os.DirEntry[str]]) -> File | None:
        self._left = None
        for entry in left:
            path = Path(entry.path)
            try:
                if (file := self._take(path)) is not None:
                    self._left, self.trouble = left, None
                    return file
            except FileNotFoundError:
                continue
            except _NotNoted as why:
                self._tell_waiting(str(why))
                return None
            except (BrokenFile, OSError) as why:
                self._set_aside(path, entry.inode(), str(why))
        return None

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
        with contextlib.suppress(OSError):  # it is not ours, or not there any more
            if (path / "_SUCCESS").exists() and not (entries and self._visible(path)):
                for each in (path / "_SUCCESS", *path.glob(".*.crc")):
                    each.unlink(missing_ok=True)
                if not any(path.iterdir()):
                    path.rmdir()

    def _visible(self, folder: Path) -> list[os.DirEntry[str]]:
        """Files without `.hidden`, `_temporary` and `_SUCCESS`, as Spark itself sees them."""
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

    def _take(self, path: Path) -> File | None:
        """Open, read and move it; None if pushed before.  Raises `BrokenFile`, `_NotNoted`, OSError."""
        inside = path.relative_to(self._path)
        name = identity(inside)
        file = self._open(path)
        try:
            if (ago := self._pushed.ago(name)) is not None:
                self._pass_over(path, ago)
                file.close()
                return None
            for _ in read(file, path.name, self._file_bytes):
                pass
            self._finish(path, name)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        rows = read(file, path.name, self._file_bytes)
        written_at = os.fstat(file.fileno()).st_mtime
        return File(_shown(str(inside)), file, rows, written_at)

    def _pass_over(self, path: Path, ago: float) -> None:
        """Move it away unread: a file of its name was pushed so many seconds ago."""
        self.repeated += 1
        self._log.warn(
            "outbox: {name} is not pushed: a file of this name was, {seconds} s ago "
            "(options.outbox.remember)",
            name=_shown(str(path.relative_to(self._path))),
            seconds=round(ago),
        )
        self._remove(path, self._move(path))

    def _open(self, path: Path) -> BinaryIO:
        kind = stat.S_IFMT(path.lstat().st_mode)
        if kind == stat.S_IFDIR:
            raise BrokenFile("a directory inside a directory")
        if kind != stat.S_IFREG:
            raise BrokenFile("not a regular file")
        # It may have become something else by now: O_NONBLOCK does not wait for a FIFO.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.fdopen(os.open(path, flags), "rb")
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            file.close()
            raise BrokenFile("not a regular file")
        if found.st_size > self._file_bytes:
            file.close()
            raise BrokenFile(
                f"{found.st_size} bytes, limit {self._file_bytes} "
                "(options.outbox.file_bytes)"
            )
        return file

    def _finish(self, path: Path, name: str) -> None:
        """Move it to `.done` and note its name: neither it nor a copy is taken again."""
        kept = self._move(path)
        try:
            self._disk.sync_directory(self._done)
            self._disk.sync_directory(path.parent)
        except OSError:
            kept.rename(path)
            raise
        try:
            self._pushed.add(name)
        except OSError as why:
            kept.rename(path)
            raise _NotNoted(str(why)) from why
        if self._waits:
            self._waits = False
            self._log.info("outbox: files are pushed again")
        self._remove(path, kept)

    def _move(self, path: Path) -> Path:
        kept = self._done / _fitting(f"{time.time_ns()}-", path.name)
        self._disk.rename(path, kept)
        return kept

    def _remove(self, path: Path, kept: Path) -> None:
        """Remove a file that is in `.done`, where it stays for `retention`."""
        with contextlib.suppress(OSError):  # it is taken all the same, and swept later
            if not self.retention:
                kept.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    def _tell_waiting(self, why: str) -> None:
        waits = "files wait, because their names can not be noted in .pushed"
        if not self._waits:
            self._waits = True
            self._log.error(f"outbox: {waits}: {{why}}", why=why)
        self.trouble = f"the outbox's {waits}: {why}"

    def _set_aside(self, path: Path, inode: int, why: str) -> None:
        self.set_aside += 1
        name, why = _shown(str(path.relative_to(self._path))), _shown(why)
        self._log.error("outbox: {name} set aside: {why}", name=name, why=why)
        self.trouble = f"the outbox's newest file, {name}, was set aside unread: {why}"
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


def identity(inside: Path) -> str:
    """The name by which a file of the outbox is remembered; *inside* is its path there.

    In a directory the names of Spark's parts have no UUID: a batch that is written again
    has another one.
    """
    name = inside.name
    if inside.parent.name:
        name = _SPARK_PART.sub(r"\1", name, count=1)
    return _shown(str(inside.with_name(name)))


def _fitting(prefix: str, name: str, suffix: str = "") -> str:
    """*prefix* and *name*, cut at its begin to fit a file's name with room for *suffix*."""
    most = _MOST_NAME - len(prefix) - len(suffix)
    encoded = os.fsencode(name)
    if len(encoded) > most:
        mark = f"{crc32(encoded):08x}-"
        name = mark + os.fsdecode(encoded[len(mark) - most :])
    return prefix + name


def _shown(text: str) -> str:
    """A file's name for the log: it need not be UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()
