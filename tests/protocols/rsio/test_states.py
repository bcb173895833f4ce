"""The state tables of docs/rsio-v0.md, row by row, held against a session."""

from typing import Any

import pytest

from gateway.protocols.rsio import messages as m
from gateway.protocols.rsio import wire
from gateway.protocols.rsio.session import Session, State
from gateway.sdk.interfaces import Refusal

ELEMENT = wire.on_next(1, [b"x"])
SIGNALS = {
    "onSubscribe": wire.encode(m.OnSubscribe(1, 0)),
    "element": ELEMENT,
    "onComplete": wire.encode(m.OnComplete(1)),
    "onError": wire.encode(m.OnError(1, "no")),
}
ASKS = {
    "request": wire.encode(m.Request(1, 2)),
    "request of none": wire.encode(m.Request(1, 0)),
    "cancel": wire.encode(m.Cancel(1)),
    "stored": wire.encode(m.Stored(1, 5)),
    "subscribe": wire.encode(m.Subscribe("p", 1, 1)),
}


def _consumed(opened: Any, state: str) -> Session:
    """A session that consumes stream 1, in that state."""
    session: Session = opened()
    if state == "never subscribed":
        return session
    stream = session.consumer.subscribe("p", 1)
    if state in ("flowing", "cancelled", "over", "demand is met"):
        list(session.received(SIGNALS["onSubscribe"]))
    if state.startswith("cancelled"):
        session.consumer.cancel(stream)
    if state == "over":
        list(session.received(SIGNALS["onComplete"]))
    if state == "demand is met":
        list(session.received(ELEMENT))
    session.take()
    return session


def _became(session: Session, said: bytes, read: Any) -> str:
    """What happened: an end, a cancel, a signal's name, or nothing."""
    try:
        signals = [type(one).__name__ for one in session.received(said)]
    except Refusal as why:
        cancelled = [one for one in read(why.reply) if isinstance(one, m.Cancel)]
        return "cancel, end" if cancelled else "end"
    cancelled = [one for one in read(session.take()) if isinstance(one, m.Cancel)]
    return "cancel" if cancelled else ", ".join(signals) or "nothing"


@pytest.mark.parametrize(
    ("state", "row"),
    [
        ("never subscribed", ("end", "end", "end")),
        ("subscribed", ("Accepted", "end", "end")),
        ("flowing", ("cancel, end", "Run", "Terminated")),
        ("demand is met", ("cancel, end", "cancel", "Terminated")),
        ("cancelled early", ("nothing", "end", "end")),
        ("cancelled", ("end", "nothing", "nothing")),
        ("over", ("end", "end", "end")),
    ],
)
def test_a_stream_that_is_consumed(opened, read, state, row):
    """Each state with each signal, and what is left of the stream."""
    for name, said in SIGNALS.items():
        expected = row[min(list(SIGNALS).index(name), 2)]
        session = _consumed(opened, state)
        assert _became(session, said, read) == expected, (state, name)
        terminal = name.startswith(("onComplete", "onError"))
        if terminal and expected in ("Terminated", "nothing"):
            assert 1 not in session.consumer.streams  # over: the Id is free


def _served(opened: Any, state: str) -> Session:
    session: Session = opened(2)
    if state == "never asked":
        return session
    list(session.received(ASKS["subscribe"]))
    stream = session.producer.streams[1]
    if state != "asked":
        session.producer.accept(stream)
    if state == "over":
        session.producer.complete(stream)
    session.take()
    return session


@pytest.mark.parametrize(
    ("state", "row"),
    [
        ("never asked", ([], [], [], [], "SubscribeReceived")),
        ("asked", (["DemandAdded"], [m.OnSubscribe, m.OnError], ["Cancelled"],
                   ["StoredReceived"], "end")),
        ("flowing", (["DemandAdded"], [m.OnError], ["Cancelled"],
                     ["StoredReceived"], "end")),
        ("over", ([], [], [], [], "SubscribeReceived")),
    ],
)  # fmt: skip
def test_a_stream_that_is_served(opened, read, state, row):
    """Each state with each request."""
    more, none, cancel, stored, again = row
    for name, signals in (("request", more), ("cancel", cancel), ("stored", stored)):
        session = _served(opened, state)
        found = [type(one).__name__ for one in session.received(ASKS[name])]
        assert (found, session.take()) == (signals, b""), (state, name)
    session = _served(opened, state)
    list(session.received(ASKS["request of none"]))
    assert [type(one) for one in read(session.take())] == none
    assert _became(_served(opened, state), ASKS["subscribe"], read) == again


@pytest.mark.parametrize("first", ["goodbye", "subscribe"])
def test_no_answer_after_a_goodbye(opened, read, first):
    """Of either side: a subscription that is not answered yet stays so."""
    session: Session = opened()
    subscribe, goodbye = ASKS["subscribe"], wire.encode(m.Goodbye(""))
    if first == "goodbye":
        session.goodbye("bye")
        session.take()
        list(session.received(subscribe))
        assert session.take() == b""
        list(session.received(goodbye))
        assert session.take() == b""
    else:
        list(session.received(subscribe))
        stream = session.producer.streams[1]
        list(session.received(goodbye))
        assert [type(one) for one in read(session.take())] == [m.Goodbye]
        assert not stream.live
    assert session.state is State.CLOSED


def test_leaving_takes_and_drops(opened):
    """What crosses the goodbye is not answered; a violation ends it without another one."""
    session = opened(1, 6)
    session.consumer.subscribe("p", 1)
    list(session.received(SIGNALS["onSubscribe"]))
    session.goodbye("bye")
    session.take()
    late = ELEMENT, wire.encode(m.Ping(b"?")), wire.encode(m.Compress(1))
    assert list(session.received(b"".join(late))) == []
    assert session.take() == b""
    with pytest.raises(Refusal) as why:
        list(session.received(b"\xf0"))
    assert why.value.reply == b""
    assert session.state is State.CLOSED
