"""Attacks on Pravega's controller: HTTP/2 frames, and gRPC calls."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from h2.connection import H2Connection
from hpack import Encoder

from gateway_testkit.attacks import Attack, Units, repeated

_DATA, _HEADERS, _PRIORITY, _RESET, _SETTINGS, _PUSH, _PING, _GOAWAY, _WINDOW, _MORE = (
    range(10)
)
_END_STREAM, _END_HEADERS, _PADDED = 0x1, 0x4, 0x8
_SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"


def _preface() -> bytes:
    client = H2Connection()
    client.initiate_connection()
    return client.data_to_send()


def _frame(
    kind: int, payload: bytes = b"", *, stream: int = 0, flags: int = 0
) -> bytes:
    head = len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4)
    return head + payload


def _fields(method: str, *more: tuple[str, str]) -> list[tuple[str, str]]:
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", _SERVICE + method),
        (":authority", "g:9090"),
        ("content-type", "application/grpc"),
        *more,
    ]


def _attack(name: str, units: Units, **more: Any) -> Attack:
    given = {"opening": (_preface(),), "endless": True} | more
    options = {"controller": "tcp:9090"}
    return Attack(
        "pravega",
        f"HTTP/2, {name}",
        units,
        port=".controller",
        options=options,
        **given,
    )


def _streams(unit: Callable[[Encoder, int], bytes]) -> Units:
    """A unit for each stream."""

    def units() -> Iterator[bytes]:
        encoder = Encoder()
        return (unit(encoder, stream) for stream in itertools.count(1, 2))

    return units


def _call(encoder: Encoder, stream: int) -> bytes:
    head = encoder.encode(_fields("getControllerServerList"))
    return _frame(_HEADERS, head, stream=stream, flags=_END_HEADERS) + _frame(
        _DATA, bytes(5), stream=stream, flags=_END_STREAM
    )


def _head(encoder: Encoder, stream: int, flags: int = 0) -> bytes:
    head = encoder.encode(_fields("x"))
    return _frame(_HEADERS, head, stream=stream, flags=flags | _END_HEADERS)


def _reset(encoder: Encoder, stream: int) -> bytes:
    reset = _frame(_RESET, bytes(4), stream=stream)
    return _head(encoder, stream) + reset


def _opened() -> tuple[bytes, ...]:
    return (_preface() + _head(Encoder(), 1),)


def _continued() -> Iterator[bytes]:
    yield _frame(_HEADERS, b"", stream=1)
    yield from itertools.repeat(_frame(_MORE, b"", stream=1))


def _table_bombs(encoder: Encoder, stream: int) -> bytes:
    """The same large field from the table, as often as the head may have it."""
    fields = [(f"a{number}", "x" * 700) for number in range(5)]
    head = encoder.encode([*_fields("x"), *fields * 4])
    return _frame(_HEADERS, head, stream=stream, flags=_END_HEADERS | _END_STREAM)


ATTACKS = [
    _attack("SETTINGS", repeated(_frame(_SETTINGS))),
    _attack(
        "SETTINGS of 1 000 entries",
        repeated(_frame(_SETTINGS, b"\0\x09\0\0\0\0" * 1000)),
        most=3 << 20,
    ),
    _attack("SETTINGS, acknowledgements", repeated(_frame(_SETTINGS, flags=1))),
    _attack("unknown frames", repeated(_frame(0x42))),
    _attack("PING", repeated(_frame(_PING, bytes(8))), most=1 << 19),
    _attack("PING, answers", repeated(_frame(_PING, bytes(8), flags=1)), most=1 << 19),
    _attack("PRIORITY", repeated(_frame(_PRIORITY, b"\0\0\0\3\1", stream=1))),
    _attack("WINDOW_UPDATE", repeated(_frame(_WINDOW, b"\0\0\0\1")), most=1 << 20),
    _attack(
        "WINDOW_UPDATE of a stream",
        repeated(_frame(_WINDOW, b"\0\0\0\1", stream=1)),
        opening=_opened(),
    ),
    _attack("empty DATA", repeated(_frame(_DATA, stream=1)), opening=_opened()),
    _attack(
        "padded DATA",
        repeated(_frame(_DATA, bytes((255,)) + bytes(255), stream=1, flags=_PADDED)),
        opening=_opened(),
        most=8 << 20,
    ),
    _attack("DATA of no stream", repeated(_frame(_DATA, bytes(5), stream=9))),
    _attack(
        "RST_STREAM", repeated(_frame(_RESET, bytes(4), stream=1)), opening=_opened()
    ),
    _attack("rapid reset", _streams(_reset)),
    _attack("HEADERS, never ended", _streams(_head)),
    _attack(
        "HEADERS, no method of ours",
        _streams(lambda encoder, stream: _head(encoder, stream, _END_STREAM)),
    ),
    _attack("HEADERS of 15 KB from the table", _streams(_table_bombs)),
    _attack(
        "HEADERS that are no HPACK",
        repeated(_frame(_HEADERS, b"\xff" * 64, stream=1, flags=_END_HEADERS)),
    ),
    _attack("CONTINUATION", _continued),
    _attack("CONTINUATION of nothing", repeated(_frame(_MORE, stream=1))),
    _attack("PUSH_PROMISE", repeated(_frame(_PUSH, bytes(4), stream=1))),
    _attack("GOAWAY", repeated(_frame(_GOAWAY, bytes(8))), endless=False),
    _attack("no HTTP/2", repeated(b"GET / HTTP/1.1\r\n\r\n"), opening=()),
    _attack("calls", _streams(_call), endless=False),
]
