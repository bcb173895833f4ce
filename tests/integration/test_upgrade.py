"""A directory that an earlier version was killed on, and this version after it.

`data-dir-2026-11-22.tar.xz` is of commit 75775e2, the first with journals of format 2:
twenty events in each of four protocols, a stop, twenty more, kill -9; and the ids that
were acknowledged.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from daemons import Daemon, listener
from gateway.protocols.pravega.wire import AppendSetup, SetupAppend
from pravega_socket import Client

ARCHIVE = Path(__file__).parents[1] / "vectors" / "data-dir-2026-11-22.tar.xz"
PROTOCOLS = ("lumberjack", "pomelo", "pravega", "rsio")


def test_nothing_that_an_earlier_version_took_is_lost(
    prepare: Callable[..., Any], tmp_path: Path
) -> None:
    """What it had published stays, what it had not is published once; and what it
    remembered of writers and senders is remembered.
    """
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    names = zip(("beats", "game", "streams", "reactive"), PROTOCOLS, strict=True)
    daemon: Daemon = prepare(listeners=[listener(*each) for each in names])
    (tmp_path / "data").rename(daemon.data)
    daemon.start()
    daemon.settled(160)
    rows = daemon.rows()
    assert {row["flaw"] for row in rows} == {None}
    stored = [json.loads(row["payload"]) for row in rows if row["kind"] != "session"]
    said = [str(event) for event in stored]
    for protocol in PROTOCOLS:
        acknowledged = (tmp_path / f"acked.{protocol}").read_text().split()
        assert len(acknowledged) == 40
        for one in acknowledged:
            assert sum(one in event for event in said) == 1, one

    last = [row for row in rows if row["protocol"] == "pravega"][-1]
    writer = Client(daemon.address("streams"))
    told = writer.ask(
        SetupAppend(1, UUID(last["attributes"]["writer"]).bytes, last["channel"], ""),
        AppendSetup,
    )
    writer.close()
    assert told.last_event == int(last["attributes"]["event_number"])
    assert b"gateway_rsio_names 2.0\n" in daemon.get("/metrics")
