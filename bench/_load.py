"""Writes windows to a Lumberjack reader as fast as it acknowledges them, or at a rate.

A process of its own: one thread, epoll, non-blocking sockets, windows that were
built and compressed beforehand.  It speaks to any Lumberjack v2 reader:

    python bench/_load.py 127.0.0.1:5044 --connections 4 --seconds 10

Its standard output is JSON, one line for each phase: `ready`, `measuring`,
`progress` (every second), `measured` (the figures), `drained` (every window is
acknowledged) or `lost` (the reader hung up or acknowledged nonsense).

Latencies are those of whole windows, in milliseconds:
`ack_ms`  from the return of the write of the last byte to the reading of the ack;
`due_ms`  from the moment the rate wanted the window sent, so that a reader that
          stalls can not hide the windows that it made late.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import socket
import ssl
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _documents import KINDS
from _windows import cached

_ACK = struct.Struct(">2sI")
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_DRAIN_SECONDS = 60.0


class Lost(Exception):
    """The reader is of no use any more."""


@dataclass(slots=True)
class Sent:
    """A window whose ack is awaited."""

    number: int
    due: float
    done: float = 0.0
    """When its last byte was written; 0 before."""
    wall: float = 0.0


@dataclass(slots=True, eq=False)
class Peer:
    """One connection to the reader."""

    sock: socket.socket
    due: deque[float] = field(default_factory=deque)
    """With a rate: when the windows that wait here should have been sent."""
    waiting: deque[Sent] = field(default_factory=deque)
    """Oldest first; only the last one can be unfinished."""
    rest: memoryview | None = None
    """Of the last one's bytes."""
    read: bytes = b""
    blocked: bool = False


@dataclass(slots=True)
class Tally:
    """What was acknowledged since the clock of this tally started."""

    started: float = 0.0
    cpu: float = 0.0
    ack: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    events: int = 0
    windows: int = 0
    keepalives: int = 0
    bytes: int = 0

    @classmethod
    def begin(cls) -> Tally:
        return cls(time.monotonic(), time.process_time())

    def figures(self) -> dict[str, Any]:
        seconds = time.monotonic() - self.started
        cpu = time.process_time() - self.cpu
        return {
            "seconds": seconds,
            "events": self.events,
            "windows": self.windows,
            "keepalives": self.keepalives,
            "bytes_sent": self.bytes,
            "events_per_second": self.events / seconds,
            "generator_cpu_seconds": cpu,
            "generator_cpu_cores": cpu / seconds,
            "generator_us_per_event": cpu / self.events * 1e6 if self.events else None,
            "ack_ms": _spread(self.ack),
            "due_ms": _spread(self.late),
        }


class Load:
    """All connections and the one loop that serves them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.frames, self.count = self.build()
        self.next = 0
        self.tally = Tally()
        self.acked = 0
        self.sent = 0
        self.record: list[tuple[int, float, float]] = []
        self.poll = select.epoll()
        self.peers: dict[int, Peer] = {}

    def build(self) -> tuple[list[memoryview], int]:
        """Distinct windows, and how many events each has."""
        options = self.options
        windows = cached(
            options.windows,
            options.events,
            options.level,
            options.seed,
            options.first,
            options.kind,
        )
        return [memoryview(frame) for frame in windows.frames], windows.events

    def connect(self) -> None:
        host, _, port = self.options.reader.rpartition(":")
        context = _tls(self.options.ca) if self.options.tls else None
        for at in range(self.options.connections):
            sock = socket.create_connection((host, int(port)), timeout=30)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                sock = context.wrap_socket(sock, server_hostname="localhost")
            sock.setblocking(False)
            self.peers[sock.fileno()] = Peer(sock)
            self.poll.register(sock, select.EPOLLIN)
            if at % 20 == 19:
                time.sleep(0.01)

    def run(self) -> None:
        options = self.options
        self.connect()
        say("ready", connections=len(self.peers), window_events=self.count)
        begin = time.monotonic()
        self.pace = Pace(options.rate / self.count if options.rate else 0.0, begin)
        self.tally = Tally.begin()
        self.until(begin + options.warm_up)
        say("measuring", acked_events=self.acked)
        self.tally = Tally.begin()
        self.until(self.tally.started + options.seconds)
        figures = self.tally.figures()
        say("measured", acked_events=self.acked, **figures)
        self.drain()
        say("drained", acked_events=self.acked, sent_events=self.sent)

    def until(self, end: float) -> None:
        """Keep every connection as busy as the options want it until *end*."""
        peers = list(self.peers.values())
        progress = time.monotonic() + 1.0
        if not self.pace.interval:
            for peer in peers:
                self.fill(peer)
        while (now := time.monotonic()) < end:
            wake = min(end, progress)
            if self.pace.interval:
                for number, due in self.pace.due(now):
                    peer = peers[number % len(peers)]
                    peer.due.append(due)
                    self.fill(peer)
                wake = min(wake, self.pace.next)
            if now >= progress:
                say("progress", acked_events=self.acked, at=time.time())
                progress += 1.0
            self.serve(max(0.0, wake - now))

    def drain(self) -> None:
        """Send nothing new; wait for the acks of what is sent."""
        end = time.monotonic() + _DRAIN_SECONDS
        self.pace = Pace(0.0, 0.0)
        self.options.in_flight = 0
        while any(peer.waiting for peer in self.peers.values()):
            if time.monotonic() > end:
                raise Lost(f"windows without an ack after {_DRAIN_SECONDS:.0f} s")
            self.serve(0.1)

    def serve(self, timeout: float) -> None:
        for fd, event in self.poll.poll(timeout):
            peer = self.peers[fd]
            if event & ~select.EPOLLOUT:
                self.read(peer)
            if event & select.EPOLLOUT:
                self.write(peer)
            self.fill(peer)

    def fill(self, peer: Peer) -> None:
        """Start windows while the connection may have more in flight."""
        while peer.rest is None and len(peer.waiting) < self.options.in_flight:
            if self.pace.interval:
                if not peer.due:
                    return
                due = peer.due.popleft()
            else:
                due = time.monotonic()
            number, peer.rest = self.begin(peer)
            peer.waiting.append(Sent(number, due))
            self.write(peer)

    def begin(self, peer: Peer) -> tuple[int, memoryview]:
        """Number and bytes of the connection's next window."""
        at = self.next % len(self.frames)
        self.next += 1
        return at + self.options.first, self.frames[at]

    def write(self, peer: Peer) -> None:
        rest = peer.rest
        if rest is None:
            self.watch(peer, blocked=False)
            return
        try:
            while rest:
                done = peer.sock.send(rest)
                self.tally.bytes += done
                rest = rest[done:]
        except _LATER:
            peer.rest = rest
            self.watch(peer, blocked=True)
            return
        except OSError as why:
            raise Lost(str(why)) from None
        window = peer.waiting[-1]
        window.done = time.monotonic()
        window.wall = time.time()
        self.sent += self.count
        peer.rest = None
        self.watch(peer, blocked=False)

    def watch(self, peer: Peer, *, blocked: bool) -> None:
        if peer.blocked is not blocked:
            peer.blocked = blocked
            events = select.EPOLLIN | (select.EPOLLOUT if blocked else 0)
            self.poll.modify(peer.sock, events)

    def read(self, peer: Peer) -> None:
        try:
            data = peer.sock.recv(65536)
        except _LATER:
            return
        except OSError as why:
            raise Lost(str(why)) from None
        if not data:
            raise Lost("the reader closed a connection")
        data = peer.read + data
        whole = len(data) // 6 * 6
        peer.read = data[whole:]
        for kind, seq in _ACK.iter_unpack(data[:whole]):
            self.ack(peer, kind, seq)

    def ack(self, peer: Peer, kind: bytes, seq: int) -> None:
        if kind != b"2A" or seq > self.count or (seq and not peer.waiting):
            raise Lost(f"not an ack that makes sense: {kind!r} {seq}")
        if seq == 0:
            self.tally.keepalives += 1
        if seq < self.count:
            return
        window = peer.waiting.popleft()
        if not window.done:
            raise Lost("an ack for a window that was not sent yet")
        now = time.monotonic()
        tally = self.tally
        tally.events += self.count
        tally.windows += 1
        tally.ack.append(now - window.done)
        tally.late.append(now - window.due)
        self.acked += self.count
        if self.options.record:
            self.record.append((window.number, window.wall, time.time()))


class Pace:
    """Windows at even distances, whatever happened to those before."""

    def __init__(self, per_second: float, begin: float) -> None:
        self.interval = 1 / per_second if per_second else 0.0
        self.begin = begin
        self.number = 0

    @property
    def next(self) -> float:
        return self.begin + self.number * self.interval

    def due(self, now: float) -> list[tuple[int, float]]:
        found = []
        while (due := self.next) <= now:
            found.append((self.number, due))
            self.number += 1
        return found


def _spread(seconds: list[float]) -> dict[str, float] | None:
    if not seconds:
        return None
    ranked = sorted(seconds)

    def at(share: float) -> float:
        return round(ranked[min(len(ranked) - 1, int(share * len(ranked)))] * 1e3, 3)

    return {"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1.0)}


def _tls(authority: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority)
    if authority is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def say(phase: str, **figures: Any) -> None:
    print(json.dumps({"phase": phase, **figures}), flush=True)


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """The options of every load."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reader", help="HOST:PORT")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument(
        "--in-flight", type=int, default=2, help="windows per connection (Filebeat: 2)"
    )
    parser.add_argument("--rate", type=float, default=0.0, help="events/s; 0 = all")
    parser.add_argument("--warm-up", type=float, default=3.0, help="seconds")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument(
        "--record", type=Path, help="JSON: [mark, last byte written, acked] by window"
    )
    return parser


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--events", type=int, default=2048, help="in each window")
    parser.add_argument("--windows", type=int, default=256, help="distinct ones")
    parser.add_argument("--level", type=int, default=3, help="0 sends bare J frames")
    parser.add_argument("--kind", default="access", choices=KINDS, help="of events")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="mark of the first one")
    parser.add_argument("--tls", action="store_true", help="TLS 1.3")
    parser.add_argument("--ca", help="PEM; without it any certificate will do")
    return run(Load(parser.parse_args()))


def run(load: Load) -> int:
    """All of it; returns the exit status."""
    options = load.options
    status = 0
    try:
        load.run()
    except (Lost, OSError) as why:
        say("lost", why=str(why), acked_events=load.acked)
        status = 1
    if options.record:
        options.record.write_text(json.dumps(load.record))
    with contextlib.suppress(OSError):
        for peer in load.peers.values():
            peer.sock.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
