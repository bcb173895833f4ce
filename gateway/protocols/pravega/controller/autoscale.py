"""Automatic scaling: splits busy segments of a stream, and merges quiet ones.

The stream's policy says what is busy.  Once a minute the lengths, or numbers of events, of
segments are noted, where the policy is by rate.  They are kept for 20 minutes in memory, so
a restart begins anew.

    split    more than 5 times the target for 2 minutes, twice for 5, or once for 10; into
             as many as the rate asks for, at least two, at most the policy's factor; not
             into less than 1/65536 of the keys each
    merge    two neighbours with less than the target for 2, 5 and 10 minutes, and less
             than half of it for up to 20; never to fewer than the policy's least number
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise

from attrs import define

from gateway.protocols.pravega.controller import messages
from gateway.protocols.pravega.controller.catalog import Catalog
from gateway.protocols.pravega.controller.epochs import Part
from gateway.protocols.pravega.controller.kept_records import Stream
from gateway.protocols.pravega.controller.rounds import Rounds
from gateway.protocols.pravega.controller.scaling import (
    BY_BYTES,
    BY_EVENTS,
    Scalings,
    is_scalable,
)

_MINUTE = 60.0
_SPLIT = ((2, 5.0), (5, 2.0), (10, 1.0))
"""More than so many times the target for so many minutes is too much."""
_MERGE = ((2, 1.0), (5, 1.0), (10, 1.0))
_NOTES = 21
_NARROWEST = 2.0**-16
"""A segment of fewer keys has one that is busy: no split divides that."""
_UNIT = {BY_BYTES: 1024, BY_EVENTS: 1}


class _Rate:
    """How fast one segment has been written to, minute by minute."""

    def __init__(self) -> None:
        self._noted: deque[tuple[float, int]] = deque(maxlen=_NOTES)

    def note(self, now: float, value: int) -> None:
        self._noted.append((now, value))

    def over(self, minutes: float) -> float | None:
        """The rate per second over so many minutes at least; None if not known for so long."""
        now, value = self._noted[-1]
        for then, before in reversed(self._noted):
            if now - then >= minutes * _MINUTE:
                return (value - before) / (now - then)
        return None

    def longest(self) -> float:
        """The rate per second over all that is kept."""
        (then, before), (now, value) = self._noted[0], self._noted[-1]
        return (value - before) / (now - then) if now > then else 0.0

    def splits(self, target: float) -> int:
        """The number of segments to split into; 0: it should not be split."""
        rates = [
            rate
            for minutes, times in _SPLIT
            if (rate := self.over(minutes)) is not None and rate > times * target
        ]
        return max(2, int(max(rates) / target)) if rates else 0

    def is_low(self, target: float) -> bool:
        rates = [(self.over(minutes), times) for minutes, times in _MERGE]
        return self.longest() < target / 2 and all(
            rate is not None and rate < times * target for rate, times in rates
        )


@define(eq=False, slots=False)
class Autoscale:
    """Scales the streams that have a policy by rate."""

    _catalog: Catalog
    _scalings: Scalings

    def __attrs_post_init__(self) -> None:
        self.rounds = Rounds(self._catalog.container, "Scaling", self._steps)
        self._rates: dict[str, _Rate] = {}
        """Rates by name of the segment."""

    def _steps(self) -> Iterator[int]:
        rates: dict[str, _Rate] = {}
        for scope, name, stream in self._catalog.each_stream():
            policy = messages.decode(messages.StreamConfig, stream.config).scaling
            if policy.kind in _UNIT:
                with self.rounds.telling(f"{scope}/{name}"):
                    self._look(scope, name, stream, policy, rates)
                yield len(stream.active)
            yield 1
        self._rates = rates

    def _look(
        self,
        scope: str,
        name: str,
        stream: Stream,
        policy: messages.ScalingPolicy,
        rates: dict[str, _Rate],
    ) -> None:
        target = policy.target_rate * _UNIT[policy.kind]
        if target <= 0 or not is_scalable(name, stream):
            return
        now = self._catalog.container.clock.seconds()
        active: list[tuple[Part, _Rate]] = []
        for part in stream.active:
            found = self._catalog.segment_state(scope, name, part)
            if found is None or found.table is not None:
                return
            rate = rates[found.name] = self._rates.get(found.name) or _Rate()
            rate.note(now, found.length if policy.kind == BY_BYTES else found.events)
            active.append((part, rate))
        ended, ranges = _split(active, target, policy.scale_factor)
        if not ended:
            spare = len(active) - max(1, policy.segments)
            ended, ranges = _merge(active, target, spare)
        if ended:
            self._scalings.replace(scope, name, ended, ranges)


def _split(
    active: Sequence[tuple[Part, _Rate]], target: float, most: int
) -> tuple[list[Part], list[tuple[float, float]]]:
    ended: list[Part] = []
    ranges: list[tuple[float, float]] = []
    for part, rate in active:
        wide = int((part.high - part.low) / _NARROWEST)
        if wide > 1 and (count := rate.splits(target)):
            count = max(2, min(count, most, wide))
            step = (part.high - part.low) / count
            edges = [part.low + step * place for place in range(count)]
            ended.append(part)
            ranges += pairwise([*edges, part.high])
    return ended, ranges


def _merge(
    active: Sequence[tuple[Part, _Rate]], target: float, spare: int
) -> tuple[list[Part], list[tuple[float, float]]]:
    """Pairs of neighbours to merge, *spare* of them at most."""
    ended: list[Part] = []
    ranges: list[tuple[float, float]] = []
    low: Part | None = None
    for part, rate in active:
        if not rate.is_low(target):
            low = None
        elif low is None:
            low = part
        elif len(ranges) < spare:
            ended += (low, part)
            ranges.append((low.low, part.high))
            low = None
    return ended, ranges
