"""How the daemon starts, and refuses to."""

import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pylogbeat import PyLogBeatClient

from daemons import TERMINATED, Daemon, listener
from deadlines import eventually, run


def beats(**more: Any) -> list[dict[str, Any]]:
    return [listener("beats", "lumberjack", **more)]


def event(number: int) -> dict[str, int]:
    return {"number": number}


@pytest.mark.parametrize("of", ["beats", "admin"])
def test_a_port_that_is_taken_ends_the_start(prepare, of):
    """It exits with a failure and names listener, or purpose, address and reason."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"tcp:127.0.0.1:{taken.getsockname()[1]}"
        usual = {"listeners": beats(listen=where)}
        done = prepare(
            **(usual if of == "beats" else {"admin": {"listen": where}})
        ).run()
    assert done.returncode == 1
    assert (
        f"can not start: listener {of}: {where}: Address already in use" in done.stderr
    )
    assert "Traceback" not in done.stderr


@pytest.mark.fresh
def test_a_start_in_the_background(prepare):
    """Without `-n` it comes back when events are taken, or says why they are not."""
    daemon = prepare()
    pid_file = daemon.config.with_name("twistd.pid")

    def start_in_background() -> subprocess.CompletedProcess[str]:
        words = [one for one in daemon.command if one not in ("-n", "--pidfile=")]
        pid = f"--pidfile={pid_file}"
        log = f"--logfile={pid_file.with_suffix('.log')}"
        words.insert(words.index("gateway"), pid)
        words.insert(words.index("gateway"), log)
        return run(*words, cwd=pid_file.parent)

    host, _, port = daemon.admin.rpartition(":")
    with socket.create_server((host, int(port))):
        done = start_in_background()
    assert done.returncode == 1
    assert "gateway can not start: listener admin: tcp:" in done.stderr
    assert "Traceback" not in done.stderr
    assert not pid_file.exists()
    done = start_in_background()
    try:
        assert (done.returncode, done.stderr) == (0, "")
        assert daemon.get("/readyz") == b"ready\n"
    finally:
        os.kill(int(pid_file.read_text()), signal.SIGTERM)
        eventually(lambda: not pid_file.exists(), "it has ended")


def test_a_disk_that_is_not_mounted(tmp_path, prepare):
    """A link leads nowhere: the start names it and what to do, and makes nothing."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    done = prepare(data_dir=str(link)).run()
    assert done.returncode == 1
    assert (
        f"File exists: '{link}'.  What to do: a directory belongs there" in done.stderr
    )
    spool = tmp_path / "data" / "spool"
    spool.parent.mkdir()
    spool.symlink_to(tmp_path / "nowhere")
    done = prepare(data_dir=str(spool.parent)).run()
    assert done.returncode == 1
    assert f"'{spool}'.  What to do: is a disk not mounted" in done.stderr
    assert not (tmp_path / "nowhere").exists()


class WithClosed(Daemon):
    """Started by somebody who closes some of descriptors 0 to 2."""

    closed = ""

    @property
    def command(self) -> list[str]:
        return ["sh", "-c", f'exec "$0" "$@" {self.closed}', *super().command]


@pytest.mark.parametrize(
    "closed",
    [
        *(pytest.param(one, marks=pytest.mark.long) for one in ("<&-", "2>&-")),
        "<&- >&- 2>&-",
    ],
)
def test_a_start_without_standard_files(tmp_path, closed):
    """Their numbers are given to no other file, into which prints would go: neither here
    nor in the processes that write the spool's.
    """
    daemon = WithClosed(tmp_path / "gateway", {"spool": {"publishers": 1}})
    daemon.closed = closed
    with daemon:
        with PyLogBeatClient(*daemon.address()) as client:
            client.send([event(number) for number in range(5)])
        daemon.settled(5)
        children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text()
        assert children.split()
        for pid in (daemon.pid, *children.split()):
            for number in (0, 1, 2):
                link = Path(f"/proc/{pid}/fd/{number}").readlink()
                assert link in (Path("/dev/null"), daemon._log), (pid, number)
        assert daemon.terminate() in TERMINATED
        assert len(daemon.rows()) == 5


def test_a_renamed_node_leaves_nothing_behind(start, prepare, gateway_command):
    """What was acknowledged under the old name is published, and the audit fails until
    it is.
    """
    first = start(node="host-a", spool={"roll_interval": "1h"})
    with PyLogBeatClient(*first.address()) as client:
        client.send([event(number) for number in range(5)])
    first.kill()
    second = prepare("second", data_dir=str(first.data), node="host-b")

    def audit() -> Any:
        return gateway_command("audit", "--config", second.config)

    found = audit()
    assert found.returncode == 1
    assert "nobody serves node host-a" in found.stdout
    second.start()
    assert "Node host-a left 5 acknowledged events in its journal" in second.log
    assert audit().returncode == 0
    assert len(list((first.data / "spool").glob("events-host-a_*.parquet"))) == 1
