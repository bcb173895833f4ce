"""Throws bytes at Pravega's sessions, guided by what they reach (atheris).

    python tests/fuzz/fuzz_pravega.py -max_total_time=60

What must hold, for wire version 17 and for the 2016 draft: of any bytes, in any
slicing, comes nothing but changes, reads, replies and at most one `Refusal`; every
change decodes to as many rows as it counts; a restart from the changes, or from a
snapshot taken on the way and the changes, comes to the same state; what is buffered
stays within the limits.
"""

from collections.abc import Iterable, Iterator

import atheris
from _run import fuzz, sliced, vectors

with atheris.instrument_imports(include=["gateway.protocols.pravega"]):
    from gateway.protocols.pravega import draft_wire, snapshot
    from gateway.protocols.pravega import wire_segments as ws
    from gateway.protocols.pravega import wire_tables as wt
    from gateway.protocols.pravega.cache import TailCache
    from gateway.protocols.pravega.codec import Entry, encode
    from gateway.protocols.pravega.draft_session import DraftSession
    from gateway.protocols.pravega.limits import Limits
    from gateway.protocols.pravega.reads import Fetch, Read, answer_read
    from gateway.protocols.pravega.records import decode
    from gateway.protocols.pravega.segment import Written
    from gateway.protocols.pravega.segments import Change, Segments
    from gateway.protocols.pravega.session import Session, Step
    from gateway.protocols.pravega.wire import (
        NEVER,
        AppendBlock,
        AppendBlockEnd,
        ConditionalAppend,
        ConditionalBlockEnd,
        Hello,
        KeepAlive,
        SetupAppend,
    )
    from gateway.sdk.interfaces import Refusal

_LIMITS = Limits(
    message_bytes=2000, segments=20, transaction_bytes=1000, table_bytes=500,
    writers=5, name_bytes=100,
)  # fmt: skip
_W = bytes(range(16))
_SEGMENT = "sc/st/0.#epoch.0"
_TRANSACTION = f"{_SEGMENT}#transaction.0000000000000000000000000000000a"
_KEYS = [Entry(b"k", NEVER, b"v"), Entry(b"new", -1, b"w")]
_REQUESTS = [
    Hello(17, 5),
    KeepAlive(b"?"),
    AppendBlock(_W, bytes(7) + b"\1x" + b"\xff" * 4 + bytes(4)),
    AppendBlockEnd(_W, 9, b"", 1, 1, 3),
    AppendBlockEnd(_W[::-1], 9, bytes(7) + b"\1y", 1, 1, 4),
    ConditionalAppend(_W, 2, 9, b"event", 5),
    ConditionalBlockEnd(_W, 3, 22, b"bytes", 6),
    ws.ReadSegment(_SEGMENT, 0, 100, "", 7),
    ws.ReadSegment(_TRANSACTION, 0, 100, "", 8),
    ws.UpdateSegmentAttribute(9, _SEGMENT, _W, 5, 3),
    ws.GetSegmentAttribute(10, _SEGMENT, _W),
    ws.GetStreamSegmentInfo(11, _SEGMENT),
    ws.LocateOffset(12, _SEGMENT, 5),
    ws.CreateTransientSegment(13, _W, _SEGMENT),
    ws.CreateSegment(14, "sc/st/1", 0, 0),
    ws.SealSegment(16, "sc/st/1"),
    ws.DeleteSegment(17, "sc/st/1"),
    ws.TruncateSegment(18, _SEGMENT, 9),
    ws.MergeSegments(19, _SEGMENT, _TRANSACTION),
    wt.CreateTableSegment(21, "u"),
    wt.UpdateTableEntries(22, "t", "", _KEYS, NEVER),
    wt.ReadTable(23, "t", "", _KEYS),
    wt.ReadTableKeys(24, "t", "", 5, b""),
    wt.ReadTableEntries(25, "t", "", 5, b""),
    wt.ReadTableEntriesDelta(26, "t", "", 0, 5),
    wt.RemoveTableKeys(27, "t", "", _KEYS[:1], NEVER),
    wt.GetTableSegmentInfo(28, "t"),
    wt.DeleteTableSegment(29, "t", False),
]


class _Run:
    """A state and what happens to it; every change is durable at once."""

    def __init__(self) -> None:
        self.state = Segments()
        self.recent = TailCache(10_000)
        self.bodies: list[tuple[bytes, int]] = []
        self.lsn = 1
        self.snapshot = b""
        state = self.state
        self.keep(state.create(_SEGMENT, 0))
        self.keep(state.create(_TRANSACTION, 0))
        self.keep(state.create_table("t", 0))
        self.keep(state.put("t", [Entry(b"k", NEVER, b"v")], 0))

    def keep(self, change: Change) -> None:
        rows = decode(change.body)
        assert rows.count == len(rows.seqs or ()) == change.count
        self.bodies.append((change.body, self.lsn))
        for what in self.state.stored(change.body, self.lsn):
            if isinstance(what, Written):
                self.recent.add(what.segment.name, what.offset, what.data)
        self.lsn += change.count
        if len(self.bodies) == 7:
            self.snapshot = snapshot.save(self.state)

    def take(self, session: Session | DraftSession, steps: Iterable[Step]) -> None:
        for step in steps:
            if isinstance(step, Change):
                self.keep(step)
            elif isinstance(step, Read):
                answer = answer_read(self.state, self.recent, step, waited=False)
                if answer is not None and not isinstance(answer, Fetch):
                    assert session.answer(step, answer)
            session.due()
        assert session.held_bytes < 3 * _LIMITS.message_bytes

    def check(self) -> None:
        """A restart finds all of it."""
        starts = [Segments()]
        if self.snapshot:
            starts.append(snapshot.restore(self.snapshot))
        for again in starts:
            for body, lsn in self.bodies:
                list(again.replay(body, lsn, 0))
            assert _facts(again) == _facts(self.state)


def _facts(state: Segments) -> object:
    return (
        state.number,
        state.staged_bytes,
        {
            name: (
                segment.start,
                segment.length,
                segment.readable,
                segment.closed,
                segment.events,
                segment.writers,
                segment.attributes or None,
                segment.table and segment.table.entries,
            )
            for name, segment in state.segments.items()
        },
    )


def one(data: bytes) -> None:
    """One run.  The first byte says which version of the protocol, and how to slice."""
    if not data:
        return
    how, stream = data[0], data[1:]
    run = _Run()
    session: Session | DraftSession
    if how & 0x80:
        session = DraftSession(run.state, _LIMITS, lambda *_: None)
    else:
        ids = iter(range(1 << 30))
        session = Session(
            run.state,
            _LIMITS,
            lambda: f"{next(ids):032x}",
            lambda *_: None,
            lambda segment: segment.start,
        )
        begin = [SetupAppend(1, _W, _SEGMENT), SetupAppend(2, _W[::-1], _TRANSACTION)]
        run.take(session, session.received(b"".join(map(encode, begin)), 1))
    try:
        at = 0
        for piece in sliced(stream, how & 0x7F):
            run.take(session, session.received(piece, at))
            at += len(piece)
    except Refusal:
        pass
    for change in session.closed(0):
        run.keep(change)
    assert not session.replies_pending
    run.check()


def seeds() -> Iterator[bytes]:
    """The vectors, and every request; whole and byte by byte."""
    streams = [(0, bytes.fromhex(each["hex"])) for each in vectors("pravega-wire")]
    streams += [(0, encode(message)) for message in _REQUESTS]
    streams.append((0, b"".join(map(encode, _REQUESTS))))
    for each in vectors("pravega-draft"):
        sent = b"".join(bytes.fromhex(step["send"]) for step in each["steps"])
        streams.append((0x80, sent))
    streams.append((0x80, draft_wire.setup_append(_W, "new")))
    for version, stream in streams:
        for step in (0, 1):
            yield bytes([version | step]) + stream


if __name__ == "__main__":
    fuzz(one, seeds())
