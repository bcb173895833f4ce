"""Flaws of JSON payloads."""

from __future__ import annotations

import pytest

from gateway.sdk.payload import flaw_of


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
def test_flaws(payload: bytes, flaw: str | None) -> None:
    """Each payload has the flaw that readers are told of, and only the first one."""
    assert flaw_of(payload, 64) == flaw


def test_depth() -> None:
    """Nesting that no parser goes into is a flaw, not an error."""
    assert flaw_of(b"[" * 50_000, 1 << 20) == "too-deep"
