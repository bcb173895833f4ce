"""Recovery of the journal at a start: which segments are good, and what was lost.

`examine` reads only, so that losses can be told before anything is changed:

    1. read the segments in order of (first lsn, attempt)
    2. a segment's events from the next segment's first lsn on were written again
       there, after a failed sync: they do not count.  Batches without events at just
       that lsn do: some of them were acknowledged, and the others merely come twice
    3. the mark (`gateway.store.node.mark`) says how far the journal reached at least, in lsns
       and in bytes of the newest segment.  A segment says it of the one before: in lsns by
       its name, and in bytes by its first record.  What a segment without a seal lacks of
       that is no torn tail
    4. what was acknowledged and can not be read is reported, lsn by lsn: so is a segment
       that is missing before another one

`Recovered.settle` makes the segments agree with that:

    5. cut what does not count off each segment; sync it, so that what we now take
       for stored is stored, and what we do not is gone, even if the power goes in
       the next second and takes the later segments with it
    6. mend a damaged header where its first record is good, and of this segment
    7. an end that is lost is sealed: behind what is left of the last segment, or in a
       segment that has nothing else, as in the place of one that is missing.  The seal
       says how far it reached, so that what is lost is noted as a hole, and a start
       after this one needs no mark to know

`SettledJournal.clear` takes away what is left over.  A name may be all that tells of a lsn, so
the mark has to have it before:

    8. a file that holds no batch is removed, and so is a spare one (`spares`); what is no
       segment even so is set aside under a `.damaged` name, never deleted

Of what a file may hold only the format of another version stops the start
(`segment.OtherFormat`); OSError is passed on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gateway.sdk.disk import Disk, File
from gateway.store.journal import segment
from gateway.store.journal.ahead import in_time
from gateway.store.journal.log import Segment, Synced
from gateway.store.journal.spares import is_spare
from gateway.store.system.disk import read_patiently

DAMAGED = ".damaged"
"""The end of the name of a file that was set aside."""

_UNKNOWN = "the mark says that they were acknowledged, and no segment has them"
_MOST_ROWS = 10_000_000
"""The most lsns that are noted as a hole where a segment is missing.

The one behind may have a wrong name, and the mark that says what was left out may be gone."""
_GivenBy = Callable[[int, int], Iterable[tuple[str, int, int]]]
"""Gives the incarnations that gave lsns from the first to the last one, with the bounds of each."""
_GONE = "gone; the mark says that {bytes} bytes of it were synced"


@dataclass(slots=True)
class Loss:
    """Acknowledged events that the journal can not give back."""

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
    """The protocols of each segment's batches."""
    reached: int = field(default=0, compare=False)
    """The last lsn that a segment has, or may have had."""
    lost_end: bool = field(default=False, compare=False)
    """The newest segment is gone, or lacks something at its end, says the mark."""
    told: dict[str, int] = field(default_factory=dict, compare=False)
    """How many bytes of a segment, by name, the one behind it calls synced."""
    _settling: list[Callable[[], None]] = field(default_factory=list, compare=False)
    _clearing: list[Callable[[], None]] = field(default_factory=list, compare=False)

    @property
    def too_short(self) -> bool:
        """Some segment lacks what the one behind it calls synced."""
        return any(one.bytes < self.told.get(one.path.name, 0) for one in self.segments)

    def settle(self) -> SettledJournal:
        """Make the segments agree with what was found, and sync them.  Raises OSError.

        A crash at any moment of it, or right after, changes nothing.
        """
        _do_all(self._settling)
        return SettledJournal(self, self._clearing)

    def later(self, step: Callable[[], None]) -> None:
        """Add a step to `settle`."""
        self._settling.append(step)

    def last(self, step: Callable[[], None]) -> None:
        """Add a step to `SettledJournal.clear`."""
        self._clearing.append(step)


@dataclass(frozen=True, slots=True)
class SettledJournal:
    """The same where the segments are as they were found to be."""

    found: Recovered
    _clearing: list[Callable[[], None]]

    def clear(self) -> Recovered:
        """Take away what is no segment; returns what is left.  Raises OSError.

        A crash changes nothing if `next_lsn` is remembered.
        """
        _do_all(self._clearing)
        return self.found


def _do_all(steps: list[Callable[[], None]]) -> None:
    """Each once, though one fails and all are asked for again."""
    while steps:
        steps[0]()
        del steps[0]


def examine(
    directory: Path,
    disk: Disk,
    *,
    given: int = 0,
    durable: int = 0,
    synced: Synced | None = None,
    left_out: Sequence[range] = (),
    given_by: _GivenBy,
) -> Recovered:
    """See what is there; nothing is changed before `Recovered.settle`.

    Everything up to lsn *given* was published, and up to *durable* acknowledged.
    *synced* is what must be there of one segment, unless it was published.  The lsns that
    earlier starts have *left_out* get no place, whether something is missing there or not.
    *given_by* says which incarnations gave lsns of which no segment is left.
    """
    synced = synced or Synced()
    read = partial(
        _examine, directory, disk, given, durable, synced, left_out, given_by
    )
    found = read({})
    return read(found.told) if found.too_short else found


def _examine(
    directory: Path,
    disk: Disk,
    given: int,
    durable: int,
    synced: Synced,
    left_out: Sequence[range],
    given_by: _GivenBy,
    told: Mapping[str, int],
) -> Recovered:
    """Examine as `examine` does; *told* is `Recovered.told`."""
    found = Recovered(next_lsn=given + 1)
    places = _Places(directory, disk, found, given_by)
    there = disk.names(directory)
    names = [name for name in there if disk.is_file(directory / name)]
    for name in names:
        segment.check_form(name)
        if is_spare(name):
            found.last(partial(disk.unlink, directory / name))
    in_order = segment.in_order(names)
    firsts = [first for first, _, _ in in_order]
    if given:
        firsts.append(given + 1)
    aside = [
        _held(directory / name, firsts, disk)
        for name in names
        if name.endswith(DAMAGED)
    ]
    paths = in_time([directory / name for *_, name in in_order], disk)
    for path, (first, before, name) in zip(paths, in_order, strict=True):
        stops = [one.start for one in (*aside, *left_out) if one.start > first]
        stop = min([*stops, *([before] if before else [durable + 1])])
        marked, proven = (
            end if end > given else 0 for end in (min(durable, stop - 1), stop - 1)
        )
        marked_bytes = synced.bytes if name == synced.name else 0
        ends = _Ends(given, marked, proven, max(marked_bytes, told.get(name, 0)))
        try:
            _examine_one(
                path, first, before, ends, disk, found, aside, left_out, places
            )
        except segment.OtherFormat:
            raise
        except segment.InvalidSegment as why:
            held = _held(path, firsts, disk)
            aside.append(held)
            found.last(partial(set_aside, path, disk))
            found.losses.append(Loss(path, held.start, len(held), f"{why}; at most"))
    if _is_gone(synced, max(given, durable), there, found):
        first = _first(synced.name)
        gone = _GONE.format(bytes=synced.bytes)
        found.losses.append(Loss(directory / synced.name, first, 0, gone))
        found.lost_end = True
    lasts = [one.last_lsn for one in found.segments]
    found.reached = max((0, *lasts, *(held.stop - 1 for held in aside)))
    missing = _expected(found, aside)
    for part in _gaps(missing, durable + 1, left_out):
        place = places.keep(part)
        found.losses.append(Loss(place, part.start, len(part), _UNKNOWN))
    # No lsn is given twice that a damaged segment may have held.
    found.next_lsn = max((found.next_lsn, *(held.stop for held in aside)))
    for add in (found.later, found.last):
        add(partial(disk.sync_directory, directory))
    return found


def _gaps(begin: int, end: int, aside: Iterable[range]) -> Iterator[range]:
    """The lsns from *begin* to before *end* that are in none of *aside*, such as those
    that damaged segments may have held.
    """
    for held in sorted(aside, key=lambda held: held.start):
        if held.start >= end:
            break
        if begin < held.start:
            yield range(begin, held.start)
        begin = max(begin, held.stop)
    if begin < end:
        yield range(begin, end)


def _expected(found: Recovered, aside: Iterable[range]) -> int:
    """The lsn that the next segment should begin with, at the latest."""
    lsn = found.next_lsn
    for held in aside:
        lsn = held.stop if lsn in held else lsn
    return lsn


@dataclass(frozen=True, slots=True)
class _Ends:
    """How far a segment reached at least."""

    given: int
    """Events up to this lsn were published."""
    marked: int
    """Events up to this lsn were acknowledged here."""
    proven: int
    """And up to this one, as the next segment's name says, if something lies behind the
    last good record.

    If nothing does, lsns may have been left out there: a start cuts what it does not
    count, and goes on behind what a damaged segment may have held.
    """
    synced: int
    """Bytes that were synced, says the mark, or the segment behind it."""


class _Scanned(NamedTuple):
    """A segment as it was read."""

    scan: segment.Scan
    data: bytes
    readable: bool
    """All of it could be read."""
    mended: bool
    """Whether its header was damaged."""


def _scan(
    path: Path,
    first: int,
    before: int | None,
    ends: _Ends,
    disk: Disk,
    found: Recovered,
) -> _Scanned | None:
    """None if nothing was ever written in it.  Raises `segment.InvalidSegment`, OSError."""
    data, readable = read_patiently(disk, path)
    mended = False
    read = partial(segment.Scan, name=path.name, before=before, synced=ends.synced)
    try:
        scan = read(data, durable=ends.marked)
    except segment.OtherFormat:
        raise
    except segment.InvalidSegment as why:
        if _is_empty(data):
            found.last(partial(disk.unlink, path))
            return None
        repaired = segment.mend_header(data, first)
        if repaired is None or not readable:
            raise
        data, mended = repaired, True
        scan = read(data, durable=ends.marked)
        found.losses.append(Loss(path, first, 0, f"{why}, and was mended"))
    if (before_it := scan.of_before()) is not None:
        found.told.update([before_it])
    scan.survey()
    torn = readable and not scan.sealed and scan.end < len(data)
    if torn and scan.next_lsn <= ends.proven:
        scan = read(data, durable=ends.proven).survey()
    return _Scanned(scan, data, readable, mended)


def _examine_one(
    path: Path,
    first: int,
    before: int | None,
    ends: _Ends,
    disk: Disk,
    found: Recovered,
    aside: Iterable[range],
    left_out: Iterable[range],
    places: _Places,
) -> None:
    """Raises `segment.InvalidSegment`, OSError."""
    if (scanned := _scan(path, first, before, ends, disk, found)) is None:
        return
    scan, data, readable, mended = scanned
    first, next_lsn = scan.header.first_lsn, scan.next_lsn
    for gap in _gaps(found.next_lsn, first, aside):
        found.losses.append(Loss(path, gap.start, len(gap), "missing before it"))
        for given in _gaps(gap.start, gap.stop, left_out):
            if len(given) <= _MOST_ROWS:
                places.keep(given)
    found.losses += [
        Loss(path, d.first_lsn, d.events, str(d))
        for d in scan.damage
        # What stands in the place of a missing one was told, if it is published.
        if d.length or not d.events or d.first_lsn > ends.given
    ]
    found.next_lsn = max(found.next_lsn, next_lsn)
    if readable and not (scan.batches or scan.damage) and next_lsn == first:
        found.last(partial(disk.unlink, path))
        return
    found.lost_end = scan.lacks_end
    # Damaged bytes stay where they are, for somebody with better tools; nobody knows which
    # of those behind the last record are of an older segment (`spares`).
    kept = data if scan.lacks_end else data[: scan.end]
    lost_end = b""
    if scan.damage and not scan.sealed:
        missing_bytes = 1 if scan.lacks_end else 0
        lost_end = segment.seal(scan.header, next_lsn - 1, len(kept) + missing_bytes)
    left = Segment(
        path,
        first,
        next_lsn - 1,
        len(kept),
        scan.payload_bytes,
        lost=sum(one.events for one in scan.damage),
        damaged=not readable or any(one.length for one in scan.damage),
    )
    found.segments.append(left)
    found.protocols[path] = scan.protocols
    if readable:  # else what is zeros to us may be there for them
        step = _Settled(
            left,
            disk,
            len(kept),
            rewrite=not scan.sealed,
            mended=kept if mended else None,
            lost_end=lost_end,
        )
        found.later(step)


@dataclass(frozen=True, slots=True)
class _Settled:
    """A step that leaves a segment as it was read.

    It reads the segment again: a journal may have more than memory holds.
    """

    left: Segment
    disk: Disk
    size: int
    """Bytes that stay."""
    rewrite: bool
    """Whether they are to be written once more: the last sync may have failed."""
    mended: bytes | None
    """The right bytes, if they are not there yet."""
    lost_end: bytes
    """The seal that says how far they reached, where some of them are damaged."""

    def __call__(self) -> None:
        """Raises OSError."""
        data, readable = self.mended, True
        if data is None and self.rewrite:
            data, readable = read_patiently(self.disk, self.left.path)
        if not readable:
            return  # what is zeros to us may be there for the disk
        file = self.disk.open(self.left.path)
        try:
            if self.disk.size(self.left.path) > self.size:
                file.truncate(self.size)
            if data is not None:
                self._rewrite(file, data[: self.size])
            if self.lost_end:
                with contextlib.suppress(OSError):  # it was told; see `_Places`
                    file.write([self.lost_end])
                    self.left.bytes = self.size + len(self.lost_end)
            file.sync()
        finally:
            file.close()

    def _rewrite(self, file: File, data: bytes) -> None:
        try:
            file.rewrite(data)
        except OSError:
            # A full disk must not prevent a start.
            if self.mended is not None:
                raise


@dataclass(frozen=True, slots=True)
class _Places:
    """Makes segments for events that are lost without a trace."""

    directory: Path
    disk: Disk
    found: Recovered
    given_by: _GivenBy

    def keep(self, lsns: range) -> Path:
        """One for each incarnation that gave these lsns: the first of them.  They are written
        when all else is settled.
        """
        given = self.given_by(lsns[0], lsns[-1])
        first, *_ = [self._keep(*one) for one in given]
        return first

    def _keep(self, by: str, first: int, last: int) -> Path:
        found = self.found
        there = map(segment.parse_name, self.disk.names(self.directory))
        attempts = [one.attempt for one in there if one and one.first_lsn == first]
        attempt = max(attempts, default=-1) + 1
        path = self.directory / segment.name(first, by, attempt)
        data = segment.place_of_lost(first, last)
        found.next_lsn = max(found.next_lsn, last + 1)
        place = Segment(path, first, last, len(data), lost=last - first + 1)
        found.segments.append(place)
        found.protocols[path] = set()
        found.later(partial(self._write, place, data))
        return path

    def _write(self, place: Segment, data: bytes) -> None:
        try:
            with contextlib.closing(self.disk.create(place.path)) as file:
                file.write([data])
                file.sync()
        except OSError:
            # No room: it was told, and is a hole for the audit.  The next start tells it
            # again, unless something behind it was published before that.
            self.found.segments.remove(place)
            self.disk.unlink(place.path)


def _is_gone(synced: Synced, told: int, names: Iterable[str], found: Recovered) -> bool:
    """Whether the marked segment is not there, and no other loss says so.

    Where it had events, lsns say it: those up to *told* are in files, or acknowledged.
    """
    first = _first(synced.name)
    if first <= told:
        return False
    known = {one.path.name for one in found.segments}
    known |= {one.path.name for one in found.losses}
    aside = {name.partition("-")[0] for name in names if name.endswith(DAMAGED)}
    return synced.name not in known and f"{first:020d}" not in aside


def set_aside(path: Path, disk: Disk) -> None:
    """Rename a segment, so that it is not read, and nothing is replaced.

    Raises FileNotFoundError, OSError.
    """
    disk.rename(path, name_aside(path, disk))


def name_aside(path: Path, disk: Disk) -> Path:
    """The name that `set_aside` gives it: the first such name that is free."""
    parsed = segment.parse_name(path.name)
    aside, more = path.with_name(path.name + DAMAGED), 0
    while parsed and disk.exists(aside):
        more += 1
        first, attempt, incarnation = parsed
        name = segment.name(first, incarnation, attempt + more)
        aside = path.with_name(name + DAMAGED)
    return aside


def _first(name: str) -> int:
    """The first lsn of the segment of this name; 0 for any other name."""
    parsed = segment.parse_name(name)
    return parsed.first_lsn if parsed else 0


def _is_empty(data: bytes) -> bool:
    """Whether a segment's first record was never written.

    A crash while it is made leaves less than a header; or a header, and behind it zeros,
    where it is written over an old one.  A sector of zeros says nothing.
    """
    end = segment.HEADER_BYTES + segment.RECORD_BYTES
    header, record = data[: segment.HEADER_BYTES], data[segment.HEADER_BYTES : end]
    return not record or (any(header) and not any(record))


def _held(path: Path, firsts: Sequence[int], disk: Disk) -> range:
    """The lsns that a damaged segment may have held.

    It ended where a later one begins, or before what was published later: *firsts*.
    And no event takes less than a byte.
    """
    first = _first(path.name.removesuffix(DAMAGED))
    ends = [first + disk.size(path), *(lsn for lsn in firsts if lsn > first)]
    return range(first, min(ends))
