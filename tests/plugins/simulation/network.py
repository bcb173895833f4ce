"""The network between the real clients of all protocols and the gateway's listeners.

Bytes arrive in any slices and any time later; connections break, for one end first or
for both, with what was on its way lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet import error
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.event import Origin
from gateway.interfaces import Refusal
from gateway.testing import FakeConnection
from simulation.life import Life

if TYPE_CHECKING:
    from simulation.world import World

__all__ = ["Link", "Network", "Target"]

_SLICES = (1, 7, 100, 1000, 1 << 20)


class Network:
    """All connections."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.links: list[Link] = []
        self.made = 0
        self.calm = False
        """Everything arrives at once."""

    def carry(self) -> None:
        """Some bytes of a connection arrive, or its end is noticed."""
        if self.links:
            self.world.chance.choice(self.links).carry()

    def cut(self) -> None:
        """A connection breaks."""
        if self.links:
            self.world.chance.choice(self.links).cut()


@implementer(IStreamClientEndpoint)
class Target:
    """Where a client connects to; nobody is there while the gateway does not serve."""

    def __init__(self, network: Network, protocol: str, name: str) -> None:
        self._network = network
        self._protocol = protocol
        self._name = name
        self.connections = 0

    def connect(self, factory: Any) -> Deferred[Any]:
        """See `IStreamClientEndpoint`."""
        life = self._network.world.life
        if life is None or not life.ready or life.stopping:
            return fail(error.ConnectionRefusedError())
        self.connections += 1
        link = Link(self._network, life, self._protocol, self._name, factory)
        return succeed(link.client)


class Link:
    """One connection; the client's transport."""

    def __init__(
        self, network: Network, life: Life, protocol: str, name: str, factory: Any
    ) -> None:
        network.made += 1
        self.session = f"{name}-{network.made}"
        self._network = network
        self._life = life
        self._up, self._down = bytearray(), bytearray()
        self._client_closed = self._server_told = False
        self.server: ServerEnd | None = None
        self.client = factory.buildProtocol(None)
        network.links.append(self)
        life.reactor.callFromThread(self._accept, protocol)
        self._tell("connects")
        self.client.makeConnection(self)

    def _tell(self, text: str) -> None:
        self._network.world.tell(f"{self.session} {text}")

    # -- in the gateway's reactor ---------------------------------------------

    def _accept(self, protocol: str) -> None:
        life = self._life
        if not life.stopping and not self._server_told:
            origin = Origin(protocol, protocol, self.session, "[2001:db8::1]:9")
            self.server = ServerEnd(self, life, origin, protocol)
            self.server.serve(life.ports[protocol].accept(self.server))
            life.connections.append(self.server)
        else:
            self._client_lost(error.ConnectionLost())

    def _arrive(self, data: bytes) -> None:
        if self.server is not None:
            self._life.admin.received(self.server.origin.protocol, len(data))
            self.server.deliver(data)
            if self.server.failure is not None:
                raise self.server.failure

    def _lose(self) -> None:
        server = self.server
        if server is not None and not self._server_told:
            self._server_told = True
            if server in self._life.connections:
                self._life.connections.remove(server)
            server.lose()

    def send(self, data: bytes) -> None:
        """The server writes."""
        self._down += data

    # -- the world ------------------------------------------------------------

    @property
    def _world(self) -> World:
        return self._network.world

    def carry(self) -> None:
        """Some bytes arrive, or an end is noticed."""
        life, chance = self._life, self._world.chance
        if life is not self._world.life:
            self._client_lost(error.ConnectionLost())
        elif self._up and (not self._down or chance.random() < 0.5):
            data = self._some(self._up)
            self._tell(f"sends {len(data)} bytes")
            life.reactor.callFromThread(self._arrive, data)
        elif self._down:
            data = self._some(self._down)
            self._tell(f"gets {len(data)} bytes")
            if not self._client_closed:
                self.client.dataReceived(data)
        elif self.server is not None and (self.server.closed or self.server.aborted):
            life.reactor.callFromThread(self._lose)
            self._client_lost(error.ConnectionDone())
        elif self._client_closed:
            self._network.links.remove(self)
            life.reactor.callFromThread(self._lose)

    def _some(self, data: bytearray) -> bytes:
        size = len(data) if self._network.calm else self._world.chance.choice(_SLICES)
        taken = bytes(data[:size])
        del data[:size]
        return taken

    def cut(self) -> None:
        """It breaks: what is on its way is lost, and the ends hear of it when they do."""
        self._tell("breaks")
        self._up.clear()
        self._down.clear()
        if self._life is self._world.life:
            self._life.reactor.callFromThread(self._lose)
        self._client_lost(error.ConnectionLost())

    def _client_lost(self, why: Exception) -> None:
        if self in self._network.links:
            self._network.links.remove(self)
        if not self._client_closed:
            self._client_closed = True
            self._tell(f"is lost: {type(why).__name__}")
            self.client.connectionLost(Failure(why))

    # -- the client's transport -------------------------------------------------

    def write(self, data: bytes) -> None:
        """See `ITransport`."""
        if not self._client_closed:
            self._up += data

    def loseConnection(self) -> None:
        """See `ITransport`."""
        if not self._client_closed:
            self._client_closed = True
            self._world.outside.callLater(
                0, self.client.connectionLost, Failure(error.ConnectionDone())
            )

    def abortConnection(self) -> None:
        """See `ITCPTransport`."""
        self._up.clear()
        self.loseConnection()

    def registerProducer(self, producer: object, streaming: bool) -> None:
        """See `IConsumer`; the client may always write."""

    def unregisterProducer(self) -> None:
        """See `IConsumer`."""


class ServerEnd(FakeConnection):
    """The gateway's side of a link."""

    def __init__(self, link: Link, life: Life, origin: Origin, protocol: str) -> None:
        super().__init__(origin, protocol=protocol, memory=life.memory)
        self._link = link
        self._life = life

    def write(self, data: bytes) -> None:
        """See `Connection`."""
        if not (self.closed or self.aborted):
            self._link.send(data)

    def count(self, *, events: int) -> None:
        """See `Connection`."""
        self._life.admin.stored(self.origin.protocol, events)
        super().count(events=events)

    def refuse(self, why: Refusal) -> None:
        """A client of ours does nothing that may be refused."""
        self._life.tell(f"{self.origin.session} is refused: {why}")
        self._life.refused(why)
        super().refuse(why)

    def report(self, why: Refusal) -> float:
        """See `Connection`."""
        self._life.tell(f"{self.origin.session} is reported: {why}")
        return super().report(why)
