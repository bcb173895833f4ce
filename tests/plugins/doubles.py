"""A protocol's listener on doubles, with a connection: what tests of servers begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock

from gateway.testing import FakeConnection, ManualJournal

__all__ = ["OneConnection"]


class OneConnection:
    """A listener, its journal and its clock, and one connection to it."""

    protocol = "lumberjack"

    def __init__(self, accept: Callable[..., Any], settings: Any, **more: Any) -> None:
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.journal = ManualJournal()
        self.listener = accept(settings, self.journal, self.clock, **more)
        self.connection, self.server = self.connect()

    def connect(self) -> tuple[FakeConnection, Any]:
        """One more connection to the same listener, and its server."""
        return self.serve(
            FakeConnection(protocol=self.protocol, memory=self.journal.memory)
        )

    def serve(self, connection: FakeConnection) -> tuple[FakeConnection, Any]:
        """The same for a connection that the test has made."""
        server = self.listener(connection)
        connection.serve(server)
        return connection, server

    def deliver(self, data: bytes) -> None:
        """Bytes arrive on the first connection."""
        self.connection.deliver(data)

    @property
    def sent(self) -> bytes:
        """What the first connection was sent."""
        return self.connection.sent
