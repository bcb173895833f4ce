"""`gateway audit --note`: an audit in the background, at the lowest priority.

It ends itself at its limits (`spark.audit`), and leaves its result beside the tables, from
where metrics and page have it (`gateway.store.readers.audited`).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import platform
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gateway import default_config
from gateway.sdk.command import WrongUse
from gateway.spoken import duration, size
from gateway.store.readers.audited import Audited

if TYPE_CHECKING:
    from gateway.audit import Report
    from gateway.config.spark import SparkAudit

_LOOK_SECONDS = 0.5
_NICEST = 19
_IDLE_CLASS = 3 << 13
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}


class _Unfinished(BaseException):
    """The audit ends before its end; the text says why.  Nothing may take it for a bad file."""


def run(
    args: argparse.Namespace,
    audit: Callable[[argparse.Namespace, Callable[[Report], object]], int],
) -> int:
    """*audit* with these arguments, which is given whom to tell its report; its status.

    Raises `WrongUse`, what *audit* does.
    """
    if args.data_dir or args.node is not None or args.first != 1:
        raise WrongUse(
            "--note is about all that a --config names: no --data-dir, --node, --from"
        )
    from gateway.config import load

    config = load((args.config or [default_config()])[0])
    lake = config.data_dir / "lake"
    begun = time.time()
    found: list[Report] = []
    before = Audited.read(lake)
    try:
        _give_way()
        with _bounded(config.spark.audit):
            status = audit(args, found.append)
    except _Unfinished as why:
        replace(before, tried=begun, unfinished=str(why)).write(lake)
        print(f"unfinished: {why}")
        return 1
    except BaseException as why:
        text = str(why) or type(why).__name__
        replace(before, tried=begun, unfinished=text).write(lake)
        raise
    _noted(before, found[0], begun).write(lake)
    return status


def _noted(before: Audited, report: Report, begun: float) -> Audited:
    now = time.time()
    lives = [life for node in report.nodes for life in node.lives]
    return Audited(
        since=before.since,
        every=before.every,
        tried=begun,
        at=now,
        seconds=round(max(0.0, now - begun), 3),
        complete=report.complete,
        events=report.events,
        missing=sum(life.holes.size + life.has("unverified").size for life in lives),
        holes=sum(len(life.holes) for life in lives),
        doubled=sum(life.doubles.size for life in lives),
        unknown=sum(not one.accepted for one in report.unknown),
        problems=len(report.problems),
    )


def _give_way() -> None:
    """Take the lowest priority for CPU and disk."""
    with contextlib.suppress(OSError):
        os.nice(_NICEST)
    if (number := _IOPRIO_SET.get(platform.machine())) is not None:
        ctypes.CDLL(None).syscall(number, 1, 0, _IDLE_CLASS)


@contextlib.contextmanager
def _bounded(limits: SparkAudit) -> Iterator[None]:
    """Twice a second, end an audit that takes too long or whose parent process is gone."""
    until = time.monotonic() + limits.time_limit
    parent, read = os.getppid(), _read_bytes()

    def look(number: int, frame: object) -> None:
        if number != signal.SIGALRM or os.getppid() != parent:
            raise _Unfinished("it was ended")
        if time.monotonic() >= until:
            limit = duration(limits.time_limit)
            raise _Unfinished(f"it took {limit} (spark.audit.time_limit)")
        most = limits.read_bytes
        if most is not None and _read_bytes() - read >= most:
            raise _Unfinished(f"it read {size(most)} (spark.audit.read_bytes)")

    looks = signal.SIGALRM, signal.SIGTERM, signal.SIGINT
    before = {each: signal.signal(each, look) for each in looks}
    signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS, _LOOK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for each, handler in before.items():
            signal.signal(each, handler)


def _read_bytes() -> int:
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:  # a kernel without that
        return 0
    return int(dict(line.split(": ") for line in lines)["rchar"])
