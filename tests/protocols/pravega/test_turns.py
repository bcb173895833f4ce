"""Turns of the segment store: cheap messages delay nobody else for long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.protocols.pravega.codec import encode
from gateway.protocols.pravega.wire import AppendBlockEnd, KeepAlive, SetupAppend
from gateway.protocols.pravega.wire_segments import (
    CreateSegment,
    GetStreamSegmentInfo,
    ReadSegment,
)
from gateway.protocols.pravega.wire_tables import ReadTable

W = b"w" * 16


def _append(number: int, data: bytes = b"") -> AppendBlockEnd:
    return AppendBlockEnd(W, len(data), data, 1, number, 9)


@pytest.mark.parametrize(
    "message",
    [
        lambda _: KeepAlive(),
        lambda _: ReadSegment("", 0, 0, "", 1),
        lambda _: GetStreamSegmentInfo(1, "", ""),
        lambda _: SetupAppend(1, W, "s"),
        lambda _: ReadTable(1, "", "", []),
        lambda n: CreateSegment(n, f"t{n}", 0, 0),
        lambda n: _append(n + 1),
    ],
    ids=["keepalive", "read", "info", "setup", "table", "create", "append"],
)
def test_messages_of_a_few_bytes(
    make_store: Callable[..., Any], message: Callable[[int], Any]
) -> None:
    """No turn takes more than 500 of them; in the end all are taken."""
    store = make_store(unacknowledged_bytes=1 << 25, segments=5000)
    peer = store.peer()
    peer.setup()
    connection = peer.connection
    connection.stepwise = True
    connection.deliver(b"".join(encode(message(number)) for number in range(3000)))
    done = len(store.journal.submitted)
    while connection.turn_due:
        connection.take_turn()
        assert len(store.journal.submitted) - done <= 500
        done = len(store.journal.submitted)
    assert connection.turns >= 5
    assert connection.refused is None
    store.store()
    assert peer.got != []


def test_the_limit_holds_within_a_read(make_store: Callable[..., Any]) -> None:
    """What is over it stays, and is taken when there is room."""
    store = make_store(unacknowledged_bytes=10_000)
    peer = store.peer()
    peer.setup()
    event = bytes(4) + (1000).to_bytes(4) + bytes(1000)
    sent = b"".join(encode(_append(number, event)) for number in range(1, 101))
    peer.connection.deliver(sent)
    assert peer.connection.paused
    assert len(store.journal.pending) < 10
    while store.journal.pending:
        assert len(store.journal.pending) < 10
        store.journal.store()
        store.clock.advance(0)
    store.store()
    assert peer.got[-1].last_event == 100
