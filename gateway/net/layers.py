"""Layers between the socket of a connection and its protocol's bytes: TLS, WebSocket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.python.failure import Failure

from gateway.net.phase import Phase
from gateway.net.tls_connection import TlsConnection
from gateway.net.websocket_frames import FrameDecoder
from gateway.sdk.interfaces import Refusal

if TYPE_CHECKING:
    from gateway.net.connection import AcceptedConnection

_BARE_BYTES = 1 << 16
"""The most of TLS without data in it, in a row; a record has at most 16 KiB."""


class Layers:
    """The layers of one connection; an end in either is the end of both directions."""

    __slots__ = ("_connection", "frames", "tls")

    def __init__(self, connection: AcceptedConnection) -> None:
        self._connection = connection
        self.tls: TlsConnection | None = None
        self.frames: FrameDecoder | None = None

    def decrypt(self, tls: TlsConnection, data: bytes) -> None:
        """Take what the socket brought."""
        connection = self._connection
        input_ = connection.input
        plain = tls.feed(data)
        if input_.setup is not None and connection.phase is Phase.TLS_HANDSHAKE:
            if tls.established:
                input_.setup.tls_established(tls)
        elif tls.bare_bytes > _BARE_BYTES:
            rule = "TLS without data: new keys again and again, or empty records"
            connection.ending.reject(Refusal(rule, limit=f"{_BARE_BYTES} bytes"), "tls")
        if plain:
            input_.take_plain(plain)
        if self.tls is not None and tls.over:
            input_.peer_ended()

    def unframe(self, frames: FrameDecoder, data: bytes) -> None:
        """Take what has come of frames."""
        connection = self._connection
        try:
            payload = frames.feed(data)
        except Refusal as why:
            connection.ending.reject(why, "websocket")
            return
        if output := frames.output():
            connection.output.send(output)
        if payload:
            connection.input.put(payload)
        if frames.closed:
            connection.input.peer_ended()

    def tick(self) -> None:
        """Some seconds have passed: let go of what buffers have grown to."""
        if self.frames is not None:
            self.frames.tick()
        if self.tls is not None:
            self.tls.renew_buffers()

    def stop(self, reason: Failure) -> None:
        """The transport is lost."""
        tls, self.tls, self.frames = self.tls, None, None
        if tls is not None:
            tls.stop(reason)
            if not tls.established and tls.failure:
                failed = Refusal(f"TLS handshake failed: {tls.failure}")
                self._connection.ending.broke(failed, "tls")
