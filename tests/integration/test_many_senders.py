"""Senders that behave, of whom all together begin more than the daemon may hold: each of
their windows is taken, and none of them is closed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

MiB = 1 << 20
SENDERS, WINDOWS = 40, 3


@pytest.mark.parametrize(
    "addresses", [pytest.param(1, marks=pytest.mark.long), SENDERS]
)
def test_many_windows_at_once(start, connect, addresses):
    """Five times as much as may be held, all in the middle of a window at any time."""
    daemon = start(journal={"memory_bytes": "16MiB"})
    peers = [
        connect(daemon.address(), f"127.0.6.{1 + number % addresses}")
        for number in range(SENDERS)
    ]

    def send(number: int) -> None:
        peer, acks = peers[number], peers[number].acks()
        for window in range(WINDOWS):
            events = [b'{"n":"%d %d %d"}' % (number, window, n) for n in range(16)]
            peer.send(peer.window(*(event.ljust(1 << 16) for event in events)))
            assert next(ack for ack in acks if ack) == peer.sequence

    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(send, range(SENDERS)))
    assert daemon.listener()["rejected"] == {}
    daemon.settled()
    assert len(daemon.rows()) == SENDERS * WINDOWS * 16
