"""Requests about segments and tables, other than appends and reads, with their replies.

A request becomes a change to store, if any, and the reply that is due when the change is
durable, or a `SegmentError`, of which `error_reply` makes the reply.

No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import singledispatchmethod
from typing import Any, TypeAlias

from attrs import define, field

from gateway.protocols.pravega import errors, wire
from gateway.protocols.pravega import wire_segments as ws
from gateway.protocols.pravega import wire_tables as wt
from gateway.protocols.pravega.codec import Message
from gateway.protocols.pravega.errors import SegmentError
from gateway.protocols.pravega.frames import MAX_LENGTH
from gateway.protocols.pravega.limits import Limits
from gateway.protocols.pravega.segment import Segment
from gateway.protocols.pravega.segments import Change, Segments
from gateway.protocols.pravega.tokens import denied_reply
from gateway.sdk.interfaces import Refusal

#: A continuation token is the position to go on at.
_TOKEN_BYTES = 7

Answered: TypeAlias = tuple[Change | None, Message]


def subject(message: Any) -> str:
    """Name of the segment that a request is about; empty if it names none."""
    for attribute in ("segment", "target", "parent"):
        name: str | None = getattr(message, attribute, None)
        if name is not None:
            return name
    return ""


def error_reply(message: Any, why: SegmentError) -> Message:
    request, name = message.request_id, subject(message)
    match why:
        case errors.SegmentNotFound():
            return wire.NoSuchSegment(request, why.name)
        case errors.SegmentExists():
            return wire.SegmentAlreadyExists(request, name)
        case errors.Denied():
            return denied_reply(why, request)
        case errors.Sealed():
            return wire.SegmentIsSealed(request, name)
        case errors.BadOffset():
            offset = getattr(message, "offset", -1)
            return wire.SegmentIsTruncated(request, name, why.start, "", offset)
        case errors.TableNotEmpty():
            return wire.TableSegmentNotEmpty(request, name)
        case errors.KeyNotFound():
            return wire.TableKeyDoesNotExist(request, name)
        case errors.BadKeyVersion():
            return wire.TableKeyBadVersion(request, name)
        case errors.ConditionFailed():
            return ws.SegmentAttributeUpdated(request, success=False)
        case _:
            return wire.OperationUnsupported(request, type(message).__name__)


@define(eq=False, slots=False)
class Requests:
    """Answers the requests of one connection.

    *new_id* makes a unique id of 32 hex digits; *head* gives the first offset of a
    segment that can be read.
    """

    _state: Segments
    _limits: Limits
    _new_id: Callable[[], str]
    _head: Callable[[Segment], int]
    transients: dict[str, None] = field(factory=dict, init=False)
    """Segments of large events that this connection has begun and not merged."""
    now: int = field(default=0, init=False)
    """Milliseconds since the epoch; to be set before `answer`."""

    @singledispatchmethod
    def answer(self, message: Any) -> Answered:
        """The change to store, if any, and the reply; raises `SegmentError`, `Refusal`."""
        raise errors.Unsupported

    # -- segments ---------------------------------------------------------------------

    @answer.register
    def _(self, message: ws.CreateSegment) -> Answered:
        self._check_name(message.segment)
        change = self._state.create(
            message.segment,
            self.now,
            target_rate=message.target_rate,
            scale_type=message.scale_type,
            rollover_bytes=message.rollover_bytes,
        )
        return change, ws.SegmentCreated(message.request_id, message.segment)

    @answer.register
    def _(self, message: ws.CreateTransientSegment) -> Answered:
        self._state.data(message.parent)
        name = f"{message.parent}#transient.{self._new_id()}"
        self._check_name(name)
        change = self._state.create(name, self.now)
        self.transients[name] = None
        return change, ws.SegmentCreated(message.request_id, name)

    def _check_name(self, name: str) -> None:
        size = len(name.encode(errors="replace"))
        if not 0 < size <= self._limits.name_bytes:
            raise Refusal(
                f"segment name of {size} bytes", limit=self._limits.name_bytes
            )
        if name not in self._state.segments:  # else it is told that it is there
            self._limits.check_segments(len(self._state.segments))

    @answer.register
    def _(self, message: ws.SealSegment) -> Answered:
        change = self._state.seal(message.segment, self.now)
        return change, ws.SegmentSealed(message.request_id, message.segment)

    @answer.register
    def _(self, message: ws.DeleteSegment) -> Answered:
        self._state.data(message.segment)
        change = self._state.delete(message.segment, self.now)
        self.transients.pop(message.segment, None)
        return change, ws.SegmentDeleted(message.request_id, message.segment)

    @answer.register
    def _(self, message: ws.TruncateSegment) -> Answered:
        change = self._state.truncate(message.segment, message.offset, self.now)
        return change, ws.SegmentTruncated(message.request_id, message.segment)

    @answer.register
    def _(self, message: ws.GetStreamSegmentInfo) -> Answered:
        segment = self._state.data(message.segment)
        return None, ws.StreamSegmentInfo(
            message.request_id,
            message.segment,
            exists=True,
            sealed=segment.sealed,
            deleted=False,
            modified=segment.modified,
            write_offset=segment.length,
            start_offset=self._head(segment),
        )

    @answer.register
    def _(self, message: ws.GetSegmentAttribute) -> Answered:
        value = self._state.data(message.segment).attribute(message.attribute)
        return None, ws.SegmentAttribute(message.request_id, value)

    @answer.register
    def _(self, message: ws.UpdateSegmentAttribute) -> Answered:
        self._check_numbers(message.segment, (message.attribute,))
        change = self._state.attribute(
            message.segment,
            message.attribute,
            message.new,
            message.expected,
            self.now,
        )
        return change, ws.SegmentAttributeUpdated(message.request_id, success=True)

    def _check_numbers(self, name: str, attributes: Sequence[bytes]) -> None:
        number_of = self._state.data(name).number_of
        new = sum(number_of(each) == wire.NEVER for each in attributes)
        if new:
            self._limits.check_numbers(self._state.numbers + new)

    @answer.register
    def _(self, message: ws.LocateOffset) -> Answered:
        segment = self._state.data(message.segment)
        offset = segment.event_boundary(max(message.target, self._head(segment)))
        return None, ws.OffsetLocated(message.request_id, message.segment, offset)

    @answer.register
    def _(self, message: ws.MergeSegments) -> Answered:
        target, source = message.target, message.source
        self._check_numbers(target, [each.attribute for each in message.updates])
        change = None
        try:
            change = self._state.merge(
                [(target, source)], self.now, updates=message.updates
            )
        except errors.SegmentNotFound as why:
            if why.name != source or not self._state.was_merged(source):
                raise
        except errors.Sealed:
            if source not in self.transients or source not in self._state.segments:
                raise
            # Its client writes the event anew elsewhere, and may keep the connection.
            del self.transients[source]
            change = self._state.delete(source, self.now)
            return change, wire.SegmentIsSealed(message.request_id, target)
        self.transients.pop(source, None)
        length = self._state.data(target).length
        return change, ws.SegmentsMerged(message.request_id, target, source, length)

    # -- tables -----------------------------------------------------------------------

    @answer.register
    def _(self, message: wt.CreateTableSegment) -> Answered:
        self._check_name(message.segment)
        change = self._state.create_table(
            message.segment, self.now, key_bytes=message.key_bytes
        )
        return change, ws.SegmentCreated(message.request_id, message.segment)

    @answer.register
    def _(self, message: wt.DeleteTableSegment) -> Answered:
        self._state.table(message.segment)
        change = self._state.delete(
            message.segment, self.now, only_if_empty=message.must_be_empty
        )
        return change, ws.SegmentDeleted(message.request_id, message.segment)

    @answer.register
    def _(self, message: wt.GetTableSegmentInfo) -> Answered:
        table = self._state.table(message.segment)
        return None, wt.TableSegmentInfo(
            message.request_id,
            message.segment,
            0,
            table.position,
            len(table.entries),
            table.key_bytes,
        )

    @answer.register
    def _(self, message: wt.UpdateTableEntries) -> Answered:
        table = self._state.table(message.segment)
        more = table.growth(message.entries)
        size = self._state.table_bytes + more
        if more > 0 and size > self._limits.table_bytes:
            raise self._limits.over("table_bytes", f"{size} bytes in tables")
        first = table.position
        change = self._state.put(
            message.segment, message.entries, self.now, position=message.offset
        )
        versions = range(first, first + len(message.entries))
        return change, wt.TableEntriesUpdated(message.request_id, versions)

    @answer.register
    def _(self, message: wt.RemoveTableKeys) -> Answered:
        change = self._state.remove(
            message.segment, message.keys, self.now, position=message.offset
        )
        return change, wt.TableKeysRemoved(message.request_id, message.segment)

    @answer.register
    def _(self, message: wt.ReadTable) -> Answered:
        table = self._state.table(message.segment)
        entries = [table.get(each.key) for each in message.keys]
        size = sum(len(each.key) + len(each.value) for each in entries)
        if size > MAX_LENGTH:  # a few bytes ask for as much as they like
            raise Refusal(f"reply of {size} bytes", limit=MAX_LENGTH)
        return None, wt.TableRead(message.request_id, message.segment, entries)

    @answer.register
    def _(self, message: wt.ReadTableKeys | wt.ReadTableEntries) -> Answered:
        table = self._state.table(message.segment)
        if table.key_bytes:  # of a key-value table, which is read by ranges of keys
            found = table.between(message.from_key, message.to_key, message.count)
            last = table.position
        else:
            position = int.from_bytes(message.continuation[:_TOKEN_BYTES])
            found, last, _ = table.since(position, message.count)
        keys_only = isinstance(message, wt.ReadTableKeys)
        reply = wt.TableKeysRead if keys_only else wt.TableEntriesRead
        return None, reply(
            message.request_id, message.segment, found, last.to_bytes(_TOKEN_BYTES)
        )

    @answer.register
    def _(self, message: wt.ReadTableEntriesDelta) -> Answered:
        found, last, reached_end = self._state.table(message.segment).since(
            message.position, message.count
        )
        return None, wt.TableEntriesDeltaRead(
            message.request_id,
            message.segment,
            found,
            should_clear=False,
            reached_end=reached_end,
            last_position=last,
        )
