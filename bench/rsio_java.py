"""Benchmark of the RS.io client for the JVM, beside RSocket and gRPC in Java.

    python bench/rsio_java.py                   all cases
    python bench/rsio_java.py --case send,tap   some

send      elements of 128 B of JSON from one `Sender`, on one connection, durably, a
          window of 16 384; never more than --backlog of journal and spool wait, so that
          the rate lasts
small     the same with the default window of 1 024, for a few seconds
tap       `tap` read by one subscriber while another process sends all it can: as JSON,
          and as Arrow, an element of which has the events of a whole batch
steady    the same, while the other sends so many a second: the most of some rates at
          which nothing is left out.  Each event is taken, journalled and made Parquet
          of beside that, which on two cores leaves no room for a million a second
replay    `events?from=earliest` read by one subscriber, nothing else going on, as JSON and
          as Arrow
rivals    the same elements sent and read by `rsocket-java` and `grpc-java`, between two
          processes on this machine; nothing is kept

An element that was sent counts when it is acknowledged, those of rivals when they were
given to the transport.  CPU is that of all threads of a process, user and system, ÷
elements, in the seconds that are measured: JIT and garbage collection included.  Of the
gateway it is also told until the last one is in Parquet.

It needs a JDK from 17 on, Maven, and Maven Central once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _daemon import Consumer, Gateway, Phased, cpu_of, listener, load
from _java import built, versions
from _machine import machine
from _report import Broken, Claim, Lacking, Report, arguments, main, workplace
from _run import add_lasting, chosen

CASES = ("send", "small", "tap", "steady", "replay", "rivals")
_RATES = [n * 50_000 for n in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24)]
_RATE_KEPT = 0.98  # of a rate that is to be sent: the rest is chance
FORMATS = ("json", "arrow")
_WINDOW = 1 << 14
_OCTETS = 128
_WARM_UP = 5.0


@dataclass
class Found:
    """What a program measured, and what became of its peer's figures meanwhile."""

    events: int
    seconds: float
    ours: float
    """Seconds of CPU."""
    peer: list[float]
    """The first are its seconds of CPU."""

    @property
    def rate(self) -> float:
        """Elements a second."""
        return self.events / self.seconds

    def add(self, report: Report, name: str, peer: str) -> None:
        """The rate, and the CPU of both sides."""
        ours, theirs = (cpu / self.events * 1e6 for cpu in (self.ours, self.peer[0]))
        report.add(f"{name}: elements/s", self.rate)
        report.add(f"{name}: CPU of the client", ours, "µs each")
        report.add(f"{name}: CPU of the {peer}", theirs, "µs each")
        report.add(f"{name}: CPU of both", ours + theirs, "µs each")


def measured(running: Phased, peer: Callable[[], Sequence[float]]) -> Found:
    """What *running* says, and what it and its *peer* used meanwhile."""
    running.until("measuring")
    ours, theirs = cpu_of(running.process.pid), peer()
    found = running.until("measured")
    ours = cpu_of(running.process.pid) - ours
    used = [later - sooner for sooner, later in zip(theirs, peer(), strict=True)]
    return Found(found["events"], found["seconds"], ours, used)


def started(home: Path, window: int = _WINDOW, **settings: Any) -> Gateway:
    options = {"window": window, "publish": ["tap", "events"]}
    made = listener("rs", "rsio", options=options)
    return Gateway(home, {"listeners": [made], **settings})


def send(
    home: Path,
    java: Sequence[str],
    case: str,
    report: Report,
    given: argparse.Namespace,
) -> None:
    """One `Sender`."""
    lasting = case == "send"
    window = _WINDOW if lasting else 1 << 10
    seconds = (given.filling, given.lasting) if lasting else (_WARM_UP, given.seconds)
    with (
        started(home, window, spool={"max_bytes": given.backlog}) as gateway,
        Consumer(gateway),
    ):
        begin = gateway.usage().cpu
        words = ["send", f"tcp://{gateway.address('rs')}", str(_OCTETS)]
        with Phased(*java, "Ours", *words, *map(str, seconds)) as running:
            found = measured(running, lambda: (gateway.usage().cpu, gateway.lsns()[1]))
            total = running.until("drained")["events"]
        gateway.wait_published()
        whole = (gateway.usage().cpu - begin) / total * 1e6
        durable = gateway.lsns()[0]
    if durable != total:
        raise Broken(f"{total} elements were acknowledged, the journal has {durable}")
    found.add(report, case, "gateway")
    lasts = min(found.rate, found.peer[1] / found.seconds)
    report.add(f"{case}: elements/s that last", lasts)
    report.add(f"{case}: CPU of the gateway, until in Parquet", whole, "µs each")
    if lasting:
        what = f"send: durable elements of {_OCTETS} B, one connection"
        report.claims.append(Claim(what, lasts, "/s", 500_000, at_least=True))


def tap(
    home: Path, java: Sequence[str], report: Report, given: argparse.Namespace
) -> None:
    """One reader while all comes that can, first of JSON, then of Arrow."""
    for name in FORMATS:
        found = tapped(home / name, java, name, given.seconds)
        _, durable, lost = found.peer
        label = f"tap, {name}"
        found.add(report, label, "gateway, which takes them as well")
        report.add(f"{label}: stored meanwhile", durable / found.seconds, "/s")
        report.add(f"{label}: left out, as it is told", lost / found.seconds, "/s")


def tapped(
    home: Path, java: Sequence[str], name: str, seconds: float, rate: float = 0.0
) -> Found:
    """One reader while all comes that can, or *rate* a second: the events that it was
    given, and of the gateway its CPU, what was stored, and what was left out.
    """
    with started(home) as gateway, Consumer(gateway):
        address = gateway.address("rs")
        words = ["read", f"tcp://{address}", f"tap?format={name}"]
        feed = {"octets": _OCTETS, "rate": rate, "seconds": _WARM_UP + seconds + 3}
        with (
            load(address, "_elements.py", warm_up=0, **feed) as feeding,
            Phased(*java, "Ours", *words, str(_WARM_UP), str(seconds)) as running,
        ):
            feeding.until("measuring")
            found = measured(
                running,
                lambda: (gateway.usage().cpu, gateway.lsns()[0], skipped(gateway)),
            )
    _, durable, lost = found.peer
    found.events = int(durable - lost)
    return found


def steady(
    home: Path, java: Sequence[str], report: Report, given: argparse.Namespace
) -> None:
    """The most that is sent and shown, nothing left out."""
    for name in FORMATS:
        best: Found | None = None
        for rate in _RATES:
            found = tapped(home / f"{name}-{rate}", java, name, given.seconds, rate)
            if found.peer[2] or found.rate < _RATE_KEPT * rate:
                break
            best = found
        label = f"tap, {name}, nothing left out"
        if best is None:
            report.add(f"{label}: elements/s", 0.0)
        else:
            best.add(report, label, "gateway, which takes them as well")
    what = f"tap, arrow: elements of {_OCTETS} B, none left out, one connection"
    figure = None if best is None else best.rate
    report.claims.append(Claim(what, figure, "/s", 1_000_000, at_least=True))


def skipped(gateway: Gateway) -> float:
    """Events that taps were too slow for."""
    return gateway.metric("gateway_feed_skipped_events_total")


def replay(
    home: Path, java: Sequence[str], report: Report, given: argparse.Namespace
) -> None:
    """One reader of what is stored."""
    with started(home) as gateway:
        address = gateway.address("rs")
        feed = {"octets": _OCTETS, "seconds": _WARM_UP + given.seconds}
        with load(address, "_elements.py", warm_up=0, **feed) as feeding:
            feeding.until("drained")
        gateway.wait_published()
        durable = gateway.lsns()[0]
        for name in FORMATS:
            publisher = f"events?from=earliest&to={durable}&format={name}"
            words = ["read", f"tcp://{address}", publisher]
            seconds = [str(_WARM_UP / 2), str(given.seconds / 2)]
            with Phased(*java, "Ours", *words, *seconds) as running:
                found = measured(running, lambda: [gateway.usage().cpu])
                elements = running.until("read")["elements"]
            found.events = found.events * durable // elements
            found.add(report, f"replay, {name}", "gateway")
    what = f"replay, arrow: elements of {_OCTETS} B, one connection"
    report.claims.append(Claim(what, found.rate, "/s", 1_000_000, at_least=True))


def rivals(java: Sequence[str], report: Report, seconds: float) -> None:
    """The same elements through RSocket and gRPC, beside what `send` found."""
    figures = report.numbers
    for name in ("Rsocket", "Grpc"):
        for way in ("send", "read"):
            found = _rival(java, name, way, seconds)
            label = f"{name.lower()}-java, {way}"
            found.add(report, label, "server")
            if way == "send" and "send: CPU of both" in figures:
                rate = figures["send: elements/s that last"] / found.rate
                cpu = figures["send: CPU of both"] / figures[f"{label}: CPU of both"]
                report.add(f"{label}: rate of ours, durable ÷ its", rate, "x")
                report.add(f"{label}: CPU of ours ÷ its", cpu, "x")


def _rival(java: Sequence[str], name: str, way: str, seconds: float) -> Found:
    """One of them sends to a server, or reads of it."""
    server = subprocess.Popen(
        [*java, name, "serve", "0", str(_OCTETS)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        words = [way, server.stdout.readline().strip(), str(_OCTETS)]
        with Phased(*java, name, *words, str(_WARM_UP), str(seconds)) as running:
            return measured(running, lambda: [cpu_of(server.pid)])
    finally:
        server.kill()
        server.wait()


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--seconds", type=float, default=5.0, help="of most cases")
    add_lasting(parser)
    options = parser.parse_args()
    wanted = chosen(parser, options, CASES)
    try:
        java = built()
    except Lacking as why:
        raise Broken(f"nothing was measured: {why}") from None
    with workplace(options) as home:
        report = Report("RS.io for the JVM", {**machine(home), **versions()})
        for case in wanted:
            print(f"{case} …", file=sys.stderr, flush=True)
            if case == "rivals":
                rivals(java, report, options.seconds)
            elif case == "tap":
                tap(home / case, java, report, options)
            elif case == "steady":
                steady(home / case, java, report, options)
            elif case == "replay":
                replay(home / case, java, report, options)
            else:
                send(home / case, java, case, report, options)
    report.add("load average", os.getloadavg()[0])
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
