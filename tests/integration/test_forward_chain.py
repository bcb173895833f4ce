"""Edge, a gateway on the way and hub, as processes: the one in between has no events of its
own, and dies meanwhile.
"""

import sys

from daemons import Daemon, free_port, listener, spawn
from deadlines import eventually, finish

SECRETS = {"region": "one", "edge": "two"}


def archived(daemon: Daemon) -> dict[str, bytes]:
    """The edge's files that are there for good."""
    found = daemon.archive.glob("events-edge_*.parquet")
    return {path.name: path.read_bytes() for path in found}


def test_a_gateway_on_the_way(tmp_path):
    """Each file of the edge is at the hub as it was, once; also while the hub is away, and
    after kill -9 of the one in between.
    """
    ports = {"hub": free_port(), "region": free_port()}
    streams = free_port()

    def takes(name: str, who: str) -> list[dict[str, object]]:
        tokens = {
            "tokens": {who: SECRETS[who]},
            "nodes": {"region": ["region", "edge"]},
        }
        return [listener("edges", "forward", listen=f"tcp:127.0.0.1:{ports[name]}",
                         options=tokens)]  # fmt: skip

    def sends(to: str, who: str) -> dict[str, object]:
        return {"to": f"http://127.0.0.1:{ports[to]}", "token": SECRETS[who]}

    hub = Daemon(tmp_path / "hub", {
        "node": "hub", "listeners": takes("hub", "region"), "spool": {"after": "keep"},
    })  # fmt: skip
    region = Daemon(tmp_path / "region", {
        "node": "region", "listeners": takes("region", "edge"),
        "spool": {"after": "forward"}, "forward": sends("hub", "region"),
    })  # fmt: skip
    edge = Daemon(tmp_path / "edge", {
        "node": "edge",
        "listeners": [listener("in", "rsio", listen=f"tcp:127.0.0.1:{streams}")],
        "spool": {"after": "forward", "roll_interval": "100ms"},
        "forward": sends("region", "edge"),
    })  # fmt: skip

    def send(count: int) -> None:
        sender = spawn(
            [sys.executable, "-m", "gateway.cli", "send", "rsio", f"127.0.0.1:{streams}",
             "--generate", str(count), "--rate", "500"],
            tmp_path / "sender.log",
        )  # fmt: skip
        finish(sender)

    with hub, region, edge:
        send(300)
        eventually(lambda: len(archived(hub)) > 0, "files get to the hub")
        region.kill()
        send(200)
        region.start()
        hub.kill()
        send(200)
        eventually(lambda: not [*edge.spool.glob("events-*")], "all has left the edge")
        hub.start()
        eventually(lambda: archived(hub) == archived(edge), "the same is on both sides")
        eventually(
            lambda: not [*region.spool.glob("events-edge_*")], "none is on the way"
        )

        def known() -> dict[str, int]:
            """What each has noted, which is after it has moved the file."""
            at_region = region.status()["forward"]["nodes"]
            at_edge = edge.status()["forward"]["arrived_lsn"]
            return {"region": at_region.get("edge", 0), "edge": at_edge}

        everything = {"region": 700, "edge": 700}
        eventually(lambda: known() == everything, "both know how far all is")
        assert [*region.status()["forward"]["hub"]] == ["hub"]
        assert archived(region) == archived(edge)
    rows = [row for row in hub.rows() if row["node"] == "edge"]
    assert [row["lsn"] for row in rows] == [*range(1, 701)]
