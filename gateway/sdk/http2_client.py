"""HTTP/2, client side, without I/O: a byte stream in one stream of a connection.

    client = Http2Client("gw.example", "/chat", "application/x-chat", tls=True)
    send(client.output())                 # the preface and a POST
    payload = client.feed(received)
    send(client.output())                 # what that made us owe, and what now fits
    send(client.message(b"..."))          # once `client.opened`

What the server's windows have no room for waits here (`waiting`).  A server that refuses
the request, or has no HTTP/2 there, is `closed` before it was `opened`.
"""

from __future__ import annotations

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from gateway.sdk.http2 import is_open

__all__ = ["Http2Client"]

_STREAM = 1
_WINDOW_BYTES = 1 << 20
_KIND_AT, _SETTINGS = 3, 4
"""The first frame is SETTINGS.  Where the peer speaks no HTTP/2, h2 would take its first bytes
for a length, and wait for as much."""


class Http2Client:
    """One connection's stream."""

    def __init__(self, host: str, path: str, content_type: str, *, tls: bool) -> None:
        """*path* may have a query."""
        self.opened = False
        """The server granted the request: messages may be sent."""
        self.closed = False
        """The server ended the stream, refused it or left: send `output` and close."""
        self.broken = False
        """Whether the peer broke the protocol."""
        self.trouble = ""
        """Why it was not opened, in words."""
        self._head: bytes | None = b""
        """The server's first bytes, while they are too few to know HTTP/2 by."""
        self._waiting = bytearray()
        self._ended = False
        self._h2 = H2Connection(H2Configuration(client_side=True))
        self._h2.local_settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW_BYTES,
            },
        )
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW_BYTES)
        fields = {":method": "POST", ":scheme": "https" if tls else "http",
                  ":authority": host, ":path": path, "content-type": content_type}  # fmt: skip
        self._type = content_type
        self._h2.send_headers(_STREAM, list(fields.items()))

    @property
    def waiting(self) -> int:
        """Bytes of messages that wait for the server's windows."""
        return len(self._waiting)

    def output(self) -> bytes:
        """The bytes to send now; may be empty."""
        return self._h2.data_to_send()

    def message(self, payload: bytes) -> bytes:
        """*payload*, as far as the windows take it; nothing once `closed`."""
        if not (self.closed or self._ended):
            self._waiting += payload
            self._fill()
        return self.output()

    def end(self) -> bytes:
        """No message comes any more: the end of our side, if all is sent."""
        if not (self._waiting or self._ended) and is_open(self._h2, _STREAM):
            self._ended = True
            self._h2.end_stream(_STREAM)
        return self.output()

    def feed(self, data: bytes) -> bytes:
        """The payload in any slicing of what the server sends."""
        payload: list[bytes] = []
        if self.closed:
            return b""
        if self._head is not None:
            data = self._head = self._head + data
            if len(data) < _KIND_AT + 1:
                return b""
            self._head = None
            if data[_KIND_AT] != _SETTINGS:
                self.closed = self.broken = True
                self.trouble = f"no HTTP/2 there, but {data[:16]!r}"
                return b""
        try:
            for event in self._h2.receive_data(data):
                if isinstance(event, DataReceived) and self.opened:
                    payload.append(event.data)
                self._handle(event)
            self._fill()
        except ProtocolError as why:
            self.closed = self.broken = True
            self.trouble = f"the server breaks HTTP/2: {why}"
        return b"".join(payload)

    def _handle(self, event: Event) -> None:
        match event:
            case DataReceived():
                length = event.flow_controlled_length or 0
                self._h2.acknowledge_received_data(length, _STREAM)
            case ResponseReceived():
                fields = {bytes(k): bytes(v) for k, v in event.headers}
                status = fields.get(b":status", b"").decode("latin-1")
                found = fields.get(b"content-type", b"").decode("latin-1")
                self.opened = (status, found) == ("200", self._type)
                if not self.opened:
                    self.closed = True
                    self.trouble = f"the request is answered with {status} ({found})"
            case StreamEnded() | StreamReset():
                self.closed = True
            case ConnectionTerminated(error_code=code):
                # As from a proxy that is about to stop.  It would let the stream go on;
                # h2 sends nothing more, and hears nothing.
                if code and not self.trouble:
                    self.trouble = f"the server leaves HTTP/2: {code!r}"
                self.closed = True

    def _fill(self) -> None:
        h2, waiting, at = self._h2, self._waiting, 0
        if not is_open(h2, _STREAM):
            waiting.clear()
        while at < len(waiting):
            room = min(
                h2.local_flow_control_window(_STREAM), h2.max_outbound_frame_size
            )
            if room <= 0:
                break
            h2.send_data(_STREAM, bytes(waiting[at : at + room]))
            at += room
        del waiting[:at]
