"""What an honest sender waits for while somebody else attacks.

A Lumberjack writer sends windows of 50 events, each when the last one is acknowledged:
first alone, then beside one connection that sends the unit of an attack (those of
`amplification`) as fast as it is read.  An attacker that is refused connects again.  The
claim: its longest wait is at most ten times that of the same run without attack.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import struct
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Event

from _daemon import Consumer, Gateway
from _machine import machine
from _report import Broken, Claim, Report, arguments, main, workplace
from _windows import build
from amplification import ATTACKS, Attack

_SETTINGS = {
    "listeners": [
        {"name": protocol, "protocol": protocol, "listen": "tcp:127.0.0.1:0"}
        for protocol in ("lumberjack", "pomelo", "pravega", "rsio")
    ]
}
_WRITE = 1 << 16


@dataclass
class Waits:
    """Seconds from a window's last byte to its acknowledgement."""

    longest: float
    median: float
    windows: int


class Honest:
    """The writer whose waits are measured; it is in this process."""

    def __init__(self, address: str) -> None:
        self._socket = _connect(address)
        self._windows = build(546, 50, 3, seed=7).frames

    def work(self, seconds: float) -> Waits:
        """Send windows for so long."""
        waits: list[float] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._socket.sendall(self._windows[len(waits) % len(self._windows)])
            sent = time.perf_counter()
            self._acknowledged()
            waits.append(time.perf_counter() - sent)
        waits.sort()
        return Waits(waits[-1], waits[len(waits) // 2], len(waits))

    def _acknowledged(self) -> None:
        """Read until its window is acknowledged; keepalives acknowledge nothing."""
        while True:
            frame = b""
            while len(frame) < 6:
                if not (got := self._socket.recv(6 - len(frame))):
                    raise Broken("the honest sender was closed")
                frame += got
            if struct.unpack_from(">I", frame, 2)[0]:
                return

    def close(self) -> None:
        self._socket.close()


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    made = socket.create_connection((host, int(port)), timeout=60)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def attack(which: int, address: str, stop: Event) -> None:
    """Send its unit again and again until *stop*; read what comes."""
    unit = ATTACKS[which].unit()
    unit *= max(1, _WRITE // len(unit))
    while not stop.is_set():
        with contextlib.suppress(OSError), _connect(address) as sock:
            sock.sendall(ATTACKS[which].opening)
            sock.setblocking(False)
            _flood(sock, unit, stop)
        stop.wait(0.01)


def _flood(sock: socket.socket, unit: bytes, stop: Event) -> None:
    at = 0
    while not stop.is_set():
        waits = True
        with contextlib.suppress(BlockingIOError):
            at = (at + sock.send(memoryview(unit)[at:])) % len(unit)
            waits = False
        with contextlib.suppress(BlockingIOError):
            if not sock.recv(_WRITE):
                return
            waits = False
        if waits:
            stop.wait(0.001)


def _beside(gateway: Gateway, which: int, seconds: float) -> Waits:
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    address = gateway.address(ATTACKS[which].protocol)
    process = context.Process(target=attack, args=(which, address, stop), daemon=True)
    honest = Honest(gateway.address("lumberjack"))
    process.start()
    try:
        time.sleep(0.5)
        return honest.work(seconds)
    finally:
        stop.set()
        process.join(30)
        process.kill()
        honest.close()


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each attack")
    parser.add_argument("--protocol", help="only this one's attacks")
    options = parser.parse_args()
    with workplace(options) as home:
        report = Report("fairness", machine(home))
        chosen = [
            which
            for which, one in enumerate(ATTACKS)
            if options.protocol in (None, one.protocol)
        ]
        with Gateway(home / "gateway", _SETTINGS) as gateway:
            consumer = Consumer(gateway)
            consumer.start()
            honest = Honest(gateway.address("lumberjack"))
            honest.work(1.0)
            alone = honest.work(max(5.0, options.seconds))
            honest.close()
            report.add("alone", _text(alone))
            for which in chosen:
                _add(report, ATTACKS[which], alone, gateway, which, options.seconds)
            consumer.stop()
        return report.finish(as_json=options.json)


def _add(
    report: Report,
    one: Attack,
    alone: Waits,
    gateway: Gateway,
    which: int,
    seconds: float,
) -> None:
    waits = _beside(gateway, which, seconds)
    name = f"{one.protocol}: {one.name}"
    report.add(name, _text(waits))
    ratio = waits.longest / alone.longest
    report.claims.append(Claim(f"{name}: longest wait ÷ alone", ratio, "x", 10))


def _text(waits: Waits) -> str:
    return (
        f"longest {waits.longest * 1000:7.1f} ms  median {waits.median * 1000:6.2f} ms  "
        f"{waits.windows:,} windows"
    )


if __name__ == "__main__":
    main(bench)
