"""A disk in memory that outlives the gateway's lives, and does to them what disks do.

    kill        everything that was written is there, synced or not
    power cut   of what was not synced any part: writes torn, zeros, names undone
    full        no room at all, for a while, or less and less of it
    fails       calls raise EIO, for a while; a failed sync leaves its data in doubt
    hangs       a call returns when the world says so
    rots        synced bytes change

Each life has a `Session` of its own: what is left of a dead one can do no more.
"""

import errno
import os
import random
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from gateway.sdk.disk import File
from gateway_testkit.crashes import random_content, random_names
from gateway_testkit.disk import Change, Directory, Inode, NameChange
from simulation.scheduler import Killed, Scheduler

__all__ = ["Faults", "Session", "SimulatedDisk"]

_SECTOR = 512


class Faults:
    """What is wrong with the disk just now; times are by the world's clock."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.calls: frozenset[str] = frozenset()
        """Calls that may fail …"""
        self.probability = 0.0
        """… so often …"""
        self.until = 0.0
        """… for so long."""
        self.hang = 0.0
        """How long the next call takes."""
        self.no_memory = False
        """The next call of the spool's thread finds no memory."""
        self.taken = 0
        """Bytes that somebody else has taken."""
        self.struck = 0
        self.refused = 0
        """Writes for which there was no room."""

    def strikes(self, call: str, now: float) -> bool:
        """Whether this call fails."""
        if now >= self.until or call not in self.calls:
            return False
        if self._chance.random() >= self.probability:
            return False
        self.struck += 1
        return True

    def end(self) -> None:
        """The disk is as good as new."""
        self.until = self.hang = 0.0
        self.no_memory = False
        self.taken = 0


class SimulatedDisk:
    """What is on it."""

    def __init__(self, chance: random.Random, clock: Callable[[], float]) -> None:
        self._chance = chance
        self.wall_clock = clock
        self.faults = Faults(chance)
        self.capacity = 1 << 30
        self.generation = 0
        """Of its inodes; 0: it keeps none."""
        self.inodes: dict[int, Inode] = {}
        self.contents: dict[int, bytearray] = {}
        """What each holds, unsynced bytes too."""
        self.changed: dict[int, float] = {}
        self.directories: dict[str, Directory] = {}
        self.names: dict[str, dict[str, int]] = {}
        """What is in each, unsynced names too."""
        self.notes: dict[int, str] = {}
        """What is known of an inode beside its bytes; its writer made it."""
        self.used = 0
        self.power_cuts = 0
        self.unreadable: dict[int, int] = {}
        """Inodes with a sector that can not be read, by where it begins."""
        self._whole: dict[int, Inode] = {}
        """Inodes that have rotted, as they were."""
        self._last = 0

    def create(self) -> int:
        """A new inode."""
        self._last += 1
        self.inodes[self._last] = Inode()
        self.contents[self._last] = bytearray()
        self.changed[self._last] = self.wall_clock()
        return self._last

    def make_directory(self, path: Path) -> None:
        """With its parents."""
        for each in map(str, (*reversed(path.parents), path)):
            self.directories.setdefault(each, Directory())
            self.names.setdefault(each, {})

    def find(self, path: Path) -> int:
        """The inode of a name."""
        directory, name = os.path.split(path)
        number = self.names.get(directory, {}).get(name)
        if number is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return number

    def read(self, path: Path) -> bytes:
        """All of it, for the world itself."""
        return bytes(self.contents[self.find(path)])

    def change(self, number: int, change: Change) -> None:
        """Not durable yet."""
        inode, content = self.inodes[number], self.contents[number]
        self.inodes[number] = replace(inode, changes=(*inode.changes, change))
        before = len(content)
        if change.data is None:
            del content[change.at :]
            content.extend(bytes(change.at - len(content)))
        else:
            content.extend(bytes(max(0, change.at - len(content))))
            content[change.at : change.at + len(change.data)] = change.data
        self.used += len(content) - before

    def change_names(self, directory: str, change: NameChange) -> None:
        """Not durable yet."""
        now = self.directories[directory]
        self.directories[directory] = replace(now, changes=(*now.changes, change))
        names = self.names[directory]
        if change.gone is not None:
            del names[change.gone]
        if change.name is not None:
            names[change.name] = change.inode
            self.changed[change.inode] = self.wall_clock()
        self._collect(*({change.inode} if change.name is None else ()))

    def _collect(self, *numbers: int) -> None:
        """Forget inodes that no name leads to, now or after a power cut."""
        for number in numbers:
            if any(number in names.values() for names in self.names.values()):
                continue  # a power cut may leave a file that moved in both directories
            self.used -= len(self.contents[number])
            self.contents[number] = bytearray()

    def rename(self, old: Path, new: Path) -> None:
        """Atomic; not durable yet."""
        number = self.find(old)
        (source, gone), (target, name) = os.path.split(old), os.path.split(new)
        replaced = self.names[target].get(name)
        if source == target:
            self.change_names(target, NameChange(name, number, gone))
        else:
            self.change_names(target, NameChange(name, number))
            now = self.directories[source]
            change = NameChange(None, number, gone)
            self.directories[source] = replace(now, changes=(*now.changes, change))
            del self.names[source][gone]
        if replaced is not None:
            self._collect(replaced)

    def unlink(self, path: Path) -> None:
        """Not durable yet."""
        directory, name = os.path.split(path)
        self.change_names(directory, NameChange(None, self.find(path), name))

    def sync_directory(self, path: Path) -> None:
        """Names are durable."""
        self.directories[str(path)] = Directory(dict(self.names[str(path)]))

    def rot(self, path: Path, below: int | None = None) -> str:
        """A synced bit flips, or a sector can not be read; what, in words.

        *below*: only a bit, of the first so many bytes.
        """
        number = self.find(path)
        inode = self.inodes[number]
        if inode.changes or not inode.base or number in self._whole:
            return "nothing"
        self._whole[number] = inode
        at = self._chance.randrange(min(below or len(inode.base), len(inode.base)))
        if below is None and self._chance.random() < 0.3:
            self.unreadable[number] = at - at % _SECTOR
            return f"sector {at // _SECTOR} can not be read"
        bit = 1 << self._chance.randrange(8)
        flipped = inode.base[:at] + bytes([inode.base[at] ^ bit]) + inode.base[at + 1 :]
        self.inodes[number] = replace(inode, base=flipped)
        self.contents[number] = bytearray(flipped)
        return f"bit {bit} of byte {at} flips"

    def put_back(self) -> None:
        """The operator has copies of what has rotted."""
        for number, inode in self._whole.items():
            now = self.inodes.get(number)
            if now is not None and not now.changes and len(now.base) == len(inode.base):
                self.inodes[number] = inode
                self.contents[number] = bytearray(inode.base)
        self._whole.clear()
        self.unreadable.clear()

    def power_cut(self) -> int:
        """Lose what may be lost; returns how many changes were at risk."""
        at_risk = 0
        self.power_cuts += 1
        for path, directory in sorted(self.directories.items()):
            at_risk += len(directory.changes)
            names = random_names(directory, self._chance)
            self.directories[path] = Directory(names)
            self.names[path] = dict(names)
        linked = {n for names in self.names.values() for n in names.values()}
        for number, inode in sorted(self.inodes.items()):
            if number not in linked:
                del self.inodes[number], self.contents[number], self.changed[number]
                continue
            if inode.changes:
                at_risk += len(inode.changes)
                content = random_content(inode, self._chance)
                self.inodes[number] = Inode(content, (), inode.modified)
                self.contents[number] = bytearray(content)
            elif len(self.contents[number]) != len(inode.base):
                self.contents[number] = bytearray(inode.base)
        self.used = sum(map(len, self.contents.values()))
        return at_risk

    def durable(self, path: Path) -> bytes:
        """What a power cut would leave for sure of a file; nothing if not its name."""
        directory, name = os.path.split(path)
        number = self.directories[directory].durable.get(name)
        return b"" if number is None else self.inodes[number].base


class Session:
    """The disk as one life has it; implements `gateway.sdk.disk.Disk`."""

    def __init__(
        self,
        disk: SimulatedDisk,
        scheduler: Scheduler,
        tell: Callable[[str], None],
        public: Callable[[Path], None],
        looks: Callable[[Path, float], None],
    ) -> None:
        """*public* is told of each name that is made by renaming, *looks* of each
        directory that is listed, and how many seconds that took.
        """
        self.disk = disk
        self._scheduler = scheduler
        self._tell = tell
        self._public = public
        self._looks = looks
        self._trouble = (0, 0)
        self.keeping = False
        """What leaves the archive needs room elsewhere, first."""

    def in_trouble(self) -> bool:
        """Whether anything failed or took long since the last time."""
        faults = self.disk.faults
        before, self._trouble = self._trouble, (faults.struck, faults.refused)
        if self.keeping:
            return before != self._trouble
        return before[0] != self._trouble[0]

    def step(self, call: str, path: Path) -> None:
        """Others may run before a call; it may hang, fail, or find its process dead."""
        scheduler, faults = self._scheduler, self.disk.faults
        hang, faults.hang = faults.hang, 0.0
        faults.struck += hang > 0
        scheduler.pause(hang)
        if scheduler.dead:
            raise Killed
        if faults.no_memory and scheduler.current == "spool":
            faults.no_memory = False
            faults.struck += 1
            self._tell(f"{call} {path.name}: no memory")
            raise MemoryError
        if faults.strikes(call, scheduler.clock()):
            self._tell(f"{call} {path.name} fails")
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        self._tell(f"{call} {path.name}")

    def create(self, path: Path) -> File:
        """See `Disk`."""
        self.step("create", path)
        directory, name = os.path.split(path)
        if name in self.disk.names[directory]:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        number = self.disk.create()
        self.disk.change_names(directory, NameChange(name, number))
        return _SimulatedFile(self, number, path)

    def open(self, path: Path) -> File:
        """See `Disk`."""
        self.step("open", path)
        return _SimulatedFile(self, self.disk.find(path), path)

    def overwrite(self, path: Path) -> File:
        """See `Disk`."""
        self.step("overwrite", path)
        return _SimulatedFile(self, self.disk.find(path), path, at=0)

    def read(self, path: Path) -> bytes:
        """See `Disk`."""
        self.step("read", path)
        if self.disk.find(path) in self.disk.unreadable:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return self.disk.read(path)

    def fetch(self, path: Path) -> int:
        """See `Disk`; all of it is in memory."""
        return 0

    def read_around(self, path: Path) -> bytes:
        """See `Disk`."""
        self.step("read around", path)
        data, bad = self.disk.read(path), self.disk.unreadable.get(self.disk.find(path))
        if bad is None:
            return data
        end = min(bad + _SECTOR, len(data))
        return data[:bad] + bytes(end - bad) + data[end:]

    def names(self, directory: Path) -> list[str]:
        """See `Disk`."""
        begun = self._scheduler.clock()
        self.step("names", directory)
        self._looks(directory, self._scheduler.clock() - begun)
        begin = f"{directory}/"
        below = [
            path.removeprefix(begin)
            for path in self.disk.directories
            if path.startswith(begin)
        ]
        within = (name for name in below if "/" not in name)
        return sorted({*self.disk.names[str(directory)], *within})

    def size(self, path: Path) -> int:
        """See `Disk`."""
        return len(self.disk.contents[self.disk.find(path)])

    def modified(self, path: Path) -> float:
        """See `Disk`."""
        return self.disk.inodes[self.disk.find(path)].modified

    def changed(self, path: Path) -> float:
        """See `Disk`."""
        return self.disk.changed[self.disk.find(path)]

    def identity(self, path: Path) -> tuple[int, int]:
        """See `Disk`."""
        return zlib.crc32(bytes(path)), self.disk.generation

    def is_file(self, path: Path) -> bool:
        """See `Disk`."""
        directory, name = os.path.split(path)
        return name in self.disk.names.get(directory, {})

    def exists(self, path: Path) -> bool:
        """See `Disk`."""
        return str(path) in self.disk.directories or self.is_file(path)

    def rename(self, old: Path, new: Path) -> None:
        """See `Disk`."""
        self.step("rename", old)
        self.disk.rename(old, new)
        self._public(new)

    def unlink(self, path: Path) -> None:
        """See `Disk`."""
        self.step("unlink", path)
        if self.is_file(path):
            self.disk.unlink(path)

    def sync_directory(self, path: Path) -> None:
        """See `Disk`."""
        self.step("sync_directory", path)
        self.disk.sync_directory(path)

    def make_directory(self, path: Path) -> None:
        """See `Disk`."""
        self.step("make_directory", path)
        self.disk.make_directory(path)

    def set_times(self, path: Path, seconds: float) -> None:
        """See `Disk`."""
        self.step("set_times", path)
        number = self.disk.find(path)
        self.disk.inodes[number] = replace(self.disk.inodes[number], modified=seconds)

    def free(self, path: Path) -> int:
        """See `Disk`."""
        disk = self.disk
        return max(0, disk.capacity - disk.used - disk.faults.taken)


class _SimulatedFile:
    """Open in one life."""

    def __init__(
        self, session: Session, number: int, path: Path, at: int | None = None
    ) -> None:
        self._session, self._number, self._path = session, number, path
        self._doubted = self._closed = False
        self._at = len(self._disk.contents[number]) if at is None else at

    @property
    def _disk(self) -> SimulatedDisk:
        return self._session.disk

    def write(self, chunks: Sequence[bytes]) -> None:
        """See `File`."""
        data = b"".join(chunks)
        try:
            self._step("write")
        except OSError:
            half = len(data) // 2
            self._append(data[:half], ())
            raise
        placed = len(self._disk.contents[self._number]) - self._at
        room = self._session.free(self._path) + placed
        if len(data) > room:
            self._append(data[:room], ())
            self._session.disk.faults.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        seams, at = [], 0
        for chunk in chunks:
            at += len(chunk)
            seams.append(at)
        self._append(data, tuple(seams[:-1]))

    def _append(self, data: bytes, seams: tuple[int, ...]) -> None:
        if data:
            at, self._at = self._at, self._at + len(data)
            self._disk.change(self._number, Change(at, data, seams))

    def sync(self) -> None:
        """See `File`."""
        assert not self._doubted, f"{self._path} is synced again after a failure"
        try:
            self._step("sync")
        except OSError:
            self._doubted = True
            inode = self._disk.inodes[self._number]
            self._disk.inodes[self._number] = inode.after_failed_sync()
            raise
        self._disk.inodes[self._number] = self._disk.inodes[self._number].synced()

    def rewrite(self, data: bytes) -> None:
        """See `File`."""
        self._step("write")
        self._disk.change(self._number, Change(0, data))

    def truncate(self, size: int) -> None:
        """See `File`."""
        self._step("truncate")
        self._disk.change(self._number, Change(size, None))
        self._at = size

    def close(self) -> None:
        """See `File`."""
        self._closed = True

    def note(self, text: str) -> None:
        """What a file would say of itself that has no place for it."""
        self._disk.notes[self._number] = text

    def _step(self, call: str) -> None:
        assert not self._closed, f"{self._path} is closed"
        self._session.step(call, self._path)
