"""A `Link` over TCP, blocking: a check waits for nothing else."""

from __future__ import annotations

import contextlib
import socket
import struct

__all__ = ["TcpLink"]

_CONNECT_SECONDS = 10.0


class TcpLink:
    """A connection to a target somewhere."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), _CONNECT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        """See `Link`."""
        self._socket.settimeout(_CONNECT_SECONDS)
        with contextlib.suppress(OSError):
            self._socket.sendall(data)

    def receive(self, seconds: float) -> bytes | None:
        """See `Link`."""
        self._socket.settimeout(seconds)
        try:
            return self._socket.recv(1 << 18)
        except TimeoutError:
            return None
        except OSError:
            return b""

    def close(self) -> None:
        """See `Link`."""
        self._socket.close()

    def reset(self) -> None:
        """See `Link`."""
        linger = struct.pack("ii", 1, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._socket.close()
