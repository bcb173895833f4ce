"""Gateways behind HAProxy, which chooses by the least connections."""

import contextlib
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daemons import Daemon, free_port, listener
from deadlines import eventually

SENDERS = 6

pytestmark = pytest.mark.skipif(
    shutil.which("haproxy") is None, reason="haproxy is not on the PATH"
)


@contextlib.contextmanager
def haproxy(home: Path, gateways: list[tuple[Daemon, int]]) -> Iterator[int]:
    """It asks each gateway whether it is ready; gives the port that it listens on."""
    port = free_port()
    servers = "\n".join(
        f"  server gw-{number} 127.0.0.1:{at} check inter 100ms fastinter 100ms port "
        f"{daemon.admin.rpartition(':')[2]}"
        for number, (daemon, at) in enumerate(gateways)
    )
    config = home / "haproxy.cfg"
    config.write_text(
        f"""
        defaults
          mode tcp
          timeout connect 5s
          timeout client 1h
          timeout server 1h
        listen beats
          bind 127.0.0.1:{port}
          balance leastconn
          option httpchk GET /readyz
        {servers}
        """
        "\n"
    )
    with (home / "haproxy.log").open("wb") as log:
        running = subprocess.Popen(
            ["haproxy", "-db", "-f", str(config)], stdout=log, stderr=log
        )
        try:
            yield port
        finally:
            running.terminate()
            running.wait()


class Sender(threading.Thread):
    """Sends a window, waits for its acknowledgement, and connects again when it must."""

    def __init__(self, port: int, peer: Callable[[socket.socket], Any]) -> None:
        super().__init__(daemon=True)
        self._port, self._peer = port, peer
        self.acknowledged = self.unheard = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            with contextlib.suppress(OSError, StopIteration):
                self._send()
            self.over.wait(0.05)

    def _send(self) -> None:
        with socket.create_connection(("127.0.0.1", self._port), 30) as plain:
            peer = self._peer(plain)
            while not self.over.wait(0.01):
                self.unheard += 1
                peer.send(peer.window(b"{}", b"{}"))
                peer.ack()
                self.acknowledged += 2
                self.unheard -= 1


def test_a_gateway_that_was_started_again_gets_its_share(prepare, tmp_path, connect):
    """Six senders are all with the other one by then, and go on for as long as they are let:
    with an age of theirs they are three and three, and nothing is doubled.
    """
    ports = [free_port(), free_port()]
    limits = {"connection_age": "1s"}
    daemons = [
        prepare(
            f"gw-{number}",
            listeners=[
                listener(
                    "beats", "lumberjack", listen=f"tcp:127.0.0.1:{port}", limits=limits
                )
            ],
        )
        for number, port in enumerate(ports)
    ]
    daemons[0].start()
    peer = type(connect(("127.0.0.1", ports[0])))
    with haproxy(tmp_path, list(zip(daemons, ports, strict=True))) as port:
        senders = [Sender(port, peer) for _ in range(SENDERS)]
        for sender in senders:
            sender.start()
        eventually(lambda: all(one.acknowledged for one in senders), "all are served")
        daemons[1].start()

        def shared() -> bool:
            return [one.listener()["connections"] for one in daemons] == [3, 3]

        eventually(shared, "each has three connections")
        for sender in senders:
            sender.over.set()
        for sender in senders:
            sender.join()
    for daemon in daemons:
        daemon.terminate()
    rows = sum(len(daemon.rows()) for daemon in daemons)
    assert rows >= (sent := sum(one.acknowledged for one in senders))
    assert rows <= sent + 2 * sum(one.unheard for one in senders)
