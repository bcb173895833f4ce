"""Benchmark of RS.io through one gateway process, beside gRPC and RSocket.

    python bench/rsio.py                        all cases
    python bench/rsio.py --case small,packed    some

small     elements of 128 B of JSON, one connection, the default window of 1 024
wide      the same with a window of 16 384
large     elements of 512 B, the default window
sustained like wide, for --lasting seconds, and never more than --backlog of journal and
          spool that wait: a rate that lasts, where the others are rates of bursts
packed    elements of a fixed size of 8 B, packed, a window of 2^20
rivals    elements of 128 B through `grpcio` and `rsocket` (pip install '.[bench]'),
          beside what sustained reached, or wide
crowd     5 000 connections with 4 streams each
tap       the full stream at 50 000 events/s to 10 subscribers, one of them very slow
fair      a counter, one element asked for at a time, alone and beside elements of 1 MB

fsync is on, and Parquet is written meanwhile.  An element counts when the demand that
acknowledges it has reached its publisher.  CPU is that of all threads of the gateway,
user and system, from the first element until the last one is in Parquet, ÷ elements.
The generator is a process of its own on the same machine, with messages built
beforehand.

The rivals stream from a server to a client that does nothing with the elements, each
in a process of its own, on the same machine, in the same run; nothing is kept on disk.
`rsocket` reads 1 KiB at a time unless told otherwise; both are shown.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from _daemon import Consumer, Gateway, Memory, listener, load, most_files
from _elements import connect, said, varint
from _machine import machine
from _report import Broken, Claim, Lacking, Report, arguments, main, workplace
from _run import add_lasting, chosen, through

from gateway.protocols.rsio.client import Subscription
from gateway.protocols.rsio.client.on_asyncio import connect as rsio_connect

CASES = (
    "small",
    "wide",
    "sustained",
    "large",
    "packed",
    "rivals",
    "crowd",
    "tap",
    "fair",
)
_SCRIPT = "_elements.py"
_SETTLE_SECONDS = 3.0
_STREAMS = 4
_TAP_RATE = 50_000.0
_LARGE_SECONDS = 0.05
_LIMITS = {  # octets, window, elements a second, CPU of one in microseconds
    "small": (128, 1 << 10, 120_000, 8.0),
    "wide": (128, 1 << 14, None, 8.0),
    "sustained": (128, 1 << 14, None, None),
    "large": (512, 1 << 10, 100_000, None),
    "packed": (8, 1 << 20, 5_000_000, None),
}


def started(
    home: Path,
    options: dict[str, Any],
    limits: dict[str, Any] | None = None,
    **settings: Any,
) -> Gateway:
    made = listener("rs", "rsio", limits=limits or {}, options=options)
    return Gateway(home, {"listeners": [made], **settings})


def ingest(home: Path, case: str, report: Report, given: argparse.Namespace) -> float:
    """Run one case of publishing; returns elements a second."""
    octets, window, rate, us = _LIMITS[case]
    packed = case == "packed"
    lasting = case == "sustained"
    spool: dict[str, Any] = {"roll_events": 1 << 22} if packed else {}
    if lasting:
        spool = {"max_bytes": given.backlog}
    options = {
        "octets": octets,
        "packed": packed,
        "seconds": given.lasting if lasting else given.seconds,
        **({"warm_up": given.filling} if lasting else {}),
    }
    with started(home, {"window": window}, spool=spool) as gateway:
        run = through(gateway, "rs", script=_SCRIPT, **options)
    assert run.whole_us is not None
    report.add(f"{case}: elements/s", run.rate)
    report.add(f"{case}: elements/s that last", run.lasting)
    report.add(f"{case}: CPU", run.whole_us, "µs each, until all is in Parquet")
    report.add(f"{case}: so with Parquet keeping up", 1e6 / run.whole_us, "/s per core")
    report.add(f"{case}: CPU while receiving", run.cpu_us, "µs each")
    report.add(f"{case}: gateway", run.cores, "cores")
    report.add(f"{case}: gateway's busiest thread", run.busiest, "cores")
    report.add(f"{case}: generator", run.load["generator_cpu_cores"], "cores")
    report.add(f"{case}: Parquet behind at the end", run.behind, "s")
    what = f"{case}: durable elements of {octets} B, one connection"
    if rate is not None:
        report.claims.append(Claim(what, run.rate, "/s", rate, at_least=True))
    if us is not None:
        report.claims.append(Claim(f"{case}: CPU of one", run.whole_us, "µs", us))
    return run.lasting if lasting else run.rate


def rivals(report: Report, ours: float | None, seconds: float) -> None:
    """The same elements through gRPC and RSocket.  Raises Lacking."""
    for name, least, words in (
        ("rsocket", 10.0, []),
        ("rsocket", None, ["--read-bytes", "65536"]),
        ("grpc", 8.0, []),
    ):
        script = str(Path(__file__).with_name("_rivals.py"))
        command = [sys.executable, script, name, *words, "--seconds", str(seconds)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60 + seconds, check=False
        )
        if done.returncode:
            why = done.stderr.strip().rpartition("\n")[2]
            raise Lacking(f"{name} (pip install '.[bench]'): {why}")
        found = json.loads(done.stdout.splitlines()[-1])
        label = f"{name}, reads of 64 KiB" if words else name
        report.add(f"{label}: elements/s", found["events_per_second"])
        report.add(f"{label}: CPU of the receiver", found["receiver_us"], "µs each")
        if ours is None:
            continue
        ratio = ours / found["events_per_second"]
        report.numbers[f"{label}: ours ÷ its"] = ratio
        if least is None:
            report.add(f"{label}: ours, durable ÷ its", ratio, "x")
        else:
            what = f"elements of 128 B: ours, durable ÷ {label}"
            report.claims.append(Claim(what, ratio, "x", least, at_least=True))


def crowd(home: Path, count: int, report: Report) -> None:
    """Memory of connections whose publishers are silent, then have sent one element."""
    names = [f"stream-{at}" for at in range(_STREAMS)]
    limits = {
        "connections": count + 100,
        "connections_per_peer": count + 100,
        "idle": "1h",
    }
    with started(home, {"subscribe": names}, limits) as gateway:
        address = gateway.address("rs")
        for sock in [greeted(address) for _ in range(50)]:  # what the first ones import
            speak(sock)
            sock.close()
        gateway.wait_published()
        time.sleep(_SETTLE_SECONDS)
        before = gateway.usage().rss
        socks = [greeted(address) for _ in range(count)]
        time.sleep(_SETTLE_SECONDS)
        silent = (gateway.usage().rss - before) / count / 1024
        for sock in socks:
            speak(sock)
        gateway.wait_published()
        time.sleep(_SETTLE_SECONDS)
        quiet = gateway.usage()
        time.sleep(5)
        idle, _ = gateway.usage().since(quiet)
        spoken = (quiet.rss - before) / count / 1024
        for sock in socks:
            sock.close()
    what = f"memory of a connection with {_STREAMS} streams"
    report.claims.append(Claim(f"{what}, silent", silent, "KiB", 40))
    report.claims.append(Claim(f"{what}, each has had an element", spoken, "KiB", 40))
    report.add("crowd: gateway before", before / 2**20, "MiB")
    report.add("crowd: CPU while all are idle", idle * 100, "% of a core")


def greeted(address: str) -> socket.socket:
    """A connection whose publishers have sent onSubscribe."""
    sock = connect(address)
    asked: list[int] = []
    heard = b""
    while len(asked) < _STREAMS:
        data = sock.recv(65536)
        if not data:
            raise Broken(f"the gateway hung up: {heard[-200:]!r}")
        heard += data
        asked = [number for code, number, *_ in said(heard) if code == 0x10]
    sock.sendall(b"".join(b"\x20" + varint(number) + b"\x00" for number in asked))
    return sock


def speak(sock: socket.socket) -> None:
    """Send one element in each stream, and wait for the acknowledgements."""
    one = b"".join(b"\x21%c\x02{}" % number for number in range(1, _STREAMS + 1))
    sock.sendall(one)
    heard, credit = b"", 0
    while credit < _STREAMS:
        data = sock.recv(65536)
        if not data:
            raise Broken("the gateway hung up")
        heard += data
        credit = sum(demand for code, _, demand, _ in said(heard) if code == 0x11)


def tap(home: Path, report: Report, seconds: float) -> None:
    """Events at a fixed rate to one subscriber, to nine, to nine beside a slow one."""
    cost, slowest, grown = {}, {}, 0.0
    for count, slow in ((1, 0), (9, 0), (10, 1)):
        with (
            started(home / str(count), {"publish": ["tap"]}) as gateway,
            Consumer(gateway),
        ):
            address = gateway.address("rs")
            feed = {"rate": _TAP_RATE, "seconds": seconds + 3, "warm_up": 1}
            taps = {"tap": "tap", "connections": count, "slow": slow, "warm_up": 2}
            with (
                load(address, _SCRIPT, **feed) as feeding,
                load(address, _SCRIPT, seconds=seconds, **taps) as reading,
            ):
                reading.until("measuring")
                memory = Memory(gateway, 0.25)
                before = gateway.usage()
                memory.start()
                found = reading.until("measured")
                cost[count] = gateway.usage().since(before)[0]
                grown = (memory.stop() - before.rss) / 2**20
                fed = feeding.until("measured")["events_per_second"]
                feeding.until("drained")
        slowest[count] = min(found["others"])
        name = f"tap, {count} subscribers"
        report.add(f"{name}: gateway", cost[count], "cores")
        report.add(f"{name}: generator", found["generator_cpu_cores"], "cores")
        report.add(f"{name}: published", fed, "/s")
        report.add(f"{name}: slowest that reads", slowest[count], "/s")
    report.add("tap: the one that crawls", found["slow"][0], "/s")
    report.add("tap: each further subscriber", (cost[9] - cost[1]) / 8, "cores")
    beside = "tap: slowest of 9, beside one that crawls"
    least = 0.98 * _TAP_RATE
    report.claims += [
        Claim(beside, slowest[10], "/s", least, at_least=True),
        Claim(
            f"{beside} ÷ without it", slowest[10] / slowest[9], "x", 0.95, at_least=True
        ),
        Claim("tap: memory it grows by meanwhile", grown, "MiB", 32),
    ]


def fair(home: Path, report: Report, seconds: float) -> None:
    """From the request of a counter's element to the element, on one connection."""
    with started(home, {"check_publishers": True}) as gateway:
        host, _, port = gateway.address("rs").rpartition(":")
        alone, beside = asyncio.run(_counted(host, int(port), seconds))
    for name, waits in (("alone", alone), ("beside 1 MB", beside)):
        report.add(f"fair: counter {name}, p50", median(waits) * 1e3, "ms")
        report.add(f"fair: counter {name}, p99", _p99(waits) * 1e3, "ms")
    ratio = _p99(beside) / _p99(alone)
    report.claims.append(
        Claim("fair: counter's p99 beside 1 MB ÷ alone", ratio, "x", 3)
    )


async def _counted(
    host: str, port: int, seconds: float
) -> tuple[list[float], list[float]]:
    """How long each element took: without and with large ones beside it."""
    async with rsio_connect(host, port) as peer:
        counter = peer.subscribe("check/endless", window=1)
        alone = await _waits(counter, seconds)
        large = peer.subscribe("check/large?n=100000&octets=1000000", window=1)
        reading = asyncio.ensure_future(_read(large))
        beside = await _waits(counter, seconds)
        reading.cancel()
        return alone, beside


async def _waits(counter: Subscription, seconds: float) -> list[float]:
    found: list[float] = []
    until = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < until:
        await anext(counter)
        found.append(time.perf_counter() - begin)
    return found


async def _read(large: Subscription) -> None:
    async for _ in large:
        await asyncio.sleep(_LARGE_SECONDS)


def _p99(waits: list[float]) -> float:
    return sorted(waits)[len(waits) * 99 // 100]


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--seconds", type=float, default=5.0, help="of each case")
    add_lasting(parser)
    parser.add_argument("--connections", type=int, default=5000, help="of crowd")
    options = parser.parse_args()
    cases = chosen(parser, options, CASES)
    most_files()
    rates: dict[str, float] = {}
    with workplace(options) as home:
        report = Report("RS.io", machine(home))
        for case in cases:
            print(f"{case} …", file=sys.stderr, flush=True)
            if case in _LIMITS:
                rates[case] = ingest(home / case, case, report, options)
            elif case == "rivals":
                ours = rates.get("sustained") or rates.get("wide")
                try:
                    rivals(report, ours, options.seconds)
                except Lacking as why:
                    report.notes.append(f"rivals: not measured: {why}")
            elif case == "crowd":
                crowd(home / case, options.connections, report)
            elif case == "fair":
                fair(home / case, report, options.seconds)
            else:
                tap(home / case, report, options.seconds)
    report.add("load average", os.getloadavg()[0])
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
