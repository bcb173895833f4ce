"""The methods about reader groups of Java clients: configurations, and what they read.

The state of a group is in the stream `_RG<name>`, which clients write and read by
themselves.  Groups of Rust and Python clients are in a table, without the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from attrs import define

from gateway.protocols.pravega.controller import messages
from gateway.protocols.pravega.controller.access import Kind, Resource
from gateway.protocols.pravega.controller.catalog import Catalog
from gateway.protocols.pravega.controller.kept_records import ReaderGroup
from gateway.protocols.pravega.controller.messages import Message
from gateway.protocols.pravega.controller.methods import (
    FAILURE,
    SUCCESS,
    Caller,
    Methods,
    status,
)
from gateway.protocols.pravega.controller.names import (
    READER_GROUP,
    segment,
    usable,
)
from gateway.protocols.pravega.errors import Need

_NO_SCOPE, _BAD_NAME = 2, 3
_NO_GROUP, _BAD_CONFIG = 2, 3
_NO_STREAM, _NO_SUBSCRIBER, _OTHER_GENERATION = 2, 3, 5


@define(eq=False, slots=False)
class ReaderGroups:
    """The methods about reader groups; *delete* deletes a group's stream, by scope and name."""

    methods = Methods()

    _catalog: Catalog
    _delete: Callable[[str, str], None]

    def _find(self, scope: str, name: str) -> ReaderGroup | None:
        found = self._catalog.scopes.get(scope)
        return found.groups.get(name) if found is not None else None

    @methods(messages.ReaderGroupConfiguration, "createReaderGroup")
    def create(
        self, request: messages.ReaderGroupConfiguration, caller: Caller
    ) -> Message:
        """Create a group; give the existing one if there is one of its name."""
        scope = self._catalog.scopes.get(request.scope)
        code, config = SUCCESS, request
        if scope is None:
            code = _NO_SCOPE
        elif not usable(request.name):
            code = _BAD_NAME
        elif request.name in scope.groups and self._has_state(request):
            config = _config(scope.groups[request.name])
        else:
            if not self._has_state(request):
                stream = READER_GROUP + request.name
                self._delete(request.scope, stream)
                self._catalog.add_internal(request.scope, stream)
            group = ReaderGroup(request.SerializeToString())
            self._catalog.save_group(request.scope, request.name, group)
        return messages.CreateReaderGroupResponse(status=code, config=config)

    def _has_state(self, request: messages.ReaderGroupConfiguration) -> bool:
        """The stream is there, and open; a deletion that a kill cut off left less of it."""
        name = READER_GROUP + request.name
        stream = self._catalog.stream(request.scope, name)
        there = self._catalog.container.state.segments
        return (
            stream is not None
            and not stream.sealed
            and all(
                segment(request.scope, name, part.id) in there for part in stream.active
            )
        )

    @methods(messages.ReaderGroupInfo, "getReaderGroupConfig")
    def configuration(
        self, request: messages.ReaderGroupInfo, caller: Caller
    ) -> Message:
        found = self._find(request.scope, request.name)
        if found is None:
            none = messages.ReaderGroupConfiguration(
                scope=request.scope, name=request.name
            )
            return messages.ReaderGroupConfigResponse(config=none, status=_NO_GROUP)
        return messages.ReaderGroupConfigResponse(config=_config(found))

    @methods(messages.ReaderGroupConfiguration, "updateReaderGroup")
    def update(
        self, request: messages.ReaderGroupConfiguration, caller: Caller
    ) -> Message:
        """Replace a configuration, if the request is based on the current generation."""
        found = self._find(request.scope, request.name)
        if found is None:
            return messages.UpdateReaderGroupResponse(status=_NO_GROUP)
        config = _config(found)
        if (request.id, request.generation) != (config.id, config.generation):
            return messages.UpdateReaderGroupResponse(
                status=_BAD_CONFIG,
                generation=config.generation,
            )
        request.generation += 1
        found.config = request.SerializeToString()
        found.cuts = {}  # it may read again what it has read
        self._catalog.save_group(request.scope, request.name, found)
        return messages.UpdateReaderGroupResponse(generation=request.generation)

    @methods(messages.ReaderGroupInfo, "deleteReaderGroup")
    def delete(self, request: messages.ReaderGroupInfo, caller: Caller) -> Message:
        found = self._find(request.scope, request.name)
        if found is None or _config(found).id != request.id:
            return status(_NO_GROUP)
        # First: who is killed in between finds the group, and repeats the call.
        self._delete(request.scope, READER_GROUP + request.name)
        self._catalog.drop_group(request.scope, request.name)
        return status(SUCCESS)

    # -- how far they have read ------------------------------------------------------

    @methods(messages.StreamInfo, "listSubscribers")
    def subscribers(self, request: messages.StreamInfo, caller: Caller) -> Message:
        if self._catalog.stream(request.scope, request.stream) is None:
            return messages.SubscribersResponse(status=_NO_STREAM)
        wanted = request.scope, request.stream
        names = [
            f"{scope}/{name}"
            for scope, found in self._catalog.scopes.items()
            for name, group in found.groups.items()
            if caller.rights.allows(Need.ANY, Resource(Kind.GROUP, scope, name))
            and _subscribes(_config(group), wanted)
        ]
        return messages.SubscribersResponse(subscribers=sorted(names))

    @methods(messages.SubscriberStreamCut, "updateSubscriberStreamCut")
    def read_up_to(
        self, request: messages.SubscriberStreamCut, caller: Caller
    ) -> Message:
        """Store how far a group has read: retention deletes no more, up to its limit."""
        info = request.stream_cut.stream_info
        if self._catalog.stream(info.scope, info.stream) is None:
            return status(_NO_STREAM)
        owner, _, name = request.subscriber.rpartition("/")
        found = self._find(owner or info.scope, name)
        if found is None:
            return status(_NO_SUBSCRIBER)
        config = _config(found)
        if not _subscribes(config, (info.scope, info.stream)):
            return status(_NO_SUBSCRIBER)
        if (request.id, request.generation) != (config.id, config.generation):
            return status(_OTHER_GENERATION)
        if not request.stream_cut.cut:
            return status(FAILURE)
        cut = request.stream_cut.SerializeToString()
        found.cuts[f"{info.scope}/{info.stream}"] = cut
        self._catalog.save_group(owner or info.scope, name, found)
        return status(SUCCESS)


def read_by(group: ReaderGroup) -> Iterator[tuple[str, Mapping[int, int]]]:
    """How far a group that tells so has read each of its streams: `scope/stream`, and
    offsets by segment number; none if it has not told yet.
    """
    config = _config(group)
    for begin in config.begin if config.retention else ():
        name = f"{begin.stream_info.scope}/{begin.stream_info.stream}"
        told = group.cuts.get(name)
        yield (
            name,
            {} if told is None else messages.decode(messages.StreamCut, told).cut,
        )


def _config(group: ReaderGroup) -> messages.ReaderGroupConfiguration:
    return messages.decode(messages.ReaderGroupConfiguration, group.config)


def _subscribes(
    config: messages.ReaderGroupConfiguration, wanted: tuple[str, str]
) -> bool:
    return config.retention != 0 and any(
        (cut.stream_info.scope, cut.stream_info.stream) == wanted
        for cut in config.begin
    )
