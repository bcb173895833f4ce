"""A daemon without network: its ports, and peers that come to them, are in memory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import CannotListenError, ConnectionDone
from twisted.python.failure import Failure

from gateway.daemon.reload import Outcome
from gateway.daemon.running import Running
from gateway.daemon.service import Gateway
from gateway.net.connection import AcceptedConnection
from gateway.sdk.endpoint import Tcp, conflict
from gateway_testkit.reactor import QueuedReactor
from transports import MemoryTransport

__all__ = ["Daemon", "Peer", "Reactor", "Terminal", "listener"]


@dataclass
class Peer:
    """The far end of a connection."""

    connection: AcceptedConnection
    transport: MemoryTransport

    def send(self, data: bytes) -> None:
        self.connection.input.dataReceived(data)

    @property
    def said_goodbye(self) -> bool:
        """We sent FIN."""
        return self.transport.finished

    def leave(self) -> None:
        self.connection.input.connectionLost(Failure(ConnectionDone()))


class Port:
    """As much of Twisted's as the gateway uses."""

    transport: Any

    def __init__(self, reactor: Reactor, where: Tcp, factory: Any) -> None:
        self.reactor = reactor
        self.where = where
        self.factory = factory
        self.reading = True

    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", self.where.host, self.where.port)

    def startReading(self) -> None:
        self.reading = True

    def stopReading(self) -> None:
        self.reading = False

    def stopListening(self) -> None:
        self.reactor.ports.remove(self)


class Reactor(QueuedReactor):
    """With ports."""

    def __init__(self) -> None:
        super().__init__()
        self.ports: list[Port] = []
        self.bound = 0
        """How often a socket was made."""

    def listenTCP(
        self, port: Any, factory: Any, interface: str = "", **_: object
    ) -> Port:
        number = getattr(port, "_port", port) or 40_000 + self.bound
        where = Tcp(interface, number)
        if any(conflict(where, one.where) for one in self.ports):
            raise CannotListenError(
                interface, number, OSError(98, "Address already in use")
            )
        self.bound += 1
        self.ports.append(Port(self, where, factory))
        return self.ports[-1]

    def peer(self, number: int) -> Peer:
        """Come to this port, and be accepted; OSError if nobody listens there."""
        for port in self.ports:
            if port.where.port == number and port.reading:
                made = port.factory.buildProtocol(IPv4Address("TCP", "192.0.2.1", 4000))
                transport = MemoryTransport()
                made.makeConnection(transport)
                return Peer(made.connection, transport)
        raise ConnectionRefusedError(number)


class Terminal:
    """Where the daemon's last words go."""

    def leave(self, why: str) -> None:
        raise AssertionError(why)

    def close(self) -> None:
        """The start went well."""


@dataclass
class Daemon:
    """All of it, started, but for the threads of its store."""

    gateway: Gateway
    reactor: Reactor
    file: Path

    def write(self, *listeners: dict[str, Any], **more: Any) -> None:
        """Change the configuration file."""
        plain = {
            "node": "gw-1",
            "data_dir": str(self.file.parent / "data"),
            "listeners": listeners,
            "admin": {"listen": "tcp:127.0.0.1:8080"},
            "spool": {"publishers": 0},
        }
        self.file.write_text(json.dumps({**plain, **more}))

    @property
    def running(self) -> Running:
        """The gateway's inside."""
        return self.gateway.daemon

    def reload(self) -> Outcome:
        """SIGHUP."""
        found: list[Outcome] = []
        self.gateway.reloads.ask().addCallback(found.append)
        [outcome] = found
        return outcome

    def listeners(self) -> list[tuple[str, int, int]]:
        """Name, port and connections of each."""
        return [
            (one.name, int(one.address.rpartition(":")[2]), one.connections)
            for one in self.gateway.status().listeners
        ]


def listener(name: str, protocol: str, port: int, **more: Any) -> dict[str, Any]:
    """One of a configuration's listeners."""
    listen = f"tcp:127.0.0.1:{port}"
    return {"name": name, "protocol": protocol, "listen": listen, **more}
