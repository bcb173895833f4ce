"""Retention of streams: truncates each where its policy and its reader groups allow.

It does so from time to time.

    no policy     nothing is truncated, unless `options.stream_retention` says how old
    by time       what was written longer ago than `param`
    by size       what is older than the newest `param` bytes
    consumption   where groups say how far they have read (subscribers): only what all of
                  them have read; beyond `max` of age or size also what they have not

Places are the segments' marks, so a little more is kept than a policy says: at most an
hour's writes, or a quarter of a megabyte, of a segment.  Only truncation
deletes: it is durable, and readers see it like one that a client has asked for.

Times are those of the clock at the gateway's start.  One that was years ahead then would
make all streams old at once.  So a time more than three days after the last write before the
leap counts only after a day, and if the clock was not set back since.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from attrs import define
from twisted.logger import Logger

from gateway.protocols.pravega.controller import messages
from gateway.protocols.pravega.controller.catalog import Catalog
from gateway.protocols.pravega.controller.epochs import Part, read_to
from gateway.protocols.pravega.controller.kept_records import Stream
from gateway.protocols.pravega.controller.reader_groups import read_by
from gateway.protocols.pravega.controller.rounds import Rounds
from gateway.protocols.pravega.segment import Segment

_MARKS = 100
"""The number of a segment's marks that cost as much as a segment, or a group."""
_TIME, _SIZE = 1, 2
"""Kinds of policies, as the protocol numbers them."""
_NO_LIMIT = (1 << 63) - 1
_LEAP_MILLISECONDS = 3 * 86_400_000
"""A clock that is so far ahead of the last write at a start may be wrong."""
_STANDS_MILLISECONDS = 86_400_000


@define(eq=False, slots=False)
class Retention:
    """Acts on the policies of all streams.

    *default* is that of streams without one, and of segments that no stream has, in
    seconds; None: they are kept.
    """

    _log = Logger()

    _catalog: Catalog
    _default: float | None = None
    _wall_clock: Callable[[], float] = time.time

    def __attrs_post_init__(self) -> None:
        self.rounds = Rounds(self._catalog.container, "Retention", self._steps)
        self._read: dict[str, list[Mapping[int, int]]] = {}
        """How far each subscriber has read, by stream."""
        self._leap = self._leapt_at = 0
        """Milliseconds that the clock has leapt after a write, if they do not count, and
        what it showed then.
        """

    def start(self) -> None:
        """Begin; the container is restored, and nothing was written since."""
        container = self._catalog.container
        before, since = _around_a_leap(container.state.segments.values(), container.now)
        if before and since - before > _LEAP_MILLISECONDS:
            self._leap, self._leapt_at = since - before, since
            self._log.warn(
                "The clock went on by {days} days without a write to any segment: for a day"
                " streams keep by time so much more. If it is ahead, set it, and restart the"
                " gateway",
                days=self._leap // 86_400_000,
            )
        self.rounds.start()

    def _steps(self) -> Iterator[int]:
        """A step for each group, each stream, and each segment that no stream has, with
        what it cost.

        What fails for one stream stops no other's; without all groups nothing is done.
        """
        catalog = self._catalog
        self._read = {}
        for found in list(catalog.scopes.values()):
            for group in list(found.groups.values()):
                for name, cut in read_by(group):
                    self._read.setdefault(name, []).append(cut)
                yield 1
        known: set[str] = set()
        for scope, name, stream in catalog.each_stream():
            known.add(place := f"{scope}/{name}")
            with self.rounds.telling(place):
                self._truncate(scope, name, stream)
            yield self._cost(scope, name)
        if self._default is None:
            return
        cutoff = self._cutoff(self._default * 1000)
        segments = catalog.container.state.segments
        for segment in list(segments.values()):
            if segment.name.rpartition("/")[0] not in known:
                # It may have been deleted in an earlier turn, and made again.
                is_there = segments.get(segment.name) is segment
                if is_there and segment.table is None and segment.staged is None:
                    with self.rounds.telling(segment.name):
                        self._cut(segment, segment.offset_before(cutoff))
                yield 1

    def _cost(self, scope: str, name: str) -> int:
        there = self._catalog.there(scope, name).values()
        return 1 + len(there) + sum(len(one.mark_times) // _MARKS for one in there)

    def _cutoff(self, milliseconds: float) -> int:
        now = self._catalog.container.now
        stood = now - self._leapt_at >= _STANDS_MILLISECONDS
        # The one on the wall may have been set right since; ours is not while we run.
        if stood and self._wall_clock() * 1000 > now - _LEAP_MILLISECONDS:
            self._leap = 0
        return int(now - self._leap - milliseconds)

    def _truncate(self, scope: str, name: str, stream: Stream) -> None:
        self._catalog.drop_behind_head(scope, name)
        policy = messages.decode(messages.StreamConfig, stream.config).retention
        kind, least, most = policy.kind, policy.param, policy.max
        if kind not in (_TIME, _SIZE):
            if self._default is None:
                return
            kind, least, most = _TIME, int(self._default * 1000), _NO_LIMIT
        there = self._catalog.there(scope, name)
        segments = list(there.values())
        if not any(segment.retained for segment in segments):
            return
        place = self._by_time if kind == _TIME else _by_size
        allowed = place(segments, least)
        cuts = self._read.get(f"{scope}/{name}")
        if cuts:
            read = _read_by_all(there, stream, cuts)
            forced = place(segments, most) if 0 < most < _NO_LIMIT else None
            allowed = [
                max(
                    segment.start if forced is None else forced[at],
                    min(offset, read[part.id]),
                )
                for at, ((part, segment), offset) in enumerate(
                    zip(there.items(), allowed, strict=True)
                )
            ]
        for segment, offset in zip(segments, allowed, strict=True):
            self._cut(segment, offset)

    def _cut(self, segment: Segment, offset: int) -> None:
        offset = min(offset, segment.readable)
        if offset > segment.start and segment.kept is None:
            container = self._catalog.container
            change = container.state.truncate(segment.name, offset, container.now)
            self._catalog.submit(change)

    def _by_time(self, segments: Sequence[Segment], milliseconds: int) -> list[int]:
        cutoff = self._cutoff(milliseconds)
        return [segment.offset_before(cutoff) for segment in segments]


def _around_a_leap(segments: Iterable[Segment], now: int) -> tuple[int, int]:
    """The last write that is a day old, or 0, and the first one since, or *now*.

    An earlier run may have written by the same wrong clock.
    """
    before, since, a_day_ago = 0, now, now - _STANDS_MILLISECONDS
    for each in segments:
        times = each.mark_times
        at = bisect_right(times, a_day_ago)
        for written in (each.written_at, *times[max(0, at - 1) : at + 1]):
            if written <= a_day_ago:
                before = max(before, written)
            else:
                since = min(since, written)
    return before, since


def _read_by_all(
    there: Mapping[Part, Segment],
    stream: Stream,
    cuts: Sequence[Mapping[int, int]],
) -> Mapping[int, int]:
    def length(part: Part) -> int:
        return there[part].length if part in there else 0

    each = [read_to(stream.parts, cut, length) for cut in cuts]
    return {part.id: min(cut[part.id] for cut in each) for part in there}


def _by_size(segments: Sequence[Segment], size: int) -> list[int]:
    """The latest place of a stream, in time, behind which *size* bytes or more were
    written; where its segments begin if it has less.
    """
    marks = {time for each in segments for time in each.mark_times}
    times = sorted(marks.union(each.written_at for each in segments))

    def written_since(time: int) -> int:
        """A sort key for *time*: it only grows with it."""
        return -sum(each.readable - each.offset_since(time + 1) for each in segments)

    # The first time since which too little was written; the one before is the latest to do.
    found = bisect_left(times, -size + 1, key=written_since)
    if not found:
        return [segment.start for segment in segments]
    place = times[found - 1] + 1
    # Where the clock was set back, a segment may have been written to last before a time
    # that its marks have: then all of it seems to be older.
    return [
        min(each.offset_before(place), each.offset_since(place)) for each in segments
    ]
