"""The merging of transactions into their streams: at once, or several together.

Events go to the segment that has all their keys now, if only one has: what was written to
those keys before is in it, or lies before it.  Of several, only their writer knows which gets
which.  So these end.  One follows in their place, which gets the events and ends as well, and then
segments like those that ended.  These are two epochs, and a reader stands still before each
until its group has a checkpoint.  Therefore commits that need this wait a moment for others of their
stream, and share the two.  Who commits hears at once that it will be done, which is durable;
and what is committed meanwhile waits as well, so that commits keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import define
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from gateway.protocols.pravega.controller.catalog import Catalog, Key, Scaling
from gateway.protocols.pravega.controller.epochs import Cover, Part, in_epoch
from gateway.protocols.pravega.controller.grpc import Code, Failed
from gateway.protocols.pravega.controller.kept_records import Stream
from gateway.protocols.pravega.controller.methods import Caller
from gateway.protocols.pravega.controller.names import segment, transaction
from gateway.protocols.pravega.controller.scaling import check_count
from gateway.protocols.pravega.errors import SegmentError

Place: TypeAlias = tuple[str, str]
"""Scope and stream."""

_QUIET_SECONDS = 1.0
"""Commits of a stream are waited for until there was none for so long,"""
_MOST_SECONDS = 5.0
"""or the first one has waited for so long."""
_AGAIN_SECONDS = 10.0
"""When there was no room it is tried again."""


def pairs(catalog: Catalog, key: Key) -> Iterator[tuple[Part, str]]:
    """The stream's segments when a transaction began, with its segment for each."""
    scope, name, high, low = key
    stream = catalog.scopes[scope].streams[name]
    for part in in_epoch(stream.parts, high >> 32):
        yield part, transaction(segment(scope, name, part.id), high, low)


def staged_names(catalog: Catalog, key: Key) -> list[str]:
    return [name for _, name in pairs(catalog, key)]


class _PendingCommits:
    """Commits of one stream, in the order in which they were made."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.keys: dict[Key, Caller | None] = {}
        """The caller of each commit; None: it came before a restart."""
        self.timer: IDelayedCall | None = None
        self.told = False
        """The log says that they can not be merged now."""

    def cancel(self) -> None:
        if self.timer is not None and self.timer.active():
            self.timer.cancel()


@define(eq=False, slots=False)
class Commits:
    """Merges what transactions have staged.

    *done* is told of each transaction when it is merged, with the place up to which its
    stream is written then: lengths of segments, by id.
    """

    _log = Logger()

    _catalog: Catalog
    _done: Callable[[Key, Mapping[int, int]], None]

    def __attrs_post_init__(self) -> None:
        self._clock = self._catalog.container.clock
        self._waiting: dict[Place, _PendingCommits] = {}

    def stop(self) -> None:
        """Cancel all timers; a start goes on."""
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()

    def must_wait(self, key: Key) -> bool:
        """Whether a commit must wait for epochs.  Raises `Failed` if there is no room for those."""
        place = key[:2]
        stream = self._stream(place)
        ended = self._ended(stream, self._staged([key]))
        if ended:
            self._check(stream, ended)
        return place in self._waiting or bool(ended)

    def merge(self, key: Key, caller: Caller) -> None:
        """Merge a transaction that need not wait, in one change; raises `SegmentError`."""
        staged = self._staged([key])
        self._done(key, self._merge(key[:2], staged, caller.submitter, caller.origin))

    def wait(self, key: Key, caller: Caller | None = None) -> None:
        """Merge a transaction soon, together with others of its stream."""
        place, now = key[:2], self._clock.seconds()
        waiting = self._waiting.setdefault(place, _PendingCommits(now))
        waiting.keys[key] = caller
        left = waiting.since + _MOST_SECONDS - now
        self._look_after(place, max(0.0, min(_QUIET_SECONDS, left)))

    def finish(self, scope: str, name: str) -> None:
        """Merge what waits for a stream now; raises `Failed` if that can not be."""
        place = scope, name
        waiting = self._waiting.get(place)
        if waiting is None:
            return
        last = next(reversed(waiting.keys.values()))
        # The rows of one change are of one origin: where several have committed, of none.
        origins = {caller and caller.origin for caller in waiting.keys.values()}
        origin = origins.pop() if len(origins) == 1 else None
        position: Mapping[int, int] = {}
        try:
            staged = self._staged(list(waiting.keys))
            if staged:  # else a crash came after the merge
                # What was committed must get through, or the stream could never be sealed.
                broken = self._broken(place)
                submitter = last and last.submitter
                position = self._merge(place, staged, submitter, origin, broken)
        except SegmentError as why:
            raise Failed(Code.FAILED_PRECONDITION, str(why) or repr(why)) from None
        del self._waiting[place]
        waiting.cancel()
        for key in waiting.keys:
            self._done(key, position)

    def _look_after(self, place: Place, seconds: float) -> None:
        waiting = self._waiting[place]
        waiting.cancel()
        waiting.timer = self._clock.callLater(seconds, self._due, place)

    def _due(self, place: Place) -> None:
        try:
            self.finish(*place)
        except Failed as why:
            waiting = self._waiting[place]
            if not waiting.told:
                waiting.told = True
                self._log.error(
                    "{stream}: {count} committed transactions can not be merged now, and"
                    " are tried again: {why}",
                    stream="/".join(place),
                    count=len(waiting.keys),
                    why=why.text,
                )
            self._look_after(place, _AGAIN_SECONDS)

    def _stream(self, place: Place) -> Stream:
        scope, name = place
        return self._catalog.scopes[scope].streams[name]

    def _staged(self, keys: Sequence[Key]) -> list[tuple[Part, str]]:
        there = self._catalog.container.state.segments
        return [
            (part, name)
            for key in keys
            for part, name in pairs(self._catalog, key)
            if name in there
        ]

    def _ended(self, stream: Stream, staged: Sequence[tuple[Part, str]]) -> list[Part]:
        """The segments that must end, as several share the keys of something staged."""
        active = Cover(stream.active)
        there = self._catalog.container.state.segments
        ended = {
            each.id
            for part, source in staged
            if there[source].length and len(sharing := active.under(part)) > 1
            for each in sharing
        }
        return [part for part in active.parts if part.id in ended]

    def _check(self, stream: Stream, ended: Sequence[Part]) -> None:
        more = len(Cover(ended).ranges) + len(ended)
        check_count(more, len(stream.parts))
        self._catalog.check_room(more)

    def _merge(
        self,
        place: Place,
        staged: Sequence[tuple[Part, str]],
        submitter: Any,
        origin: Any,
        broken: Sequence[Part] = (),
    ) -> dict[int, int]:
        """Append what is staged to the stream, all of it in one change.

        *broken* segments end, too.  Gives the lengths then of what was appended to, by id.
        """
        (scope, name), catalog, stream = place, self._catalog, self._stream(place)

        def targets(parts: Sequence[Part]) -> list[tuple[str, str]]:
            return [
                (segment(scope, name, into.id), source)
                for into, (_, source) in zip(parts, staged, strict=True)
            ]

        def under(active: Cover) -> list[Part]:
            # Of several the first will do, where there are no events.
            return [active.under(part)[0] for part, _ in staged]

        gone = {part.id for part in [*self._ended(stream, staged), *broken]}
        ended = [part for part in stream.active if part.id in gone]
        if ended:
            self._check(stream, ended)
            scaling = Scaling(catalog, scope, name, submitter=submitter, origin=origin)
            again = scaling.replace(ended, Cover(ended).ranges)
            into = under(Cover(part for part in scaling.parts if part.is_active))
            scaling.merged = targets(into)
            scaling.replace(again, [(part.low, part.high) for part in ended])
            catalog.scale(scope, name, scaling)
        else:
            into, container = under(Cover(stream.active)), catalog.container
            merged = container.state.merge(targets(into), container.now)
            catalog.submit(merged, submitter, origin)
        there = catalog.container.state.segments
        return {part.id: there[segment(scope, name, part.id)].length for part in into}

    def _broken(self, place: Place) -> list[Part]:
        """Today's segments that were sealed or deleted by other means, and take nothing more."""
        found = [
            (part, self._catalog.segment_state(*place, part))
            for part in self._stream(place).active
        ]
        return [
            part
            for part, there in found
            if there is None or there.sealed or there.table is not None
        ]
