"""How much memory the gateway takes, at full load and when the disk hangs.

full     windows of 2048 events as fast as they are acknowledged, for --seconds
         (the claim is for 600): resident memory ≤ 400 MiB
stalled  fdatasync hangs for --stall seconds under full load of many connections:
         resident memory ≤ 512 MiB, then and afterwards, when what waited is written;
         and every window is acknowledged

Resident memory is that of all processes, as `ps` has it, added up: the daemon's and those
that write files.  Libraries that they share, some 50 MiB, count in each.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from _daemon import Consumer, Gateway, Memory, load
from _machine import machine
from _report import Claim, Report, arguments, main, workplace

_MIB = 2**20
_MEMORY_BYTES = 256 * _MIB
"""journal.memory_bytes of the run; its default."""


def full(report: Report, home: Path, options: argparse.Namespace) -> None:
    settings = {"spool": {"retention": "10s"}}
    with Gateway(home, settings) as gateway, Consumer(gateway) as consumer:
        memory = Memory(gateway)
        memory.start()
        with load(gateway.address(), warm_up=2, seconds=options.seconds) as running:
            measured = running.until("measured")
            running.until("drained")
        peak = memory.stop()
    third = max(1, len(memory.samples) // 3)
    report.add("full: seconds", measured["seconds"])
    report.add("full: events/s", measured["events_per_second"])
    report.add("full: Parquet files", consumer.files)
    report.add("full: bytes in Parquet", consumer.bytes / _MIB, "MiB")
    report.add("full: peak", peak / _MIB, "MiB")
    report.add("full: mean, first third", _mean(memory.samples[:third]), "MiB")
    report.add("full: mean, last third", _mean(memory.samples[-third:]), "MiB")
    what = f"resident memory, {options.seconds:.0f} s of full load"
    report.claims.append(Claim(what, peak / _MIB, "MiB", 400))
    report.raw["full_rss"] = memory.samples


def stalled(report: Report, home: Path, options: argparse.Namespace) -> None:
    flag = home / "hang"
    settings = {"journal": {"memory_bytes": _MEMORY_BYTES}}
    with Gateway(home / "stalled", settings, stall=flag) as gateway:
        memory = Memory(gateway, every=0.25)
        memory.start()
        with load(
            gateway.address(),
            connections=options.connections,
            in_flight=4,
            warm_up=3,
            seconds=options.stall + 10,
        ) as running:
            running.until("measuring")
            flag.touch()
            time.sleep(options.stall)
            before_release = gateway.usage().rss
            flag.unlink()
            measured = running.until("measured")
            acked = running.until("drained")
        gateway.wait_published()
        durable, _ = gateway.lsns()
        peak = memory.stop()
    report.add("stalled: connections", options.connections)
    report.add("stalled: at the end of the stall", before_release / _MIB, "MiB")
    report.add("stalled: peak", peak / _MIB, "MiB")
    report.add("stalled: keepalives while it hung", measured["keepalives"])
    report.add("stalled: events acknowledged", acked["acked_events"])
    report.add("stalled: events in the journal", durable)
    report.claims.append(Claim("resident memory, hung disk", peak / _MIB, "MiB", 512))
    lost = acked["sent_events"] - acked["acked_events"]
    report.claims.append(Claim("windows never acknowledged", lost, "", 0))


def _mean(samples: list[int]) -> float:
    return sum(samples) / max(1, len(samples)) / _MIB


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--case", default="full,stalled")
    parser.add_argument("--seconds", type=float, default=60.0, help="of full load")
    parser.add_argument("--stall", type=float, default=20.0, help="seconds")
    parser.add_argument("--connections", type=int, default=200, help="when stalled")
    options = parser.parse_args()
    with workplace(options) as home:
        report = Report("memory", machine(home))
        if "full" in options.case:
            full(report, home / "full", options)
        if "stalled" in options.case:
            stalled(report, home, options)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
