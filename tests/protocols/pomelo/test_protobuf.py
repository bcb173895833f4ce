"""pomelo-protobuf, against what the published codec says, and where we are stricter."""

import contextlib
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.pomelo.protobuf import (
    Schema,
    Undecodable,
    Unencodable,
    Unusable,
    parse,
)

_ALL: dict[str, Any] = {
    "all": {
        "message Inner": {"optional sInt32 x": 1, "optional Inner again": 2},
        "optional uInt32 u": 1,
        "optional sInt32 s": 2,
        "optional double d": 3,
        "optional string t": 4,
        "optional Leaf leaf": 5,
        "repeated uInt32 us": 6,
        "repeated double ds": 7,
        "repeated string ts": 8,
        "repeated Leaf leaves": 9,
        "optional bool b": 10,
        "optional uInt64 big": 11,
    },
    "message Leaf": {"optional int32 i": 1, "optional Leaf deeper": 2},
}


def _schema(source: Any, **options: Any) -> Schema:
    return Schema(parse(source), **options)


@pytest.fixture(scope="module")
def everything() -> Schema:
    """A schema of all types, with messages in messages."""
    source = _ALL | {"all": {k: v for k, v in _ALL["all"].items() if "Inner" not in k}}
    return _schema(source)


def test_parsed_form(vectors):
    """Definitions are parsed as the original does: clients depend on every key."""
    first = vectors("protobuf")[0]
    assert parse(first["source"]) == first["parsed"]


def test_values(vectors):
    """All types, nested, repeated, in any order: the same bytes, the same values."""
    first, *cases = vectors("protobuf")
    schema = Schema(first["parsed"])
    assert len(cases) > 60
    for case in cases:
        encoded = schema.encode(case["route"], case["value"])
        assert encoded.hex() == case["hex"], case
        assert schema.decode(case["route"], encoded) == case["decoded"], case


def test_browsers(vectors):
    """What the build for browsers encodes, with wire types and strings of its own, is
    the same value.
    """
    first, *cases = vectors("protobuf")
    schema = Schema(first["parsed"])
    answers = Schema(first["parsed"], surrogates=True)
    assert sum(case["browser"] != case["hex"] for case in cases) > 40
    for case in cases:
        body = bytes.fromhex(case["browser"])
        assert schema.decode(case["route"], body) == case["decoded"], case
        if case["route"].startswith("string"):
            encoded = answers.encode(case["route"], case["value"])
            assert encoded.hex() == case["browser"]


def test_nothing_to_say():
    """A message without fields is no bytes, and the other way round."""
    schema = _schema({"a": {"optional uInt32 x": 1, "repeated uInt32 y": 2}})
    assert schema.encode("a", {"y": [], "unknown": 1, "x": None}) == b""
    assert schema.decode("a", b"") == {}


def test_strings_for_browsers():
    """A browser's client wants the halves of a surrogate pair, and sends them."""
    source = {"a": {"optional string s": 1}}
    browser, other = _schema(source, surrogates=True), _schema(source)
    halves = bytes.fromhex("0a07 61 eda0bd edb880")
    assert browser.encode("a", {"s": "a😀"}) == halves
    assert other.encode("a", {"s": "a😀"}) == bytes.fromhex("0a05 61 f09f9880")
    assert other.decode("a", halves) == {"s": "a😀"}
    assert browser.encode("a", {"s": "ü你"}) == other.encode("a", {"s": "ü你"})


def test_types_of_pinus():
    """bool, uInt64 and sInt64, alone and repeated."""
    source = {
        "a": {"optional bool b": 1, "repeated bool bs": 2, "optional sInt64 n": 3}
    }
    schema = _schema(source)
    value = {"b": True, "bs": [True, False], "n": -(2**60)}
    assert schema.encode("a", value)[:5] == bytes.fromhex("0801 1002 01")
    assert schema.decode("a", schema.encode("a", value)) == value


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("78 01", "no field has tag 15"),
        ("7b 22 61", "no field has tag 15, wire type 3"),
        ("09 0000000000000000", "no field has tag 1, wire type 1"),
        ("08", "cut off"),
        ("08 80", "cut off"),
        ("19 0000", "cut off"),
        ("22 05 61", "cut off"),
        ("2a 05 08", "cut off"),
        ("2a 01 08 01", "cut off"),
        ("30 05 01", "cut off"),
        ("30 ff ff ff ff 0f", "values"),
        ("22 01 ff", "not UTF-8"),
        ("08 ffffffffffffffffffff01", "64 bits"),
        ("08 ffffffffffffffffff7f", "64 bits"),
        ("ff ff ff ff ff ff ff ff ff ff 01", "64 bits"),
    ],
)
def test_undecodable(everything, body, why):
    """What makes an original throw, hang or hand out garbage is named."""
    with pytest.raises(Undecodable, match=why):
        everything.decode("all", bytes.fromhex(body))


def test_a_number_that_reaches_out_of_its_message():
    """What belongs to the next field is not read as the rest of the last."""
    source = {
        "a": {
            "message M": {"optional double d": 1},
            "optional M m": 1,
            "optional string s": 2,
        }
    }
    body = bytes.fromhex("0a05 09 00000000 1204 61616161 1201 61")
    with pytest.raises(Undecodable, match="cut off"):
        _schema(source).decode("a", body)


def test_bombs(everything):
    """Depth and number of values are bounded."""
    body = b""
    for _ in range(100):
        body = b"\x12" + bytes((len(body),)) + body if len(body) < 120 else body
    with pytest.raises(Undecodable, match="messages in one another"):
        everything.decode("all", b"\x2a" + bytes((len(body),)) + body)
    with pytest.raises(Undecodable, match="65536 values"):
        everything.decode("all", b"\x4a\x00" * 70_000)
    deep: dict[str, Any] = {}
    for _ in range(50):
        deep = {"deeper": deep}
    with pytest.raises(Unencodable, match="messages in one another"):
        everything.encode("all", {"leaf": deep})


@pytest.mark.parametrize(
    "value",
    [
        {"u": -1},
        {"u": "x"},
        {"u": math.nan},
        {"u": 1 << 64},
        {"u": {}},
        {"d": "x"},
        {"t": 1},
        {"t": "\ud800"},
        {"leaf": 1},
        {"us": 1},
        {"us": [1, None]},
        {"leaves": [1]},
        [],
    ],
)
def test_unencodable(everything, value):
    """A value that does not fit is refused, not sent half."""
    with pytest.raises(Unencodable):
        everything.encode("all", value)


def test_required():
    """A required field must be there to encode; to decode the original asks for none."""
    schema = _schema({"a": {"required uInt32 x": 1, "optional uInt32 y": 2}})
    with pytest.raises(Unencodable, match="x is required"):
        schema.encode("a", {"y": 1})
    assert schema.decode("a", b"\x10\x01") == {"y": 1}


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ([], "object of routes"),
        ({"a": 1}, "object of fields"),
        ({"a": {"required uInt32": 1}}, "must be 'required"),
        ({"a": {"needed uInt32 x": 1}}, "must be 'required"),
        ({"a": {"message Inner too": {}}}, "must be 'required"),
        ({"a": {"optional uInt32 x": "1"}}, "is not a number from 1"),
        ({"a": {"optional uInt32 x": 0}}, "is not a number from 1"),
        ({"a": {"optional uInt32 x": True}}, "is not a number from 1"),
        ({"a": {"optional uInt32 x": 1, "optional uInt32 y": 1}}, "taken"),
        ({"a": {"optional uInt32 x": 1, "optional sInt32 x": 2}}, "taken"),
        ({"a": {"optional uInt32 __tags": 1}}, "taken"),
        ({"a": {"optional Nothing x": 1}}, "one of bool, .*, not 'Nothing'"),
        (
            {"a": {"message M": {"optional N n": 1}, "optional M m": 1}},
            "one of bool, .*, not 'N'",
        ),
    ],
)
def test_unusable_definitions(source, why):
    """What the original leaves out without a word is an error with its place."""
    with pytest.raises(Unusable, match=why):
        _schema(source)


_floats = st.floats(allow_nan=False, allow_infinity=False)
_leaves = st.fixed_dictionaries({}, optional={"i": st.integers(-(2**31), 2**31 - 1)})
_values = st.fixed_dictionaries(
    {},
    optional={
        "u": st.integers(0, 2**32 - 1),
        "s": st.integers(-(2**31), 2**31 - 1),
        "d": _floats,
        "t": st.text(),
        "leaf": _leaves,
        "us": st.lists(st.integers(0, 2**53), min_size=1),
        "ds": st.lists(_floats, min_size=1),
        "ts": st.lists(st.text(), min_size=1),
        "leaves": st.lists(_leaves, min_size=1),
        "b": st.booleans(),
        "big": st.integers(0, 2**64 - 1),
    },
)


@given(_values)
def test_round_trip(everything, value):
    """What was encoded is decoded again."""
    assert everything.decode("all", everything.encode("all", value)) == value


@given(_values, st.data())
def test_damage(everything, value, data):
    """… and so is every prefix of a good message, and every message with a byte wrong."""
    body = bytearray(everything.encode("all", value))
    if body:
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    with contextlib.suppress(Undecodable):
        everything.decode("all", bytes(body[:cut]))


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_numbers_that_json_does_not_have(name, kind):
    """They are told by their names, and read by them again; null would say nothing."""
    schema = _schema({"m": {f"optional {kind} d": 1, f"repeated {kind} ds": 2}})
    value = {"d": name, "ds": [1.5, name]}
    body = schema.encode("m", value)
    assert schema.decode("m", body) == value
    form = struct.Struct("<f" if kind == "float" else "<d")
    assert body[1 : 1 + form.size] in map(form.pack, (float(name), -float(name)))
