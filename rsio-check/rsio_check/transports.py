"""Blocking connections to a target: TCP, unix socket, TLS, WebSocket.

They may block, because a test waits for nothing else.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from pathlib import Path
from typing import Protocol

from rsio_check.websocket import WebSocket, WebSocketFailed

__all__ = [
    "SocketTransport",
    "Transport",
    "WebSocketTransport",
    "over_tcp",
    "over_unix",
]

_CONNECT_SECONDS = 10.0
SUBPROTOCOL = "rsio.v0"
ALPN = "rsio/0"


class Transport(Protocol):
    """A connection to the target."""

    def send(self, data: bytes) -> None:
        """Write; that the target has closed is no error."""

    def receive(self, seconds: float) -> bytes | None:
        """What arrives; None if nothing does in time, b"" at the end."""

    def close(self) -> None:
        """Close."""

    def reset(self) -> None:
        """Close with an RST."""


class SocketTransport:
    """A connection over an open socket.

    What arrives while a target does not read is kept, so that neither side waits for
    the other for ever.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._early = b""
        """What came while we wrote."""
        self._over = False

    def send(self, data: bytes) -> None:
        """See `Transport`."""
        view = memoryview(data)
        end = time.monotonic() + _CONNECT_SECONDS
        while view and not self._over and time.monotonic() < end:
            self._socket.settimeout(0.05)
            try:
                view = view[self._socket.send(view) :]
                end = time.monotonic() + _CONNECT_SECONDS
            except TimeoutError:
                self._read_early()
            except OSError:
                return

    def _read_early(self) -> None:
        more = self._receive(0.05)
        if more is not None:
            self._over = not more
            self._early += more

    def receive(self, seconds: float) -> bytes | None:
        """See `Transport`."""
        if self._early:
            early, self._early = self._early, b""
            return early
        return b"" if self._over else self._receive(seconds)

    def _receive(self, seconds: float) -> bytes | None:
        self._socket.settimeout(max(seconds, 0.001))
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
        with contextlib.suppress(OSError):
            linger = struct.pack("ii", 1, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._socket.close()


def over_tcp(
    host: str, port: int, *, tls: ssl.SSLContext | None = None
) -> SocketTransport:
    """A connection to a host and a port.  Raises OSError."""
    made = socket.create_connection((host, port), _CONNECT_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return SocketTransport(_secured(made, tls, host))


def over_unix(path: Path, *, tls: ssl.SSLContext | None = None) -> SocketTransport:
    """A connection to a socket in the file system.  Raises OSError."""
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(_CONNECT_SECONDS)
    try:
        made.connect(str(path))
    except OSError:
        made.close()
        raise
    return SocketTransport(_secured(made, tls, "localhost"))


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


class WebSocketTransport:
    """A WebSocket over another connection: one binary message for each `send`."""

    def __init__(self, below: Transport, host: str, path: str) -> None:
        """Raises OSError if the target does not accept the WebSocket."""
        self._below = below
        self.web = WebSocket(host, path, SUBPROTOCOL)
        self._data = b""
        self._over = False
        below.send(self.web.request)
        end = time.monotonic() + _CONNECT_SECONDS
        while not (self.web.opened or self._over) and time.monotonic() < end:
            self._read(_CONNECT_SECONDS)
        if not self.web.opened:
            below.close()
            raise ConnectionError("the target accepts no WebSocket there")

    def send(self, data: bytes) -> None:
        """See `Transport`."""
        if not self._over:
            self._below.send(self.web.binary(data))

    def send_text(self, text: str) -> None:
        """Send a text message, which RS.io does not have."""
        self._below.send(self.web.text(text))

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
        try:
            self._data += self.web.feed(data)
        except WebSocketFailed as why:
            self._below.close()
            raise ConnectionError(str(why)) from None
        if answer := self.web.answer():
            self._below.send(answer)
        self._over = self.web.closed is not None
