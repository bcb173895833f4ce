"""The files that a gateway forwards: those in its spool, and those of its archive that the
hub lacks.  They are its own, and those that others have brought here: a hub on the way.

What is in the spool the hub may lack; what it has goes to the archive, by a rename.  That is
all that is remembered: a crash between the two, or a rename that a power cut undoes, is made
up for by the hub's position.  The archive keeps files for `spool.retention`, for a hub that
comes back older.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
import pyarrow.parquet as pq
from attrs import define
from twisted.logger import Logger

from gateway.sdk.disk import Disk, replace_file
from gateway.sdk.forwarding import File, Life
from gateway.store.directories import Directories
from gateway.store.hub.archiving import to_archive
from gateway.store.hub.arrivals import why_no_spool_file
from gateway.store.lsns import Lsns
from gateway.store.names import SpoolFile, last_lsn, parse_file_name
from gateway.store.node.incarnation import Incarnation
from gateway.store.node.lineage import Lineage

_CHUNK_BYTES = 1 << 20
_MOST_EARLIER = 50
"""Incarnations that a life names: those before had no files for long."""
_MOST_LEFT = 100
"""Incarnations of which a word has what can not be brought."""
_IN_TURN = 8
"""So many files of one node go over before those of the next one."""


class Unreadable(Exception):
    """A file that can not be sent as it is; the text says which, and why."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A file that is to be sent, as its name says."""

    path: Path
    named: SpoolFile


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A file that was looked at."""

    waiting: Waiting
    file: File

    @property
    def events(self) -> int:
        """How many it has."""
        return self.waiting.named.events


@define(eq=False, slots=False)
class ForwardedFiles:
    """Those of one gateway.  Blocks; raises OSError.

    *is_ours* says of a node whether its files are: one that had another name once has left
    some under that, and others may bring some here.  Of these *life_of* says which lives
    they had.
    """

    _log = Logger()

    node: str
    _lineage: Lineage
    _directories: Directories
    _disk: Disk
    _is_ours: Callable[[str], bool]
    _life_of: Callable[[str], Life | None] = lambda _: None

    @property
    def incarnation(self) -> Incarnation:
        """The one that gives our lsns now."""
        return self._lineage.now

    def in_spool(self) -> list[Waiting]:
        """Of each node in order of lsn, some of each in turn; our own first.

        Nothing is missing before any of them.  While a large directory is read, a name
        that comes may be missed, and a later one found; the hub would have the later file,
        and take the other one for there already.  What is there when a first look is over,
        a second one finds: of ours, up to the newest of the first look; of another node,
        whose lives may have begun to count anew, where the second look has no other name.
        """
        spool = self._directories.spool
        before = self._disk.names(spool)
        newest, known = last_lsn(self.node, before), set(before)
        found = self._waiting(spool)
        grows = {one.named.node for one in found if one.path.name not in known}
        ranks: dict[str, int] = {}
        turns: list[tuple[int, Waiting]] = []
        for one in found:
            node = one.named.node
            if node == self.node:
                if one.named.last <= newest:
                    turns.append((-1, one))
            elif node not in grows:
                ranks[node] = rank = ranks.get(node, -1) + 1
                turns.append((rank // _IN_TURN, one))
        return [one for _, one in sorted(turns, key=lambda each: each[0])]

    def left(self, is_held: Callable[[str], bool]) -> dict[str, Lsns]:
        """What lies in the spool of nodes whose files are not ours to bring, or which the hub
        does not take from us: lsns by `NODE_INCARNATION`, of so many of those at most.
        """
        found: dict[str, list[tuple[int, int]]] = {}
        known: dict[str, bool] = {}
        for name in self._disk.names(self._directories.spool):
            if (named := parse_file_name(name)) is None:
                continue
            node = named.node
            if node not in known:
                known[node] = is_held(node) or not self._is_ours(node)
            if known[node] and (str(named.life) in found or len(found) < _MOST_LEFT):
                spans = found.setdefault(str(named.life), [])
                spans.append((named.first, named.last))
        return {life: Lsns(spans) for life, spans in found.items()}

    def in_archive(self) -> dict[str, list[str]]:
        """The names of all that is in the archive, by node.  They may be millions: a region
        has them listed once for all its edges, and keeps nothing else.
        """
        found: dict[str, list[str]] = {}
        for name, named in self._ours(self._directories.archive):
            found.setdefault(named.node, []).append(name)
        return found

    def lacked(self, archived: Iterable[str], last: Mapping[str, int]) -> list[Waiting]:
        """Those of a node's that a hub lacks which has these."""
        archive = self._directories.archive
        return [
            Waiting(archive / name, named)
            for name in archived
            if (named := parse_file_name(name)) is not None
            and named.last > last.get(named.incarnation, 0)
        ]

    def life_of(self, node: str, by: str) -> Life:
        """What a hub is told before files of a node come, of which incarnation *by* has
        given the first: "" if none comes yet.
        """
        if node != self.node:
            life = self._life_of(node) or Life(node, by)
            if by and by not in (life.incarnation, *life.earlier):  # forgotten here
                life = Life(node, life.incarnation, (by, *life.earlier))
            return life
        own = self.incarnation
        return Life(node, own.id, own.earlier[-_MOST_EARLIER:])

    def _waiting(self, directory: Path) -> list[Waiting]:
        found = [
            Waiting(directory / name, named) for name, named in self._ours(directory)
        ]
        return sorted(found, key=in_order)

    def _ours(self, directory: Path) -> Iterator[tuple[str, SpoolFile]]:
        """By name, and so those of one incarnation in order of lsn."""
        ours: dict[str, bool] = {}
        for name in self._disk.names(directory):
            if (named := parse_file_name(name)) is None:
                continue
            if named.node not in ours:
                ours[named.node] = self._is_ours(named.node)
            if ours[named.node]:
                yield name, named

    def look_at(self, waiting: Waiting, *, doubted: bool = False) -> Outgoing | None:
        """What is to be said of it; None if it is gone.  Raises `Unreadable`.

        A hub has *doubted* such a file: it is looked whether that is the file's fault.
        """
        path, sha256, size = waiting.path, hashlib.sha256(), 0
        with contextlib.suppress(FileNotFoundError), path.open("rb") as opened:
            while data := opened.read(_CHUNK_BYTES):
                sha256.update(data)
                size += len(data)
            _check_footer(opened, path)
            wrong = why_no_spool_file(opened, waiting.named) if doubted else None
            if wrong is not None:
                raise Unreadable(f"{path} is damaged: {wrong}")
            by = waiting.named.incarnation
            return Outgoing(waiting, File(path.name, by, size, sha256.hexdigest()))
        return None

    def read(self, outgoing: Outgoing, at: int, size: int) -> bytes:
        """So many bytes of it, or what is left."""
        path = outgoing.waiting.path
        with path.open("rb") as opened:
            opened.seek(at)
            data = opened.read(min(size, outgoing.file.bytes - at))
        if not data:
            raise OSError(errno.EIO, f"{path} became shorter")
        return data

    def set_aside(self, waiting: Waiting, why: Unreadable) -> None:
        """It goes to `poison/`, beside its reason, as with the Spark job: those behind it
        must not wait for ever.
        """
        aside = self._directories.root / "poison"
        self._disk.make_directory(aside)
        name = waiting.path.name
        number = 1
        while self._disk.exists(aside / name):  # it came again, and is damaged again
            number += 1
            name = f"{waiting.path.name}.{number}"
        reason = {"file": name, "why": str(why), "at": time.time()}
        text = msgspec.json.encode(reason)
        replace_file(self._disk, aside / f"{name}.json", [text]).close()
        self._disk.rename(waiting.path, aside / name)

    def have_arrived(self, arrived: Iterable[Waiting]) -> None:
        """The hub has them: each goes from the spool to the archive."""
        for one in arrived:
            if one.path.parent == self._directories.spool:
                with contextlib.suppress(FileNotFoundError):
                    to_archive(one.path, self._directories.archive, self._disk)

    def archived(self, waiting: Waiting) -> Waiting:
        """It, when it has arrived somewhere."""
        return Waiting(self._directories.archive / waiting.path.name, waiting.named)

    def before_spool(self) -> dict[str, int]:
        """Up to which lsn all has left the spool, by node, of those that have files there."""
        before: dict[str, int] = {}
        for one in self.in_spool():  # of each node in order
            before.setdefault(one.named.node, one.named.first - 1)
        return before


def in_order(waiting: Waiting) -> tuple[str, int, int, str]:
    """By which a node's files are in order of lsn: those go on over its incarnations."""
    node, incarnation, first, last = waiting.named
    return node, first, last, incarnation


def _check_footer(opened: BinaryIO, path: Path) -> None:
    """Raise `Unreadable` where a file has no footer that can be read."""
    try:
        if pq.read_metadata(opened).metadata:
            return
        why: object = "it says nothing"
    except Exception as failed:  # a damaged footer makes pyarrow raise anything
        if getattr(failed, "errno", None) or isinstance(failed, MemoryError):
            raise  # it may be sound
        why = failed
    raise Unreadable(f"{path} is damaged: its footer can not be read: {why}")
