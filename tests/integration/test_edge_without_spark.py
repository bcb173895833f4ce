"""What an edge needs: no Spark, and no Java."""

import os
import sys

import pytest

import deadlines
from daemons import Daemon, free_port, listener
from deadlines import eventually
from gateway_testkit.daemon import environment


class Bare(Daemon):
    """One whose Python can not import what only the Spark job needs."""

    fresh = True

    @property
    def environment(self) -> dict[str, str]:
        found = environment()
        for name in ("pyspark", "py4j"):
            package = self.config.parent / "absent" / name
            package.mkdir(parents=True, exist_ok=True)
            (package / "__init__.py").write_text(
                "print('somebody wants Spark', flush=True)\nraise ImportError\n"
            )
        path = str(self.config.parent / "absent")
        return {**found, "PYTHONPATH": os.pathsep.join([path, found["PYTHONPATH"]])}


@pytest.mark.timeout(300)
def test_an_edge_starts_and_forwards_without_spark(tmp_path):
    """Nor does a hub need it, to take files; neither even tries to import it."""
    port = free_port()
    edges = listener("edges", "forward", listen=f"tcp:127.0.0.1:{port}")
    keep = {"after": "keep"}
    hub = Bare(tmp_path / "hub", {"node": "hub", "listeners": [edges], "spool": keep})
    edge = Bare(
        tmp_path / "edge",
        {
            "node": "edge",
            "spool": {"after": "forward", "roll_interval": "100ms"},
            "forward": {"to": f"http://127.0.0.1:{port}"},
        },
    )
    with hub, edge:
        host, beats = edge.address()
        sent = deadlines.run(
            sys.executable, "-m", "gateway.cli", "send", "lumberjack", f"{host}:{beats}",
            "--generate", "200",
        )  # fmt: skip
        assert sent.returncode == 0, sent.stderr
        eventually(
            lambda: hub.status()["arrivals"]["events"] == 200, "all gets to the hub"
        )
        # Which is counted before the last file has its name there.
        eventually(lambda: not [*edge.spool.glob("events-*")], "all has left the edge")
    for one in (hub, edge):
        assert "somebody wants Spark" not in one.log
    assert sum(row["node"] == "edge" for row in hub.rows()) == 200
