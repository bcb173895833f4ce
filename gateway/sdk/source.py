"""Where the events of `gateway send` come from: made up, a file, standard input.

A protocol makes up its own events (`Sample`); `identified` and `timestamp` are what those
of all protocols have in common.
"""

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
from datetime import UTC, datetime
from itertools import count, islice

__all__ = [
    "Events",
    "Generated",
    "Lines",
    "Sample",
    "identified",
    "source",
    "timestamp",
]

_READ_BYTES = 1 << 16

Events = list[tuple[str, bytes]]
"""Identifiers and JSON."""

Sample = Callable[[int], Iterator[tuple[str, bytes]]]
"""Makes up events from a seed."""


def identified(seed: int) -> tuple[random.Random, Iterator[str]]:
    """A source of randomness, and ids without end; both follow from *seed*.

    An id is `RUN-NUMBER`: 12 hexadecimal digits that differ from seed to seed, and
    12 decimal digits that count from 1.
    """
    chance = random.Random(seed)  # noqa: S311 - varied, not secret
    run = f"{chance.getrandbits(48):012x}"
    return chance, (f"{run}-{number:012d}" for number in count(1))


def timestamp() -> str:
    """Now, in UTC, as Beats write it: `2026-11-21T08:00:00.000Z`."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")[:23] + "Z"


class Generated:
    """A number of a sample's made-up events."""

    def __init__(self, count: int, sample: Sample, size: int = 0) -> None:
        """*size* is the least number of bytes of an event."""
        seed = random.SystemRandom().getrandbits(64)
        self._events = islice(sample(seed), count)
        self._size = size

    def read(self, most: int) -> Events | None:
        """The next, at most so many; None at the end."""
        events = list(islice(self._events, most))
        if self._size:
            events = [(name, _filled(event, self._size)) for name, event in events]
        return events or None


class Given(Generated):
    """Events that are given."""

    def __init__(self, events: Events) -> None:
        super().__init__(len(events), lambda _: iter(events))


class Lines:
    """Lines of a file descriptor, as they come: a slow pipe is not waited for."""

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
    """Where the events come from, as the command line says; or `gateway test`."""
    if args.events is not None:
        return Given(args.events)
    if args.file is not None:
        return Lines(os.open(args.file, os.O_RDONLY))
    if args.stdin:
        return Lines(sys.stdin.fileno())
    return Generated(args.generate or 1000, sample, args.size)


def _filled(event: bytes, size: int) -> bytes:
    """A JSON object, with one member more if it is too short."""
    missing = size - len(event) - len(',"fill":""')
    if missing <= 0:
        return event
    return b'%b,"fill":"%b"}' % (event[:-1], b"x" * missing)
