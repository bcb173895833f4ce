"""WebSocket, client side, without I/O (RFC 6455): a byte stream in binary messages.

    client = WebSocketClient("gw.example", "/rs", ["chat.v0"])
    send(client.output())                 # the request
    payload = client.feed(received)
    send(client.output())                 # what that made us owe: a Pong, a Close
    send(client.message(b"..."))          # once `client.opened`

Message borders mean nothing to what is carried.
"""

from __future__ import annotations

from collections.abc import Sequence

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    Request,
)
from wsproto.utilities import ProtocolError

__all__ = ["WebSocketClient"]


class WebSocketClient:
    """One connection's WebSocket."""

    def __init__(self, host: str, path: str, subprotocols: Sequence[str] = ()) -> None:
        """*subprotocols* are offered; *path* may have a query."""
        self.opened = False
        """The server granted the request: messages may be sent."""
        self.closed = False
        """The server sent Close, rejected the request or broke the protocol: send
        `output` and close the connection."""
        self.broken = False
        """Whether the peer broke the protocol where no Close can answer, as in the upgrade."""
        self.trouble = ""
        """Why it was not opened, or ended, in words; empty if nothing was said."""
        self._wsproto = WSConnection(ConnectionType.CLIENT)
        request = Request(host=host, target=path, subprotocols=list(subprotocols))
        self._output = self._wsproto.send(request)

    def output(self) -> bytes:
        """The bytes to send now beside messages; may be empty."""
        output, self._output = self._output, b""
        return output

    def message(self, payload: bytes) -> bytes:
        """*payload* as one binary message; nothing once `closed`."""
        return b"" if self.closed else self._wsproto.send(BytesMessage(payload))

    def feed(self, data: bytes) -> bytes:
        """The payload in any slicing of what the server sends."""
        payload: list[bytes | bytearray] = []
        if self.closed:
            return b""
        try:
            self._wsproto.receive_data(data)
            for event in self._wsproto.events():
                if isinstance(event, BytesMessage):
                    payload.append(event.data)
                else:
                    self._handle(event)
        except (ProtocolError, UnicodeDecodeError) as why:
            self.closed = self.broken = True
            self.trouble = f"no WebSocket there: {why}"
        return b"".join(payload)

    def _handle(self, event: Event) -> None:
        if isinstance(event, AcceptConnection):
            self.opened = True
        elif isinstance(event, Ping):
            self._output += self._wsproto.send(event.response())
        elif isinstance(event, CloseConnection):
            self._output += self._wsproto.send(event.response())
            self.closed = True
            if event.reason:
                self.trouble = f"the WebSocket ends with {event.code}: {event.reason}"
        elif isinstance(event, RejectConnection):
            self.closed = True
            self.trouble = f"the WebSocket is answered with {event.status_code}"
