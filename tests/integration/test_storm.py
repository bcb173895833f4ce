"""All senders come at once to a daemon that has just been started, on a slow machine.

`bench/storm.py` does this with 2,200, and beside go-lumber's server.
"""

import contextlib
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from daemons import Daemon, listener, tls

SENDERS = 300


@contextlib.contextmanager
def a_tenth(daemon: Daemon) -> Iterator[None]:
    """It goes on for 10 ms of each 100."""
    over = threading.Event()

    def turns() -> None:
        while not over.wait(0.01):
            os.kill(daemon.pid, signal.SIGSTOP)
            time.sleep(0.09)
            os.kill(daemon.pid, signal.SIGCONT)

    thread = threading.Thread(target=turns, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Crowd:
    """Each sends a window, and comes again until that is acknowledged."""

    def __init__(self, daemon: Daemon, context: ssl.SSLContext, addresses: int) -> None:
        self._where = daemon.address()
        self._context = context
        self._addresses = addresses
        self._together = threading.Barrier(SENDERS)
        self.connections = 0

    def storm(self) -> None:
        """Returns once all are acknowledged."""
        with ThreadPoolExecutor(SENDERS) as pool:
            list(pool.map(self._send, range(SENDERS)))

    def _send(self, number: int) -> None:
        self._together.wait()
        source = f"127.0.7.{1 + number % self._addresses}"
        while True:
            self.connections += 1
            with contextlib.suppress(OSError):
                plain = socket.create_connection(self._where, 240, (source, 0))
                with self._context.wrap_socket(
                    plain, server_hostname="localhost"
                ) as peer:
                    peer.sendall(b"2W\0\0\0\1" + b"2J\0\0\0\1\0\0\0\2{}")
                    heard = peer.recv(99)
                    while heard == b"2A\0\0\0\0":
                        heard = peer.recv(99)
                    if heard.endswith(b"2A\0\0\0\1"):
                        return
            time.sleep(0.5)


@pytest.mark.parametrize(
    ("ways", "addresses"), [("tls", 200), ("mtls", 200), ("mtls", 1), ("tls", 1)]
)
def test_all_get_in(start, authority, ways, addresses):
    """In one connection each, though each waits longer than `limits.handshake` for its turn.

    Of one address more come than may be strangers: some come again, and all get in.
    """
    section = tls(authority.issue("localhost"))
    context = ssl.create_default_context(cafile=str(authority.ca))
    if ways == "mtls":
        section |= {"client_auth": "required", "client_ca": str(authority.ca)}
        context.load_cert_chain(*authority.issue("agent"))
    few = {"connections_per_peer": 100} if addresses == 1 else {}
    limits = {"handshake": "3s", **few}
    daemon = start(
        listeners=[listener("beats", "lumberjack", tls=section, limits=limits)]
    )
    crowd = Crowd(daemon, context, addresses)
    with a_tenth(daemon):
        crowd.storm()
    daemon.settled()
    assert len(daemon.rows()) == SENDERS
    rejected = daemon.listener()["rejected"]
    if addresses > 1:
        assert crowd.connections == SENDERS
        assert rejected == {}
    else:
        assert rejected.keys() == {"connections_per_peer"}
