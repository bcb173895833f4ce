"""What the audit says, and the first sentence, where real gateways have lost what they had
acknowledged, or may have: it never says complete of what nobody can know.
"""

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemons import Daemon, free_port, listener, send
from deadlines import eventually, run
from seaweeds import settings_of
from small_s3 import small_s3


def audit(place: Daemon, *words: str) -> dict[str, Any]:
    """What `gateway audit` finds with the configuration of *place*."""
    config = ("--config", str(place.config))
    done = run(sys.executable, "-m", "gateway", "audit", "--json", *words, *config)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["complete"] is (done.returncode == 0)
    return found


def why(found: dict[str, Any]) -> dict[str, str]:
    """Of each end that nobody knows, why."""
    return {
        one["incarnation"]: one["why"]
        for one in found["unknown"]
        if not one["accepted"]
    }


def edge_in(found: dict[str, Any]) -> dict[str, Any]:
    """What is said of the edge."""
    none = {"in_spool": 0}
    return next((one for one in found["nodes"] if one["node"] == "edge"), none)


def events(*numbers: int) -> list[bytes]:
    return [b'{"number":%d}' % one for one in numbers]


class Shop:
    """An edge and its hub."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.hub = Daemon(folder / "hub", {
            "node": "hub",
            "listeners": [listener("edges", "forward", listen=f"tcp:127.0.0.1:{port}")],
            "spool": {"after": "keep"},
        })  # fmt: skip
        self.edge = Daemon(folder / "edge", {
            "node": "edge",
            "spool": {"after": "forward", "roll_interval": "100ms"},
            "forward": {"to": f"http://127.0.0.1:{port}"},
        })  # fmt: skip

    def arrives(self, number: int) -> None:
        eventually(
            lambda: edge_in(audit(self.hub))["in_spool"] >= number,
            f"{number} events are at the hub",
        )

    @property
    def incarnation(self) -> str:
        return str(self.edge.status()["incarnation"]["id"])

    def is_heard(self) -> None:
        path = self.hub.data / "arrivals" / f"edge_{self.incarnation}"
        eventually(path.exists, "the hub has heard of it")


@pytest.fixture
def shop(tmp_path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    with made.hub, made.edge:
        made.is_heard()
        send(made.edge, *events(1, 2, 3))
        made.arrives(3)
        yield made


@pytest.mark.slow
def test_an_edge_that_lost_its_disk_while_its_hub_was_away(shop):
    """It had acknowledged more, and nobody else has heard of that: the audit does not say
    complete, whether it comes back or not; a lost disk's end is accepted, and then it does.
    """
    assert audit(shop.hub)["complete"]
    before = shop.incarnation
    shop.hub.kill()
    send(shop.edge, *events(*range(4, 1004)))
    shop.edge.kill()
    shop.hub.start()
    time.sleep(1.0)
    assert why(audit(shop.hub, "--silent-after", "1s")) == {before: "silent"}
    shutil.rmtree(shop.edge.data)
    shop.edge.start()
    shop.is_heard()
    after = shop.incarnation
    assert why(audit(shop.hub)) == {before: "replaced"}
    send(shop.edge, *events(1, 2))
    shop.arrives(5)
    found = audit(shop.hub)
    assert why(found) == {before: "replaced"}
    lives = {
        one["incarnation"]: one["in_spool"] for one in edge_in(found)["incarnations"]
    }
    assert lives == {before: 3, after: 2}
    accept = [sys.executable, "-m", "gateway", "audit", "accept", "edge", "4-"]
    more = ["--reason", "its disk died", "--config", str(shop.hub.config)]
    assert run(*accept, *more).returncode == 0
    assert audit(shop.hub)["complete"]


@pytest.mark.slow
def test_a_snapshot_of_a_running_gateway_is_put_back(tmp_path):
    """As most people recover: what was acknowledged since is gone.  The audit says that
    nobody knows, and so does the first sentence, until that is accepted.
    """
    with Daemon(tmp_path, {"spool": {"after": "keep"}}) as daemon:
        send(daemon, *events(1, 2, 3))
        copy = shutil.copytree(daemon.data, tmp_path / "copy")
        send(daemon, *events(*range(4, 104)))
        daemon.kill()
        shutil.rmtree(daemon.data)
        copy.rename(daemon.data)
        daemon.start()
        found = audit(daemon)
        assert [*why(found).values()] == ["copied"]
        status = daemon.status()
        assert status["freshness"]["level"] == "bad"
        assert "Acknowledged events may be lost" in status["sentence"]


@pytest.mark.slow
def test_a_directory_that_ended_well_and_went_on_unheard(tmp_path):
    """It stopped in good order, with all at the hub; started again while that was away,
    acknowledged, and lost its disk: a clean stop ends an incarnation, and no directory.
    """
    shop = Shop(tmp_path)
    with shop.hub, shop.edge:
        shop.is_heard()
        before = shop.incarnation
        send(shop.edge, *events(1, 2, 3))
        shop.arrives(3)
        shop.edge.terminate()
        shop.hub.kill()
        shop.edge.start()
        send(shop.edge, *events(4, 5))
        shop.edge.kill()
        shutil.rmtree(shop.edge.data)
        shop.hub.start()
        shop.edge.start()
        shop.is_heard()
        assert before in why(audit(shop.hub))


@pytest.mark.slow
def test_a_mistyped_data_dir_that_is_put_right(shop, tmp_path):
    """One start in a wrong directory: nothing is refused, before or after.  What it had
    acknowledged there goes its way by `gateway spool offer`, and then all is known.
    """
    shop.edge.terminate()
    right = shop.edge.config.read_text()
    wrong = json.loads(right)
    wrong["data_dir"] = str(tmp_path / "mistyped")
    shop.hub.kill()
    shop.edge.config.write_text(json.dumps(wrong))
    shop.edge.start()
    mistyped = shop.incarnation
    send(shop.edge, *events(1, 2))
    shop.edge.terminate()
    shop.edge.config.write_text(right)
    shop.hub.start()
    shop.edge.start()
    shop.is_heard()
    send(shop.edge, *events(4))
    shop.arrives(4)
    assert audit(shop.hub)["complete"], "nobody has heard of that directory"
    words = [
        "spool",
        "offer",
        str(tmp_path / "mistyped"),
        "--config",
        str(shop.edge.config),
    ]
    done = run(sys.executable, "-m", "gateway", *words)
    assert (done.returncode, done.stdout) == (0, "offered: 2 events of node edge\n")
    shop.arrives(6)
    found = audit(shop.hub)
    lives = {
        one["incarnation"]: one["in_spool"] for one in edge_in(found)["incarnations"]
    }
    assert lives[mistyped] == 2
    shop.edge.kill()  # or else within a minute
    shop.edge.start()
    path = shop.hub.data / "arrivals"
    eventually(lambda: len([*path.glob("edge_*")]) >= 4, "its last word is at the hub")
    assert audit(shop.hub)["complete"]


@pytest.mark.slow
def test_an_edge_that_is_closed(shop):
    """It is stopped, and its own machine says that nothing follows: the hub hears it, though
    no gateway runs there any more; while the hub is away, that is said, and may be said again.
    """
    shop.edge.terminate()
    words = ["decommission", "edge", "--config", str(shop.edge.config)]
    shop.hub.kill()
    done = run(sys.executable, "-m", "gateway", *words)
    assert done.returncode == 0
    assert "the hub is not told yet: http://127.0.0.1:" in done.stderr
    shop.hub.start()
    done = run(sys.executable, "-m", "gateway", *words)
    assert (done.returncode, done.stderr) == (0, "")
    time.sleep(1.1)
    found = audit(shop.hub, "--silent-after", "1s")
    assert (found["complete"], found["events"]) == (True, 3)


@pytest.mark.slow
def test_an_edge_that_is_renamed(shop):
    """While its hub is away: what it had acknowledged comes there under its old name, and
    that nothing follows.
    """
    shop.hub.kill()
    send(shop.edge, *events(4, 5))
    shop.edge.kill()
    settings = json.loads(shop.edge.config.read_text())
    shop.edge.config.write_text(json.dumps({**settings, "node": "renamed"}))
    shop.hub.start()
    shop.edge.start()
    shop.arrives(5)
    words = shop.hub.data / "arrivals"
    eventually(lambda: len([*words.glob("edge_*")]) == 2, "its last word is at the hub")
    time.sleep(1.1)
    found = audit(shop.hub, "--node", "edge", "--silent-after", "1s")
    assert (found["complete"], found["events"]) == (True, 5)


@pytest.mark.slow
def test_a_gateway_whose_uploads_fail_and_that_is_never_seen_again(tmp_path):
    """By `ack: journal` it had acknowledged 2,500 events: what only its word vouches for is
    unverified once that is old, as the job's machine says, which sees no disk of it.
    """
    with small_s3() as server:
        spool = {"directory": "s3://gateway/spool", "s3": settings_of(server.url)}
        daemon = Daemon(tmp_path / "gateway", {"ack": "journal", "spool": spool})
        job = Daemon(tmp_path / "job", {"node": "job", "spool": spool})
        (job.data / "lake").mkdir(parents=True)
        server.refuse = lambda method, path: (
            503 if method == "PUT" and "/events-" in path else 0
        )
        with daemon:
            send(daemon, *events(*range(2500)))
            incarnation = daemon.status()["incarnation"]["id"]
            daemon.terminate()
        shutil.rmtree(daemon.data)
        assert audit(job)["complete"], "it has said so, this minute"
        time.sleep(1.1)
        found = audit(job, "--silent-after", "1s")
        assert why(found) == {incarnation: "silent"}
        assert found["unverified"] == 2500
        [life] = found["nodes"][0]["incarnations"]
        assert life["unverified"] == [{"first": 1, "last": 2500}]


class Region:
    """A hub, and edges that are stopped, renamed and copied while it is away."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        edges = listener("edges", "forward", listen=f"tcp:127.0.0.1:{self.port}")
        settings = {"node": "hub", "listeners": [edges], "spool": {"after": "keep"}}
        self.hub = Daemon(folder / "hub", settings)

    def edge(self, name: str) -> Daemon:
        """One that is not started."""
        return Daemon(self.folder / name, {
            "node": name,
            "spool": {"after": "forward", "roll_interval": "100ms"},
            "forward": {"to": f"http://127.0.0.1:{self.port}"},
        })  # fmt: skip

    def heard(self, *names: str) -> None:
        """Wait until the hub has heard so many incarnations of each: `edge`, `edge`, …"""
        found = self.hub.data / "arrivals"
        for name in names:
            eventually(
                lambda name=name: len([*found.glob(f"{name}_*")]) >= names.count(name),  # type: ignore[misc]
                f"the hub has heard of {name}",
            )

    def has(self, number: int) -> dict[str, Any]:
        """What the audit finds, once so many events are there."""
        eventually(
            lambda: sum(one["in_spool"] for one in audit(self.hub)["nodes"]) >= number,
            f"{number} events are at the hub",
        )
        return audit(self.hub)

    def is_complete(self) -> None:
        """Once the last words have come, too."""
        eventually(lambda: audit(self.hub)["complete"], "nobody misses anything")


def rename(edge: Daemon, name: str) -> None:
    """Its name is another one from the next start on."""
    settings = json.loads(edge.config.read_text())
    edge.config.write_text(json.dumps({**settings, "node": name}))


@pytest.mark.slow
def test_two_edges_whose_names_were_swapped_and_put_back(tmp_path):
    """What each acknowledged under the other's name while the hub was away comes there, and
    nobody misses anything.
    """
    region = Region(tmp_path)
    one, two = region.edge("one"), region.edge("two")
    with region.hub, one, two:
        region.heard("one", "two")
        for edge in (one, two):
            send(edge, *events(1, 2, 3))
        region.has(6)
        region.hub.kill()
        for names in (("two", "one"), ("one", "two")):
            for edge, name in zip((one, two), names, strict=True):
                edge.terminate()
                rename(edge, name)
                edge.start()
                send(edge, *events(*range(700)))
        region.hub.start()
        region.has(6 + 4 * 700)
        region.is_complete()


@pytest.mark.slow
def test_two_edges_of_one_image_that_are_renamed(tmp_path):
    """A machine was copied that had acknowledged 700 events while the hub was away, and one
    of the two got a name of its own: what each acknowledged is there once.
    """
    region = Region(tmp_path)
    one, two = region.edge("one"), region.edge("two")
    with region.hub:
        with one:
            region.heard("one")
            send(one, *events(1, 2, 3))
            region.has(3)
            region.hub.kill()
            send(one, *events(*range(700)))
        shutil.copytree(one.data, two.data)
        rename(two, "one")
        with one, two:
            for edge in (one, two):
                send(edge, *events(*range(700)))
            two.terminate()
            rename(two, "two")
            two.start()
            region.hub.start()
            send(two, *events(4))
            region.has(3 + 3 * 700 + 1)
            region.is_complete()
            assert audit(region.hub)["events"] == 3 + 3 * 700 + 1


@pytest.mark.slow
def test_an_old_disk_that_is_found_again(tmp_path):
    """Its edge was rebuilt meanwhile: it hands over its 700 events, and none is missed."""
    region = Region(tmp_path)
    edge, old = region.edge("edge"), tmp_path / "old"
    with region.hub:
        with edge:
            region.heard("edge")
            before = edge.status()["incarnation"]["id"]
            region.hub.kill()
            send(edge, *events(*range(700)))
            edge.kill()
        edge.data.rename(old)
        region.hub.start()
        with edge:
            region.heard("edge", "edge")
            send(edge, *events(1, 2))
            assert before in why(region.has(2))
            words = ["spool", "offer", str(old), "--config", str(edge.config)]
            done = run(sys.executable, "-m", "gateway", *words)
            assert done.stdout == "offered: 700 events of node edge\n", done.stderr
            assert region.has(702)["events"] == 702
            edge.terminate()
            edge.start()
            region.is_complete()
