"""Blocking connections to a target: TCP, unix socket, TLS, WebSocket.

They may block, because a check waits for nothing else.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from pathlib import Path

from gateway.protocols.rsio.conformance.probe import Transport
from gateway.protocols.websocket_client import WebSocketClient

__all__ = ["SocketTransport", "TcpTransport", "UnixTransport", "WebSocketTransport"]

_CONNECT_SECONDS = 10.0


class SocketTransport:
    """A connection over an open socket."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def send(self, data: bytes) -> None:
        """See `Transport`."""
        self._socket.settimeout(_CONNECT_SECONDS)
        with contextlib.suppress(OSError):
            self._socket.sendall(data)

    def receive(self, seconds: float) -> bytes | None:
        """See `Transport`."""
        self._socket.settimeout(seconds)
        try:
            return self._socket.recv(1 << 18)
        except TimeoutError:
            return None
        except OSError:
            return b""

    def close(self) -> None:
        """See `Transport`."""
        self._socket.close()

    def reset(self) -> None:
        """See `Transport`."""
        linger = struct.pack("ii", 1, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._socket.close()


class TcpTransport(SocketTransport):
    """A connection to a host and a port; with *tls*, over TLS."""

    def __init__(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> None:
        made = socket.create_connection((host, port), _CONNECT_SECONDS)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(_secured(made, tls, host))


class UnixTransport(SocketTransport):
    """A connection to a socket in the file system; with *tls*, over TLS."""

    def __init__(self, path: Path, *, tls: ssl.SSLContext | None = None) -> None:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(_CONNECT_SECONDS)
        try:
            made.connect(str(path))
        except OSError:
            made.close()
            raise
        super().__init__(_secured(made, tls, "localhost"))


class WebSocketTransport:
    """A WebSocket over another connection: one binary message for each `send`."""

    def __init__(
        self, below: Transport, host: str, path: str, subprotocol: str
    ) -> None:
        """Raises OSError if the target does not accept the WebSocket."""
        self._below = below
        self._client = WebSocketClient(host, path, [subprotocol])
        self._data = b""
        self._over = False
        below.send(self._client.output())
        end = time.monotonic() + _CONNECT_SECONDS
        while not self._client.opened and not self._over and time.monotonic() < end:
            self._read(_CONNECT_SECONDS)
        if not self._client.opened:
            below.close()
            raise ConnectionError("the target accepts no WebSocket there")

    def send(self, data: bytes) -> None:
        """See `Transport`."""
        if not self._over:
            self._below.send(self._client.message(data))

    def receive(self, seconds: float) -> bytes | None:
        """See `Transport`."""
        end = time.monotonic() + seconds
        while not self._data and not self._over:
            left = end - time.monotonic()
            if left <= 0:
                return None
            self._read(left)
        data, self._data = self._data, b""
        return data

    def close(self) -> None:
        """See `Transport`."""
        self._below.close()

    def reset(self) -> None:
        """See `Transport`."""
        self._below.reset()

    def _read(self, seconds: float) -> None:
        data = self._below.receive(seconds)
        if data is None:
            return
        if not data:
            self._over = True
            return
        self._data += self._client.feed(data)
        if output := self._client.output():
            self._below.send(output)
        self._over = self._client.closed


def _secured(
    made: socket.socket, tls: ssl.SSLContext | None, name: str
) -> socket.socket:
    if tls is None:
        return made
    try:
        return tls.wrap_socket(made, server_hostname=name)
    except OSError:
        made.close()
        raise
