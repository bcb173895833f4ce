"""Opens the journal and the spool of one node: recovery, before any thread runs.

    1. read the mark and the catalog: how far it had come, which segments are files already
    2. examine the journal (`gateway.store.journal.recovery`)
    3. tell what is damaged or lost, before anything is changed
    4. settle catalog and journal, the mark before a name goes; finish what was being
       published (`Publisher.recover`)
    5. go on behind every lsn that was ever given: the journal's, the catalog's, the mark's
       those in file names, which outlive a journal directory that was lost, and what the
       tables, a bucket and the word in it say

`gateway.store.storage` gives what is opened its threads; tests use it without any.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gateway.event import Decode
from gateway.store import incarnation, lineage
from gateway.store.bucket import ARCHIVE, FENCED, Bucket, BucketError
from gateway.store.checkpoint import Unreadable, saved_names
from gateway.store.digests import NOTHING, Link
from gateway.store.directories import Directories
from gateway.store.disk import Disk, read_patiently
from gateway.store.incarnation import Incarnation
from gateway.store.journal import Log, Loss, Recovered, Segment, Synced
from gateway.store.journal.recovery import DAMAGED, examine, name_aside
from gateway.store.journal.segment import parse_name
from gateway.store.journal.spares import Spares, is_spare
from gateway.store.mark import Mark, Marker
from gateway.store.names import last_lsn, parse_file_name, parse_hidden_name
from gateway.store.spool import Catalog, Publisher
from gateway.store.spool.catalog import CATALOG
from gateway.store.spool.catalog_lines import Damaged
from gateway.store.spool.writing import Here
from gateway.store.table_words import TablePlace
from gateway.store.threads import RealThreads, Threads
from gateway.store.word import Word

__all__ = ["MissingJournal", "MissingProtocol", "Opened", "open_node"]

_POISON = "poison"
"""Where the Spark job puts files that it can not read."""
_PUT_BACK = (
    "{path}: lsns {first} to {last} were published as lost, or nobody knows by whom, and "
    "it has them.  They are not published again; it is set aside as {name}"
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
            f"{journal} has no journal, and lsns {first} to {last} were acknowledged and "
            "are in no file: mount its disk, or correct journal.directory.  If it is lost: "
            f"make an empty file {journal / CATALOG[0]} to go on without them (where a "
            "container makes that directory anew at each start, put journal.directory on a "
            "volume first)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a start finds."""

    log: Log
    """Appends behind all that is there."""
    publisher: Publisher
    segments: Sequence[Segment]
    """All that the journal holds, oldest first."""
    unpublished: Sequence[Segment]
    """Those with something to publish."""
    first_lsn: int
    """The lsn of the next event."""
    durable_lsn: int
    """Events up to this lsn were acknowledged."""
    here_lsn: int
    """The last lsn that this disk knew to be given."""
    published_lsn: int
    """Everything up to this lsn has been given to Spark, or is lost."""
    losses: Sequence[Loss]
    """What was acknowledged and the journal can not give back."""
    marker: Marker
    left_out: Sequence[range]
    """Lsns that this start and earlier ones have left out behind damage."""
    incarnation: Incarnation
    """Who gives the lsns from here on."""
    repairs: Sequence[str]
    """What was damaged and could be made good, a sentence each."""
    notice: str | None
    """What an operator should know of the directory's past."""
    remembered: Sequence[str]
    """Protocols with a state file: their memories are kept, served or not."""
    known_lsn: int
    """The last lsn of which this directory knew a file; the bucket was listed behind it,"""
    unlisted: str | None
    """unless this is why not."""
    foreign: Sequence[Path]
    """What lies where the node's files are, and is none of them; it is left alone."""

    def mark(self, given: int, synced: Synced | None = None) -> Mark:
        """How far the node has come, when lsns up to *given* were given, with *synced*
        bytes in the newest segment that this run has begun (None: ask the log).
        """
        synced = synced or self.log.synced
        if not synced.name and self.segments:
            last = self.segments[-1]
            synced = Synced(last.path.name, last.bytes)
        # What the start left out after damage was given, and never acknowledged.
        durable = given if given >= self.first_lsn else self.durable_lsn
        published, link = self.publisher.published_lsn, self.publisher.link
        known = link.sha256 if link.last_lsn == published else ""
        own = self.incarnation
        return Mark(
            given,
            durable,
            published,
            known,
            own.id,
            own.earlier,
            synced.name,
            synced.bytes,
            _firsts_and_lasts(self.left_out, published),
        )


def _ignore(losses: Sequence[Loss], repairs: Sequence[str]) -> None:
    """Nobody wants to know."""


def _ignore_notice(notice: str) -> None:
    """Likewise."""


def open_node(
    node: str,
    directories: Directories,
    disk: Disk,
    decoders: Mapping[str, Decode],
    *,
    remembering: bool,
    compression: str = "zstd",
    reserve: Callable[[], int] = lambda: 0,
    clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
    threads: Threads | None = None,
    tell: Callable[[Sequence[Loss], Sequence[str]], None] = _ignore,
    tell_notice: Callable[[str], None] = _ignore_notice,
    bucket: Bucket | None = None,
    unclaimed: str | None = None,
    said: Word | None = None,
    fenced: int | None = None,
    table: TablePlace | None = None,
) -> Opened:
    """Open it; *decoders* by protocol.

    *remembering*: a protocol that is served has a memory, so published segments stay
    until a checkpoint covers them.  *reserve*: see `Log`.  *clock* is the wall clock;
    *threads* None: the operating system's.
    *tell* is told of losses and repairs before any file is changed, also where the start
    fails after that; so is *tell_notice* of `Opened.notice`, if there is one.
    *unclaimed* is why it is not known whether another gateway has the node's name in
    *bucket*, if so; *said*, what the word there said when we had it; *fenced*: see
    `lineage.go_on`.  *table* is where the job's table can be seen.

    Raises `MissingJournal`, `MissingProtocol`, `Unreadable`, `segment.OtherFormat`,
    OSError.
    """
    journal, state = directories.journal_of(node), directories.state_of(node)
    for path in (journal, directories.spool, directories.archive, state):
        disk.make_directory(path)
    remembered = saved_names(state, disk)
    published = (directories.spool, directories.archive)
    names, odd = _names_of(node, published, disk)
    marker = Marker(state, disk, monotonic, threads or RealThreads())
    new_mark = not disk.exists(marker.path)
    mark, damaged_mark = marker.read()
    in_tables = max(
        lineage.in_tables(node, directories.lake),
        lineage.in_table(node, table, tell_notice),
    )
    last_here = last_lsn(node, names)
    here = max(mark.published, last_here)
    asked = _Asked()
    if bucket is not None:
        new = not (mark.given or any(_ours_in(journal, disk)))
        if new and unclaimed is not None:
            raise BucketError(
                f"{journal} is new, so it has to be known who has node {node} of "
                f"{bucket.url}: {unclaimed}"
            )
        asked = _ask(bucket, node, journal, here, in_tables, new=new)
        if asked.unlisted is not None:
            tell_notice(asked.unlisted)
    in_bucket = last_lsn(node, [*asked.uploaded, asked.archived])
    elsewhere = max(in_tables, in_bucket)
    local, names = names, [*names, *asked.uploaded]
    try:
        catalog = Catalog(journal, disk, node, names, max(mark.published, elsewhere))
    except Damaged as why:
        raise Unreadable(str(why)) from None
    given = max(catalog.last_lsn, last_here, in_bucket)
    if mark.durable > given and not any(_ours_in(journal, disk)):
        raise MissingJournal(journal, given + 1, mark.durable)
    left_before = [range(first, last + 1) for first, last in mark.left_out]
    found = examine(
        journal,
        disk,
        given=given,
        durable=mark.durable,
        synced=Synced(mark.segment, mark.synced),
        left_out=left_before,
    )
    ends = [each.last_lsn for each in found.segments]
    durable_lsn = max(mark.durable, given, *ends)
    here_lsn = max(mark.given, mark.durable, catalog.read_lsn, last_here, *ends)
    heard = max(0 if said is None else said.last_lsn, last_lsn(node, [asked.refused]))
    first_lsn = 1 + max(found.next_lsn - 1, mark.given, mark.durable, heard)
    left_out = _left_out(left_before, range(durable_lsn + 1, first_lsn))
    before, damaged_id = incarnation.read(journal, disk)
    reached = None if said is None else said.reached
    begun, notice = lineage.go_on(
        before,
        journal,
        disk,
        catalog,
        first_lsn,
        fenced=fenced,
        forgot=(
            before is not None
            and reached is not None
            and reached.incarnation in (before.id, *before.earlier)
            and not reached.is_behind(before, here_lsn)
        ),
    )
    # state/ is never shared: who wrote the mark was here before.
    this = begun.aware_of([*mark.earlier, mark.incarnation])
    repairs = [
        *catalog.repairs,
        *catalog.count_public(node, found.segments, names),
        *filter(None, [damaged_mark, damaged_id]),
    ]
    if new_mark and before is not None and (durable_lsn or found.segments):
        forgotten = remembering and not remembered
        repairs.append(f"{marker.path}{_FORGOTTEN if forgotten else _NO_MARK}")
    known = max(mark.given, mark.published, catalog.read_lsn, last_here)
    strangers = list(lineage.strangers(this, node, catalog, published, local, disk))
    if in_tables > known:
        repairs.append(lineage.OLDER.format(node=node, there=in_tables, here=known))
    if bucket is not None and in_bucket > known:
        newest = asked.newest(node)
        strangers.append(lineage.newest_in(bucket, this, node, newest, known))
    if in_tables > known or strangers or not begun.knows(mark.incarnation):
        catalog.doubt()
    repairs += [
        _PUT_BACK.format(
            path=each.path,
            first=each.first_lsn,
            last=each.last_lsn,
            name=name_aside(each.path, disk).name,
        )
        for each in found.segments
        if not catalog.has_all_of(each)
    ]
    repairs += strangers
    tell(found.losses, repairs)
    if notice is not None:
        tell_notice(notice)
    if bucket is not None:
        uploaded = max(elsewhere, last_here, catalog.last_lsn)
        far = lineage.Known(here_lsn, uploaded, first_lsn)
        past = lineage.heard_of(said, bucket.url, node, this, journal, far)
        if past is not None:
            tell_notice(past)
    keep = remembering or bool(remembered)
    if missing := _needed(found, catalog, keep=keep) - decoders.keys():
        raise MissingProtocol(journal, missing)
    poison = directories.root / _POISON
    link = _newest_link(catalog, (*published, poison), disk, mark, bucket)
    catalog.note(link)
    # In this order: who knows the mark's incarnation does not doubt the catalog again.
    catalog.settle()
    this = lineage.saved(this, before, journal, disk)
    found.settle()
    # After what was read is synced, before a name is gone that was all that told of a lsn.
    now = msgspec.structs.replace(
        mark,
        given=first_lsn - 1,
        durable=durable_lsn,
        left_out=_firsts_and_lasts(left_out, given),
    )
    if new_mark or now != mark:
        # A full disk must not prevent a start.
        with contextlib.suppress(OSError):
            marker.write(now, now=True)
    found.clear()
    spares = Spares(disk)
    publisher = Publisher(
        node,
        directories.spool,
        catalog,
        disk,
        Here(disk, decoders),
        compression,
        keep=keep,
        clock=clock,
        given_by=this.of_lsn,
        link=link,
        before_removal=lambda path: marker.forget(path.name),
        spares=spares,
    )
    # Before anything is removed: it gives no name again.
    log = Log(
        journal,
        disk,
        first_lsn,
        reserve=reserve,
        file_bytes=publisher.file_bytes,
        clock=monotonic,
        wall_clock=clock,
        spares=spares,
    )
    unpublished = publisher.recover(found.segments)
    return Opened(
        log=log,
        publisher=publisher,
        segments=found.segments,
        unpublished=unpublished,
        first_lsn=first_lsn,
        durable_lsn=durable_lsn,
        here_lsn=here_lsn,
        published_lsn=(unpublished[0].first_lsn if unpublished else first_lsn) - 1,
        losses=found.losses,
        repairs=repairs,
        notice=notice,
        marker=marker,
        left_out=left_out,
        incarnation=this,
        remembered=remembered,
        known_lsn=here,
        unlisted=asked.unlisted,
        foreign=[
            *(journal / name for name in _foreign_to_journal(journal, disk)),
            *odd,
        ],
    )


def _names_of(
    node: str, directories: Iterable[Path], disk: Disk
) -> tuple[list[str], list[Path]]:
    """The names of the node's files in these, hidden ones (`.…`) too, and what only looks
    like a file of somebody's.

    An archive may have millions: each name is looked at once.
    """
    names: list[str] = []
    odd: list[Path] = []
    for directory in directories:
        for name in disk.names(directory):
            parsed = parse_file_name(name) or parse_hidden_name(name)
            if parsed is not None:
                if parsed[0] == node:
                    names.append(name)
            elif name.startswith("events-"):
                odd.append(directory / name)
    return names, odd


def _left_out(before: Sequence[range], now: range) -> list[range]:
    """What was left out, with what is left out *now*; the mark may know that already."""
    return [each for each in before if each.start != now.start] + [now] * bool(now)


def _firsts_and_lasts(
    left_out: Iterable[range], published: int
) -> tuple[tuple[int, int], ...]:
    """As the mark has those that are not *published*."""
    return tuple((each[0], each[-1]) for each in left_out if each[-1] > published)


def _ours_in(journal: Path, disk: Disk) -> Iterator[str]:
    """The names of the files there that make a journal."""
    fixed = (*CATALOG, *incarnation.INCARNATION)
    for name in disk.names(journal):
        ours = parse_name(name.removesuffix(DAMAGED)) or name in fixed
        if ours and disk.is_file(journal / name):
            yield name


def _foreign_to_journal(journal: Path, disk: Disk) -> list[str]:
    ours = set(_ours_in(journal, disk))
    return [
        name
        for name in disk.names(journal)
        if name not in ours and not (is_spare(name) and disk.is_file(journal / name))
    ]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a bucket says of the node's files behind those that are known here."""

    uploaded: Sequence[str] = ()
    """Their names, in order."""
    archived: str = ""
    """The newest one that a job has archived, if it is newer than those."""
    refused: str = ""
    """Likewise of those that came too late."""
    unlisted: str | None = None
    """Why nothing is known."""

    def newest(self, node: str) -> str:
        """The object with the last lsn that was given and not refused."""
        if last_lsn(node, [self.archived]) > last_lsn(node, self.uploaded):
            return f"{ARCHIVE}/{self.archived}"
        return self.uploaded[-1]


def _ask(
    bucket: Bucket, node: str, directory: Path, here: int, in_tables: int, *, new: bool
) -> _Asked:
    """What is there behind the last file that is known *here*.

    A *new* directory knows of no lsn that was given, so it must ask; one that was here
    before goes on without.  Raises `BucketError`.
    """
    try:
        names = lineage.files_behind(bucket, node, here)
        known = max(here, in_tables, last_lsn(node, names))
        return _Asked(
            names,
            lineage.newest_below(bucket, ARCHIVE, node, known),
            lineage.newest_below(bucket, FENCED, node, known),
        )
    except BucketError as why:
        if new:
            raise BucketError(
                f"{directory} is new, so it has to be known what {bucket.url} has of node "
                f"{node}: {why}"
            ) from None
        return _Asked(
            unlisted=f"{bucket.url} can not be listed, so this start goes on without: {why}"
        )


def _newest_link(
    catalog: Catalog,
    directories: Iterable[Path],
    disk: Disk,
    mark: Mark,
    bucket: Bucket | None,
) -> Link:
    """The link of the newest file: of its line, or else of the mark, or of the file.

    The file is the last to ask: it may have been damaged since, as those in `poison/` were.
    """
    newest = catalog.newest
    if newest is None:
        return Link(0, NOTHING)
    if newest.sha256:
        return Link(newest.last, newest.sha256)
    if mark.link and mark.published == newest.last:
        return Link(newest.last, mark.link)
    for directory in directories:
        for name in (newest.hidden, newest.name):
            # Spark's job moves files while we look; `poison/` may be for it alone.
            nothing = OSError if directory.name == _POISON else FileNotFoundError
            with contextlib.suppress(nothing):
                data, readable = read_patiently(disk, directory / name)
                if readable:
                    return Link(newest.last, hashlib.sha256(data).hexdigest())
    if bucket is not None:
        with contextlib.suppress(BucketError):
            data = bucket.read(newest.name)
            return Link(newest.last, hashlib.sha256(data).hexdigest())
    return Link(newest.last, "")


def _needed(found: Recovered, catalog: Catalog, *, keep: bool) -> set[str]:
    """The protocols of batches that are still to be published or remembered."""
    return {
        protocol
        for each in found.segments
        if keep
        or not each.events
        or not (
            catalog.unpublished(each.first_lsn) > each.last_lsn
            or catalog.has_forgotten(each)
        )
        for protocol in found.protocols[each.path]
    }
