"""Pomelo through one gateway process: requests, notifies, idle clients, a push.

    python bench/pomelo.py                    all cases
    python bench/pomelo.py --case tcp,crowd   some

tcp      requests with 64 B of JSON, 100 connections, 10 in flight on each
web      the same over WebSocket
depth1   like tcp, one in flight
one      one connection, one in flight: how long it waits, in syncs of the disk
notify   99 notifies before each request, two in flight on each of 100 connections
reply    like tcp, each answered by a service of the game's, over HTTP
crowd    10 000 connections with heartbeats every 3 s; a push to all; then 1 000 groups of
         100, ten for each client, and pushes to one group after the other

fsync is on and Parquet is written meanwhile.  Where node and npm are there, the same
clients then talk to the npm package pomelo, which echoes what it gets and stores
nothing; it is installed once, into the user's cache directory.  In `reply` its handler
asks the same service (_pomelo_service.js), on as many connections; the gateway stores each
request before that, and what waits goes in one post.

The generator is this process, on the same machine; every message has a body of its
own, every answer is matched with its request.  A second of the same load comes first
and is not counted.  CPU is that of all threads of the server, user and system, from
the first event until the last one is in Parquet, ÷ events.

Memory of a connection is the growth of the daemon's resident set ÷ connections, for all
of them or for the second half, whichever is more: the first may grow into what the
process had free before.  Publishers hold nothing of a connection; how much larger they
got, while they wrote the rows of so many sessions, is printed by itself.  It is small objects of CPython and nothing else, so it is
printed beside what bare Twisted takes.  Socket buffers are the kernel's and are in
neither figure.  That of one in ten groups has these as well.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _crowd import HEARTBEAT_SECONDS, Beats, Groups, gather, push
from _daemon import Consumer, Gateway, listener, most_files
from _machine import machine
from _players import answered, players, waited
from _pomelo_npm import VERSION, Echo, Service, installed
from _report import Broken, Claim, Lacking, Report, arguments, main, workplace
from idle import bare

from gateway.spark import beside

_WARM_UP_SECONDS = 1.0
_ROLL_SECONDS = 1.0
"""spool.roll_interval"""
_PUSHES = 1000


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
    asks: bool = False
    """A service answers."""


CASES = {
    "tcp": Case(10, rate=30_000, us=30),
    "web": Case(10, web=True, us=45),
    "depth1": Case(1, rate=15_000),
    "notify": Case(2, notifies=99, rate=80_000, us=12),
}
REPLY = Case(10, asks=True)


@dataclass
class Run:
    """What became of one load."""

    rate: float
    us: float
    generator_us: float
    lasting: float
    """The same until all is in Parquet, but for the second in which a file is filled."""


def measure(server: Gateway | Echo, address: str, case: Case, seconds: float) -> Run:
    gateway = server if isinstance(server, Gateway) else None
    stored = gateway is not None
    told = stored or case.asks
    with players(
        address, 100, web=case.web, notifies=case.notifies, stored=told
    ) as crowd:
        answered(crowd, _WARM_UP_SECONDS, case.depth)
        first = _settled(gateway)
        before, own = server.usage(), time.process_time()
        count = answered(crowd, seconds, case.depth) * (case.notifies + 1)
        took, own = time.monotonic() - before.at, time.process_time() - own
        ended = time.monotonic()
        last = _settled(gateway)
        behind = max(0.0, time.monotonic() - ended - _ROLL_SECONDS)
        cpu = server.usage().cpu - before.cpu
    if stored and last - first != count:
        raise Broken(f"{count} were sent and answered, {last - first} are stored")
    lasting = count / (took + behind)
    return Run(count / took, cpu / count * 1e6, own / count * 1e6, lasting)


def _settled(gateway: Gateway | None) -> int:
    """The last event, which is in Parquet when this returns."""
    if gateway is None:
        return 0
    gateway.wait_published()
    return gateway.lsns()[1]


def started(
    home: Path, heartbeat: int, syncs: Path | None = None, **options: Any
) -> Gateway:
    limits = {"connections": 12_000, "connections_per_peer": 12_000, "idle": "1h"}
    game = listener(
        "game",
        "pomelo",
        websocket={"path": "/"},
        limits=limits,
        options={"heartbeat": f"{heartbeat}s", **options},
    )
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
        with started(self._home / name, 0) as gateway, Consumer(gateway):
            run = measure(gateway, gateway.address("game"), case, seconds)
        report.add(f"{name}: rate", run.rate, "/s")
        report.add(f"{name}: rate that lasts", run.lasting, "/s")
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
        report.add(f"{name}: rate ÷ pomelo's", run.lasting / other.rate, "x")
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

    def reply(self, seconds: float) -> None:
        """Both ask the same service; pomelo has also one that answers by itself."""
        report, modules = self._report, self._modules
        if modules is None:
            report.notes.append("reply: needs node, and the npm package pomelo")
            return
        with Service() as service:
            backend = {
                "routes": ["area.player.move"],
                "url": f"http://127.0.0.1:{service.port}/",
                "waiting": 4000,
            }
            with (
                started(self._home / "reply", 0, backends=[backend]) as gateway,
                Consumer(gateway),
            ):
                before = service.cpu()
                run = measure(gateway, gateway.address("game"), REPLY, seconds)
                asked = service.cpu() - before
            home = self._home / "pomelo-reply"
            with Echo(home, modules, 0, service.port) as echo:
                before = service.cpu()
                other = measure(echo, echo.address, REPLY, seconds)
                other_asked = service.cpu() - before
        with Echo(self._home / "pomelo-alone", modules, 0) as echo:
            alone = measure(echo, echo.address, CASES["tcp"], seconds)
        for name, one, cpu in (
            ("gateway", run, asked),
            ("pomelo", other, other_asked),
        ):
            report.add(f"reply: {name}, rate", one.rate, "/s")
            report.add(f"reply: {name}, CPU", one.us, "µs each")
            report.add(f"reply: {name}, CPU of the service", cpu, "s")
            report.add(f"reply: {name}, generator's CPU", one.generator_us, "µs each")
        report.add(
            "reply: pomelo, rate when its handler answers by itself", alone.rate, "/s"
        )
        report.add("reply: gateway's rate ÷ that", run.rate / alone.rate, "x")
        what = "reply: rate ÷ pomelo's, whose handler asks the same service"
        ratio = run.rate / other.rate
        report.claims.append(Claim(what, ratio, "x", 0.8, at_least=True))

    def crowd(self, count: int, seconds: float) -> None:
        """The same, and what bare Twisted takes."""
        report, to_all, grouped, waits = self._report, 0.0, 0, [0.0]

        def everybody(socks: list[socket.socket], beats: Beats) -> None:
            nonlocal to_all, grouped, waits
            to_all = push(gateway, socks)
            groups = Groups(gateway, socks, beats)
            groups.join()
            grouped = gateway.usage().leader_rss
            waits = sorted(groups.pushes(_PUSHES))
            report.add("crowd: groups of 100", len(groups))

        home, outbox = self._home / "crowd", {"directory": "outbox"}
        with started(home, HEARTBEAT_SECONDS, outbox=outbox) as gateway:
            warm = {"join": "nobody", "session": "nobody"}
            beside.put(gateway.data / "outbox", "warm.json", [warm] * 1000)
            address = gateway.address("game")
            found = gather(gateway.usage, address, count, seconds, everybody)
        floor = bare(count)
        report.add("crowd: gateway with it", found.full.rss / 2**20, "MiB")
        others = [use.rss - use.leader_rss for use in (found.empty, found.full)]
        grew = (others[1] - others[0]) / 2**20
        report.add("crowd: publishers grew meanwhile", grew, "MiB")
        report.add("crowd: memory of a session", found.each / 1024, "KiB")
        report.add("crowd: bare Twisted", floor / 1024, "KiB each")
        report.add("crowd: memory ÷ bare Twisted", found.each / floor, "x")
        report.add(
            "crowd: a push to a group, median", waits[len(waits) // 2] * 1e3, "ms"
        )
        each = max(found.each, (grouped - found.empty.leader_rss) / count)
        p99 = waits[len(waits) * 99 // 100]
        report.claims += [
            Claim("connect and handshake", found.rate, "/s", 1500, at_least=True),
            Claim("memory of a session in 10 groups", each / 1024, "KiB", 3),
            Claim("CPU of the heartbeats", found.cores * 100, "%", 15),
            Claim("a push to all, in the hands of the last", to_all, "s", 0.3),
            Claim("a push to a group of 100, the same, p99", p99 * 1e3, "ms", 10),
        ]
        if self._modules is None:
            return
        home = self._home / "pomelo-crowd"
        try:
            with Echo(home, self._modules, HEARTBEAT_SECONDS) as echo:
                use, address = echo.usage, echo.address
                other = gather(use, address, count, seconds, lambda *_: None)
        except Broken as why:
            report.notes.append(f"crowd: not measured beside pomelo from npm: {why}")
            return
        report.add("crowd: pomelo with it", other.full.rss / 2**20, "MiB")
        report.add("crowd: pomelo's connections", other.rate, "/s")
        report.add("crowd: pomelo's memory", other.each / 1024, "KiB each")
        report.add("crowd: pomelo's CPU", other.cores * 100, "%")
        report.add("crowd: connections ÷ pomelo's", found.rate / other.rate, "x")
        report.add("crowd: memory ÷ pomelo's", found.each / other.each, "x")
        report.add("crowd: CPU ÷ pomelo's", found.cores / other.cores, "x")


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--case", default=",".join([*CASES, "one", "reply", "crowd"]))
    parser.add_argument("--seconds", type=float, default=6.0, help="of each case")
    parser.add_argument("--connections", type=int, default=10_000, help="of crowd")
    parser.add_argument("--alone", action="store_true", help="without npm's pomelo")
    options = parser.parse_args()
    most_files()
    with workplace(options) as home:
        report = Report("Pomelo", machine(home))
        modules = None if options.alone else _beside(report)
        run = Bench(report, home, modules)
        for case in options.case.split(","):
            if case == "crowd":
                run.crowd(options.connections, options.seconds)
            elif case == "one":
                run.one(options.seconds)
            elif case == "reply":
                run.reply(options.seconds)
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
