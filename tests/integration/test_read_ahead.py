"""Many senders that are held back at once: what is read of them meanwhile is bounded."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from daemons import Daemon, full_spool, listener
from deadlines import eventually, rest

MiB = 1 << 20
SENDERS = 200
SMALL = struct.pack(">2sI2sII", b"2W", 1, b"2J", 1, 2) + b"{}"
MANY = (struct.pack(">2sI2sII", b"2W", 1, b"2J", 1, 16_384) + b"x" * 16_384) * 128
"""2 MiB of windows."""


@pytest.fixture
def full(start: Callable[..., Daemon]) -> Iterator[Daemon]:
    """A daemon whose spool is full, and which may read 16 MiB ahead."""
    daemon = start(
        listeners=[listener("beats", "lumberjack")],
        spool={"max_bytes": "1MiB", "roll_bytes": "256KiB", "compression": "none"},
        journal={"segment_bytes": "256KiB", "memory_bytes": "64MiB"},
    )
    with full_spool(daemon):
        yield daemon


@pytest.mark.fresh
@pytest.mark.slow
def test_two_hundred_senders(full):
    """Of 400 MiB that they send, no more than the common budget comes into memory, and
    nobody is let go for it.
    """
    peers = [socket.create_connection(full.address()) for _ in range(SENDERS)]
    for peer in peers:
        peer.sendall(SMALL)
    eventually(
        lambda: full.listener()["connections"] == SENDERS + 1, "all are connected"
    )
    before, read = full.memory(), full.listener()["bytes"]

    def send(peer: socket.socket) -> None:
        with contextlib.suppress(OSError):
            peer.sendall(MANY)

    threads = [threading.Thread(target=send, args=(one,), daemon=True) for one in peers]
    for one in threads:
        one.start()
    eventually(lambda: full.listener()["bytes"] - read > 2 * MiB, "it reads ahead")
    for _ in range(5):
        rest(2.0)
        assert full.memory() - before < 32 * MiB
    assert full.listener()["connections"] == SENDERS + 1
    assert "refused" not in full.log
    for peer in peers:
        peer.close()
