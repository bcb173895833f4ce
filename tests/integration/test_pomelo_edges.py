"""What breaks other Pomelo servers, against the real daemon over TCP and WebSocket.

Nothing hangs and nothing wedges: every connection comes to its end, everything good is
answered, and a refusal is one kick with a reason and one line in the log.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from daemons import listener
from deadlines import eventually

OPTIONS: dict[str, Any] = {
    "heartbeat": "0s",
    "session_events": False,
    "routes": ["a.b.c", "a.b.proto"],
    "client_protos": {"a.b.proto": {"required uInt32 n": 1}},
}
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: game\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
TEXT, BINARY, CLOSE = 1, 2, 8
POLICY = struct.pack(">H", 1008)
NORMAL = struct.pack(">H", 1000)


def package(kind: int, body: bytes = b"") -> bytes:
    return struct.pack(">I", kind << 24 | len(body)) + body


def message(text: str) -> bytes:
    """A data package of these hexadecimal digits."""
    return package(4, bytes.fromhex(text))


def ask(number: int) -> bytes:
    """A request whose answer tells that the connection works."""
    said = bytearray([0])
    while number > 127:
        said.append(number & 127 | 128)
        number >>= 7
    return package(4, bytes([*said, number]) + b"\x05a.b.c{}")


HELLO = package(1, b'{"sys":{"type":"js-websocket"},"user":{}}')
ACK, HEARTBEAT, BYE = package(2), package(3), package(5)
GREETED = [HELLO, ACK]


@dataclass
class Row:
    """What a client says, and what comes of it."""

    name: str
    said: list[bytes]
    """WebSocket messages; over TCP one behind the other."""
    answered: list[int] = field(default_factory=list)
    """Ids."""
    reason: str | None = None
    """In the kick and in the log; None: the client itself says goodbye."""
    code: int | None = None
    """Of the handshake's reply, where that is the kick."""


ROWS = [
    Row("data first", [ask(1)], reason="message before the handshake"),
    Row("ack first", [ACK], reason="acknowledgement before the handshake"),
    Row("heartbeat first", [HEARTBEAT], reason="heartbeat before the handshake"),
    Row("data before ack", [HELLO, ask(1)], reason="before the handshake was ack"),
    *(
        Row(f"handshake {body!r}", [package(1, body), ACK, ask(1)], code=500)
        for body in (b"", b"{", b"{}", b"null", b"[]", b'{"sys":1}')
    ),
    Row("second handshake", [*GREETED, HELLO], reason="second handshake"),
    Row("all at once", [HELLO + ACK + ask(1) + BYE], [1]),
    Row("in crumbs", [bytes([b]) for b in HELLO + ACK + ask(1) + BYE], [1]),
    *(
        Row(f"message {text!r}", [*GREETED, ask(1), message(text), ask(2)], [1], reason)
        for text, reason in {
            "": "without a flag",
            "00": "inside its id",
            "0080": "inside its id",
            "00ffffffff1f": "above 4294967295",
            "0001": "inside its route",
            "0001ff61": "inside its route",
            "0301": "inside its route",
            "000101ff": "route is not UTF-8",
            "03ffff": "route code 65535",
            "030000": "route code 0",
            "0401": "response from a client",
            "060161": "push from a client",
            "0a": "unknown type 5",
            "420161": "unknown flag bits",
        }.items()
    ),
    Row("unknown package", [*GREETED, ask(1), b"\x09\0\0\0", ask(2)], [1], "type 9"),
    Row("large package", [*GREETED, ask(1), b"\x04\xff\xff\xff"], [1], "16777215"),
    *(
        Row(f"id {number}", [*GREETED, ask(number), ask(1), BYE], [number, 1])
        for number in (127, 128, 2**31 - 1, 2**31, 2**32 - 1)
    ),
    Row("id twice", [*GREETED, ask(7), ask(7), BYE], [7, 7]),
    Row("id 0", [*GREETED, ask(0), ask(1), BYE], [1]),
    *(
        Row(f"protobuf {body}", [*GREETED, message("01010002" + body), ask(2), BYE],
            [1, 2])
        for body in ("", "08", "0801", "7801", "7b7d", "ffff")
    ),
    *(
        Row(f"body {body}", [*GREETED, message("000101" + "61" + body), ask(2), BYE],
            [1, 2])
        for body in ("", "7b", "5b315d", "6e756c6c", "ff", "eda0bdedb880")
    ),
    *(
        Row(f"route {route}", [*GREETED, package(
            4, b"\0\1" + bytes([len(route.encode())]) + route.encode() + b"{}"), ask(2), BYE],
            [1, 2])
        for route in ("", "a", "a.b", "a.b.c.d", ".constructor", "__proto__", "你")
    ),
    Row("several in one message", [*GREETED, ask(1) + ask(2) + HEARTBEAT + ask(3), BYE],
        [1, 2, 3]),
    Row("split over messages", [*GREETED, ask(1)[:9], ask(1)[9:] + ask(2), BYE],
        [1, 2]),
    Row("an empty message", [*GREETED, b"", ask(1), BYE], [1]),
    Row("a byte too much", [*GREETED, ask(1) + b"\x04", ask(2)[1:], BYE], [1, 2]),
    Row("a body where none belongs", [HELLO, package(2, b"x"), package(3, b"{}"),
        ask(1), BYE], [1]),
]  # fmt: skip


class Tcp:
    """Packages as they are."""

    opening = b""

    def wrapped(self, said: list[bytes]) -> bytes:
        return b"".join(said)

    def packages(self, heard: bytes, row: Row) -> Iterator[bytes]:
        while heard:
            size = 4 + int.from_bytes(heard[1:4], "big")
            assert len(heard) >= size
            yield heard[:size]
            heard = heard[size:]


class Web(Tcp):
    """One package in each message from the daemon; then a close frame."""

    opening = UPGRADE

    def __init__(self, opcode: int = BINARY) -> None:
        self._opcode = opcode

    def wrapped(self, said: list[bytes]) -> bytes:
        return b"".join(self._frame(each) for each in said)

    def _frame(self, data: bytes) -> bytes:
        mask = b"\x01\x02\x03\x04"
        hidden = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        size = len(data)
        length = bytes([128 | size]) if size < 126 else struct.pack(">BH", 254, size)
        return bytes([128 | self._opcode]) + length + mask + hidden

    def packages(self, heard: bytes, row: Row) -> Iterator[bytes]:
        head, _, rest = heard.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101")
        closed = b""
        while rest:
            assert not closed
            at, size = 2, rest[1]
            if size == 126:
                at, size = 4, int.from_bytes(rest[2:4], "big")
            content = rest[at : at + size]
            if rest[0] & 15 == CLOSE:
                closed = content
            else:
                assert rest[0] == 128 | BINARY
                assert len(content) == 4 + int.from_bytes(content[1:4], "big")
                yield content
            rest = rest[at + size :]
        refused = row.reason is not None or row.code is not None
        assert closed[:2] == (POLICY if refused else NORMAL)


@pytest.mark.parametrize("way", [Tcp(), Web()], ids=["tcp", "websocket"])
def test_every_row(start, connect, way):
    """Each on a connection, and from an address, of its own."""
    game = listener(
        "game",
        "pomelo",
        websocket={"path": "/"},
        limits={"message_bytes": "1MiB"},
        options=OPTIONS,
    )
    daemon = start(listeners=[game])
    address = daemon.address("game")
    names = {}
    for number, row in enumerate(ROWS, 1):
        peer = connect(address, f"127.0.1.{number}")
        names[row.name] = peer.name
        peer.send(way.opening + way.wrapped(row.said))
        heard = list(way.packages(peer.rest(), row))
        judge(row, heard)
        peer.socket.close()
    eventually(lambda: daemon.listener("game")["connections"] == 0, "all are gone")
    log = [line for line in daemon.log.splitlines() if " warn " in line]
    for row in ROWS:
        lines = [line for line in log if names[row.name] in line]
        refused = row.reason is not None or row.code is not None
        assert len(lines) == refused, (row.name, lines)
        assert all((row.reason or "handshake") in line for line in lines), lines
    assert "Traceback" not in daemon.log


def judge(row: Row, heard: list[bytes]) -> None:
    """What came back is what the row promises, and nothing else."""
    kinds = [each[0] for each in heard if each != HEARTBEAT]
    answers = [each for each in heard if each[0] == 4]
    assert [number(each[5:]) for each in answers] == row.answered, row.name
    assert all(each.endswith(b'{"code":200}') for each in answers), row.name
    if row.code is not None:
        assert kinds == [1], row.name
        assert json.loads(heard[-1][4:])["code"] == row.code
        return
    greeting = [1] if row.said[0].startswith(HELLO[:1]) else []
    kick = [] if row.reason is None else [5]
    assert kinds == greeting + [4] * len(answers) + kick, row.name
    if row.reason is not None:
        assert row.reason in json.loads(heard[-1][4:])["reason"], row.name


def number(varint: bytes) -> int:
    value = 0
    for at, byte in enumerate(varint):
        value |= (byte & 127) << 7 * at
        if byte < 128:
            return value
    pytest.fail("an id without end")
