"""Words in a bucket about each incarnation of a node: how far it had acknowledged.

    .gateway-node-NODE_INCARNATION    in a bucket: a `NodeRecord` as JSON; Spark passes it over
    arrivals/NODE_INCARNATION         the same at a hub, of an edge

Only the gateway that is this incarnation says it: at its start, once a minute, and at its
end, when it says that this is all.  The Spark job and the audit read it: what a lost disk
had acknowledged, and is in no file, is missing then, and not forgotten.

The next one in its directory removes it when there are many, and those that stay say where
it began and ended.  It stays where it says that it came farther than that one knows.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from attrs import define

from gateway.sdk.disk import Disk, replace_file
from gateway.store.lsns import Lsns
from gateway.store.names import INCARNATION, SpoolFile, parse_file_name
from gateway.store.node.through import Through
from gateway.store.objects.bucket import Bucket, BucketError, StoredObject
from gateway.store.readers.lake import End, Lsn

if TYPE_CHECKING:
    from gateway.store.node.lineage import Lineage

EVERY_SECONDS = 60.0
"""Seconds between two records."""
SILENT_SECONDS = 300.0
"""The age in seconds of a record, not its last one, of an incarnation not known to live."""

_NAME = ".gateway-node-"
_LOOK_ROUND = 5
"""The records after each of which it is looked whether another daemon has this node's name."""
MOST_EARLIER = 50
"""Incarnations before its own that a record at a hub names, and whose records stay in a bucket."""
_MOST_HOLES = 100
"""The most ranges of them that a record has, the newest ones."""
_STAYS = 500
"""The record of each so many incarnations stays in a bucket: it names the thousand before it,
which those of a later thousand do not."""


class NodeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of an incarnation about itself.

    18 attributes: what is read elsewhere of a node is in this one object.
    """

    incarnation: str
    since: Lsn
    """The first lsn that it may have given."""
    lsn: Lsn
    """The last one that it has acknowledged; before `since` if there is none."""
    at: float
    """When that was, in seconds since the epoch, by its clock."""
    ack: str
    """How it acknowledges: `journal` or `spool`."""
    exact: bool = False
    """Whether it has ended in good order, and acknowledged nothing behind `lsn`."""
    earlier: tuple[str, ...] = ()
    """The incarnations that its directory had before, and vouches for, oldest first."""
    begins: tuple[Lsn, ...] = ()
    """The first lsn that each of `earlier` may have given, 0 if that is not known."""
    number: int = 0
    """How many incarnations its directory had, with this one; 0 if that is not known."""
    records: int = 0
    """The number of node records that its directory has written, with this one."""
    records_before: int | None = None
    """The number that it had when this incarnation was started; None if that is not known."""
    published: Lsn = 0
    """The lsn up to which all that its directory was ever given is in the bucket, or was."""
    began: float = 0.0
    """When its daemon began, by the clock of `at`."""
    heard: float = 0.0
    """When a hub has heard it that keeps it, or hands it on, by that one's clock; 0: who says
    it has written this itself."""
    left: Mapping[str, tuple[tuple[Lsn, Lsn], ...]] = {}
    """Lsns of other nodes' incarnations (`NODE_INCARNATION`) that lie in its spool, and that it
    can not bring anywhere; some of them, if there are very many."""
    decommissioned: str = ""
    """The reason why nothing follows it, if that was said."""
    through: Through | None = None
    """How far it has told all that came."""
    holes: Mapping[str, tuple[tuple[Lsn, Lsn], ...]] = {}
    """Lsns that the disk of its directory did not give back, by incarnation; the newest ranges,
    if there are very many."""

    @property
    def unnamed(self) -> Lsn:
        """Lsns up to this one may be holes that it does not name."""
        firsts = [first for spans in self.holes.values() for first, _ in spans]
        return min(firsts) - 1 if len(firsts) >= _MOST_HOLES else 0

    @property
    def all_told(self) -> bool:
        """Whether it acknowledged nothing behind `lsn` that is in no file, if it has ended."""
        return self.exact or self.ack == "spool"

    def goes_on_from(self, other: NodeRecord) -> bool:
        """Whether its directory has what *other* acknowledged: a disk that was set back
        to an earlier moment has not.
        """
        return other.incarnation in self.earlier and other.lsn < self.since


_FILE = re.compile(rf"([a-z0-9][a-z0-9.-]*)_({INCARNATION})")


def name_of(node: str, incarnation: str = "") -> str:
    """The object's name; without an incarnation, what the names of a node's begin with."""
    return f"{_NAME}{node}_{incarnation}"


class Heard(NamedTuple):
    """A record in a bucket."""

    node: str
    record: NodeRecord | None
    why: str
    """Why it can not be read, if it is None."""
    modified: float
    """When it was said, in seconds since the epoch, by the clock of bucket or hub."""


def read_all(bucket: Bucket, node: str | None = None) -> Iterator[Heard]:
    """The records about all nodes, or one: node by node.  Raises `BucketError`."""
    return (read(bucket, one) for one in listed(bucket, node))


def listed(bucket: Bucket, node: str | None = None) -> Iterator[StoredObject]:
    """The objects of all nodes, or of one.  Raises `BucketError`."""
    for one in bucket.list(_NAME if node is None else name_of(node)):
        if _whose(one.name):  # else an earlier version's
            yield one


def read(bucket: Bucket, one: StoredObject) -> Heard:
    """The record in one object.  Any thread; blocks."""
    node, where = _whose(one.name), f"{bucket.url}/{one.name}"
    try:
        data = bucket.read(one.name)
    except BucketError as why:
        return Heard(node, None, f"{where}: {why}", one.modified)
    return _read(node, where, data, one.modified)


def _read(node: str, where: str, data: bytes, modified: float) -> Heard:
    try:
        record = msgspec.json.decode(data, type=NodeRecord)
    except (ValueError, RecursionError) as why:
        return Heard(node, None, f"{where}: {why}", modified)
    return Heard(node, record, "", record.heard or modified)


def at_hub(arrivals: Path, node: str | None = None) -> Iterator[Heard]:
    """The records of edges to the hub whose directory this is: all nodes, or one.  Raises OSError."""
    if not arrivals.is_dir():
        return
    for path in sorted(arrivals.iterdir()):
        if (found := _FILE.fullmatch(path.name)) and node in (None, found[1]):
            with contextlib.suppress(FileNotFoundError):
                yield _read(found[1], str(path), path.read_bytes(), 0.0)


def _whose(name: str) -> str:
    return name.removeprefix(_NAME).rpartition("_")[0]


def ended(
    records: Collection[NodeRecord], silent: Collection[str], now: float
) -> dict[str, End]:
    """How incarnations of one node have ended, by their *records*; *silent* are those that
    have written none for long.

    One that another of these goes on from has not ended: its directory is there.
    """
    by = {record.incarnation: record for record in records}
    goes_on = {
        each
        for record in records
        for each in record.earlier
        if each in by and record.goes_on_from(by[each])
    }
    return {
        record.incarnation: End(
            record.lsn, record.at, record.ack, record.all_told, now, record.since
        )
        for record in records
        if record.incarnation not in goes_on
        and (record.exact or record.incarnation in silent)
    }


def hear(arrivals: Path, node: str, record: NodeRecord, at: float, disk: Disk) -> bool:
    """Keep what has come to a hub, durably; True for the first one of its incarnation.
    Nothing is done with one that is older than what is there.  Blocks; raises OSError.
    """
    path = arrivals / f"{node}_{record.incarnation}"
    if known_already := disk.exists(path):
        known = _read(node, str(path), disk.read(path), 0.0).record
        if record.heard and known is not None and known.heard > record.heard:
            return False
    said = msgspec.structs.replace(record, heard=record.heard or at)
    disk.make_directory(arrivals)
    replace_file(disk, path, [msgspec.json.encode(said)]).close()
    return not known_already


def forget_some(arrivals: Path, spool: Path, node: str, disk: Disk) -> None:
    """Remove the oldest records of a node at a hub, if there are many.  Blocks; raises OSError.

    Only those that others go on from, and that have no file in *spool* any more.
    """
    names = [
        name
        for name in disk.names(arrivals)
        if (found := _FILE.fullmatch(name)) and found[1] == node
    ]
    if len(names) <= MOST_EARLIER:
        return
    records = [
        record
        for name in names
        if (record := _read(node, name, disk.read(arrivals / name), 0.0).record)
    ]
    over = {each for record in records for each in record.earlier}
    waits = {
        named.incarnation
        for name in disk.names(spool)
        if (named := parse_file_name(name)) and named.node == node
    }
    oldest_first = sorted(records, key=lambda record: record.heard)
    for record in oldest_first[: len(names) - MOST_EARLIER]:
        if record.incarnation in over - waits:
            disk.unlink(arrivals / f"{node}_{record.incarnation}")


@define(eq=False, slots=False)
class Relay:
    """The records of others to this gateway, for the taker of its files.

    Each is given once, until it is said anew.  One thread; blocks.
    """

    _arrivals: Path
    _disk: Disk
    _waiting: Callable[[str], Iterable[SpoolFile]] = lambda _: ()
    """Gives the files of a node that are here, and that the taker has not got yet."""

    def __attrs_post_init__(self) -> None:
        self._told: dict[str, float] = {}

    def __call__(self) -> Iterator[tuple[str, str, bytes]]:
        """Node, incarnation and record.  Raises OSError."""
        folder, disk = self._arrivals, self._disk
        for name in disk.names(folder) if disk.exists(folder) else ():
            if found := _FILE.fullmatch(name):
                with contextlib.suppress(FileNotFoundError):
                    said = disk.changed(folder / name)
                    if self._told.get(name) != said:
                        word = disk.read(folder / name)
                        yield found[1], found[2], self._believable(found[1], word)
                        self._told[name] = said

    def _believable(self, node: str, word: bytes) -> bytes:
        """The record without what it calls published, and the taker has not got yet."""
        record = _read(node, "", word, 0.0).record
        if record is None:
            return word
        directory = {record.incarnation, *record.earlier}
        waiting = [
            each for each in self._waiting(node) if each.incarnation in directory
        ]
        first = min((each.first for each in waiting), default=record.published + 1)
        if first > record.published:
            return word
        plain = msgspec.json.decode(word)  # a newer version's has more
        return msgspec.json.encode({**plain, "published": first - 1})


@define(eq=False, slots=False)
class Speaker:
    """Says the record of the incarnation that gives *node*'s lsns, and hands on those of others.
    Any thread; blocks.

    *acknowledged* gives the last lsn that senders may have been told of, *published* up to
    which all is in the bucket, or at the hub.
    """

    _bucket: Bucket | None
    _node: str
    _lineage: Lineage
    _ack: str
    _acknowledged: Callable[[], int]
    _published: Callable[[], int]
    _clock: Callable[[], float] = time.time
    _relay: Callable[[], Iterator[tuple[str, str, bytes]]] = lambda: iter(())
    _count: Callable[[], int] = lambda: 0
    """Counts one more record, durably (`Marker.next_record`)."""
    _through: Callable[[], Through | None] = lambda: None

    def __attrs_post_init__(self) -> None:
        self.twin = ""
        """Another incarnation of this node that runs, too, as far as the bucket tells."""
        self._began = 0.0
        """When that had our first record, by its clock."""
        self._said = 0
        self._started = self._clock()

    def say(self, *, exact: bool = False) -> None:
        """Write it to the bucket, if there is one, and others'.  Raises `BucketError`."""
        if self._bucket is not None:
            record = self.record(exact=exact)
            name = name_of(self._node, record.incarnation)
            # First: a reader of ours then finds those that we had heard by then.
            for node, incarnation, said in self._relay():
                self._bucket.replace(name_of(node, incarnation), said)
            self._bucket.replace(name, msgspec.json.encode(record))
            if self._said % _LOOK_ROUND == 0:
                self._look_round(self._bucket, name)
            self._said += 1

    def _look_round(self, bucket: Bucket, name: str) -> None:
        """Look whether another daemon has said something of this node since we began.

        Our last record has this *name*.
        """
        there = {one.name: one for one in listed(bucket, self._node)}
        own = there.pop(name, None)
        if own is None:
            return
        self._began = self._began or own.modified
        lately = max(self._began, own.modified - SILENT_SECONDS)
        ids = (
            one.name.rpartition("_")[2]
            for one in there.values()
            if one.modified > lately
        )
        self.twin = next((each for each in ids if not self._lineage.knows(each)), "")
        self._remove_some(bucket, there.values())

    def _remove_some(self, bucket: Bucket, there: Collection[StoredObject]) -> None:
        """Remove the oldest records of this directory, if there are many.

        The newest record has what they say, until it names too many, and then one of those that stay
        has it.
        """
        now = self._lineage.now
        firsts, whole = {**now.began, now.id: now.since}, set(now.whole)
        behind = {one: firsts[two] for one, two in pairwise(firsts) if one in whole}
        mine = [one for one in there if one.name.rpartition("_")[2] in behind]
        oldest_first = sorted(mine, key=lambda one: one.modified)
        for one in oldest_first[: max(0, len(mine) - MOST_EARLIER)]:
            record = read(bucket, one).record
            if (
                record is not None
                and record.lsn < behind[record.incarnation]
                and record.number % _STAYS
            ):
                bucket.remove(one.name)

    def record(self, *, exact: bool = False) -> NodeRecord:
        """The record to say now."""
        records = 0
        with contextlib.suppress(OSError):  # a full disk keeps no record back
            records = self._count()
        published = self._published()  # first: it is never ahead of the other
        through, lsn = self._through(), self._acknowledged()
        own = self._lineage.at(lsn)
        lsn = max(lsn, own.since - 1)
        return NodeRecord(
            own.id,
            own.since,
            lsn,
            self._clock(),
            self._ack,
            exact,
            own.whole,
            published=published,
            began=self._started,
            begins=tuple(own.began[each] for each in own.whole),
            number=own.number,
            records=records,
            records_before=own.records,
            through=self._lineage.of_this(own, through),
            holes=newest(self._lineage.holes),
        )


def newest(holes: Mapping[str, Lsns]) -> dict[str, tuple[tuple[Lsn, Lsn], ...]]:
    """The holes that a record has, by incarnation."""
    spans = [(span, by) for by, lsns in holes.items() for span in lsns]
    newest: dict[str, tuple[tuple[Lsn, Lsn], ...]] = {}
    for span, by in sorted(spans)[-_MOST_HOLES:]:
        newest[by] = (*newest.get(by, ()), span)
    return newest
