"""A listener in memory, peers that talk to it, TLS on top, and a real reactor."""

from __future__ import annotations

import itertools
import json
import ssl
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Request

import script as script_file
from deadlines import environment, run
from gateway.net.common import Common
from gateway.net.connection import AcceptedConnection
from gateway.net.listen import Listener
from gateway.net.reading import READ_BYTES
from gateway.sdk.endpoint import parse_endpoint
from gateway.sdk.interfaces import Connection, Refusal
from gateway.sdk.limits import Limits
from gateway.sdk.protocol import Port
from gateway_testkit.certificates import Authority
from making import Make
from transports import MemoryTransport


class Recorder:
    """A server that remembers; `act` says what else it does with bytes."""

    def __init__(self, connection: Connection, act: Make[None]) -> None:
        self.connection = connection
        self.act = act
        self.chunks: list[bytes] = []
        self.gone = False
        self.drained = False

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)

    def declare(self, base: type, **methods: Make[None]) -> None:
        """Have one more base of `interfaces`, with these methods."""
        own = {name: staticmethod(do) for name, do in methods.items()}
        self.__class__ = type(base.__name__, (type(self), base), own)

    def received(self, data: bytes) -> None:
        self.chunks.append(data)
        self.act(self.connection, data)

    def closed(self) -> None:
        self.gone = True

    def drain(self) -> None:
        self.drained = True
        self.connection.close()


@dataclass
class Peer:
    """The far end of one connection."""

    connection: AcceptedConnection
    transport: MemoryTransport

    def send(self, data: bytes) -> None:
        self.connection.input.dataReceived(data)

    def got(self) -> bytes:
        """What came since the last look."""
        data = self.transport.value()
        self.transport.clear()
        return data

    def stop_reading(self) -> None:
        """Let more wait for it than the transport likes."""
        self.transport.unsent_bytes = READ_BYTES + 1
        self.transport.producer.pauseProducing()

    def upgrade(self, **request: Any) -> WSConnection:
        """wsproto's client, its upgrade granted."""
        return _upgraded(self.send, self.got, request)

    def fin(self) -> None:
        self.connection.input.readConnectionLost()

    def lose(self) -> None:
        self.connection.input.connectionLost(Failure(ConnectionDone()))


def _upgraded(
    send: Callable[[bytes], None], got: Callable[[], bytes], request: dict[str, Any]
) -> WSConnection:
    client = WSConnection(ConnectionType.CLIENT)
    send(client.send(Request(host="gw", target="/ws", **request)))
    client.receive_data(got())
    assert isinstance(next(client.events()), AcceptConnection)
    return client


@dataclass
class Net:
    """A listener that has no port."""

    listener: Listener
    clock: Clock
    servers: list[Recorder] = field(default_factory=list)
    act: Make[None] = lambda connection, data: None
    _done: list[None] = field(default_factory=list)

    def connect(
        self, address: Any, transport: MemoryTransport | None = None
    ) -> Peer | None:
        """Come from there; None if that is rejected."""
        connection = self.listener.admit(address)
        if connection is None:
            return None
        peer = Peer(connection, transport or MemoryTransport())
        connection.input.makeConnection(peer.transport)
        return peer

    def peer(self, host: str = "192.0.2.1") -> Peer:
        """Come from there, and get in."""
        peer = self.connect(IPv4Address("TCP", host, 4000))
        assert peer is not None
        return peer

    @property
    def server(self) -> Recorder:
        """The latest."""
        return self.servers[-1]

    def drain(self) -> None:
        """In five seconds at the most."""
        self.listener.drain(5.0).addCallback(self._done.append)

    @property
    def drained(self) -> bool:
        """That is over; then no timer may be left."""
        assert not self._done or not self.clock.getDelayedCalls()
        return self._done == [None]

    def pass_time(self, seconds: float) -> None:
        """In steps small enough for the listener's timers."""
        for _ in range(int(seconds * 4)):
            self.clock.advance(0.25)


def settings(**changes: Any) -> SimpleNamespace:
    """One listener's configuration: defaults, but for what tests count on."""
    limits = {"minimum_rate": 100, "read_ahead_bytes": 1 << 20}
    limits.update(changes.pop("limits", {}))
    defaults = {
        "name": "beats",
        "protocol": "lumberjack",
        "listen": parse_endpoint("tcp:127.0.0.1:0"),
        "reuse_port": False,
        "websocket": None,
        "proxy_protocol": None,
        "tls": None,
    }
    limited = Limits.model_construct(**limits)
    return SimpleNamespace(limits=limited, **(defaults | changes))


MakeNet = Make[Net]

_OF_PORT = {field.name for field in fields(Port)}


@pytest.fixture
def make_net() -> MakeNet:
    """Make a listener; its server is a `Recorder`."""

    def make(
        act: Make[None] | None = None,
        keywords: dict[str, Any] | None = None,
        **changes: Any,
    ) -> Net:
        clock = Clock()
        names = (f"s{number}" for number in itertools.count(1))

        def accept(connection: Connection) -> Recorder:
            net.servers.append(Recorder(connection, net.act))
            return net.servers[-1]

        more = dict(keywords or {})
        unread_bytes = more.pop("unread_bytes", READ_BYTES)
        port = Port(
            accept=accept, **{name: more.pop(name) for name in _OF_PORT & more.keys()}
        )
        common = Common(clock, lambda: next(names), **more)
        listener = Listener(settings(**changes), port, common)
        listener.unread_bytes = unread_bytes  # less than a protocol may ask for
        net = Net(listener, clock)
        if act is not None:
            net.act = act
        listener.load_tls()
        listener.start_timers()
        return net

    return make


@pytest.fixture
def net(make_net) -> Net:
    """A listener with the defaults."""
    return make_net()


@pytest.fixture
def peer(net) -> Peer:
    """It has come to `net`, and is the first."""
    return net.peer()


@pytest.fixture
def make_paused(make_net) -> Make[tuple[Net, Peer]]:
    """Make a listener and a peer whose server pauses it at its first bytes."""

    def make(**keywords: Any) -> tuple[Net, Peer]:
        net = make_net(lambda connection, data: connection.pause(), keywords)
        peer = net.peer()
        peer.send(b"x")
        return net, peer

    return make


@pytest.fixture
def make_transport() -> type[MemoryTransport]:
    """A transport in memory, to be prepared before it is connected."""
    return MemoryTransport


@pytest.fixture
def refuse() -> Make[None]:
    """An `act` that finds fault with everything."""

    def act(connection: Connection, data: bytes) -> None:
        raise Refusal("bad frame", limit=7, key="limits.frames", reply=b"bye")

    return act


@pytest.fixture
def warnings(logged) -> Callable[[], list[str]]:
    """The texts of what was logged as more than information."""
    from twisted.logger import formatEvent

    def texts() -> list[str]:
        return [
            formatEvent(event)
            for event in logged
            if event["log_level"].name not in ("debug", "info")
        ]

    return texts


# TLS


@pytest.fixture
def authority(tmp_path) -> Authority:
    """A certificate authority of this test's own."""
    return Authority(tmp_path)


MakeTls = Make[SimpleNamespace]


@pytest.fixture
def make_tls(authority) -> MakeTls:
    """The `tls` section of a listener, with a certificate for localhost."""

    def make(**changes: Any) -> SimpleNamespace:
        certificate, key = authority.issue("server")
        defaults = {
            "certificate": certificate,
            "private_key": key,
            "client_auth": "none",
            "client_ca": None,
            "crl_files": [],
            "client_crl_expired": "refuse",
            "allowed_names": [],
            "minimum_version": "TLSv1.2",
        }
        return SimpleNamespace(**(defaults | changes))

    return make


class TlsPeer:
    """The standard library's TLS over a `Peer`, driven by hand."""

    def __init__(
        self, peer: Peer, context: ssl.SSLContext, session: ssl.SSLSession | None = None
    ) -> None:
        self.peer = peer
        self.context = context
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._in, self._out, server_hostname="localhost", session=session
        )

    def again(self, peer: Peer) -> TlsPeer:
        """The same client on another connection, with the ticket that it got."""
        return TlsPeer(peer, self.context, self.tls.session)

    def alert(self) -> bytes:
        """What is still to be sent after a handshake that failed."""
        return self._out.read()

    def pump(self) -> None:
        """Carry what either side has for the other, until there is nothing."""
        while self.step():
            pass

    def step(self) -> bool:
        """Carry what either side has for the other; whether there was something."""
        outgoing, incoming = self._out.read(), self.peer.got()
        if outgoing:
            self.peer.send(outgoing)
        self._in.write(incoming + self.peer.got())
        if self.tls.version() is None:
            self._try(self.tls.do_handshake)
        return bool(outgoing or incoming)

    def _try(self, what: Make, *arguments: Any) -> Any:
        try:
            return what(*arguments)
        except ssl.SSLWantReadError:
            return None

    def shake_hands(self) -> None:
        """Raises ssl.SSLError if the server will not."""
        self._try(self.tls.do_handshake)
        self.pump()
        self.read()

    def send(self, data: bytes) -> None:
        self.tls.write(data)
        self.pump()

    def read(self) -> bytes:
        self.pump()
        return self._try(self.tls.read, 1 << 20) or b""

    def upgrade(self, **request: Any) -> WSConnection:
        """wsproto's client on top, its upgrade granted."""
        return _upgraded(self.send, self.read, request)

    def close_notify(self) -> None:
        self._try(self.tls.unwrap)
        self.pump()


MakeTlsPeer = Make[TlsPeer]


@pytest.fixture
def tls_peer(authority) -> MakeTlsPeer:
    """Connect with TLS; the handshake is not done yet."""

    def make(
        peer: Peer,
        alpn: list[str] | None = None,
        cert: Any = None,
        trusts: Authority | None = None,
        newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
    ) -> TlsPeer:
        context = ssl.create_default_context(cafile=str((trusts or authority).ca))
        context.maximum_version = newest
        if alpn:
            context.set_alpn_protocols(alpn)
        if cert:
            context.load_cert_chain(*map(str, cert))
        return TlsPeer(peer, context)

    return make


@pytest.fixture
def tls(make_tls) -> Any:
    """The section of a listener that has a certificate, and asks for none."""
    return make_tls()


@pytest.fixture
def tls_net(make_net, tls) -> Any:
    """A listener with this `tls`."""
    return make_net(tls=tls)


@pytest.fixture
def mutual(make_net, make_tls, authority) -> Make:
    """A listener that asks for certificates."""

    def make(client_auth: str, *allowed: str) -> Any:
        tls = make_tls(
            client_auth=client_auth, client_ca=authority.ca, allowed_names=list(allowed)
        )
        return make_net(tls=tls)

    return make


# A real reactor, in a process of its own

_PRELUDE = """
import json, os, signal, socket, ssl, struct, sys, threading, time
from pathlib import Path
from types import SimpleNamespace
from twisted.internet import reactor
from twisted.internet.threads import deferToThread
from gateway.config.listener import Tls
from gateway.sdk.endpoint import parse_endpoint
from gateway.net import Common, Listener, CannotListen, raise_descriptor_limit
from gateway.sdk.limits import Limits
from gateway.sdk.protocol import Port

class Echo:
    made = []
    def __init__(self, connection):
        self.connection, self.data, self.gone = connection, b"", False
        Echo.made.append(self)
    def received(self, data):
        self.data += data
        self.connection.write(data)
    def closed(self):
        self.gone = True
    def drain(self):
        self.connection.close()

def make(accept=Echo, keywords=None, limits=None, **changes):
    limits = Limits.model_construct(**limits or {})
    base = dict(name="beats", protocol="lumberjack", listen="tcp:127.0.0.1:0",
                reuse_port=False, websocket=None, proxy_protocol=None, tls=None)
    base.update(changes)
    base["listen"] = parse_endpoint(base["listen"])
    number = iter(range(1 << 30))
    common = Common(reactor, lambda: f"s{next(number)}", **(keywords or {}))
    port = accept if isinstance(accept, Port) else Port(accept=accept)
    return Listener(SimpleNamespace(limits=limits, **base), port, common)

def serve(accept=Echo, **changes):
    "A listener that accepts connections; called from the thread."
    listener = make(accept, **changes)
    in_reactor(listener.bind)
    in_reactor(listener.start)
    return listener

def connect(listener):
    return socket.create_connection(where(listener))

def where(listener):
    host, _, port = listener.address.rpartition(":")
    return host, int(port)

def until(true):
    while not true():
        time.sleep(0.005)

def in_reactor(do, *arguments):
    from twisted.internet.threads import blockingCallFromThread
    return blockingCallFromThread(reactor, do, *arguments)

from collections import Counter
asked = Counter()

def count(owner, name):
    real = getattr(owner, name)
    def counted(*given):
        asked[name] += 1
        return real(*given)
    setattr(owner, name, counted)

def received(client, size):
    got = bytearray()
    while len(got) < size:
        piece = client.recv(1 << 16)
        assert piece, len(got)
        got += piece
    return bytes(got)

result = {}
def run(talk):
    "Run talk() in a thread beside the reactor; print what it left in `result`."
    def body():
        try:
            talk()
        except BaseException:
            import traceback
            result["error"] = traceback.format_exc()
        reactor.callFromThread(reactor.stop)
    reactor.callWhenRunning(lambda: threading.Thread(target=body, daemon=True).start())
    reactor.run()
    print(json.dumps(result))
"""


@pytest.fixture
def with_reactor(tmp_path) -> Make[dict[str, Any]]:
    """Run a script that has a reactor, and its `talk`; returns its `result`."""

    def run_script(script: str, **more: str) -> dict[str, Any]:
        done = run(
            *(sys.executable, script_file.__file__),
            f"{_PRELUDE}{textwrap.dedent(script)}\nrun(talk)\n",
            env={**environment(), "SCRATCH": str(tmp_path), **more},
        )
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert "error" not in result, result["error"]
        return result

    return run_script
