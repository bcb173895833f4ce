"""The controller behind a real listener: HTTP/2's preface."""

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ResponseReceived
from twisted.internet.address import IPv4Address

from gateway.net.common import Common
from gateway.net.listen import Listener
from gateway.sdk.endpoint import parse_endpoint
from gateway.sdk.protocol import Port
from transports import MemoryTransport


def open_port(service: Any, **keywords: Any) -> tuple[Any, MemoryTransport]:
    """A connection to a listener with this controller."""
    limits = SimpleNamespace(
        connections=10,
        connections_per_peer=10,
        idle=900.0,
        handshake=10.0,
        message_bytes=1 << 20,
        connection_age=None,
    )
    settings = SimpleNamespace(
        name="controller",
        protocol="pravega",
        listen=parse_endpoint("tcp:127.0.0.1:0"),
        reuse_port=False,
        websocket=None,
        proxy_protocol=None,
        tls=None,
        limits=limits,
    )
    names = (f"s{number}" for number in itertools.count())
    port = Port(accept=service.accept, **keywords)
    common = Common(service.clock, lambda: next(names))
    listener = Listener(settings, port, common)
    link, wire = (
        listener.admit(IPv4Address("TCP", "192.0.2.1", 4000)),
        MemoryTransport(),
    )
    assert link is not None
    link.input.makeConnection(wire)
    return link, wire


def greeting() -> tuple[H2Connection, bytes]:
    """A client that has asked for the controller's address."""
    client = H2Connection(H2Configuration(header_encoding="utf-8"))
    client.initiate_connection()
    head = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"
        "getControllerServerList",
        ":authority": "localhost:9090",
        "content-type": "application/grpc",
    }
    client.send_headers(1, list(head.items()))
    client.send_data(1, bytes(5), end_stream=True)
    return client, client.data_to_send()


def answered(client: H2Connection, data: bytes) -> bool:
    events = client.receive_data(data)
    return any(isinstance(event, ResponseReceived) for event in events)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_the_preface_is_not_taken_for_a_mistake(service, size):
    """On this port an HTTP/2 client is right, however slowly it begins."""
    link, wire = open_port(service, prefixes=[b"PRI "])
    client, data = greeting()
    for at in range(0, len(data), size):
        link.input.dataReceived(data[at : at + size])
    assert answered(client, wire.value())


def test_other_ports_name_it(service):
    """Elsewhere it is refused as before."""
    link, wire = open_port(service)
    link.input.dataReceived(greeting()[1])
    assert wire.value().startswith(b"HTTP/1.1 400")


def test_http_1_is_named_here_too(service):
    """A browser learns that this port is not for it."""
    link, wire = open_port(service, prefixes=[b"PRI "])
    link.input.dataReceived(b"GET / HTTP/1.1\r\n\r\n")
    assert wire.value().startswith(b"HTTP/1.1 400")
