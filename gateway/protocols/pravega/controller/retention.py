"""Retention of streams: truncates each at the place that its policy and its reader groups
allow, from time to time.

    no policy     nothing is truncated, unless `options.stream_retention` says how old
    by time       what was written longer ago than `param`
    by size       what is older than the newest `param` bytes
    consumption   with groups that say how far they have read (subscribers): no more than
                  all of them have read; but what is older, or more, than `max`

Places are the segments' marks, so a little more is kept than a policy says: what was
written in an hour, at most, or a quarter of a megabyte of a segment.  Only truncation
deletes: it is durable, and readers see it like anybody's.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import define
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from gateway.protocols.pravega.controller.catalog import Catalog, Stream
from gateway.protocols.pravega.controller.messages import Message, decode
from gateway.protocols.pravega.controller.reader_groups import read_by
from gateway.protocols.pravega.segment import Segment

__all__ = ["Retention"]

_SECONDS = 60.0
"""Between two rounds."""
_AT_ONCE = 100
"""Groups, segments and hundreds of marks in one turn of the event loop."""
_MARKS = 100
_TIME, _SIZE = 1, 2
"""Kinds of policies, as the protocol numbers them."""
_NO_LIMIT = (1 << 63) - 1


@define(eq=False, slots=False)
class Retention:
    """Acts on the policies of all streams.

    *default* is that of streams without one, and of segments that no stream has, in
    seconds; None: they are kept.
    """

    _log = Logger()

    _catalog: Catalog
    _clock: IReactorTime
    _default: float | None = None

    def __attrs_post_init__(self) -> None:
        self._round: Iterator[int] = iter(())
        self._next: IDelayedCall | None = None
        self._read: dict[str, list[Mapping[int, int]]] = {}
        """How far each subscriber has read, by stream."""
        self._policies: dict[tuple[str, str], tuple[bytes, tuple[int, int, int]]] = {}
        """What was decoded of each stream's configuration, and of which."""
        self._told: set[str] = set()
        """Streams and segments whose retention fails, as the log says."""

    def start(self) -> None:
        """Begin with the first round."""
        self._next = self._clock.callLater(_SECONDS, self._begin)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._next is not None and self._next.active():
            self._next.cancel()
        self._next = None

    def _begin(self) -> None:
        self._round = self._rounds()
        self._go_on()

    def _go_on(self) -> None:
        if self._catalog.container.broken:
            return
        more = False
        try:
            more = self._turn()
        except Exception:  # the next round begins anew
            self._log.failure("Retention of streams fails")
        finally:
            seconds, then = (0.0, self._go_on) if more else (_SECONDS, self._begin)
            self._next = self._clock.callLater(seconds, then)

    def _turn(self) -> bool:
        """Whether there is more to do in this round."""
        done = 0
        for cost in self._round:
            done += cost
            if done >= _AT_ONCE:
                return True
        return False

    def _rounds(self) -> Iterator[int]:
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
        before, self._policies = self._policies, {}
        for scope, found in list(catalog.scopes.items()):
            for name, stream in list(found.streams.items()):
                if catalog.stream(scope, name) is stream:
                    known.add(f"{scope}/{name}")
                    with self._telling(f"{scope}/{name}"):
                        self._truncate(scope, name, stream, before.get((scope, name)))
                    yield self._cost(scope, name, stream)
        if self._default is None:
            return
        cutoff = self._cutoff(self._default * 1000)
        segments = catalog.container.state.segments
        for segment in list(segments.values()):
            if segment.name.rpartition("/")[0] not in known:
                # It may have been deleted in an earlier turn, and made again.
                is_there = segments.get(segment.name) is segment
                if is_there and segment.table is None and segment.staged is None:
                    with self._telling(segment.name):
                        self._cut(segment, segment.offset_before(cutoff))
                yield 1

    @contextlib.contextmanager
    def _telling(self, name: str) -> Iterator[None]:
        """Log what fails, once until it works."""
        try:
            yield
        except Exception:
            if name not in self._told:
                self._told.add(name)
                self._log.failure("Retention of {name} fails", name=name)
        else:
            self._told.discard(name)

    def _cost(self, scope: str, name: str, stream: Stream) -> int:
        segments = self._catalog.container.state.segments
        cost = 1
        for each in self._catalog.segments(scope, name, stream):
            if (found := segments.get(each)) is not None:
                cost += 1 + len(found.mark_times or ()) // _MARKS
        return cost

    def _cutoff(self, milliseconds: float) -> int:
        return int(self._catalog.container.now - milliseconds)

    def _truncate(
        self,
        scope: str,
        name: str,
        stream: Stream,
        known: tuple[bytes, tuple[int, int, int]] | None,
    ) -> None:
        if known is None or known[0] != stream.config:
            known = stream.config, _policy(decode("StreamConfig", stream.config))
        self._policies[scope, name] = known
        kind, least, most = known[1]
        if kind not in (_TIME, _SIZE):
            if self._default is None:
                return
            kind, least, most = _TIME, int(self._default * 1000), _NO_LIMIT
        state = self._catalog.container.state
        names = self._catalog.segments(scope, name, stream)
        segments = [state.segments[each] for each in names if each in state.segments]
        if not any(segment.retained for segment in segments):
            return
        place = self._by_time if kind == _TIME else _by_size
        allowed = place(segments, least)
        read = self._read_by_all(f"{scope}/{name}", stream.numbers, names)
        if read is not None:
            forced = place(segments, most) if 0 < most < _NO_LIMIT else None
            allowed = [
                max(
                    segment.start if forced is None else forced[at],
                    min(offset, read.get(segment.name, segment.start)),
                )
                for at, (segment, offset) in enumerate(
                    zip(segments, allowed, strict=True)
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

    def _read_by_all(
        self, stream: str, numbers: Iterable[int], names: Iterable[str]
    ) -> dict[str, int] | None:
        """How far all subscribers have read each segment; None if there are none."""
        cuts = self._read.get(stream)
        if not cuts:
            return None
        return {
            segment: min(cut.get(number, 0) for cut in cuts)
            for number, segment in zip(numbers, names, strict=True)
        }


def _policy(config: Message) -> tuple[int, int, int]:
    retention = config.retention
    return retention.kind, retention.param, retention.max


def _by_size(segments: Sequence[Segment], size: int) -> list[int]:
    """The latest place of a stream, in time, behind which there are *size* bytes or more;
    where its segments begin if it has less.
    """
    times = sorted({time for each in segments for time in each.mark_times or ()})

    def offsets(time: int) -> list[int]:
        return [segment.offset_before(time) for segment in segments]

    def behind(time: int) -> int:
        """As a key: it only grows with the time."""
        left = zip(segments, offsets(time), strict=True)
        return -sum(segment.readable - offset for segment, offset in left)

    # The first time at which too little is left; the one before is the latest to do.
    found = bisect_left(times, -size + 1, key=lambda time: behind(time + 1))
    if not found:
        return [segment.start for segment in segments]
    return offsets(times[found - 1] + 1)
