"""Framing, limits and options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.testing.plugins import FakeDaemon
from gateway_syslog import protocol
from gateway_syslog.options import Options


def events(
    tmp_path: Path, *reads: bytes, limits: Any = None, **options: str
) -> list[str]:
    """The messages that come of these reads; last, why the connection was refused."""
    daemon = FakeDaemon(protocol, tmp_path, options=options, limits=limits or {})
    connection = daemon.connect()
    for data in reads:
        connection.deliver(data)
    daemon.store()
    found = [
        row.payload.decode() if row.flaw else json.loads(row.payload)["message"]
        for row in daemon.rows()
    ]
    assert connection.sent == b""
    return found + ([str(connection.refused)] if connection.refused else [])


def test_by_count(tmp_path: Path) -> None:
    """Messages may have any bytes in them; what ends one otherwise is taken off."""
    assert events(tmp_path, b"5 <1>a\n6 <1>", b"b\nc8 <1>d\r\n\0\0") == [
        "a",
        "b\nc",
        "d",
    ]


@pytest.mark.parametrize(
    ("trailer", "found"),
    [
        ("any", ["a", "b", "c", "d"]),
        ("newline", ["a", "b\0c", "d"]),
        ("nul", ["a\nb", "c\r\n\n\nd"]),
    ],
)
def test_by_trailer(trailer: str, found: list[str], tmp_path: Path) -> None:
    """LF, NUL or both, as configured; nothing between two of them is no message."""
    stream = (
        b"<1>a\nb\0c\r\n\n\nd\n\0" if trailer == "nul" else b"<1>a\n<1>b\0c\n\r\nd\n"
    )
    said = events(tmp_path, stream, trailer=trailer)
    assert said == found


def test_a_message_is_complete_with_its_trailer(tmp_path: Path) -> None:
    """What a connection ends with is not stored: it may be half of a message."""
    assert events(tmp_path, b"<1>a\n<1>half") == ["a"]


@pytest.mark.parametrize("end", ["", "x"])
def test_a_large_read_is_a_few_batches(end: str, tmp_path: Path) -> None:
    """All of it, in order, up to what is refused."""
    stream = b"".join(b"%d <1>%d" % (3 + len(str(n)), n) for n in range(2500))
    found = events(tmp_path, stream + end.encode())
    assert found[:2500] == [str(n) for n in range(2500)]
    assert found[2500:] == (["b'x' where a length should be"] if end else [])


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (b"5 <1>a\n<1>b\n", "b'<1>b\\n' where a length should be"),
        (b"5 <1>a\n05 x", "b'05 x' where a length should be"),
        (b"5 <1>a\n12x", "b'12x' where a length should be"),
        (b"5 <1>a\n101", "message of 101 bytes, limit 100 (limits.message_bytes)"),
        (b"5 <1>a\n99999999999", "b'99999999999' where a length should be"),
    ],
)
def test_what_is_refused(stream: bytes, why: str, tmp_path: Path) -> None:
    """What came before it in the same read is stored all the same."""
    assert events(tmp_path, stream, limits={"message_bytes": 100}) == ["a", why]


def test_a_line_that_is_too_long(tmp_path: Path) -> None:
    """It is refused when it passes the limit, whether it ends or not."""
    why = "message of 101 bytes, limit 100 (limits.message_bytes)"
    long = b"<1>a\n<1>" + b"b" * 98
    limits = {"message_bytes": 100}
    assert events(tmp_path, long, limits=limits) == ["a", why]
    assert events(tmp_path, long + b"\n<1>c\n", limits=limits) == ["a", why]
    assert events(tmp_path, long[:-1] + b"\n", limits=limits)[1] == "b" * 97


def test_time_zone(tmp_path: Path) -> None:
    """Times without one are in the listener's."""
    daemon = FakeDaemon(protocol, tmp_path, options={"timezone": "America/New_York"})
    connection = daemon.connect()
    connection.deliver(b"<1>Nov 14 17:13:20 h a: b\n")
    daemon.store()
    [row] = daemon.rows()
    assert json.loads(row.payload)["@timestamp"] == "2023-11-14T17:13:20-05:00"


@pytest.mark.parametrize(
    "name", ["Europe/Oslp", "Europe", "../etc/passwd", "/etc/passwd"]
)
def test_no_such_time_zone(name: str) -> None:
    """It is an error of the configuration."""
    with pytest.raises(ValidationError, match="no such time zone"):
        Options.model_validate({"timezone": name})


def test_silence_is_no_reason_to_hang_up(tmp_path: Path) -> None:
    """A sender would lose what it writes into the connection that was closed."""
    assert FakeDaemon(protocol, tmp_path).listener.limits.idle == 30 * 86400


def test_nothing_without_end_is_refused(tmp_path: Path) -> None:
    """Empty lines are no messages; some between messages are fine."""
    lines = b"<1>a\n\n" * 50
    limits = {"control_messages": 100}
    assert len(events(tmp_path, lines, limits=limits)) == 50
    *_, refused = events(tmp_path, b"\n" * 1000, limits=limits)
    assert "limits.control_messages" in refused
