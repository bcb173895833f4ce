"""Hands over a data directory that no daemon runs on: of a disk that was found again, say.

    1. its journals → files of its spool, under the nodes that gave their events
    2. its spool → the bucket, or the spool of a gateway that is there; each file durably, and
       then to its own archive
    3. the words of its incarnations, that nothing follows (`gateway.store.objects.word`) → that
       gateway's `arrivals/`

Readers there know the events by name, so it may be done again, after a crash too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.event import Decode
from gateway.sdk.disk import Disk
from gateway.store.directories import Directories
from gateway.store.hub.archiving import to_archive
from gateway.store.hub.arrivals import Record
from gateway.store.names import SpoolFile, parse_file_name
from gateway.store.node.orphans import Orphan, publish_orphans
from gateway.store.objects.bucket import Bucket, commit, refuse_others
from gateway.store.objects.node_record import at_hub, hear
from gateway.store.system.lock import alone_with, lock
from gateway.store.system.statefile import StateFile


@dataclass(slots=True)
class Offered:
    """The counts of what was handed over."""

    files: int = 0
    events: dict[str, int] = field(default_factory=dict)
    """Events by node."""
    orphans: list[Orphan] = field(default_factory=list)
    """Journals with something to tell."""


def offer(
    source: Directories,
    node: str,
    target: Directories,
    bucket: Bucket | None,
    disk: Disk,
    decoders: Mapping[str, Decode],
) -> Offered:
    """All of *source* goes to *bucket*, or to *target*, which is *node*'s.

    Raises `Locked` where a gateway runs on it, `BucketError`, OSError.
    """
    held = lock(source.root / "lock", "gateway spool offer")
    try:
        found = Offered()
        found.orphans = publish_orphans(
            "", source, disk, decoders, by=node, alone_with=alone_with
        )
        for name in sorted(disk.names(source.spool)):
            if (named := parse_file_name(name)) is not None:
                _hand_over(named, source, node, target, bucket, disk)
                found.files += 1
                events = found.events.get(named.node, 0) + named.events
                found.events[named.node] = events
        for one in at_hub(source.arrivals):
            if one.record is not None:
                hear(target.arrivals, one.node, one.record, one.modified, disk)
    finally:
        held.release()
    return found


def _hand_over(
    named: SpoolFile,
    source: Directories,
    node: str,
    target: Directories,
    bucket: Bucket | None,
    disk: Disk,
) -> None:
    path, name = source.spool / named.name, named.name
    there = [one / name for one in (target.spool, target.archive)]
    if bucket is not None:
        commit(bucket, name, disk.read(path))
    elif known := [one for one in there if disk.exists(one)]:
        refuse_others(str(known[0]), disk.read(known[0]), disk.read(path))
    else:
        if named.node != node and not disk.exists(target.journal_of(named.node)):
            _let_arrive(named, target, disk)
        hidden = target.spool / f".offered-{name}"
        disk.unlink(hidden)
        file = disk.create(hidden)
        try:
            file.write([disk.read(path)])
            file.sync()
        finally:
            file.close()
        disk.rename(hidden, target.spool / name)
        disk.sync_directory(target.spool)
    disk.make_directory(source.archive)
    to_archive(path, source.archive, disk)


def _let_arrive(named: SpoolFile, target: Directories, disk: Disk) -> None:
    """Have a gateway there take files of that node for its own to bring."""
    record = StateFile(target.arrivals / named.node, Record, disk)
    if record.read()[0] is None:
        disk.make_directory(target.arrivals)
        record.write(Record(named.incarnation))
