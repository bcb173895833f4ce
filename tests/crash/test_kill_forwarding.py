"""kill -9 of an edge, of its hub and of both, while senders send: what the edge acknowledged
is at the hub once, as it was.

Real processes, over TLS with certificates on both sides.  What becomes of the line in every
place is in `tests/forward`, in memory.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from daemons import Daemon, free_port, listener, spawn, tls
from deadlines import eventually
from gateway_testkit.certificates import Authority

SEED = int(
    os.environ.get("GATEWAY_KILL_SEED", str(random.SystemRandom().getrandbits(32)))
)
KILLS = 6


def archived(daemon: Daemon) -> dict[str, bytes]:
    """What has come all the way there."""
    found = daemon.archive.glob("events-edge-*.parquet")
    return {path.name: path.read_bytes() for path in found}


def more_arrive(hub: Daemon) -> None:
    """Wait until the hub has some files more."""
    before = len(archived(hub))
    eventually(lambda: len(archived(hub)) > before + 2, "files get to the hub")


def more_is_acknowledged(acked: Path) -> None:
    """Wait until the edge has acknowledged more."""
    before = acked.stat().st_size
    eventually(lambda: acked.stat().st_size > before, "the edge acknowledges")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_kill_the_edge_and_the_hub(tmp_path: Path) -> None:
    """Each acknowledged event is there once, under the edge's own names, in files that are
    the edge's byte for byte; the edge has none left to send.
    """
    print(f"GATEWAY_KILL_SEED={SEED}")
    chance = random.Random(SEED)
    authority = Authority(tmp_path / "certificates")
    # One that ended within two weeks would be told first.
    ours = authority.issue("hub")
    theirs = authority.issue("edge", valid=timedelta(days=90))
    port, streams = free_port(), free_port()
    shown = tls(ours, client_auth="required", client_ca=str(authority.ca))
    hub = Daemon(tmp_path / "hub", {
        "node": "hub",
        "listeners": [listener("edges", "forward", listen=f"tcp:127.0.0.1:{port}",
                               tls=shown, options={"tokens": {"edge": "secret"}})],
        "spool": {"after": "keep"},
    })  # fmt: skip
    edge = Daemon(tmp_path / "edge", {
        "node": "edge",
        "listeners": [listener("in", "rsio", listen=f"tcp:127.0.0.1:{streams}")],
        "spool": {"after": "forward", "roll_interval": "100ms"},
        "forward": {
            "to": f"tls://localhost:{port}", "token": "secret", "ca": str(authority.ca),
            "certificate": str(theirs.certificate), "private_key": str(theirs.key),
        },
    })  # fmt: skip
    acked = tmp_path / "acked"
    with hub, edge:
        sender = spawn(
            [sys.executable, "-m", "gateway.cli", "send", "rsio", f"127.0.0.1:{streams}",
             "--generate", "1000000000", "--rate", "500", "--connections", "2",
             "--patience", "100000", "--acked", acked],
            tmp_path / "sender.log",
        )  # fmt: skip
        try:
            for number in range(KILLS):
                more_arrive(hub)
                which = [[edge], [hub], [edge, hub]][number % 3]
                chance.shuffle(which)
                for one in which:
                    one.kill()
                if edge not in which and chance.random() < 0.5:
                    more_is_acknowledged(acked)  # without the hub
                for one in which:
                    one.start()
            more_arrive(hub)
        finally:
            sender.send_signal(signal.SIGTERM)
            sender.wait()
        edge.settled()
        eventually(lambda: not [*edge.spool.glob("events-*")], "all has left the edge")

        def fresh() -> dict[str, Any] | None:
            """What it says once it has noted that, which is after the last file is moved."""
            status: dict[str, Any] = edge.status()
            return None if status["freshness"]["age_seconds"] else status

        status = eventually(fresh, "all is at the hub")
        assert status["forward"]["connected"]
        assert status["freshness"]["goal"] == "hub"
        assert "at the hub" in status["sentence"]
        eventually(lambda: archived(hub) == archived(edge), "the same is on both sides")
        eventually(
            lambda: hub.status()["arrivals"]["connections"] == 1, "one connection"
        )
    rows = [row for row in hub.rows() if row["node"] == "edge"]
    ids = Counter(json.loads(row["payload"])["event"]["id"] for row in rows)
    told = set(acked.read_text().split())
    assert told
    assert told <= ids.keys()
    assert set(ids.values()) == {1}
