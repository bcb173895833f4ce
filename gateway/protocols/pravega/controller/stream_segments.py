"""Where to write and read: segments of streams, their ranges, who serves them.

A stream's key space is cut into equal ranges, one for each segment, for ever.  So no
segment has successors, and every question about the past has the same answer.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.protocols.pravega.controller.catalog import Catalog
from gateway.protocols.pravega.controller.grpc import Code, Failed
from gateway.protocols.pravega.controller.messages import Message, new
from gateway.protocols.pravega.controller.methods import (
    SUCCESS,
    Caller,
    Method,
    Methods,
    find,
    status,
)
from gateway.protocols.pravega.controller.names import MARK
from gateway.protocols.pravega.controller.tokens import DelegationTokens

__all__ = ["StreamSegments", "address"]

_DEFAULT_PORT = 9090


class StreamSegments:
    """The calls about segments, addresses and tokens."""

    def __init__(
        self,
        catalog: Catalog,
        tokens: DelegationTokens,
        advertise: Callable[[str], tuple[str, int]],
        create: Callable[[str, str], None],
    ) -> None:
        """*advertise* gives the segment store's address to who calls us by a host;
        *create* makes a stream that clients take for granted.
        """
        self._catalog = catalog
        self._tokens = tokens
        self._advertise = advertise
        self._create = create

    def methods(self) -> Methods:
        """By name."""
        successors: Method = ("SegmentId", self.successors)
        return {
            "getControllerServerList": ("ServerRequest", self.servers),
            "getURI": ("SegmentId", self.uri),
            "getCurrentSegments": ("StreamInfo", self.current),
            "getEpochSegments": ("GetEpochSegmentsRequest", self.epoch),
            "getSegments": ("GetSegmentsRequest", self.head),
            "getSegmentsImmediatlyFollowing": successors,
            "getSegmentsImmediatelyFollowing": successors,
            "getSegmentsBetween": ("StreamCutRange", self.between),
            "isSegmentValid": ("SegmentId", self.segment_valid),
            "isStreamCutValid": ("StreamCut", self.cut_valid),
            "getDelegationToken": ("StreamInfo", self.token),
            "removeWriter": ("RemoveWriterRequest", self.noted),
            "noteTimestampFromWriter": ("TimestampFromWriter", self.noted),
        }

    # -- addresses ---------------------------------------------------------------------

    def servers(self, request: Message, caller: Caller) -> Message:
        """Us, as the client calls us."""
        host, port = address(caller.authority)
        return new("ServerResponse", nodes=[new("NodeUri", host=host, port=port)])

    def uri(self, request: Message, caller: Caller) -> Message:
        """The segment store, which has every segment and every table there may be."""
        host, port = self._advertise(address(caller.authority)[0])
        return new("NodeUri", host=host, port=port)

    def token(self, request: Message, caller: Caller) -> Message:
        """A delegation token for a stream, or for a table that is named like one."""
        made = self.grant(request.scope, request.stream, caller.name)
        return new("DelegationToken", token=made)

    def grant(self, scope: str, stream: str, name: str) -> str:
        """A delegation token for the segments of a stream."""
        return self._tokens.make(scope, stream, name)

    # -- segments ----------------------------------------------------------------------

    def _sure(self, info: Message) -> None:
        """The stream of another one's watermarks is there if the other one is."""
        scope = self._catalog.scopes.get(info.scope)
        base = info.stream.removeprefix(MARK)
        if (
            scope is not None
            and base != info.stream
            and not base.startswith(MARK)
            and scope.stream(base) is not None
            and scope.stream(info.stream) is None
        ):
            self._create(info.scope, info.stream)

    def current(self, request: Message, caller: Caller) -> Message:
        """Those that can be written to."""
        self._sure(request)
        _, stream = find(self._catalog, request)
        return new(
            "SegmentRanges",
            ranges=[] if stream.sealed else self.ranges(request.scope, request.stream),
            token=self.grant(request.scope, request.stream, caller.name),
        )

    def epoch(self, request: Message, caller: Caller) -> Message:
        """All of them, in the only epoch."""
        info = request.stream_info
        find(self._catalog, info)
        if request.epoch != 0:
            raise Failed(Code.NOT_FOUND, f"no epoch {request.epoch}")
        return new(
            "SegmentRanges",
            ranges=self.ranges(info.scope, info.stream),
            token=self.grant(info.scope, info.stream, caller.name),
        )

    def ranges(self, scope: str, name: str) -> list[Message]:
        """The segments of a stream that is there, and their parts of the key space."""
        stream = self._catalog.scopes[scope].streams[name]
        return [
            new(
                "SegmentRange",
                segment=_segment_id(scope, name, number),
                low=place / stream.count,
                high=(place + 1) / stream.count,
            )
            for place, number in enumerate(stream.numbers)
        ]

    def head(self, request: Message, caller: Caller) -> Message:
        """Where the stream begins, whatever the time."""
        info = request.stream_info
        self._sure(info)
        _, stream = find(self._catalog, info)
        container = self._catalog.container
        there = container.state.segments
        names = self._catalog.segments(info.scope, info.stream, stream)
        return new(
            "SegmentsAtTime",
            segments=[
                new(
                    "SegmentLocation",
                    segment=_segment_id(info.scope, info.stream, number),
                    offset=container.head(there[name]) if name in there else 0,
                )
                for number, name in zip(stream.numbers, names, strict=True)
            ],
            token=self.grant(info.scope, info.stream, caller.name),
        )

    def successors(self, request: Message, caller: Caller) -> Message:
        """None, ever."""
        info = request.stream_info
        find(self._catalog, info)
        made = self.grant(info.scope, info.stream, caller.name)
        return new("SuccessorResponse", token=made)

    def between(self, request: Message, caller: Caller) -> Message:
        """Segments with data between two stream cuts; an empty cut is an end."""
        info = request.stream_info
        _, stream = find(self._catalog, info)
        return new(
            "StreamCutRangeResponse",
            segments=[
                _segment_id(info.scope, info.stream, number)
                for number in stream.numbers
                if (not request.begin or number in request.begin)
                and (not request.end or number in request.end)
            ],
            token=self.grant(info.scope, info.stream, caller.name),
        )

    def segment_valid(self, request: Message, caller: Caller) -> Message:
        """Whether it can be written to."""
        _, stream = find(self._catalog, request.stream_info)
        valid = not stream.sealed and request.number in stream.numbers
        return new("BooleanResponse", response=valid)

    def cut_valid(self, request: Message, caller: Caller) -> Message:
        """Whether it has a place in every segment."""
        _, stream = find(self._catalog, request.stream_info)
        return new("BooleanResponse", response=set(request.cut) == set(stream.numbers))

    def noted(self, request: Message, caller: Caller) -> Message:
        """Writers tell the time for watermarks, which are not made here."""
        return status(SUCCESS)


def _segment_id(scope: str, stream: str, number: int) -> Message:
    info = new("StreamInfo", scope=scope, stream=stream)
    return new("SegmentId", stream_info=info, number=number)


def address(authority: str) -> tuple[str, int]:
    """Host, without brackets, and port of what a client calls us."""
    host, colon, port = authority.rpartition(":")
    if not colon or not port.isdigit() or host.count("[") != host.count("]"):
        host, port = authority, ""
    return host.strip("[]"), int(port or _DEFAULT_PORT)
