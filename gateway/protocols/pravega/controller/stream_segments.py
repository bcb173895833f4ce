"""The methods about a stream's segments: which it has, key ranges, addresses, tokens.

A stream's key space is cut into equal ranges, one for each segment, and never scaled.  So
no segment has successors, and there is one epoch.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define

from gateway.protocols.pravega.controller.catalog import Catalog
from gateway.protocols.pravega.controller.grpc import Code, Failed
from gateway.protocols.pravega.controller.messages import Message, new
from gateway.protocols.pravega.controller.methods import (
    SUCCESS,
    Caller,
    Methods,
    find,
    status,
)
from gateway.protocols.pravega.controller.names import MARK
from gateway.protocols.pravega.controller.tokens import DelegationTokens

__all__ = ["StreamSegments", "address"]

_DEFAULT_PORT = 9090


@define(eq=False, slots=False)
class StreamSegments:
    """The methods about segments, addresses and delegation tokens.

    *advertise* gives the address of the segment store, for a client that
    addressed the controller by a host.  *create* makes a stream of watermarks.
    """

    methods = Methods()

    _catalog: Catalog
    _tokens: DelegationTokens
    _advertise: Callable[[str], tuple[str, int]]
    _create: Callable[[str, str], None]

    # -- addresses ---------------------------------------------------------------------

    @methods("ServerRequest", "getControllerServerList")
    def servers(self, request: Message, caller: Caller) -> Message:
        """The address of this controller, as the client addressed it."""
        host, port = address(caller.authority)
        return new("ServerResponse", nodes=[new("NodeUri", host=host, port=port)])

    @methods("SegmentId", "getURI")
    def uri(self, request: Message, caller: Caller) -> Message:
        """The address of the segment store, the same for every segment and table."""
        host, port = self._advertise(address(caller.authority)[0])
        return new("NodeUri", host=host, port=port)

    @methods("StreamInfo", "getDelegationToken")
    def token(self, request: Message, caller: Caller) -> Message:
        """A delegation token for a stream, or for a table with a name like one."""
        made = self.grant(request.scope, request.stream, caller.name)
        return new("DelegationToken", token=made)

    def grant(self, scope: str, stream: str, name: str) -> str:
        """Make a delegation token for the segments of a stream."""
        return self._tokens.make(scope, stream, name)

    # -- segments ----------------------------------------------------------------------

    def _ensure_mark(self, info: Message) -> None:
        """Create the stream of a stream's watermarks when it is first asked for.

        Clients expect that there is one, and never create it.
        """
        base = info.stream.removeprefix(MARK)
        if (
            base != info.stream
            and not base.startswith(MARK)
            and self._catalog.stream(info.scope, base) is not None
            and self._catalog.stream(info.scope, info.stream) is None
        ):
            self._create(info.scope, info.stream)

    @methods("StreamInfo", "getCurrentSegments")
    def current(self, request: Message, caller: Caller) -> Message:
        """The segments that can be written to."""
        self._ensure_mark(request)
        stream = find(self._catalog, request)
        return new(
            "SegmentRanges",
            ranges=[] if stream.sealed else self.ranges(request.scope, request.stream),
            token=self.grant(request.scope, request.stream, caller.name),
        )

    @methods("GetEpochSegmentsRequest", "getEpochSegments")
    def epoch(self, request: Message, caller: Caller) -> Message:
        """The segments of the only epoch."""
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
        """The segments of an existing stream, with their key ranges."""
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

    @methods("GetSegmentsRequest", "getSegments")
    def head(self, request: Message, caller: Caller) -> Message:
        """The first offset of each segment, whatever time is asked for."""
        info = request.stream_info
        self._ensure_mark(info)
        stream = find(self._catalog, info)
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

    @methods(
        "SegmentId", "getSegmentsImmediatlyFollowing", "getSegmentsImmediatelyFollowing"
    )
    def successors(self, request: Message, caller: Caller) -> Message:
        """No segments: streams are never scaled."""
        info = request.stream_info
        find(self._catalog, info)
        made = self.grant(info.scope, info.stream, caller.name)
        return new("SuccessorResponse", token=made)

    @methods("StreamCutRange", "getSegmentsBetween")
    def between(self, request: Message, caller: Caller) -> Message:
        """The segments between two stream cuts; an empty cut is an end of the stream."""
        info = request.stream_info
        stream = find(self._catalog, info)
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

    @methods("SegmentId", "isSegmentValid")
    def segment_valid(self, request: Message, caller: Caller) -> Message:
        """Whether the segment can be written to."""
        stream = find(self._catalog, request.stream_info)
        valid = not stream.sealed and request.number in stream.numbers
        return new("BooleanResponse", response=valid)

    @methods("StreamCut", "isStreamCutValid")
    def cut_valid(self, request: Message, caller: Caller) -> Message:
        """Whether the stream cut has an offset for every segment."""
        stream = find(self._catalog, request.stream_info)
        return new("BooleanResponse", response=set(request.cut) == set(stream.numbers))

    @methods("RemoveWriterRequest", "removeWriter")
    @methods("TimestampFromWriter", "noteTimestampFromWriter")
    def ignored(self, request: Message, caller: Caller) -> Message:
        """Accept a writer's note for watermarks, which are not made."""
        return status(SUCCESS)


def _segment_id(scope: str, stream: str, number: int) -> Message:
    info = new("StreamInfo", scope=scope, stream=stream)
    return new("SegmentId", stream_info=info, number=number)


def address(authority: str) -> tuple[str, int]:
    """Host, without brackets, and port of an `:authority`."""
    host, colon, port = authority.rpartition(":")
    if not colon or not port.isdigit() or host.count("[") != host.count("]"):
        host, port = authority, ""
    return host.strip("[]"), int(port or _DEFAULT_PORT)
