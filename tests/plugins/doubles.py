"""A protocol's listener on doubles, with a connection: what tests of servers begin with."""

import json
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone, ResponseNeverReceived

from gateway.testing import FakeConnection, ManualJournal

__all__ = ["AtOnce", "FakeAgent", "OneConnection"]


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


class FakeAgent:
    """In place of Twisted's: answers when the test says so, fails as that one does."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self._open: list[Deferred[Any]] = []
        self.cancelled = 0

    def request(self, method: bytes, uri: bytes, headers: Any, body: Any) -> Any:
        assert (method == b"POST") is (body is not None)
        if body is not None:
            body.startProducing(self)
        done: Deferred[Any] = Deferred(self._cancel)
        self._open.append(done)
        return done

    def _cancel(self, done: Deferred[Any]) -> None:
        self.cancelled += 1
        self._open.remove(done)
        done.errback(ResponseNeverReceived([Failure(CancelledError())]))

    def write(self, data: bytes) -> None:
        self.asked.append(json.loads(data))

    def answer(self, code: int, body: object = b"") -> None:
        """The oldest request that is open."""
        said = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._open.pop(0).callback(_Response(code, said))

    def fail(self, why: Exception) -> None:
        self._open.pop(0).errback(why)


class _Response:
    """An answer whose body is there."""

    def __init__(self, code: int, body: bytes) -> None:
        self.code = code
        self._body = body

    def deliverBody(self, protocol: Any) -> None:
        protocol.dataReceived(self._body)
        protocol.connectionLost(Failure(ResponseDone()))


class AtOnce:
    """Where `pravega.lookups` has threads; `later` is what they would make ready."""

    def __init__(self) -> None:
        self.later: list[Callable[[], object]] = []

    def read(self, lsn: int, call: Callable[[], Any]) -> Deferred[Any]:
        return succeed(call())

    def ahead(self, call: Callable[[], object]) -> None:
        self.later.append(call)
