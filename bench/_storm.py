"""Lumberjack senders that all connect again at once: a process of its own, of `storm.py`.

    python bench/_storm.py HOST:PORT --senders 2200 --active 200 [--certificate FILE --key FILE]

All have a window to send, over TLS 1.3, each from a loopback address of its own; when that
is acknowledged most are silent, and the active ones go on with a window each half second.
Whoever is cut connects again as Filebeat does: after a second, then after pauses that
double up to a minute, each shortened by chance by up to a half; and who waits for 30 s for
a handshake or an acknowledgement gives up and does the same.

It says `ready`, and waits for a line; then it begins, and prints JSON once all were
acknowledged, or after --patience seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import select
import socket
import ssl
import sys
import time
from enum import Enum
from typing import Any

from _daemon import most_files
from _windows import build

_TIMEOUT_SECONDS = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_EVERY_SECONDS = 0.5
_EVENTS = 50
_ACK = 6


class Stage(Enum):
    """How far a connection is."""

    CONNECTING = "connecting"
    SHAKING = "shaking hands"
    SENDING = "sending"


class Sender:
    """One of them, and its connection, if it has one."""

    def __init__(self, storm: Storm, number: int, active: bool) -> None:
        self._storm = storm
        self._source = (
            f"127.{1 + number // 60_000}.{number // 250 % 240}.{1 + number % 250}"
        )
        self._active = active
        self._sock: Any = None
        self._pause = _FIRST_PAUSE
        self._stage = Stage.CONNECTING
        self._unsent = memoryview(b"")
        self._answer = b""
        self._waits = False
        """For an acknowledgement."""
        self.due = 0.0
        """When it has something to do, or has waited for too long."""
        self.acknowledged = False

    def begin(self, now: float) -> None:
        """Connect."""
        self._storm.connections += 1
        plain = self._sock = socket.socket()
        plain.setblocking(False)
        plain.bind((self._source, 0))
        plain.connect_ex(self._storm.address)
        self._stage = Stage.CONNECTING
        self._answer = b""
        self.due = now + _TIMEOUT_SECONDS
        self._storm.watch(self, plain.fileno())
        self._take_window()

    def _encrypt(self) -> None:
        """The reader's port has taken the connection, or not."""
        plain = self._sock
        if error := plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, "not connected")
        self._sock = self._storm.context.wrap_socket(
            plain, server_hostname="localhost", do_handshake_on_connect=False
        )
        self._stage = Stage.SHAKING

    def _take_window(self) -> None:
        self._unsent = memoryview(self._storm.window())
        self._waits = True

    def look(self, now: float) -> None:
        """Its time has come."""
        if self._sock is None:
            self.begin(now)
        elif self._waits:
            self._storm.gave_up += 1
            self._end(now)
        elif self._active:
            self._take_window()
            self.due = now + _TIMEOUT_SECONDS
            self.go_on(now)
        else:
            self.due = float("inf")

    def go_on(self, now: float) -> None:
        """Its socket is ready for something."""
        writes = False
        try:
            if self._stage is Stage.CONNECTING:
                self._encrypt()
            if self._stage is Stage.SHAKING:
                self._sock.do_handshake()
                self._stage = Stage.SENDING
            while self._unsent:
                sent = self._sock.send(self._unsent)
                self._unsent = self._unsent[sent:]
            self._read(now)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            writes = True
        except OSError:
            if self._waits:
                self._storm.cut += 1
            self._end(now)
            return
        self._storm.wants(self._sock.fileno(), writes=writes)

    def _read(self, now: float) -> None:
        while True:
            data = self._sock.recv(1 << 14)
            if not data:
                raise ConnectionResetError
            self._answer += data
            while len(self._answer) >= _ACK:
                number = int.from_bytes(self._answer[2:_ACK], "big")
                self._answer = self._answer[_ACK:]
                if number == _EVENTS:
                    self._heard(now)

    def _heard(self, now: float) -> None:
        self._waits = False
        self._pause = _FIRST_PAUSE
        self.due = now + _EVERY_SECONDS if self._active else float("inf")
        if not self.acknowledged:
            self.acknowledged = True
            self._storm.heard(now)

    def _end(self, now: float) -> None:
        self._storm.forget(self._sock.fileno())
        self._sock.close()
        self._sock = None
        self._waits = True
        self.due = now + self._pause * random.uniform(0.5, 1.0)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


class Storm:
    """All of them, in one thread."""

    def __init__(self, options: argparse.Namespace) -> None:
        host, _, port = options.reader.rpartition(":")
        self.address = host, int(port)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname = False  # who is there is not the question
        self.context.verify_mode = ssl.CERT_NONE
        if options.certificate:
            self.context.load_cert_chain(options.certificate, options.key)
        frames = build(64, _EVENTS, 3, seed=7).frames
        self._frames = frames
        self._poll = select.epoll()
        self._watched: dict[int, Sender] = {}
        self._at: list[float] = []
        self.connections = self.cut = self.gave_up = 0
        """Opened; ended by the reader before its acknowledgement; given up as it was late."""
        self.senders = [
            Sender(self, number, number < options.active)
            for number in range(options.senders)
        ]

    def window(self) -> bytes:
        """One of some, none like the other."""
        return random.choice(self._frames)

    def watch(self, sender: Sender, descriptor: int) -> None:
        self._watched[descriptor] = sender
        self._poll.register(descriptor, select.EPOLLIN | select.EPOLLOUT)

    def wants(self, descriptor: int, *, writes: bool) -> None:
        self._poll.modify(descriptor, select.EPOLLIN | writes * select.EPOLLOUT)

    def forget(self, descriptor: int) -> None:
        del self._watched[descriptor]
        self._poll.unregister(descriptor)

    def heard(self, now: float) -> None:
        """One more sender was acknowledged."""
        self._at.append(now)

    def run(self, patience: float) -> dict[str, Any]:
        """Until all are; what that took."""
        begun = now = time.monotonic()
        for sender in self.senders:
            sender.begin(now)
        looked = now
        while len(self._at) < len(self.senders) and now - begun < patience:
            for descriptor, _ in self._poll.poll(0.05):
                if sender := self._watched.get(descriptor):
                    sender.go_on(time.monotonic())
            now = time.monotonic()
            if now - looked >= 0.05:
                looked = now
                for sender in self.senders:
                    if now >= sender.due:
                        sender.look(now)
        took = [at - begun for at in self._at]
        return {
            "acknowledged": len(took),
            "all_s": took[-1] if len(took) == len(self.senders) else None,
            "half_s": took[len(took) // 2] if took else None,
            "connections": self.connections,
            "cut": self.cut,
            "gave_up": self.gave_up,
            "generator_cpu_s": time.process_time(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reader", metavar="HOST:PORT")
    parser.add_argument("--senders", type=int, default=2200)
    parser.add_argument("--active", type=int, default=200)
    parser.add_argument("--certificate")
    parser.add_argument("--key")
    parser.add_argument("--patience", type=float, default=180.0)
    options = parser.parse_args()
    most_files()
    storm = Storm(options)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(storm.run(options.patience)), flush=True)


if __name__ == "__main__":
    main()
