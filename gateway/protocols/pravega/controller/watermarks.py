"""Watermarks: what time it is at which place of a stream, for readers' time windows.

Writers note times with the places up to which they have written (`noteTime`).  Every ten
seconds a mark is appended to the stream `_MARK<name>`, which Java's readers read by
themselves:

    lower, upper    the earliest and the latest time of all writers; the lower one grows
    cut             what is behind it was written after `lower` by all of them

A writer counts until it has noted nothing for the stream's timeout, or is removed and
overtaken.  What writers noted is in memory: after a restart no mark is made until all that
still write have noted again, or their timeout is over.

A mark is Java's: each object `00 | version 0 | one revision 01 | its id 00 | length i32`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping

from attrs import define, field

from gateway.protocols.pravega.controller import messages
from gateway.protocols.pravega.controller.catalog import Catalog
from gateway.protocols.pravega.controller.epochs import Cover, Part, in_epoch
from gateway.protocols.pravega.controller.grpc import Code, over_limit
from gateway.protocols.pravega.controller.kept_records import Stream
from gateway.protocols.pravega.controller.messages import Message
from gateway.protocols.pravega.controller.methods import (
    SUCCESS,
    Caller,
    Methods,
    status,
)
from gateway.protocols.pravega.controller.names import MARK
from gateway.protocols.pravega.controller.rounds import Rounds
from gateway.protocols.pravega.events import begins
from gateway.protocols.pravega.modified_utf8 import encode as utf8
from gateway.protocols.pravega.segment import Segment

_BAD_TIME, _BAD_POSITION, _INTERNAL = 1, 2, 3
_UNKNOWN_WRITER, _NO_STREAM = 1, 2

_PAUSE_SECONDS = 10.0
"""Seconds between two marks of a stream."""
_TIMEOUT_SECONDS = 120.0
"""Seconds until a writer times out, where its stream's configuration says none."""
_MOST_OFFSETS = 200_000
"""How many offsets writers may have noted, all together."""
_NAME_CHARACTERS = 255
"""The most characters of a writer's name."""
_WRITER = b"gateway's marks."
"""The writer id with which marks are appended."""
_MARK_BYTES = 256 << 10
"""The most bytes of marks kept of a stream: hours, of one with few segments."""
_HEADER = 8
"""The size of an event's header."""


@define(eq=False)
class _Writer:
    time: int
    position: Mapping[int, int]
    """Offsets by segment id."""
    noted: float
    """When that was, in seconds."""
    removed: bool = False


@define(eq=False)
class _Marked:
    stream: Stream
    writers: dict[str, _Writer] = field(factory=dict)
    lower: int | None = None
    """The lower bound in its last mark."""
    cut: Mapping[int, int] = field(factory=dict)
    is_read: bool = False
    """The last mark was looked for."""


@define(eq=False, slots=False)
class Watermarks:
    """The methods by which writers tell the time, and what makes marks of it."""

    methods = Methods()

    _catalog: Catalog

    def __attrs_post_init__(self) -> None:
        container = self._catalog.container
        self._clock = container.clock
        self.rounds = Rounds(container, "Watermarks", self._steps, _PAUSE_SECONDS)
        self._streams: dict[tuple[str, str], _Marked] = {}
        self._noted = 0
        self._begun = 0.0
        self._at_start = 0
        """Number of the last change when it began."""

    def start(self) -> None:
        """Remember what there is, and make the first round."""
        self._begun = self._clock.seconds()
        self._at_start = self._catalog.container.state.number
        self.rounds.start()

    # -- what writers say --------------------------------------------------------------

    @methods(messages.TimestampFromWriter, "noteTimestampFromWriter")
    def note(self, request: messages.TimestampFromWriter, caller: Caller) -> Message:
        """A writer has written all before a time, up to a position."""
        info, cut = request.position.stream_info, request.position.cut
        place = info.scope, info.stream
        # Java says -1 of a segment that it has not written to yet.
        position = {id_: max(0, offset) for id_, offset in cut.items()}
        return status(self.noted(place, request.writer, request.timestamp, position))

    def noted(
        self,
        place: tuple[str, str],
        writer: str,
        time: int,
        position: Mapping[int, int],
    ) -> int:
        """Take a writer's or transaction's note; the status.  Raises `Failed` without room."""
        stream = self._catalog.stream(*place)
        if stream is None or stream.sealed:
            return _INTERNAL
        known = {part.id for part in stream.parts}
        if not position or not known.issuperset(position):
            return _BAD_POSITION
        if len(writer) > _NAME_CHARACTERS:
            what = f"a writer's name of {len(writer)} characters"
            raise over_limit(what, _NAME_CHARACTERS, code=Code.INVALID_ARGUMENT)
        old = self._streams.get(place)
        if old is not None and old.stream is not stream:
            self._forget(place, list(old.writers))  # it was deleted, and made again
        marked = self._streams.setdefault(place, _Marked(stream))
        before = marked.writers.get(writer)
        if before is not None:
            if time < before.time:
                return _BAD_TIME
            if any(
                position.get(id_, offset) < offset
                for id_, offset in before.position.items()
            ):
                return _BAD_POSITION
        count = self._noted + len(position) - (len(before.position) if before else 0)
        if count > _MOST_OFFSETS:
            raise over_limit(f"{count} offsets noted by writers", _MOST_OFFSETS)
        self._noted = count
        marked.writers[writer] = _Writer(time, position, self._clock.seconds())
        return SUCCESS

    @methods(messages.RemoveWriterRequest, "removeWriter")
    def remove(self, request: messages.RemoveWriterRequest, caller: Caller) -> Message:
        """A writer is closed; what it noted last counts until it is overtaken."""
        info = request.stream_info
        if self._catalog.stream(info.scope, info.stream) is None:
            return status(_NO_STREAM)
        marked = self._streams.get((info.scope, info.stream))
        if marked is None or request.writer not in marked.writers:
            return status(_UNKNOWN_WRITER)
        marked.writers[request.writer].removed = True
        return status(SUCCESS)

    # -- marks -------------------------------------------------------------------------

    def _steps(self) -> Iterator[int]:
        for (scope, name), marked in list(self._streams.items()):
            stream = self._catalog.stream(scope, name)
            if stream is not marked.stream or stream.sealed:
                self._forget((scope, name), list(marked.writers))
                continue
            with self.rounds.telling(f"{scope}/{name}"):
                self._mark(scope, name, stream, marked)
            yield 1 + sum(len(each.position) for each in marked.writers.values())

    def _forget(self, of: tuple[str, str], names: Iterable[str]) -> None:
        marked = self._streams[of]
        for name in names:
            self._noted -= len(marked.writers.pop(name).position)
        if not marked.writers:
            del self._streams[of]

    def _mark(self, scope: str, name: str, stream: Stream, marked: _Marked) -> None:
        said = messages.decode(messages.StreamConfig, stream.config)
        timeout = said.timestamp_timeout / 1000 or _TIMEOUT_SECONDS
        since = self._clock.seconds() - timeout
        if self._begun > since and self._is_old(scope, name, stream):
            return  # others may write that have not noted again
        if not marked.is_read:
            marked.is_read = True
            kept = self._segment(scope, name).kept
            marks = bytes(kept.data) if kept is not None else b""
            if (last := max(begins(marks), default=None)) is not None:
                marked.lower, marked.cut = decoded(marks[last + _HEADER :])
        lower = marked.lower
        gone = [
            each
            for each, found in marked.writers.items()
            if (
                lower is not None and found.time <= lower
                if found.removed
                else found.noted < since
            )
        ]
        self._forget((scope, name), gone)
        writers = marked.writers.values()
        if not writers:
            return
        least = min(each.time for each in writers)
        if lower is not None and least <= lower:
            return
        cut = _cut(stream.parts, [marked.cut, *(each.position for each in writers)])
        parts = {part: cut[part.id] for part in stream.parts if part.id in cut}
        most = max(each.time for each in writers)
        if self._append(scope, name, encoded(least, most, parts, scope, name)):
            marked.lower, marked.cut = least, cut

    def _is_old(self, scope: str, name: str, stream: Stream) -> bool:
        found = self._catalog.segment_state(scope, name, stream.parts[0])
        return found is None or found.born <= self._at_start

    def _segment(self, scope: str, name: str) -> Segment:
        catalog = self._catalog
        if catalog.stream(scope, MARK + name) is None:
            catalog.add_internal(scope, MARK + name)
        stream = catalog.scopes[scope].streams[MARK + name]
        [found] = catalog.segments(scope, MARK + name, stream)
        return catalog.container.state.data(found)

    def _append(self, scope: str, name: str, mark: bytes) -> bool:
        """Append a mark; False if there is no room."""
        catalog, state = self._catalog, self._catalog.container.state
        segment = self._segment(scope, name)
        data = bytes(4) + len(mark).to_bytes(4) + mark
        kept = bytes(segment.kept.data) if segment.kept is not None else b""
        if len(kept) + len(data) > _MARK_BYTES:
            size = len(kept)
            # All of them go where the last one is more than half.
            begin = next((at for at in begins(kept) if at >= size // 2), size)
            offset = segment.length - size + begin
            catalog.submit(state.truncate(segment.name, offset, catalog.container.now))
        if len(data) > catalog.internal_room:
            return False
        number = segment.number_of(_WRITER)
        change = state.append(
            segment.name,
            _WRITER,
            max(number, 0) + 1,
            data,
            catalog.container.now,
            claimed=1,
            last=number,
        )
        catalog.submit(change)
        return True


def _cut(parts: list[Part], positions: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """The first cut that is not before any of these positions.

    Keys of which no position tells anything begin in the newest epoch of those told.
    """
    by_id = {part.id: part for part in parts}
    found: dict[Part, int] = {}

    def reach(part: Part, offset: int) -> None:
        for each in list(found):
            if each.low < part.high and part.low < each.high:
                del found[each]
        found[part] = offset

    furthest: dict[Part, int] = {}
    for position in positions:
        for id_, offset in position.items():
            if (part := by_id.get(id_)) is not None:
                furthest[part] = max(offset, furthest.get(part, offset))
    if Cover(furthest).is_whole:  # it is, but for a moment behind a scaling
        return {part.id: offset for part, offset in furthest.items()}
    for part in sorted(furthest, key=lambda each: each.epoch):
        reach(part, furthest[part])
    while not (cover := Cover(found)).is_whole:
        newest = in_epoch(parts, max(part.epoch for part in found))
        missing = [part for part in newest if not cover.covers(part)]
        if not missing:
            raise ValueError("an epoch of the stream is forgotten")
        for part in missing:
            reach(part, 0)
    return {part.id: offset for part, offset in found.items()}


# -- the bytes of marks ------------------------------------------------------------------

_OBJECT = struct.Struct(">BBBBI")
_TIMES = struct.Struct(">qq")
_RANGE = struct.Struct(">qdd")
_OFFSET = struct.Struct(">q")
_ENTRY_BYTES = _OBJECT.size + _RANGE.size + _OFFSET.size


def _object(data: bytes) -> bytes:
    return _OBJECT.pack(0, 0, 1, 0, len(data)) + data


def encoded(
    lower: int, upper: int, cut: Mapping[Part, int], scope: str, stream: str
) -> bytes:
    entries = b"".join(
        _object(_RANGE.pack(part.id, part.low, part.high)) + _OFFSET.pack(offset)
        for part, offset in cut.items()
    )
    names = utf8(scope) + utf8(stream)
    count = _compact(len(cut))
    return _object(_TIMES.pack(lower, upper) + count + entries + names)


def decoded(mark: bytes) -> tuple[int, dict[int, int]]:
    """The lower time of a mark of ours, and its cut."""
    lower, _ = _TIMES.unpack_from(mark, _OBJECT.size)
    at = _OBJECT.size + _TIMES.size
    for size, bits in ((1, 7), (2, 14), (4, 30)):
        count = int.from_bytes(mark[at : at + size]) & ((1 << bits) - 1)
        if _compact(count) == mark[at : at + size]:
            break
    cut: dict[int, int] = {}
    for entry in range(at + size, at + size + count * _ENTRY_BYTES, _ENTRY_BYTES):
        id_, _, _ = _RANGE.unpack_from(mark, entry + _OBJECT.size)
        [cut[id_]] = _OFFSET.unpack_from(mark, entry + _OBJECT.size + _RANGE.size)
    return lower, cut


def _compact(number: int) -> bytes:
    """A number in one, two or four bytes, whose first bits say in how many."""
    if number < 1 << 7:
        return number.to_bytes(1)
    if number < 1 << 14:
        return (number | 0b10 << 14).to_bytes(2)
    return (number | 0b11 << 30).to_bytes(4)
