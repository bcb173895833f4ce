"""`gateway decommission`: the audit waits no longer for a gateway that is gone."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from gateway.store.node.mark import Mark, Marker
from gateway.store.objects.node_record import NodeRecord, at_hub, hear
from gateway.store.system.disk import RealDisk
from incarnations import A, B

Run = Callable[..., tuple[int, str, str]]


def heard(system: Any, word: NodeRecord, node: str = "shop") -> None:
    """A hub has, long ago."""
    hear(system.root / "arrivals", node, word, 100.0, RealDisk())


def why(gateway: Run) -> list[str]:
    found = json.loads(gateway("audit", "--json")[1])
    return [one["why"] for one in found["unknown"]]


def test_nothing_follows_a_gateway_that_stopped_in_good_order(system, gateway):
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
    status, _, err = gateway("decommission", "shop")
    assert status == 2
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


def test_the_end_of_a_lost_disk_is_accepted_and_not_decommissioned(system, gateway):
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
    status, _, err = gateway("decommission", "shop", "--incarnation", A[:3])
    assert status == 2
    assert "gateway audit accept shop 4- accepts it" in err


def test_a_machine_says_it_of_its_own_directory(system, gateway, tmp_path):
    """Once all is published, and it was stopped in good order."""
    node = system.node("gw-1")
    node.publish(count=3)
    status, _, err = gateway("decommission", "gw-1")
    assert status == 2
    assert "let its gateway run until it is, and stop it in good order" in err
    marker = Marker(system.root / "state" / "gw-1", RealDisk())
    last = Mark(3, 3, 3, incarnation=node.incarnation, exact=True)
    marker.write(last, now=True)
    status, out, _ = gateway("decommission", "gw-1", "--json")
    assert status == 0
    assert json.loads(out) == [{"incarnation": node.incarnation, "lsn": 3}]
    [one] = at_hub(system.root / "arrivals")
    assert one.record is not None
    assert one.record.exact
    assert one.record.decommissioned == "decommissioned"


@pytest.mark.parametrize("node", ["nobody"])
def test_a_node_that_is_not_there(system, gateway, node):
    system.lake([1], "a.parquet")
    status, _, err = gateway("decommission", node)
    assert status == 2
    assert "no such node" in err
