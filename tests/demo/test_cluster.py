"""The demo of a cluster: its set-up, what it misses, what is killed when; starts nothing."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway import config
from gateway.config.bucket import BucketUrl
from gateway.sdk.command import WrongUse
from gateway_demo import command
from gateway_demo.cluster import needs
from gateway_demo.cluster.losses import Losses
from gateway_demo.cluster.progress import NodeProgress, Progress
from gateway_demo.cluster.setup import NODES, Setup, prepare
from gateway_testkit import seaweed


@pytest.fixture
def weed(tmp_path, monkeypatch) -> None:
    """There is a server, whatever the platform."""
    monkeypatch.setattr(seaweed, "program", lambda: tmp_path / "weed")


@pytest.fixture
def setup(tmp_path, weed) -> Setup:
    return prepare(tmp_path / "demo")


def test_gateways_and_job_meet_in_one_bucket(setup):
    """Each has a disk of its own; what is acknowledged is in the bucket."""
    gateways = [config.load(node.config) for node in setup.nodes]
    job = config.load(setup.job)
    assert [one.node for one in gateways] == list(NODES)
    assert {one.spool.bucket for one in (*gateways, job)} == {
        BucketUrl("gateway", "spool")
    }
    assert {one.ack for one in gateways} == {"spool"}
    assert len({one.data_dir for one in (*gateways, job)}) == len(NODES) + 1
    assert job.spark.master.startswith("spark://127.0.0.1:")
    assert job.spark.sink == "iceberg"


def test_every_sender_has_its_listener(setup):
    """And every node a sender."""
    nodes = {node.name: node for node in setup.nodes}
    for name, traffic in setup.traffic:
        listeners = config.load(nodes[name].config).listeners
        [listener] = [one for one in listeners if one.name == traffic.listener]
        assert listener.protocol == traffic.protocol
        assert str(listener.listen) == f"tcp:{nodes[name].addresses[listener.name]}"
    assert {name for name, _ in setup.traffic} == set(NODES)


def test_only_this_machine_is_asked(setup):
    """The server tells nobody of itself."""
    assert "-master.telemetry=false" in setup.server.command
    assert "-ip.bind=127.0.0.1" in setup.server.command
    text = setup.job.read_text()
    assert "spark.driver.bindAddress: 127.0.0.1" in text


def test_jars_of_a_folder_take_the_place_of_mavens(tmp_path, weed):
    setup = prepare(tmp_path / "demo", tmp_path / "jars")
    job = config.load(setup.job)
    assert job.spark.jars_directory == tmp_path / "jars"


def test_all_that_is_missing_is_told_at_once(monkeypatch, tmp_path):
    """With what brings it; nothing is made before that."""
    for name in ("obstore", "pyiceberg"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(
        sys.modules, "pyspark", SimpleNamespace(__version__="9.9.9", __spec__=object())
    )

    def absent() -> Path:
        raise seaweed.NoSeaweed("no program weed")

    monkeypatch.setattr(seaweed, "program", absent)
    monkeypatch.setattr(needs.importlib.util, "find_spec", sys.modules.get)
    with pytest.raises(needs.Missing) as caught:
        needs.check()
    text = str(caught.value)
    for word in (
        "Spark 4.1",
        "9.9.9",
        "obstore",
        "pyiceberg",
        "weed",
        "gateway-demo[cluster]",
    ):
        assert word in text
    args = SimpleNamespace(
        cluster=True,
        edge=False,
        directory=tmp_path / "demo",
        events=1,
        rate=1,
        jars=None,
    )
    with pytest.raises(WrongUse, match="gateway-demo\\[cluster\\]"):
        command.run(args)  # type: ignore[arg-type]
    assert not (tmp_path / "demo").exists()


def test_jars_are_for_the_cluster(tmp_path):
    """And the folder must be there."""
    plain = {"directory": tmp_path, "events": 1, "rate": 1}
    for more in (
        {"cluster": False, "jars": tmp_path},
        {"cluster": True, "jars": tmp_path / "absent"},
    ):
        with pytest.raises(WrongUse, match="--jars"):
            command.run(SimpleNamespace(**plain, **more))  # type: ignore[arg-type]


# -- what is lost, and when --------------------------------------------------------------


class Cluster:
    """What can be killed, and was."""

    def __init__(self) -> None:
        self.killed: list[str] = []
        self.busy = False

    def lose_gateway(self, node: Any) -> None:
        self.killed.append(node.name)

    def start_gateway(self, node: Any) -> None:
        assert self.killed == [node.name]

    def lose_worker(self) -> Any:
        self.killed.append("worker-2")
        return SimpleNamespace(name="worker-2")

    def job_is_busy(self) -> bool:
        return self.busy


def progress(published: int, in_table: int, *, sent: bool = False) -> Progress:
    node = NodeProgress("gw-2", True, published + 5, published, in_table)
    return Progress(1.0, [node], {}, sent)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def losses(cluster) -> Losses:
    node: Any = SimpleNamespace(name="gw-2")
    return Losses(cluster, node, 50, lambda text: None)  # type: ignore[arg-type]


def test_a_gateway_is_lost_while_only_the_bucket_has_events_of_it(cluster, losses):
    """And while its sender has more: else the loss would show nothing."""
    for harmless in (
        progress(0, 0),
        progress(49, 0),
        progress(100, 100),
        progress(200, 100, sent=True),
    ):
        losses.look(harmless)
        assert cluster.killed == []
    losses.look(progress(200, 100))
    assert cluster.killed == ["gw-2"]
    losses.look(progress(300, 100))
    assert cluster.killed == ["gw-2"]
    assert not losses.all


@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_is_lost_with_a_batch_in_hand(cluster, losses, busy):
    """Or after one that nobody saw begin; once."""
    losses.look(progress(200, 100))
    cluster.busy = True
    losses.look(progress(200, 0))  # not one is in the table yet
    assert cluster.killed == ["gw-2"]
    cluster.busy = busy
    for _ in range(2):
        losses.look(progress(300, 100 if busy else 150))
    assert cluster.killed == ["gw-2", "worker-2"]
    assert losses.all


def test_it_is_done_when_every_node_is_there_and_in_the_table():
    """A node that is gone may have more; so may one whose sender is at work."""
    there = NodeProgress("gw-1", True, 10, 10, 10)
    behind = NodeProgress("gw-2", True, 10, 10, 9)
    gone = NodeProgress("gw-2", False, 0, 0, 10)
    assert Progress(1.0, [there], {}, True).done
    assert behind.lag == 1
    for one in (behind, gone):
        found = Progress(1.0, [there, one], {"worker-1": True}, True)
        assert not found.done
        assert one.name in found.line()
        assert found.table().row_count == 3
    assert not Progress(1.0, [there], {}, False).done
