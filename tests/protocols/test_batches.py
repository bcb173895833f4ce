"""What a session of a plug-in may not make: it costs its own connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.task import Clock

from gateway.config.listener import NoOptions
from gateway.protocols.batches import BatchListener, Ready
from gateway.testing import FakeConnection, ManualJournal
from gateway.testing.settings import settings


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


def test_the_next_message_waits_for_room() -> None:
    """What is whole is stored; what is to come is left alone until its turn."""

    class Session:
        held_bytes = 0

        def __init__(self, *_: object) -> None: ...

        def received(self, data: bytes) -> Iterator[Ready]:
            for byte in data:
                yield Ready(1, bytes([byte]), 1, b"ok")

    journal = ManualJournal()
    listener = BatchListener(settings(NoOptions), journal, Clock(), Session)
    connection = FakeConnection()
    connection.stepwise = True
    connection.serve(listener(connection))
    connection.deliver(b"")
    connection.has_room = False
    connection.deliver(b"abc")
    assert [batch.body for batch in journal.submitted] == []
    connection.has_room = True
    connection.take_turn()
    assert [batch.body for batch in journal.submitted] == [b"a", b"b", b"c"]


def test_a_turn_ends_with_a_message_when_there_is_no_room() -> None:
    """The next one is left alone until its turn."""

    class Session:
        held_bytes = 0

        def __init__(self, *_: object) -> None: ...

        def received(self, data: bytes) -> Iterator[Ready]:
            for byte in data:
                yield Ready(1, bytes([byte]), 1, b"ok")
                connection.has_room = False

    journal = ManualJournal()
    listener = BatchListener(settings(NoOptions), journal, Clock(), Session)
    connection = FakeConnection()
    connection.stepwise = True
    connection.serve(listener(connection))
    connection.deliver(b"abc")
    for stored in ([b"a", b"b"], [b"a", b"b", b"c"]):
        assert [batch.body for batch in journal.submitted] == stored
        connection.has_room = True
        connection.take_turn()
