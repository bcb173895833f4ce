"""An in-memory disk for crash tests: it records every step and fails on command.

`RecordingDisk` is a `gateway.sdk.disk.Disk`.  It keeps a `Moment` for every step that was
taken on it: what is durable, and what is at risk.  `gateway_testkit.crashes` makes of a
moment the disks that a power cut may leave; `RecordingDisk.after_kill` is the one that
kill -9 leaves, with nothing lost and nothing made durable either.
"""

from __future__ import annotations

import errno
import itertools
import os
import zlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gateway.sdk.disk import File

__all__ = [
    "Change",
    "Directory",
    "Fault",
    "Inode",
    "Moment",
    "NameChange",
    "RecordingDisk",
]


class Change(msgspec.Struct, frozen=True):
    """Bytes written at an offset, or (None) a truncation to it.

    No bytes at all make the file at least so long.
    """

    at: int
    data: bytes | None
    seams: tuple[int, ...] = ()
    """Where the chunks of one write met: the borders of headers and bodies."""
    settled: bool = False
    """Whether it is durable, though something before it is not."""
    in_doubt: bool = False
    """A sync failed on it: no later one makes it durable."""

    def apply(self, content: bytes) -> bytes:
        if self.data is None:
            return content[: self.at].ljust(self.at, b"\0")
        head = content[: self.at].ljust(self.at, b"\0")
        return head + self.data + content[self.at + len(self.data) :]


class Inode(msgspec.Struct, frozen=True):
    """A file, whatever its names."""

    base: bytes = b""
    """The durable content."""
    changes: tuple[Change, ...] = ()
    modified: float = 0.0

    def content(self, changes: Sequence[Change] | None = None) -> bytes:
        """The content after all changes, or after these."""
        content = self.base
        for change in self.changes if changes is None else changes:
            content = change.apply(content)
        return content

    def synced(self) -> Inode:
        settled = [c if c.in_doubt else replace(c, settled=True) for c in self.changes]
        base = self.base
        while settled and settled[0].settled:
            base = settled.pop(0).apply(base)
        return replace(self, base=base, changes=tuple(settled))

    def after_failed_sync(self) -> Inode:
        changes = [c if c.settled else replace(c, in_doubt=True) for c in self.changes]
        return replace(self, changes=tuple(changes))


class NameChange(msgspec.Struct, frozen=True):
    """A change to one directory: *name* leads to *inode*, and *gone* is no more."""

    name: str | None = None
    inode: int = 0
    gone: str | None = None


class Directory(msgspec.Struct, frozen=True):
    """Names to inodes."""

    durable: Mapping[str, int] = msgspec.field(default_factory=dict)
    changes: tuple[NameChange, ...] = ()

    def names(self, changes: Sequence[NameChange] | None = None) -> Mapping[str, int]:
        """The names after all changes, or after these."""
        changes = self.changes if changes is None else changes
        if not changes:
            return self.durable
        names = dict(self.durable)
        for change in changes:
            if change.gone is not None and names.get(change.gone) != change.inode:
                continue  # a rename or removal of what did not get there
            if change.gone is not None:
                del names[change.gone]
            if change.name is not None:
                names[change.name] = change.inode
        return names


class Moment(msgspec.Struct, frozen=True):
    """The disk between two steps."""

    number: int
    step: str
    """The last step, for the reader of a failure."""
    inodes: Mapping[int, Inode]
    directories: Mapping[str, Directory]
    """Directories by path: thousands of crashes look here, and a `Path` is slow to compare."""
    marks: tuple[object, ...]
    """The notes of the test so far (`RecordingDisk.mark`)."""


@dataclass(slots=True)
class Fault:
    """The calls from the *nth* on that fail (from 1); *times* of them.

    Only calls named in *calls* count: `create`, `write`, `truncate`, `sync`, `rename`,
    `unlink`, `sync_directory`, `set_times`; all of them if it is empty.
    """

    nth: int
    number: int = errno.EIO
    """The errno."""
    times: int = 1
    calls: frozenset[str] = frozenset()
    short: bool = False
    """A write that fails leaves its first half behind."""
    seen: int = 0
    failed: list[str] = field(default_factory=list)
    """Calls that were made to fail."""

    def strikes(self, call: str) -> bool:
        if self.calls and call not in self.calls:
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times


class RecordingDisk:
    """See the module's text.  Directories exist once `make_directory` was called."""

    def __init__(self, fault: Fault | None = None) -> None:
        self.fault = fault
        self.moments: list[Moment] = []
        self.wrong: list[str] = []
        """Calls that no caller may make: a sync after a failed one on the same file."""
        self.room = 1 << 40
        self.records = True
        """Whether it keeps the moments; otherwise it is quicker."""
        self._inodes: dict[int, Inode] = {}
        self._directories: dict[str, Directory] = {}
        self._marks: tuple[object, ...] = ()
        self._numbers = itertools.count(1)

    @classmethod
    def after_kill(cls, moment: Moment) -> RecordingDisk:
        """The same disk, for the process's next life."""
        disk = cls()
        disk._inodes = dict(moment.inodes)
        disk._directories = dict(moment.directories)
        disk._marks = moment.marks
        disk._numbers = itertools.count(max(moment.inodes, default=0) + 1)
        return disk

    @classmethod
    def found(
        cls,
        moment: Moment,
        contents: Mapping[int, bytes],
        names: Mapping[str, Mapping[str, int]],
    ) -> RecordingDisk:
        """The disk for the next life with this on it, all of it durable."""
        inodes = {
            number: Inode(contents.get(number, inode.base), (), inode.modified)
            for number, inode in moment.inodes.items()
        }
        directories = {path: Directory(names[path]) for path in moment.directories}
        return cls.after_kill(replace(moment, inodes=inodes, directories=directories))

    def fingerprint(self) -> Hashable:
        """Equal for disks with the same names and contents."""
        return hash(
            tuple(
                (path, name, self._inodes[number].content())
                for path, directory in sorted(self._directories.items())
                for name, number in sorted(directory.names().items())
            )
        )

    def mark(self, what: object) -> None:
        """Note something that happened beside the disk: an acknowledgement."""
        self._marks += (what,)
        self._remember(f"mark {what!r:.60}")

    @property
    def marks(self) -> tuple[object, ...]:
        """All notes, before crashes, too."""
        return self._marks

    # -- gateway.sdk.disk.Disk ----------------------------------------------------

    def create(self, path: Path) -> File:
        self.may_fail("create", path)
        parent, name = _split(path)
        if name in self._directories[parent].names():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        number = next(self._numbers)
        self._inodes[number] = Inode()
        self._rename_in(parent, NameChange(name, number))
        self._remember(f"create {path.name}")
        return _RecordedFile(self, number, path)

    def open(self, path: Path) -> File:
        return _RecordedFile(self, self._find(path), path)

    def overwrite(self, path: Path) -> File:
        return _RecordedFile(self, self._find(path), path, at=0)

    def read(self, path: Path) -> bytes:
        return self._inodes[self._find(path)].content()

    def names(self, directory: Path) -> list[str]:
        return sorted(self._directories[str(directory)].names())

    def size(self, path: Path) -> int:
        return len(self.read(path))

    def modified(self, path: Path) -> float:
        return self._inodes[self._find(path)].modified

    def fetch(self, path: Path) -> int:
        return 0

    def read_around(self, path: Path) -> bytes:
        return self.read(path)

    def changed(self, path: Path) -> float:
        return self.modified(path)

    def identity(self, path: Path) -> tuple[int, int]:
        return zlib.crc32(bytes(path)), 0

    def is_file(self, path: Path) -> bool:
        parent, name = _split(path)
        return parent in self._directories and name in self._directories[parent].names()

    def exists(self, path: Path) -> bool:
        return str(path) in self._directories or self.is_file(path)

    def rename(self, old: Path, new: Path) -> None:
        self.may_fail("rename", new)
        number = self._find(old)
        (source, gone), (target, name) = _split(old), _split(new)
        if source == target:
            self._rename_in(target, NameChange(name, number, gone))
        else:
            self._rename_in(target, NameChange(name, number))
            self._rename_in(source, NameChange(None, number, gone))
        self._remember(f"rename {old.name} to {new.name}")

    def unlink(self, path: Path) -> None:
        self.may_fail("unlink", path)
        parent, name = _split(path)
        if name in self._directories[parent].names():
            self._rename_in(parent, NameChange(None, self._find(path), name))
            self._remember(f"unlink {path.name}")

    def sync_directory(self, path: Path) -> None:
        self.may_fail("sync_directory", path)
        self._directories[str(path)] = Directory(self._directories[str(path)].names())
        self._remember(f"sync directory {path.name}")

    def make_directory(self, path: Path) -> None:
        self._directories.setdefault(str(path), Directory())

    def set_times(self, path: Path, seconds: float) -> None:
        self.may_fail("set_times", path)
        number = self._find(path)
        self._inodes[number] = replace(self._inodes[number], modified=seconds)

    def free(self, path: Path) -> int:
        return self.room

    # -- within ---------------------------------------------------------------

    def change(self, number: int, change: Change, step: str) -> None:
        """A file's own steps come in here."""
        inode = self._inodes[number]
        self._inodes[number] = replace(inode, changes=(*inode.changes, change))
        self._remember(step)

    def sync_file(self, number: int, path: Path) -> None:
        """Sync a file by its number; raises the error of the fault."""
        try:
            self.may_fail("sync", path)
        except OSError:
            self._inodes[number] = self._inodes[number].after_failed_sync()
            self._remember(f"sync of {path.name} that failed")
            raise
        self._inodes[number] = self._inodes[number].synced()
        self._remember(f"sync {path.name}")

    def length(self, number: int) -> int:
        return len(self._inodes[number].content())

    def may_fail(self, call: str, path: Path) -> None:
        """Raise what the fault has for this call."""
        if self.fault is not None and self.fault.strikes(call):
            self.fault.failed.append(f"{call} {path.name}")
            raise OSError(self.fault.number, os.strerror(self.fault.number), str(path))

    def _find(self, path: Path) -> int:
        parent, name = _split(path)
        number = self._directories[parent].names().get(name)
        if number is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return number

    def _rename_in(self, directory: str, change: NameChange) -> None:
        now = self._directories[directory]
        self._directories[directory] = replace(now, changes=(*now.changes, change))

    def _remember(self, step: str) -> None:
        if self.records:
            self.moments.append(self._moment(step))

    def _moment(self, step: str) -> Moment:
        number = len(self.moments)
        inodes, directories = dict(self._inodes), dict(self._directories)
        return Moment(number, step, inodes, directories, self._marks)


def _split(path: Path) -> tuple[str, str]:
    """The directory and the name: of an absolute path, and below the root."""
    parent, _, name = str(path).rpartition("/")
    return parent, name


class _RecordedFile:
    def __init__(
        self, disk: RecordingDisk, number: int, path: Path, at: int | None = None
    ) -> None:
        self._disk, self._number, self._path = disk, number, path
        self._at = disk.length(number) if at is None else at
        self._doubted = False
        self._closed = False

    def write(self, chunks: Sequence[bytes]) -> None:
        self._check_open()
        data = b"".join(chunks)
        try:
            self._disk.may_fail("write", self._path)
        except OSError:
            fault = self._disk.fault
            if fault is not None and fault.short:
                self._append(data[: len(data) // 2], ())
            raise
        self._append(data, tuple(itertools.accumulate(map(len, chunks)))[:-1])

    def _append(self, data: bytes, seams: tuple[int, ...]) -> None:
        at, self._at = self._at, self._at + len(data)
        step = f"write {len(data)} bytes to {self._path.name} at {at}"
        self._disk.change(self._number, Change(at, data, seams), step)

    def sync(self) -> None:
        self._check_open()
        if self._doubted:
            self._disk.wrong.append(f"{self._path.name} synced again after a failure")
        try:
            self._disk.sync_file(self._number, self._path)
        except OSError:
            self._doubted = True
            raise

    def rewrite(self, data: bytes) -> None:
        self._check_open()
        self._disk.may_fail("write", self._path)
        step = f"rewrite {len(data)} bytes of {self._path.name}"
        self._disk.change(self._number, Change(0, data), step)

    def truncate(self, size: int) -> None:
        self._check_open()
        self._disk.may_fail("truncate", self._path)
        step = f"truncate {self._path.name} to {size}"
        self._disk.change(self._number, Change(size, None), step)
        self._at = size

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self._path))
