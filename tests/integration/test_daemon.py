"""How the daemon starts, refuses to start, and takes new certificates."""

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from pylogbeat import PyLogBeatClient

from daemons import TERMINATED, Daemon, listener, tls
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


def test_a_directory_has_one_daemon(start, prepare):
    """A second one refuses and says who is there; the first is not disturbed."""
    first = start()
    done = prepare("second", data_dir=str(first.data), node="gw-2").run()
    assert done.returncode == 1
    assert f"{first.data} is in use by gateway gw-1, pid {first.pid}" in done.stderr
    with PyLogBeatClient(*first.address()) as client:
        client.send([event(1)])
    assert first.listener()["events"] == 1


def test_a_configuration_is_checked_without_a_start(prepare):
    """`--check-config` says ok and touches nothing, or says all that is wrong."""
    fine = prepare("fine")
    done = fine.run("--check-config")
    assert (done.returncode, done.stdout) == (0, f"{fine.config}: ok\n")
    assert not fine.data.exists()
    wrong = prepare("wrong", listeners=beats(listen="tcp:5044x"), jurnal={})
    done = wrong.run("--check-config")
    assert done.returncode == 1
    assert "listeners[0].listen" in done.stderr
    assert "jurnal" in done.stderr
    assert not wrong.data.exists()


def test_a_killed_daemon_goes_on_where_it_was(start):
    """What was acknowledged before kill -9 is published after it, with lsns that the
    next life continues.
    """
    daemon = start(spool={"roll_interval": "1h"})
    with PyLogBeatClient(*daemon.address()) as client:
        client.send([event(number) for number in range(10)])
    daemon.kill()
    assert daemon.rows() == []
    daemon.start()
    daemon.settled()
    with PyLogBeatClient(*daemon.address()) as client:
        client.send([event(number) for number in range(10, 20)])
    assert daemon.terminate() in TERMINATED
    rows = daemon.rows()
    assert [json.loads(row["payload"]) for row in rows] == [
        event(number) for number in range(20)
    ]
    assert len({row["session"] for row in rows}) == 2


def test_nobody_is_let_in_before_what_was_left_is_in_files(tmp_path):
    """With `ack: spool`: whoever resumes is told how far it is."""
    slow = {"listeners": beats(), "spool": {"roll_interval": "1h"}}
    with Daemon(tmp_path, slow) as daemon:
        with PyLogBeatClient(*daemon.address()) as client:
            client.send([event(number) for number in range(5)])
        daemon.kill()
        assert daemon.rows() == []
    with Daemon(tmp_path, {**slow, "ack": "spool"}) as daemon:
        assert len(daemon.rows()) == 5
        _, _, rest = daemon.log.rpartition("Senders wait: what the last run left")
        assert "(ack: spool)" in rest
        assert "takes events" in rest
        assert daemon.terminate() in TERMINATED


def test_sighup_takes_a_new_certificate(start, authority):
    """New connections see the new one; a connection that is open goes on."""
    old = authority.issue("old", file="server")
    daemon = start(listeners=beats(tls=tls(old)))
    address = daemon.address()
    assert served(address) == "CN=old"
    with PyLogBeatClient(
        *address, ssl_enable=True, ca_certs=str(authority.ca)
    ) as client:
        client.send([event(1)])
        authority.issue("new", file="server")
        daemon.hang_up()
        eventually(lambda: served(address) == "CN=new", "the new certificate")
        client.send([event(2)])
    rows = daemon.settled_rows()
    assert [json.loads(row["payload"]) for row in rows] == [event(1), event(2)]
    assert len({row["session"] for row in rows}) == 1


def served(address: tuple[str, int]) -> str:
    """The subject of the certificate that a new connection is shown."""
    pem = ssl.get_server_certificate(address)
    return x509.load_pem_x509_certificate(pem.encode()).subject.rfc4514_string()


FEW = 256


@pytest.fixture
def daemon(prepare, monkeypatch) -> Daemon:
    """One that may open few files."""
    made = prepare()
    command = ["sh", "-c", f'ulimit -n {FEW}; exec "$@"', "sh", *made.command]
    monkeypatch.setattr(Daemon, "command", property(lambda _: command))
    return made


@contextlib.contextmanager
def drips(address: tuple[str, int], count: int) -> Iterator[list[socket.socket]]:
    """Connections that say a byte and no more."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            made.append(stack.enter_context(socket.create_connection(address, 60)))
            with contextlib.suppress(OSError):
                made[-1].send(b"G")
        yield made


def test_nobody_takes_the_last_ones(daemon):
    """400 sockets at either port: health answers, windows become files, the log is short."""
    daemon = daemon.start()
    host, port = daemon.admin.rsplit(":", 1)
    with (
        PyLogBeatClient(*daemon.address()) as client,
        drips((host, int(port)), 400),
        drips(daemon.address(), 400),
    ):
        assert daemon.get("/healthz") == b"ok\n"
        for number in range(5):
            client.send([{"number": number}])
        eventually(lambda: len(daemon.rows()) == 5, "all are published")
        assert daemon.get("/readyz") == b"ready\n"
    assert len(daemon.log.splitlines()) < 200
    assert "can not be published" not in daemon.log
