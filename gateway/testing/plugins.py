"""A protocol's service without a daemon: what `gateway.protocol.Context` lends, doubled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from gateway.config import Listener
from gateway.feeds.live import Live, Tap
from gateway.feeds.replay import Replay
from gateway.protocol import Context, Protocol
from gateway.store.directories import Directories
from gateway.testing import ManualJournal

__all__ = ["lend"]


def lend(
    protocol: Protocol,
    data_dir: Path,
    listeners: Sequence[Listener] = (),
    *,
    journal: Any = None,
    reactor: Any = None,
) -> Context:
    """A context on a journal in memory and a clock that the test moves.

    Directories are made below *data_dir*; nothing listens, so every address is
    `127.0.0.1:1`.
    """
    journal = ManualJournal() if journal is None else journal
    reactor = Clock() if reactor is None else reactor
    directories = Directories.under(data_dir)
    for path in (directories.journal / "node", directories.spool, directories.archive):
        path.mkdir(parents=True, exist_ok=True)
    decode = protocol.decoder([listener.options for listener in listeners])
    live = Live(
        "node",
        {protocol.name: decode},
        durable_lsn=lambda: 0,
        in_thread=maybeDeferred,
        clock=reactor,
    )
    return Context(
        node="node",
        listeners=listeners,
        journal=journal,
        reactor=reactor,
        decode=decode,
        feeds={
            "tap": Tap(live),
            "events": Replay(live, directories, in_thread=maybeDeferred),
        },
        data_dir=data_dir,
        directories=directories,
        address=lambda name: "127.0.0.1:1",
    )
