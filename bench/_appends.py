"""Appends blocks to Pravega segments as fast as they are acknowledged, or at a rate.

Like `_load.py`, whose phases and figures these are; a window is a block here: one
`AppendBlockEnd` with whole events in it, as the Rust and Python clients send it.
Each connection has one writer and one segment, which it creates; blocks are built
beforehand but for their numbers.

    python bench/_appends.py 127.0.0.1:12345 --connections 10 --event 100

No two events of the built blocks are alike.
"""

from __future__ import annotations

import random
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from _load import _LATER, Load, Lost, Peer, arguments, run

HELLO = struct.pack(">iIii", -127, 8, 17, 5)
_HEAD = struct.Struct(">iI16sii")
_TAIL = struct.Struct(">iqq")
_ACKED = struct.Struct(">16sqqqq")
_EVENT = 8
CREATED, APPEND_SETUP, DATA_APPENDED = 21, 2, 7
WORDS = b"player sword castle north gold dragon quest level arrow shield".split()


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">H", len(raw)) + raw


def frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">iI", kind, len(payload)) + payload


def create_segment(request: int, name: str) -> bytes:
    return frame(20, struct.pack(">q", request) + text(name) + bytes(7))


def setup_append(request: int, writer: bytes, name: str) -> bytes:
    return frame(1, struct.pack(">q", request) + writer + text(name) + text(""))


def append(writer: bytes, data: bytes, events: int, last: int) -> bytes:
    """A block of whole events; *last* is the number of the last one."""
    size = len(data)
    head = _HEAD.pack(4, 44 + size, writer, size, size)
    return head + data + _TAIL.pack(events, last, last)


def event(data: bytes) -> bytes:
    return bytes(4) + len(data).to_bytes(4) + data


def block(seed: int, count: int, mean: int, *, mixed: bool = False) -> bytes:
    """*count* events of *mean* bytes that compress as game events do.

    *mixed*: no two sizes that follow each other are alike, and their mean is that.
    """
    random.seed(seed)
    out = []
    for number in range(count):
        size = mean + (number % 51 - 25) * mean // 50 if mixed else mean
        head = b'{"n":%d,"id":"%x","text":"' % (number, random.getrandbits(64))
        words = b" ".join(random.choices(WORDS, k=1 + min(size, 1000) // 6))
        body = (head + words * (1 + size // max(1, len(words))))[: size - 2]
        out.append(event(body + b'"}'))
    return b"".join(out)


def frames(sock: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Types and payloads of what a blocking socket is sent."""
    heard = bytearray()
    while True:
        while len(heard) < 8 or len(heard) < 8 + struct.unpack_from(">I", heard, 4)[0]:
            data = sock.recv(1 << 20)
            if not data:
                raise Lost("the gateway closed a connection")
            heard += data
        kind, size = struct.unpack_from(">iI", heard)
        yield kind, bytes(heard[8 : 8 + size])
        del heard[: 8 + size]


def connected(address: str) -> tuple[socket.socket, Iterator[tuple[int, bytes]]]:
    """A blocking connection that has said hello."""
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(HELLO)
    told = frames(sock)
    expect(told, -127)
    return sock, told


def expect(told: Iterator[tuple[int, bytes]], kind: int) -> bytes:
    got, payload = next(told)
    if got != kind:
        raise Lost(f"a reply of type {got}, not {kind}: {payload!r}")
    return payload


class Writer:
    """A connection's."""

    def __init__(self) -> None:
        self.id = uuid4().bytes
        self.last = 0


class Appends(Load):
    """All connections."""

    def build(self) -> tuple[list[memoryview], int]:
        options = self.options
        count = max(1, options.block // (options.event + _EVENT))
        pool = max(1, options.pool // (count * options.event))
        made = [
            block(seed, count, options.event, mixed=options.mixed)
            for seed in range(pool)
        ]
        return [memoryview(each) for each in made], count

    def connect(self) -> None:
        self.writers: dict[Peer, Writer] = {}
        for at in range(self.options.connections):
            sock, told = connected(self.options.reader)
            name, writer = f"{self.options.stream}/{at}.#epoch.0", Writer()
            sock.sendall(create_segment(1, name) + setup_append(2, writer.id, name))
            next(told)  # it may be there
            expect(told, APPEND_SETUP)
            sock.setblocking(False)
            peer = self.peers[sock.fileno()] = Peer(sock)
            self.writers[peer] = writer
            self.poll.register(sock, 1)

    def begin(self, peer: Peer) -> tuple[int, memoryview]:
        writer = self.writers[peer]
        data = self.frames[self.next % len(self.frames)]
        self.next += 1
        writer.last += self.count
        made = append(writer.id, bytes(data), self.count, writer.last)
        return writer.last, memoryview(made)

    def read(self, peer: Peer) -> None:
        try:
            data = peer.sock.recv(65536)
        except _LATER:
            return
        if not data:
            raise Lost("the gateway closed a connection")
        data = peer.read + data
        at = 0
        while len(data) - at >= 8:
            kind, size = struct.unpack_from(">iI", data, at)
            if at + 8 + size > len(data):
                break
            if kind != DATA_APPENDED:
                raise Lost(f"a reply of type {kind}: {data[at : at + 8 + size]!r}")
            self.appended(peer, *_ACKED.unpack_from(data, at + 8)[:2])
            at += 8 + size
        peer.read = data[at:]

    def appended(self, peer: Peer, writer: bytes, last: int) -> None:
        if writer != self.writers[peer].id:
            raise Lost("an ack of another's append")
        while peer.waiting and peer.waiting[0].number <= last:
            self.ack(peer, b"2A", self.count)


def main() -> int:
    parser = arguments(__doc__)
    parser.set_defaults(connections=10, in_flight=4)
    parser.add_argument("--event", type=int, default=100, help="bytes of each")
    parser.add_argument("--mixed", action="store_true", help="that is their mean")
    parser.add_argument("--block", type=int, default=1 << 17, help="bytes of each")
    parser.add_argument("--pool", type=int, default=1 << 23, help="distinct bytes")
    parser.add_argument("--stream", default="bench/load")
    options: Any = parser.parse_args()
    return run(Appends(options))


if __name__ == "__main__":
    sys.exit(main())
