"""Columns of the tables, and payloads that try to break them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.spark import tables
from gateway.spark.ledger import Ranges
from gateway.spark.source import SCHEMA_DDL

pytestmark = pytest.mark.spark

ARRIVED = datetime(2026, 3, 2, 0, 30, tzinfo=UTC)

#: Payloads that VARIANT can not hold without loss: the bytes must be kept.
UNPARSED = {
    "not JSON": b"{nope",
    "nothing": b"",
    "blank": b"  ",
    "bad UTF-8": b'{"a": "\xff\xfe"}',
    "byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "key twice": b'{"a": 1, "a": 2}',
    "key twice, inside": b'{"x": [{"a": 1, "a": 1}]}',
    "second value": b'{"a": 1}\n{"b": 2}',
    "garbage behind": b'{"a": 1} x',
    "comma behind": b'{"a": 1}, {"b": 2}',
    "bracket trick": b"1, 2] [3",
    "closing trick": b'{"a": 1}]',
    "NaN": b'{"a": NaN}',
    "raw control": b'{"a": "\x01"}',
    "deep": b"[" * 5000 + b"]" * 5000,
    "deep objects": b'{"a":' * 3000 + b"1" + b"}" * 3000,
    "long number": b"[" + b"9" * 2000 + b"]",
    "long key": b'{"' + b"k" * 70_000 + b'": 1}',
    "long string": b'"' + b"x" * (21 * 2**20) + b'"',
}

#: Payloads that must arrive as values.
PARSED = {
    "object": b'{"a": {"b": [1, 2.5, null, true, "\\u00e9\\u0000"]}}',
    "spaces": b' \n{"a" : 1}\t ',
    "array": b"[1, 2]",
    "string": b'"x"',
    "big integer": b'{"a": 18446744073709551616}',
    "long decimal": b'{"a": 0.1234567890123456789012345}',
    "empty key": b'{"": 1}',
    "many keys": json.dumps({f"k{n}": n for n in range(20_000)}).encode(),
}


@pytest.fixture
def make_rows(
    spark: Any, tmp_path: Path, make_envelope: Callable[..., pa.Table]
) -> Callable[..., list[Any]]:
    """Payloads to rows of `events` and `quarantine`, by way of Parquet."""

    def rows(payloads: list[bytes], *columns: str, **options: Any) -> list[Any]:
        at = int(ARRIVED.timestamp() * 1e6)
        table = make_envelope("gw", 1, payloads, received_at=at, **options)
        pq.write_table(table, tmp_path / "in.parquet", row_group_size=4)
        stream = spark.read.schema(SCHEMA_DDL).parquet(f"file://{tmp_path}/in.parquet")
        # Written and read again: a value that Parquet refuses would show here.
        tables.events(stream).write.parquet(f"file://{tmp_path}/out")
        made = spark.read.parquet(f"file://{tmp_path}/out").orderBy("lsn")
        return list(made.selectExpr(*columns).collect())

    return rows


def test_no_payload_is_lost(make_rows: Callable[..., list[Any]]) -> None:
    """Every event gets a row: as a value, or as the bytes that were sent, never both."""
    cases = {**UNPARSED, **PARSED}
    rows = make_rows(list(cases.values()), "body IS NULL AS raw", "payload", "message")
    for (name, sent), row in zip(cases.items(), rows, strict=True):
        assert row.raw == (name in UNPARSED), name
        assert (bytes(row.payload) if row.raw else row.payload) == (
            sent if row.raw else None
        ), name


def test_values_are_those_of_the_json(make_rows: Callable[..., list[Any]]) -> None:
    """VARIANT says what the JSON said."""
    rows = make_rows(list(PARSED.values()), "to_json(body) AS text")
    for (name, sent), row in zip(PARSED.items(), rows, strict=True):
        assert json.loads(row.text) == json.loads(sent), name


def test_the_usual_fields_have_columns(make_rows: Callable[..., list[Any]]) -> None:
    """Time, message and host are found where shippers put them."""
    sent: list[tuple[Any, tuple[Any, Any, Any]]] = [
        (
            {
                "@timestamp": "2026-03-01T23:59:59.123456Z",
                "message": "hello",
                "host": {"name": "web-1", "ip": ["192.0.2.1"]},
            },
            (datetime(2026, 3, 1, 23, 59, 59, 123456), "hello", "web-1"),  # noqa: DTZ001
        ),
        (
            {"@timestamp": "2026-03-02T01:00:00+02:00", "message": 5, "host": "web-2"},
            (datetime(2026, 3, 1, 23), "5", "web-2"),  # noqa: DTZ001
        ),
        ({"host": {"ip": "192.0.2.1"}}, (None, None, None)),
        ({"line": "old", "host.name": "web-3"}, (None, "old", "web-3")),
        ({"@timestamp": "12:30", "message": None}, (None, None, None)),
        ({"@timestamp": 1_700_000_000}, (None, None, None)),
        ({"@timestamp": {"a": 1}}, (None, None, None)),
        ({"@timestamp": "0000-00-00T99:00:00Z"}, (None, None, None)),
        ({"@timestamp": "2026-13-01T00:00:00Z"}, (None, None, None)),
        ([1], (None, None, None)),
    ]
    rows = make_rows(
        [json.dumps(one).encode() for one, _ in sent],
        *("event_time", "message", "host", "received_at"),
    )
    arrived = ARRIVED.replace(tzinfo=None)
    for (one, (at, message, host)), row in zip(sent, rows, strict=True):
        assert row.received_at == arrived
        assert row.event_time == (at or arrived), one
        assert (row.message, row.host) == (message, host), one


def test_other_content_is_kept_as_it_is(make_rows: Callable[..., list[Any]]) -> None:
    """What does not say it is JSON is not read as JSON; text is a message."""
    rows = make_rows(
        [b"plain \xc3\xa9", b"\xff"],
        *("body IS NULL AS raw", "message", "payload"),
        content_type="text/plain",
    )
    assert [row.raw for row in rows] == [True, True]
    assert [row.message for row in rows] == ["plain é", None]
    assert [bytes(row.payload) for row in rows] == [b"plain \xc3\xa9", b"\xff"]


def test_flawed_events_keep_their_bytes(make_rows: Callable[..., list[Any]]) -> None:
    """They go to quarantine, with the payload even where it could be read."""
    rows = make_rows(
        [b'{"a": 1}', b'{"b": 2}', b"{"],
        *("table", "flaw", "payload", "date", "protocol"),
        flaws={1: "oversized", 2: "invalid-json"},
    )
    assert [row.table for row in rows] == ["events", "quarantine", "quarantine"]
    assert [row.flaw for row in rows] == [None, "oversized", "invalid-json"]
    assert rows[0].payload is None
    assert [bytes(row.payload) for row in rows[1:]] == [b'{"b": 2}', b"{"]
    assert {row.date for row in rows} == {date(2026, 3, 2)}
    assert {row.protocol for row in rows} == {"lumberjack"}


def test_what_was_committed_before_is_left_out(spark: Any) -> None:
    """By node and interval, both ends included."""
    all_of = spark.createDataFrame(
        [(node, lsn) for node in ("a", "b") for lsn in range(1, 7)],
        "node string, lsn bigint",
    )
    left = tables.without(all_of, Ranges({"a": [(1, 2), (5, 5)], "b": [(1, 6)]}))
    assert sorted((row.node, row.lsn) for row in left.collect()) == [
        ("a", 3),
        ("a", 4),
        ("a", 6),
    ]


def test_counts_per_window(
    spark: Any, tmp_path: Path, make_envelope: Callable[..., pa.Table]
) -> None:
    """Events, bytes and flaws per window, protocol, listener and channel."""
    start = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)
    for number, (seconds, channel) in enumerate(
        [(0, None), (30, "c"), (59, None), (60, None)]
    ):
        at = int((start + timedelta(seconds=seconds)).timestamp() * 1e6)
        table = make_envelope(
            *("gw", 1, [b"12", b"3"]),
            received_at=at,
            channel=channel,
            flaws={1: "invalid-json"},
        )
        pq.write_table(table, tmp_path / f"{number}.parquet")
    stream = spark.read.schema(SCHEMA_DDL).parquet(f"file://{tmp_path}")
    minute = timedelta(minutes=1)
    rows = tables.counts(stream, minute, minute).orderBy("window_start", "channel")
    assert [
        (
            row.window_start.minute,
            row.channel,
            row.events,
            row.payload_bytes,
            row.flawed,
        )
        for row in rows.collect()
    ] == [(59, None, 4, 6, 2), (59, "c", 2, 3, 1), (0, None, 2, 3, 1)]
    assert [row.date.day for row in rows.collect()] == [1, 1, 2]
