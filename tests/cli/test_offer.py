"""`gateway spool offer DIR`: what lies in a data_dir that nobody runs on goes its way."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway import cli
from gateway.store.hub.arrivals import come
from gateway.store.names import parse_file_name
from gateway.store.objects.node_record import at_hub
from gateway.store.system.lock import lock
from gateway_testkit.daemon import listener
from small_s3 import small_s3

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
