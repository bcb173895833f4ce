"""Directories of gateways that are gone, or were put back: `decommission`, `restore` and
`spool offer`.
"""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway import cli
from gateway.store.hub.arrivals import come
from gateway.store.names import parse_file_name
from gateway.store.node.mark import Mark, Marker
from gateway.store.objects.node_record import NodeRecord, at_hub, hear
from gateway.store.system.disk import RealDisk
from gateway.store.system.lock import lock
from gateway_testkit.daemon import listener
from incarnations import A, B
from small_s3 import small_s3

Run = Callable[..., tuple[int, str, str]]


def heard(system: Any, word: NodeRecord, node: str = "shop") -> None:
    """A hub has, long ago."""
    hear(system.root / "arrivals", node, word, 100.0, RealDisk())


def why(gateway: Run) -> list[str]:
    found = json.loads(gateway("audit", "--json")[1])
    return [one["why"] for one in found["unknown"]]


def test_nothing_follows_a_gateway_that_stopped_in_good_order(warns, system, gateway):
    """It is kept beside what was heard of it, for whoever takes files from here; what it had
    acknowledged is asked for as before.
    """
    system.lake([1, 2, 3], "a.parquet", node="shop")
    heard(system, NodeRecord(A, 1, 3, 90.0, "journal", exact=True))
    assert why(gateway) == ["ended"]
    status, out, _ = gateway("decommission", "shop", "--reason", "closed on May 3")
    assert (status, out) == (
        0,
        f"decommissioned: shop (incarnation {A}), which had acknowledged up to lsn 3\n",
    )
    [one] = at_hub(system.root / "arrivals")
    assert one.record is not None
    assert (one.record.decommissioned, one.record.heard) == ("closed on May 3", 100.0)
    assert gateway("audit")[0] == 0
    err = warns(2, "decommission", "shop")
    assert "nothing of node shop is waited for" in err


def test_what_a_lost_gateway_had_acknowledged_is_missing(system, gateway):
    """It was killed: from now on what only its word vouched for is nowhere."""
    system.lake([1, 2, 3], "a.parquet", node="shop")
    heard(system, NodeRecord(A, 1, 9, 90.0, "journal"))
    assert why(gateway) == ["silent"]
    assert gateway("decommission", "shop")[0] == 0
    found = json.loads(gateway("audit", "--json")[1])
    assert found["unknown"] == []
    [hole] = found["nodes"][0]["holes"]
    assert (hole["first"], hole["last"]) == (4, 9)


@pytest.mark.parametrize("ack", ["spool", None])
def test_days_wait_for_one_that_the_audit_does_not_wait_for(system, gateway, ack):
    """With `ack: spool` it lacks nothing, and of one of an earlier version nobody says
    anything; but either may go on.
    """
    system.lake([1, 2, 3], "a.parquet", node="shop")
    if ack:
        heard(system, NodeRecord(A, 1, 3, 90.0, ack))
    assert gateway("audit")[0] == 0
    assert gateway("decommission", "shop")[0] == 0
    [one] = at_hub(system.root / "arrivals")
    assert one.record is not None
    assert one.record.decommissioned
    assert one.record.lsn == 3
    assert gateway("audit")[0] == 0
    assert gateway("decommission", "shop")[0] == 2


def test_the_end_of_a_lost_disk_is_accepted_and_not_decommissioned(warns, system):
    """Another directory has the name: what is lost is lost."""
    system.lake([1, 2, 3], "a.parquet", node="shop")
    heard(system, NodeRecord(A, 1, 3, 90.0, "journal"))
    now = time.time()
    hear(
        system.root / "arrivals",
        "shop",
        NodeRecord(B, 1, 0, now, "journal"),
        now,
        RealDisk(),
    )
    err = warns(2, "decommission", "shop", "--incarnation", A[:3])
    assert "gateway audit accept shop 4- accepts it" in err


def test_a_machine_says_it_of_its_own_directory(says, warns, system, tmp_path):
    """Once all is published, and it was stopped in good order."""
    node = system.node("gw-1")
    node.publish(count=3)
    err = warns(2, "decommission", "gw-1")
    assert "let its gateway run until it is, and stop it in good order" in err
    marker = Marker(system.root / "state" / "gw-1", RealDisk())
    last = Mark(3, 3, 3, incarnation=node.incarnation, exact=True)
    marker.write(last, now=True)
    out = says(0, "decommission", "gw-1", "--json")
    assert json.loads(out) == [{"incarnation": node.incarnation, "lsn": 3}]
    [one] = at_hub(system.root / "arrivals")
    assert one.record is not None
    assert one.record.exact
    assert one.record.decommissioned == "decommissioned"


def test_a_node_that_is_not_there(warns, system):
    system.lake([1], "a.parquet")
    assert "no such node" in warns(2, "decommission", "nobody")


def test_holes_are_filled_from_the_archive(says, node, system, gateway):
    """Files all of whose events are in no table go to the job again, when told to; others
    stay, and are named.
    """
    first, second, third = (node.publish(count=5) for _ in range(3))
    for path in (first, second, third):
        node.take(path)
    (
        system.root
        / "lake/events/protocol=plain/date=2026-01-01"
        / f"part-{second.name}"
    ).unlink()
    out = says(1, "restore")
    assert "10 in the tables, 0 in the spool, 0 in the journal, 5 missing" in out
    assert (
        "the archive has 1 file whose events are in no table: --fill puts them back"
        in out
    )
    assert not second.exists()
    found = json.loads(gateway("restore", "--fill", "--json")[1])
    assert found["filled"] == [second.name]
    assert second.exists()
    out = says(0, "restore")
    assert "nothing is missing, and somebody vouches for each end" in out


def test_a_file_of_which_the_tables_have_a_part_stays(says, node, system):
    """The job would take its other events twice."""
    path = node.publish(count=5)
    path.rename(node.archive / path.name)
    system.lake([1, 2], "some.parquet", by=node.incarnation)
    out = says(1, "restore", "--fill")
    assert f"the archive has {path.name}, of which the tables have a part" in out
    assert not path.exists()


Offer = Callable[..., tuple[int, str, str]]


@pytest.fixture
def offer(tmp_path, capsys, monkeypatch) -> Offer:
    """To the gateway `gw`, with this spool."""
    monkeypatch.setattr("gateway.plugins.decoders", lambda: {"plain": _split})

    def offer(place: Path, **spool: Any) -> tuple[int, str, str]:
        settings = {
            "node": "gw",
            "data_dir": str(tmp_path / "here"),
            "listeners": [listener("beats", "lumberjack")],
            "spool": spool,
        }
        file = tmp_path / "gateway.yaml"
        file.write_text(json.dumps(settings))
        status = cli.main(["spool", "offer", str(place), "--config", str(file)])
        out, err = capsys.readouterr()
        return status, out, err

    return offer


def _split(body: bytes) -> Any:
    from gateway.event import Rows

    return Rows(body.split(b"\x1f"))


def left(system: Any) -> None:
    """A gateway of that directory was killed: some in its spool, more in its journal."""
    node = system.node("old")
    node.publish(count=4)
    node.store(count=3)


def test_it_goes_to_the_spool_of_another_gateway(system, offer, tmp_path):
    """The journal too, under the node that gave its events; the audit there hears that
    nothing follows.  What is handed over is archived, and handed over once.
    """
    left(system)
    here = tmp_path / "here"
    status, out, _ = offer(system.root)
    assert (status, out) == (0, "offered: 7 events of node old\n")
    names = [parse_file_name(path.name) for path in sorted((here / "spool").iterdir())]
    assert [(one.node, one.first, one.last) for one in names if one] == [
        ("old", 1, 4),
        ("old", 5, 7),
    ]
    assert dict(come(here / "arrivals")).keys() == {"old"}
    [heard] = at_hub(here / "arrivals")
    assert heard.record is not None
    assert (heard.node, heard.record.lsn) == ("old", 7)
    assert heard.record.decommissioned == "node gw has its directory now"
    assert len([*(system.root / "archive").iterdir()]) == 2
    assert not [*(system.root / "spool").iterdir()]
    assert offer(system.root)[1].startswith("nothing lies there")


def test_it_goes_to_a_bucket(system, offer):
    """Where the gateway's spool is one."""
    left(system)
    with small_s3() as server:
        s3 = {
            "endpoint": server.url,
            "region": "us-east-1",
            "access_key_id": "K",
            "secret_access_key": "S",
        }
        status, out, err = offer(system.root, directory="s3://gateway/spool", s3=s3)
        assert (status, out) == (0, "offered: 7 events of node old\n"), err
        assert len([key for key in server.objects if "/events-old_" in key]) == 2


def test_other_events_of_one_name_are_not_passed_over(system, offer, tmp_path):
    """Two machines were one: of theirs the gateway has a file, of the other's events none."""
    left(system)
    [path] = (system.root / "spool").iterdir()
    spool = tmp_path / "here/spool"
    spool.mkdir(parents=True)
    shutil.copy(path, spool)
    assert offer(system.root)[0] == 0
    [_, late] = sorted(spool.iterdir())
    (system.root / "spool" / path.name).write_bytes(late.read_bytes())
    status, _, err = offer(system.root)
    assert status == 2
    assert f"{spool / path.name} is there with other events" in err
    assert (system.root / "spool" / path.name).exists()


def test_one_that_runs_goes_its_own_way(system, offer, tmp_path):
    """Nothing is touched; nor is the gateway's own directory, or none at all."""
    left(system)
    held = lock(system.root / "lock", "gateway old")
    status, _, err = offer(system.root)
    held.release()
    assert (status, "goes its own way" in err) == (2, True)
    assert len([*(system.root / "spool").iterdir()]) == 1
    assert offer(tmp_path / "here")[0] == 2
    assert offer(tmp_path / "nowhere")[0] == 2
