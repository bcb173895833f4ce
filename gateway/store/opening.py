"""Opens the journal and the spool of one node: recovery, before any thread runs.

Each step is a type, and the next one can not be made without it:

    Start      what a start is given
    _Read      what is there: the mark and the catalog say how far the node had come and
               which segments are files already, `gateway.store.journal.recovery` has
               examined the journal; nothing is changed
    _Judged    what that means: who goes on from which lsn, behind every lsn that was
               ever given here: the journal's, the catalog's, the mark's, and those in file
               names, which outlive a journal directory that was lost
    _Told      what is damaged or lost was told, before anything is changed
    _Settled   catalog and journal are durably so; the mark, too, before a
               name goes that was all that told of a lsn
    Opened     what was being published is finished (`Publisher.recover`), and batches
               can be appended

`gateway.store.storage` gives what is opened its threads; tests use it without any.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import msgspec
import pyarrow as pa

from gateway.event import Decode
from gateway.sdk.disk import Disk
from gateway.store import digests
from gateway.store.checkpoint import Unreadable, saved_names
from gateway.store.digests import NOTHING, Link
from gateway.store.directories import Directories
from gateway.store.journal import Log, Loss, Segment, Synced
from gateway.store.journal.recovery import DAMAGED, examine, name_aside
from gateway.store.journal.segment import parse_name
from gateway.store.journal.spares import is_spare
from gateway.store.lsns import spelled
from gateway.store.names import (
    last_lsn,
    parse_file_name,
    parse_hidden_name,
    parse_kept_name,
)
from gateway.store.node import incarnation, lineage
from gateway.store.node.catalog import CATALOG, Catalog
from gateway.store.node.incarnation import Incarnation
from gateway.store.node.mark import Mark, Marker
from gateway.store.node.through import Through
from gateway.store.objects.bucket import Bucket, BucketError
from gateway.store.spool import PublishedFiles, Publisher
from gateway.store.spool.mending import Damaged, Entry
from gateway.store.spool.writing import Here, Writer
from gateway.store.system.disk import read_patiently
from gateway.store.system.machine import Machine
from gateway.store.system.room import Room

_POISON = "poison"
"""Where the Spark job puts files that it can not read."""
_PUT_BACK = (
    "{path}: of {lsns} its disk did not give all back, or no file is known to have its events.  "
    "They are not published again; it is set aside as {name}"
)

_NO_MARK = " is gone, and was there; it is written anew"
_FORGOTTEN = (
    " is gone, and so is what protocols remembered beside their events: that directory was "
    "removed, or its disk is not mounted.  If there is a copy of it from after the last "
    "start, stop this one, and put that back"
)


class MissingProtocol(Unreadable):
    """There are batches that no installed protocol can decode."""

    def __init__(self, directory: Path, protocols: Iterable[str]) -> None:
        names = " and ".join(map(repr, sorted(protocols)))
        super().__init__(
            f"{directory} has batches of protocol {names}, which is not installed: "
            f"install the package that brings protocol {names} (an entry point in the "
            "group gateway.protocols) and start again; until then nothing is lost"
        )


class MissingJournal(Unreadable):
    """All of a journal is gone, with events that are nowhere else."""

    def __init__(self, journal: Path, first: int, last: int) -> None:
        super().__init__(
            f"{journal} has no journal, and what was acknowledged of {spelled(first, last)} "
            "is in no file: mount its disk, or correct journal.directory.  If it is lost: "
            f"make an empty file {journal / CATALOG[0]} to go on without them (where a "
            "container makes that directory anew at each start, put journal.directory on a "
            "volume first)"
        )


def _ignore(*_: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Start:
    """The givens of a start."""

    node: str
    directories: Directories
    machine: Machine
    decoders: Mapping[str, Decode]
    """The decoders by protocol."""
    remembering: bool = field(kw_only=True)
    """A protocol that is served has a memory, so published segments stay until a
    checkpoint covers them."""
    compression: str = field(default="zstd", kw_only=True)
    room: Room = field(default_factory=Room, kw_only=True)
    """The room on the disk that the log leaves free."""
    tell: Callable[[Sequence[Loss], Sequence[str]], None] = field(
        default=_ignore, kw_only=True
    )
    """The function to tell of losses and repairs before any file is changed.

    Called also where the start fails after that."""
    tell_notice: Callable[[str], None] = field(default=_ignore, kw_only=True)
    """The function to tell of `Opened.notice`, if there is one, before any file is changed."""
    writer: Writer | None = field(default=None, kw_only=True)
    """The writer of the spool's files; None: the publisher's own thread."""
    bucket: Bucket | None = field(default=None, kw_only=True)
    """Where the spool is one."""

    @property
    def disk(self) -> Disk:
        """The machine's."""
        return self.machine.disk

    @property
    def journal(self) -> Path:
        """The node's."""
        return self.directories.journal_of(self.node)

    @property
    def published(self) -> tuple[Path, Path]:
        """Where its files are."""
        return self.directories.spool, self.directories.archive


def open_node(start: Start) -> Opened:
    """Open it.

    Raises `MissingJournal`, `MissingProtocol`, `Unreadable`, `segment.OtherFormat`,
    OSError.
    """
    return Opened(_Settled(_Told(_Judged(_Read(start)))))


# -- what is there ----------------------------------------------------------------------


class _Names:
    """The names of a node's files, hidden ones (`.…`) too.

    An archive may have millions: each name is looked at once.
    """

    def __init__(self, start: Start) -> None:
        self.here: list[str] = []
        """Names in spool and archive."""
        self.odd: list[Path] = []
        """Paths that only look like files of a node."""
        for directory in start.published:
            for name in start.disk.names(directory):
                parsed = parse_file_name(name) or parse_hidden_name(name)
                if parsed is not None:
                    if parsed.node == start.node:
                        self.here.append(name)
                elif name.startswith("events-"):
                    self.odd.append(directory / name)
        self.retained = max(_retained(start), default=0)
        """The last lsn in names of what is retained, whosever."""
        self.last = max(last_lsn(start.node, self.here), self.retained)


def _retained(start: Start) -> Iterator[int]:
    """The last lsns in names of what is retained: they may be all that is left."""
    directory = start.directories.retained_of(start.node)
    for name in start.disk.names(directory) if start.disk.exists(directory) else ():
        if (kept := parse_kept_name(name)) is not None:
            yield kept[1]


class _Read:
    """The state on the disk; nothing is changed."""

    def __init__(self, start: Start) -> None:
        """Raises `MissingJournal`, `Unreadable`, `BucketError`, OSError."""
        self.start = start
        node, disk, journal = start.node, start.disk, start.journal
        state = start.directories.state_of(node)
        for path in (journal, *start.published, state):
            disk.make_directory(path)
        self.remembered = saved_names(state, disk)
        self.names = names = _Names(start)
        machine = start.machine
        self.marker = Marker(state, disk, machine.monotonic, machine.threads)
        self.new_mark = not disk.exists(self.marker.path)
        self.mark, self.damaged_mark = self.marker.read()
        mark = self.mark
        self.catalog = Catalog(journal, disk, machine.threads)
        self.before = self.catalog.newest(Incarnation)
        """The incarnation that gave lsns here."""
        try:
            self.files = PublishedFiles(
                self.catalog, disk, node, names.here, mark.published, self._given_by
            )
        except Damaged as why:
            raise Unreadable(str(why)) from None
        self.given = max(self.files.last_lsn, names.last)
        """The last lsn that is in a file, or was."""
        if mark.durable > self.given and not any(_ours_in(journal, disk)):
            raise MissingJournal(journal, self.given + 1, mark.durable)
        self.left_out = [range(first, last + 1) for first, last in mark.left_out]
        """Ranges left out by earlier starts."""
        self.found = examine(
            journal,
            disk,
            given=self.given,
            durable=mark.durable,
            synced=Synced(mark.segment, mark.synced),
            left_out=self.left_out,
            given_by=self._spans,
        )

    def _given_by(self, lsn: int) -> str:
        """The incarnation that gave an lsn of this journal, as far as its record says."""
        by, *_ = next(self._spans(lsn, lsn))
        return by

    def _spans(self, first: int, last: int) -> Iterator[tuple[str, int, int]]:
        """The incarnations that gave lsns *first* to *last*, with the bounds of each."""
        known = self.before or lineage.in_lines(self.catalog.all(Entry))
        if known is None:
            yield self.mark.incarnation or self._nobody, first, last
            return
        for by, low, high in known.spans(first, last):
            yield by or known.id, low, high

    @cached_property
    def _nobody(self) -> str:
        """The incarnation that gave lsns here, where it is not known."""
        return incarnation.new_id()


# -- what it means ----------------------------------------------------------------------


class _Judged:
    """The judgement of what is to be; no file is changed yet."""

    def __init__(self, read: _Read) -> None:
        self.read = read
        start, mark, names, found = read.start, read.mark, read.names, read.found
        files = read.files
        before = read.before or lineage.in_lines(files)
        self.keep = start.remembering or bool(read.remembered)
        """Published segments stay until a checkpoint covers them."""
        ends = [each.last_lsn for each in found.segments]
        self.durable_lsn = max(mark.durable, read.given, *ends)
        self.first_lsn = 1 + max(found.next_lsn - 1, mark.given, mark.durable)
        now = range(self.durable_lsn + 1, self.first_lsn)
        # The mark may know that already.
        self.left_out = [each for each in read.left_out if each.start != now.start]
        self.left_out += [now] * bool(now)
        begun, self.notice = lineage.begin(
            before,
            start.journal,
            start.disk,
            self.first_lsn,
            forgot=_forgot(read),
            ended=before is not None
            and mark.vouches(before.id)
            and not _files_are_ahead(read),
        )
        in_names = _in_names(found.segments, files)
        # Of one whose own record could not be saved for want of room they alone tell.
        begun = begun.aware_of(in_names)
        # state/ is never shared: who wrote the mark was here before.
        self.incarnation = begun.aware_of([*mark.earlier, mark.incarnation])
        """The incarnation that goes on; not yet saved."""
        if mark.incarnation:
            self.incarnation = msgspec.structs.replace(
                self.incarnation, records=mark.records
            )
        doubted: dict[str, int] = {}
        if before is None:  # nobody knows whether this is the directory that they had
            doubted = {
                one: last for one, last in in_names.items() if not mark.vouches(one)
            }
        if not (mark.exact or begun.knows(mark.incarnation)):
            # An older copy, or an empty directory: it ends with nobody to vouch.
            doubted[mark.incarnation] = mark.durable
            if before is not None and not mark.vouches(before.id):
                doubted[before.id] = self.durable_lsn
        if doubted:
            self.incarnation = msgspec.structs.replace(
                self.incarnation, lost={**self.incarnation.lost, **doubted}
            )
            lost = lineage.lost(doubted, begun, start.journal, self.first_lsn)
            self.notice = lost if self.notice is None else f"{self.notice}.  {lost}"
        self.repairs = [
            *files.repairs,
            *files.count_public(start.node, found.segments, names.here),
            *filter(None, [read.damaged_mark]),
        ]
        if read.new_mark and read.before is not None and (self.durable_lsn or ends):
            forgotten = start.remembering and not read.remembered
            why = _FORGOTTEN if forgotten else _NO_MARK
            self.repairs.append(f"{read.marker.path}{why}")
        had = () if before is None else (before.id, *before.earlier)
        files.know(("", *had, *_in_names(found.segments, ())))
        self.repairs += _put_back(read)


def _in_names(segments: Iterable[Segment], files: Iterable[Entry]) -> dict[str, int]:
    """The incarnations that gave what is in a journal, or was, and the last lsn of each."""
    found = {entry.incarnation: entry.last for entry in files if entry.events}
    for each in segments:
        name = parse_name(each.path.name)
        only_lost = each.events and each.lost == each.events  # the mark tells of it
        if name is not None and not only_lost:
            found[name.incarnation] = each.last_lsn
    return found


def _forgot(read: _Read) -> bool:
    """Whether this journal was farther than it is."""
    before, mark = read.before, read.mark
    if before is None:
        return False
    # Of damaged lines the mark knows what they said.
    known = mark.published if read.files.damaged else 0
    known = max(known, read.files.read_lsn, read.found.reached)
    if before.knows(mark.incarnation) and (mark.durable > known or read.found.lost_end):
        return True
    return _files_are_ahead(read)


def _files_are_ahead(read: _Read) -> bool:
    """Whether one lies here that the incarnation before gave, and this journal does not know.

    What is retained does not say who gave it.
    """
    if (before := read.before) is None:
        return False
    files = filter(None, map(parse_file_name, read.names.here))
    ahead = max((one.last for one in files if one.incarnation == before.id), default=0)
    known = max(read.files.read_lsn, read.found.reached, read.mark.published)
    return max(ahead, read.names.retained) > max(known, read.mark.given)


def _put_back(read: _Read) -> Iterator[str]:
    for each in read.found.segments:
        if not read.files.has_all_of(each):
            yield _PUT_BACK.format(
                path=each.path,
                lsns=spelled(each.first_lsn, each.last_lsn),
                name=name_aside(each.path, read.start.disk).name,
            )


# -- it is told, and then made so -------------------------------------------------------


class _Told:
    """The operator knows of all damage; files may be changed."""

    def __init__(self, judged: _Judged) -> None:
        """Raises `MissingProtocol` after that."""
        self.judged = judged
        read = judged.read
        start = read.start
        start.tell(read.found.losses, judged.repairs)
        if judged.notice is not None:
            start.tell_notice(judged.notice)
        if missing := _needed(judged) - start.decoders.keys():
            raise MissingProtocol(start.journal, missing)


def _needed(judged: _Judged) -> set[str]:
    """The protocols of batches that are still to be published or remembered."""
    found, files = judged.read.found, judged.read.files
    return {
        protocol
        for each in found.segments
        if judged.keep
        or not each.events
        or not (
            files.unpublished(each.first_lsn) > each.last_lsn
            or files.has_forgotten(each)
        )
        for protocol in found.protocols[each.path]
    }


class _Settled:
    """The judgement is carried out on the disk."""

    def __init__(self, told: _Told) -> None:
        """Raises OSError."""
        self.judged = judged = told.judged
        read = judged.read
        mark = read.mark
        self.link = _newest_link(read)
        read.files.note(self.link)
        read.files.settle()
        self.incarnation = judged.incarnation
        """The incarnation that goes on, saved if there was room: names of segments say it, too."""
        read.catalog.settle(self.incarnation)
        self.lineage = lineage.Lineage(self.incarnation, read.catalog)
        settled = read.found.settle()
        # After what was read is synced, before a name is gone that was all that told of a
        # lsn.
        last = mark
        if read.found.lost_end and mark.segment not in {
            one.path.name for one in read.found.segments
        }:  # that is told, and needs no word more
            last = msgspec.structs.replace(mark, segment="", synced=0)
        now = msgspec.structs.replace(
            last,
            given=judged.first_lsn - 1,
            durable=judged.durable_lsn,
            incarnation=self.incarnation.id,
            earlier=self.incarnation.whole,
            left_out=_firsts_and_lasts(judged.left_out, read.given),
            exact=False,
        )
        self.vouched_for = False
        """Whether the mark on the disk vouches for more than holds from here on."""
        if read.new_mark or now != mark:
            try:
                read.marker.write(now, now=True)
            except OSError:  # a full disk must not prevent a start
                self.vouched_for = mark.exact
        settled.clear()


def _newest_link(read: _Read) -> Link:
    """The link of the newest file: of its line, or else of the mark, or of the file.

    The file is the last to ask: it may be damaged since, as those in `poison/` are.
    """
    start, mark, newest = read.start, read.mark, read.files.newest
    if newest is None:
        return Link(0, NOTHING)
    if newest.link:
        return Link(newest.last, newest.link)
    if mark.link and mark.published == newest.last:
        return Link(newest.last, mark.link)
    for directory in (*start.published, start.directories.root / _POISON):
        for name in (newest.hidden, newest.name):
            # Spark's job moves files while we look; `poison/` may be for it alone.
            nothing = OSError if directory.name == _POISON else FileNotFoundError
            with contextlib.suppress(nothing):
                data, readable = read_patiently(start.disk, directory / name)
                if readable:
                    return _link_in(newest, data)
    if start.bucket is not None:
        with contextlib.suppress(BucketError):
            return _link_in(newest, start.bucket.read(newest.name))
    return Link(newest.last, "")


def _link_in(newest: Entry, data: bytes) -> Link:
    metadata = digests.metadata_of(pa.BufferReader(data))
    return Link(newest.last, digests.link_said(metadata))


def _firsts_and_lasts(
    left_out: Iterable[range], published: int
) -> tuple[tuple[int, int], ...]:
    """The ranges that are not *published*, as the mark has them."""
    return tuple((each[0], each[-1]) for each in left_out if each[-1] > published)


# -- it goes on -------------------------------------------------------------------------


class Opened:
    """The state that a start finds, and goes on with.

    17 attributes: what the parts that are made next take, each its own.
    """

    def __init__(self, settled: _Settled) -> None:
        judged, read = settled.judged, settled.judged.read
        start, found, first_lsn = read.start, read.found, judged.first_lsn
        disk, machine = start.disk, start.machine
        self.publisher = publisher = _publisher(settled)
        self.catalog = read.catalog
        """The node's small states beside its segments; any thread may ask it."""
        self.lineage = settled.lineage
        """The incarnations that give the lsns from here on."""
        # Before anything is removed: it gives no name again.
        self.log = Log(
            start.journal,
            disk,
            first_lsn,
            self.lineage.now.id,
            self.lineage.renew,
            room=start.room,
            file_bytes=publisher.file_bytes,
            clock=machine.monotonic,
            wall_clock=machine.clock,
            spares=publisher.spares,
        )
        """Appends behind all that is there."""
        self.segments: Sequence[Segment] = found.segments
        """All that the journal holds, oldest first."""
        self.unpublished = left = publisher.recover(found.segments)
        """The segments from the first on that has something to publish."""
        self.first_lsn = first_lsn
        """The lsn of the next event."""
        self.durable_lsn = judged.durable_lsn
        """Events up to this lsn were acknowledged."""
        self.published_lsn = (left[0].first_lsn if left else first_lsn) - 1
        """Everything up to this lsn has been given to Spark, or is lost."""
        self.losses: Sequence[Loss] = found.losses
        """Acknowledged events that the journal can not give back."""
        self.marker = read.marker
        self.left_out = judged.left_out
        """Lsns that this start and earlier ones have left out behind damage."""
        self.vouched_for = settled.vouched_for
        """Whether the mark on the disk is still that of a run that had all in files, for
        there was no room for another one."""
        self.repairs: Sequence[str] = judged.repairs
        """Repairs of damage, a sentence each."""
        self.notice = judged.notice
        """A notice for operators about the directory's past."""
        self.remembered: Sequence[str] = read.remembered
        """Protocols with a state file: their memories are kept, served or not."""
        self.foreign = [*_foreign_to_journal(start.journal, disk), *read.names.odd]
        """Files where the node's are, and none of them; they are left alone."""

    def mark(
        self,
        given: int,
        synced: Synced | None = None,
        *,
        exact: bool = False,
        through: Through | None = None,
    ) -> Mark:
        """The mark when lsns up to *given* were given; *exact* and *through* as in `Mark`.

        *synced* are the bytes in the newest segment that this run has begun (None: ask the log).
        """
        synced = synced or self.log.synced
        if not synced.name and self.segments:
            last = self.segments[-1]
            synced = Synced(last.path.name, last.bytes)
        # What the start left out after damage was given, and never acknowledged.
        durable = given if given >= self.first_lsn else self.durable_lsn
        published, link = self.publisher.published_lsn, self.publisher.link
        known = link.digest if link.last_lsn == published else ""
        own = self.lineage.at(durable)
        return Mark(
            given,
            durable,
            published,
            known,
            own.id,
            own.whole,
            synced.name,
            synced.bytes,
            _firsts_and_lasts(self.left_out, published),
            exact,
            through=self.lineage.of_this(own, through),
        )


def _publisher(settled: _Settled) -> Publisher:
    judged, read = settled.judged, settled.judged.read
    start, disk = read.start, read.start.disk
    return Publisher(
        start.node,
        start.directories.spool,
        read.files,
        disk,
        start.writer or Here(disk, start.decoders),
        start.compression,
        keep=judged.keep,
        clock=start.machine.clock,
        record_of=settled.lineage.record_of,
        link=settled.link,
        before_removal=lambda path: read.marker.forget(path.name),
    )


def _ours_in(journal: Path, disk: Disk) -> Iterator[str]:
    """The names of the files there that make a journal."""
    yield from _segments_in(journal, disk)
    for name in CATALOG:
        if disk.is_file(journal / name):
            yield name


def _segments_in(journal: Path, disk: Disk) -> Iterator[str]:
    for name in disk.names(journal):
        if parse_name(name.removesuffix(DAMAGED)) and disk.is_file(journal / name):
            yield name


def _foreign_to_journal(journal: Path, disk: Disk) -> list[Path]:
    ours = set(_ours_in(journal, disk))
    return [
        journal / name
        for name in disk.names(journal)
        if name not in ours and not (is_spare(name) and disk.is_file(journal / name))
    ]
