"""`gateway audit` over gateways that have a disk each, and one bucket and one job."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from gateway import cli
from gateway.admin.status import (
    ArchiveStatus,
    IncarnationStatus,
    JournalStatus,
    SpoolStatus,
    Status,
    as_json,
)
from gateway.figures import section
from gateway_testkit.daemon import free_port
from incarnations import A, rows_of
from making import Make
from small_s3 import SmallS3, small_s3

pytest.importorskip("obstore")

NODES = ("gw-1", "gw-2", "gw-3")
IDS: dict[str, str] = {}
"""Their incarnations, in the test that runs."""


class Cluster:
    """Directories of three gateways and of a job, and their bucket."""

    def __init__(self, root: Path, server: SmallS3, system: type) -> None:
        self.root = root
        self.server = server
        self.job = system(root / "job")
        self.nodes = {name: system(root / name).node(name) for name in NODES}
        IDS.update({name: node.incarnation for name, node in self.nodes.items()})
        (root / "job" / "lake").mkdir(parents=True)
        for name in ("job", *NODES):
            self.config(name)

    def config(self, name: str) -> Path:
        """Its file."""
        path = self.root / f"{name}.yaml"
        s3 = {
            "endpoint": self.server.url,
            "region": "us-east-1",
            "access_key_id": "K",
            "secret_access_key": "S",
        }
        content = {
            "node": name,
            "data_dir": name,
            "listeners": [{"name": "a", "protocol": "lumberjack", "listen": "tcp:1"}],
            "spool": {"directory": "s3://gateway/spool", "s3": s3},
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def upload(self, name: str, count: int) -> str:
        """Events of a node get into the bucket; the object's name."""
        node = self.nodes[name]
        path = node.publish(count=count)
        self.server.objects[f"gateway/spool/{path.name}"] = path.read_bytes()
        path.rename(node.archive / path.name)
        return path.name

    def take(self, file: str) -> None:
        """The job commits one, and it leaves the bucket."""
        key = f"gateway/spool/{file}"
        data = self.server.objects.pop(key)
        (self.root / "here.parquet").write_bytes(data)
        rows = pq.read_table(self.root / "here.parquet", columns=["node", "lsn"])
        rows = rows_of(rows, file)
        target = self.root / "job/lake/events/protocol=plain"
        target.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, target / f"part-{file}")

    def named(self, *names: str) -> list[str]:
        """As arguments."""
        return [word for name in names for word in ("--config", str(self.config(name)))]


@pytest.fixture
def cluster(tmp_path, system) -> Iterator[Cluster]:
    with small_s3() as server:
        yield Cluster(tmp_path, server, type(system))


@pytest.fixture
def verdict(capsys) -> Make[dict[str, Any]]:
    def verdict(*words: str) -> dict[str, Any]:
        status = cli.main(["audit", "--json", *words])
        out, err = capsys.readouterr()
        assert status in (0, 1), err
        found: dict[str, Any] = json.loads(out)
        assert found["complete"] is (status == 0)
        return found

    return verdict


Verdict = Make[dict[str, Any]]


def places(report: dict[str, Any]) -> dict[str, tuple[int, int, int, int]]:
    """Of each node its last lsn, and how many events are where."""
    return {
        one["node"]: (one["last"], one["in_lake"], one["in_spool"], one["in_journal"])
        for one in report["nodes"]
    }


def everywhere(cluster: Cluster) -> None:
    """Some of each node in the table, in the bucket and in its journal."""
    for number, name in enumerate(NODES, 1):
        cluster.take(cluster.upload(name, 5))
        cluster.upload(name, 3)
        cluster.nodes[name].store(count=number)


def test_one_answer_for_all(cluster, verdict, capsys):
    """The job alone sees table and bucket, and a gateway alone not what is in the table;
    together they account for every event of all.
    """
    everywhere(cluster)
    alone = verdict(*cluster.named("job"))
    assert alone["complete"]
    assert places(alone) == dict.fromkeys(NODES, (8, 5, 3, 0))
    assert cli.main(["audit", "--chain", *cluster.named("job")]) == 0
    assert "note: no chain was verified" in capsys.readouterr().out
    assert not verdict(*cluster.named("gw-1"))["complete"]
    report = verdict(*cluster.named("job", *NODES))
    assert report["complete"]
    assert report["events"] == 9 + 10 + 11
    assert places(report) == {name: (8 + n, 5, 3, n) for n, name in enumerate(NODES, 1)}
    assert verdict(*cluster.named("job", "gw-2", "gw-2"))["complete"]
    (cluster.root / "gw-2" / "lake").symlink_to(cluster.root / "job" / "lake")
    assert verdict(*cluster.named("job", "gw-2"))["complete"], "one lake, shared"
    only = verdict(*cluster.named("job", *NODES), "--node", "gw-2")
    assert places(only) == {"gw-2": (10, 5, 3, 2)}


def test_what_only_its_gateway_knows_is_missed(cluster, verdict):
    """An object at the end of those of a node that is lost: the job can not know of it."""
    everywhere(cluster)
    lost = cluster.upload("gw-3", 4)  # and the three that were in its journal
    (cluster.root / "gw-3" / "archive" / lost).unlink()
    del cluster.server.objects[f"gateway/spool/{lost}"]
    assert verdict(*cluster.named("job"))["complete"]
    report = verdict(*cluster.named("job", *NODES))
    [node] = [one for one in report["nodes"] if one["holes"]]
    assert node["node"] == "gw-3"
    [hole] = node["holes"]
    assert (hole["first"], hole["last"]) == (9, 15)
    assert lost in hole["note"]


def answering(**said: Any) -> Callable[[socket.socket], None]:
    """The admin port of a gateway."""
    bucket = said.pop("bucket", "s3://gateway/spool")
    durable, published = said.pop("durable"), said.pop("published")
    body = as_json(
        Status(
            version="1",
            uptime_seconds=1.0,
            not_ready_reason=None,
            listeners=[],
            journal=JournalStatus(durable, 100),
            spool=SpoolStatus(published, 0, 0, 1 << 20, bucket),
            archive=ArchiveStatus(0, 0),
            freshness=None,
            incarnation=IncarnationStatus(IDS.get(said["node"], A)),
            **said,
        )
    )

    def talk(peer: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            if not (data := peer.recv(1 << 16)):
                return
            request += data
        refused = b"401 Unauthorized" if b"Bearer secret" not in request else b"200 OK"
        peer.sendall(
            b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (refused, len(body))
        )
        peer.sendall(body)

    return talk


@pytest.fixture
def ask(cluster, verdict, tmp_path) -> Verdict:
    """What the job's machine says of all, when it asks gateways at these addresses."""
    everywhere(cluster)
    path = tmp_path / "token"
    path.write_text("secret\n")

    def ask(*addresses: str, token: bool = True) -> dict[str, Any]:
        words = [word for each in addresses for word in ("--gateway", each)]
        words += ["--token-file", str(path)] if token else []
        return verdict(*cluster.named("job"), *words)

    return ask


def test_gateways_on_other_machines_are_asked(ask, serve):
    """How far they are, and what is in their journals alone: a hole before that shows."""
    one = serve(answering(node="gw-1", durable=12, published=8))
    two = serve(answering(node="gw-2", durable=10, published=8))
    report = ask(one, two)
    assert report["complete"]
    assert report["asked"] == ["gw-1", "gw-2"]
    assert places(report)["gw-1"] == (12, 5, 3, 4)
    assert places(report)["gw-3"] == (8, 5, 3, 0)
    ahead = serve(answering(node="gw-1", durable=12, published=10))
    report = ask(ahead)
    [node] = [one for one in report["nodes"] if one["holes"]]
    assert [(one["first"], one["last"]) for one in node["holes"]] == [(9, 10)]
    assert node["in_journal"] == 2


def test_an_edge_that_forwards_its_files(ask, serve):
    """What it says is at the hub must be there; the rest is with it, in spool and journal."""

    def edge(arrived: int) -> str:
        told = section("forward").of({"arrived_lsn": arrived})
        more = {"durable": 12, "published": 11, "bucket": None, "more": [told]}
        return serve(answering(node="gw-1", **more))

    report = ask(edge(8))
    assert report["complete"]
    assert places(report)["gw-1"] == (12, 5, 3, 4)
    report = ask(edge(9))
    [node] = [one for one in report["nodes"] if one["holes"]]
    assert [(one["first"], one["last"]) for one in node["holes"]] == [(9, 9)]


def test_an_edge_that_is_at_another_hub(ask, serve):
    """What it says is there need not be here: that is said, and is no proof."""

    def edge(hub: str) -> str:
        told = section("forward").of({"arrived_lsn": 8, "hub": {hub: 8}})
        more = {"durable": 12, "published": 11, "bucket": None, "more": [told]}
        return serve(answering(node="gw-1", **more))

    assert ask(edge("job"))["complete"]
    report = ask(edge("hub-2"))
    assert not report["complete"]
    assert "its files go to hub-2 now, which is not looked at here" in str(report)


def test_an_edge_whose_files_are_on_the_way(ask, serve):
    """What it has handed on, and the gateway in between still has, is not missing here; what
    that one has handed on must be here.
    """

    def word(node: str, arrived: int, hub: str, **nodes: int) -> str:
        values = {"arrived_lsn": arrived, "hub": {hub: arrived}, "nodes": nodes}
        told = section("forward").of(values)
        more = {"durable": 12, "published": 12, "bucket": None, "more": [told]}
        return serve(answering(node=node, **more))

    def edge() -> str:
        return word("gw-1", 11, "region")

    report = ask(edge(), word("region", 0, "job", **{"gw-1": 8}))
    assert places(report)["gw-1"] == (12, 5, 3, 4)
    assert not report["nodes"][0]["holes"]
    report = ask(edge(), word("region", 0, "job", **{"gw-1": 9}))
    [node] = [one for one in report["nodes"] if one["node"] == "gw-1"]
    assert [(one["first"], one["last"]) for one in node["holes"]] == [(9, 9)]
    alone = ask(edge())
    assert "its files go to region now, which is not looked at here" in str(alone)


@pytest.mark.parametrize("words", [["audit"], ["restore"], ["audit", "--config", "{}"]])
def test_at_the_edge_there_are_no_tables(tmp_path, capsys, words):
    """It says where they are, and does not say that all is missing; nor of several edges."""
    path = tmp_path / "edge.yaml"
    path.write_text(
        "listeners: [{name: a, protocol: lumberjack, listen: 'tcp:1'}]\n"
        "spool: {after: forward}\nforward: {to: 'https://hub:7410'}\ndata_dir: data\n"
    )
    (tmp_path / "data" / "spool").mkdir(parents=True)
    words = [one.format(path) for one in words]
    assert cli.main([*words, "--config", str(path)]) == 2
    assert (
        "at the hub, https://hub:7410: run the audit there" in capsys.readouterr().err
    )


def test_a_gateway_that_can_not_be_asked_is_a_problem(ask, serve):
    """Nobody there, no token, a bucket that is not looked at, one node twice."""
    elsewhere = serve(
        answering(node="gw-9", durable=1, published=1, bucket="s3://other/spool")
    )
    here = serve(answering(node="gw-9", durable=1, published=1, bucket=None))
    nobody = f"127.0.0.1:{free_port()}"
    for address, why in (
        (nobody, "can not be asked"),
        (elsewhere, "puts its files into s3://other/spool"),
        (here, "puts its files into a directory of its machine"),
    ):
        report = ask(address)
        assert {one["file"] for one in report["problems"]} == {address}
        assert all(why in one["why"] for one in report["problems"])
    shared = serve(answering(node="gw-1", durable=12, published=8, bucket=None))
    assert ask(shared)["complete"], "its files are in a directory that is looked at"
    fine = [serve(answering(node="gw-1", durable=8, published=8)) for _ in range(2)]
    [problem] = ask(fine[0], token=False)["problems"]
    assert "--token-file" in problem["why"]
    for two in (fine, [shared, fine[0]], [shared, shared]):
        [problem] = ask(*two)["problems"]
        assert "node gw-1 answers here and at another address" in problem["why"]


def test_acknowledged_ids_are_looked_for_in_all(cluster, verdict, tmp_path):
    """In the directories of each, in the bucket."""
    gw_1, gw_2 = cluster.nodes["gw-1"], cluster.nodes["gw-2"]
    acked = tmp_path / "acked"
    acked.write_text("a\nb\nc\n")
    gw_1.publish(b'{"event":{"id":"a"}}')
    path = gw_2.publish(b'{"event":{"id":"b"}}')
    cluster.server.objects[f"gateway/spool/{path.name}"] = path.read_bytes()
    path.rename(gw_2.archive / path.name)
    found = verdict(*cluster.named("job", *NODES), "--acknowledged", str(acked))
    assert found["acknowledged"]["missing"] == ["c"]


def test_one_directory_for_digests(cluster, capsys):
    """Chains and payloads are each gateway's own; wrong use is said."""
    for words in (
        [*cluster.named("job", "gw-1"), "--chain"],
        [*cluster.named("job", "gw-1"), "--content"],
        [*cluster.named("job"), "--token-file", "x"],
        [*cluster.named("job"), "--gateway", "gw-1"],
    ):
        assert cli.main(["audit", *words]) == 2
        assert capsys.readouterr().err
