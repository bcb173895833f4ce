"""The methods about key-value tables of Java clients: create, list, configuration, delete.

A table has segments with equal ranges of the key space, each a table of the container with
keys of a fixed size; entries go there by the wire protocol.  Its segments are those of a
stream of the table's name and `_kvtable`.  Tables are never scaled, by no client.
"""

from __future__ import annotations

from attrs import define

from gateway.protocols.pravega.controller import messages
from gateway.protocols.pravega.controller.access import Kind, Resource
from gateway.protocols.pravega.controller.catalog import Catalog
from gateway.protocols.pravega.controller.grpc import Code, Failed, over_limit
from gateway.protocols.pravega.controller.kept_records import KeyValueTable
from gateway.protocols.pravega.controller.messages import Message
from gateway.protocols.pravega.controller.methods import (
    SUCCESS,
    Caller,
    Methods,
    page,
    segment_range,
    status,
)
from gateway.protocols.pravega.controller.names import TABLE, usable
from gateway.protocols.pravega.controller.tokens import DelegationTokens
from gateway.protocols.pravega.errors import Need

_EXISTS, _NO_SCOPE, _BAD_NAME = 2, 3, 4
_NOT_FOUND = 2

_KEY_BYTES = 8192
"""The most bytes of both keys together; clients do not send longer ones."""
_PARTITIONS = 1000


@define(eq=False, slots=False)
class KeyValueTables:
    """The methods about key-value tables."""

    methods = Methods()

    _catalog: Catalog
    _tokens: DelegationTokens

    def _find(self, info: messages.KeyValueTableInfo) -> KeyValueTable | None:
        scope = self._catalog.scopes.get(info.scope)
        return None if scope is None else scope.tables.get(info.name)

    @methods(messages.KeyValueTableConfig, "createKeyValueTable")
    def create(self, request: messages.KeyValueTableConfig, caller: Caller) -> Message:
        scope = self._catalog.scopes.get(request.scope)
        if scope is None:
            return status(_NO_SCOPE)
        if not usable(request.name) or request.name + TABLE in scope.streams:
            return status(_BAD_NAME)
        if request.name in scope.tables:
            return status(_EXISTS)
        key_bytes = request.primary_bytes + request.secondary_bytes
        if request.primary_bytes < 1 or request.secondary_bytes < 0:
            what = "a table needs a primary key, and no key has less than 0 bytes"
            raise Failed(Code.INVALID_ARGUMENT, what)
        for what, asked, most in (
            (f"keys of {key_bytes} bytes", key_bytes, _KEY_BYTES),
            (f"{request.partitions} partitions", request.partitions, _PARTITIONS),
        ):
            if asked > most:
                raise over_limit(what, most, code=Code.INVALID_ARGUMENT)
        count = max(1, request.partitions)
        self._catalog.check_room(count)
        config = request.SerializeToString()
        self._catalog.add_table(request.scope, request.name, count, config, key_bytes)
        return status(SUCCESS)

    @methods(messages.KeyValueTableInfo, "getKeyValueTableConfiguration")
    def configuration(
        self, request: messages.KeyValueTableInfo, caller: Caller
    ) -> Message:
        found = self._find(request)
        if found is None:
            none = messages.KeyValueTableConfig(scope=request.scope, name=request.name)
            return messages.KeyValueTableConfigResponse(config=none, status=_NOT_FOUND)
        config = messages.decode(messages.KeyValueTableConfig, found.config)
        config.partitions = found.count
        return messages.KeyValueTableConfigResponse(config=config)

    @methods(messages.KeyValueTableInfo, "getCurrentSegmentsKeyValueTable")
    def segments(self, request: messages.KeyValueTableInfo, caller: Caller) -> Message:
        """A table's segments, by ranges of the key space; clients add the suffix."""
        found = self._find(request)
        if found is None:
            what = f"no key-value table {request.scope}/{request.name}"
            raise Failed(Code.NOT_FOUND, what)
        return messages.SegmentRanges(
            ranges=[
                segment_range(request.scope, request.name, part) for part in found.parts
            ],
            token=self._tokens.make(request.scope, request.name, caller.name),
        )

    @methods(messages.KeyValueTablesRequest, "listKeyValueTablesInScope")
    def list_tables(
        self, request: messages.KeyValueTablesRequest, caller: Caller
    ) -> Message:
        scope = self._catalog.scopes.get(request.scope.scope)
        if scope is None:
            return messages.KeyValueTablesResponse(
                continuation=request.continuation,
                status=_NOT_FOUND,
            )
        found, token = page(
            scope.tables,
            request.continuation.token,
            lambda name: caller.rights.allows(
                Need.ANY, Resource(Kind.STREAM, request.scope.scope, name)
            ),
            caller.turn,
        )
        return messages.KeyValueTablesResponse(
            tables=[
                messages.KeyValueTableInfo(scope=request.scope.scope, name=name)
                for name in found
            ],
            continuation=token,
        )

    @methods(messages.KeyValueTableInfo, "deleteKeyValueTable")
    def delete(self, request: messages.KeyValueTableInfo, caller: Caller) -> Message:
        if self._find(request) is None:
            return status(_NOT_FOUND)
        self._catalog.drop_table(request.scope, request.name)
        return status(SUCCESS)
