"""One load through one gateway: rate, CPU and memory, to the last row in Parquet.

What the figures are is said at the top of `lumberjack.py`.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _daemon import Consumer, Gateway, Memory, Usage, load
from _machine import cores, fdatasync_seconds, processor_seconds
from _report import Broken, Report

from gateway.config.model import Spool

__all__ = ["Run", "add_lasting", "beside_sync", "between", "chosen", "through"]

_IDLE = 0.05


@dataclass
class Run:
    """What became of one load."""

    load: dict[str, Any]
    """The figures of the generator."""
    cpu_us: float | None
    """Per event, in the interval."""
    whole_us: float | None
    """Per event, from the first byte to the last row in Parquet."""
    cores: float
    busiest: float
    rss_peak: int
    published_share: float | None
    """Events that went to Parquet ÷ events acknowledged, in the interval."""
    idle: float
    """Share of the machine's time that no one used."""
    stolen: float
    grows: float = 0.0
    """Bytes a second by which journal and spool grew in the interval."""
    behind: float = 0.0
    """Seconds at the end until all was in Parquet."""
    group_bytes: int = 0
    """Of a commit group in the interval, on average; 0: nobody knows."""

    @property
    def rate(self) -> float:
        return float(self.load["events_per_second"])

    @property
    def lasting(self) -> float:
        """Events a second that were acknowledged and went to Parquet, too: what it could
        go on with.
        """
        return self.rate * min(1.0, self.published_share or 0.0)

    @property
    def lasts(self) -> float:
        """Seconds until so much waits that senders are held back, by default."""
        most = Spool().max_bytes
        return most / self.grows if self.grows > 0 else math.inf

    @property
    def bytes_rate(self) -> float:
        return float(self.load["bytes_sent"]) / float(self.load["seconds"])

    @property
    def rate_alone(self) -> float:
        """With the generator taken out."""
        generator = float(self.load["generator_cpu_cores"])
        if self.idle > _IDLE or not self.busiest:
            return self.rate
        scaled = self.rate * cores() / (cores() - min(generator, cores() - 0.1))
        return max(self.rate, min(scaled, self.rate / self.busiest))

    @property
    def judged_us(self) -> float | None:
        known = [us for us in (self.cpu_us, self.whole_us) if us is not None]
        return max(known) if known else None


def add_lasting(parser: argparse.ArgumentParser) -> None:
    """The options of a load that is to last with a bounded backlog."""
    parser.add_argument("--lasting", type=float, default=60.0, help="seconds")
    parser.add_argument(
        "--filling", type=float, default=25.0, help="seconds before that"
    )
    parser.add_argument("--backlog", default="512MiB", help="that may wait then")


def chosen(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    cases: Iterable[str],
    base: str | None = None,
) -> list[str]:
    """Those of *cases* that `--case` names, in their order.  `latency`, where there is
    one, needs `--rate`, or the case *base* before it.
    """
    wanted = options.case.split(",")
    if unknown := set(wanted) - set(cases):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if "latency" in wanted and base not in wanted and not options.rate:
        parser.error(f"the latency case needs the {base} case or --rate")
    return [case for case in cases if case in wanted]


def through(gateway: Gateway, listener: str, **options: Any) -> Run:
    """Start the generator of `load` with these options, and see what becomes of it.

    Published files are taken away meanwhile.  Raises `Broken` if the journal does not
    have what was acknowledged.
    """
    memory = Memory(gateway)
    memory.start()
    begin = gateway.usage()
    with (
        Consumer(gateway),
        load(gateway.address(listener), **options) as running,
    ):
        running.until("measuring")
        before, machine_before = gateway.usage(), processor_seconds()
        published_before, waiting = gateway.lsns()[1], gateway.waiting_bytes()
        groups_before, bytes_before = gateway.groups()
        measured = running.until("measured")
        after, machine_after = gateway.usage(), processor_seconds()
        published = gateway.lsns()[1] - published_before
        groups, size = gateway.groups()
        grown = gateway.waiting_bytes() - waiting
        total = running.until("drained")["acked_events"]
        behind = gateway.wait_published()
        whole = gateway.usage()
    peak = memory.stop()
    durable = gateway.lsns()[0]
    if durable != total:
        raise Broken(f"acknowledged {total} events, the journal has {durable}")
    run = between(measured, before, after, machine_before, machine_after)
    run.behind = behind
    run.whole_us = (whole.cpu - begin.cpu) / total * 1e6
    run.published_share = published / measured["events"]
    run.rss_peak = peak
    run.group_bytes = int((size - bytes_before) / max(groups - groups_before, 1))
    run.grows = grown / float(measured["seconds"])
    return run


def beside_sync(report: Report, name: str, run: Run, home: Path) -> None:
    """What a commit group of the run was, if that is known, and what one sync of it takes
    here.
    """
    if not run.group_bytes:
        return
    median, p99 = fdatasync_seconds(home, os.urandom(run.group_bytes))
    report.add(f"{name}: a commit group", run.group_bytes / 1e6, "MB")
    report.add(f"{name}: one fdatasync of it", median * 1e3, "ms")
    report.add(f"{name}: one fdatasync of it, p99", p99 * 1e3, "ms")
    if acks := run.load["ack_ms"]:
        report.add(f"{name}: p50 ÷ that", acks["p50"] / median / 1e3, "x")
        report.add(f"{name}: p99 ÷ that", acks["p99"] / p99 / 1e3, "x")


def between(
    measured: dict[str, Any],
    before: Usage,
    after: Usage,
    machine_before: dict[str, float],
    machine_after: dict[str, float],
) -> Run:
    """What the interval alone says."""
    used, busiest = after.since(before)
    spent = {name: machine_after[name] - machine_before[name] for name in machine_after}
    total = sum(spent.values())
    cpu = after.cpu - before.cpu
    return Run(
        load=measured,
        cpu_us=cpu / measured["events"] * 1e6 if measured["events"] else None,
        whole_us=None,
        cores=used,
        busiest=busiest,
        rss_peak=0,
        published_share=None,
        idle=spent["idle"] / total,
        stolen=spent["stolen"] / total,
    )
