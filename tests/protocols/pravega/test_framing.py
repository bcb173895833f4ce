"""Headers of schema registries: taken off the rows, and there again for readers."""

import pickle
from typing import Any

import pytest

from gateway.event import Rows
from gateway.protocols.pravega.framing import NONE, ByStream, header, typed
from gateway.protocols.pravega.records import decode
from gateway.protocols.pravega.segments import Segments
from gateway.protocols.pravega.wire import NEVER

from .conftest import W
from .places import Places, events

JSON = "application/json"
ONE, TWO = b"\1\0\0\0\7", b"\1\0\0\1\0"


def rows_of(data: bytes, framing: Any, segment: str = "shop/orders/0.#epoch.0") -> Rows:
    state = Segments()
    state.create(segment, 0)
    change = state.append(segment, W, 1, data, 0, claimed=1, last=NEVER)
    by_stream = ByStream(framing, NONE)
    assert pickle.loads(pickle.dumps(by_stream)) == by_stream
    return decode(change.body, JSON, by_stream)


@pytest.mark.parametrize("count", [1, 2, 200])
def test_one_schema(count):
    """The body is the payload; the id is an attribute, and in the content type."""
    rows = rows_of(events(*[ONE + b'{"n":2}'] * count), "pravega-registry")
    assert [*rows.each()] == [b'{"n":2}'] * count
    assert rows.attributes["schema"] == "7"
    assert rows.content_type == typed(JSON, "pravega-registry", 7)
    assert rows.content_type == "application/json;framing=pravega-registry;schema=7"
    assert not rows.flaws
    assert not rows.content_types
    assert header(rows.content_type) == ONE
    assert list(rows.seqs or ()) == [n * (8 + 12) for n in range(count)]


def test_several_and_none():
    """Each row says its own; what has no header, and what is no JSON behind it, is told."""
    data = events(ONE + b"{}", TWO + b"{}", b"{}", b"", ONE + b"[1]", b"\0\0\0\0\7{}")
    rows = rows_of(data, "pravega-registry")
    assert [*rows.each()] == [b"{}", b"{}", b"{}", b"", b"[1]", b"\0\0\0\0\7{}"]
    assert rows.attributes["schema"] == "7 256"
    assert rows.flaws == {
        2: "no-schema", 3: "no-schema", 4: "not-an-object", 5: "no-schema",
    }  # fmt: skip
    assert [header(rows.content_types.get(row)) for row in range(6)] == [
        ONE, TWO, b"", b"", ONE, b"",
    ]  # fmt: skip


def test_by_stream():
    """Of several patterns the first that fits counts; what none fits has no header."""
    asked = {"shop/orders": "confluent", "shop/*": "pravega-registry"}
    data = events(ONE + b"{}", b"\0\0\0\0\7{}")
    orders = rows_of(data, asked)
    assert [*orders.each()] == [ONE + b"{}", b"{}"]
    other = rows_of(data, asked, "shop/other/0.#epoch.0")
    assert [*other.each()] == [b"{}", b"\0\0\0\0\7{}"]
    third = rows_of(data, asked, "depot/other/0.#epoch.0")
    assert [*third.each()] == [ONE + b"{}", b"\0\0\0\0\7{}"]
    assert "schema" not in third.attributes
    framing = ByStream(asked, NONE)
    for stream in range(10_000):
        assert framing(f"shop/{stream}/0.#epoch.0") == "pravega-registry"
    assert len(framing._found) < 5000


def test_what_is_no_event_stays():
    """A byte stream is one row, whatever it begins with."""
    rows = rows_of(ONE + b"bytes of a stream", "pravega-registry")
    assert [*rows.each()] == [ONE + b"bytes of a stream"]
    assert rows.flaws == {0: "unframed"}


@pytest.mark.parametrize("published", [False, True])
def test_readers_get_every_octet(tmp_path, *, published):
    """With headers or without, of whatever schema, from journal and from files."""
    framing = ByStream("pravega-registry", NONE)
    places = Places(tmp_path, content_type=JSON, framing=framing)
    for n in range(30):
        places.append(events(ONE + b"{}" * n, TWO + b"x", b"none"))
        places.append(events(*[ONE + b'{"n":1}'] * 70), "t")
        places.append(b"raw bytes %d" % n, "t")
        places.append(events(b"", ONE))
    if published:
        places.publish()
    history = places.history()
    for name in ("s", "t"):
        assert places.whole(history, name) == places.bytes[name]


def test_content_types_by_stream():
    """JSON is checked in the streams that have it, and others are what they are said to be."""
    state = Segments()
    types = ByStream({"shop/json": JSON, "shop/*": "application/avro"}, "x/y")
    found = []
    for stream in ("shop/json", "shop/avro", "depot/raw"):
        segment = f"{stream}/0.#epoch.0"
        state.create(segment, 0)
        data = events(ONE + b"{")
        change = state.append(segment, W, 1, data, 0, claimed=1, last=NEVER)
        rows = decode(change.body, types, ByStream("pravega-registry", NONE))
        found.append((rows.content_type, rows.flaws))
    of = ";framing=pravega-registry;schema=7"
    assert found == [
        (JSON + of, {0: "invalid-json"}), ("application/avro" + of, {}), ("x/y" + of, {}),
    ]  # fmt: skip
