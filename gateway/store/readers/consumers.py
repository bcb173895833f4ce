"""Marks of what consumers of the spool have read, so that files stay until then.

    data_dir/consumers/NAME            a `Mark`, a `statefile`
    s3://…/.gateway-consumer-NAME      the same line, where the spool is a bucket

A consumer is a foreign program that reads all events once (`spool.consumers`).  It reads the
archive, or the bucket, and writes its mark; gateways read it.  A query of Spark's brings a
batch again that it has not committed.  So what is in the last batch is in hand, and only
done when the next one begins: no file goes that may be asked for again.

A mark names lsns with the incarnation that gave them, as names of files do.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
from attrs import define

from gateway.sdk import summed
from gateway.sdk.disk import Disk
from gateway.store.directories import Directories
from gateway.store.lsns import Lsns
from gateway.store.names import FoundFile, SpoolFile, lsns_by_life, parse_file_name
from gateway.store.objects.bucket import (
    AlreadyThere,
    Bucket,
    BucketError,
    Changed,
    NotThere,
)
from gateway.store.objects.s3 import bucket_of
from gateway.store.system.disk import RealDisk
from gateway.store.system.statefile import StateFile

if TYPE_CHECKING:
    from gateway.config import Config

_MOST_CHANGES = 20
"""Changes of an object by others after which a change is given up."""

OBJECT = ".gateway-consumer-"
"""The prefix of a mark's name in a bucket."""


class Unreadable(OSError):
    """A mark is there and says nothing; the text says which, and what to do."""


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """The word of a consumer about itself."""

    done: Mapping[str, Lsns] = {}
    """The lsns that it needs no more, by `NODE_INCARNATION`."""
    batch: int = -1
    """The last batch of Spark's for which it has done its work."""
    in_hand: Mapping[str, Lsns] = {}
    """The lsns of that batch, which Spark brings again if it has not committed it."""
    begun: int = -1
    """The last batch that has begun."""

    def covers(self, file: SpoolFile) -> bool:
        """Whether it needs that file no more."""
        return _covers(self.done, file)

    def has_seen(self, file: SpoolFile) -> bool:
        """Whether it has done its work for that file."""
        return _covers(self.done, file) or _covers(self.in_hand, file)

    def with_done(self, names: Iterable[str]) -> Mark:
        """Once it needs the files of these names no more.

        Raises ValueError for what is no name of a spool file.
        """
        return msgspec.structs.replace(self, done=_joined(self.done, _lsns(names)))

    def with_begun(self, batch: int) -> Mark:
        """The mark when *batch* of Spark's begins: the one before is committed then.

        The first one of a query begins anew, at whatever is there: a query without its
        checkpoint reads all of it again.
        """
        if batch == 0:
            return Mark(begun=0)
        if self.batch >= batch or not self.in_hand:
            return msgspec.structs.replace(self, begun=batch)
        return Mark(_joined(self.done, self.in_hand), self.batch, begun=batch)

    def with_worked(self, batch: int, names: Iterable[str]) -> Mark:
        """When the work of *batch* is done, which had the files of these names."""
        return Mark(self.done, batch, _lsns(names))


def _unreadable(path: str, name: str) -> Unreadable:
    return Unreadable(
        f"{path} is damaged: nothing that consumer {name} has read is known, and all files "
        "stay; remove it, and say what its checkpoint has, which it does not read again: "
        f"gateway spool done {name} --checkpoint DIR"
    )


def _covers(of: Mapping[str, Lsns], file: SpoolFile) -> bool:
    lsns = of.get(str(file.life))
    return lsns is not None and lsns.covers(file.first, file.last)


def _lsns(names: Iterable[str]) -> dict[str, Lsns]:
    files = []
    for name in names:
        if (file := parse_file_name(name)) is None:
            raise ValueError(f"{name} is no name of a spool file")
        files.append(file)
    return lsns_by_life(files)


def events_of(names: Iterable[str]) -> dict[str, dict[str, list[tuple[int, int]]]]:
    """The lsns of files of these names, by node and incarnation.

    Raises ValueError for what is no name of a spool file.
    """
    found: dict[str, dict[str, list[tuple[int, int]]]] = {}
    for key, lsns in sorted(_lsns(names).items()):
        node, _, incarnation = key.rpartition("_")
        found.setdefault(node, {})[incarnation] = list(lsns)
    return found


def _joined(of: Mapping[str, Lsns], more: Mapping[str, Lsns]) -> dict[str, Lsns]:
    return {**of, **{key: of.get(key, Lsns()) | lsns for key, lsns in more.items()}}


class Marks(Protocol):
    """Where one consumer's mark is.  Blocks; raises OSError, `Unreadable` among them."""

    def read(self) -> Mark | None:
        """The mark; None: nothing was ever said."""

    def change(self, how: Callable[[Mark], Mark]) -> Mark:
        """Make it what *how* makes of it, durably, in one step."""


@define(eq=False)
class FileMarks:
    """The mark of consumer *name* as a file in *directory*, which is made where it is not there."""

    directory: Path
    name: str
    _disk: Disk

    def read(self) -> Mark | None:
        found, damaged = self._file.read()
        if damaged is not None:
            raise _unreadable(str(self.directory / self.name), self.name)
        return found

    def change(self, how: Callable[[Mark], Mark]) -> Mark:
        self._disk.make_directory(self.directory)
        with _alone(self.directory / f".{self.name}.lock"):
            before = self.read()
            mark = how(before or Mark())
            if mark != before:
                self._file.write(mark)
        return mark

    @property
    def _file(self) -> StateFile[Mark]:
        return StateFile(self.directory / self.name, Mark, self._disk)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until no other process has it locked; those that do are done at once."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


@define(eq=False)
class ObjectMarks:
    """The marks of one consumer as an object in *bucket*, which Spark passes over."""

    bucket: Bucket
    name: str

    def read(self) -> Mark | None:
        found = self._found()
        return None if found is None else found[0]

    def change(self, how: Callable[[Mark], Mark]) -> Mark:
        for _ in range(_MOST_CHANGES):
            found = self._found()
            mark = how(Mark() if found is None else found[0])
            if found is not None and mark == found[0]:
                return mark
            data = summed.encode(mark)
            with contextlib.suppress(AlreadyThere, Changed):  # somebody was faster
                if found is None:
                    self.bucket.create(self._object, data)
                else:
                    self.bucket.swap(self._object, data, found[1])
                return mark
        raise BucketError(f"{self.bucket.url}/{self._object} changes all the time")

    @property
    def _object(self) -> str:
        return f"{OBJECT}{self.name}"

    def _found(self) -> tuple[Mark, str] | None:
        try:
            data, tag = self.bucket.read_tagged(self._object)
        except NotThere:
            return None
        url = f"{self.bucket.url}/{self._object}"
        with summed.of_file(url):
            mark = summed.decode(data[:-1], Mark)
        if mark is None:
            raise _unreadable(url, self.name)
        return mark, tag


def marks_of(config: Config, name: str) -> Marks:
    """Where the mark of one of its `spool.consumers` is.

    Raises ValueError if it has none of that name, ImportError without what a bucket needs.
    """
    if name not in config.spool.consumers:
        there = ", ".join(config.spool.consumers) or "none"
        raise ValueError(f"{name} is not in spool.consumers, which has {there}")
    directory = Directories.of(config).consumers
    return marks_at(bucket_of(config.spool), directory, RealDisk(), name)


def marks_at(bucket: Bucket | None, directory: Path, disk: Disk, name: str) -> Marks:
    """The marks of the consumer *name*: in the bucket of the spool, if that is one."""
    if bucket is not None:
        return ObjectMarks(bucket, name)
    return FileMarks(directory, name, disk)


@dataclass(frozen=True, slots=True)
class Behind:
    """How far a consumer is behind, as of the last look at its mark."""

    files: int = 0
    """Files that are there and that it has not read."""
    bytes: int = 0
    oldest_seconds: float = 0.0
    """Seconds for which the oldest of them has been there; 0: none is."""
    held_files: int = 0
    """Files that would have gone by `spool.retention`, but for it."""
    held_bytes: int = 0
    missed_files: int = 0
    """Files that have gone since the start, for want of room, and it had not read them."""
    has_come: bool = False
    """Whether it has ever said what it has read, or that is not known."""
    problem: str | None = None
    """Why that is not known, if so."""


@define(eq=False, slots=False)
class Consumers:
    """The consumers of one gateway, and its files.  One thread looks; any may ask for `behind`.

    *marks* says where the mark of one is, by its name.
    """

    _marks: Callable[[str], Marks]
    names: Sequence[str] = ()
    """May change."""

    def __attrs_post_init__(self) -> None:
        self.behind: Mapping[str, Behind] = {}
        """The state by name; replaced as a whole."""
        self._said: dict[str, Mark] = {}

    def look(self) -> None:
        """Read their marks.  What is not readable has read nothing."""
        behind, said = {}, {}
        for name in self.names:
            mark, problem = None, None
            try:
                mark = self._marks(name).read()
            except (OSError, summed.OtherForm, msgspec.DecodeError) as why:
                problem = str(why)
            before = self.behind.get(name, Behind())
            come = mark is not None or problem is not None
            behind[name] = replace(before, has_come=come, problem=problem)
            said[name] = mark or Mark()
        self._said, self.behind = said, behind

    def all_have(self, file: SpoolFile) -> bool:
        """Whether none of them needs that file, as of the last look."""
        return all(
            one in self._said and self._said[one].covers(file) for one in self.names
        )

    def count(self, files: Sequence[FoundFile], now: float, retention: float) -> None:
        """Count the files that are there *now*, of which the time of some may be over."""
        if not self._said:  # there may be millions
            return
        behind = {}
        for name, mark in self._said.items():
            left = [one for one in files if not mark.has_seen(one.file)]
            held = [one.bytes for one in left if now - one.since > retention]
            behind[name] = replace(
                self.behind[name],
                files=len(left),
                bytes=sum(one.bytes for one in left),
                oldest_seconds=max([0.0, *(now - one.since for one in left)]),
                held_files=len(held),
                held_bytes=sum(held),
            )
        self.behind = behind

    def who_misses(self, file: SpoolFile) -> Sequence[str]:
        """The consumers that have not read a file which is about to go."""
        return [one for one, mark in self._said.items() if not mark.has_seen(file)]

    def missed(self, missing: Sequence[str]) -> Sequence[str]:
        """One has gone that these have not read: those of them that missed none before."""
        before, behind = self.behind, dict(self.behind)
        for one in missing:
            count = before[one].missed_files + 1
            behind[one] = replace(before[one], missed_files=count)
        self.behind = behind
        return [one for one in missing if not before[one].missed_files]
