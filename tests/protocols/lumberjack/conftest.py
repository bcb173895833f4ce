"""What the Lumberjack tests share: outcomes that can be compared, and real servers."""

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st

from doubles import OneConnection
from gateway.event import Rows
from gateway.protocols.lumberjack import events, frames, wire
from gateway.protocols.lumberjack.events import decode
from gateway.protocols.lumberjack.options import Options
from gateway.protocols.lumberjack.server import Lumberjack
from gateway.protocols.lumberjack.session import Figures, Limits, Session
from gateway.sdk.batches import Ready
from gateway.sdk.interfaces import Refusal
from gateway_testkit.settings import settings as settings_of
from making import Make


@dataclass
class Outcome:
    """What a stream comes to, however its windows were batched."""

    acks: bytes = b""
    events: list[tuple[bytes, int, str | None, str]] = field(default_factory=list)
    """Payload, sequence, flaw, content type."""
    refusal: str | None = None


def unpacked(rows: Rows) -> Iterator[tuple[bytes, int, str | None, str]]:
    """One tuple per event."""
    assert rows.seqs is not None
    for row, payload in enumerate(rows.each()):
        kind = rows.content_types.get(row, rows.content_type)
        yield payload, rows.seqs[row], rows.flaws.get(row), kind


def outcome(
    pieces: Iterable[bytes], limits: Limits | None = None, *, pauses: bool = False
) -> Outcome:
    """Feed a session; check on the way what must hold for every batch.

    With *pauses* the writer makes one after each piece.
    """
    limits = limits or Limits()
    session = Session(limits)
    result = Outcome()
    try:
        for piece in pieces:
            for ready in session.received(piece):
                take(result, ready)
            for ready in session.pause() if pauses else ():
                take(result, ready)
    except Refusal as why:
        result.refusal = str(why)
    return result


def take(result: Outcome, ready: Ready) -> None:
    """Add a window to *result*."""
    if not ready.ack:
        assert not ready.count  # it reports its cost
        return
    result.acks += ready.ack
    if not ready.count:
        assert not ready.body
        return
    rows = decode(ready.body)
    assert rows.count == ready.count
    assert rows.seqs is not None
    assert len(rows.seqs) == ready.count
    assert rows.attributes["version"] == chr(ready.ack[0])
    result.events += unpacked(rows)


@pytest.fixture(scope="session", name="outcome")
def _outcome() -> Make[Outcome]:
    """`outcome(pieces, limits, pauses=False) -> Outcome`."""
    return outcome


@pytest.fixture(scope="module", name="each_way")
def _each_way(each_way) -> Iterator[None]:
    """Frames are found and events are checked by the reference, and by the kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_find", each_way.run if each_way else frames.run)
        patch.setattr(events, "_gather", each_way.rows if each_way else events.gather)
        yield


def settings(**changes: Any) -> Any:
    """A listener's configuration; keyword arguments change limits or options."""
    usual = {
        "message_bytes": 1 << 20,
        "inflated_bytes": 8 << 20,
        "unacknowledged_bytes": 1 << 20,
        "stall_timeout": 60.0,
        "compressed_bytes": 8 << 20,
    }
    return settings_of(Options, **usual | changes)


@pytest.fixture
def make_reader() -> Make[OneConnection]:
    """Makes a server with other limits or options; `figures` is what it counts."""

    def make(**changes: Any) -> OneConnection:
        figures = Figures()
        reader = OneConnection(Lumberjack, settings(**changes), figures=figures)
        vars(reader)["figures"] = figures
        return reader

    return make


def beats_event(chance: random.Random, number: int) -> bytes:
    """Something like what Filebeat sends."""
    event = {
        "@timestamp": "2026-11-21T08:00:00.000Z",
        "event": {"id": f"{chance.getrandbits(128):032x}"},
        "message": " ".join(f"{chance.getrandbits(20):x}" for _ in range(30)),
        "log": {"offset": number},
    }
    return json.dumps(event).encode()


@pytest.fixture(scope="session")
def many_events() -> list[bytes]:
    """A few thousand varied events."""
    chance = random.Random(1)
    return [beats_event(chance, number) for number in range(3000)]


_seqs = st.integers(0, 2**32 - 1) | st.sampled_from([0, 1, 2**31, 2**32 - 1])
_versions = st.sampled_from(b"12")
_bodies = st.one_of(
    st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3).map(
        lambda found: json.dumps(found).encode()
    ),
    st.lists(st.integers() | st.dictionaries(st.text(), st.integers(), max_size=2)).map(
        lambda found: json.dumps(found).encode()
    ),
    st.binary(max_size=40),
    st.sampled_from(
        [b"", b" ", b"[]", b" [1,2", b'{"a":"\xff"}', b"[[],{}]", b"[" * 9]
    ),
)
_pairs = st.lists(st.tuples(st.binary(max_size=6), st.binary(max_size=9)), max_size=4)

#: One event frame.
FRAMES = st.one_of(
    st.builds(wire.json, _versions, _seqs, _bodies),
    st.builds(wire.data, _versions, _seqs, _pairs),
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Valid streams: windows of every make, and events outside of them."""
    parts: list[bytes] = []
    for _ in range(draw(st.integers(1, 4))):
        frames = draw(st.lists(FRAMES, max_size=6))
        announced = wire.window(draw(_versions), len(frames))
        if draw(st.booleans()):
            parts.append(announced)
        parts += frames
    # Compress any runs of it.
    stream = b""
    while parts:
        run = draw(st.integers(0, len(parts)))
        if run:
            inner, parts = b"".join(parts[:run]), parts[run:]
            stream += wire.compressed(draw(_versions), inner, draw(st.integers(0, 9)))
        else:
            stream += parts.pop(0)
    return stream


@pytest.fixture(scope="session", name="strategies")
def _strategies(sliced) -> SimpleNamespace:
    """The hypothesis strategies, for `data.draw`."""
    return SimpleNamespace(frames=FRAMES, streams=streams(), sliced=sliced)
