"""Flaws of JSON payloads."""

import pytest

from gateway.sdk.payload import DEPTH, all_shallow, flaw_of, flaws_of


@pytest.mark.parametrize(
    ("payload", "flaw"),
    [
        (b'{"a":1}', None),
        (b' \n{"a":"\xc3\xa4"}', None),
        (b"", "empty"),
        (b'{"a":' + b"1" * 100 + b"}", "oversized"),
        (b'{"a":"\xff"}', "invalid-utf8"),
        (b'{"a":"\xed\xa0\xbd"}', "invalid-utf8"),
        (b"{", "invalid-json"),
        (b'{"a":1}x', "invalid-json"),
        (b"[1]", "not-an-object"),
        (b"null", "not-an-object"),
    ],
)
def test_flaws(payload, flaw):
    """Each payload has the flaw that readers are told of, and only the first one."""
    assert flaw_of(payload, 64) == flaw


_BESIDE = [
    b"",
    rb',"b":"[[{"',
    rb',"b":"\"[","c":"{"',
    rb',"b":"\\","c":"\\\"[","d":"\\\\"',
    b',"b":' + b"[{}," * 9 + b"1" + b"]" * 9,
    b"".join(b',"%d":[]' % each for each in range(DEPTH)),
]


def _deep(levels: int, opens: bytes, closes: bytes, beside: bytes) -> bytes:
    """An object with so many levels."""
    inside = opens * (levels - 1) + b"1" + closes * (levels - 1)
    return b'{"a":' + inside + beside + b"}"


@pytest.mark.parametrize("beside", _BESIDE)
@pytest.mark.parametrize(("opens", "closes"), [(b"[", b"]"), (b'{"x":', b"}")])
def test_depth(opens, closes, beside):
    """Five hundred objects and arrays in one another are no flaw, one more is: on every
    Python, whoever calls, and whatever else is there.
    """
    fine = _deep(DEPTH, opens, closes, beside)
    deep = _deep(DEPTH + 1, opens, closes, beside)
    assert flaw_of(fine, 1 << 20) is None
    assert flaw_of(deep, 1 << 20) == "too-deep"
    assert [*flaws_of([fine, deep, b"{}"], 1 << 20)] == [(1, "too-deep")]
    many = [fine, b"{}"] * 10
    assert all_shallow(many)
    assert not all_shallow([*many, deep])


def test_depth_of_what_is_no_json():
    """It has this flaw also where it breaks off, or is no JSON for something else."""
    assert flaw_of(b"[" * (DEPTH + 1), 1 << 20) == "too-deep"
    assert flaw_of(b"[" * DEPTH, 1 << 20) == "invalid-json"
    assert flaw_of(b"[]" * 50_000, 1 << 20) == "invalid-json"
