"""A daemon's status that tests can change, and real HTTP bytes in and out."""

import json
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from gateway.access import Access
from gateway.admin.metrics import Metrics
from gateway.admin.page import fixed_pages
from gateway.admin.site import Page, Site
from gateway.admin.status import (
    ArchiveStatus,
    ChainStatus,
    JournalStatus,
    ListenerStatus,
    SpoolStatus,
    Status,
)
from gateway.config.model import Admin as AdminSettings
from gateway.daemon.admin_port import AdminPort
from gateway.net import Penalties, RejectionLog
from gateway.net.reading import READ_BYTES
from gateway.sdk.endpoint import parse_endpoint
from gateway.sdk.figures import Figure, StatusSection
from gateway.sdk.protocol import Post
from making import Make
from transports import MemoryTransport

WIRES = StatusSection(
    "wires",
    "Wires",
    [
        Figure("wires.cut", "gateway_wires_cut", "cut ones", card="cut"),
        Figure("wires.held", "gateway_wires_bytes", "memory", card="held"),
        Figure("wires.sent", "gateway_wires_total{outcome}", "by outcome", card="sent"),
        Figure("wires.seen", "gateway_wires_timestamp", "when"),
        Figure("wires.inner", "", "not for metrics"),
    ],
)
PLAIN = StatusSection("plain", "", [Figure("plain.n", "gateway_plain", "n")])


class Daemon:
    """Its `probe` answers `status`, or raises `broken`."""

    def __init__(self) -> None:
        self.status = Status(
            node="gw-1",
            version="1.2.3",
            uptime_seconds=61.5,
            not_ready_reason=None,
            listeners=[
                ListenerStatus(
                    name="beats",
                    protocol="lumberjack",
                    address="tcp:127.0.0.1:5044",
                    connections=3,
                    events=4096,
                    bytes=1_000_000,
                    rejected={"limits.connections": 2},
                    connections_limit=10_000,
                )
            ],
            journal=JournalStatus(durable_lsn=4096, bytes=500_000),
            spool=SpoolStatus(published_lsn=4000, files=2, bytes=900, limit_bytes=9000),
            archive=ArchiveStatus(files=7, bytes=7000),
            chain=ChainStatus(last_lsn=40, link="5f" * 32),
            more=[
                WIRES.of(
                    {
                        "cut": 16,
                        "held": 2048,
                        "sent": {"good": 5, "bad": 1},
                        "seen": None,
                        "inner": 7,
                    }
                ),
                PLAIN.of({"n": 3}),
            ],
        )
        self.broken: Exception | None = None
        self.asked = 0

    def probe(self) -> Status:
        self.asked += 1
        if self.broken is not None:
            raise self.broken
        return self.status

    def change(self, **fields: Any) -> None:
        self.status = replace(self.status, **fields)


@dataclass
class Reply:
    """A parsed HTTP response."""

    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class AdminTransport(MemoryTransport):
    """A socket of a connection to the admin port."""

    @property
    def _tempDataLen(self) -> int:
        return self.unsent_bytes

    def getHandle(self) -> Any:
        return SimpleNamespace(getsockopt=lambda *_: bytes(12))

    @property
    def closing(self) -> bool:
        return self.finished or self.disconnecting or self.disconnected


@dataclass
class Client:
    """The far end of one connection."""

    connection: Any
    """None: it was not let in."""
    transport: AdminTransport
    _lost: bool = False

    def send(self, data: bytes) -> bytes:
        """What comes back at once."""
        self.transport.clear()
        self.connection.input.dataReceived(data)
        return self.got

    @property
    def got(self) -> bytes:
        """Since the last `send`."""
        return self.transport.value()

    @property
    def gone(self) -> bool:
        """It is closed, or dropped."""
        return self.connection is None or self.transport.closing

    def stop_reading(self) -> None:
        self.transport.unsent_bytes = READ_BYTES + 1
        self.connection.output.pauseProducing()

    def read_on(self) -> None:
        self.transport.unsent_bytes = 0
        self.connection.output.resumeProducing()

    def lose(self) -> None:
        if self.connection is not None and not self._lost:
            self._lost = True
            self.connection.input.connectionLost(Failure(ConnectionDone()))


@dataclass
class Port:
    """An admin port in memory; each request has its connection."""

    daemon: Daemon
    listen: str = "tcp:127.0.0.1:0"
    token: str | None = None
    more: dict[str, Page] = field(default_factory=dict)
    posts: dict[str, Post] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    trust_loopback: bool = False
    proxy_protocol: Any = None
    most: int = 256
    penalties: Any = None

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.daemon.probe)
        admin = AdminSettings.model_validate(
            {
                "listen": parse_endpoint(self.listen),
                "token": None if self.token is None else SecretStr(self.token),
                "trust_loopback": self.trust_loopback,
                "proxy_protocol": self.proxy_protocol,
            }
        )
        self.site = Site(
            Access.to(admin),
            {**fixed_pages(self.daemon.probe, self.metrics), **self.more},
            self.posts,
        )
        self.recent = RejectionLog(self.clock)
        self.admin = AdminPort(
            self.site,
            admin,
            self.metrics,
            self.clock,
            rejection_log=self.recent,
            penalties=self.penalties or Penalties(self.clock),
            most_connections=self.most,
        )
        self.listener = self.admin.make(
            self.admin.settings_of(admin), self.admin.port, None
        )
        self.listener.start_timers()

    @property
    def reported(self) -> list[tuple[str, str]]:
        """Peers, and what was wrong with them."""
        return [(one.peer, one.why) for one in self.recent.recent]

    @property
    def scheduled(self) -> int:
        """Calls that wait for their time, but for the look at all connections."""
        return len(self.clock.getDelayedCalls()) - 1

    def come(self, host: str = "127.0.0.1", port: int = 4000) -> Client:
        """One more connection."""
        return self.come_from(IPv4Address("TCP", host, port))

    def come_from(self, address: Any) -> Client:
        client = Client(self.listener.admit(address), AdminTransport())
        if client.connection is not None:
            client.connection.input.makeConnection(client.transport)
        return client

    def send(self, raw: bytes) -> bytes:
        """What comes back for these bytes."""
        client = self.come()
        client.send(raw)
        self.clock.advance(0)
        return client.got

    def post(self, path: str, body: bytes, **headers: str) -> Reply:
        """JSON, unless `Content_Type` says otherwise."""
        fields = {"Content_Type": "application/json", **headers}
        fields.setdefault("Content_Length", str(len(body)))
        return self.ask(path, "POST", body, **fields)

    def ask(
        self, path: str, method: str = "GET", content: bytes = b"", **headers: str
    ) -> Reply:
        """One request; `Host` is 127.0.0.1 unless given; `_` in names is `-`."""
        fields = {"Host": "127.0.0.1:8080", **headers}
        lines = [f"{method} {path} HTTP/1.1"]
        lines += [f"{name.replace('_', '-')}: {text}" for name, text in fields.items()]
        raw = self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + content)
        head, _, body = raw.partition(b"\r\n\r\n")
        status, *rest = head.decode("latin-1").split("\r\n")
        found = dict(line.split(": ", 1) for line in rest)
        return Reply(int(status.split()[1]), found, body)


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
def open_port(daemon) -> Make[Port]:
    """Makes a `Port` onto the daemon: `open_port(token="s3cret")`."""
    return lambda **options: Port(daemon, **options)


@pytest.fixture
def port(open_port) -> Port:
    return open_port()


@pytest.fixture
def client(port) -> Client:
    return port.come()
