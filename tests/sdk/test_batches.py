"""`BatchServer`: what a session makes is stored when there is room, and a plug-in's that
makes what it may not costs its own connection.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.task import Clock

from gateway.config.listener import NoOptions
from gateway.event import Origin
from gateway.sdk.batches import BatchListener, Ready
from gateway.sdk.interfaces import Refusal
from gateway.testing import FakeConnection, ManualJournal
from gateway_testkit.settings import settings


@pytest.mark.parametrize("ack", ["ok", None, 7])
def test_an_acknowledgement_that_is_no_bytes(ack):
    """It is refused before anything is stored, not when it should be sent."""

    class Session:
        held_bytes = 0

        def __init__(self, *_: object) -> None: ...

        def received(self, data: bytes) -> list[Ready]:
            return [Ready(1, data, len(data), ack)]

    journal = ManualJournal()
    listener = BatchListener(settings(NoOptions), journal, Clock(), Session)
    server = listener(FakeConnection())
    with pytest.raises(TypeError, match="the acknowledgement is no bytes"):
        server.received(b"hello")
    assert journal.submitted == []


@pytest.fixture
def connection() -> FakeConnection:
    """Its turns are taken when a test says so."""
    connection = FakeConnection()
    connection.stepwise = True
    return connection


@pytest.fixture
def stored(connection) -> Callable[[], list[bytes]]:
    """What the server of *connection* has submitted; each byte is a message."""

    class Session:
        held_bytes = 0

        def __init__(self, *_: object) -> None: ...

        def received(self, data: bytes) -> Iterator[Ready]:
            for byte in data:
                yield Ready(1, bytes([byte]), 1, b"ok")
                connection.has_room = False

    journal = ManualJournal()
    listener = BatchListener(settings(NoOptions), journal, Clock(), Session)
    connection.serve(listener(connection))
    return lambda: [batch.body for batch in journal.submitted]


def test_the_next_message_waits_for_room(connection, stored):
    """What comes is left alone until its turn."""
    connection.deliver(b"")
    connection.has_room = False
    connection.deliver(b"abc")
    assert stored() == []
    for _ in range(2):
        connection.has_room = True
        connection.take_turn()
    assert stored() == [b"a", b"b", b"c"]


def test_a_turn_ends_with_a_message_when_there_is_no_room(connection, stored):
    """The next one is left alone until its turn."""
    connection.deliver(b"abc")
    assert stored() == [b"a", b"b"]
    connection.has_room = True
    connection.take_turn()
    assert stored() == [b"a", b"b", b"c"]


class Requests:
    """Each byte is one: `a` has an event, `b` one that somebody else brings, `!` is wrong
    and has none, `.` is the last one."""

    held_bytes = 0

    def __init__(self, settings: Any, clock: Any, origin: Origin) -> None:
        origin.attributes = {**origin.attributes, "seen": origin.peer}
        self.other = replace(origin, principal="b")

    def received(self, data: bytes) -> Iterator[Ready]:
        for each in map(chr, data):
            if each in "ab":
                origin = self.other if each == "b" else None
                words = {"ack": b"ok", "not_stored": b"later"}
                yield Ready(1, each.encode(), 1, origin=origin, **words)
            else:
                why = Refusal("it is wrong") if each == "!" else None
                yield Ready(ack=b"no", report=why, close=each == ".")


@pytest.fixture
def requests(connection) -> Callable[[bytes], tuple[ManualJournal, FakeConnection]]:
    """A connection that brought these."""

    def deliver(data: bytes) -> tuple[ManualJournal, FakeConnection]:
        journal = ManualJournal()
        listener = BatchListener(settings(NoOptions), journal, Clock(), Requests)
        connection.serve(listener(connection))
        connection.deliver(data)
        return journal, connection

    return deliver


def test_the_end_in_good_order(requests):
    """All before it is answered, nothing behind it is taken, and nobody is refused."""
    journal, connection = requests(b"a.a")
    assert (connection.closed, connection.sent) == (False, b"")
    journal.store_all()
    assert (connection.closed, connection.sent) == (True, b"okno")
    assert connection.refused is None
    assert len(journal.submitted) == 1
    assert not connection.reported


def test_the_end_with_nothing_before_it(requests):
    """It is answered at once."""
    _, connection = requests(b".a")
    assert (connection.closed, connection.sent) == (True, b"no")


def test_what_is_wrong_and_does_not_end_it(requests):
    """It is logged, and answered in its turn."""
    journal, connection = requests(b"a!a")
    assert [str(why) for why in connection.reported] == ["it is wrong"]
    journal.store_all()
    assert (connection.closed, connection.sent) == (False, b"oknook")


def test_not_stored_in_the_protocols_words(requests):
    """The peer hears of it in its turn; what came behind may be stored."""
    journal, connection = requests(b"aaa")
    journal.refuse("no room")
    assert connection.sent == b"later"
    journal.store()
    assert connection.sent == b"laterok"
    assert [str(why) for why in connection.reported] == [
        "what it sent can not be stored: no room"
    ]
    connection.drain()
    journal.refuse("no room")
    assert (connection.closed, connection.sent) == (True, b"lateroklater")


def test_who_it_is(requests):
    """A session sees the connection's origin, adds to it, and may name another."""
    journal, connection = requests(b"ab")
    ours, theirs = [batch.origin for batch in journal.submitted]
    assert ours is connection.origin
    assert ours.attributes == {"seen": "192.0.2.1:4000"}
    assert (theirs.principal, theirs.session) == ("b", ours.session)
