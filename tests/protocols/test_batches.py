"""What a session of a plug-in may not make: it costs its own connection."""

from __future__ import annotations

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
