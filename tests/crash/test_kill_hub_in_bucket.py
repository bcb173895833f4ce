"""kill -9 of an edge, and of a hub whose spool is in a bucket that is slow and fails: what the
edge acknowledged is in the bucket once, and the audit of both says so.
"""

import io
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter

import pyarrow.parquet as pq
import pytest

from daemons import Daemon, free_port, listener, spawn
from deadlines import eventually, run
from seaweeds import settings_of
from small_s3 import SmallS3, small_s3

SEED = int(
    os.environ.get("GATEWAY_KILL_SEED", str(random.SystemRandom().getrandbits(32)))
)


def files_of(server: SmallS3) -> dict[str, bytes]:
    """Those of the edge in the bucket."""
    return {
        name: data
        for name, data in dict(server.objects).items()
        if "/events-edge_" in name
    }


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("ack", ["journal", "spool"])
def test_kill_a_hub_in_a_bucket(tmp_path, ack):
    """Requests take their time, some fail, some of these were carried out.  With `ack:
    spool` the hub's disk is lost as well: what was told is in the bucket.
    """
    print(f"GATEWAY_KILL_SEED={SEED}")
    chance = random.Random(SEED)
    port, streams = free_port(), free_port()
    acked = tmp_path / "acked"
    with small_s3() as server:
        server.before = lambda method, name: time.sleep(chance.random() / 5)
        hub = Daemon(tmp_path / "hub", {
            "node": "hub", "ack": ack,
            "listeners": [listener("edges", "forward", listen=f"tcp:127.0.0.1:{port}",
                                   options={"tokens": {"edge": "secret"}})],
            "spool": {"directory": "s3://gateway/spool", "s3": settings_of(server.url)},
        })  # fmt: skip
        edge = Daemon(tmp_path / "edge", {
            "node": "edge",
            "listeners": [listener("in", "rsio", listen=f"tcp:127.0.0.1:{streams}")],
            "spool": {"after": "forward", "roll_interval": "100ms"},
            "forward": {"to": f"http://127.0.0.1:{port}", "token": "secret"},
        })  # fmt: skip
        with hub, edge:
            sender = spawn(
                [sys.executable, "-m", "gateway.cli", "send", "rsio",
                 f"127.0.0.1:{streams}", "--generate", "1000000000", "--rate", "500",
                 "--patience", "100000", "--acked", acked],
                tmp_path / "sender.log",
            )  # fmt: skip
            try:
                for which in ([hub], [edge], [hub, edge]):
                    more_arrive(server)
                    for one in which:
                        one.kill()
                    if ack == "spool" and which == [hub]:
                        shutil.rmtree(hub.data)
                    for one in which:
                        one.start()  # on a new disk it has to know what is there
                    server.faults = chance.choices([503, 0, -1], k=3)
                more_arrive(server)
            finally:
                sender.send_signal(signal.SIGTERM)
                sender.wait()
            edge.settled()
            eventually(
                lambda: not [*edge.spool.glob("events-*")], "all has left the edge"
            )
            eventually(
                lambda: not [*hub.spool.glob("events-*")], "all has left the hub"
            )
            done = run(
                *(sys.executable, "-m", "gateway.cli", "audit", "--config", hub.config),
                *("--gateway", str(edge.admin)),
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert "complete" in done.stdout
        rows = [
            row
            for data in files_of(server).values()
            for row in pq.read_table(io.BytesIO(data)).to_pylist()
        ]
    assert sorted(row["lsn"] for row in rows) == [*range(1, len(rows) + 1)]
    ids = Counter(json.loads(row["payload"])["event"]["id"] for row in rows)
    told = set(acked.read_text().split())
    assert told
    assert told <= ids.keys()
    assert set(ids.values()) == {1}


def more_arrive(server: SmallS3) -> None:
    """Wait until the bucket has some files more."""
    before = len(files_of(server))
    eventually(lambda: len(files_of(server)) > before + 2, "files get to the bucket")
