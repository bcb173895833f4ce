"""What one client can send that costs little: slow and lying bodies, bombs, empty requests.

The ceilings are those of tests/test_amplification.py; how HTTP itself is attacked is in
tests/sdk/test_http_server.py.
"""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_otlp import protocol
from gateway_testkit.attacks import Attack, Trial, repeated

PATH, KIND = "/v1/logs", "application/json"


def post(body: bytes, *fields: str, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    lines = [
        f"POST {PATH} HTTP/1.1", "Host: a", f"Content-Type: {KIND}",
        f"Content-Length: {size}", *fields,
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def packed(body: bytes) -> bytes:
    return post(gzip.compress(body, mtime=0), "Content-Encoding: gzip")


def tables(size: int) -> bytes:
    """A gzip stream of deflate blocks that make nothing."""
    maker = zlib.compressobj(wbits=31)
    return b"".join(
        maker.compress(b"") + maker.flush(zlib.Z_FULL_FLUSH) for _ in range(size)
    )


def chunks() -> Iterator[bytes]:
    yield post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    yield from itertools.repeat(b"1\r\n \r\n")


SMALL = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[%b]}]}]}' % b",".join(
    [b"{}"] * 10000
)
ATTACKS = [
    Attack(
        "otlp",
        name,
        repeated(unit) if isinstance(unit, bytes) else unit,
        endless=endless,
        most=1 << 14,
    )
    for name, unit, endless in (
        (
            "the smallest requests",
            post(b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}]}]}]}'),
            False,
        ),
        ("events of a few bytes", post(SMALL), False),
        ("bombs of nothing", packed(bytes(1 << 22)), True),
        ("bombs beyond the limit", packed(b" " * (65 << 20)), True),
        ("bombs of events", packed(SMALL), False),
        (
            "tables that make nothing",
            post(tables(1 << 9), "Content-Encoding: gzip"),
            True,
        ),
        ("requests for nothing", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", True),
        ("headers without end", b"POST / HTTP/1.1\r\n" + b"a: b\r\n" * 50, True),
        ("chunks of a byte", chunks, True),
        (
            "a length that lies",
            lambda: itertools.chain(
                [post(b"", length=1 << 40)], itertools.repeat(b" ")
            ),
            True,
        ),
        ("wrong bodies", post(b"x"), True),
    )
]


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
def test_what_it_costs(attack: Attack, tmp_path: Path) -> None:
    """The journal takes no more than four times what came, a turn has its bounds."""
    trial = Trial(
        attack,
        tmp_path,
        protocol,
        limits={"message_bytes": "1MiB", "control_messages": 500},
    )
    trial.run()
    assert trial.journal_bytes <= 4 * trial.sent + (64 << 10)
    assert trial.most_events <= 1 << 16
    assert trial.most_inflated <= 1 << 20
    assert trial.most_deflated <= 1 << 17


@pytest.mark.parametrize(
    "attack", [each for each in ATTACKS if each.endless], ids=lambda attack: attack.name
)
def test_what_brings_nothing_is_refused(attack: Attack, tmp_path: Path) -> None:
    """In the end, by a limit or by what HTTP allows."""
    limits = {"message_bytes": "32KiB", "control_messages": 100}
    trial = Trial(attack, tmp_path, protocol, limits=limits)
    trial.run(1 << 20)
    assert trial.over, "it goes on"
    assert trial.connection.held_bytes == 0
