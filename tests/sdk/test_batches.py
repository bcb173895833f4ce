"""`BatchServer`: what a session makes is stored when there is room, and a plug-in's that
makes what it may not costs its own connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.task import Clock

from gateway.config.listener import NoOptions
from gateway.sdk.batches import BatchListener, Ready
from gateway.testing import FakeConnection, ManualJournal
from gateway_testkit.settings import settings


@pytest.mark.parametrize("ack", ["ok", None, 7])
def test_an_acknowledgement_that_is_no_bytes(ack: Any) -> None:
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
def stored(connection: FakeConnection) -> Callable[[], list[bytes]]:
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


def test_the_next_message_waits_for_room(
    connection: FakeConnection, stored: Callable[[], list[bytes]]
) -> None:
    """What comes is left alone until its turn."""
    connection.deliver(b"")
    connection.has_room = False
    connection.deliver(b"abc")
    assert stored() == []
    for _ in range(2):
        connection.has_room = True
        connection.take_turn()
    assert stored() == [b"a", b"b", b"c"]


def test_a_turn_ends_with_a_message_when_there_is_no_room(
    connection: FakeConnection, stored: Callable[[], list[bytes]]
) -> None:
    """The next one is left alone until its turn."""
    connection.deliver(b"abc")
    assert stored() == [b"a", b"b"]
    connection.has_room = True
    connection.take_turn()
    assert stored() == [b"a", b"b", b"c"]
