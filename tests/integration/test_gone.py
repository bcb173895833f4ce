"""Senders that give up while the spool is full: they are noticed, and nothing of what they
had not been acknowledged is stored afterwards, because they send it elsewhere.
"""

import contextlib
import os
import socket
import ssl
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from daemons import Daemon, archiving, full_spool, listener, tls
from deadlines import eventually

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: beats\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
BINARY, CLOSE = 2, 8
GONE = b'{"gone":true}'
V1 = b"1W" + struct.pack(">I", 1)
V1 += b"1D" + struct.pack(">III4sI4s", 1, 1, 4, b"gone", 4, b"true")
V2 = struct.pack(">2sI2sII", b"2W", 1, b"2J", 1, len(GONE)) + GONE


def message(kind: int, data: bytes) -> bytes:
    """A WebSocket frame of a client's, shorter than 126 bytes."""
    return bytes([0x80 | kind, 0x80 | len(data), 0, 0, 0, 0]) + data


def wave(peer: ssl.SSLSocket) -> None:
    """Send close_notify; the answer is not waited for."""
    peer.settimeout(0.0)
    with contextlib.suppress(OSError):
        peer.unwrap()


class Senders:
    """Each has sent a window that the daemon has no room for; how each leaves."""

    def __init__(self, daemon: Daemon, authority: Any) -> None:
        self._daemon = daemon
        self._context = ssl.create_default_context(cafile=str(authority.ca))
        self.open: list[socket.socket] = []

    def plain(self, data: bytes = V2, name: str = "beats") -> socket.socket:
        peer = socket.create_connection(self._daemon.address(name))
        self.open.append(peer)
        peer.sendall(data)
        return peer

    def sealed(self) -> ssl.SSLSocket:
        plain = self.plain(b"", "sealed")
        peer = self._context.wrap_socket(plain, server_hostname="localhost")
        self.open.append(peer)
        peer.sendall(V2)
        return peer

    def framed(self) -> socket.socket:
        peer = self.plain(UPGRADE, "framed")
        assert b" 101 " in peer.recv(1000)
        peer.sendall(message(BINARY, V2))
        return peer

    def with_fin(self) -> None:
        self.plain().shutdown(socket.SHUT_WR)

    def with_fin_of_v1(self) -> None:
        self.plain(V1).shutdown(socket.SHUT_WR)

    def with_reset(self) -> None:
        peer = self.plain()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()

    def with_close_notify(self) -> None:
        wave(self.sealed())

    def with_close_notify_and_fin(self) -> None:
        peer = self.sealed()
        wave(peer)
        socket.socket(fileno=os.dup(peer.fileno())).shutdown(socket.SHUT_WR)

    def with_a_close_frame(self) -> None:
        self.framed().sendall(message(CLOSE, b""))

    def with_a_close_frame_and_fin(self) -> None:
        peer = self.framed()
        peer.sendall(message(CLOSE, b""))
        peer.shutdown(socket.SHUT_WR)


@pytest.fixture
def full(start, authority) -> Iterator[Daemon]:
    """A daemon whose spool is full, with listeners of all kinds."""
    pair = authority.issue("localhost")
    daemon = start(
        listeners=[
            listener("beats", "lumberjack"),
            listener("sealed", "lumberjack", tls=tls(pair)),
            listener("framed", "lumberjack", websocket={"path": "/ws"}),
        ],
        spool={"max_bytes": "1MiB", "roll_bytes": "256KiB", "compression": "none"},
        journal={"segment_bytes": "256KiB"},
    )
    with full_spool(daemon):
        yield daemon


@pytest.fixture
def senders(full, authority) -> Iterator[Senders]:
    made = Senders(full, authority)
    yield made
    for each in made.open:
        each.close()


WAYS = {
    "beats": [Senders.with_fin, Senders.with_fin_of_v1, Senders.with_reset],
    "sealed": [Senders.with_close_notify, Senders.with_close_notify_and_fin],
    "framed": [Senders.with_a_close_frame, Senders.with_a_close_frame_and_fin],
}


def test_who_has_gone_is_dropped(full, senders):
    """While the spool is still full; when it is not any more the others are stored."""
    for name, ways in WAYS.items():
        others = 1 if name == "beats" else 0
        for way in ways:
            for _ in range(3):
                way(senders)
            eventually(
                lambda: full.listener(name)["connections"] == others,  # noqa: B023
                f"they are dropped: {way.__name__}",
            )
            assert full.status()["journal"]["why_full"]
    with archiving(full):
        eventually(lambda: full.status()["journal"]["why_full"] is None, "it flows")
        eventually(lambda: full.listener()["events"] == 50, "the other's are stored")
        full.settled()
        eventually(lambda: full.status()["ready"], "it is ready")
    rows = full.rows()
    assert len(rows) == 50
    assert not [row for row in rows if b"gone" in row["payload"]]
