"""The permission and the resource that each call of the controller needs.

`Controller` refuses to be made with a method that is not in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from gateway.protocols.pravega.controller.access import Kind, Resource, of_stream
from gateway.protocols.pravega.errors import Need

_Asked: TypeAlias = Callable[[Any], Iterator[tuple[Need, Resource]]]
"""Gives what a request asks for: all of it must be allowed."""

_READ, _WRITE, _READ_WRITE = 3, 4, 5
"""The purposes of a token, as clients name them."""


def _nothing(request: Any) -> Iterator[tuple[Need, Resource]]:
    yield from ()


def _scope(need: Need) -> _Asked:
    def asked(request: Any) -> Iterator[tuple[Need, Resource]]:
        scope = request.scope
        name = scope if isinstance(scope, str) else scope.scope
        yield need, Resource(Kind.SCOPE, name)

    return asked


def _stream(need: Need, of: Callable[[Any], Any] | None = None) -> _Asked:
    """A call that needs *need* for the request's `stream_info`, or for the one that *of* finds."""

    def asked(request: Any) -> Iterator[tuple[Need, Resource]]:
        info = request.stream_info if of is None else of(request)
        yield need, of_stream(info.scope, info.stream)

    return asked


def _itself(request: Any) -> Any:
    return request


def _token(request: Any) -> Iterator[tuple[Need, Resource]]:
    """The purpose of the token, if the client says it: it then learns at once if it is denied."""
    what = of_stream(request.scope, request.stream)
    if request.access in (_READ, _READ_WRITE):
        yield Need.READ, what
    if request.access in (_WRITE, _READ_WRITE):
        yield Need.WRITE, what
    yield Need.USE, what


def _table(need: Need) -> _Asked:
    def asked(request: Any) -> Iterator[tuple[Need, Resource]]:
        yield need, Resource(Kind.STREAM, request.scope, request.name)

    return asked


def _group(request: Any) -> Iterator[tuple[Need, Resource]]:
    yield Need.USE, Resource(Kind.GROUP, request.scope, request.name)


def _group_and_streams(request: Any) -> Iterator[tuple[Need, Resource]]:
    """A group may hold back what retention deletes of the streams that it reads."""
    yield from _group(request)
    for cut in (*request.begin, *request.end):
        info = cut.stream_info
        yield Need.READ, of_stream(info.scope, info.stream)


def _subscriber(request: Any) -> Iterator[tuple[Need, Resource]]:
    info = request.stream_cut.stream_info
    scope, _, name = request.subscriber.rpartition("/")
    yield Need.USE, Resource(Kind.GROUP, scope or info.scope, name)
    yield Need.READ, of_stream(info.scope, info.stream)


CALLS: Mapping[str, _Asked] = {
    # Where the client is already; and of what there is, what the caller may see.
    "getControllerServerList": _nothing,
    "listScopes": _nothing,
    "createScope": _scope(Need.MANAGE),
    "deleteScope": _scope(Need.MANAGE),
    "deleteScopeRecursive": _scope(Need.MANAGE),
    "checkScopeExists": _scope(Need.ANY),
    "listStreamsInScope": _scope(Need.ANY),
    "listStreamsInScopeForTag": _scope(Need.ANY),
    "listKeyValueTablesInScope": _scope(Need.ANY),
    "createStream": _stream(Need.MANAGE),
    "updateStream": _stream(Need.MANAGE),
    "truncateStream": _stream(Need.MANAGE),
    "sealStream": _stream(Need.MANAGE, _itself),
    "deleteStream": _stream(Need.MANAGE, _itself),
    "scale": _stream(Need.MANAGE),
    "checkScale": _stream(Need.MANAGE),
    "checkStreamExists": _stream(Need.ANY, _itself),
    "getStreamConfiguration": _stream(Need.ANY, _itself),
    "getURI": _stream(Need.USE),
    "getDelegationToken": _token,
    "getCurrentSegments": _stream(Need.ANY, _itself),
    "getEpochSegments": _stream(Need.ANY),
    "getSegments": _stream(Need.READ),
    "getSegmentsImmediatlyFollowing": _stream(Need.ANY),
    "getSegmentsImmediatelyFollowing": _stream(Need.ANY),
    "getSegmentsBetween": _stream(Need.READ),
    "isSegmentValid": _stream(Need.ANY),
    "createTransaction": _stream(Need.WRITE),
    "pingTransaction": _stream(Need.WRITE),
    "commitTransaction": _stream(Need.WRITE),
    "abortTransaction": _stream(Need.WRITE),
    "checkTransactionState": _stream(Need.WRITE),
    "listCompletedTransactions": _stream(Need.WRITE),
    "noteTimestampFromWriter": _stream(
        Need.WRITE, lambda one: one.position.stream_info
    ),
    "removeWriter": _stream(Need.WRITE),
    "createReaderGroup": _group_and_streams,
    "updateReaderGroup": _group_and_streams,
    "getReaderGroupConfig": _group,
    "deleteReaderGroup": _group,
    "listSubscribers": _stream(Need.READ, _itself),
    "updateSubscriberStreamCut": _subscriber,
    "createKeyValueTable": _table(Need.MANAGE),
    "deleteKeyValueTable": _table(Need.MANAGE),
    "getKeyValueTableConfiguration": _table(Need.ANY),
    "getCurrentSegmentsKeyValueTable": _table(Need.ANY),
}
