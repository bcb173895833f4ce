"""Blocking connections to a target: TCP, unix socket, TLS, WebSocket, HTTP/2.

They may block, because a test waits for nothing else.  HTTP/2 is that of the package h2,
which has to be there for it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from pathlib import Path
from typing import Any, Protocol

from rsio_check.websocket import WebSocket, WebSocketFailed

_CONNECT_SECONDS = 10.0
SUBPROTOCOL = "rsio.v0"
ALPN = "rsio/0"
CONTENT_TYPE = "application/rs-io"


def reason(why: Exception) -> str:
    """An error in words, without its number."""
    if isinstance(why, UnicodeDecodeError):
        return "not UTF-8"
    text = getattr(why, "strerror", None) or str(why) or type(why).__name__
    return f"{text[0].lower()}{text[1:]}"


class Transport(Protocol):
    """A connection to the target."""

    def send(self, data: bytes) -> None:
        """Write; that the target has closed is no error."""

    def receive(self, seconds: float) -> bytes | None:
        """The next bytes; None if none come in time, b"" at the end."""

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
        """Bytes that came while we wrote."""
        self._over = False

    def send(self, data: bytes) -> None:
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
        self._socket.close()

    def reset(self) -> None:
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


class _Layered:
    """A connection over another one."""

    def __init__(self, below: Transport) -> None:
        self._below = below
        self._data = b""
        self._over = False

    def receive(self, seconds: float) -> bytes | None:
        end = time.monotonic() + seconds
        while not self._data and not self._over:
            left = end - time.monotonic()
            if left <= 0:
                return None
            self._read(left)
        data, self._data = self._data, b""
        return data

    def close(self) -> None:
        self._below.close()

    def reset(self) -> None:
        self._below.reset()

    def _read(self, seconds: float) -> None:
        """Take what arrives below."""
        raise NotImplementedError


class WebSocketTransport(_Layered):
    """A WebSocket over another connection: one binary message for each `send`."""

    def __init__(self, below: Transport, host: str, path: str) -> None:
        """Raises OSError if the target does not accept the WebSocket."""
        super().__init__(below)
        self.web = WebSocket(host, path, SUBPROTOCOL)
        below.send(self.web.request)
        end = time.monotonic() + _CONNECT_SECONDS
        while not (self.web.opened or self._over) and time.monotonic() < end:
            self._read(_CONNECT_SECONDS)
        if not self.web.opened:
            below.close()
            raise ConnectionError("the target accepts no WebSocket there")

    def send(self, data: bytes) -> None:
        if not self._over:
            self._below.send(self.web.binary(data))

    def send_text(self, text: str) -> None:
        """Send a text message, which RS.io does not have."""
        self._below.send(self.web.text(text))

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


class Http2Transport(_Layered):
    """One stream of HTTP/2 over another connection, which a POST opens."""

    def __init__(self, below: Transport, host: str, path: str, scheme: str) -> None:
        """Raises OSError if the target does not grant the stream, at once and as such."""
        from h2.config import H2Configuration
        from h2.connection import H2Connection

        super().__init__(below)
        self._h2 = H2Connection(H2Configuration(client_side=True))
        self._head: dict[str, str] = {}
        self._h2.initiate_connection()
        fields = {":method": "POST", ":scheme": scheme, ":authority": host,
                  ":path": path, "content-type": CONTENT_TYPE}  # fmt: skip
        self._h2.send_headers(1, list(fields.items()))
        self._flush()
        end = time.monotonic() + _CONNECT_SECONDS
        while not (self._head or self._over) and time.monotonic() < end:
            self._read(_CONNECT_SECONDS)
        status, kind = (self._head.get(name) for name in (":status", "content-type"))
        if (status, kind) != ("200", CONTENT_TYPE):
            below.close()
            what = f"status {status}, type {kind}" if self._head else "no answer"
            raise ConnectionError(f"the target grants no stream of HTTP/2: {what}")

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        end = time.monotonic() + _CONNECT_SECONDS
        while view and not self._over and time.monotonic() < end:
            room = self._h2.local_flow_control_window(1)
            size = min(room, self._h2.max_outbound_frame_size, len(view))
            if size:
                self._h2.send_data(1, view[:size].tobytes())
                self._flush()
                view = view[size:]
                end = time.monotonic() + _CONNECT_SECONDS
            else:
                self._read(0.05)

    def _flush(self) -> None:
        if output := self._h2.data_to_send():
            self._below.send(output)

    def _read(self, seconds: float) -> None:
        from h2.exceptions import ProtocolError

        data = self._below.receive(seconds)
        if data is None:
            return
        self._over = not data
        try:
            for event in self._h2.receive_data(data):
                self._take(event)
        except ProtocolError as why:
            self._below.close()
            raise ConnectionError(f"the target breaks HTTP/2: {why}") from None
        self._flush()

    def _take(self, event: Any) -> None:
        from h2 import events

        if isinstance(event, events.ResponseReceived):
            self._head = {
                bytes(name).decode("latin-1"): bytes(value).decode("latin-1")
                for name, value in event.headers
            }
        elif isinstance(event, events.DataReceived):
            self._data += event.data
            self._h2.acknowledge_received_data(event.flow_controlled_length or 0, 1)
        elif isinstance(
            event, events.StreamEnded | events.StreamReset | events.ConnectionTerminated
        ):
            self._over = True
