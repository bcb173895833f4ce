"""What all of `gateway send` have in common: where events come from, and the totals."""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

__all__ = ["Events", "Generated", "Lines", "Totals", "progress", "source"]

_READ_BYTES = 1 << 16
_LINE_SECONDS = 5.0


@dataclass
class Totals:
    """What became of it."""

    sent: int = 0
    """Events that were handed to a connection."""
    acknowledged: int = 0
    resent: int = 0
    """Events that went out again, on another connection."""
    connections: int = 0
    seconds: float = 0.0
    complete: bool = False
    """The source ended and everything was acknowledged."""

    def __str__(self) -> str:
        rate = self.acknowledged / self.seconds if self.seconds else 0.0
        lost = "" if self.complete else ", NOT all of it"
        return (
            f"{self.acknowledged} of {self.sent} events acknowledged in "
            f"{self.seconds:.1f} s ({rate:,.0f}/s), {self.resent} sent again, "
            f"{self.connections} connections{lost}"
        )


Events = list[tuple[str, bytes]]
"""Identifiers and JSON."""

Sample = Callable[[int], Iterator[tuple[str, bytes]]]
"""Makes up events from a seed."""


class Generated:
    """So many of a sample's made-up events."""

    def __init__(self, count: int, sample: Sample) -> None:
        seed = random.SystemRandom().getrandbits(64)
        self._events = islice(sample(seed), count)

    def read(self, most: int) -> Events | None:
        """The next, at most so many; None at the end."""
        return list(islice(self._events, most)) or None


class Lines:
    """Of a file descriptor, as they come: a slow pipe is not waited for."""

    def __init__(self, descriptor: int) -> None:
        self.stopped = False
        self._descriptor = descriptor
        self._tail = b""
        self._number = 0
        self._ready: Iterator[bytes] = iter(())
        self._host = socket.gethostname()

    def read(self, most: int) -> Events | None:
        """The next, at most so many; waits for them.  None at the end."""
        lines = list(islice(self._ready, most))
        while not lines:
            if not select.select([self._descriptor], [], [], 0.2)[0]:
                if self.stopped:
                    return None
                continue
            data = os.read(self._descriptor, _READ_BYTES)
            if not data and not self._tail:
                return None
            whole, _, self._tail = (self._tail + data).rpartition(b"\n")
            if not data:
                whole, self._tail = self._tail, b""
            self._ready = (line for line in whole.split(b"\n") if line.strip())
            lines = list(islice(self._ready, most))
        return [self._event(line) for line in lines]

    def _event(self, line: bytes) -> tuple[str, bytes]:
        self._number += 1
        identity = f"line-{self._number}"
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            event = found.get("event")
            known = event.get("id") if isinstance(event, dict) else None
            return str(known or identity), line
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        made = {
            "@timestamp": f"{stamp}.{time.time_ns() // 1_000_000 % 1000:03d}Z",
            "event": {"id": identity},
            "message": line.decode(errors="replace").rstrip("\r"),
            "host": {"name": self._host},
        }
        return identity, json.dumps(made, ensure_ascii=False).encode()


def source(args: argparse.Namespace, sample: Sample) -> Generated | Lines:
    """Where the events come from, as the command line says."""
    if args.file is not None:
        return Lines(os.open(args.file, os.O_RDONLY))
    if args.stdin:
        return Lines(sys.stdin.fileno())
    return Generated(args.generate or 1000, sample)


@contextmanager
def progress() -> Iterator[Callable[[Totals], None]]:
    """How far we are: a live line on a terminal, else a line every few seconds."""
    if not sys.stderr.isatty():
        shown = time.monotonic()

        def line(totals: Totals) -> None:
            nonlocal shown
            if time.monotonic() - shown > _LINE_SECONDS:
                shown = time.monotonic()
                print(
                    f"{totals.acknowledged} of {totals.sent} events acknowledged",
                    file=sys.stderr,
                )

        yield line
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), transient=True) as live:
        yield lambda totals: live.update(
            f"[bold]{totals.acknowledged:,}[/] acknowledged, "
            f"{totals.sent - totals.acknowledged:,} on their way"
        )
