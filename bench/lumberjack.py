"""Lumberjack v2 through one gateway process: CPU per event, rate, latency.

    python bench/lumberjack.py                    all cases
    python bench/lumberjack.py --case top,tls     some
    python bench/lumberjack.py --reader HOST:PORT --pid N   any other reader

fsync is on and Parquet is written meanwhile; published files are moved away as
Spark would.  Cases:

top        windows of 2048 events, 4 connections, 2 windows in flight, plain TCP
tls        the same over TLS 1.3
small      windows of 50 events over 100 connections
documents  like top, events as Filebeat ships them from a Kubernetes cluster
ids        like top, events that deflate can do little with
sustained, sustained-tls, sustained-small, sustained-documents, sustained-ids
           like these, for --lasting seconds, and never more than --backlog of journal and
           spool that wait: rates that last, where those above are rates of a burst
sustained-python
           like sustained, without the kernel in C (gateway-native)
latency    like top, at half of the rate of the case sustained (or --rate)
go-lumber, go-lumber-documents
           like top and documents, but sent to go-lumber's own server, which stores
           nothing; skipped where there is no Go

How the figures are made:

CPU per event   user and system time of all threads and processes of the gateway over the
                measured interval ÷ events acknowledged in it.  Whole run: the same
                from the first byte to the last row in Parquet, start-up excluded.
                The claim is judged on the larger of the two.
rate            acknowledged events ÷ wall time, with the generator on the same
                cores.
rate that lasts the same of events that were acknowledged and went to Parquet: where
                either is slower, what waits grows or shrinks.
a burst lasts   until what waits has reached `spool.max_bytes`, as fast as it grew in
                the measured interval, if nobody takes files for so long.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _daemon import Gateway, Usage, listener, load, usage
from _go import built
from _go_lumber import GoLumber
from _machine import floors, machine, processor_seconds
from _report import Claim, Lacking, Report, arguments, main, workplace
from _run import Run, add_lasting, beside_sync, between, chosen, through

from gateway_testkit.certificates import Authority

_LARGE = {"events": 2048, "connections": 4, "windows": 256}
_SMALL = {"events": 50, "connections": 100, "windows": 4096}
_DOCUMENTS = {**_LARGE, "windows": 64, "kind": "kubernetes"}
_IDS = {**_LARGE, "windows": 64, "kind": "ids"}


@dataclass(frozen=True)
class Case:
    """A load."""

    shape: dict[str, Any]
    tls: bool = False
    lasting: bool = False
    kernel: bool = True


CASES = {
    "top": Case(_LARGE),
    "tls": Case(_LARGE, tls=True),
    "small": Case(_SMALL),
    "documents": Case(_DOCUMENTS),
    "ids": Case(_IDS),
    "sustained": Case(_LARGE, lasting=True),
    "sustained-tls": Case(_LARGE, tls=True, lasting=True),
    "sustained-small": Case(_SMALL, lasting=True),
    "sustained-documents": Case(_DOCUMENTS, lasting=True),
    "sustained-ids": Case(_IDS, lasting=True),
    "sustained-python": Case(_LARGE, lasting=True, kernel=False),
    "latency": Case(_LARGE),
}
PEERS = {"go-lumber": Case(_LARGE), "go-lumber-documents": Case(_DOCUMENTS)}


def ours(home: Path, name: str, options: argparse.Namespace, rate: float) -> Run:
    """Run a case through a fresh gateway."""
    case = CASES[name]
    made = listener("beats", "lumberjack")
    place = home / name
    place.mkdir()
    ca = None
    if case.tls:
        authority = Authority(place)
        certificate, key = map(str, authority.issue("localhost"))
        made["tls"] = {"certificate": certificate, "private_key": key}
        ca = authority.ca
    spool = {"retention": "10s", "publishers": options.publishers}
    if case.lasting:
        spool["max_bytes"] = options.backlog
    settings = {"listeners": [made], "spool": spool}
    with Gateway(place, settings, kernel=case.kernel) as gateway:
        return through(
            gateway,
            "beats",
            rate=rate,
            warm_up=options.filling if case.lasting else options.warm_up,
            seconds=options.lasting if case.lasting else options.seconds,
            tls=case.tls,
            ca=ca,
            **case.shape,
        )


def theirs(
    reader: str, pid: int | None, case: Case, options: argparse.Namespace, rate: float
) -> Run:
    """Run a case against a reader that is running already."""

    def used() -> Usage:
        if pid is None:
            return Usage(time.monotonic(), 0.0, {}, 0, 0)
        return usage(pid)

    with load(
        reader,
        rate=rate,
        warm_up=options.warm_up,
        seconds=options.seconds,
        tls=case.tls,
        **case.shape,
    ) as running:
        running.until("measuring")
        before, machine_before = used(), processor_seconds()
        measured = running.until("measured")
        after, machine_after = used(), processor_seconds()
        running.until("drained")
    run = between(measured, before, after, machine_before, machine_after)
    run.rss_peak = after.rss
    if pid is None:
        run.cpu_us = None
    return run


def go_lumber(name: str, options: argparse.Namespace, home: Path, program: Path) -> Run:
    """Run a case against go-lumber's server."""
    place = home / name
    place.mkdir()
    with GoLumber(place, program) as server:
        return theirs(server.address, server.pid, PEERS[name], options, 0.0)


def compare(report: Report, name: str, run: Run, peer: Run) -> None:
    """Ours beside that of go-lumber."""
    report.add(f"{name}: rate that lasts ÷ go-lumber's", run.lasting / peer.rate, "x")
    if run.judged_us and peer.cpu_us:
        ratio = run.judged_us / peer.cpu_us
        report.add(f"{name}: CPU ÷ go-lumber's", ratio, "x")


def half(run: Run) -> float:
    """Of the rate that lasts; of the rate, where nobody knows what lasts."""
    return (run.rate if run.published_share is None else run.lasting) / 2


def describe(report: Report, case: str, run: Run) -> None:
    """All that was seen of a case."""
    add = report.add
    add(f"{case}: events/s", run.rate)
    add(f"{case}: events/s, generator taken out", run.rate_alone)
    if run.cpu_us is not None:
        add(f"{case}: gateway CPU", run.cpu_us, "µs/event")
        if "kind" not in {**CASES, **PEERS}[case].shape:  # of which the floors are
            report.ratios(f"{case}: gateway CPU", run.judged_us or run.cpu_us)
    if run.whole_us is not None:
        add(f"{case}: gateway CPU, whole run", run.whole_us, "µs/event")
    if run.judged_us is not None:
        add(f"{case}: CPU of an event", run.judged_us, "µs")
    if run.published_share is not None:
        add(f"{case}: written to Parquet meanwhile", run.published_share * 100, "%")
        add(f"{case}: events/s that last", run.lasting)
        add(f"{case}: so it lasts", run.lasts, "s")
    add(f"{case}: gateway", run.cores, "cores")
    add(f"{case}: gateway's busiest thread", run.busiest, "cores")
    add(f"{case}: generator", run.load["generator_cpu_cores"], "cores")
    add(f"{case}: machine idle", run.idle * 100, "%")
    if run.stolen > 0.005:
        add(f"{case}: machine time stolen by others", run.stolen * 100, "%")
    add(f"{case}: gateway memory, peak", run.rss_peak / 2**20, "MiB")
    report.spread(f"{case}: last byte to ack", run.load["ack_ms"], "ms")
    report.spread(f"{case}: due to ack", run.load["due_ms"], "ms")
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
        what = "rate that lasts with a bounded backlog, generator beside it"
        claims.append(
            Claim(what, sustained.lasting, "events/s", 450_000, at_least=True)
        )
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
    parser.add_argument("--case", default=",".join([*CASES, *PEERS]))
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--warm-up", type=float, default=5.0)
    add_lasting(parser)
    parser.add_argument("--publishers", type=int, help="spool.publishers")
    parser.add_argument("--rate", type=float, help="events/s of the latency case")
    parser.add_argument("--reader", help="HOST:PORT of another Lumberjack v2 reader")
    parser.add_argument("--pid", type=int, help="its session leader, for its CPU")
    options = parser.parse_args()
    base = "top" if options.reader else "sustained"
    cases = chosen(parser, options, [*CASES, *PEERS], base)
    if options.reader:
        cases = [name for name in cases if name in CASES and not CASES[name].lasting]
    runs: dict[str, Run] = {}
    with workplace(options) as home:
        report = Report("Lumberjack v2", machine(home), floors())
        program = None
        if PEERS.keys() & set(cases):
            try:
                program = built("_go_lumber")
            except Lacking as why:
                report.notes.append(f"not measured beside go-lumber: {why}")
                cases = [name for name in cases if name in CASES]
        for name in cases:
            print(f"{name} …", file=sys.stderr, flush=True)
            rate = 0.0
            if name == "latency":
                rate = options.rate or half(runs[base])
            if name in PEERS:
                assert program is not None
                run = go_lumber(name, options, home, program)
            elif options.reader:
                reader, pid = options.reader, options.pid
                run = theirs(reader, pid, CASES[name], options, rate)
            else:
                run = ours(home, name, options, rate)
            runs[name] = run
            describe(report, name, run)
            if name == "latency":
                beside_sync(report, name, run, home)
            if name in PEERS:
                beside = name.replace("go-lumber", "sustained")
                if beside in runs:
                    compare(report, beside, runs[beside], run)
    judge(report, runs)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
