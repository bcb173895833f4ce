"""The wire between the real clients of all protocols and the gateway's sockets.

Bytes arrive in any slices and any time later; a peer ends its direction alone, or reads
nothing for long; connections break, for one end first or for both, with what was on its way
lost.

What TLS draws at random changes nothing of this: its pieces travel whole, or without their
first or last byte, and the certificate's key and signature always have one length (`tls`).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet import error
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.python.failure import Failure
from zope.interface import implementer

from simulation.sockets import Kernel, Socket
from simulation.tls import ALLOWED, WRONG, client_factory
from simulation.ways import WEBSOCKET, Way

if TYPE_CHECKING:
    from simulation.life import Life
    from simulation.world import World

__all__ = ["Link", "Network", "Target"]

_SLICES = (1, 7, 100, 1000, 1 << 20)
_CLOSE = bytes.fromhex("8882 00000000 03e8")
"""WebSocket's, with status 1000."""
_HOSTS = ("192.0.2.1", "192.0.2.2", "2001:db8::1")
_DEAF = 0.2
"""So many peers stop reading for a while."""
_UNKNOWN = 0.2
"""So often a client shows a certificate that is not the right one."""


class Network:
    """All connections."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.kernel = Kernel(world.chance.choice)
        self.links: list[Link] = []
        self.made = 0
        self.calm = False
        """Everything arrives at once."""
        self.closed = False
        """No client finds the gateway."""

    def carry(self) -> None:
        """Some bytes of a connection arrive, or its end is noticed."""
        self._some(Link.carry)

    def cut(self) -> None:
        """A connection breaks."""
        self._some(Link.cut)

    def half_close(self) -> None:
        """A peer ends its direction."""
        self._some(Link.half_close)

    def _some(self, do: Callable[[Link], None]) -> None:
        if self.links:
            do(self.world.chance.choice(self.links))

    def all_leave(self) -> None:
        """Each peer as it likes; nobody comes any more."""
        self.closed = True
        for link in list(self.links):
            leave = (Link.loseConnection, Link.abortConnection, Link.cut)
            self.world.chance.choice(leave)(link)

    def remove(self, link: Link) -> None:
        """Neither end has anything to say to the other."""
        if link in self.links:
            self.links.remove(link)


@implementer(IStreamClientEndpoint)
class Target:
    """Where a client connects to; nobody is there while the gateway does not listen."""

    def __init__(self, network: Network, way: Way, name: str) -> None:
        self._network = network
        self.way = way
        self._name = name
        self._host = network.world.also.choice(_HOSTS)
        self.connections = 0
        self._link: Link | None = None

    @property
    def websocket(self) -> str | None:
        """Where it goes, for a client."""
        return WEBSOCKET if self.way.websocket else None

    def shown_code(self, code: int) -> None:
        """The last connection's client was sent this code of its route."""
        link = self._link
        if link is not None:
            link.shown_code(code)

    def connect(self, factory: Any) -> Deferred[Any]:
        """See `IStreamClientEndpoint`."""
        life = self._network.world.life
        net = life and life.net
        port = net and net.ports[self.way]
        if not (life and port and port.open) or self._network.closed:
            return fail(error.ConnectionRefusedError())
        self.connections += 1
        self._network.made += 1
        name = f"{self._name}-{self._network.made}"
        link = Link(self._network, life, self.way, name, self._host)
        self._link = link
        made = link.begin(factory)
        port.connect(link)
        return succeed(made)


class Link:
    """One connection: the wire, and the client's transport."""

    def __init__(
        self, network: Network, life: Life, way: Way, name: str, host: str
    ) -> None:
        self.name = name
        self.way = way
        self._network = network
        self._life = life
        self._host, self._port = host, 10_000 + network.made
        self._up: deque[bytes] = deque()
        self._fin = self._rst = False
        """The client's, behind `_up`; and at once."""
        self._client_gone = False
        """Its protocol has been told."""
        self._socket: Socket | None = None
        """None: it is in the backlog."""
        self._refused = False
        self._silent = False
        """The client writes no more, and fails if it tries."""
        assert life.net is not None
        self._net = life.net
        self._since = life.net.since(way)
        # What is drawn of it changes nothing of what else a seed brings.
        own = random.Random(f"{network.world.seed} {name}")
        self._certificate = ALLOWED
        if own.random() < _UNKNOWN and not network.calm:
            self._certificate = own.choice(WRONG)
        self._deaf_from = self._deaf_until = network.world.now
        if own.random() < _DEAF:
            self._deaf_from += own.choice((0.0, 0.5, 5.0))
            self._deaf_until = self._deaf_from + own.choice((5.0, 200.0, 600.0))
        network.links.append(self)

    def begin(self, factory: Any) -> Any:
        """Connect the client's protocol; returns that."""
        self._tell(f"connects to {self.way.name}")
        if self.way.tls:
            shows = self._certificate if self.way.certified else None
            factory = client_factory(factory, self._world.outside, self._shown, shows)
            if self.way.certified:
                self._tell(f"shows certificate {shows}")
        if self.way.proxied:
            family = "TCP6" if ":" in self._host else "TCP4"
            to = "::1" if ":" in self._host else "127.0.0.1"
            header = f"PROXY {family} {self._host} {to} {self._port} 1\r\n"
            self._up.append(header.encode())
        self._client = factory.buildProtocol(None)
        self._client.makeConnection(self)
        self._stream = getattr(self._client, "wrappedProtocol", self._client)
        return self._stream

    def _tell(self, text: str) -> None:
        self._world.tell(f"{self.name} {text}")

    @property
    def _world(self) -> World:
        return self._network.world

    def _deaf(self) -> bool:
        """The client reads nothing."""
        now, calm = self._world.now, self._network.calm
        return self._deaf_from <= now < self._deaf_until and not calm

    def _shown(self, certificate: str) -> None:
        if self._life is self._world.life:
            self._net.shown_certificate(self.way, certificate, self._since)

    def shown_code(self, code: int) -> None:
        """The client was sent this code of its route."""
        if self._life is self._world.life:
            self._net.shown_code(self.way, code, self._since)

    # The gateway's port

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        """See `Waiting`."""
        deaf = self._deaf if self._deaf_until > self._world.now else None
        kernel = self._network.kernel
        socket = self._socket = kernel.make(whole=self.way.tls, deaf=deaf)
        host = "127.0.0.1" if self.way.proxied else self._host
        return socket, (host, self._port)

    def refuse(self) -> None:
        """See `Waiting`."""
        self._refused = True

    # The world

    def carry(self) -> None:
        """Some bytes arrive, or an end is noticed."""
        if self._refused or self._life is not self._world.life:
            self._network.remove(self)
            self._lose_client(error.ConnectionLost())
            return
        socket = self._socket
        if socket is None:
            return
        if self._rst and not socket.closed:
            self._tell("resets")
            socket.reset()
            self._network.remove(self)
        elif socket.rst:
            self._network.remove(self)
            self._lose_client(error.ConnectionLost())
        else:
            self._carry(socket)

    def _carry(self, socket: Socket) -> None:
        up = bool(self._up) and (socket.has_room or socket.closed)
        down = bool(socket.outgoing) and not self._deaf()
        if up and not (down and self._world.chance.random() < 0.5):
            data, rest = self._some(self._up)
            self._tell(f"sends {rest}")
            socket.arrive(data)
        elif down:
            data, rest = self._some(socket.outgoing)
            self._tell(f"gets {rest}")
            socket.taken()
            if self._client_gone:
                self._rst = True  # its kernel says that nobody is there
            else:
                self._client.dataReceived(data)
        elif self._fin and not self._up:
            self._fin = False
            self._tell("sends FIN")
            socket.end()
        elif socket.fin and not socket.outgoing:
            if not self._client_gone:
                self._fin = True
                self._lose_client(error.ConnectionDone())
            elif socket.closed:
                self._network.remove(self)

    def _some(self, pieces: deque[bytes]) -> tuple[bytes, str]:
        """What arrives next, and a word for it that any bytes of TLS would give."""
        chance, calm = self._world.chance, self._network.calm
        if not self.way.tls:
            size = sum(map(len, pieces)) if calm else chance.choice(_SLICES)
            data = b"".join(pieces)
            pieces.clear()
            if data[size:]:
                pieces.append(data[size:])
            return data[:size], f"{len(data[:size])} bytes"
        part = None if calm else chance.choice((None, None, 1, -1))
        data = pieces.popleft()
        if part is None or len(data) == 1:
            return data, "a piece"
        pieces.appendleft(data[part:])
        return data[:part], "the head of a piece" if part == 1 else "most of a piece"

    def cut(self) -> None:
        """It breaks: what is on its way is lost, and the ends hear of it when they do."""
        self._tell("breaks")
        self._up.clear()
        if self._socket is not None:
            self._socket.outgoing.clear()
        self._rst = True
        self._lose_client(error.ConnectionLost())

    def half_close(self) -> None:
        """The client's direction ends behind what it wrote; it may still read."""
        if self._client_gone or self._silent:
            return
        chance = self._world.chance
        if self.way.websocket and self._stream._client.opened and chance.random() < 0.5:
            self._tell("sends Close")
            (self._client if self.way.tls else self).write(_CLOSE)
            self._world.outside.callLater(0, self._fall_silent)  # TLS writes it then
            return
        if self.way.tls and chance.random() < 0.5:
            self._tell("sends close_notify")
            self._client.loseConnection()
            return
        self._tell("writes no more")
        self._fin = True
        self._silent = True

    def _fall_silent(self) -> None:
        self._silent = True

    def _fail(self) -> None:
        """The client wrote where it can not any more, and its kernel closes."""
        if not self._client_gone:
            self._fin = True
        self._lose_client(error.ConnectionLost())

    def _lose_client(self, why: Exception) -> None:
        if not self._client_gone:
            self._client_gone = True
            self._tell(f"is lost: {type(why).__name__}")
            self._client.connectionLost(Failure(why))

    # The client's transport

    disconnecting = False

    def write(self, data: bytes) -> None:
        """See `ITransport`."""
        if self._client_gone:
            return
        if self._silent:
            self._world.outside.callLater(0, self._fail)
        elif data:
            self._up.append(data)

    def writeSequence(self, pieces: list[bytes]) -> None:
        """See `ITransport`."""
        self.write(b"".join(pieces))

    def loseConnection(self) -> None:
        """See `ITransport`."""
        if not self._client_gone:
            self._fin = self._silent = True
            self._world.outside.callLater(0, self._lose_client, error.ConnectionDone())

    def abortConnection(self) -> None:
        """See `ITCPTransport`."""
        self._up.clear()
        self._rst = True
        self.loseConnection()

    def registerProducer(self, producer: object, streaming: bool) -> None:
        """See `IConsumer`; the client may always write."""

    def unregisterProducer(self) -> None:
        """See `IConsumer`."""

    def getPeer(self) -> None:
        """See `ITransport`."""

    def getHost(self) -> None:
        """See `ITransport`."""
