"""Pomelo through one gateway process: requests, notifies, idle clients, a push.

    python bench/pomelo.py                    all cases
    python bench/pomelo.py --case tcp,crowd   some

tcp      requests with 64 B of JSON, 100 connections, 10 in flight on each
web      the same over WebSocket
depth1   like tcp, one in flight
one      one connection, one in flight: how long it waits, in syncs of the disk
notify   99 notifies before each request, two in flight on each of 100 connections
crowd    10 000 connections with heartbeats every 3 s, then one push to all

fsync is on and Parquet is written meanwhile.  Where node and npm are there, the same
clients then talk to the npm package pomelo, which echoes what it gets and stores
nothing; it is installed once, into the user's cache directory.

The generator is this process, on the same machine; every message has a body of its
own, every answer is matched with its request.  A second of the same load comes first
and is not counted.  CPU is that of all threads of the server, user and system, from
the first event until the last one is in Parquet, ÷ events.

Memory of a connection is the growth of the resident set ÷ connections, for all of
them or for the second half, whichever is more: the first may grow into what the
process had free before.  It is small objects of CPython and nothing else, so it is
printed beside what bare Twisted takes.  Socket buffers are the kernel's and are in
neither figure.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from _daemon import Consumer, Gateway, Usage
from _machine import machine
from _players import answered, greeted, package, players, waited
from _pomelo_npm import VERSION, Echo, Lacking, installed
from _report import Broken, Claim, Report, arguments, main, workplace
from idle import bare

_SETTLE_SECONDS = 3.0
_WARM_UP_SECONDS = 1.0
_HEARTBEAT_SECONDS = 3
_BEAT_SECONDS = 2.8


@dataclass(frozen=True)
class Case:
    """A load, and what is claimed of it."""

    depth: int
    """Requests in flight on each connection."""
    notifies: int = 0
    """Before each request."""
    web: bool = False
    rate: int | None = None
    """Events a second, at least."""
    us: int | None = None
    """CPU of an event, at most."""


CASES = {
    "tcp": Case(10, rate=30_000, us=30),
    "web": Case(10, web=True, us=45),
    "depth1": Case(1, rate=15_000),
    "notify": Case(2, notifies=99, rate=80_000, us=12),
}


@dataclass
class Run:
    """What became of one load."""

    rate: float
    us: float
    generator_us: float


def measure(server: Gateway | Echo, address: str, case: Case, seconds: float) -> Run:
    gateway = server if isinstance(server, Gateway) else None
    stored = gateway is not None
    with players(
        address, 100, web=case.web, notifies=case.notifies, stored=stored
    ) as crowd:
        answered(crowd, _WARM_UP_SECONDS, case.depth)
        first = _settled(gateway)
        before, own = server.usage(), time.process_time()
        count = answered(crowd, seconds, case.depth) * (case.notifies + 1)
        took, own = time.monotonic() - before.at, time.process_time() - own
        last = _settled(gateway)
        cpu = server.usage().cpu - before.cpu
    if stored and last - first != count:
        raise Broken(f"{count} were sent and answered, {last - first} are stored")
    return Run(count / took, cpu / count * 1e6, own / count * 1e6)


def _settled(gateway: Gateway | None) -> int:
    """The last event, which is in Parquet when this returns."""
    if gateway is None:
        return 0
    gateway.wait_published()
    return gateway.lsns()[1]


@dataclass
class Crowd:
    """What many connections cost."""

    rate: float
    """Connected and greeted, a second."""
    rss: int
    """With all of them, in bytes."""
    each: float
    """Of `rss`, one connection."""
    cores: float
    """While they only beat."""


def gather(
    usage: Callable[[], Usage],
    address: str,
    count: int,
    seconds: float,
    then: Callable[[list[socket.socket]], None],
) -> Crowd:
    """Connect, and beat; call *then* while all are connected."""
    for sock in [greeted(address) for _ in range(50)]:  # whatever the first ones import
        sock.close()
    time.sleep(_SETTLE_SECONDS)
    connecting, sizes = 0.0, [usage().rss]
    with contextlib.ExitStack() as stack:
        socks: list[socket.socket] = []
        for _ in range(2):
            begin = beaten = time.monotonic()
            for _ in range(count // 2):
                socks.append(stack.enter_context(greeted(address)))
                if (now := time.monotonic()) - beaten > _HEARTBEAT_SECONDS:
                    beat(socks)
                    beaten = time.monotonic()
                    begin += beaten - now
            connecting += time.monotonic() - begin
            beats(socks, seconds / 2)
            sizes.append(usage().rss)
        quiet = usage()
        beats(socks, seconds)
        cores, _ = usage().since(quiet)
        then(socks)
    empty, half, full = sizes
    each = max(full - empty, 2 * (full - half)) / count
    return Crowd(count / connecting, full, each, cores)


def beats(socks: list[socket.socket], seconds: float) -> None:
    """A heartbeat of each within 3 s, evenly."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        beat(socks, _BEAT_SECONDS)


def beat(socks: list[socket.socket], seconds: float = 0.0) -> None:
    """One heartbeat of each."""
    begin, beat = time.monotonic(), package(3)
    for at, sock in enumerate(socks):
        sock.sendall(beat)
        sock.recv(65536)  # there is at least the first heartbeat
        if at % 100 == 99:
            due = begin + seconds * at / len(socks)
            time.sleep(max(0.0, due - time.monotonic()))


def push(gateway: Gateway, socks: list[socket.socket]) -> float:
    """Seconds from the request to the last client's reading of it."""
    body = {"route": "bench.push", "body": {"n": 1}, "all": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{gateway.admin_port}/api/push",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    begin = time.monotonic()
    with urllib.request.urlopen(request, timeout=30) as answer:
        told = json.load(answer)
    if told["sent"] != len(socks):
        raise Broken(f"pushed to {told} of {len(socks)}")
    for sock in socks:
        heard = b""
        while b"bench.push" not in heard:
            heard += sock.recv(65536)
    return time.monotonic() - begin


def started(home: Path, heartbeat: int, syncs: Path | None = None) -> Gateway:
    limits = {"connections": 12_000, "connections_per_peer": 12_000, "idle": "1h"}
    game = {
        "name": "game",
        "protocol": "pomelo",
        "listen": "tcp:127.0.0.1:0",
        "websocket": {"path": "/"},
        "limits": limits,
        "options": {"heartbeat": f"{heartbeat}s"},
    }
    return Gateway(home, {"listeners": [game]}, syncs=syncs)


class Bench:
    """One run of this program."""

    def __init__(self, report: Report, home: Path, modules: Path | None) -> None:
        self._report = report
        self._home = home
        self._modules = modules
        """Of npm; None if there is nothing to compare with."""

    def case(self, name: str, seconds: float) -> None:
        """The gateway, then pomelo."""
        case, report = CASES[name], self._report
        with started(self._home / name, 0) as gateway:
            consumer = Consumer(gateway)
            consumer.start()
            run = measure(gateway, gateway.address("game"), case, seconds)
            consumer.stop()
        report.add(f"{name}: rate", run.rate, "/s")
        report.add(f"{name}: CPU", run.us, "µs each")
        report.add(f"{name}: generator's CPU", run.generator_us, "µs each")
        if case.rate:
            what = f"{name}: events a second"
            report.claims.append(Claim(what, run.rate, "/s", case.rate, at_least=True))
        if case.us:
            report.claims.append(Claim(f"{name}: CPU of one", run.us, "µs", case.us))
        if self._modules is None:
            return
        with Echo(self._home / f"pomelo-{name}", self._modules, 0) as echo:
            other = measure(echo, echo.address, case, seconds)
        report.add(f"{name}: pomelo's rate", other.rate, "/s")
        report.add(f"{name}: pomelo's CPU", other.us, "µs each")
        report.add(f"{name}: rate ÷ pomelo's", run.rate / other.rate, "x")
        report.add(f"{name}: CPU ÷ pomelo's", run.us / other.us, "x")

    def one(self, seconds: float) -> None:
        """What a single client waits for; pomelo syncs nothing."""
        report, syncs = self._report, self._home / "syncs"
        with (
            started(self._home / "one", 0, syncs) as gateway,
            players(gateway.address("game"), 1, web=False, notifies=0, stored=True) as [
                player
            ],
        ):
            answered([player], _WARM_UP_SECONDS, 1)
            before = len(syncs.read_text().splitlines())
            waits = waited(player, seconds)
            taken = syncs.read_text().splitlines()[before:]
        disk = sorted(float(line.split()[1]) for line in taken)
        waits.sort()
        wait, sync = waits[len(waits) // 2], disk[len(disk) // 2]
        report.add("one: request to answer, median", wait * 1e3, "ms")
        report.add("one: the same, p99", waits[len(waits) * 99 // 100] * 1e3, "ms")
        report.add("one: a sync, median", sync * 1e3, "ms")
        report.add("one: median wait ÷ median sync", wait / sync, "x")
        what = "one client's median wait beyond a sync"
        report.claims.append(Claim(what, (wait - sync) * 1e3, "ms", 0.5))

    def crowd(self, count: int, seconds: float) -> None:
        """The same, and what bare Twisted takes."""
        report, took = self._report, 0.0

        def everybody(socks: list[socket.socket]) -> None:
            nonlocal took
            took = push(gateway, socks)

        with started(self._home / "crowd", _HEARTBEAT_SECONDS) as gateway:
            address = gateway.address("game")
            found = gather(gateway.usage, address, count, seconds, everybody)
        floor = bare(count)
        report.add("crowd: gateway with it", found.rss / 2**20, "MiB")
        report.add("crowd: bare Twisted", floor / 1024, "KiB each")
        report.add("crowd: memory ÷ bare Twisted", found.each / floor, "x")
        report.claims += [
            Claim("connect and handshake", found.rate, "/s", 1500, at_least=True),
            Claim("memory of a connection", found.each / 1024, "KiB", 25),
            Claim("CPU of the heartbeats", found.cores * 100, "%", 25),
            Claim("one push to all, in the hands of the last", took, "s", 0.5),
        ]
        if self._modules is None:
            return
        home = self._home / "pomelo-crowd"
        with Echo(home, self._modules, _HEARTBEAT_SECONDS) as echo:
            other = gather(echo.usage, echo.address, count, seconds, lambda _: None)
        report.add("crowd: pomelo with it", other.rss / 2**20, "MiB")
        report.add("crowd: pomelo's connections", other.rate, "/s")
        report.add("crowd: pomelo's memory", other.each / 1024, "KiB each")
        report.add("crowd: pomelo's CPU", other.cores * 100, "%")
        report.add("crowd: connections ÷ pomelo's", found.rate / other.rate, "x")
        report.add("crowd: memory ÷ pomelo's", found.each / other.each, "x")
        report.add("crowd: CPU ÷ pomelo's", found.cores / other.cores, "x")


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--case", default=",".join([*CASES, "one", "crowd"]))
    parser.add_argument("--seconds", type=float, default=6.0, help="of each case")
    parser.add_argument("--connections", type=int, default=10_000, help="of crowd")
    parser.add_argument("--alone", action="store_true", help="without npm's pomelo")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with workplace(options) as home:
        report = Report("Pomelo", machine(home))
        modules = None if options.alone else _beside(report)
        run = Bench(report, home, modules)
        for case in options.case.split(","):
            if case == "crowd":
                run.crowd(options.connections, options.seconds)
            elif case == "one":
                run.one(options.seconds)
            else:
                run.case(case, options.seconds)
    report.add("load average", os.getloadavg()[0])
    return report.finish(as_json=options.json)


def _beside(report: Report) -> Path | None:
    try:
        modules = installed()
    except Lacking as why:
        report.notes.append(f"not measured beside pomelo from npm: {why}")
        return None
    report.machine["pomelo"] = VERSION
    return modules


if __name__ == "__main__":
    main(bench)
