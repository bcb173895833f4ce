"""Events as JSON and as Arrow: the same events, from batches and from tables."""

import base64
import json
from datetime import datetime
from itertools import accumulate
from typing import Any
from unittest.mock import Mock

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from gateway.event import SCHEMA, Batch, Origin, Rows, Stored
from gateway.feeds import columns, encoding, lines
from gateway.feeds.query import Query
from gateway.store.spool.columns import Columns

TEXT = st.text(max_size=5)
PAYLOAD = st.one_of(
    st.binary(max_size=12),
    TEXT.map(str.encode),
    st.recursive(
        st.none() | st.integers(-(2**70), 2**70) | TEXT,
        lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
        max_leaves=4,
    ).map(lambda value: json.dumps(value, indent=1).encode()),
)
TYPES = st.sampled_from(
    ["application/json", "application/octet-stream", "application/x+json; v=1"]
)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Stored, Rows]:
    """A batch and its events."""
    payloads = draw(st.lists(PAYLOAD, min_size=1, max_size=6))
    one_piece = draw(st.booleans())

    def odd(values: Any) -> Any:
        return st.dictionaries(st.integers(0, len(payloads) - 1), values, max_size=2)

    rows = Rows(
        [] if one_piece else payloads,
        block=b"".join(payloads) if one_piece else b"",
        ends=[*accumulate(map(len, payloads))] if one_piece else (),
        seqs=draw(st.none() | st.just(range(7, 7 + len(payloads)))),
        channel=draw(st.none() | TEXT),
        content_type=draw(TYPES),
        attributes=draw(st.dictionaries(TEXT, TEXT, max_size=2)),
        flaws=draw(odd(TEXT)),
        content_types=draw(odd(TYPES)),
        channels=draw(odd(TEXT)),
        kinds=draw(odd(st.sampled_from(["request", "notify"]))),
    )
    origin = Origin(
        draw(TEXT), draw(TEXT), "s", "p", draw(st.none() | TEXT), {"tls": "1.3"}
    )
    received = draw(st.integers(0, 2**52))
    return Stored(Batch(origin, received, len(payloads), b"", 1), 41), rows


def table(stored: Stored, rows: Rows) -> pa.RecordBatch:
    collected = Columns("gw-1")
    collected.add(stored, rows)
    return collected.batch()


@settings(deadline=None)
@given(batches())
def test_both_ways_give_the_same(batch):
    """A line is the same whether its event comes from a batch or from a file."""
    stored, rows = batch
    every = range(rows.count)
    assert lines.of_rows("gw-1", stored, rows, every) == lines.of_columns(
        table(stored, rows)
    )


@given(batches(), st.data())
def test_a_part_of_a_batch(batch, data):
    """It has the same events as the same part of a table."""
    stored, rows = batch
    first = data.draw(st.integers(41, 40 + rows.count))
    end = data.draw(st.integers(first + 1, 48))
    part = encoding.part(stored, rows, first, end)
    whole = table(stored, rows).slice(first - 41, end - first)
    assert lines.of_columns(table(*part)) == lines.of_columns(whole)


@given(batches(), st.data())
def test_a_part_of_a_table(batch, data):
    """Slices and filters of a table are read as what they are."""
    whole = table(*batch)
    begin = data.draw(st.integers(0, whole.num_rows))
    assert lines.of_columns(whole.slice(begin)) == tuple(
        part[begin:] for part in lines.of_columns(whole)
    )


@given(batches())
def test_nothing_is_lost(batch):
    """Each line is one JSON object on one line, with all that the event has."""
    stored, rows = batch
    found, lsns = lines.of_rows("gw-1", stored, rows, range(rows.count))
    for event, line, lsn in zip(
        table(stored, rows).to_pylist(), found, lsns, strict=True
    ):
        assert b"\n" not in line
        assert b"\r" not in line
        shown = json.loads(line)
        payload = event.pop("payload")
        if "payload" in shown:
            assert shown.pop("payload") == json.loads(payload)
        elif "payload_text" in shown:
            assert shown.pop("payload_text").encode() == payload
        else:
            assert base64.b64decode(shown.pop("payload_base64")) == payload
        time = shown.pop("received_at")
        assert time.endswith("Z")
        assert datetime.fromisoformat(time) == event.pop("received_at")
        event["attributes"] = dict(event["attributes"] or {}) or None
        assert shown == {
            name: value for name, value in event.items() if value is not None
        }
        assert shown["lsn"] == lsn


@pytest.mark.parametrize(
    ("payload", "content_type", "shown"),
    [
        (b'{"a": 1}', "application/json", b'"payload":{"a": 1}}'),
        (b'{"a":\r\n 1}', "application/json", b'"payload":{"a":1}}'),
        (b'{"a": 1', "application/json", b'"payload_text":"{\\"a\\": 1"}'),
        (b'{"\xff": 1}', "application/json", b'"payload_base64":"eyL/IjogMX0="}'),
        (b"12", "application/octet-stream", b'"payload_text":"12"}'),
        (b"\x80", "application/octet-stream", b'"payload_base64":"gA=="}'),
        (b"", "application/json", b'"payload_text":""}'),
    ],
)
@pytest.mark.parametrize("count", [1, 9])
def test_payloads(payload, content_type, shown, count):
    """JSON is embedded only if it says so and is; a key tells what else it is."""
    stored = Stored(Batch(Origin("p", "l", "s", "a"), 0, count, b"", 1), 1)
    rows = Rows([payload] * count, content_type=content_type)
    found, _ = lines.of_rows("n", stored, rows, range(count))
    assert [line.endswith(b"," + shown) for line in found] == [True] * count


def test_what_many_events_share_is_made_once(monkeypatch):
    """Out of a file also where each has come by itself: its time is its own."""
    origin = Origin("p", "l", "s", "a", None, {"tls": "1.3"})
    collected = Columns("gw-1")
    for n in range(100):
        collected.add(Stored(Batch(origin, n, 1, b"", 1), 1 + n), Rows([b"{}"]))
    tail = Mock(wraps=lines._tail)
    monkeypatch.setattr(lines, "_tail", tail)
    found, _ = lines.of_columns(collected.batch())
    assert len(set(found)) == 100
    assert tail.call_count == 1


def test_arrow_elements_are_of_moderate_size():
    """Many events make several elements, each a whole stream in the schema."""
    stored = Stored(Batch(Origin("p", "l", "s", "a"), 0, 1000, b"", 1), 1)
    whole = table(stored, Rows([b"x" * 1000] * 1000, channel="c"))
    elements, lasts = columns.streams(whole)
    assert 3 < len(elements) < 10
    read = [columns.read(element) for element in elements]
    assert pa.Table.from_batches(read) == pa.Table.from_batches([whole])
    assert read[0].schema == SCHEMA
    assert lasts == [batch["lsn"][-1].as_py() for batch in read]


def test_one_large_event_is_one_element():
    """An event is never cut."""
    stored = Stored(Batch(Origin("p", "l", "s", "a"), 0, 3, b"", 1), 1)
    whole = table(stored, Rows([b"x" * 10**6] * 3))
    elements, _ = columns.streams(whole)
    assert [columns.read(element).num_rows for element in elements] == [1, 1, 1]


def test_words_that_are_not_used_stay_away():
    """A few events of a large file do not carry all its names with them."""
    collected = Columns("n")
    for number in range(500):
        origin = Origin("p", "l", f"session-{number}", "a")
        collected.add(
            Stored(Batch(origin, 0, 1, b"", 1), number + 1), Rows([b"x" * 200_000])
        )
    [element], _ = columns.streams(collected.batch().slice(100, 1))
    assert b"session-100" in element
    assert b"session-101" not in element


def test_conditions_on_what_is_not_there():
    """A name that no event has, or a null, is no match."""
    stored = Stored(Batch(Origin("p", "l", "s", "a"), 0, 2, b"", 1), 1)
    events = table(stored, Rows([b"1", b"2"], channels={1: "c"}))
    for query, count in ((Query(channel="c"), 1), (Query(channel="d"), 0)):
        assert columns.matching(events, query.conditions).num_rows == count
