"""Reads Pravega segments from their beginning, one request in flight on each.

A process of its own, one connection for each segment, as the clients' readers do.
Its standard output is JSON: `measured`, with the bytes and the seconds from the first
request to the last byte.

    python bench/_reads.py 127.0.0.1:12345 --segments bench/load/0.#epoch.0 --bytes 1000
"""

from __future__ import annotations

import argparse
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass, field

from _appends import connected, frame, text
from _load import Lost, _spread, say

_READ = 10
_SIZES = struct.Struct(">iI")


def read_segment(name: str, offset: int, size: int, request: int) -> bytes:
    head = text(name) + struct.pack(">qi", offset, size)
    return frame(9, head + text("") + struct.pack(">q", request))


@dataclass
class Reader:
    """One segment's."""

    sock: socket.socket
    name: str
    offset: int = 0
    buffer: bytearray = field(default_factory=lambda: bytearray(4 << 20))
    filled: int = 0
    asked: float = 0.0

    def ask(self, size: int) -> None:
        self.asked = time.monotonic()
        self.sock.sendall(read_segment(self.name, self.offset, size, 1))

    def heard(self) -> bool:
        """Whether the answer is complete."""
        view = memoryview(self.buffer)[self.filled :]
        count = self.sock.recv_into(view)
        if not count:
            raise Lost("the gateway closed a connection")
        self.filled += count
        if self.filled < 8:
            return False
        kind, size = _SIZES.unpack_from(self.buffer)
        if kind != _READ:
            raise Lost(f"a reply of type {kind}: {bytes(self.buffer[: self.filled])!r}")
        if self.filled < 8 + size:
            return False
        at = 8 + 2 + len(self.name.encode())
        offset, _, _, length = struct.unpack_from(">q??i", self.buffer, at)
        if offset != self.offset or not length:
            raise Lost(f"{length} bytes at {offset}, not at {self.offset}")
        self.offset += length
        self.filled = 0
        return True


def run(options: argparse.Namespace) -> None:
    readers = {}
    poll = select.epoll()
    for name in options.segments:
        sock, _ = connected(options.reader)
        readers[sock.fileno()] = Reader(sock, name)
        poll.register(sock, select.EPOLLIN)
    begin, took = time.monotonic(), []
    for reader in readers.values():
        reader.ask(options.size)
    left = len(readers)
    while left and time.monotonic() < begin + options.seconds:
        for number, _ in poll.poll(1):
            reader = readers[number]
            if not reader.heard():
                continue
            took.append(time.monotonic() - reader.asked)
            if reader.offset >= options.bytes:
                left -= 1
            else:
                reader.ask(options.size)
    seconds = time.monotonic() - begin
    total = sum(reader.offset for reader in readers.values())
    say("measured", seconds=seconds, bytes=total, finished=not left, ms=_spread(took))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reader", help="HOST:PORT")
    parser.add_argument("--segments", nargs="+", required=True)
    parser.add_argument("--bytes", type=int, required=True, help="of each")
    parser.add_argument("--size", type=int, default=1 << 20, help="of a request")
    parser.add_argument("--seconds", type=float, default=10.0, help="at most")
    options = parser.parse_args()
    try:
        run(options)
    except (Lost, OSError) as why:
        say("lost", why=str(why), acked_events=0)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
