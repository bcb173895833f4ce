"""Attacks on Pomelo."""

import itertools
import json
import zlib
from collections.abc import Iterator
from typing import Any

from attacks import tables
from gateway.protocols.pomelo import wire
from gateway_testkit.attacks import Attack, Units, repeated

MiB = 1 << 20


def _handshake(user: object = None) -> bytes:
    said = {"sys": {"type": "js-websocket", "version": "0.0.1"}, "user": user}
    return wire.package(wire.HANDSHAKE, json.dumps(said).encode())


_OPENING = (_handshake() + wire.package(wire.ACK),)
_NAME = "aNameThatIsMuchLongerThanItsValue"
_PROTOS = {
    "options": {
        "routes": ["r"],
        "client_protos": {
            "r": {
                "message M": {f"optional uInt32 {_NAME}": 1},
                f"repeated uInt32 {_NAME}s": 1,
                f"repeated M {_NAME}Ms": 2,
                f"optional uInt32 {_NAME}": 3,
                "optional string text": 4,
            }
        },
    }
}


def _attack(name: str, units: Units, **more: Any) -> Attack:
    return Attack("pomelo", name, units, **{"opening": _OPENING} | more)


def _zipped(message: bytes) -> bytes:
    return message[:4] + bytes((message[4] | 0x10,)) + message[5:]


def _bomb(size: int, wbits: int = 15) -> bytes:
    deflater = zlib.compressobj(9, wbits=wbits)
    body = deflater.compress(b'{"a":"%s"}' % (b"x" * size)) + deflater.flush()
    return _zipped(wire.request(1, "a", body))


def _squeezed_protobuf() -> bytes:
    body = b"\x0a" + b"\x80\x20" + b"\x01" * 4096
    return _zipped(wire.notify(1, zlib.compress(body, 9)))


def _routes() -> Iterator[bytes]:
    return (wire.notify(f"r{number}", b"") for number in itertools.count())


def _user() -> bytes:
    return _handshake({f"k{number}": [[[]]] for number in range(3500)})


ATTACKS = [
    _attack("zlib bodies of 1 MiB", repeated(lambda: _bomb(MiB - 16)), most=16 << 10),
    _attack(
        "gzip bodies of 1 MiB", repeated(lambda: _bomb(MiB - 16, 31)), most=16 << 10
    ),
    _attack("zlib bodies of 16 MiB", repeated(lambda: _bomb(16 * MiB)), endless=True),
    _attack("zlib bodies of 8 bytes", repeated(lambda: _bomb(0))),
    _attack(
        "zlib bodies of 43 KB of tables",
        repeated(_zipped(wire.request(1, "a", tables.stream(43_000)))),
    ),
    _attack(
        "zlib bodies of tables that end in none",
        repeated(_zipped(wire.notify("a", tables.broken(60_000)))),
    ),
    _attack("zlib bodies that are none", repeated(_zipped(wire.notify("", b"\x78")))),
    _attack("protobuf, numbers", repeated(wire.notify(1, b"\x18\x01")), **_PROTOS),
    _attack(
        "protobuf, an array",
        repeated(wire.notify(1, b"\x0a\x80\x20" + b"\1" * 4096)),
        **_PROTOS,
    ),
    _attack(
        "protobuf, empty messages",
        repeated(wire.notify(1, b"\x12\x00" * 8192)),
        **_PROTOS,
    ),
    _attack(
        "protobuf, 64 Ki empty messages in one",
        repeated(wire.notify(1, b"\x12\x00" * (64 << 10))),
        **_PROTOS,
    ),
    _attack("protobuf, cut off", repeated(wire.notify(1, b"\x22\x7f")), **_PROTOS),
    _attack("protobuf in zlib", repeated(_squeezed_protobuf), most=16 << 10, **_PROTOS),
    _attack("requests of nothing", repeated(wire.request(1, "", b""))),
    _attack(
        "requests above options.rates",
        repeated(wire.request(1, "", b"")),
        options={"rates": {"connection": {"messages": 1000}, "burst": "10s"}},
        endless=True,
    ),
    _attack("notifies of nothing", repeated(wire.notify("", b""))),
    _attack("notifies, a route each", _routes),
    _attack(
        "notifies by code", repeated(wire.notify(1, b"")), options={"routes": ["r"]}
    ),
    _attack("notifies, cut-off JSON", repeated(wire.notify("", b"[" * 512))),
    _attack("heartbeats", repeated(wire.package(wire.HEARTBEAT)), endless=True),
    _attack("acknowledgements", repeated(wire.package(wire.ACK)), endless=True),
    _attack("handshakes", repeated(_handshake), endless=True),
    _attack("a handshake of 64 KB", repeated(_user), opening=(), endless=True),
    _attack("kicks", repeated(wire.kick("")), most=1 << 10),
    _attack("packages of unknown type", repeated(wire.package(9)), endless=True),
    _attack("responses", repeated(wire.response(1, b"")), endless=True),
    _attack("pushes", repeated(wire.push("", b"")), endless=True),
]
