"""RS.io clients in memory: an endpoint that connects to a listener on test doubles."""

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.testing import StringTransport

__all__ = ["Endpoint", "Running", "Transport"]


class Transport(StringTransport):
    """Whose end is seen by the protocol."""

    protocol: Any = None

    def loseConnection(self) -> None:
        super().loseConnection()
        self.protocol.connectionLost(_Why("closed"))

    def abortConnection(self) -> None:
        self.loseConnection()


class _Why:
    def __init__(self, text: str) -> None:
        self.text = text

    def getErrorMessage(self) -> str:
        return self.text


class Endpoint:
    """Connects to a gate, in memory."""

    def __init__(self, gate: Any) -> None:
        self.gate = gate
        self.protocol: Any = None
        self.connection: Any = None
        self.transport: Any = None
        self.lost = False

    def connect(self, factory: Any) -> Deferred[Any]:
        self.connection, _ = self.gate.connect()
        self.protocol = factory.buildProtocol(None)
        self.transport = Transport()
        self.transport.protocol = self.protocol
        self.protocol.makeConnection(self.transport)
        return succeed(self.protocol)

    def pump(self) -> None:
        """Carry everything to and fro until both are quiet."""
        while True:
            self.gate.clock.advance(0)
            said = self.transport.value()
            self.transport.clear()
            if said:
                self.connection.deliver(said)
            if self.connection.failure is not None:
                raise self.connection.failure
            answer = self.connection.sent
            self.connection.clear()
            if answer:
                self.protocol.dataReceived(answer)
            if not said and not answer:
                return


class Running:
    """A coroutine on Twisted, and the endpoint it uses."""

    def __init__(self, endpoint: Endpoint, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.results: list[Any] = []
        self.endpoint = endpoint
        Deferred.fromCoroutine(coroutine).addBoth(self.results.append)

    def finish(self) -> Any:
        """Its result, or its exception."""
        for _ in range(50):
            self.endpoint.pump()
            self.endpoint.gate.journal.store_all()
            if self.results:
                break
            self.endpoint.gate.clock.advance(0.1)
        [result] = self.results
        if hasattr(result, "raiseException"):
            result.raiseException()
        return result
