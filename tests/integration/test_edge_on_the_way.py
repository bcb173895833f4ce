"""An edge and its hub while what both go by ends, or is wrong: certificates, the
clock; and while a job of one's own reads what goes over.  What was acknowledged gets there
once, and nobody starts anything again.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from daemons import Daemon, free_port, listener, send, tls
from deadlines import eventually, run
from gateway_testkit.certificates import Authority, Pair

TWISTD = """
import signal, sys, time
from pathlib import Path

real = time.time
at = Path("offset")
offset = float(at.read_text())
time.time = lambda: real() + offset

def set_clock(*_):
    global offset
    offset = float(at.read_text())
    Path("done").touch()

signal.signal(signal.SIGUSR2, set_clock)
sys.argv[0] = "twistd"
from twisted.scripts.twistd import run
run()
"""


def events_at(hub: Daemon) -> list[bytes]:
    """What has come there, in order."""
    return [row["payload"] for row in rows_at(hub)]


def rows_at(hub: Daemon) -> list[dict[str, Any]]:
    files = hub.archive.glob("events-edge_*.parquet")
    rows = [row for path in files for row in pq.read_table(path).to_pylist()]
    return sorted(rows, key=lambda row: int(row["lsn"]))


def arrives(hub: Daemon, number: int) -> None:
    """So many events are there, once each, in order."""
    sent = [b'{"number":%d}' % one for one in range(1, number + 1)]
    eventually(lambda: len(events_at(hub)) >= number, f"event {number} is at the hub")
    assert events_at(hub) == sent


def sends(edge: Daemon, number: int) -> None:
    """The edge acknowledges it, whatever its hub does."""
    send(edge, f'{{"number":{number}}}'.encode())


def says(edge: Daemon, what: str) -> None:
    eventually(lambda: what in edge.status()["sentence"], f"the edge says: {what}")


def made(
    folder: Path,
    authority: Authority,
    shown: Pair,
    ours: Pair | None = None,
    token: str = "secret",
    edge: Callable[[Path, dict[str, object]], Daemon] = Daemon,
    **spool: object,
) -> tuple[Daemon, Daemon]:
    """A hub that shows the one certificate, and its edge the other one, if any."""
    port = free_port()
    asked = {} if ours is None else {
        "client_auth": "required", "client_ca": str(authority.ca),
    }  # fmt: skip
    (folder / "token").write_text(token)
    hub = Daemon(folder / "hub", {
        "node": "hub",
        "listeners": [listener("edges", "forward", listen=f"tcp:127.0.0.1:{port}",
                               tls=tls(shown, **asked),
                               options={"tokens": {"edge": f"${{file:{folder}/token}}"}})],
        "spool": {"after": "keep"},
    })  # fmt: skip
    own = {} if ours is None else {
        "certificate": str(ours.certificate), "private_key": str(ours.key),
    }  # fmt: skip
    return hub, edge(folder / "edge", {
        "node": "edge",
        "spool": {"after": "forward", "roll_interval": "100ms", **spool},
        "forward": {"to": f"https://localhost:{port}", "token": token,
                    "ca": str(authority.ca), **own},
    })  # fmt: skip


@pytest.mark.slow
def test_certificates_end(tmp_path):
    """The edge's ends while it is connected: that connection goes on.  The next one is
    refused, and both sides say why; a new one on its disk is taken, once certificate and key
    fit.  Then the hub's is one that has ended, and a new one on its disk is taken.
    """
    authority = Authority(tmp_path / "certificates")
    shown = authority.issue("hub")
    hub, edge = made(tmp_path, authority, shown, authority.issue("edge"))
    with hub:
        for seconds in (15, 60, 240):  # enough to connect, on any machine
            ends = time.time() + seconds
            ours = authority.issue("edge", valid=timedelta(seconds=seconds))
            edge.start()
            eventually(
                lambda ends=ends: (
                    edge.status()["forward"]["connected"] or time.time() > ends
                ),
                "it is connected",
            )
            if edge.status()["forward"]["connected"]:
                break
            edge.kill()
        pid = edge.pid
        sends(edge, 1)
        arrives(hub, 1)
        time.sleep(max(0.0, ends + 1.5 - time.time()))
        says(edge, "The certificate of this gateway at its hub ended")
        sends(edge, 2)
        arrives(hub, 2)
        assert edge.status()["forward"]["connections"] == 1
        hub.kill()
        sends(edge, 3)
        hub.start()
        eventually(lambda: "alert certificate expired" in edge.log, "the edge says why")
        eventually(
            lambda: "client certificate 'CN=edge' has expired" in hub.log,
            "the hub says why",
        )
        before = ours.key.read_bytes()
        authority.issue("edge")
        after = ours.key.read_bytes()
        ours.key.write_bytes(before)
        eventually(lambda: "do not match" in edge.log, "the two do not fit")
        assert len(events_at(hub)) == 2
        ours.key.write_bytes(after)
        arrives(hub, 3)
        authority.issue("hub", valid=timedelta(minutes=-5))
        hub.kill()
        sends(edge, 4)
        hub.start()
        eventually(
            lambda: "its certificate is not valid here" in edge.log, "the edge says why"
        )
        says(hub, "The certificate of listener edges ended")
        authority.issue("hub")
        arrives(hub, 4)
        edge.settled()
        eventually(lambda: not [*edge.spool.glob("events-*")], "all has left the edge")
        assert edge.pid == pid
        assert shown.certificate.exists()
        edge.kill()


def test_a_job_beside_it(tmp_path):
    """A file stays until the hub has it and until that job has it, whichever is later; while
    the hub is away nothing goes, however old it is.
    """
    authority = Authority(tmp_path / "certificates")
    hub, edge = made(
        tmp_path, authority, authority.issue("hub"), consumers=["mine"], retention="1s"
    )
    with hub, edge:
        sends(edge, 1)
        arrives(hub, 1)

        def held() -> Any:
            return edge.status()["consumers"]["held_files"]["mine"]

        eventually(lambda: held() == 1, "it is old, and stays for the job")
        hub.kill()
        sends(edge, 2)
        [first] = edge.archive.glob("events-*")
        done(edge, first.name)
        eventually(lambda: not first.exists(), "nobody needs it any more")
        [second] = eventually(
            lambda: [*edge.spool.glob("events-*")], "it waits for the hub"
        )
        done(edge, second.name)  # whatever the job says
        hub.start()
        arrives(hub, 2)
        eventually(lambda: not [*edge.archive.glob("events-*")], "both have it")
        assert edge.status()["sentence"]


def done(edge: Daemon, name: str) -> None:
    """The job has read a file."""
    said = run(
        *(sys.executable, "-m", "gateway.cli", "spool", "done", "mine", name),
        *("--config", edge.config),
    )
    assert said.returncode == 0, said.stdout + said.stderr


class Clocked(Daemon):
    """One whose wall clock is the test's, also when it starts."""

    fresh = True

    @property
    def command(self) -> list[str]:
        home = self.config.parent
        (home / "twistd.py").write_text(TWISTD)
        if not (home / "offset").exists():
            (home / "offset").write_text("0")
        return [sys.executable, str(home / "twistd.py"), *super().command[1:]]

    def set_clock(self, by: timedelta) -> None:
        """So much from what it really is."""
        home = self.config.parent
        (home / "offset").write_text(str(by.total_seconds()))
        if self.process is not None:
            os.kill(self.pid, signal.SIGUSR2)
            eventually((home / "done").exists, "the clock is set")
            (home / "done").unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("days", "way"),
    [(30, "ahead of"), pytest.param(-30, "behind", marks=pytest.mark.long)],
)
def test_the_clock_of_an_edge_is_a_month_off(tmp_path, days, way):
    """Its events have its times, and are there once; nothing of them leaves either side for
    its age, not when the edge starts with such a clock, nor once it is right again.  The
    hub says whose clock it is, and goes by its own.
    """
    authority = Authority(tmp_path / "certificates")
    certificate = authority.issue("hub", valid=timedelta(days=90))
    hub, edge = made(tmp_path, authority, certificate, edge=Clocked)
    assert isinstance(edge, Clocked)
    with hub, edge:
        sends(edge, 1)
        arrives(hub, 1)
        edge.set_clock(timedelta(days=days))
        sends(edge, 2)
        arrives(hub, 2)
        edge.kill()
        edge.start()  # by that clock
        sends(edge, 3)
        arrives(hub, 3)
        eventually(
            lambda: (
                "the clock of edge, which forwards to this gateway, is 720.0 h "
                f"{way} the one here" in hub.status()["sentence"]
            ),
            "the hub says so",
        )
        for one in (hub, edge):
            eventually(
                lambda one=one: one.status()["freshness"]["age_seconds"] == 0,
                "it is fresh",
            )
        edge.set_clock(timedelta())
        edge.restart()
        sends(edge, 4)
        arrives(hub, 4)
        eventually(
            lambda: len([*edge.archive.glob("events-edge_*")]) == 4,
            "the edge has heard of it",
        )
        files = [*hub.archive.glob("events-edge_*")]
        assert len(files) == 4
        now = time.time()
        assert all(abs(path.stat().st_mtime - now) < 86400 for path in files)
        shown = [row["received_at"] - datetime.now(UTC) for row in rows_at(hub)]
        # The one that shows the clock being set back is not older than what was told to be all.
        asked = [0, max(days, 0), days, 0]
        assert [round(one / timedelta(days=1)) for one in shown] == asked
