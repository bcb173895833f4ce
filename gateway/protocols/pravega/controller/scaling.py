"""Scaling of streams: other segments for ranges of the key space, in one change.

A change seals segments, creates others in their ranges, and has the stream's record: all
of it becomes durable or nothing.  Writers that find theirs sealed ask for its successors;
readers read it to its end first, so events of a key stay in order.

    scale           as a client says
    updateStream    when the policy asks for another number: equal ranges
    `autoscale`     by rate
    a commit        whose transaction began in an earlier epoch, see `transactions`
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from attrs import define
from twisted.logger import Logger

from gateway.protocols.pravega.controller import messages
from gateway.protocols.pravega.controller.catalog import Catalog, Scaling
from gateway.protocols.pravega.controller.epochs import Cover, Part, equal_ranges
from gateway.protocols.pravega.controller.grpc import Code, Failed, over_limit
from gateway.protocols.pravega.controller.kept_records import Stream
from gateway.protocols.pravega.controller.messages import Message
from gateway.protocols.pravega.controller.methods import (
    Caller,
    Methods,
    find,
    segment_range,
    status,
)
from gateway.protocols.pravega.controller.names import OF_CLIENTS

#: Limit of one stream: reader groups and transactions use all segments of an epoch, and
#: each scaling writes down what the stream had before.
_STREAM_SEGMENTS = 10_000

_TOLD_SEGMENTS = 10
"""The most segments in one line of the log."""

FIXED, BY_BYTES, BY_EVENTS = 0, 1, 2
"""Kinds of scaling policies, as the protocol numbers them."""

_STARTED, _PRECONDITION = 0, 2
_ONE_SEGMENT = "it is a stream of readers' own, which has one segment"
_DONE, _INVALID = 1, 2


@define(eq=False, slots=False)
class Scalings:
    """The methods that scale streams."""

    methods = Methods()
    _log = Logger()

    _catalog: Catalog

    def __attrs_post_init__(self) -> None:
        self._told = ""
        """The last reason of a refusal in the log."""

    @methods(messages.ScaleRequest, "scale")
    def scale(self, request: messages.ScaleRequest, caller: Caller) -> Message:
        """Replace segments by others of the same key ranges, together."""
        info = request.stream_info
        stream = find(self._catalog, info)
        ids = set(request.sealed)
        ended = [part for part in stream.active if part.id in ids]
        ranges = sorted((each.low, each.high) for each in request.ranges)
        epoch = stream.epoch
        if why := _why_not(info.stream, stream, ids, ended, ranges):
            # The answer has no place for a text: clients say `false`.
            told = f"{info.scope}/{info.stream} is not scaled: {why}"
            if told != self._told:
                self._told = told
                self._log.warn("{told}", told=told)
            return messages.ScaleResponse(status=_PRECONDITION, epoch=epoch)
        made = self.replace(info.scope, info.stream, ended, ranges)
        return messages.ScaleResponse(
            status=_STARTED,
            segments=[segment_range(info.scope, info.stream, part) for part in made],
            epoch=epoch,
        )

    @methods(messages.ScaleStatusRequest, "checkScale")
    def check(self, request: messages.ScaleStatusRequest, caller: Caller) -> Message:
        """Whether the scaling that began in an epoch is done: that it always is."""
        stream = find(self._catalog, request.stream_info)
        return status(_DONE if 0 <= request.epoch < stream.epoch else _INVALID)

    def resize(self, scope: str, name: str, policy: messages.ScalingPolicy) -> bool:
        """Scale a stream to as many segments as a policy asks for; False if it has them.

        A policy by rate only asks for a least number; 0 asks for nothing.  Raises `Failed`.
        """
        stream = self._catalog.scopes[scope].streams[name]
        wanted, count = policy.segments, len(stream.active)
        too_many = policy.kind == FIXED and count > wanted
        if wanted < 1 or not (count < wanted or too_many):
            return False
        check_own(name, wanted)
        self.replace(scope, name, stream.active, equal_ranges(wanted))
        return True

    def replace(
        self,
        scope: str,
        name: str,
        ended: Iterable[Part],
        ranges: list[tuple[float, float]],
    ) -> list[Part]:
        """Replace segments, if there is room; raises `Failed`."""
        check_count(len(ranges), len(self._catalog.scopes[scope].streams[name].parts))
        self._catalog.check_room(len(ranges))
        scaling = Scaling(self._catalog, scope, name)
        made = scaling.replace(ended, ranges)
        self._catalog.scale(scope, name, scaling)
        return made


def is_scalable(name: str, stream: Stream) -> bool:
    """Whether a stream can be scaled: not a sealed one, and none of the clients' own."""
    return not (stream.sealed or name.startswith(OF_CLIENTS))


def check_own(name: str, count: int) -> None:
    """Raise `Failed` if a stream of this name may not have so many segments."""
    if count > 1 and name.startswith(OF_CLIENTS):
        raise Failed(Code.INVALID_ARGUMENT, f"{name}: {_ONE_SEGMENT}")


def _why_not(
    name: str,
    stream: Stream,
    ids: Collection[int],
    ended: Sequence[Part],
    ranges: Sequence[tuple[float, float]],
) -> str | None:
    """The reason why the segments *ids*, of which *ended* are active, can not be replaced by
    segments of these ranges; None: they can.
    """
    if stream.sealed:
        return "the stream is sealed"
    if not is_scalable(name, stream):
        return _ONE_SEGMENT
    if not ids:
        return "it names no segments to replace"
    if gone := sorted(set(ids) - {part.id for part in ended}):
        active = [str(part.id) for part in stream.active]
        there = ", ".join(active[:_TOLD_SEGMENTS])
        if len(active) > _TOLD_SEGMENTS:
            there += f" and {len(active) - _TOLD_SEGMENTS} more"
        return f"segment {gone[0]} is not active; those are {there} (epoch * 2^32 + number)"
    for low, high in ranges:
        if low >= high:
            return f"the range {low} to {high} has no keys"
    covered = Cover(ended).ranges
    wanted = Cover(Part(0, *each) for each in ranges).ranges
    if wanted != covered:
        return f"the new ranges cover {wanted}, and the segments that they replace {covered}"
    return None


def check_count(more: int, there: int = 0) -> None:
    """Raise `Failed` if a stream that has had so many segments may not get so many more."""
    if there + more > _STREAM_SEGMENTS:
        what = f"a stream of {there + more} segments"
        if there:
            what += ", those of earlier epochs included (truncate it)"
        raise over_limit(what, _STREAM_SEGMENTS, code=Code.INVALID_ARGUMENT)
