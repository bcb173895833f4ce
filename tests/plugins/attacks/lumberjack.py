"""Attacks on Lumberjack."""

import random
import struct
from typing import Any

from attacks import tables
from gateway.protocols.lumberjack import wire
from gateway_testkit.attacks import Attack, Units, repeated

V1, V2 = b"12"
KiB = 1 << 10
_EMPTY = wire.json(V2, 1, b"{}")


def _attack(name: str, units: Units, **more: Any) -> Attack:
    return Attack("lumberjack", name, units, **more)


def _squeezed(frames: bytes) -> bytes:
    return wire.compressed(V2, frames, 9)


def _tables(size: int) -> bytes:
    stream = tables.stream(size)
    return b"2C" + struct.pack(">I", len(stream)) + stream


def _one(body: bytes) -> bytes:
    return wire.window(V2, 1) + wire.json(V2, 1, body)


def _array(element: bytes, count: int) -> bytes:
    array = b"[" + b",".join([element] * count) + b"]"
    return wire.window(V2, 1) + _squeezed(wire.json(V2, 1, array))


def _pairs(count: int) -> bytes:
    return wire.data(V1, 1, [(b"", b"")] * count)


def _parts() -> bytes:
    """A window of 60,000 events in compressed frames of 6,000."""
    frames = wire.json(V2, 1, b"{}") * 6000
    return wire.window(V2, 60_000) + _squeezed(frames) * 10


def _shared() -> bytes:
    """Windows that begin in one compressed frame and end in the next."""
    halves = wire.json(V2, 1, b"{}") + wire.window(V2, 2) + wire.json(V2, 1, b"{}")
    return _squeezed(halves)


def _large() -> bytes:
    """More than one batch takes, which deflates as well as is allowed."""
    digits = f"{random.Random(1).getrandbits(2000):0500x}".encode()
    body = b'{"message":"%s"}' % (digits * 210)
    frames = b"".join(wire.json(V2, n, body) for n in range(1, 2049))
    return wire.window(V2, 2048) + _squeezed(frames)


ATTACKS = [
    _attack("arrays of 32 Ki {}", repeated(lambda: _array(b"{}", 1 << 15)), most=KiB),
    _attack(
        "arrays of 65 000 {}", repeated(lambda: _array(b"{}", 65_000)), most=2 * KiB
    ),
    _attack(
        "arrays of 524 000 numbers",
        repeated(lambda: _array(b"1", 524_000)),
        most=2 * KiB,
    ),
    _attack(
        "brackets, 1 MiB deep", repeated(lambda: _array(b"[" * (1 << 20), 1)), most=KiB
    ),
    _attack(
        "60 000 W 0 in a C",
        repeated(lambda: _squeezed(wire.window(V2, 0) * 60_000)),
        endless=True,
        most=KiB,
    ),
    _attack(
        "30 000 windows in a C",
        repeated(lambda: _squeezed(_one(b"{}") * 30_000)),
        most=KiB,
    ),
    _attack(
        "60 000 loose J in a C",
        repeated(lambda: _squeezed(wire.json(V2, 1, b"{}") * 60_000)),
        most=KiB,
    ),
    _attack("a window of 10 C of 6 000 events", repeated(_parts), most=KiB),
    _attack(
        "windows of a bare J and a C",
        repeated(lambda: wire.window(V2, 3) + _EMPTY + _squeezed(_EMPTY * 2)),
    ),
    _attack(
        "windows across two C",
        repeated(_shared),
        opening=(wire.window(V2, 2) + wire.json(V2, 1, b"{}"),),
    ),
    _attack(
        "1 000 D of empty pairs",
        repeated(lambda: wire.window(V1, 1000) + _squeezed(_pairs(1024) * 1000)),
        most=KiB,
    ),
    _attack(
        "W in a C, an event of 15 MiB",
        repeated(lambda: _squeezed(_one(b'{"a":"%s"}' % (b"x" * (15 << 20))))),
        most=16 * KiB,
    ),
    _attack("bare windows of one event", repeated(_one(b"{}"))),
    _attack("bare windows of one empty event", repeated(_one(b""))),
    _attack("bare loose J", repeated(wire.json(V2, 1, b"{}"))),
    _attack("bare windows of one D", repeated(wire.window(V1, 1) + _pairs(0))),
    _attack("bare loose D", repeated(_pairs(0))),
    _attack("bare D of 1 024 empty pairs", repeated(lambda: _pairs(1024))),
    _attack("small arrays", repeated(_one(b"[1,2]"))),
    _attack("empty arrays", repeated(_one(b"[]")), endless=True, most=1 << 19),
    _attack("a C for each window", repeated(lambda: _squeezed(_one(b"{}")))),
    _attack("bare W 0", repeated(wire.window(V2, 0)), endless=True),
    _attack("a C of nothing", repeated(lambda: _squeezed(b"")), endless=True),
    _attack("a C of 60 KB of tables", repeated(lambda: _tables(60_000))),
    _attack("a C of 200 KB of tables", repeated(lambda: _tables(200_000))),
    _attack("a C that is cut into batches", repeated(_large), most=KiB),
    _attack(
        "windows of which one event comes",
        repeated(wire.window(V2, 9) + wire.json(V2, 1, b'{"n":1}')),
    ),
    _attack(
        "windows of which nothing comes", repeated(wire.window(V2, 9)), endless=True
    ),
    _attack(
        "windows in a C of which nothing comes",
        repeated(lambda: _squeezed(wire.window(V2, 9) * 9000)),
        endless=True,
        most=8 * KiB,
    ),
    _attack("C in a C", repeated(lambda: _squeezed(_squeezed(b""))), endless=True),
    _attack("acknowledgements", repeated(wire.ack(V2, 1)), endless=True),
]
