"""Files that other gateways bring (`gateway.sdk.arrivals`), and what is known of each node.

    arrivals/NODE                              a `Record`, a `statefile`
    spool/.arriving-SHA256-NAME                a file of which not all has come

    1. octets → the hidden file; sync it; look whether it is what its name says
    2. rename it to its name, sync the directory                the spool's readers may see it
    3. the record: its lsns are there; synced
    4. who brought it is told

A crash before 2 leaves a part, which goes on, or is dropped when its digest is not right, or
when nothing more of it came for a day.  After a crash before 3 the file is brought again, and
found under its name, in the spool or the archive.  Where it has left both by then it is taken
a second time; the Spark job compares its rows with those that the tables have, and drops it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec
import pyarrow.parquet as pq
from attrs import define, field

from gateway.event import SCHEMA, SCHEMA_VERSION, SCHEMA_VERSION_KEY
from gateway.sdk.arrivals import Announced, Known, Unwelcome
from gateway.sdk.disk import Disk, File
from gateway.sdk.protocol import Unusable
from gateway.store import digests
from gateway.store.directories import Directories
from gateway.store.hub.chunks import why_unlike
from gateway.store.hub.pages import MOST_PAGES, unpacked_sizes
from gateway.store.hub.promised import why_not_those
from gateway.store.hub.thrift import STRUCT, Compact, TooMuch
from gateway.store.lsns import Lsns
from gateway.store.names import INCARNATION, SpoolFile, parse_file_name
from gateway.store.node import incarnation
from gateway.store.objects.node_record import NodeRecord, forget_some, hear
from gateway.store.system.lock import Lock, Locked, lock_file
from gateway.store.system.statefile import StateFile, look

_MOST_INCARNATIONS = 2000
"""Incarnations of a node that are remembered; the oldest go.  What is brought again of these,
the Spark job has already."""
_MOST_FOOTER_BYTES = 8 << 20
"""Bytes of a footer: more than the largest segment of small events makes."""
_MOST_FOOTER_WEIGHT = 1 << 21
"""Weight of a footer's lists: 240 for a group of rows as gateways write them.  Three bytes of
a list may take 700 in memory: so it is some 200 MiB at most."""
_LONGEST_STRING = 1 << 14
"""Bytes of a string in a footer.  Arrow's schema has 3 KiB; it can name one field of a few
bytes many times."""
_MOST_PAGE_BYTES = 8 << 20
"""Bytes of a page that is looked at; gateways write pages of one MiB."""
_MOST_EVENTS = 1 << 28
"""Events of a file: a page of a few bytes can have 2**31 rows, looked at one by one."""
_LOOKED_AT = ("node", "lsn")
_HIDDEN = re.compile(r"\.arriving-([0-9a-f]{64})-(events-.+\.parquet)")
# With the longest of these a hidden name has 242 bytes, and 255 are the most.
_INCARNATION = re.compile(INCARNATION)
_MOST_PARTS = 16
"""Files of a node that have not come whole; the oldest goes for one more."""
_PART_SECONDS = 24 * 3600.0
"""Seconds after which what came of a file goes, if no more of it came."""
_LATELY_SECONDS = 600.0
"""Seconds for which a node's files may still come, or two gateways of one name are told."""
_NODE = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,98}[a-z0-9])?")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 1 << 20
_TAIL = struct.Struct("<I4s")
"""The footer's length, and Parquet's mark."""
_MARKS = (b"PAR1", b"PARE")
"""Parquet's mark of a plain file, and of an encrypted one."""


class Record(msgspec.Struct, frozen=True):
    """The record of one node."""

    current: str = ""
    """The incarnation that was heard last."""
    lsns: Mapping[str, tuple[tuple[int, int], ...]] = {}
    """The ranges of lsns that are here, by incarnation, the oldest first."""


class Onward(Protocol):
    """Uploads of files from the spool to a bucket, or to another hub.  Any thread."""

    def add(self, name: str) -> None:
        """A file is in the spool."""

    def has(self, name: str) -> bool:
        """Whether that one is not at its goal yet."""

    def waiting_of(self, node: str) -> list[SpoolFile]:
        """Files of that node that are not."""


@define(eq=False, slots=False)
class _Node:
    """One node, while the gateway runs.  Its lock is held by the thread that changes it."""

    name: str
    file: StateFile[Record]
    is_known: bool
    """True if there is a record."""
    current: str
    lsns: dict[str, Lsns]
    lock: threading.RLock = field(factory=threading.RLock)
    parts: dict[str, None] = field(factory=dict)
    """Hidden names of files that have not come whole, the oldest first."""
    hands: dict[str, _Bringing] = field(factory=dict)
    """Files that come now, by their hidden names."""
    asked_at: float = 0.0
    """When its bringer was heard last."""


@define(eq=False, slots=False)
class Arrivals:
    """The files that come to one gateway: implements `gateway.sdk.arrivals.Arrivals`.

    *tell* is told what an operator should know; *clock* is the wall's; *by* gives the
    gateway's own incarnation.

    33 methods: files, parts and what is heard of a node change together, under one lock.
    """

    _node: str
    _directories: Directories
    _disk: Disk
    _tell: Callable[[str], None]
    _clock: Callable[[], float] = time.time
    _reader: Callable[[Path], BinaryIO] = field(
        default=lambda path: path.open("rb"), kw_only=True
    )
    """Opens what has come: it may be much."""
    _by: Callable[[], str] = field(default=str, kw_only=True)

    def __attrs_post_init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._lock = threading.Lock()
        self._why_not: Callable[[int], str | None] = lambda _: None
        self._files: Callable[[], int] = lambda: 0
        self.onward: Onward | None = None
        """Uploads that take files on."""
        self._spool_lock: Lock | None = None
        self._waits = False
        self._looked_at = 0.0
        """When parts that are left were looked at."""
        self.files = self.bytes = self.events = 0
        """Files that have arrived since the start, and their bytes and events."""
        self._twins: dict[str, float] = {}
        """Nodes of which two incarnations speak in turns, and when that was so last."""

    def open(self) -> None:
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
        self.find_parts()

    def find_parts(self) -> None:
        """Know again what came before the start.  Blocks; raises OSError."""
        for name in self._disk.names(self._directories.spool):
            found = _HIDDEN.fullmatch(name)
            if found and (named := parse_file_name(found[2])):
                self._known(named.node).parts[name] = None

    def watch(
        self,
        why_not: Callable[[int], str | None],
        files: Callable[[], int],
        onward: Onward | None = None,
        *,
        waits: bool = False,
    ) -> None:
        """*why_not* says why the spool has no room for so many bytes, *files* how many are
        there.  *onward* takes them to a bucket; with *waits* an edge is told of a file once it
        is there (`ack: spool`).
        """
        self._why_not, self._files = why_not, files
        self.onward, self._waits = onward, waits

    @property
    def incarnation(self) -> str:
        return self._by()

    @property
    def waiting(self) -> int:
        return self._files()

    def why_not(self, size: int = 0) -> str | None:
        return self._why_not(size)

    def is_settled(self, name: str) -> bool:
        return not self._waits or self.onward is None or not self.onward.has(name)

    @property
    def twins(self) -> list[str]:
        """Nodes of which two gateways have the name, as far as can be told."""
        return sorted(node for node, at in self._twins.items() if self._lately(at))

    def _lately(self, at: float) -> bool:
        return abs(self._clock() - at) < _LATELY_SECONDS  # or the clock was set back

    def has(self, node: str) -> bool:
        """Whether that node's files arrive here, or did.  Any thread."""
        with self._lock:
            known = self._nodes.get(node)
        if known is not None and known.is_known:
            return True
        known_name = _NODE.fullmatch(node) is not None
        return known_name and self._disk.exists(self._directory / node)

    def all_nodes(self) -> list[str]:
        """Nodes that ever brought files here.  Blocks; raises OSError."""
        if not self._disk.exists(self._directory):
            return []
        names = self._disk.names(self._directory)
        return sorted(name for name in names if _NODE.fullmatch(name))

    def comes(self, node: str) -> bool:
        """Whether that node's files may come now.  Any thread."""
        with self._lock:
            known = self._nodes.get(node)
        return known is not None and (bool(known.hands) or self._lately(known.asked_at))

    def look_after_parts(self) -> None:
        """Remove what came of files of which no more came for a day.  Blocks; raises OSError."""
        now = self._clock()
        if self._spool_lock is None or abs(now - self._looked_at) < _PART_SECONDS / 24:
            return
        self._looked_at = now
        with self._lock:
            nodes = [*self._nodes.values()]
        for known in nodes:
            with known.lock:
                for part in [*known.parts]:
                    if part not in known.hands and self._is_old(part, now):
                        self._drop(known, part)

    def _is_old(self, part: str, now: float) -> bool:
        with contextlib.suppress(FileNotFoundError):
            modified = self._disk.modified(self._directories.spool / part)
            return abs(now - modified) >= _PART_SECONDS
        return True

    def _drop(self, known: _Node, part: str) -> None:
        self._disk.unlink(self._directories.spool / part)
        known.parts.pop(part, None)

    def hear(self, node: str, incarnation: str, word: bytes) -> None:
        try:
            said = msgspec.json.decode(word, type=NodeRecord)
        except (ValueError, RecursionError) as why:
            raise Unwelcome(422, f"no word of node {node}: {why}") from None
        self._check(node)
        if said.incarnation != incarnation or not _INCARNATION.fullmatch(incarnation):
            raise Unwelcome(422, f"no word of incarnation {incarnation!r}")
        known, folder = self._known(node), self._directory
        with known.lock:
            if not said.heard:  # by itself, or it may be an old one that is handed on
                known.asked_at = self._clock()
                self._speaks(known, said)
            if hear(folder, node, said, self._clock(), self._disk):
                forget_some(folder, self._directories.spool, node, self._disk)

    def _speaks(self, known: _Node, said: NodeRecord) -> None:
        """Tell where another incarnation was heard last, and this one does not know it."""
        before, this = known.current, said.incarnation
        if before == this:
            return
        if before and before not in said.earlier:
            if this in known.lsns:  # each speaks in its turn
                self._twins[known.name] = self._clock()
            else:
                last = known.lsns.get(before, Lsns()).last
                self._tell(
                    f"node {known.name} began anew: incarnation {this} knows nothing of "
                    f"{before}, of which lsn {last} is the last one here; what that one had "
                    "acknowledged behind it, and not forwarded, is lost with its disk, "
                    "unless that gateway still runs: then two have this name"
                )
        known.current = this
        known.lsns.setdefault(this, Lsns())
        self._write(known)

    def known(self, node: str) -> Known:
        self._check(node)
        if self._is_new(node):
            return Known(self._node, self._by(), self._files())
        known = self._known(node)
        with known.lock:
            known.asked_at = self._clock()
            lsns = {each: one.copy() for each, one in known.lsns.items()}
        if self._waits and self.onward is not None:
            for one in self.onward.waiting_of(node):
                if one.incarnation in lsns:
                    lsns[one.incarnation] -= Lsns([(one.first, one.last)])
        found = {each: tuple(one) for each, one in lsns.items() if one}
        return Known(self._node, self._by(), self._files(), found)

    def look(self, file: Announced) -> int:
        named = self._named(file)
        if self._is_new(named.node) and self._events_here(named.name) is None:
            return 0
        known = self._known(named.node)
        with known.lock:
            known.asked_at = self._clock()
            self._see_whether_it_is_there(known, named)
            if (part := _hidden(file)) in known.parts:
                with contextlib.suppress(FileNotFoundError):
                    return self._disk.size(self._directories.spool / part)
        return 0

    def bring(self, file: Announced, at: int) -> _Bringing:
        named, part = self._named(file), _hidden(file)
        known = self._known(named.node)
        with known.lock:
            known.asked_at = self._clock()
            self._see_whether_it_is_there(known, named)
            if (before := known.hands.pop(part, None)) is not None:
                before.end()
            known.hands[part] = bringing = self._begun(known, file, named, at)
            return bringing

    def _begun(
        self, known: _Node, file: Announced, named: SpoolFile, at: int
    ) -> _Bringing:
        part = _hidden(file)
        path = self._directories.spool / part
        if not at:
            idle = [one for one in known.parts if one not in known.hands]
            if len(known.parts) >= _MOST_PARTS and idle:
                self._drop(known, idle[0])
            self._disk.unlink(path)
            known.parts[part] = None
            return _Bringing(self, known, file, named, path, self._disk.create(path))
        if part not in known.parts or self._disk.size(path) != at:
            raise Unwelcome(409, f"{file.name} can not go on at byte {at}")
        bringing = _Bringing(self, known, file, named, path, self._disk.open(path), at)
        try:
            with self._reader(path) as opened:
                while data := opened.read(_CHUNK_BYTES):
                    bringing.sha256.update(data)
        except OSError:
            bringing._drop()  # noqa: SLF001 - or it would be found, and not read, again
            raise
        return bringing

    def _named(self, file: Announced) -> SpoolFile:
        named = parse_file_name(file.name)
        if named is None:
            raise Unwelcome(422, f"{file.name!r} is no spool file")
        self._check(named.node)
        if named.last - named.first >= _MOST_EVENTS:
            raise Unwelcome(422, f"{file.name} has more than {_MOST_EVENTS} events")
        digested = _DIGEST.fullmatch(file.sha256) and _DIGEST.fullmatch(file.events)
        if not digested or file.size <= 0:
            raise Unwelcome(422, f"{file.name}: without digests, or without a size")
        return named

    def _check(self, node: str) -> None:
        if not _NODE.fullmatch(node):  # it becomes a path
            raise Unwelcome(422, f"{node!r} is no node's name")
        journal = self._directories.journal_of(node)
        if node == self._node or self._disk.exists(journal):
            raise Unwelcome(403, f"node {node} has its journal on this machine")

    def _see_whether_it_is_there(self, known: _Node, named: SpoolFile) -> None:
        """Raise `Unwelcome` if it is, durably, whatever the record says."""
        name = named.name
        if (events := self._events_here(name)) is None:
            return
        # A sync failed, or a kill came before it.
        self._disk.sync_directory(self._directories.spool)
        self.note(known, named)
        if not self.is_settled(name):
            raise Unwelcome(503, f"{name} is not in the bucket yet (ack: spool)")
        raise Unwelcome(412, f"{name} is there", events)

    def _events_here(self, name: str) -> str | None:
        """The digest of events of a file that is there; None for one that is not, or is
        damaged: what comes takes its place.
        """
        # In this order, as it may move meanwhile.
        for folder in (self._directories.spool, self._directories.archive):
            with (
                contextlib.suppress(FileNotFoundError),
                self._reader(folder / name) as opened,
            ):
                return _events_of(opened)
        return None

    def note(self, known: _Node, named: SpoolFile) -> None:
        """Note durably that its lsns are there.  The node's lock is held."""
        lsns = known.lsns.setdefault(named.incarnation, Lsns())
        if not known.is_known or not lsns.covers(named.first, named.last):
            before = lsns.copy()
            lsns.add(named.first, named.last)
            try:
                self._write(known)
            except OSError:
                known.lsns[named.incarnation] = before
                raise

    def _write(self, known: _Node) -> None:
        lsns = known.lsns
        for oldest in [*lsns][: max(0, len(lsns) - _MOST_INCARNATIONS)]:
            del lsns[oldest]
        self._disk.make_directory(self._directory)
        found = {each: tuple(one) for each, one in lsns.items()}
        known.file.write(Record(known.current, found))
        known.is_known = True

    def _is_new(self, node: str) -> bool:
        """Whether nothing of a node is here: nothing is kept of who only asks."""
        with self._lock:
            known = node in self._nodes
        return not known and not self._disk.exists(self._directory / node)

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
        said = record or Record()
        lsns = {each: Lsns(spans) for each, spans in said.lsns.items()}
        made = _Node(node, file, record is not None, said.current, lsns)
        with self._lock:
            return self._nodes.setdefault(node, made)

    def came(self, size: int, named: SpoolFile) -> None:
        """A file has its name.  Any thread."""
        if self.onward is not None:
            self.onward.add(named.name)
        with self._lock:
            self.files += 1
            self.bytes += size
            self.events += named.events

    def publish(self, bringing: _Bringing) -> None:
        """Give a file that is whole its name, durably.  The node's lock is held."""
        known, named, spool = bringing.known, bringing.named, self._directories.spool
        self._see_whether_it_is_there(known, named)
        self._disk.rename(bringing.path, spool / named.name)
        known.parts.pop(bringing.path.name, None)
        self.came(bringing.file.size, named)
        self._disk.sync_directory(spool)
        self.note(known, named)

    @property
    def _directory(self) -> Path:
        return self._directories.arrivals


def come(folder: Path) -> Iterator[tuple[str, Mapping[str, int]]]:
    """The last lsn that has come of each incarnation of each node, as a hub's directory of
    arrivals has it; nothing of what is damaged.  Raises OSError.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        if _NODE.fullmatch(path.name) and (found := look(path, Record)) is not None:
            yield path.name, {by: Lsns(some).last for by, some in found.lsns.items()}


def _hidden(file: Announced) -> str:
    """The name of a file of which not all has come."""
    return f".arriving-{file.sha256}-{file.name}"


@define(eq=False, slots=False)
class _Bringing:
    """One file that comes: implements `gateway.sdk.arrivals.Bringing`."""

    _arrivals: Arrivals
    known: _Node
    file: Announced
    named: SpoolFile
    path: Path
    _opened: File
    _at: int = 0
    """Bytes of it that are there."""
    sha256: hashlib._Hash = field(factory=hashlib.sha256)
    """The digest of what is there."""
    _over: Unwelcome | None = None
    """Why nothing more of it is taken here."""

    def write(self, octets: Sequence[bytes]) -> None:
        with self._going_on():
            size = sum(map(len, octets))
            if self._at + size > self.file.size:
                raise Unwelcome(
                    422, f"{self.file.name} has more bytes than were announced"
                )
            try:
                self._opened.write(octets)
            except OSError:
                self._end(f"{self.file.name} could not be written")
                raise
            self._at += size
            for each in octets:
                self.sha256.update(each)

    def finish(self) -> int:
        with self._going_on():
            self._see_that_it_is_whole()
            # By this clock: the other's may be anything.
            arrivals = self._arrivals
            arrivals._disk.set_times(self.path, arrivals._clock())  # noqa: SLF001
            arrivals.publish(self)
            self.close()
            return self.named.events

    def _see_that_it_is_whole(self) -> None:
        """And synced; what is not goes."""
        name = self.file.name
        try:
            self._opened.sync()
        except OSError:  # what is on the disk now, nobody knows
            self._drop()
            raise
        if self._at != self.file.size:
            self._drop()
            raise Unwelcome(422, f"{name} ended early, after {self._at} bytes")
        if self.sha256.hexdigest() != self.file.sha256:
            self._drop()
            raise Unwelcome(409, f"{name}: its bytes are not those that were announced")
        with self._arrivals._reader(self.path) as opened:  # noqa: SLF001
            wrong = why_no_spool_file(opened, self.named)
            if wrong is None and _events_of(opened) != self.file.events:
                wrong = "its events have another digest than was announced"
        if wrong is not None:
            self._drop()
            raise Unwelcome(422, f"{name}: {wrong}")

    def close(self) -> None:
        with self.known.lock:
            self._end(f"{self.file.name} comes no more on this connection")
            if self.known.hands.get(self.path.name) is self:
                del self.known.hands[self.path.name]

    def end(self) -> None:
        """Another connection brings the file now.  The node's lock is held."""
        self._end(f"{self.file.name} is brought by a newer connection")

    def _end(self, why: str) -> None:
        self._over = self._over or Unwelcome(409, why)
        self._opened.close()

    @contextlib.contextmanager
    def _going_on(self) -> Iterator[None]:
        with self.known.lock:
            if self._over is not None:
                raise self._over
            yield

    def _drop(self) -> None:
        self.close()
        self._arrivals._drop(self.known, self.path.name)  # noqa: SLF001


def _events_of(opened: BinaryIO) -> str | None:
    """The digest of its events that a file says; None if it says none, or is damaged."""
    try:
        opened.seek(0)
        return digests.said(pq.read_metadata(opened).metadata, digests.EVENTS_KEY)
    except Exception as why:  # a damaged footer makes pyarrow raise anything
        if getattr(why, "errno", None) or isinstance(why, MemoryError):
            raise  # it may be sound
        return None


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
        if length > _MOST_FOOTER_BYTES and mark in _MARKS:
            return f"its footer has more than {_MOST_FOOTER_BYTES} bytes"
        opened.seek(max(0, size - _TAIL.size - length))
        footer = opened.read(length) if mark in _MARKS else b""
        if footer and (wrong := _why_too_much(footer)):
            return wrong
        with pq.ParquetFile(opened, buffer_size=_CHUNK_BYTES) as file:
            return (
                _why_no_events(file, named)
                or why_unlike(footer, file.schema)
                or _why_too_large(file, opened, size)
                or why_not_those(file, named, _LOOKED_AT)
            )
    except OSError as why:
        if why.errno is not None:  # the disk's; Arrow's own have none
            raise
        return str(why)
    except Exception as why:  # damaged bytes make pyarrow raise anything
        return f"can not be read: {why}"


def _why_too_much(footer: bytes) -> str | None:
    """Why a footer is none to be read, before anything is made of it; None if it is."""
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
