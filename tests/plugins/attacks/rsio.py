"""Attacks on Reactive Streams IO."""

import itertools
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from attacks import tables
from gateway.protocols.rsio import messages as m
from gateway.protocols.rsio import wire
from gateway_testkit.attacks import Attack, Units, repeated

KiB, MiB = 1 << 10, 1 << 20
_WIDE = {"window": 1 << 24}
_COMPRESSING = (m.OnSubscribe(1, 0), m.Compress(1))


def _opening(*said: Any) -> tuple[bytes, ...]:
    hello = m.ClientHello(m.VERSION, (1, 2, 3, 5, 6))
    return (b"".join(map(wire.encode, (hello, *said))),)


def _attack(name: str, units: Units, *said: Any, **more: Any) -> Attack:
    """After its hello, and what it *said* then."""
    options = {"options": _WIDE, "opening": _opening(*said)}
    return Attack("rsio", name, units, **options | more)


def _message(name: str, message: Any, *said: Any, **more: Any) -> Attack:
    unit = repeated(wire.encode(message))
    return _attack(name, unit, *said, **{"endless": True} | more)


def _numbered(make: Callable[[int], Any]) -> Units:
    return lambda: (wire.encode(make(number)) for number in itertools.count(1))


def _elements(name: str, message: bytes, size: int = 0, **more: Any) -> Attack:
    return _attack(name, repeated(message), m.OnSubscribe(1, size), **more)


def _blocks(
    name: str, messages: Callable[[], bytes], size: int = 0, **more: Any
) -> Attack:
    """Blocks with these messages, each time the same."""

    def units() -> Iterator[bytes]:
        deflater, inside = zlib.compressobj(9), messages()
        while True:
            octets = deflater.compress(inside) + deflater.flush(zlib.Z_SYNC_FLUSH)
            yield wire.block(octets)

    return _attack(name, units, m.OnSubscribe(1, size), m.Compress(1), **more)


def _noise() -> Iterator[bytes]:
    """Blocks that repeat what came in the first one, an element of noise."""
    deflater = zlib.compressobj(9)
    inside = wire.on_next(1, [random.Random(1).randbytes(30_000)])
    while True:
        octets = deflater.compress(inside) + deflater.flush(zlib.Z_SYNC_FLUSH)
        yield wire.block(octets)


def _tables(size: int) -> Iterator[bytes]:
    """Blocks that make an inflater work for nothing."""
    yield wire.block(zlib.compress(b"")[:2] + tables.blocks(size))
    while True:
        yield wire.block(tables.blocks(size))


def _announcing() -> bytes:
    hello = m.ClientHello(m.VERSION, (2, 7))
    return wire.encode(hello)


def _limiting() -> bytes:
    return wire.encode(m.ClientHello(m.VERSION, (8,)))


def _token() -> bytes:
    hello = m.ClientHello(m.VERSION, (4,))
    return wire.encode(hello) + wire.encode(m.Token("name", b"n"))


ATTACKS = [
    _elements("elements of nothing", wire.on_next(1, [b""])),
    _elements("elements of 2 bytes", wire.on_next(1, [b"{}"])),
    _elements("elements of fixed size 1", wire.on_next(1, [b"1"], fixed=True), 1),
    _elements("packed elements of 1 byte", wire.on_next_packed(1, KiB, bytes(KiB)), 1),
    _elements("packed, one in each", wire.on_next_packed(1, 1, b"1"), 1),
    _elements("packed, none in each", wire.on_next_packed(1, 0, b""), 1, endless=True),
    _elements("elements nobody asked for", wire.on_next(9, [b""]), endless=True),
    _elements(
        "elements beyond the demand",
        wire.on_next(1, [b""]),
        options={"window": 1024},
        endless=True,
    ),
    _message("empty parts", m.OnNextPart(1, 1, b""), m.OnSubscribe(1, 0)),
    _message("elements of one part", m.OnNextLastPart(1, 1, b"1"), m.OnSubscribe(1, 0)),
    _blocks(
        "blocks of 60 Ki elements of 2 bytes",
        lambda: wire.on_next(1, [b"{}"]) * (60 * KiB),
        most=2 * KiB,
    ),
    _blocks(
        "blocks of an element of 1 MB",
        lambda: wire.on_next(1, [bytes(1_000_000)]),
        most=16 * KiB,
    ),
    _blocks(
        "blocks of packed elements of 8 bytes",
        lambda: wire.on_next_packed(1, 60 * KiB, bytes(480 * KiB)),
        8,
        most=2 * KiB,
    ),
    _blocks("blocks of one element", lambda: wire.on_next(1, [b"{}"])),
    _blocks(
        "blocks of parts",
        lambda: (
            wire.encode(m.OnNextPart(1, 1, bytes(500_000)))
            + wire.encode(m.OnNextLastPart(1, 1, bytes(500_000)))
        ),
        most=16 * KiB,
    ),
    _blocks(
        "blocks of pings",
        lambda: wire.encode(m.Ping(b"")) * (60 * KiB),
        endless=True,
        most=2 * KiB,
    ),
    _attack("blocks of noise, repeated", _noise, *_COMPRESSING),
    _attack(
        "blocks of noise, each in a read of its own",
        _noise,
        apart=True,
        endless=True,
        opening=_opening(*_COMPRESSING),
    ),
    _attack("blocks of 60 KB of tables", lambda: _tables(60_000), *_COMPRESSING),
    _attack(
        "blocks of 900 KB of tables",
        lambda: _tables(900_000),
        *_COMPRESSING,
        most=1 << 20,
    ),
    _blocks("blocks of nothing", lambda: b"", endless=True),
    _message("pings", m.Ping(b"")),
    _message("pings of 4 KiB", m.Ping(bytes(4 * KiB)), most=MiB, endless=False),
    _message("pongs", m.Pong(b"")),
    _attack("subscribes", _numbered(lambda n: m.Subscribe("", n, 1)), endless=True),
    _attack(
        "subscribes from an offset",
        _numbered(lambda n: m.SubscribeFrom("", n, 1, 1)),
        endless=True,
    ),
    _message("requests of no stream", m.Request(9, 1)),
    _message("cancels of no stream", m.Cancel(9)),
    _message("stored of no stream", m.Stored(9, 1)),
    _message("compresses of no algorithm", m.Compress(9)),
    _message("compresses", m.Compress(1)),
    _message("compressAcks", m.CompressAck(9)),
    _message("onSubscribes", m.OnSubscribe(1, 0)),
    _message("onCompletes", m.OnComplete(1)),
    _message("onErrors", m.OnError(1, "")),
    _message("hellos", m.ClientHello(m.VERSION, ())),
    _message("serverHellos", m.ServerHello(m.VERSION, ())),
    _message("goodbyes", m.Goodbye(""), endless=False),
    _message("goodbyeAcks", m.GoodbyeAck("")),
    _message("announces", m.Announce("nobody", b"1", 0), opening=(_announcing(),)),
    _message("limits", m.Limits(9), opening=(_limiting(),), endless=False),
    _message("tokens", m.Token("name", b"n"), opening=(_token(),)),
]
