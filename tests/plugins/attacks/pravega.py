"""Attacks on Pravega's segment store, wire version 17."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from gateway.protocols.pravega import wire as w
from gateway.protocols.pravega import wire_segments as s
from gateway.protocols.pravega import wire_tables as t
from gateway.protocols.pravega.codec import Entry, encode
from gateway.protocols.pravega.frames import frame
from gateway_testkit.attacks import READ, Attack, Units, repeated

KiB, MiB = 1 << 10, 1 << 20
_W = b"w" * 16
_LONG = "n" * 1024
_HELLO = w.Hello(w.VERSION, w.OLDEST)


def _said(*messages: Any) -> bytes:
    return b"".join(map(encode, messages))


def _segment(name: str) -> tuple[bytes, ...]:
    """Hello, a segment, a writer."""
    made = s.CreateSegment(1, name, 0, 0)
    return _said(_HELLO, made), _said(w.SetupAppend(2, _W, name))


_NAME = "s/s/0.#epoch.0"
_OPENING = _segment(_NAME)
_TABLE = (_said(_HELLO, t.CreateTableSegment(1, "t")),)


def _attack(name: str, units: Units, **more: Any) -> Attack:
    given = {
        "opening": _OPENING,
        "most": 2 * MiB if more.get("endless") else READ,
    } | more
    return Attack("pravega", f"v17, {name}", units, **given)


def _numbered(make: Callable[[int], Any]) -> Units:
    def units() -> Iterator[bytes]:
        return (encode(make(number)) for number in itertools.count(1))

    return units


def _append(number: int, data: bytes, events: int = 1) -> Any:
    return w.AppendBlockEnd(_W, 0, data, events, number * events, 9)


def _event(data: bytes = b"") -> bytes:
    return bytes(4) + len(data).to_bytes(4) + data


def _blocks(data: bytes, events: int) -> Units:
    """Append blocks with the same data."""

    def units() -> Iterator[bytes]:
        for number in itertools.count(1):
            end = w.AppendBlockEnd(_W, len(data), b"", events, number * events, 9)
            yield _said(w.AppendBlock(_W, data), end)

    return units


def _pairs() -> Iterator[bytes]:
    for number in itertools.count():
        name = f"p{number}"
        yield _said(
            s.CreateSegment(1, name, 0, 0),
            s.SealSegment(1, name),
            s.DeleteSegment(1, name),
        )


def _entries(number: int) -> Any:
    return t.UpdateTableEntries(
        number, "t", "", [Entry(number.to_bytes(8), w.NEVER, b"")]
    )


def _message(name: str, message: Any, **more: Any) -> Attack:
    return _attack(name, repeated(encode(message)), **more)


def _endless(name: str, message: Any, **more: Any) -> Attack:
    return _message(name, message, endless=True, **more)


def _of_table(name: str, message: Any, **more: Any) -> Attack:
    return _endless(name, message, opening=_TABLE, **more)


ATTACKS = [
    _attack("appends of an empty event", _numbered(lambda n: _append(n, _event()))),
    _attack(
        "appends to a segment with a long name",
        _numbered(lambda n: _append(n, _event())),
        opening=_segment(_LONG),
    ),
    _attack(
        "appends to a transaction with a long name",
        _numbered(lambda n: _append(n, _event())),
        opening=_segment(f"{_LONG[:960]}#transaction.{'0' * 32}"),
    ),
    _attack("appends of no event", _numbered(lambda n: _append(n, b""))),
    _attack("appends that are no events", _numbered(lambda n: _append(n, b"x"))),
    _endless("appends that are stored", _append(0, _event())),
    _attack("blocks of 64 empty events", _blocks(_event() * 64, 64)),
    _attack(
        "blocks of 1 MiB of empty events",
        _blocks(_event() * (128 * KiB), 1),
        most=4 * MiB,
    ),
    _attack(
        "blocks of 16 MB of empty events",
        _blocks(_event() * ((1 << 21) - 16), 1),
        most=16 * MiB,
    ),
    _attack(
        "blocks of 16 MB of 2 000 000 empty events",
        _blocks(_event() * 2_000_000, 2_000_000),
        most=16 * MiB,
    ),
    _attack(
        "blocks of 16 MB of events of 2 sizes",
        _blocks((_event() + _event(b"1")) * 980_000, 1_960_000),
        most=16 * MiB,
    ),
    _attack(
        "conditional appends",
        _numbered(lambda n: w.ConditionalAppend(_W, n, 8 * (n - 1), b"", 9)),
    ),
    _endless("conditional appends that fail", w.ConditionalAppend(_W, 1, 5, b"", 9)),
    _attack(
        "conditional block ends",
        _numbered(lambda n: w.ConditionalBlockEnd(_W, n, n - 1, b"x", 9)),
    ),
    _endless("Hellos", _HELLO),
    _endless("KeepAlives", w.KeepAlive()),
    _attack("empty frames", repeated(frame(100)), endless=True),
    _endless("SetupAppends", w.SetupAppend(1, _W, _NAME)),
    _attack(
        "SetupAppends, a writer each",
        _numbered(lambda n: w.SetupAppend(1, n.to_bytes(16), _NAME)),
        most=MiB,
        endless=True,
    ),
    _endless("SetupAppends of no segment", w.SetupAppend(1, _W, "")),
    _attack("CreateSegments", _numbered(lambda n: s.CreateSegment(1, f"t{n}", 0, 0))),
    _endless("CreateSegments of one", s.CreateSegment(1, "a", 0, 0)),
    _attack("segments created, sealed, deleted", _pairs),
    _endless("SealSegments", s.SealSegment(1, _NAME)),
    _endless("DeleteSegments", s.DeleteSegment(1, "")),
    _message("TruncateSegments", s.TruncateSegment(1, _NAME, 0)),
    _attack(
        "attributes",
        _numbered(
            lambda n: s.UpdateSegmentAttribute(
                1, _NAME, bytes(16), n, n - 1 if n > 1 else w.NEVER
            )
        ),
    ),
    _endless(
        "attributes that do not match",
        s.UpdateSegmentAttribute(1, _NAME, bytes(16), 1, 5),
    ),
    _endless("reads of attributes", s.GetSegmentAttribute(1, _NAME, bytes(16))),
    _endless("segment infos", s.GetStreamSegmentInfo(1, "")),
    _endless("offsets to locate", s.LocateOffset(1, _NAME, 0)),
    _message("transient segments", s.CreateTransientSegment(1, _W, _NAME)),
    _endless("merges of nothing", s.MergeSegments(1, _NAME, "x")),
    _endless("reads of no segment", s.ReadSegment("", 0, 0, "", 1)),
    _endless("reads at the tail", s.ReadSegment(_NAME, 0, 1, "", 1)),
    _attack(
        "reads of 1 MiB",
        repeated(encode(s.ReadSegment(_NAME, 0, MiB, "", 1))),
        opening=(*_OPENING, *(encode(_append(1, _event(bytes(MiB)))),)),
        most=4 * KiB,
    ),
    _attack("table updates", _numbered(_entries), opening=_TABLE),
    _attack(
        "table updates of one key",
        repeated(
            encode(t.UpdateTableEntries(1, "t", "", [Entry(b"k", w.NEVER, b"v")]))
        ),
        opening=_TABLE,
    ),
    _message(
        "removals of 1 000 keys",
        t.RemoveTableKeys(1, "t", "", [Entry(b"k", w.NEVER)] * 1000),
        opening=_TABLE,
    ),
    _of_table(
        "reads of 1 000 keys",
        t.ReadTable(1, "t", "", [Entry(b"k", w.NEVER)] * 1000),
        most=6 * MiB,
    ),
    _of_table("reads of no table", t.ReadTable(1, "", "", [])),
    _of_table("reads of keys", t.ReadTableKeys(1, "t", "", 1 << 30)),
    _of_table("reads of entries", t.ReadTableEntries(1, "t", "", 1 << 30)),
    _of_table("reads of changes", t.ReadTableEntriesDelta(1, "t", "", 0, 1 << 30)),
    _of_table("table infos", t.GetTableSegmentInfo(1, "t")),
    _of_table("tables of one name", t.CreateTableSegment(1, "t")),
    _endless("deletions of no table", t.DeleteTableSegment(1, "", False)),
]
