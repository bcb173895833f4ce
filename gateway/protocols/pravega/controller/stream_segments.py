"""The methods about a stream's segments: which it has, key ranges, addresses, tokens.

A stream's key space is cut into ranges, one for each segment; `epochs` says what there was
when, as streams are scaled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from attrs import define

from gateway.protocols.pravega.controller import messages
from gateway.protocols.pravega.controller.catalog import Catalog
from gateway.protocols.pravega.controller.epochs import (
    Cover,
    Part,
    between,
    in_epoch,
    successors,
)
from gateway.protocols.pravega.controller.grpc import Code, Failed
from gateway.protocols.pravega.controller.messages import Message
from gateway.protocols.pravega.controller.methods import (
    Caller,
    Methods,
    find,
    segment_range,
)
from gateway.protocols.pravega.controller.names import MARK
from gateway.protocols.pravega.controller.tokens import DelegationTokens

_DEFAULT_PORT = 9090
_PORT = re.compile(r"[0-9]{1,5}")


@define(eq=False, slots=False)
class StreamSegments:
    """The methods about segments, addresses and delegation tokens.

    *advertise* gives the address of the segment store, for a client that
    addressed the controller by a host.
    """

    methods = Methods()

    _catalog: Catalog
    _tokens: DelegationTokens
    _advertise: Callable[[str], tuple[str, int]]

    # -- addresses ---------------------------------------------------------------------

    @methods(messages.ServerRequest, "getControllerServerList")
    def servers(self, request: messages.ServerRequest, caller: Caller) -> Message:
        """The address of this controller, as the client addressed it."""
        host, port = address(caller.authority)
        return messages.ServerResponse(nodes=[messages.NodeUri(host=host, port=port)])

    @methods(messages.SegmentId, "getURI")
    def uri(self, request: messages.SegmentId, caller: Caller) -> Message:
        """The address of the segment store, the same for every segment and table."""
        host, port = self._advertise(address(caller.authority)[0])
        return messages.NodeUri(host=host, port=port)

    @methods(messages.StreamInfo, "getDelegationToken")
    def token(self, request: messages.StreamInfo, caller: Caller) -> Message:
        """A delegation token for a stream, or for a table with a name like one."""
        made = self._tokens.make(request.scope, request.stream, caller.name)
        return messages.DelegationToken(token=made)

    # -- segments ----------------------------------------------------------------------

    def _ensure_mark(self, info: messages.StreamInfo) -> None:
        """Create the stream of watermarks, which clients expect and never create."""
        base = info.stream.removeprefix(MARK)
        if (
            base != info.stream
            and not base.startswith(MARK)
            and self._catalog.stream(info.scope, base) is not None
            and self._catalog.stream(info.scope, info.stream) is None
        ):
            self._catalog.add_internal(info.scope, info.stream)

    @methods(messages.StreamInfo, "getCurrentSegments")
    def current(self, request: messages.StreamInfo, caller: Caller) -> Message:
        self._ensure_mark(request)
        stream = find(self._catalog, request)
        parts = [] if stream.sealed else stream.active
        return self._ranges(request, parts, caller)

    @methods(messages.GetEpochSegmentsRequest, "getEpochSegments")
    def epoch(
        self, request: messages.GetEpochSegmentsRequest, caller: Caller
    ) -> Message:
        info = request.stream_info
        stream = find(self._catalog, info)
        parts = in_epoch(stream.parts, request.epoch)
        if request.epoch > stream.epoch or not Cover(parts).is_whole:
            raise Failed(Code.NOT_FOUND, f"no epoch {request.epoch}")
        return self._ranges(info, parts, caller)

    def _ranges(
        self, info: messages.StreamInfo, parts: Iterable[Part], caller: Caller
    ) -> messages.SegmentRanges:
        return messages.SegmentRanges(
            ranges=[segment_range(info.scope, info.stream, part) for part in parts],
            token=self._tokens.make(info.scope, info.stream, caller.name),
        )

    @methods(messages.GetSegmentsRequest, "getSegments")
    def head(self, request: messages.GetSegmentsRequest, caller: Caller) -> Message:
        """Where each segment was at a time, which has no later event before it; at 0, where
        the stream begins: so all published clients ask.
        """
        info = request.stream_info
        self._ensure_mark(info)
        find(self._catalog, info)
        if request.timestamp > 0:
            cut = self._catalog.at(info.scope, info.stream, request.timestamp)
        else:
            parts, _ = self._catalog.head(info.scope, info.stream)
            cut = {part: self._head(info, part) for part in parts}
        return messages.SegmentsAtTime(
            segments=[
                messages.SegmentLocation(
                    segment=segment_range(info.scope, info.stream, part).segment,
                    offset=offset,
                )
                for part, offset in cut.items()
            ],
            token=self._tokens.make(info.scope, info.stream, caller.name),
        )

    def _head(self, info: messages.StreamInfo, part: Part) -> int:
        found = self._catalog.segment_state(info.scope, info.stream, part)
        return 0 if found is None else self._catalog.container.reads.head(found)

    @methods(
        messages.SegmentId,
        "getSegmentsImmediatlyFollowing",
        "getSegmentsImmediatelyFollowing",
    )
    def successors(self, request: messages.SegmentId, caller: Caller) -> Message:
        """Answer with the successors of a segment, and the predecessors of each.

        None for segments of a deleted stream of this name, whose readers are done.
        """
        info = request.stream_info
        stream = find(self._catalog, info)
        parts = stream.parts
        asked = next((part for part in parts if part.id == request.number), None)
        if asked is None and Part(request.number, 0, 1).number >= stream.first:
            raise Failed(
                Code.NOT_FOUND,
                f"{info.scope}/{info.stream} has no segment {request.number}",
            )
        return messages.SuccessorResponse(
            segments=[
                messages.SegmentEntry(
                    segment=segment_range(info.scope, info.stream, part),
                    value=[each.id for each in before],
                )
                for part, before in (successors(parts, asked) if asked else ())
            ],
            token=self._tokens.make(info.scope, info.stream, caller.name),
        )

    @methods(messages.StreamCutRange, "getSegmentsBetween")
    def between(self, request: messages.StreamCutRange, caller: Caller) -> Message:
        """The segments between two stream cuts; an empty cut is an end of the stream."""
        info = request.stream_info
        stream = find(self._catalog, info)
        parts = stream.parts
        begin, _ = self._catalog.head(info.scope, info.stream)
        if request.begin:
            begin = [part for part in parts if part.id in request.begin]
        end = stream.active
        if request.end:
            end = [part for part in parts if part.id in request.end]
        return messages.StreamCutRangeResponse(
            segments=[
                segment_range(info.scope, info.stream, part).segment
                for part in between(parts, begin, end)
                if self._catalog.segment_state(info.scope, info.stream, part)
            ],
            token=self._tokens.make(info.scope, info.stream, caller.name),
        )

    @methods(messages.SegmentId, "isSegmentValid")
    def segment_valid(self, request: messages.SegmentId, caller: Caller) -> Message:
        stream = find(self._catalog, request.stream_info)
        valid = not stream.sealed and any(
            part.id == request.number for part in stream.active
        )
        return messages.BooleanResponse(response=valid)


def address(authority: str) -> tuple[str, int]:
    """Host, without brackets, and port of an `:authority`."""
    host, colon, port = authority.rpartition(":")
    if not (colon and _PORT.fullmatch(port)) or host.count("[") != host.count("]"):
        host, port = authority, ""
    return host.strip("[]"), int(port or _DEFAULT_PORT)
