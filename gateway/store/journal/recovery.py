"""Recovery of the journal at a start: which segments are good, and what was lost.

    1. read the segments in order of (first lsn, attempt)
    2. a segment's events from the next segment's first lsn on were written again
       there, after a failed sync: they do not count.  Batches without events at just
       that lsn do: some of them were acknowledged, and the others merely come twice
    3. cut what does not count off each segment; sync it, so that what we now take
       for stored is stored, and what we do not is gone, even if the power goes in
       the next second and takes the later segments with it
    4. a file that holds no batch is removed; a damaged header is mended where its
       first record is good; what is no segment even so is set aside under a `.damaged`
       name, never deleted
    5. what was acknowledged and can not be read is reported, lsn by lsn

Of what a file may hold only the format of another version stops the start
(`segment.OtherFormat`); OSError is passed on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.store.disk import Disk, read_patiently
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
    given: int = 0,
    unpublished: Callable[[int], int] = lambda lsn: lsn,
) -> Recovered:
    """Recover; a crash at any moment of it, or right after, changes nothing.

    Everything up to lsn *given* was published.  *unpublished* gives the first lsn from
    one on that is in no file: a segment that was published and removed is no loss, though
    an older one may still be there.
    """
    found = Recovered(next_lsn=given + 1)
    names = [name for name in disk.names(directory) if disk.is_file(directory / name)]
    in_order = segment.in_order(names)
    firsts = [first for first, _, _ in in_order]
    if given:
        firsts.append(given + 1)
    aside = [
        _held(directory / name, firsts, disk)
        for name in names
        if name.endswith(DAMAGED)
    ]

    def expected() -> int:
        """The lsn that the next segment should begin with, at the latest."""
        lsn = unpublished(found.next_lsn)
        for held in aside:
            lsn = held.stop if lsn in held else lsn
        return lsn

    for first, before, name in in_order:
        path = directory / name
        try:
            _recover_one(path, first, before, disk, found, expected)
        except segment.OtherFormat:
            raise
        except segment.InvalidSegment as why:
            aside += _set_aside(path, firsts, str(why), disk, found)
    # No lsn is given twice that a damaged segment may have held.
    found.next_lsn = max((found.next_lsn, *(held.stop for held in aside)))
    disk.sync_directory(directory)
    return found


def _recover_one(
    path: Path,
    first: int,
    before: int | None,
    disk: Disk,
    found: Recovered,
    expected: Callable[[], int],
) -> None:
    """Raises `segment.InvalidSegment`, OSError."""
    data, readable = read_patiently(disk, path)
    mended = False
    try:
        scan = segment.Scan(data, before=before)
    except segment.InvalidSegment as why:
        whole = segment.mend_header(data, first)
        if whole is None or not readable or isinstance(why, segment.OtherFormat):
            raise
        data, mended = whole, True
        scan = segment.Scan(data, before=before)
        found.losses.append(Loss(path, first, 0, f"{why}, and was mended"))
    scan.survey()
    first, end = scan.header.first_lsn, scan.next_lsn
    missing = expected()
    if first > missing:
        found.losses.append(Loss(path, missing, first - missing, "missing before it"))
    found.losses += [
        Loss(path, d.first_lsn, d.events, f"{d.length} damaged bytes at {d.offset}")
        for d in scan.damage
    ]
    found.next_lsn = max(found.next_lsn, end)
    if readable and not scan.batches:
        disk.unlink(path)
        return
    found.segments.append(Segment(path, first, end - 1, scan.end))
    found.protocols[path] = scan.protocols
    if not readable:
        return  # what is zeros to us may be there for somebody with better tools
    file = disk.open(path)
    try:
        if len(data) > scan.end:
            file.truncate(scan.end)
        if mended:
            file.rewrite(data[: scan.end])
        elif not scan.sealed:
            # The last sync may have failed; a full disk must not prevent a start.
            with contextlib.suppress(OSError):
                file.rewrite(data[: scan.end])
        file.sync()
    finally:
        file.close()


def _set_aside(
    path: Path, firsts: Sequence[int], why: str, disk: Disk, found: Recovered
) -> list[range]:
    """The lsns that it may have held."""
    # A crash while a segment is made leaves less than a header, and no event.
    if disk.size(path) <= segment.HEADER_BYTES:
        disk.unlink(path)
        return []
    aside = path.with_name(path.name + DAMAGED)
    disk.rename(path, aside)
    held = _held(aside, firsts, disk)
    found.losses.append(Loss(path, held.start, len(held), f"{why}; at most"))
    return [held]


def _held(aside: Path, firsts: Sequence[int], disk: Disk) -> range:
    """The lsns that a damaged segment may have held.

    It ended where a later one begins, or before what was published later: *firsts*.
    And no event takes less than a byte.
    """
    parsed = segment.parse_name(aside.name.removesuffix(DAMAGED))
    first = parsed[0] if parsed else 0
    ends = [first + disk.size(aside), *(lsn for lsn in firsts if lsn > first)]
    return range(first, min(ends))
