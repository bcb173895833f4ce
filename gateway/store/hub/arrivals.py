"""Files that other gateways bring (`gateway.sdk.arrivals`), and what is known of each node.

    arrivals/NODE                              a `Record`, a `statefile`
    spool/.arriving-SHA256-NAME                a file of which not all has come

    1. octets → the hidden file; sync it; look whether it is what its name says; sync the
       directory
    2. the record: all up to its last lsn is there, and which file is to be placed; synced
    3. rename it to its name                                    whoever reads may see it
    4. whoever brought it is told

A crash before 2 leaves a part that goes on, or is dropped when its digest is not right, or
when nobody has gone on with it for a day.  One behind it is finished by the next start,
and what could not have its name before by a look, each second: the record says which file
that is about.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import re
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import msgspec
import pyarrow.parquet as pq
from attrs import define, field

from gateway.event import SCHEMA, SCHEMA_VERSION, SCHEMA_VERSION_KEY
from gateway.sdk.arrivals import Unwelcome
from gateway.sdk.disk import Disk, File
from gateway.sdk.forwarding import Begun, Life, Said
from gateway.sdk.forwarding import File as Brought
from gateway.sdk.protocol import Unusable
from gateway.store import digests
from gateway.store.directories import Directories
from gateway.store.hub.pages import MOST_PAGES, unpacked_sizes
from gateway.store.hub.promised import why_not_those
from gateway.store.hub.thrift import STRUCT, Compact, TooMuch
from gateway.store.names import INCARNATION, SpoolFile, parse_file_name
from gateway.store.node import incarnation
from gateway.store.objects.word import Word, forget_some, hear
from gateway.store.system.lock import Lock, Locked, lock_file
from gateway.store.system.statefile import StateFile, look

_MOST_INCARNATIONS = 2000
"""Of a node that are remembered; the oldest go.  What is brought again of these, the Spark
job has already."""
_MOST_FOOTER_BYTES = 8 << 20
"""More than the largest segment of small events makes, …"""
_MOST_FOOTER_WEIGHT = 1 << 21
"""… and of its lists: 240 for a group of rows as gateways write them.  Three bytes of a list
may take 700 in memory: so it is some 200 MiB at most."""
_LONGEST_STRING = 1 << 14
"""In a footer.  Arrow's schema has 3 KiB; it can name one field of a few bytes many times."""
_MOST_PAGE_BYTES = 8 << 20
"""Of what is looked at; those who write make pages of one MiB."""
_MOST_EVENTS = 1 << 28
"""A page of a few bytes can have 2**31 rows that are looked at, one by one."""
_LOOKED_AT = ("node", "lsn")
_HIDDEN = re.compile(r"\.arriving-([0-9a-f]{64})-(events-.+\.parquet)")
# With the longest of these a hidden name has 242 bytes, and 255 are the most.
_INCARNATION = re.compile(INCARNATION)
_PART_SECONDS = 24 * 3600.0
"""What came of a file whose edge does not come again goes then; it would begin anew."""
_TWINS_SECONDS = 600.0
"""So long it is told that two gateways had one name."""
_NODE = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,98}[a-z0-9])?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 1 << 20
_TAIL = struct.Struct("<I4s")
"""The footer's length, and …"""
_MARKS = (b"PAR1", b"PARE")
"""… Parquet's mark, of a plain one, or an encrypted one."""


class Record(msgspec.Struct, frozen=True):
    """What is known of one node."""

    current: str
    """The incarnation that began last."""
    last: Mapping[str, int]
    """The last lsn that is here, by incarnation, the oldest first."""
    placing: str = ""
    """The hidden name of the last file, which has its own since, unless it is still there."""


class Onward(Protocol):
    """What takes files from the spool to a bucket.  Any thread."""

    def add(self, name: str) -> None:
        """A file is in the spool."""

    def has(self, name: str) -> bool:
        """Whether that one is not in the bucket yet."""

    def has_of(self, node: str) -> bool:
        """Whether any of that node is not."""


@define(eq=False, slots=False)
class _Node:
    """One node, while the gateway runs.  Its lock is held by whoever changes it."""

    name: str
    file: StateFile[Record]
    lock: threading.RLock = field(factory=threading.RLock)
    record: Record | None = None
    part: str = ""
    """The hidden name of a file that has not come whole."""
    unplaced: bool = False
    """The last file that has come whole has not its name yet."""
    holder: _Bringing | None = None
    """Who brings its files now."""


@define(eq=False, slots=False)
class Arrivals:
    """Of one gateway: implements `gateway.sdk.arrivals.Arrivals`.

    *tell* is told what an operator should know; *clock* is the wall's.
    """

    _node: str
    _directories: Directories
    _disk: Disk
    _tell: Callable[[str], None]
    _clock: Callable[[], float] = time.time
    _reader: Callable[[Path], BinaryIO] = field(
        default=lambda path: path.open("rb"), kw_only=True
    )
    """What has come is read with it: it may be much."""

    def __attrs_post_init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._lock = threading.Lock()
        self._why_not: Callable[[int], str | None] = lambda _: None
        self._files: Callable[[], int] = lambda: 0
        self._onward: Onward | None = None
        self._spool_lock: Lock | None = None
        self._waits = False
        self._looked_at = 0.0
        """At parts that are left."""
        self.files = self.bytes = self.events = 0
        """That have arrived since the start."""
        self._twins: dict[str, float] = {}
        """Nodes of which two incarnations bring files in turns, and when that was so last."""

    def open(self) -> None:
        """See `sdk.arrivals.Arrivals`."""
        if self._spool_lock is not None:
            return
        self._disk.make_directory(self._directories.spool)
        try:
            self._spool_lock = lock_file(
                self._directories.spool / ".arrivals", f"gateway {self._node}"
            )
        except Locked as why:
            raise Unusable(
                f"{why}, which takes files of others into it; they would be in each "
                "other's way: give this one another spool.directory"
            ) from None

    def watch(
        self,
        why_not: Callable[[int], str | None],
        files: Callable[[], int],
        onward: Onward | None = None,
        *,
        waits: bool = False,
    ) -> None:
        """*why_not* says why the spool has no room for so many bytes, *files* how many are
        there.  *onward* takes them to a bucket, and nobody is told of what is not there if
        that is what everybody here *waits* for (`ack: spool`).
        """
        self._why_not, self._files = why_not, files
        self._onward, self._waits = onward, waits

    @property
    def waiting(self) -> int:
        """See `sdk.arrivals.Arrivals`."""
        return self._files()

    def why_not(self, size: int = 0) -> str | None:
        """See `sdk.arrivals.Arrivals`."""
        return self._why_not(size)

    def is_settled(self, name: str) -> bool:
        """See `sdk.arrivals.Arrivals`."""
        if not self._waits or self._onward is None:
            return True
        return self._is_placed(name) and not self._onward.has(name)

    def _is_placed(self, name: str) -> bool:
        """Whether the disk has given it that name, which is asked for again."""
        named = parse_file_name(name)
        known = None if named is None else self._nodes.get(named.node)
        if known is None:
            return True
        if not known.lock.acquire(blocking=False):
            return False  # as far as is known
        try:
            placing = "" if known.record is None else known.record.placing
            return not placing or _parsed(placing).public != name or self._place(known)
        except OSError:
            return False
        finally:
            known.lock.release()

    @property
    def twins(self) -> list[str]:
        """Nodes of which two gateways have the name, as far as can be told."""
        since = self._clock() - _TWINS_SECONDS
        return sorted(node for node, at in self._twins.items() if at > since)

    def has(self, node: str) -> bool:
        """Whether that node's files arrive here, or did.  Any thread."""
        with self._lock:
            known = self._nodes.get(node)
        if known is not None and known.record is not None:
            return True
        known_name = _NODE.fullmatch(node) is not None
        return known_name and self._disk.exists(self._directory / node)

    def life_of(self, node: str) -> Life | None:
        """Which lives a node had that brings its files here.  Blocks; raises OSError."""
        if not _NODE.fullmatch(node) or (record := self._known(node).record) is None:
            return None
        earlier = tuple(one for one in record.last if one != record.current)
        return Life(node, record.current, earlier)

    @property
    def nodes(self) -> Mapping[str, Record]:
        """What is known of those whose files have come since the start.  Any thread."""
        with self._lock:
            known = [*self._nodes.values()]
        return {one.name: one.record for one in known if one.record is not None}

    def all_nodes(self) -> list[str]:
        """Those that ever brought files here.  Blocks; raises OSError."""
        if not self._disk.exists(self._directory):
            return []
        names = self._disk.names(self._directory)
        return sorted(name for name in names if _NODE.fullmatch(name))

    def comes(self, node: str) -> bool:
        """Whether somebody is there to bring that node's files.  Any thread."""
        with self._lock:
            known = self._nodes.get(node)
        return known is not None and known.holder is not None

    @property
    def bringing(self) -> int:
        """How many nodes' files somebody is there to bring."""
        with self._lock:
            return sum(one.holder is not None for one in self._nodes.values())

    def recover(self) -> None:
        """Place what a crash has left.  Blocks; raises OSError."""
        found: dict[str, list[str]] = {}
        for name in self._disk.names(self._directories.spool):
            if (parsed := _parse(name)) is not None:
                named = parse_file_name(parsed.public)
                assert named is not None
                found.setdefault(named.node, []).append(name)
        for node, names in found.items():
            if not self.has(node):
                continue  # it comes to another gateway, which shares the spool
            known = self._known(node)
            with known.lock:
                self._place(known)
                placing = "" if known.record is None else known.record.placing
                parts = [name for name in names if name != placing]
                known.part = parts.pop() if parts else ""
                for name in parts:  # none can be; whoever looks for room is glad of it
                    self._disk.unlink(self._directories.spool / name)

    def look(self) -> None:
        """Give files their names that could not have them before, whoever is there to bring
        more, and remove what came of those that nobody goes on with, unless they may come to
        another gateway.  Blocks; raises OSError.
        """
        now, alone = self._clock(), self._spool_lock is not None
        if parts := alone and abs(now - self._looked_at) >= _PART_SECONDS / 24:
            self._looked_at = now
        with self._lock:
            due = [one for one in self._nodes.values() if one.unplaced or parts]
        for known in due:
            if known.lock.acquire(blocking=False):  # else somebody sees to it
                try:
                    self._place(known)
                    if parts and known.part and known.holder is None:
                        self._drop_if_old(known, now)
                finally:
                    known.lock.release()

    def _drop_if_old(self, known: _Node, now: float) -> None:
        path = self._directories.spool / known.part
        with contextlib.suppress(FileNotFoundError):
            if now - self._disk.modified(path) < _PART_SECONDS:
                return
            self._disk.unlink(path)
        known.part = ""

    def hear(self, said: Said) -> None:
        """See `sdk.arrivals.Arrivals`."""
        try:
            word = msgspec.json.decode(said.word, type=Word)
        except (ValueError, RecursionError) as why:
            raise Unwelcome(422, f"no word of node {said.node}: {why}") from None
        self._check(Life(said.node, word.incarnation))
        with self._known(said.node).lock:
            folder, spool = self._directory, self._directories.spool
            if hear(folder, said.node, word, self._clock(), self._disk):
                forget_some(folder, spool, said.node, self._disk)

    def bring(self, life: Life) -> _Bringing:
        """See `sdk.arrivals.Arrivals`."""
        self._check(life)
        known = self._known(life.node)
        with known.lock:
            self._see_where_they_go(known)
            record = self._begun(known, life)
            if record != known.record:
                self._disk.make_directory(self._directory)
                known.file.write(record)
                known.record = record
            if (before := known.holder) is not None:
                before.end(life)
            known.holder = _Bringing(self, known, life)
            return known.holder

    def _check(self, life: Life) -> None:
        node = life.node
        if not _NODE.fullmatch(node):  # it becomes a path
            raise Unwelcome(422, f"{node!r} is no node's name")
        journal = self._directories.journal_of(node)
        if node == self._node or self._disk.exists(journal):
            raise Unwelcome(403, f"node {node} has its journal on this machine")
        for one in (life.incarnation, *life.earlier):
            if not _INCARNATION.fullmatch(one):
                raise Unwelcome(422, f"{one!r} is no incarnation")

    def _see_where_they_go(self, known: _Node) -> None:
        """Before it is told what is here."""
        if (onward := self._onward) is None:
            return
        if self._waits and (not self._place(known) or onward.has_of(known.name)):
            raise BlockingIOError(
                errno.EAGAIN, "what came before is not in the bucket yet (ack: spool)"
            )

    def _begun(self, known: _Node, life: Life) -> Record:
        """The record with which that life goes on."""
        record, node, new = known.record, life.node, life.incarnation
        if record is None:
            return Record(new, {new: 0})
        if new == record.current:
            return record
        if (
            new in record.last
        ):  # two gateways have the name: each brings what is its own
            self._twins[node] = self._clock()
            return msgspec.structs.replace(record, current=new)
        if record.current not in life.earlier:
            self._tell(
                f"node {node} began anew: incarnation {new} knows nothing of "
                f"{record.current}, of which all up to lsn {record.last[record.current]} "
                "is here; what that one had acknowledged behind it, and not forwarded, is "
                "lost with its disk, unless that gateway still runs: then two have this name"
            )
        last = {**record.last, new: 0}
        for oldest in [*last][: max(0, len(last) - _MOST_INCARNATIONS)]:
            del last[oldest]
        return Record(new, last, record.placing)

    def _known(self, node: str) -> _Node:
        with self._lock:
            if (known := self._nodes.get(node)) is not None:
                return known
        file = StateFile(self._directory / node, Record, self._disk)
        record, damaged = file.read()
        if damaged is not None:
            self._tell(
                f"{damaged}: what of node {node} is here is not known any more, and what it "
                "forwards again is dropped by the Spark job"
            )
        with self._lock:
            return self._nodes.setdefault(node, _Node(node, file, record=record))

    def arrived(self, size: int, named: SpoolFile) -> None:
        """A file has come.  Any thread."""
        with self._lock:
            self.files += 1
            self.bytes += size
            self.events += named.last - named.first + 1

    @property
    def _directory(self) -> Path:
        return self._directories.arrivals

    def _place(self, known: _Node) -> bool:
        """Give the last file its name; False while another one has it."""
        placing = "" if known.record is None else known.record.placing
        spool = self._directories.spool
        if placing and self._disk.exists(spool / placing):
            known.unplaced = True
            public, onward = spool / _parsed(placing).public, self._onward
            if onward and onward.has(public.name):
                return False
            self._disk.rename(spool / placing, public)
            if onward is not None:
                onward.add(public.name)
        known.unplaced = False
        return True


def come(folder: Path) -> Iterator[tuple[str, Mapping[str, int]]]:
    """How far the files of each node have come, by incarnation, for whoever only looks at a
    hub's directory of arrivals; nothing of what is damaged.  Raises OSError.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        if _NODE.fullmatch(path.name) and (found := look(path, Record)) is not None:
            yield path.name, found.last


class _Arriving(NamedTuple):
    """What the name of a file says of which not all has come."""

    sha256: str
    public: str
    """Its name to be."""

    @property
    def hidden(self) -> str:
        """That name."""
        return f".arriving-{self.sha256}-{self.public}"


def _parse(name: str) -> _Arriving | None:
    found = _HIDDEN.fullmatch(name)
    if found is None or parse_file_name(found[2]) is None:
        return None
    return _Arriving(found[1], found[2])


def _parsed(name: str) -> _Arriving:
    found = _parse(name)
    assert found is not None
    return found


@define(eq=False)
class _InHand:
    """A file that is coming."""

    brought: Brought
    named: SpoolFile
    file: File
    at: int = 0
    """So much of it is there, and …"""
    sha256: hashlib._Hash = field(factory=hashlib.sha256)
    """… the digest of that."""


@define(eq=False, slots=False)
class _Bringing:
    """The files of one node: implements `gateway.sdk.arrivals.Bringing`."""

    _arrivals: Arrivals
    _known: _Node
    _life: Life

    def __attrs_post_init__(self) -> None:
        self.ended: Unwelcome | None = None
        """See `sdk.arrivals.Bringing`."""
        self._hand: _InHand | None = None

    @property
    def last(self) -> Mapping[str, int]:
        """See `sdk.arrivals.Bringing`."""
        record = self._known.record
        return {} if record is None else record.last

    @property
    def begun(self) -> Begun | None:
        """See `sdk.arrivals.Bringing`."""
        if not (part := self._known.part):
            return None
        found, path = _parsed(part), self._spool / part
        with contextlib.suppress(OSError):
            at = self._disk.size(path)
            named = parse_file_name(found.public)
            by = named.incarnation if named else ""
            return Begun(found.public, by, found.sha256, at)
        return None

    def begin(self, file: Brought) -> bool:
        """See `sdk.arrivals.Bringing`."""
        with self._going_on():
            named = self._look_at(file)
            if named.last <= self.last.get(file.incarnation, 0):
                return False
            if not self._arrivals._place(self._known):  # noqa: SLF001 - of one module
                raise BlockingIOError(
                    errno.EAGAIN, "the file before it is not in the bucket yet"
                )
            self._hand = self._opened(file, named)
            return True

    def _look_at(self, file: Brought) -> SpoolFile:
        named = parse_file_name(file.name)
        if named is None or named.node != self._life.node:
            raise Unwelcome(422, f"{file.name!r} is no file of node {self._life.node}")
        if named.incarnation != file.incarnation:
            raise Unwelcome(
                422, f"{file.name} is not of incarnation {file.incarnation!r}"
            )
        if named.last - named.first >= _MOST_EVENTS:
            raise Unwelcome(422, f"{file.name} has more than {_MOST_EVENTS} events")
        if not _SHA256.fullmatch(file.sha256) or file.bytes <= 0:
            raise Unwelcome(422, f"{file.name}: without a digest, or without a size")
        return named

    def _opened(self, brought: Brought, named: SpoolFile) -> _InHand:
        known, at = self._known, brought.at
        part = _Arriving(brought.sha256, brought.name).hidden
        path = self._spool / part
        self._close()
        if known.part and known.part != part:
            self._disk.unlink(self._spool / known.part)
            known.part = ""
        if not at:
            self._disk.unlink(path)
            known.part = part
            return _InHand(brought, named, self._disk.create(path))
        if known.part != part or self._disk.size(path) != at:
            raise Unwelcome(409, f"{brought.name} can not go on at byte {at}")
        hand = _InHand(brought, named, self._disk.open(path), at)
        with self._arrivals._reader(path) as opened:  # noqa: SLF001 - likewise
            while data := opened.read(_CHUNK_BYTES):
                hand.sha256.update(data)
        return hand

    def write(self, octets: Sequence[bytes]) -> None:
        """See `sdk.arrivals.Bringing`."""
        with self._holding() as hand:
            size = sum(map(len, octets))
            if hand.at + size > hand.brought.bytes:
                raise Unwelcome(
                    422, f"{hand.brought.name} has more bytes than were announced"
                )
            try:
                hand.file.write(octets)
            except OSError as why:
                self._take_back(hand, why)
                raise
            hand.at += size
            for each in octets:
                hand.sha256.update(each)

    def _take_back(self, hand: _InHand, failed: OSError) -> None:
        """What was written of octets that will come again."""
        try:
            hand.file.truncate(hand.at)
        except OSError:
            # Behind them they would be there twice.  How many there are, its size tells.
            self._close()
            name = hand.brought.name
            raise Unwelcome(503, f"{name} could not be written: {failed}") from failed

    def finish(self) -> int:
        """See `sdk.arrivals.Bringing`."""
        with self._holding() as hand:
            known, brought = self._known, hand.brought
            path = self._spool / known.part
            self._see_to_it_that_it_is_whole(hand, path)
            # By this clock: the other's may be anything.
            self._disk.set_times(path, self._arrivals._clock())  # noqa: SLF001 - likewise
            self._disk.sync_directory(self._spool)
            assert known.record is not None
            last = {**known.record.last, brought.incarnation: hand.named.last}
            record = msgspec.structs.replace(
                known.record, last=last, placing=known.part
            )
            known.file.write(record)
            known.record, known.part = record, ""
            self._close()
            self._arrivals.arrived(brought.bytes, hand.named)
            # Where that fails, or a crash undoes it, the record says what is to be done.
            with contextlib.suppress(OSError):
                self._arrivals._place(known)  # noqa: SLF001 - likewise
            return hand.named.last - hand.named.first + 1

    def _see_to_it_that_it_is_whole(self, hand: _InHand, path: Path) -> None:
        """And synced; what is not goes."""
        name = hand.brought.name
        try:
            hand.file.sync()
        except OSError as why:  # what is on the disk now, nobody knows
            self._drop()
            raise Unwelcome(503, f"{name} could not be synced: {why}") from why
        if hand.at != hand.brought.bytes:
            self._drop()
            raise Unwelcome(422, f"{name} ended early, after {hand.at} bytes")
        if hand.sha256.hexdigest() != hand.brought.sha256:
            self._drop()
            raise Unwelcome(409, f"{name}: its bytes are not those that were announced")
        with self._arrivals._reader(path) as opened:  # noqa: SLF001 - likewise
            wrong = why_no_spool_file(opened, hand.named)
        if wrong is not None:
            self._drop()
            raise Unwelcome(422, f"{name}: {wrong}")

    def close(self) -> None:
        """See `sdk.arrivals.Bringing`."""
        with self._known.lock:
            self._close()
            if self._known.holder is self:
                self._known.holder = None

    def end(self, by: Life) -> None:
        """Somebody else brings the node's files: as *by* says."""
        self.ended = Unwelcome(409, f"node {by.node} is brought by a newer connection")
        self._close()

    @contextlib.contextmanager
    def _going_on(self) -> Iterator[None]:
        with self._known.lock:
            if self.ended is not None:
                raise self.ended
            yield

    @contextlib.contextmanager
    def _holding(self) -> Iterator[_InHand]:
        with self._going_on():
            assert self._hand is not None  # `begin` comes first
            yield self._hand

    @property
    def _disk(self) -> Disk:
        return self._arrivals._disk  # noqa: SLF001 - likewise

    @property
    def _spool(self) -> Path:
        return self._arrivals._directories.spool  # noqa: SLF001 - likewise

    def _drop(self) -> None:
        self._close()
        self._disk.unlink(self._spool / self._known.part)
        self._known.part = ""

    def _close(self) -> None:
        if self._hand is not None:
            self._hand.file.close()
            self._hand = None


def why_no_spool_file(opened: BinaryIO, named: SpoolFile) -> str | None:
    """Why a file is not one that a gateway has written, with just these events; None if it
    is.  Raises OSError.

    A reader of the spool takes for granted what is looked at here.  However little is
    packed into much, it takes no memory to speak of.
    """
    try:
        size = opened.seek(0, io.SEEK_END)
        opened.seek(max(0, size - _TAIL.size))
        tail = opened.read(_TAIL.size)
        length, mark = _TAIL.unpack(tail.rjust(_TAIL.size, b"\0"))
        if mark in _MARKS and (wrong := _why_too_much(opened, size, length)):
            return wrong
        with pq.ParquetFile(opened, buffer_size=_CHUNK_BYTES) as file:
            return (
                _why_no_events(file, named)
                or _why_too_large(file, opened, size)
                or why_not_those(file, named, _LOOKED_AT)
            )
    except OSError as why:
        if why.errno is not None:  # the disk's; Arrow's own have none
            raise
        return str(why)
    except Exception as why:  # damaged bytes make pyarrow raise anything
        return f"can not be read: {why}"


def _why_too_much(opened: BinaryIO, size: int, length: int) -> str | None:
    """Of a footer, before anything is made of it."""
    if length > _MOST_FOOTER_BYTES:
        return f"its footer has more than {_MOST_FOOTER_BYTES} bytes"
    opened.seek(max(0, size - _TAIL.size - length))
    footer = opened.read(length)
    try:
        Compact(footer, _MOST_FOOTER_WEIGHT, _LONGEST_STRING).skip(STRUCT)
    except TooMuch as why:
        return f"its footer has {why}"
    return None


def _why_no_events(file: pq.ParquetFile, named: SpoolFile) -> str | None:
    said = file.metadata.metadata or {}
    version = digests.said(said, SCHEMA_VERSION_KEY) or "0"
    if not version.isdigit() or int(version) > SCHEMA_VERSION:
        return (
            f"it has form {version}, and {SCHEMA_VERSION} is the newest known here: this "
            "gateway is to be upgraded first"
        )
    if not file.schema_arrow.equals(SCHEMA):
        return "its columns are not those of events"
    if digests.said(said, incarnation.KEY) != named.incarnation:
        return f"it does not say that incarnation {named.incarnation} gave its lsns"
    if file.metadata.num_rows != named.last - named.first + 1:
        return f"it has {file.metadata.num_rows} events"
    return None


def _why_too_large(file: pq.ParquetFile, opened: BinaryIO, size: int) -> str | None:
    pages = 0
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        for at in range(group.num_columns):
            chunk = group.column(at)
            if chunk.path_in_schema not in _LOOKED_AT:
                continue
            for unpacked in unpacked_sizes(opened, size, chunk):
                pages += 1
                if pages > MOST_PAGES:  # a thousand groups may name the same ones
                    return f"its columns have more than {MOST_PAGES} pages"
                if unpacked > _MOST_PAGE_BYTES:
                    name, most = chunk.path_in_schema, _MOST_PAGE_BYTES
                    return f"a page of its column {name} has more than {most} bytes"
    return None
