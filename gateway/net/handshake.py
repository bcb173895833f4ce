"""Connection set-up: PROXY header, TLS, protocol detection, WebSocket upgrade, in order.

    socket -> PROXY header -> TLS -> protocol detection -> WebSocket -> Server.received
                                                  └─► HTTP/2 ────────► Server.received

Each is a state of `phase.Phase`, with a method here that takes the next bytes.  One that is
done lets the connection be in the next state, and hands it the rest.  A `SetUp` is there
until its connection is served, and no longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from gateway.event import Origin
from gateway.net.detect import Expected, ForeignProtocol, detect, mismatch, undecided
from gateway.net.phase import Phase
from gateway.net.proxy import ProxyHeader, ProxyHeaderParser
from gateway.net.tls_connection import TlsConnection
from gateway.net.transport import address_text
from gateway.net.websocket_frames import FrameDecoder
from gateway.net.websocket_upgrade import UpgradeParser
from gateway.sdk.http2 import PREFACE
from gateway.sdk.interfaces import Refusal

if TYPE_CHECKING:
    from gateway.net.connection import AcceptedConnection
    from gateway.net.listen import Listener

_T = TypeVar("_T")


class SetUp:
    """The steps of one connection, and what they hold back of its first bytes."""

    __slots__ = ("_connection", "_header", "_listener", "_partial")

    def __init__(self, connection: AcceptedConnection, listener: Listener) -> None:
        self._connection = connection
        self._listener = listener
        self._partial: ProxyHeaderParser | UpgradeParser | bytes = b""
        """The state of the step: a parser of its own, or bytes."""
        self._header: ProxyHeader | None = None
        """The PROXY header that a balancer has sent of its client."""

    def begin(self) -> None:
        """Nothing has come yet."""
        if self._listener.admission.expects_header(self._connection.host):
            self._partial = ProxyHeaderParser(names=self._listener.proxy_names)
            self._connection.become(Phase.PROXY_HEADER)
        else:
            self._peer_known()

    @property
    def is_spare(self) -> bool:
        """All is ready for its first bytes, of which there is none."""
        return self._connection.phase is Phase.FIRST_BYTES and not self._partial

    def take(self, data: bytes) -> None:
        """The next bytes; without TLS, once that is established."""
        match self._connection.phase:
            case Phase.PROXY_HEADER:
                self._read_proxy_header(data)
            case Phase.CLIENT_HELLO:
                self._read_client_hello(data)
            case Phase.FIRST_BYTES:
                self._detect(data)
            case Phase.UPGRADE:
                self._read_upgrade(data)

    def _parsed(
        self, feed: Callable[[bytes], _T | None], data: bytes, reason: str
    ) -> _T | None:
        """Parse; None if the parser needs more, or was sent what it rejects."""
        try:
            return feed(data)
        except Refusal as why:
            self._connection.ending.reject(why, reason)
            return None

    def _read_proxy_header(self, data: bytes) -> None:
        assert isinstance(self._partial, ProxyHeaderParser)
        header = self._parsed(self._partial.feed, data, "proxy")
        if header is None:
            return
        connection = self._connection
        connection.input.received = len(header.rest)
        if header.peer is not None:
            connection.origin.attributes = {"proxy": connection.origin.peer}
            connection.origin.peer = address_text(*header.peer)
            connection.host = header.peer[0]
        self._header = header
        if header.client is not None:
            connection.origin.principal = header.client.rfc4514_string()
        listener = self._listener
        if not (
            listener.admit_real_peer(connection)
            and (listener.tls or listener.admit_known_peer(connection))
        ):
            connection.ending.end()
            return
        self._partial = b""
        self._peer_known()
        if header.rest:
            connection.input.take(header.rest)

    def _peer_known(self) -> None:
        if self._listener.tls is not None:
            self._connection.become(Phase.CLIENT_HELLO)
        else:
            self._begin_plain()

    def _read_client_hello(self, data: bytes) -> None:
        tls, connection = self._listener.tls, self._connection
        assert tls is not None
        if data[0] != 0x16:
            self._mismatch(detect(data), data, tls=True)
            return
        connection.layered.tls = TlsConnection(tls, connection.transport)
        connection.become(Phase.TLS_HANDSHAKE)
        connection.input.take(data)

    def tls_established(self, tls: TlsConnection) -> None:
        """The handshake is done."""
        origin, header = self._connection.origin, self._header
        try:
            if header is not None and header.behind_tls:
                tls.allow(header.client)
            else:
                origin.principal = tls.principal()
        except Refusal as why:
            self._connection.ending.reject(why, "tls")
            return
        _add_attribute(origin, "tls", tls.version)
        if not self._listener.admit_known_peer(self._connection):
            self._connection.ending.end()
            return
        self._begin_plain()

    def _begin_plain(self) -> None:
        """Take plain bytes from here on, of the protocol or of another one."""
        self._connection.become(Phase.FIRST_BYTES)
        if self._listener.websocket is None:
            self._connection.calls.serve()

    def _detect(self, data: bytes) -> None:
        assert isinstance(self._partial, bytes)
        head, self._partial = self._partial + data, b""
        listener, connection = self._listener, self._connection
        if undecided(head, listener.prefixes):
            self._partial = head
            return
        found = detect(head, listener.prefixes)
        if found is ForeignProtocol.HTTP and listener.websocket is not None:
            self._partial = listener.upgrade_parser()
            connection.become(Phase.UPGRADE)
        elif listener.http2 and head.startswith(PREFACE):
            connection.become(Phase.SERVING)
            connection.calls.serve(listener.accept_http2)
        elif found is not None or listener.upgrades:
            self._mismatch(found, head, tls=False)
            return
        else:
            connection.become(Phase.SERVING)
            if listener.websocket is not None:
                connection.calls.serve()
        connection.input.take_plain(head)

    def _read_upgrade(self, data: bytes) -> None:
        assert isinstance(self._partial, UpgradeParser)
        upgrade = self._parsed(self._partial.feed, data, "websocket")
        if upgrade is None:
            return
        listener, connection = self._listener, self._connection
        if upgrade.subprotocol is not None:
            _add_attribute(connection.origin, "subprotocol", upgrade.subprotocol)
        connection.output.send(upgrade.response)
        if connection.phase is not Phase.UPGRADE:  # it is cut off, as it reads nothing
            return
        connection.layered.frames = FrameDecoder(
            listener.limits.message_bytes, text=listener.text
        )
        connection.become(Phase.SERVING)
        connection.calls.serve()
        if upgrade.rest:
            connection.input.take_plain(upgrade.rest)

    def _mismatch(
        self, found: ForeignProtocol | None, head: bytes, *, tls: bool
    ) -> None:
        listener = self._listener
        expected = Expected(listener.protocol, tls, listener.upgrades, listener.proxied)
        self._connection.ending.reject(mismatch(found, head, expected), "language")


def _add_attribute(origin: Origin, name: str, value: str) -> None:
    """One more attribute of every event."""
    origin.attributes = {**origin.attributes, name: value}
