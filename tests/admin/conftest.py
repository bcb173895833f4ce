"""A daemon's status that tests can change, and real HTTP bytes in and out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from gateway.admin.access import check
from gateway.admin.connections import Guard
from gateway.admin.metrics import Metrics
from gateway.admin.service import admin_site
from gateway.admin.site import Page
from gateway.admin.status import (
    ArchiveStatus,
    ChainStatus,
    JournalStatus,
    ListenerStatus,
    SpoolStatus,
    Status,
)
from gateway.net.turns import Turns
from gateway.sdk.endpoint import parse_endpoint
from gateway.sdk.protocol import Post, Statistic, Statistics


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
                )
            ],
            journal=JournalStatus(durable_lsn=4096, bytes=500_000),
            spool=SpoolStatus(published_lsn=4000, files=2, bytes=900, limit_bytes=9000),
            archive=ArchiveStatus(files=7, bytes=7000),
            chain=ChainStatus(last_lsn=40, link="5f" * 32),
            more=[
                Statistics(
                    "wires",
                    "Wires",
                    [
                        Statistic(
                            "cut", "Cut ones.", 16, "gateway_wires_cut", card="cut"
                        ),
                        Statistic(
                            "held",
                            "Memory.",
                            2048,
                            "gateway_wires_bytes",
                            card="held",
                            unit="bytes",
                        ),
                        Statistic(
                            "sent",
                            "By outcome.",
                            {"good": 5, "bad": 1},
                            "gateway_wires_total",
                            label="outcome",
                            counter=True,
                            card="sent",
                        ),
                        Statistic("seen", "When.", None, "gateway_wires_timestamp"),
                        Statistic("inner", "Not for metrics.", 7),
                    ],
                ),
                Statistics("plain", "", [Statistic("n", "N.", 3, "gateway_plain")]),
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


@dataclass
class Port:
    """An admin site on a transport in memory; each request has its connection."""

    daemon: Daemon
    listen: str = "tcp:127.0.0.1:0"
    token: str | None = None
    more: dict[str, Page] = field(default_factory=dict)
    posts: dict[str, Post] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    trust_loopback: bool = False

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.daemon.probe)
        self.site = admin_site(
            check(parse_endpoint(self.listen), self.token),
            self.token,
            self.daemon.probe,
            self.metrics,
            self.clock,
            Guard(Turns(self.clock)),
            self.more,
            self.posts,
            trust_loopback=self.trust_loopback,
        )

    def connect(self) -> tuple[Any, StringTransport]:
        transport = StringTransport()
        protocol = self.site.buildProtocol(None)
        protocol.makeConnection(transport)
        return protocol, transport

    def send(self, raw: bytes) -> bytes:
        """What comes back for these bytes."""
        protocol, transport = self.connect()
        protocol.dataReceived(raw)
        return transport.value()

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
def open_port(daemon: Daemon) -> Callable[..., Port]:
    """Makes a `Port` onto the daemon: `open_port(token="s3cret")`."""
    return lambda **options: Port(daemon, **options)


@pytest.fixture
def port(open_port: Callable[..., Port]) -> Port:
    return open_port()
