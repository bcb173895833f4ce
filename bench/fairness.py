"""What an honest sender waits for while somebody else attacks.

A Lumberjack writer sends windows of 50 events, each when the last one is acknowledged:
first alone, then beside one connection that sends what an attack of
tests/plugins/attacks sends, again and again, as fast as it is read.  An attacker that is
refused connects again.  With `--connections` there are several attackers, of an address of
their own (127.0.0.2).  The claim: the honest sender's longest wait is at most ten times
that of the same run without attack.

Beside each wait stands the longest sync of the disk meanwhile.  Where the longest wait
beside an attack is too long and the disk alone took half of it, the attack is run twice
more, and the median of the three runs' longest waits is judged: what an attack causes
comes again, and a disk that was slow once does not.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import struct
import sys
import threading
import time
from argparse import Namespace
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from _daemon import Consumer, Gateway, listener
from _machine import machine
from _report import Broken, Claim, Report, arguments, main, workplace
from _windows import build

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "plugins"))

from attacks import ATTACKS
from gateway_testkit.attacks import Attack

_WRITE = 1 << 16
_TIMES = 10
"""So much longer may a wait be."""
_MORE = 2
"""Runs after one that the disk may have spoilt."""


def listeners() -> tuple[dict[str, Any], dict[int, str]]:
    """Settings with a listener for each protocol and its options; who attacks which."""
    found: dict[str, dict[str, Any]] = {}
    attacked = {}
    for number, attack in enumerate(ATTACKS):
        options = dict(attack.options)
        if attack.port:
            options["controller"] = "tcp:127.0.0.1:0"
        wanted = {
            "protocol": attack.protocol,
            "listen": "tcp:127.0.0.1:0",
            "options": options,
        }
        name = next((name for name, one in found.items() if one == wanted), None)
        name = name or f"{attack.protocol}-{len(found)}"
        found[name] = wanted
        attacked[number] = name + attack.port
    honest = listener("honest", "lumberjack")
    named = [{"name": name, **one} for name, one in found.items()]
    return {"listeners": [honest, *named]}, attacked


@dataclass
class Waits:
    """Seconds from a window's last byte to its acknowledgement."""

    longest: float
    median: float
    windows: int
    disk: float = 0.0
    """The longest sync meanwhile, in seconds."""


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


def _connect(address: str, source: str | None = None) -> socket.socket:
    host, _, port = address.rpartition(":")
    made = socket.create_connection(
        (host, int(port)), timeout=60, source_address=source and (source, 0)
    )
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def attack(which: int, address: str, connections: int, stop: Event) -> None:
    """Send its unit again and again until *stop*; read what comes."""
    one = ATTACKS[which]
    data = b"".join(one.reads(one.most))
    source = "127.0.0.2" if connections > 1 else None
    one_of_them = partial(_attack, one, data, address, source, stop)
    others = [threading.Thread(target=one_of_them) for _ in range(connections - 1)]
    for other in others:
        other.start()
    one_of_them()
    for other in others:
        other.join()


def _attack(
    one: Attack, data: bytes, address: str, source: str | None, stop: Event
) -> None:
    while not stop.is_set():
        with contextlib.suppress(OSError), _connect(address, source) as sock:
            for piece in one.opening:
                sock.sendall(piece)
            sock.setblocking(False)
            _flood(sock, data, stop)
        stop.wait(0.01)


def _flood(sock: socket.socket, data: bytes, stop: Event) -> None:
    at, view = 0, memoryview(data)
    while not stop.is_set():
        waits = True
        with contextlib.suppress(BlockingIOError):
            at = (at + sock.send(view[at : at + _WRITE])) % len(data)
            waits = False
        with contextlib.suppress(BlockingIOError):
            if not sock.recv(_WRITE):
                return
            waits = False
        if waits:
            stop.wait(0.001)


class Disk:
    """What the gateway's syncs took, from the file that they are written down in."""

    def __init__(self, syncs: Path) -> None:
        self._file = syncs.open()
        self._begun = 0.0

    def begin(self) -> None:
        self._begun = time.monotonic()

    def longest(self) -> float:
        """Seconds, of those that ended since `begin`."""
        ended_and_took = (map(float, line.split()) for line in self._file)
        return max(
            (took for at, took in ended_and_took if at >= self._begun), default=0
        )


def _measured(honest: Honest, disk: Disk, seconds: float) -> Waits:
    disk.begin()
    waits = honest.work(seconds)
    waits.disk = disk.longest()
    return waits


def _beside(
    gateway: Gateway, disk: Disk, which: int, listener: str, options: Namespace
) -> Waits:
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    address = gateway.address(listener)
    process = context.Process(
        target=attack, args=(which, address, options.connections, stop), daemon=True
    )
    honest = Honest(gateway.address("honest"))
    process.start()
    try:
        time.sleep(0.3)
        return _measured(honest, disk, options.seconds)
    finally:
        stop.set()
        process.join(30)
        process.kill()
        honest.close()


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each attack")
    parser.add_argument("--protocol", help="only this one's attacks")
    parser.add_argument("--attack", default="", help="only those named like this")
    parser.add_argument(
        "--connections", type=int, default=1, help="that attack at once"
    )
    options = parser.parse_args()
    with workplace(options) as home:
        report = Report("fairness", machine(home))
        chosen = [
            which
            for which, one in enumerate(ATTACKS)
            if options.protocol in (None, one.protocol) and options.attack in one.name
        ]
        settings, attacked = listeners()
        syncs = home / "syncs"
        with (
            Gateway(home / "gateway", settings, syncs=syncs) as gateway,
            Consumer(gateway),
        ):
            disk = Disk(syncs)
            honest = Honest(gateway.address("honest"))
            honest.work(1.0)
            alone = _measured(honest, disk, max(5.0, options.seconds))
            honest.close()
            report.add("alone", _text(alone))
            for which in chosen:
                beside = partial(
                    _beside, gateway, disk, which, attacked[which], options
                )
                runs = [beside()]
                if _by_the_disk(runs[0], alone):
                    runs += [beside() for _ in range(_MORE)]
                _add(report, ATTACKS[which], alone, runs)
        return report.finish(as_json=options.json)


def _by_the_disk(waits: Waits, alone: Waits) -> bool:
    """Whether the longest is too long, and the disk took half of it."""
    too_long = waits.longest > _TIMES * alone.longest
    return too_long and waits.disk > waits.longest / 2


def _add(report: Report, one: Attack, alone: Waits, runs: list[Waits]) -> None:
    """Judge the run whose longest wait is the median of all; note all if several."""
    name = f"{one.protocol}: {one.name}"
    if len(runs) > 1:
        report.notes += [f"{name}: one of {len(runs)}, {_text(run)}" for run in runs]
    waits = sorted(runs, key=lambda run: run.longest)[len(runs) // 2]
    report.add(name, _text(waits))
    ratio = waits.longest / alone.longest
    report.claims.append(Claim(f"{name}: longest wait ÷ alone", ratio, "x", _TIMES))


def _text(waits: Waits) -> str:
    return (
        f"longest {waits.longest * 1000:7.1f} ms  median {waits.median * 1000:6.2f} ms  "
        f"{waits.windows:,} windows  disk {waits.disk * 1000:.1f} ms at most"
    )


if __name__ == "__main__":
    main(bench)
