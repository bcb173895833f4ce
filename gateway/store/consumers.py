"""What consumers of the spool have read: a mark of each, so that files stay until then.

    data_dir/consumers/NAME            a `Mark`, a `statefile`
    s3://…/.gateway-consumer-NAME      the same line, where the spool is a bucket

A consumer is a program of somebody else's that reads all events once (`spool.consumers`).
It reads the archive, or the bucket, and writes its mark; gateways read it.  A query of
Spark's brings a batch again that it has not committed.  So what is in the last batch is in
hand, and only done when the next one begins: no file goes that may be asked for again.

A node that was rebuilt gives its lsns again.  So a mark names lsns with the life of the node
that gave them, which a file's footer says (`gateway.store.incarnation`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from attrs import define

from gateway.sdk import summed
from gateway.sdk.disk import Disk
from gateway.store.bucket import AlreadyThere, Bucket, BucketError, Changed, NotThere
from gateway.store.directories import Directories
from gateway.store.disk import RealDisk
from gateway.store.lsns import Lsns
from gateway.store.names import Named, parse_file_name
from gateway.store.s3 import bucket_of
from gateway.store.statefile import StateFile

if TYPE_CHECKING:
    from gateway.config import Config

_MOST_CHANGES = 20
"""Of one object by others, before somebody who wants to change it gives up."""
_MOST_LIVES = 64
"""Of a node, in a mark; the oldest go.  As many as `gateway.store.arrivals` remembers."""
_FOOTERS_AT_ONCE = 1000
"""So many are read between two looks; what was not looked at yet counts as not read."""

OBJECT = ".gateway-consumer-"
"""What the name of a mark in a bucket begins with."""


class Unreadable(OSError):
    """A mark is there and says nothing; the text says which, and what to do."""


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a consumer says of itself."""

    done: Mapping[str, Lsns] = {}
    """The lsns that it needs no more, by `NODE/INCARNATION`; by NODE alone, as earlier
    versions wrote, of whatever incarnation."""
    batch: int = -1
    """The last batch of Spark's for which it has done its work, and …"""
    in_hand: Mapping[str, Lsns] = {}
    """… the lsns of that, which Spark brings again if it has not committed it."""

    def seen(self) -> Iterator[tuple[str, str, Lsns]]:
        """All that it has done its work for: node, incarnation, empty where it names none, and
        lsns.
        """
        for of in (self.done, self.in_hand):
            for key, lsns in of.items():
                node, _, life = key.partition("/")
                yield node, life, lsns

    def lives(self) -> dict[str, set[str]]:
        """The incarnations that it names, by node."""
        found: dict[str, set[str]] = {}
        for node, life, _ in self.seen():
            if life:
                found.setdefault(node, set()).add(life)
        return found

    def covers(self, file: Named, life: str) -> bool:
        """Whether it needs that file no more, of which that incarnation gave the lsns."""
        return _covers(self.done, file, life)

    def has_seen(self, file: Named, life: str) -> bool:
        """Whether it has done its work for it."""
        return _covers(self.done, file, life) or _covers(self.in_hand, file, life)

    def with_done(self, files: Mapping[str, str]) -> Mark:
        """Once it needs these files no more: the incarnation of each, by its name.

        Raises ValueError for what is no name of a spool file.
        """
        return msgspec.structs.replace(self, done=_joined(self.done, _lsns(files)))

    def with_begun(self, batch: int) -> Mark:
        """As *batch* of Spark's begins: the one before is committed then.

        The first one of a query begins anew, at whatever is there: a query without its
        checkpoint reads all of it again.
        """
        if batch == 0:
            return Mark()
        if self.batch >= batch or not self.in_hand:
            return self
        return Mark(_joined(self.done, self.in_hand), self.batch)

    def with_worked(self, batch: int, files: Mapping[str, str]) -> Mark:
        """When the work of *batch* is done, which had these files, as in `with_done`."""
        return Mark(self.done, batch, _joined({}, _lsns(files)))


def _unreadable(path: str, name: str) -> Unreadable:
    return Unreadable(
        f"{path} is damaged: nothing that consumer {name} has read is known, and all files "
        "stay; remove it, and say what its checkpoint has, which it does not read again: "
        f"gateway spool done {name} --checkpoint DIR"
    )


def _key(node: str, life: str) -> str:
    return f"{node}/{life}" if life else node


def _covers(of: Mapping[str, Lsns], file: Named, life: str) -> bool:
    return any(
        key in of and of[key].covers(file.first, file.last)
        for key in (file.node, _key(file.node, life))
    )


def _lsns(files: Mapping[str, str]) -> dict[str, Lsns]:
    found: dict[str, Lsns] = {}
    for name, life in files.items():
        if (file := parse_file_name(name)) is None:
            raise ValueError(f"{name} is no name of a spool file")
        found.setdefault(_key(file.node, life), Lsns()).add(file.first, file.last)
    return found


def _joined(of: Mapping[str, Lsns], more: Mapping[str, Lsns]) -> dict[str, Lsns]:
    found = dict(of)
    for key, lsns in more.items():
        found[key] = found.get(key, Lsns()) | lsns
    lives: dict[str, list[str]] = {}
    for key in found:
        lives.setdefault(key.partition("/")[0], []).append(key)
    for keys in lives.values():
        for oldest in keys[:-_MOST_LIVES]:
            del found[oldest]
    return found


class Marks(Protocol):
    """Where one consumer's mark is.  Blocks; raises OSError, `Unreadable` among them."""

    def read(self) -> Mark | None:
        """What it says; None: nothing was ever said."""

    def change(self, how: Callable[[Mark], Mark]) -> Mark:
        """Make it what *how* makes of it, durably, in one step."""


@define(eq=False)
class FileMarks:
    """The mark of consumer *name* as a file in *directory*, which is made where it is not
    there.
    """

    directory: Path
    name: str
    _disk: Disk

    def read(self) -> Mark | None:
        """See `Marks`."""
        found, damaged = self._file.read()
        if damaged is not None:
            raise _unreadable(str(self.directory / self.name), self.name)
        return found

    def change(self, how: Callable[[Mark], Mark]) -> Mark:
        """See `Marks`."""
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
    """Wait until nobody else has it locked; those who do are done at once."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


@define(eq=False)
class ObjectMarks:
    """Likewise as an object in *bucket*, which Spark passes over."""

    bucket: Bucket
    name: str

    def read(self) -> Mark | None:
        """See `Marks`."""
        found = self._found()
        return None if found is None else found[0]

    def change(self, how: Callable[[Mark], Mark]) -> Mark:
        """See `Marks`."""
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
        if (mark := summed.decode(data[:-1], Mark)) is None:
            raise _unreadable(f"{self.bucket.url}/{self._object}", self.name)
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
    """Likewise of the consumer *name*: in the bucket of the spool, if that is one."""
    if bucket is not None:
        return ObjectMarks(bucket, name)
    return FileMarks(directory, name, disk)


class There(NamedTuple):
    """A file in the archive or the bucket, as a look found it."""

    name: str
    bytes: int
    since: float
    """Since when it is there: another one of that name is there since another time."""


@dataclass(frozen=True, slots=True)
class Behind:
    """How far a consumer is behind, as of the last look at its mark."""

    files: int = 0
    """That are there and that it has not read, and …"""
    bytes: int = 0
    oldest_seconds: float = 0.0
    """… for how long the oldest of them has been there; 0: none is."""
    held_files: int = 0
    """Those that would have gone by `spool.retention`, and …"""
    held_bytes: int = 0
    missed_files: int = 0
    """Those that have gone since the start, for want of room, and it had not read them."""
    has_come: bool = False
    """It has ever said what it has read, or that is not known."""
    problem: str | None = None
    """Why that is not known, if so."""


@define(eq=False, slots=False)
class Consumers:
    """Those of one gateway, and its files.  One thread looks; any may ask for `behind`.

    *marks* says where the mark of one is, by its name.  *lives* says which incarnations may
    have given the lsns of a file, given those that a mark names, none if that is not known,
    and *life_of* which one did, given its name and its size: it is asked where the others do
    not tell.  Both block and raise OSError.
    """

    _marks: Callable[[str], Marks]
    _lives: Callable[[Named, Collection[str]], Collection[str]]
    _life_of: Callable[[str, int], str]
    names: Sequence[str] = ()
    """May change."""

    def __attrs_post_init__(self) -> None:
        self.behind: Mapping[str, Behind] = {}
        """By name; replaced as a whole."""
        self._said: dict[str, Mark] = {}
        self._named: dict[str, Mapping[str, Collection[str]]] = {}
        """The incarnations that each mark names, by node."""
        self._found: dict[str, tuple[float, str]] = {}
        """What `life_of` said of files, by their names, and since when those were there."""
        self._footers_left = _FOOTERS_AT_ONCE

    def look(self) -> None:
        """Read their marks.  What is not readable has read nothing."""
        behind, said = {}, {}
        for name in self.names:
            mark, problem = None, None
            try:
                mark = self._marks(name).read()
            except (OSError, msgspec.DecodeError) as why:
                problem = str(why)
            before = self.behind.get(name, Behind())
            come = mark is not None or problem is not None
            behind[name] = replace(before, has_come=come, problem=problem)
            said[name] = mark or Mark()
        self._said, self.behind = said, behind
        self._named = {name: mark.lives() for name, mark in said.items()}
        self._footers_left = _FOOTERS_AT_ONCE

    def all_have(self, file: There, *, by_footer: bool = False) -> bool:
        """Whether none of them needs that file, as of the last look; *by_footer* where others
        may know more of its node.
        """
        if not self.names or (named := parse_file_name(file.name)) is None:
            return True
        if not self._all_cover(file, named):
            return False
        return not by_footer or (
            self._life(file) is not None and self._all_cover(file, named)
        )

    def _all_cover(self, file: There, named: Named) -> bool:
        return all(
            one in self._said and self._is(one, Mark.covers, file, named)
            for one in self.names
        )

    def count(self, files: Iterable[There], now: float, retention: float) -> None:
        """Of those that are there *now*, of which the time of some may be over."""
        if not self._said:  # there may be millions
            return
        there = [
            (one, named)
            for one in files
            if (named := parse_file_name(one.name)) is not None
        ]
        found = self._found
        self._found = {
            one.name: found[one.name] for one, _ in there if one.name in found
        }
        behind = {}
        for name in self._said:
            left = [
                one
                for one, named in there
                if not self._is(name, Mark.has_seen, one, named)
            ]
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

    def who_misses(self, file: There) -> Sequence[str]:
        """Who has not read that file, which is about to go."""
        if not self.names or (named := parse_file_name(file.name)) is None:
            return ()
        self._footers_left += 1  # this one is looked at
        return [
            one for one in self._said if not self._is(one, Mark.has_seen, file, named)
        ]

    def missed(self, missing: Sequence[str]) -> Sequence[str]:
        """One has gone that these have not read: those of them that missed none before."""
        before, behind = self.behind, dict(self.behind)
        for one in missing:
            count = before[one].missed_files + 1
            behind[one] = replace(before[one], missed_files=count)
        self.behind = behind
        return [one for one in missing if not before[one].missed_files]

    def _is(
        self,
        name: str,
        what: Callable[[Mark, Named, str], bool],
        file: There,
        named: Named,
    ) -> bool:
        """Whether the mark of that one says so of a file."""
        mark, others = self._said[name], self._named[name].get(named.node, ())
        life = self._known(file)
        if life is None:
            try:
                lives = self._lives(named, others)
            except OSError:
                lives = ()
            said = {what(mark, named, each) for each in lives}
            if len(said) == 1:
                return said.pop()
            life = self._life(file)
        return life is not None and what(mark, named, life)

    def _known(self, file: There) -> str | None:
        since, life = self._found.get(file.name, (None, ""))
        return life if since == file.since else None

    def _life(self, file: There) -> str | None:
        """Which incarnation gave its lsns; None: not known at this look."""
        if (life := self._known(file)) is not None:
            return life
        if not self._footers_left:
            return None
        self._footers_left -= 1
        try:
            life = self._life_of(file.name, file.bytes)
        except OSError:
            return None
        self._found[file.name] = file.since, life
        return life
