"""Lumberjack v2 through one gateway process: CPU per event, rate, latency.

    python bench/lumberjack.py                    all cases
    python bench/lumberjack.py --case top,tls     some
    python bench/lumberjack.py --reader HOST:PORT --pid N   any other reader

fsync is on and Parquet is written meanwhile; published files are moved away as
Spark would.  Cases:

top      windows of 2048 events, 4 connections, 2 windows in flight, plain TCP
tls      the same over TLS 1.3
small    windows of 50 events over 100 connections
sustained  like top, for a minute at least, and never more than 512 MiB of journal and
           spool that wait: a rate that lasts, where top is that of a burst
latency  like top, at half of the rate that top reached (or --rate)

How the figures are made:

CPU per event   user and system time of all threads of the gateway over the
                measured interval ÷ events acknowledged in it.  Whole run: the same
                from the first byte to the last row in Parquet, start-up excluded.
                The claim is judged on the larger of the two.
rate            acknowledged events ÷ wall time, with the generator on the same
                cores.
rate, generator taken out
                what the gateway would do had the generator run elsewhere.  Only if
                the cores were saturated (under 5 % idle) did the generator take
                anything from it; then rate x cores ÷ (cores - generator's cores),
                but never more than rate ÷ the busiest thread's share of a core,
                because one thread can not use two cores.  Otherwise it is the rate.
latency         from the generator's write of a window's last byte to the ack in its
                hands, the way through the kernel and back included.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from _daemon import Gateway, Usage, certificate, load, usage
from _machine import floors, machine, processor_seconds
from _report import Claim, Report, arguments, main, workplace
from _run import Run, between, chosen, through

CASES = ("top", "tls", "small", "sustained", "latency")
_SUSTAINED_SECONDS = 60.0
_BACKLOG = "512MiB"
_SMALL = {"events": 50, "connections": 100, "windows": 4096}
_LARGE = {"events": 2048, "connections": 4, "windows": 256}


def ours(home: Path, case: str, options: argparse.Namespace, rate: float) -> Run:
    """Run a case through a fresh gateway."""
    listener: dict[str, Any] = {
        "name": "beats",
        "protocol": "lumberjack",
        "listen": "tcp:127.0.0.1:0",
    }
    place = home / case
    place.mkdir()
    ca = None
    if case == "tls":
        ca, key = certificate(place)
        listener["tls"] = {"certificate": str(ca), "private_key": str(key)}
    spool, seconds = {"retention": "10s"}, options.seconds
    if case == "sustained":
        spool["max_bytes"] = _BACKLOG
        seconds = max(seconds, _SUSTAINED_SECONDS)
    settings = {"listeners": [listener], "spool": spool}
    with Gateway(place, settings) as gateway:
        return through(
            gateway,
            "beats",
            rate=rate,
            warm_up=options.warm_up,
            seconds=seconds,
            tls=case == "tls",
            ca=ca,
            **(_SMALL if case == "small" else _LARGE),
        )


def theirs(case: str, options: argparse.Namespace, rate: float) -> Run:
    """Run a case against a reader that is running already."""
    shape = _SMALL if case == "small" else _LARGE

    def used() -> Usage:
        if options.pid is None:
            return Usage(time.monotonic(), 0.0, {}, 0)
        return usage(options.pid)

    with load(
        options.reader,
        rate=rate,
        warm_up=options.warm_up,
        seconds=options.seconds,
        tls=case == "tls",
        **shape,
    ) as running:
        running.until("measuring")
        before, machine_before = used(), processor_seconds()
        measured = running.until("measured")
        after, machine_after = used(), processor_seconds()
        running.until("drained")
    run = between(measured, before, after, machine_before, machine_after)
    run.rss_peak = after.rss
    if options.pid is None:
        run.cpu_us = None
    return run


def describe(report: Report, case: str, run: Run) -> None:
    """All that was seen of a case."""
    add = report.add
    add(f"{case}: events/s", run.rate)
    add(f"{case}: events/s, generator taken out", run.rate_alone)
    if run.cpu_us is not None:
        add(f"{case}: gateway CPU", run.cpu_us, "µs/event")
        report.ratios(f"{case}: gateway CPU", run.judged_us or run.cpu_us)
    if run.whole_us is not None:
        add(f"{case}: gateway CPU, whole run", run.whole_us, "µs/event")
    if run.published_share is not None:
        add(f"{case}: written to Parquet meanwhile", run.published_share * 100, "%")
    add(f"{case}: gateway", run.cores, "cores")
    add(f"{case}: gateway's busiest thread", run.busiest, "cores")
    add(f"{case}: generator", run.load["generator_cpu_cores"], "cores")
    add(f"{case}: machine idle", run.idle * 100, "%")
    if run.stolen > 0.005:
        add(f"{case}: machine time stolen by others", run.stolen * 100, "%")
    add(f"{case}: gateway memory, peak", run.rss_peak / 2**20, "MiB")
    for name in ("ack_ms", "due_ms"):
        if spread := run.load[name]:
            text = "  ".join(f"{key} {value:.1f}" for key, value in spread.items())
            add(f"{case}: last byte to ack" if name == "ack_ms" else f"{case}: due to ack",
                text, "ms")  # fmt: skip
    report.raw[case] = run.load


def judge(report: Report, runs: dict[str, Run]) -> None:
    """The claims of the cases that were run."""
    claims = report.claims
    if top := runs.get("top"):
        claims.append(Claim("CPU of the gateway per event", top.judged_us, "µs", 6))
        claims.append(
            Claim(
                "top rate, generator taken out",
                top.rate_alone,
                "events/s",
                250_000,
                at_least=True,
            )
        )
    if (tls := runs.get("tls")) and top:
        ratio = None
        if tls.judged_us and top.judged_us:
            ratio = tls.judged_us / top.judged_us
        claims.append(Claim("CPU over TLS 1.3 ÷ CPU over plain TCP", ratio, "x", 1.5))
    if small := runs.get("small"):
        what = "windows of 50 events, 100 connections, generator beside it"
        claims.append(Claim(what, small.rate, "events/s", 60_000, at_least=True))
    if sustained := runs.get("sustained"):
        what = f"rate with a backlog of {_BACKLOG} at most, generator beside it"
        claims.append(Claim(what, sustained.rate, "events/s", 450_000, at_least=True))
        what = "CPU of the gateway per event, the same"
        claims.append(Claim(what, sustained.judged_us, "µs", 3.3))
    if latency := runs.get("latency"):
        spread = latency.load["ack_ms"] or {}
        what = "whole window to ack at half rate, median"
        claims.append(Claim(what, spread.get("p50"), "ms", 5))
        what = "whole window to ack at half rate, p99"
        claims.append(Claim(what, spread.get("p99"), "ms", 25))


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--warm-up", type=float, default=5.0)
    parser.add_argument("--rate", type=float, help="events/s of the latency case")
    parser.add_argument("--reader", help="HOST:PORT of another Lumberjack v2 reader")
    parser.add_argument("--pid", type=int, help="its session leader, for its CPU")
    options = parser.parse_args()
    cases = chosen(parser, options, CASES)
    runs: dict[str, Run] = {}
    with workplace(options) as home:
        report = Report("Lumberjack v2", machine(home), floors(home))
        for case in cases:
            rate = 0.0
            if case == "latency":
                rate = options.rate or runs["top"].rate / 2
            print(f"{case} …", file=sys.stderr, flush=True)
            if options.reader:
                runs[case] = theirs(case, options, rate)
            else:
                runs[case] = ours(home, case, options, rate)
            describe(report, case, runs[case])
    judge(report, runs)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
