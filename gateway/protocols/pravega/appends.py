"""Appends of one connection: its writers, their append blocks, duplicate detection.

    SetupAppend → AppendSetup(last number)
    AppendBlock, AppendBlockEnd → DataAppended        (events | part of one | padding)
    AppendBlockEnd              → DataAppended        (all events are in it)
    ConditionalAppend, ConditionalBlockEnd → DataAppended | ConditionalCheckFailed

An append is stored whole or not at all.  One of more than 32,768 events is stored in parts
of so many, as if each had come as an append.  One whose event number is not above the
writer's stored number is acknowledged again, and not stored again.  If another
connection has changed the stored number, `InvalidEventNumber` closes this one.

No I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from attrs import define

from gateway.protocols.pravega.codec import Message, encode
from gateway.protocols.pravega.errors import (
    ConditionFailed,
    Denied,
    Fenced,
    Need,
    Sealed,
    SegmentNotFound,
    TooLarge,
    Unsupported,
    of_writer,
)
from gateway.protocols.pravega.events import MOST_EVENTS, STEP_COST, EventScan
from gateway.protocols.pravega.limits import Limits
from gateway.protocols.pravega.replies import Replies, Writer
from gateway.protocols.pravega.segment import is_transient
from gateway.protocols.pravega.segments import Change, Segments
from gateway.protocols.pravega.tokens import TokenCheck, check_token, denied_reply
from gateway.protocols.pravega.wire import (
    NEVER,
    AppendBlock,
    AppendBlockEnd,
    AppendSetup,
    ConditionalAppend,
    ConditionalBlockEnd,
    ConditionalCheckFailed,
    DataAppended,
    InvalidEventNumber,
    NoSuchSegment,
    OperationUnsupported,
    SegmentIsSealed,
    SetupAppend,
)
from gateway.sdk.interfaces import Refusal

_PADDING, _PARTIAL = -1, -2

LARGE = 1 << 16
"""A message of more bytes is taken in several steps, of which each may end the turn."""


@dataclass(slots=True)
class _Rest:
    writer: Writer
    data: bytes | memoryview
    events: int
    """How many the rest claims to have."""
    last_event: int
    """The number of the last one."""
    request_id: int
    at: int = 0
    """Where in `data` the rest begins."""
    scan: EventScan | None = None
    """Looks for the end of the next part."""


@define(eq=False, slots=False)
class Appends:
    """Takes the append commands of one connection, and queues their replies."""

    #: The commands that `take` accepts.
    MESSAGES = (
        AppendBlock, AppendBlockEnd, SetupAppend, ConditionalAppend, ConditionalBlockEnd,
    )  # fmt: skip

    _state: Segments
    _limits: Limits
    _check: TokenCheck

    def __attrs_post_init__(self) -> None:
        self._writers: dict[bytes, Writer] = {}
        self._block: AppendBlock | None = None
        self._rest: _Rest | None = None
        self.replies = Replies(self._state, self._writers)
        self.cost = 0.0
        """The cost of `go_on` for a turn, beside its change; its user resets it to 0."""
        self.reports: list[Refusal] = []
        """Refusals that a reply told, for the log; its user takes them out."""
        self.now = 0
        """Milliseconds since the epoch; to be set before `take`."""

    @property
    def held_bytes(self) -> int:
        """Size of an append block whose end has not come, or that is not stored yet."""
        held = 0 if self._block is None else len(self._block.data)
        return held if self._rest is None else held + len(self._rest.data)

    @property
    def begun(self) -> str:
        """The block whose end has not come, for the log; empty if there is none."""
        block = self._block
        if block is None:
            return ""
        what = self.named("append block", block.writer)
        return f"{what}: {len(block.data)} bytes came, and not its end"

    def named(self, what: str, writer: bytes) -> str:
        """*what* with whose it is, if that is a writer which is set up."""
        found = self._writers.get(writer)
        return what if found is None else of_writer(what, writer, found.segment)

    @property
    def unfinished(self) -> bool:
        """The last append has more to store: `go_on`."""
        return self._rest is not None

    def discard(self) -> None:
        """Forget an append block whose end has not come, and what is not stored yet."""
        self._block = self._rest = None

    def take(self, message: Message) -> Change | None:
        """Take one of `MESSAGES`; give the change to store, if there is one.

        Raises `SegmentNotFound` and `Unsupported` for a `SetupAppend`, and `Refusal`.
        """
        if isinstance(message, AppendBlockEnd):
            return self._end(message)
        if self._block is not None:
            raise Refusal(f"{type(message).__name__} inside an append block")
        match message:
            case AppendBlock():
                self._writer(message.writer)
                self._block = message
            case SetupAppend():
                self._setup(message)
            case ConditionalAppend():
                head = len(message.event).to_bytes(8)  # type 0, then the length
                return self._append_if_at(message, head + message.event)
            case ConditionalBlockEnd():
                return self._append_if_at(message, message.data)
        return None

    def _setup(self, message: SetupAppend) -> None:
        last = self._state.data(message.segment).number_of(message.writer)
        if len(self._writers) >= self._limits.writers:
            self._forget_ended()
        self._limits.check_writers(len(self._writers))
        self._writers[message.writer] = Writer(
            message.writer, message.segment, last, last, token=message.token
        )
        self.replies.add(
            AppendSetup(message.request_id, message.segment, message.writer, last)
        )

    def _forget_ended(self) -> None:
        """Forget writers whose segments are gone, as those of transactions are in the end."""
        for writer in list(self._writers.values()):
            if writer.segment not in self._state.segments:
                del self._writers[writer.id]

    def _end(self, message: AppendBlockEnd) -> Change | None:
        block, self._block = self._block, None
        data = message.data if block is None else _joined_events(block, message)
        if message.events <= 0:
            raise Refusal(f"append of {message.events} events")
        writer, request_id = self._writer(message.writer), message.request_id
        if len(data) > LARGE:
            self._rest = _Rest(
                writer, data, message.events, message.last_event, request_id
            )
            return None
        return self._append(
            writer, message.last_event, data, request_id, events=message.events
        )

    def go_on(self) -> Change | None:
        """Look for the end of the next part of a large append; store it once it is found.

        What is staged is counted before and after that, as all of it is by the merge.
        """
        rest = self._rest
        assert rest is not None, "an append is unfinished"
        if not self._state.count_staged(rest.writer.segment):
            self.cost += STEP_COST
            return None
        if rest.at == len(rest.data):
            self._rest = None
            return None
        scan = rest.scan = rest.scan or EventScan(rest.data, rest.at)
        done = scan.step()
        self.cost += scan.cost
        if not done:
            return None
        found, rest.scan = scan.found, None
        rows, end = found or (1, len(rest.data))
        data, events = rest.data[rest.at : end], rows
        if end == len(rest.data) or rest.events <= MOST_EVENTS:
            if end < len(rest.data):
                rows = 1
            end = len(rest.data)
            data, events = rest.data[rest.at :], rest.events
        rest.at, rest.events = end, rest.events - events
        change = self._append(
            rest.writer,
            rest.last_event - rest.events,
            data,
            rest.request_id,
            events=events,
            rows=rows,
        )
        if rest.writer.failed:
            self._rest = None
        return change

    def _append_if_at(
        self, message: ConditionalAppend | ConditionalBlockEnd, data: bytes
    ) -> Change | None:
        writer = self._writer(message.writer)
        if len(data) > LARGE:
            self._rest = _Rest(writer, b"", 0, 0, 0)  # nothing is left but to count
        return self._append(
            writer,
            message.event_number,
            data,
            message.request_id,
            offset=message.expected_offset,
            revisioned=isinstance(message, ConditionalAppend),
        )

    def _writer(self, writer: bytes) -> Writer:
        found = self._writers.get(writer)
        if found is None:
            raise Refusal("append of a writer that is not set up")
        return found

    def _append(
        self,
        writer: Writer,
        number: int,
        data: bytes | memoryview,
        request_id: int,
        *,
        events: int = 1,
        offset: int | None = None,
        rows: int | None = None,
        revisioned: bool = False,
    ) -> Change | None:
        if number < writer.sent:
            raise Refusal(f"event number {number} after {writer.sent}")
        self._check_writer(writer, request_id)
        before, writer.sent = writer.sent, number
        if writer.failed:
            self._refuse(writer, number, request_id)
            return None
        if number <= writer.last and self._is_current(writer):
            self._acknowledge_again(writer, number, events, request_id)
            return None
        try:
            change = self._store(
                writer, number, data, events, offset, rows, revisioned=revisioned
            )
        except Fenced:
            raise self._fenced(writer, number, request_id) from None
        except ConditionFailed:
            writer.sent = before
            self.replies.add(ConditionalCheckFailed(writer.id, number, request_id))
            return None
        except (Sealed, SegmentNotFound, Unsupported):
            self._refuse(writer, number, request_id)
            return None
        except TooLarge as why:
            # What came of the event is deleted; its writer is told, and does not retry.
            gone = self._state.delete(writer.segment, self.now)
            told = OperationUnsupported(request_id, str(why), str(why))
            self.replies.add(told, writer)
            self.reports.append(why.refusal)
            writer.failed = True
            return gone
        writer.last = number
        length = self._state.find(writer.segment).length
        conditional = offset is not None
        self.replies.acknowledge(writer, request_id, length, alone=conditional)
        return change

    def _fenced(self, writer: Writer, number: int, request_id: int) -> Refusal:
        """The refusal of a writer whose stored number is not the one that it left."""
        who, key = f"the writer id {writer.id.hex()}", None
        rule = f"another connection writes with {who}"
        if self._state.find(writer.segment).number_of(writer.id) == NEVER:
            rule = f"{who} was silent for so long that it is forgotten, or its segment is new"
            key = "options.writer_retention"
        reply = encode(InvalidEventNumber(writer.id, request_id, "", number))
        return Refusal(rule, key=key, reply=reply)

    def _check_writer(self, writer: Writer, request_id: int) -> None:
        """Check the token again: it may have expired since its setup, or the rules have changed."""
        try:
            check_token(
                self._check, writer.token, writer.segment, Need.WRITE, request_id
            )
        except Denied as why:
            rule, key = why.refusal.rule, why.refusal.key
            reply = encode(denied_reply(why, request_id))
            raise Refusal(rule, key=key, reply=reply) from None

    def _store(
        self,
        writer: Writer,
        number: int,
        data: bytes | memoryview,
        events: int,
        offset: int | None,
        rows: int | None,
        *,
        revisioned: bool,
    ) -> Change:
        state, limits, size = self._state, self._limits, len(data)
        segment = state.data(writer.segment)
        if writer.last == NEVER:
            limits.check_numbers(state.numbers + 1)
        if segment.staged is not None:
            self._check_large(segment.name, len(segment.staged.data) + size)
            held = state.staged_bytes + size
            if held > limits.transaction_bytes:
                what = f"{held} bytes in open transactions and large events"
                raise limits.over("transaction_bytes", what)
        if segment.kept is not None or state.becomes_internal(
            segment, revisioned=revisioned
        ):
            own = 0 if segment.kept is None else len(segment.kept.data)
            limits.check_internal(segment.name, own, state.kept_bytes, size)
        else:
            total = state.retained_bytes + state.staged_bytes + size
            limits.check_retained(segment.name, total)
        new = _unstored(data, writer.last, number, events)
        return state.append(
            writer.segment,
            writer.id,
            number,
            new,
            self.now,
            claimed=events,
            last=writer.last,
            offset=offset,
            rows=rows if len(new) == size else None,
            revisioned=revisioned,
        )

    def _check_large(self, name: str, size: int) -> None:
        """Raise `TooLarge` if one large event would be larger than all may be."""
        if is_transient(name) and size > self._limits.transaction_bytes:
            what = f"a large event of {size} bytes or more"
            raise TooLarge(self._limits.over("transaction_bytes", what))

    def _is_current(self, writer: Writer) -> bool:
        segment = self._state.segments.get(writer.segment)
        return segment is not None and segment.number_of(writer.id) == writer.last

    def _acknowledge_again(
        self, writer: Writer, number: int, events: int, request_id: int
    ) -> None:
        """Acknowledge once more what is stored already."""
        length = self._state.find(writer.segment).length
        previous = max(number - events, NEVER)
        self.replies.add(DataAppended(writer.id, number, previous, request_id, length))

    def _refuse(self, writer: Writer, number: int, request_id: int) -> None:
        """Refuse an append to a sealed or deleted segment, also others before that is sent.

        A table may have the name of one that was deleted.
        """
        name = writer.segment
        found = self._state.segments.get(name)
        sealed = found is not None and found.sealed
        why = SegmentIsSealed if sealed else NoSuchSegment
        self.replies.add(why(request_id, name, "", number), writer)
        writer.failed = True


def _joined_events(block: AppendBlock, end: AppendBlockEnd) -> bytes:
    """The events of a block; the last one goes on in its `AppendBlockEnd`."""
    if end.writer != block.writer:
        raise Refusal("end of another writer's block")
    whole, data = end.whole_bytes, block.data
    if not 0 <= whole <= len(data):
        raise Refusal(f"{whole} bytes of events in a block of {len(data)}")
    if whole == len(data):
        return data + end.data if end.data else data
    kind = int.from_bytes(data[whole : whole + 4], signed=True)
    size = int.from_bytes(data[whole + 4 : whole + 8])
    if size != len(data) - whole - 8 or kind not in (_PADDING, _PARTIAL):
        raise Refusal(
            "append block ends in neither an event, a part of one nor padding"
        )
    if kind == _PADDING:
        if end.data:
            raise Refusal("data behind the padding of an append block")
        return data[:whole]
    return b"".join((data[:whole], data[whole + 8 :], end.data))


def _unstored(
    data: bytes | memoryview, last: int, number: int, events: int
) -> bytes | memoryview:
    """The events of an append after those that are stored already, if it has any.

    A producer that was started again may form other blocks than before.  Inside of a
    block its events are numbered without gaps.
    """
    skip = events - (number - last) if last != NEVER else 0
    at = 0
    for _ in range(skip):
        if len(data) - at < 8 or any(data[at : at + 4]):
            raise Refusal("append that is stored in part, and not of whole events")
        at += 8 + int.from_bytes(data[at + 4 : at + 8])
    if skip > 0 and at >= len(data):
        raise Refusal(f"append of {events} events that has only those that are stored")
    return data[at:]
