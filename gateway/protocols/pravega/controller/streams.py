"""The methods about scopes and streams: create, list, update, truncate, seal, delete.

On a stream's policies others act: `scaling` and `autoscale`, and `retention`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import define

from gateway.protocols.pravega.controller import messages
from gateway.protocols.pravega.controller.access import Kind, Resource
from gateway.protocols.pravega.controller.catalog import Catalog
from gateway.protocols.pravega.controller.epochs import Cover, Part, read_to
from gateway.protocols.pravega.controller.kept_records import Scope, Stream
from gateway.protocols.pravega.controller.messages import Message
from gateway.protocols.pravega.controller.methods import (
    FAILURE,
    SUCCESS,
    Caller,
    Methods,
    Unfinished,
    find,
    page,
    status,
)
from gateway.protocols.pravega.controller.names import MARK, READER_GROUP, TABLE, usable
from gateway.protocols.pravega.controller.scaling import (
    Scalings,
    check_count,
    check_own,
)
from gateway.protocols.pravega.controller.transactions import Transactions
from gateway.protocols.pravega.errors import Need
from gateway.protocols.pravega.segment import Segment
from gateway.sdk.costs import BATCH

_EXISTS, _NO_SCOPE, _BAD_NAME = 2, 3, 4
_SCOPE_EXISTS, _SCOPE_BAD_NAME = 2, 3
_NOT_FOUND, _NO_SUCH_SCOPE, _NOT_SEALED, _NOT_EMPTY, _IS_SEALED = 2, 3, 3, 3, 4


@define(eq=False, slots=False)
class Streams:
    """The methods about scopes and streams."""

    methods = Methods()

    _catalog: Catalog
    _transactions: Transactions
    _scalings: Scalings

    # -- scopes ----------------------------------------------------------------------

    @methods(messages.ScopeInfo, "createScope")
    def create_scope(self, request: messages.ScopeInfo, caller: Caller) -> Message:
        if not usable(request.scope):
            return status(_SCOPE_BAD_NAME)
        if request.scope in self._catalog.scopes:
            return status(_SCOPE_EXISTS)
        self._catalog.add_scope(request.scope)
        return status(SUCCESS)

    @methods(messages.ScopeInfo, "deleteScope")
    def delete_scope(self, request: messages.ScopeInfo, caller: Caller) -> Message:
        """Delete a scope that has no streams, reader groups and key-value tables."""
        scope = self._catalog.scopes.get(request.scope)
        if scope is None:
            return status(_NOT_FOUND)
        if scope.groups or scope.streams or scope.tables:
            return status(_NOT_EMPTY)
        self._catalog.drop_scope(request.scope)
        return status(SUCCESS)

    @methods(messages.ScopeInfo, "deleteScopeRecursive")
    def delete_all(self, request: messages.ScopeInfo, caller: Caller) -> Message:
        """Delete a scope with its streams, reader groups and key-value tables.

        Raises `Unfinished` while there are more than fit into a turn.
        """
        scope = self._catalog.scopes.get(request.scope)
        if scope is None:
            return status(_NOT_FOUND)
        state = self._catalog.container.state
        before = state.number
        for _ in self._deletions(request.scope, scope):
            caller.turn.charge(BATCH * (state.number - before))
            before = state.number
            if caller.turn.over:
                raise Unfinished
        self._catalog.drop_scope(request.scope)
        return status(SUCCESS)

    def _deletions(self, place: str, scope: Scope) -> Iterator[None]:
        """Delete what is in a scope, one after the other."""
        for name in list(scope.tables):
            self._catalog.drop_table(place, name)
            yield
        for name, stream in list(scope.streams.items()):
            if name in scope.streams:  # not deleted with another one, as its marks
                self._seal(place, name, stream)
                self._delete(place, name, stream)
                yield
        # Last: else one of this name, behind a kill, would go on with the state of this.
        for name in list(scope.groups):
            self._catalog.drop_group(place, name)
            yield

    @methods(messages.ScopeInfo, "checkScopeExists")
    def scope_exists(self, request: messages.ScopeInfo, caller: Caller) -> Message:
        return messages.BooleanResponse(response=request.scope in self._catalog.scopes)

    @methods(messages.ScopesRequest, "listScopes")
    def list_scopes(self, request: messages.ScopesRequest, caller: Caller) -> Message:
        found, token = page(
            self._catalog.scopes,
            request.continuation.token,
            lambda name: caller.rights.allows(Need.ANY, Resource(Kind.SCOPE, name)),
            caller.turn,
        )
        return messages.ScopesResponse(scopes=found, continuation=token)

    # -- streams ---------------------------------------------------------------------

    @methods(messages.StreamConfig, "createStream")
    def create(self, request: messages.StreamConfig, caller: Caller) -> Message:
        """Create a stream, with as many segments as its scaling policy asks for."""
        info = request.stream_info
        if not usable(info.stream):
            return status(_BAD_NAME)
        scope = self._catalog.scopes.get(info.scope)
        if scope is None:
            return status(_NO_SCOPE)
        if info.stream in scope.streams:
            return status(_EXISTS)
        if info.stream.endswith(TABLE) and info.stream[: -len(TABLE)] in scope.tables:
            return status(_BAD_NAME)  # the names of segments would be the table's
        count = max(1, request.scaling.segments)
        check_own(info.stream, count)
        check_count(count)
        self._catalog.check_room(count)
        self._catalog.add_stream(
            info.scope,
            info.stream,
            Stream(
                count=count,
                config=request.SerializeToString(),
                tags=sorted(set(request.tags.tag)),
            ),
        )
        return status(SUCCESS)

    def delete_internal(self, scope: str, name: str) -> None:
        """Delete a stream of a reader group, or of watermarks, if it exists."""
        found = self._catalog.scopes[scope].streams.get(name)
        if found is not None:
            self._delete(scope, name, found)

    def _find(self, info: messages.StreamInfo) -> Stream | int:
        """The stream, or the status if there is none."""
        scope = self._catalog.scopes.get(info.scope)
        if scope is None:
            return _NO_SUCH_SCOPE
        stream = scope.streams.get(info.stream)
        return _NOT_FOUND if stream is None else stream

    def _find_open(self, info: messages.StreamInfo) -> Stream | int:
        """The stream, or the status if there is none or it is sealed."""
        stream = self._find(info)
        if isinstance(stream, Stream) and stream.sealed:
            return _IS_SEALED
        return stream

    @methods(messages.StreamConfig, "updateStream")
    def update(self, request: messages.StreamConfig, caller: Caller) -> Message:
        """Store another configuration; scale the stream, if it asks for that."""
        info = request.stream_info
        stream = self._find_open(info)
        if isinstance(stream, int):
            return status(stream)
        before = stream.config, stream.tags
        stream.config = request.SerializeToString()
        stream.tags = sorted(set(request.tags.tag))
        known = messages.decode(messages.StreamConfig, before[0]).scaling
        try:
            # One change has both: with one of them a client would ask again in vain.
            if request.scaling != known and self._scalings.resize(
                info.scope, info.stream, request.scaling
            ):
                return status(SUCCESS)
        except Exception:
            stream.config, stream.tags = before
            raise
        self._catalog.save_stream(info.scope, info.stream, stream)
        return status(SUCCESS)

    @methods(messages.StreamCut, "truncateStream")
    def truncate(self, request: messages.StreamCut, caller: Caller) -> Message:
        """Delete the data before a stream cut, which must name every segment."""
        info, state = request.stream_info, self._catalog.container.state
        stream = self._find_open(info)
        if isinstance(stream, int):
            return status(stream)
        parts = stream.parts
        cut = {part.id: part for part in parts if part.id in request.cut}
        if len(cut) < len(request.cut) or not Cover(cut.values()).is_whole:
            return status(FAILURE)
        there = self._catalog.there(info.scope, info.stream)
        offsets = read_to(parts, request.cut, lambda part: _length(there, part))
        begin = Cover(cut.values())
        if any(
            offset > _length(there, cut[id_]) for id_, offset in request.cut.items()
        ):
            return status(FAILURE)
        for part, found in there.items():
            if offsets[part.id] > found.start:
                now = self._catalog.container.now
                change = state.truncate(found.name, offsets[part.id], now)
                self._catalog.submit(change)
        # What never had a byte has no offset that says that it is before the cut.
        self._catalog.delete_segments(
            found.name
            for part, found in there.items()
            if not found.length
            and all(each.epoch > part.epoch for each in begin.under(part))
        )
        self._catalog.drop_behind_head(info.scope, info.stream)
        return status(SUCCESS)

    @methods(messages.StreamInfo, "sealStream")
    def seal(self, request: messages.StreamInfo, caller: Caller) -> Message:
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

    @methods(messages.StreamInfo, "deleteStream")
    def delete(self, request: messages.StreamInfo, caller: Caller) -> Message:
        stream = self._catalog.stream(request.scope, request.stream)
        if stream is None:
            return status(_NOT_FOUND)
        if not stream.sealed:
            return status(_NOT_SEALED)
        group = request.stream.removeprefix(READER_GROUP)
        if (
            group != request.stream
            and group in self._catalog.scopes[request.scope].groups
        ):
            # So clients of before 0.9 delete a group, of whose record they do not know.
            self._catalog.drop_group(request.scope, group)
        self._delete(request.scope, request.stream, stream)
        return status(SUCCESS)

    def _delete(self, scope: str, name: str, stream: Stream) -> None:
        # First: who is killed in between finds the stream, and repeats the call.
        self.delete_internal(scope, MARK + name)
        self._transactions.forget_all(scope, name)
        self._catalog.delete_segments(self._catalog.segments(scope, name, stream))
        self._catalog.drop_stream(scope, name)

    @methods(messages.StreamInfo, "checkStreamExists")
    def exists(self, request: messages.StreamInfo, caller: Caller) -> Message:
        there = self._catalog.stream(request.scope, request.stream) is not None
        return messages.BooleanResponse(response=there)

    @methods(messages.StreamInfo, "getStreamConfiguration")
    def configuration(self, request: messages.StreamInfo, caller: Caller) -> Message:
        config = messages.decode(
            messages.StreamConfig, find(self._catalog, request).config
        )
        # Clients read these without asking whether they are set.
        config.scaling.SetInParent()
        config.retention.SetInParent()
        config.tags.SetInParent()
        return config

    @methods(messages.StreamsInScopeRequest, "listStreamsInScope")
    def list_streams(
        self, request: messages.StreamsInScopeRequest, caller: Caller
    ) -> Message:
        return self._listed(request, None, caller)

    @methods(messages.StreamsInScopeWithTagRequest, "listStreamsInScopeForTag")
    def list_tagged(
        self, request: messages.StreamsInScopeWithTagRequest, caller: Caller
    ) -> Message:
        return self._listed(request, request.tag, caller)

    def _listed(
        self,
        request: messages.StreamsInScopeRequest | messages.StreamsInScopeWithTagRequest,
        tag: str | None,
        caller: Caller,
    ) -> Message:
        scope = self._catalog.scopes.get(request.scope.scope)
        if scope is None:
            return messages.StreamsInScopeResponse(
                continuation=request.continuation, status=_NOT_FOUND
            )
        found, token = page(
            _listed(scope, tag),
            request.continuation.token,
            caller.rights.streams(request.scope.scope),
            caller.turn,
        )
        return messages.StreamsInScopeResponse(
            streams=[
                messages.StreamInfo(scope=request.scope.scope, stream=name)
                for name in found
            ],
            continuation=token,
        )


def _length(there: Mapping[Part, Segment], part: Part) -> int:
    """The length of a segment; that of a deleted one is 0."""
    found = there.get(part)
    return 0 if found is None or found.table is not None else found.length


def _listed(scope: Scope, tag: str | None) -> list[str]:
    """Names of the streams that clients created; with *tag*, if it is given."""
    return [
        name
        for name, stream in scope.streams.items()
        if not name.startswith(MARK) and (tag is None or tag in stream.tags)
    ]
