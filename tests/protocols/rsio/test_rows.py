"""Rows of a batch are the same, whether the kernel in C makes them or the reference."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.event import Rows
from gateway.protocols.rsio import wire
from gateway.protocols.rsio.decoder import Run
from gateway.protocols.rsio.events import Part, decode, pack
from gateway.protocols.rsio.streams import Consumed
from gateway.sdk import native
from programs import lacking

_OBJECTS = st.sampled_from([b"{}", b'{"a": [1, {"b": null}]}', '{"ä": "€"}'.encode()])
_ODD = st.binary(max_size=200) | st.sampled_from(
    [b"", b"[1]", b" {}", b'{"a":"\xff"}', b"{"]
)
_KINDS = st.sampled_from(["application/json", "text/plain"])


def _body(number: int, elements: list[bytes], kind: str, limit: int) -> bytes:
    messages = wire.on_next(number, elements)
    octets = sum(map(len, elements))
    run = Run(Consumed(number, "p", 1, 0), len(elements), octets, messages)
    part = Part("p", number, 0, 7, len(elements), 0)
    return pack([part], [run], message_bytes=limit, content_type=kind)


def _shown(rows: Rows) -> Any:
    seqs = list(rows.seqs or ())
    names = rows.channel, rows.content_type, rows.content_types, rows.channels
    return list(rows.each()), seqs, rows.flaws, names, rows.count


def _by(kernel: Any, body: bytes) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "kernel", kernel)
        return _shown(decode(body))


@given(
    st.integers(0, 2**64 - 1) | st.integers(0, 200),
    st.lists(_OBJECTS, min_size=1) | st.lists(_OBJECTS | _ODD, min_size=1),
    _KINDS,
    st.sampled_from([10, 1 << 20]),
)
def test_elements_of_one_stream(number, elements, kind, limit):
    """With each flaw, and each number of their stream."""
    if native.kernel is None:
        lacking("gateway-native is not installed: make native")
    body = _body(number, elements, kind, limit)
    assert _by(native.kernel, body) == _by(None, body)
    assert _by(None, body)[0] == elements


def test_sound_elements_are_one_block():
    """And so no object each, where there is a kernel."""
    if native.kernel is None:
        lacking("gateway-native is not installed: make native")
    rows = decode(_body(1, [b"{}", b'{"a":1}'], "application/json", 99))
    assert (rows.block, [*rows.ends], rows.payloads) == (b'{}{"a":1}', [2, 9], [])
