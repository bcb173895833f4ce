"""Recovery of the journal at a start: which segments are good, and what was lost.

    1. read the segments in order of (first lsn, attempt)
    2. a segment's events from the next segment's first lsn on were written again
       there, after a failed sync: they do not count.  Batches without events at just
       that lsn do: some of them were acknowledged, and the others merely come twice
    3. cut what does not count off each segment; sync it, so that what we now take
       for stored is stored, and what we do not is gone, even if the power goes in
       the next second and takes the later segments with it
    4. a file that holds no batch is removed; one that is no segment is set aside
       under a `.damaged` name, never deleted
    5. what was acknowledged and can not be read is reported, lsn by lsn

Of what a file may hold only the format of another version stops the start
(`segment.OtherFormat`); OSError is passed on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gateway.store.disk import Disk
from gateway.store.journal import segment
from gateway.store.journal.log import Segment

__all__ = ["DAMAGED", "Loss", "Recovered", "recover"]

DAMAGED = ".damaged"
"""What the name of a file ends with that was set aside."""


@dataclass(slots=True)
class Loss:
    """What was acknowledged and the journal can not give back."""

    path: Path
    first_lsn: int
    events: int
    """May be 0: batches without events can be lost too."""
    why: str


@dataclass(slots=True)
class Recovered:
    """The journal as it was left."""

    segments: list[Segment] = field(default_factory=list)
    """Oldest first; none takes any more."""
    next_lsn: int = 1
    losses: list[Loss] = field(default_factory=list)
    protocols: dict[Path, set[str]] = field(default_factory=dict)
    """Whose batches each segment has."""


def recover(
    directory: Path,
    disk: Disk,
    *,
    unpublished: Callable[[int], int] = lambda lsn: lsn,
) -> Recovered:
    """Recover; a crash at any moment of it, or right after, changes nothing.

    *unpublished* gives the first lsn from one on that is in no file: a segment that
    was published and removed is no loss, though an older one may still be there.
    """
    found = Recovered()
    names = [name for name in disk.names(directory) if disk.is_file(directory / name)]
    for _, before, name in segment.in_order(names):
        _recover_one(directory / name, before, disk, found, unpublished)
    for name in disk.names(directory):
        if name.endswith(DAMAGED):
            _reserve(directory / name, disk, found)
    disk.sync_directory(directory)
    return found


def _recover_one(
    path: Path,
    before: int | None,
    disk: Disk,
    found: Recovered,
    unpublished: Callable[[int], int],
) -> None:
    data = disk.read(path)
    try:
        scan = segment.Scan(data, before=before).survey()
    except segment.OtherFormat:
        raise
    except segment.InvalidSegment as why:
        _set_aside(path, len(data), str(why), disk, found)
        return
    first, end = scan.header.first_lsn, scan.next_lsn
    expected = unpublished(found.next_lsn)
    if first > expected and found.segments:
        found.losses.append(Loss(path, expected, first - expected, "missing before it"))
    found.losses += [
        Loss(path, d.first_lsn, d.events, f"{d.length} damaged bytes at {d.offset}")
        for d in scan.damage
    ]
    found.next_lsn = max(found.next_lsn, end)
    if not scan.batches:
        disk.unlink(path)
        return
    file = disk.open(path)
    try:
        if len(data) > scan.end:
            file.truncate(scan.end)
        if not scan.sealed:
            # The last sync may have failed; a full disk must not prevent a start.
            with contextlib.suppress(OSError):
                file.rewrite(data[: scan.end])
        file.sync()
    finally:
        file.close()
    found.segments.append(Segment(path, first, end - 1, scan.end))
    found.protocols[path] = scan.protocols


def _set_aside(path: Path, size: int, why: str, disk: Disk, found: Recovered) -> None:
    # A crash while a segment is made leaves less than a header, and no event.
    if size <= segment.HEADER_BYTES:
        disk.unlink(path)
        return
    aside = path.with_name(path.name + DAMAGED)
    disk.rename(path, aside)
    lost = _reserve(aside, disk, found)
    found.losses.append(Loss(path, lost, size, f"{why}; at most"))


def _reserve(aside: Path, disk: Disk, found: Recovered) -> int:
    """Give no lsn out twice that a damaged segment may have held; returns its first.

    How many events it held is unknown.  No event takes less than a byte, so this
    leaves a hole that the audit shows.
    """
    parsed = segment.parse_name(aside.name.removesuffix(DAMAGED))
    first = parsed[0] if parsed else 0
    found.next_lsn = max(found.next_lsn, first + disk.size(aside))
    return first
