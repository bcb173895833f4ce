"""The writer's side: windows, slow start, what is sent again."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.lumberjack import wire
from gateway.protocols.lumberjack.events import decode
from gateway.protocols.lumberjack.session import Limits, Session
from gateway.protocols.lumberjack.writer import Writer, WrongAck
from gateway.sdk.sender import Batch

_V1, _V2 = b"12"


def _batch(count: int, tag: str = "e") -> Batch:
    return Batch([b'{"id":"%s-%d"}' % (tag.encode(), n) for n in range(count)])


def _sizes(writer: Writer) -> list[int]:
    """Of the windows that may be sent now."""
    sizes = []
    while window := writer.take():
        sizes.append(int.from_bytes(window[2:6]))
    return sizes


@pytest.mark.parametrize("v1", [False, True])
@pytest.mark.parametrize("compression", [0, 1, 9])
def test_what_is_sent(outcome, *, v1, compression):
    """A reader gets the events back, under both versions, compressed or not."""
    writer = Writer(v1=v1, compression=compression, slow_start=False)
    events = [b'{"a":{"b":"text","n":5},"c":[1]}', b"no JSON", b'{"e":""}']
    writer.add(Batch(events))
    found = outcome([writer.take()])
    assert found.refusal is None
    payloads = [payload for payload, *_ in found.events]
    if v1:
        assert [json.loads(payload) for payload in payloads] == [
            {"a.b": "text", "a.n": "5", "c": "[1]"},
            {"line": "no JSON"},
            {"e": ""},
        ]
    else:
        assert payloads == events
    assert found.acks == wire.ack(_V1 if v1 else _V2, 3)


def test_pipelining():
    """So many windows are in flight, and no more."""
    writer = Writer(window=10, pipelining=3, slow_start=False)
    writer.add(_batch(35))
    assert _sizes(writer) == [10, 10, 10]
    assert not list(writer.received(wire.ack(_V2, 10)))
    assert _sizes(writer) == [5]
    acks = wire.ack(_V2, 10) * 2 + wire.ack(_V2, 5)
    assert not writer.batches[0].done
    [batch] = writer.received(acks)
    assert batch.done
    assert not writer.waiting


def test_slow_start():
    """Windows begin with 10 events, grow by half, and halve when a connection ends."""
    writer = Writer(window=40, pipelining=1)
    writer.add(_batch(1000))
    seen = []
    for _ in range(6):
        [size] = _sizes(writer)
        seen.append(size)
        list(writer.received(wire.ack(_V2, size)))
    assert seen == [10, 15, 23, 35, 40, 40]
    assert _sizes(writer) == [40]
    writer.disconnected()
    assert _sizes(writer) == [20]


def test_unacknowledged_windows_are_sent_again():
    """After a reconnect everything that is not safe goes out again, in order."""
    writer = Writer(window=2, pipelining=3, slow_start=False, compression=0)
    first, second = _batch(3, "a"), _batch(2, "b")
    writer.add(first)
    writer.add(second)
    sent = [writer.take(), writer.take(), writer.take()]
    assert not list(writer.received(wire.ack(_V2, 2) + b"2A\0"))
    writer.disconnected()
    assert writer.resent == 3
    assert [writer.take(), writer.take(), writer.take()] == [*sent[1:], b""]
    acks = wire.ack(_V2, 1) + wire.ack(_V2, 2)
    assert list(writer.received(acks)) == [first, second]


@pytest.mark.parametrize("v1", [False, True])
def test_part_of_a_window_is_acknowledged(*, v1):
    """As by a reader that stores it in parts: it is as good as a sign of life."""
    writer = Writer(v1=v1, window=5, pipelining=1, slow_start=False)
    writer.add(_batch(10))
    version = _V1 if v1 else _V2
    for last in (5, 10 if v1 else 5):
        writer.take()
        assert not list(writer.received(wire.ack(version, last - 2)))
        assert writer.in_flight == 5
        done = list(writer.received(wire.ack(version, last)))
    assert [batch.done for batch in done] == [True]


def test_v1_numbers_never_restart():
    """v1 sequences go on from window to window and over reconnects."""
    writer = Writer(v1=True, window=2, slow_start=False)
    writer.add(_batch(4))
    assert _sizes(writer) == [2, 2]
    assert not list(writer.received(wire.ack(_V1, 2)))
    writer.disconnected()
    assert _sizes(writer) == [2]
    assert [batch.done for batch in writer.received(wire.ack(_V1, 6))] == [True]


@pytest.mark.parametrize("v1", [False, True])
def test_keepalives(*, v1):
    """v2 takes `A 0` for a sign of life; v1 knows no such thing."""
    writer = Writer(v1=v1, slow_start=False)
    writer.add(_batch(5))
    writer.take()
    if v1:
        with pytest.raises(WrongAck):
            list(writer.received(wire.ack(_V1, 0)))
    else:
        assert not list(writer.received(wire.ack(_V2, 0) * 2 + wire.ack(_V2, 3)))
        assert writer.keepalives == 2
        assert writer.waiting
        assert len(list(writer.received(wire.ack(_V2, 5)))) == 1


@pytest.mark.parametrize(
    "answer",
    [
        wire.ack(_V2, 6),
        wire.ack(_V1, 5),
        b"HTTP/1.1",
        wire.window(_V2, 5),
        b"2A\xff" * 2,
    ],
)
def test_wrong_acks(answer):
    """What was not asked for acknowledges nothing."""
    writer = Writer(slow_start=False)
    writer.add(_batch(5))
    writer.take()
    with pytest.raises(WrongAck):
        list(writer.received(answer))
    assert writer.waiting


def test_acks_before_a_wrong_one_count():
    """… but what came before it does."""
    writer = Writer(slow_start=False)
    batch = _batch(5)
    writer.add(batch)
    writer.take()
    done = writer.received(wire.ack(_V2, 5) * 2)
    assert next(done) is batch
    with pytest.raises(WrongAck):
        next(done)


@given(
    seed=st.integers(0, 2**32),
    v1=st.booleans(),
    window=st.integers(1, 30),
    pipelining=st.integers(1, 4),
    slow_start=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_every_event_arrives(*, seed, v1, window, pipelining, slow_start):
    """Whatever breaks, every event arrives, and its batch is done only after that."""
    chance = random.Random(seed)
    writer = Writer(v1=v1, window=window, pipelining=pipelining, slow_start=slow_start)
    batches = [_batch(chance.randint(1, 60), f"l{n}") for n in range(4)]
    for batch in batches:
        writer.add(batch)
    arrived: set[str] = set()
    done: list[Batch] = []
    session, answers = Session(Limits()), b""
    while len(done) < len(batches):
        if chance.random() < 0.1:
            writer.disconnected()
            session, answers = Session(Limits()), b""
        for ready in session.received(writer.take()):
            arrived.update(_ids(ready.body))
            answers += ready.ack
        cut = chance.randint(0, len(answers))
        for batch in writer.received(answers[:cut]):
            assert {json.loads(event)["id"] for event in batch.events} <= arrived
            done.append(batch)
        answers = answers[cut:]
    assert done == batches


def _ids(body: bytes) -> list[str]:
    return [json.loads(payload)["id"] for payload in decode(body).payloads]


def test_one_by_one_and_what_is_set_aside():
    """So many events are in flight at the most; the one that is set aside is sent no more."""
    writer = Writer(window=10, pipelining=3, slow_start=False)
    writer.add(_batch(4))
    writer.at_once = 1
    assert _sizes(writer) == [1]
    writer.disconnected()
    assert writer.set_aside() is None
    writer.at_once = 2
    assert _sizes(writer) == [2]
    assert not list(writer.received(wire.ack(_V2, 2)))
    assert _sizes(writer) == [1]
    [batch] = writer.received(wire.ack(_V2, 1))
    assert (batch.refused, batch.stored) == ({0: ""}, 3)
    writer.add(_batch(1))
    assert _sizes(writer) == [1]
    writer.disconnected()
    assert writer.set_aside().done
    assert not writer.batches
