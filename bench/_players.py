"""Pomelo clients by the hundred in one process: the load of `pomelo.py`.

No two messages under way are alike: each has a body of its own, and a request an id of
its own, by which its answer is matched.  Messages are built before the clock starts;
a connection sends its `_RING` of them again and again.
"""

from __future__ import annotations

import base64
import contextlib
import json
import random
import select
import socket
import struct
import time
from collections.abc import Iterable, Iterator

from _report import Broken

__all__ = ["Player", "answered", "greeted", "package", "players", "waited"]

_RING = 2000
_FIRST_ID = 128  # two bytes up to 16383, so that all messages have one length
_TEXT_BYTES = 33  # with the rest 65 bytes of JSON
_ASK = b"area.player.move"
_NOTE = b"area.player.note"
_STORED = b'{"code":200}'
_UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def package(kind: int, body: bytes = b"") -> bytes:
    return struct.pack(">I", kind << 24 | len(body)) + body


_SYS = {"type": "js-websocket", "version": "0.0.1", "rsa": {}}
_HELLO = package(1, json.dumps({"sys": _SYS, "user": {}}).encode())


def _masked(data: bytes, mask: bytes) -> bytes:
    """As a WebSocket client sends it."""
    size = len(data)
    head = struct.pack(">BB", 0x82, 0x80 | size) if size < 126 else b""
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    hidden = (int.from_bytes(data, "big") ^ key).to_bytes(size, "big")
    return (head or struct.pack(">BBH", 0x82, 0xFE, size)) + mask + hidden


def greeted(address: str, *, web: bool = False) -> socket.socket:
    """A connection that is ready for messages."""
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if web:
        sock.sendall(_UPGRADE)
        _until(sock, b"\r\n\r\n")
    for said in (_HELLO, package(2)):
        sock.sendall(_masked(said, b"\x1a\x2b\x3c\x4d") if web else said)
        if said is _HELLO:
            _until(sock, b"}}")
    return sock


def _until(sock: socket.socket, end: bytes) -> None:
    heard = b""
    while not heard.endswith(end):
        data = sock.recv(65536)
        if not data:
            raise Broken(f"the server hung up: {heard[-200:]!r}")
        heard += data


class _Author:
    """Makes the messages of one connection; no two have the same body."""

    def __init__(self, seed: int, *, web: bool) -> None:
        self._chance = random.Random(seed)
        self._web = web
        self._count = 0

    def notify(self) -> bytes:
        return self._message(b"\x02", _NOTE)

    def request(self, number: int) -> bytes:
        return self._message(bytes([0, number & 127 | 128, number >> 7]), _ASK)

    def _message(self, head: bytes, route: bytes) -> bytes:
        self._count += 1
        text = base64.b64encode(self._chance.randbytes(_TEXT_BYTES))
        body = b'{"x":%5d,"text":"%s"}' % (self._count, text)
        said = package(4, head + bytes([len(route)]) + route + body)
        return _masked(said, self._chance.randbytes(4)) if self._web else said


class Player:
    """One connection, and what it waits for."""

    def __init__(
        self, sock: socket.socket, seed: int, *, web: bool, notifies: int, stored: bool
    ) -> None:
        """*notifies* before each request; *stored*: answers are the gateway's."""
        self.sock = sock
        self.waiting: set[int] = set()
        """Ids of requests that have no answer yet."""
        self._web = web
        self._stored = stored
        author = _Author(seed, web=web)
        self._ring = _RING // (notifies + 1)
        turns = [
            b"".join(author.notify() for _ in range(notifies))
            + author.request(_FIRST_ID + at)
            for at in range(self._ring)
        ]
        self._size = len(turns[0])
        self._turns = b"".join(turns * 2)  # so that a piece may begin anywhere
        self._at = 0
        self._tail = b""

    def ask(self, count: int) -> None:
        """Send *count* requests, and the notifies before them."""
        at, size = self._at, self._size
        self.waiting.update(_FIRST_ID + n % self._ring for n in range(at, at + count))
        self._at = (at + count) % self._ring
        self.sock.sendall(self._turns[at * size : (at + count) * size])

    def hear(self) -> int:
        """How many answers came: each the only one to something asked."""
        data = self.sock.recv(65536)
        if not data:
            raise Broken("the server hung up")
        data = self._tail + data
        at, count, end = 0, 0, len(data)
        head = 2 if self._web else 0
        while end - at >= head + 4:
            frame = head
            if head and data[at + 1] == 126:
                frame = 4
                if end - at < 8:
                    break
            begin = at + frame  # of the package
            after = begin + 4 + int.from_bytes(data[begin + 1 : begin + 4], "big")
            if after > end:
                break
            if data[begin] == 4:
                self._match(data[begin + 4 : after])
                count += 1
            at = after
        self._tail = data[at:]
        return count

    def _match(self, message: bytes) -> None:
        number = message[1] & 127 | message[2] << 7
        if message[0] != 4 or number not in self.waiting:
            raise Broken(f"not the answer to anything: {message[:80]!r}")
        self.waiting.remove(number)
        if self._stored and message[3:] != _STORED:
            raise Broken(f"refused: {message[3:80]!r}")


@contextlib.contextmanager
def players(
    address: str, count: int, *, web: bool, notifies: int, stored: bool
) -> Iterator[list[Player]]:
    """That many, connected."""
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(greeted(address, web=web)) for _ in range(count)]
        yield [
            Player(sock, seed, web=web, notifies=notifies, stored=stored)
            for seed, sock in enumerate(socks)
        ]


def answered(crowd: Iterable[Player], seconds: float, depth: int) -> int:
    """How many requests are answered, with *depth* of each player always under way.

    None is under way any more when this returns.
    """
    poll = select.epoll()
    by_number = {player.sock.fileno(): player for player in crowd}
    for number, player in by_number.items():
        poll.register(number, select.EPOLLIN)
        player.ask(depth)
    total = 0
    until = time.monotonic() + seconds
    with poll:
        while time.monotonic() < until:
            for number, _ in poll.poll(0.1):
                player = by_number[number]
                count = player.hear()
                total += count
                if count:
                    player.ask(count)
    for player in by_number.values():
        while player.waiting:
            total += player.hear()
    return total


def waited(player: Player, seconds: float) -> list[float]:
    """Seconds from each request to its answer, one after another."""
    waits = []
    until = time.monotonic() + seconds
    while (asked := time.monotonic()) < until:
        player.ask(1)
        while not player.hear():
            pass
        waits.append(time.monotonic() - asked)
    return waits
