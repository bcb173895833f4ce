"""Load generator for RS.io: publishes what a gateway requests, or subscribes to its tap.

A process of its own, with one thread, epoll and messages built beforehand; it uses
nothing of the gateway's code.

    python bench/_elements.py HOST:PORT --octets 128 --seconds 5
    python bench/_elements.py HOST:PORT --tap 'tap' --connections 10 --slow 1

Its standard output is JSON, one line for each phase: `ready`, `measuring`, `measured`
(the figures), `drained` (all that was sent is acknowledged) or `lost`.

An element counts when the gateway has acknowledged it: when all demand received, less
the first, covers it.  Any `_RING` consecutive elements differ.
"""

from __future__ import annotations

import argparse
import base64
import random
import select
import socket
import sys
import time
from collections.abc import Iterator

from _load import Lost, say

from rsio_check.wire import varint

HELLO = b"\x01\x00\x00"
_RING = 1 << 15
_DRAIN_SECONDS = 60.0
_SLOW_BYTES = 4096
_SLOW_EVERY = 0.25
_FOREVER = (1 << 63) - 1


def string(text: str) -> bytes:
    return varint(len(text)) + text.encode()


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Raises IndexError if the number is not complete."""
    value = shift = 0
    while True:
        octet = data[at]
        at += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value, at
        shift += 7


def elements(octets: int, seed: int = 1) -> list[bytes]:
    """JSON objects, all of one size, of text that does not compress."""
    chance = random.Random(seed)
    room = octets - len('{"n":1000000000,"text":""}')
    return [
        b'{"n":%d,"text":"%s"}'
        % (10**9 + at, base64.b64encode(chance.randbytes(room))[:room])
        for at in range(_RING)
    ]


def said(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(type, Id, demand, position behind it) of each message of a gateway to a publisher."""
    at = 0
    while at < len(data):
        code, at = data[at], at + 1
        number = demand = 0
        try:
            if code == 0x02:
                count, at = read_varint(data, at + 1)
                for _ in range(count):
                    _, at = read_varint(data, at)
            elif code == 0x10:
                size, at = read_varint(data, at)
                number, at = read_varint(data, at + size)
                demand, at = read_varint(data, at)
            elif code == 0x11:
                number, at = read_varint(data, at)
                demand, at = read_varint(data, at)
            elif code == 0x12:
                number, at = read_varint(data, at)
                raise Lost(f"stream {number} was cancelled")
            else:
                raise Lost(f"message 0x{code:02x}: {data[at : at + 80]!r}")
        except IndexError:
            return
        yield code, number, demand, at


class Publisher:
    """One connection that publishes one stream."""

    def __init__(self, sock: socket.socket, octets: int, *, packed: bool) -> None:
        self.sock, self.octets, self.packed = sock, octets, packed
        self.window = 0
        self.asked = 0
        """All the demand so far."""
        self.sent = 0
        self.stop = False
        self.head = b""
        self._heard = b""
        self._rest: list[memoryview] = []
        if packed:
            data = random.Random(1).randbytes(octets * _RING)
            self._step = octets
        else:
            each = [b"\x21\x01" + varint(octets) + one for one in elements(octets)]
            data, self._step = b"".join(each), len(each[0])
        self._ring = memoryview(data)

    @property
    def acked(self) -> int:
        return min(self.sent, self.asked - self.window)

    def read(self) -> None:
        try:
            data = self.sock.recv(1 << 16)
        except BlockingIOError:
            return
        if not data:
            raise Lost("the gateway closed a connection")
        data = self._heard + data
        end = 0
        for code, number, demand, stop in said(data):
            end = stop
            if code == 0x10:
                self.window = demand
                size = self.octets if self.packed else 0
                self._rest.append(memoryview(b"\x20" + varint(number) + varint(size)))
            self.asked += demand
        self._heard = data[end:]

    def write(self, most: int) -> bool:
        """Send what was requested, up to *most*; returns whether the kernel took it all."""
        while True:
            if not self._rest:
                most -= self._fill(most)
            if not self._rest:
                return True
            try:
                done = self.sock.sendmsg(self._rest)
            except BlockingIOError:
                return False
            while self._rest and done >= len(self._rest[0]):
                done -= len(self._rest.pop(0))
            if self._rest:
                self._rest[0] = self._rest[0][done:]
                return False

    def _fill(self, most: int) -> int:
        first = self.sent % _RING
        count = min(self.asked - self.sent, _RING - first, most)
        if count <= 0 or self.stop:
            return 0
        if self.packed:
            self._rest.append(memoryview(b"\x24\x01" + varint(count)))
        self._rest.append(self._ring[first * self._step : (first + count) * self._step])
        self.sent += count
        return count


class Subscriber:
    """One connection that subscribes to one of the gateway's publishers."""

    def __init__(self, sock: socket.socket, publisher: str, *, slow: bool) -> None:
        self.sock = sock
        self.slow = slow
        self.next = 0.0
        self.elements = 0
        self.bytes = 0
        self._heard = b""
        sock.sendall(b"\x10" + string(publisher) + b"\x01" + varint(_FOREVER))

    def read(self) -> None:
        try:
            data = self.sock.recv(_SLOW_BYTES if self.slow else 1 << 18)
        except BlockingIOError:
            return
        if not data:
            raise Lost("the gateway closed a connection")
        self.bytes += len(data)
        self._heard = self._count(self._heard + data)

    def _count(self, data: bytes) -> bytes:
        """Count the whole elements; returns the octets behind them."""
        at = start = 0
        count, end = 0, len(data)
        try:
            while at < end:
                start = at
                if data[at] == 0x21:  # and our Id, of one octet
                    size = data[at + 2]
                    at += 3
                    if size > 0x7F:
                        size += (data[at] << 7) - 0x80
                        at += 1
                        if size > 0x3FFF:
                            size, at = read_varint(data, at - 2)
                    at += size
                    if at > end:
                        break
                    count += 1
                elif data[at] == 0x20:
                    data[at + 2]
                    at += 3
                else:
                    at += next(said(data[at:]))[3]
            else:
                start = end
        except (IndexError, StopIteration):
            pass
        self.elements += count
        return data[start:]


def connect(address: str) -> socket.socket:
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address[5:])
    else:
        host, _, port = address.rpartition(":")
        sock = socket.create_connection((host, int(port)), timeout=30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(HELLO)
    return sock


class Publish:
    """All publishing connections, and the one loop that serves them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.poll = select.epoll()
        self.peers: dict[int, Publisher] = {}
        for _ in range(options.connections):
            sock = connect(options.reader)
            sock.setblocking(False)
            peer = Publisher(sock, options.octets, packed=options.packed)
            self.peers[sock.fileno()] = peer
            self.poll.register(sock, select.EPOLLIN)

    @property
    def acked(self) -> int:
        return sum(peer.acked for peer in self.peers.values())

    def run(self) -> None:
        options = self.options
        say("ready")
        self.begin = time.monotonic()
        self.until(self.begin + options.warm_up)
        first, start, used = self.acked, time.monotonic(), time.process_time()
        say("measuring", acked_events=first)
        self.until(start + options.seconds)
        events, seconds, used = (
            self.acked - first,
            time.monotonic() - start,
            time.process_time() - used,
        )
        say(
            "measured",
            events=events,
            seconds=seconds,
            events_per_second=events / seconds,
            generator_cpu_cores=used / seconds,
        )
        for peer in self.peers.values():
            peer.stop = True
        end = time.monotonic() + _DRAIN_SECONDS
        while any(peer.acked < peer.sent for peer in self.peers.values()):
            self.turn(end, 0)
            if time.monotonic() > end:
                raise Lost("elements without an acknowledgement")
        say("drained", acked_events=self.acked)

    def until(self, end: float) -> None:
        rate = self.options.rate / len(self.peers)
        while (now := time.monotonic()) < end:
            due = int(rate * (now - self.begin)) if rate else _FOREVER
            self.turn(end, due)

    def turn(self, end: float, due: int) -> None:
        wait = 0.002 if self.options.rate else min(0.1, end - time.monotonic())
        for fd, event in self.poll.poll(max(0.0, wait)):
            peer = self.peers[fd]
            if event & ~select.EPOLLOUT:
                peer.read()
            if not self.options.rate:
                self.write(fd, peer, _FOREVER)
        if self.options.rate:
            for fd, peer in self.peers.items():
                self.write(fd, peer, due - peer.sent)

    def write(self, fd: int, peer: Publisher, most: int) -> None:
        blocked = not peer.write(most)
        self.poll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if blocked else 0))


def subscribe(options: argparse.Namespace) -> None:
    poll = select.epoll()
    peers: dict[int, Subscriber] = {}
    for at in range(options.connections):
        sock = connect(options.reader)
        sock.setblocking(False)
        peer = Subscriber(sock, options.tap, slow=at < options.slow)
        if peer.slow:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        else:
            poll.register(sock, select.EPOLLIN)
        peers[sock.fileno()] = peer
    say("ready")

    def until(end: float) -> None:
        while (now := time.monotonic()) < end:
            for peer in peers.values():
                if peer.slow and now > peer.next:
                    peer.next = now + _SLOW_EVERY
                    peer.read()
            for fd, _ in poll.poll(min(0.05, end - now)):
                peers[fd].read()

    until(time.monotonic() + options.warm_up)
    before, start, used = (
        [p.elements for p in peers.values()],
        time.monotonic(),
        time.process_time(),
    )
    say("measuring")
    until(start + options.seconds)
    seconds = time.monotonic() - start
    each = [
        (peer.elements - count) / seconds
        for peer, count in zip(peers.values(), before, strict=True)
    ]
    say(
        "measured",
        slow=each[: options.slow],
        others=each[options.slow :],
        generator_cpu_cores=(time.process_time() - used) / seconds,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reader", help="HOST:PORT or unix:PATH")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--octets", type=int, default=128, help="of an element")
    parser.add_argument(
        "--packed", action="store_true", help="elements of a fixed size"
    )
    parser.add_argument("--rate", type=float, default=0.0, help="elements/s; 0 = all")
    parser.add_argument("--tap", help="subscribe to this publisher instead")
    parser.add_argument("--slow", type=int, default=0, help="subscribers that crawl")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    try:
        if options.tap:
            subscribe(options)
        else:
            Publish(options).run()
    except (Lost, OSError) as why:
        say("lost", why=str(why))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
