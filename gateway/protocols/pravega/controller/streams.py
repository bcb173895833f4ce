"""The methods about scopes and streams: create, list, update, truncate, seal, delete.

A stream keeps the segments that it was created with: its scaling policy is stored and
given back, and an update that asks for another number of segments is refused.  On its
retention policy `retention` acts.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define

from gateway.protocols.pravega.controller.catalog import Catalog, Scope, Stream
from gateway.protocols.pravega.controller.grpc import Code, Failed
from gateway.protocols.pravega.controller.messages import Message, decode, new
from gateway.protocols.pravega.controller.methods import (
    FAILURE,
    NO_SCALING,
    SUCCESS,
    Caller,
    Methods,
    find,
    over_limit,
    page,
    status,
)
from gateway.protocols.pravega.controller.names import MARK, segment, usable
from gateway.protocols.pravega.controller.transactions import Transactions
from gateway.protocols.pravega.errors import SegmentNotFound

__all__ = ["Streams"]

_EXISTS, _NO_SCOPE, _BAD_NAME = 2, 3, 4
_SCOPE_EXISTS, _SCOPE_BAD_NAME = 2, 3
_NOT_FOUND, _NO_SUCH_SCOPE, _NOT_SEALED, _NOT_EMPTY, _IS_SEALED = 2, 3, 3, 3, 4

_FIXED = 0
"""The scaling policy of a fixed number of segments."""

#: Limit of one stream: every reader group and transaction uses all its segments.
_STREAM_SEGMENTS = 10_000


@define(eq=False, slots=False)
class Streams:
    """The methods about scopes and streams.

    *check_room* raises `Failed` if there is no room for so many segments.
    """

    methods = Methods()

    _catalog: Catalog
    _transactions: Transactions
    _check_room: Callable[[int], None]

    # -- scopes ----------------------------------------------------------------------

    @methods("ScopeInfo", "createScope")
    def create_scope(self, request: Message, caller: Caller) -> Message:
        """Create a scope."""
        if not usable(request.scope):
            return status(_SCOPE_BAD_NAME)
        if request.scope in self._catalog.scopes:
            return status(_SCOPE_EXISTS)
        self._catalog.add_scope(request.scope)
        return status(SUCCESS)

    @methods("ScopeInfo", "deleteScope")
    def delete_scope(self, request: Message, caller: Caller) -> Message:
        """Delete a scope that has no streams and no reader groups."""
        scope = self._catalog.scopes.get(request.scope)
        if scope is None:
            return status(_NOT_FOUND)
        if scope.groups or scope.streams:
            return status(_NOT_EMPTY)
        self._catalog.drop_scope(request.scope)
        return status(SUCCESS)

    @methods("ScopeInfo", "deleteScopeRecursive")
    def delete_all(self, request: Message, caller: Caller) -> Message:
        """Delete a scope with its streams and reader groups."""
        catalog = self._catalog
        scope = catalog.scopes.get(request.scope)
        if scope is None:
            return status(_NOT_FOUND)
        for name in list(scope.groups):
            catalog.drop_group(request.scope, name)
        for name, stream in list(scope.streams.items()):
            if name in scope.streams:  # not deleted with another one, as its marks
                self._seal(request.scope, name, stream)
                self._delete(request.scope, name, stream)
        catalog.drop_scope(request.scope)
        return status(SUCCESS)

    @methods("ScopeInfo", "checkScopeExists")
    def scope_exists(self, request: Message, caller: Caller) -> Message:
        """Whether there is such a scope."""
        return new("BooleanResponse", response=request.scope in self._catalog.scopes)

    @methods("ScopesRequest", "listScopes")
    def list_scopes(self, request: Message, caller: Caller) -> Message:
        """A page of the names of all scopes."""
        found, token = page(self._catalog.scopes, request.continuation.token)
        return new("ScopesResponse", scopes=found, continuation=token)

    # -- streams ---------------------------------------------------------------------

    @methods("StreamConfig", "createStream")
    def create(self, request: Message, caller: Caller) -> Message:
        """Create a stream, with as many segments as its scaling policy asks for."""
        info = request.stream_info
        if not usable(info.stream):
            return status(_BAD_NAME)
        scope = self._catalog.scopes.get(info.scope)
        if scope is None:
            return status(_NO_SCOPE)
        if scope.stream(info.stream) is not None:
            return status(_EXISTS)
        count = max(1, request.scaling.segments)
        if count > _STREAM_SEGMENTS:
            what = f"a stream of {count} segments"
            raise over_limit(what, _STREAM_SEGMENTS, code=Code.INVALID_ARGUMENT)
        self._check_room(count)
        self._create(
            info.scope,
            info.stream,
            Stream(
                count=count,
                config=request.SerializeToString(),
                tags=sorted(set(request.tags.tag)),
            ),
        )
        return status(SUCCESS)

    def create_internal(self, scope: str, name: str) -> None:
        """Create a stream of one segment, for reader groups or watermarks."""
        info = new("StreamInfo", scope=scope, stream=name)
        scaling = new("ScalingPolicy", segments=1)
        config = new("StreamConfig", stream_info=info, scaling=scaling)
        self._check_room(1)
        self._create(scope, name, Stream(count=1, config=config.SerializeToString()))

    def delete_internal(self, scope: str, name: str) -> None:
        """Delete such a stream, if it exists."""
        found = self._catalog.scopes[scope].stream(name)
        if found is not None:
            self._delete(scope, name, found)

    def _create(self, scope: str, name: str, stream: Stream) -> None:
        catalog = self._catalog
        # New numbers: rows of deleted segments stay in the tables under their names.
        stream.first = catalog.first_number
        catalog.create_segments(catalog.segments(scope, name, stream))
        # A crash in an earlier call may have left segments with higher numbers.
        left, there = stream.first + stream.count, catalog.container.state.segments
        while (found := there.get(segment(scope, name, left))) is not None:
            if found.length or found.table is not None:
                break
            catalog.delete_segments([found.name])
            left += 1
        catalog.save_stream(scope, name, stream)

    def _find(self, info: Message) -> Stream | int:
        """The stream, or the status if there is none."""
        scope = self._catalog.scopes.get(info.scope)
        if scope is None:
            return _NO_SUCH_SCOPE
        stream = scope.stream(info.stream)
        return _NOT_FOUND if stream is None else stream

    def _find_open(self, info: Message) -> Stream | int:
        """The stream, or the status if there is none or it is sealed."""
        stream = self._find(info)
        if isinstance(stream, Stream) and stream.sealed:
            return _IS_SEALED
        return stream

    @methods("StreamConfig", "updateStream")
    def update(self, request: Message, caller: Caller) -> Message:
        """Store another configuration.

        Raises `Failed` if that would need other segments: they stay as they are.
        """
        info = request.stream_info
        stream = self._find_open(info)
        if isinstance(stream, int):
            return status(stream)
        before = decode("StreamConfig", stream.config).scaling
        if request.scaling != before and _needs_others(request.scaling, stream.count):
            what = (
                f"{info.scope}/{info.stream} has {stream.count} segments and keeps them"
            )
            raise Failed(Code.UNIMPLEMENTED, f"{NO_SCALING}: {what}")
        stream.config = request.SerializeToString()
        stream.tags = sorted(set(request.tags.tag))
        self._catalog.save_stream(info.scope, info.stream, stream)
        return status(SUCCESS)

    @methods("StreamCut", "truncateStream")
    def truncate(self, request: Message, caller: Caller) -> Message:
        """Delete the data before a stream cut, which must name every segment."""
        info, state = request.stream_info, self._catalog.container.state
        stream = self._find_open(info)
        if isinstance(stream, int):
            return status(stream)
        names = dict(
            zip(
                stream.numbers,
                self._catalog.segments(info.scope, info.stream, stream),
                strict=True,
            )
        )
        if set(request.cut) != set(names):
            return status(FAILURE)
        try:
            ahead = {
                names[number]: offset
                for number, offset in request.cut.items()
                if offset > state.data(names[number]).start
            }
            if any(offset > state.data(name).length for name, offset in ahead.items()):
                return status(FAILURE)
        except SegmentNotFound:
            return status(FAILURE)
        for name, offset in ahead.items():
            self._catalog.submit(
                state.truncate(name, offset, self._catalog.container.now)
            )
        return status(SUCCESS)

    @methods("StreamInfo", "sealStream")
    def seal(self, request: Message, caller: Caller) -> Message:
        """Seal a stream; its open transactions are aborted."""
        stream = self._find(request)
        if isinstance(stream, int):
            return status(stream)
        self._seal(request.scope, request.stream, stream)
        return status(SUCCESS)

    def _seal(self, scope: str, name: str, stream: Stream) -> None:
        if stream.sealed:
            return
        self._transactions.abort_all(scope, name)
        self._catalog.seal_segments(self._catalog.segments(scope, name, stream))
        stream.sealed = True
        self._catalog.save_stream(scope, name, stream)

    @methods("StreamInfo", "deleteStream")
    def delete(self, request: Message, caller: Caller) -> Message:
        """Delete a sealed stream."""
        stream = self._catalog.stream(request.scope, request.stream)
        if stream is None:
            return status(_NOT_FOUND)
        if not stream.sealed:
            return status(_NOT_SEALED)
        self._delete(request.scope, request.stream, stream)
        return status(SUCCESS)

    def _delete(self, scope: str, name: str, stream: Stream) -> None:
        segments = self._catalog.segments(scope, name, stream)
        self._transactions.forget_all(scope, name, segments)
        self._catalog.delete_segments(segments)
        self._catalog.drop_stream(scope, name)
        mark = self._catalog.scopes[scope].stream(MARK + name)
        if mark is not None:
            self._delete(scope, MARK + name, mark)

    @methods("StreamInfo", "checkStreamExists")
    def exists(self, request: Message, caller: Caller) -> Message:
        """Whether there is such a stream."""
        there = self._catalog.stream(request.scope, request.stream) is not None
        return new("BooleanResponse", response=there)

    @methods("StreamInfo", "getStreamConfiguration")
    def configuration(self, request: Message, caller: Caller) -> Message:
        """The last configuration of a stream."""
        config = decode("StreamConfig", find(self._catalog, request).config)
        # Clients read these without asking whether they are set.
        config.scaling.SetInParent()
        config.retention.SetInParent()
        config.tags.SetInParent()
        return config

    @methods("StreamsInScopeRequest", "listStreamsInScope")
    @methods("StreamsInScopeWithTagRequest", "listStreamsInScopeForTag")
    def list_streams(self, request: Message, caller: Caller) -> Message:
        """A page of the streams of a scope, with a tag if the request names one."""
        scope = self._catalog.scopes.get(request.scope.scope)
        if scope is None:
            return new(
                "StreamsInScopeResponse",
                continuation=request.continuation,
                status=_NOT_FOUND,
            )
        tag = getattr(request, "tag", None)
        found, token = page(
            _listed(scope, tag),
            request.continuation.token,
        )
        return new(
            "StreamsInScopeResponse",
            streams=[
                new("StreamInfo", scope=request.scope.scope, stream=name)
                for name in found
            ],
            continuation=token,
        )


def _needs_others(scaling: Message, count: int) -> bool:
    """Whether a policy asks for other segments than *count*; 0 asks for nothing."""
    wanted: int = scaling.segments
    return wanted > count or (scaling.kind == _FIXED and 0 < wanted < count)


def _listed(scope: Scope, tag: str | None) -> list[str]:
    """Names of the streams that clients created; with *tag*, if it is given."""
    return [
        name
        for name, stream in scope.streams.items()
        if not name.startswith(MARK) and (tag is None or tag in stream.tags)
    ]
