"""The kit's messages against the vectors of docs/rsio-v0.md."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rsio_check import wire

VECTORS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "vectors" / "rsio.jsonl")
    .read_text()
    .splitlines()
]
KINDS = {
    kind.__name__[0].lower() + kind.__name__[1:]: kind
    for kind in wire.Message.__subclasses__()
}


def of(kind: str) -> list[Any]:
    return [
        pytest.param(one, id=one["meaning"]) for one in VECTORS if one["kind"] == kind
    ]


def read(data: bytes, size: int = 0, *, strict: bool = False) -> list[wire.Message]:
    decoder = wire.Decoder(lambda _: size, strict=strict)
    found = list(decoder.feed(data))
    assert not decoder.unread
    return found


@pytest.mark.parametrize("vector", of("message"))
def test_messages(vector):
    """Each is read, in any pieces, and written in the same octets."""
    data = bytes.fromhex(vector["hex"])
    [message] = read(data, strict=True)
    assert type(message) is KINDS[vector["message"]]
    fields = {
        _snake(name): bytes.fromhex(value) if name in ("data", "instance") else value
        for name, value in vector["fields"].items()
    }
    for name, value in fields.items():
        found = getattr(message, _FIELDS.get(name, name))
        assert found == (tuple(value) if isinstance(value, list) else value), name
    assert wire.encode(message) == data
    decoder = wire.Decoder(lambda _: 0)
    slowly = [one for octet in data for one in decoder.feed(bytes([octet]))]
    assert slowly == [message]


_FIELDS = {"element_size": "size", "initial_demand": "demand"}


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda found: "_" + found[0].lower(), name)


@pytest.mark.parametrize("vector", of("elements"))
def test_elements(vector):
    """Elements come whole out of a stream of that size."""
    from rsio_check.watch import Element, Watch

    watch = Watch()
    size, number = vector["elementSize"], vector["subscriber"]
    watch.sent(wire.ClientHello(0, ()))
    watch.sent(wire.Subscribe("x", number, 2**63 - 1))
    hello = wire.encode(wire.ServerHello(0, ()))
    begin = wire.encode(wire.OnSubscribe(number, size))
    heard = list(watch.feed(hello + begin + bytes.fromhex(vector["hex"])))
    elements = [each.data.hex() for each in heard if isinstance(each, Element)]
    assert elements == vector["elements"]


@pytest.mark.parametrize("vector", of("varint"))
def test_varints(vector):
    """Each is read as a cancel's Id; the shortest form is how it is written."""
    data = bytes.fromhex(vector["hex"])
    assert read(b"\x12" + data) == [wire.Cancel(vector["value"])]
    if "shortest" in vector["meaning"]:
        assert wire.varint(vector["value"]) == data


@pytest.mark.parametrize(
    ("octets", "complaint"),
    [
        ("12 81 00", "shortest"),
        ("12 80 80 80 80 80 80 80 80 80 80 00", "ten octets"),
        ("12 ff ff ff ff ff ff ff ff ff 02", "64 bits"),
        ("27", "unknown type 0x27"),
        ("03 01 ff", "UTF-8"),
        ("03 81 20", "4097"),
        ("10 80 02", "256"),
        ("24 01 01", "fixed size"),
        ("01 00 41", "65 extensions"),
        ("25 01 01 81 80 40", "1048577"),
    ],
)
def test_unreadable(octets, complaint):
    """What no sender may send is told apart, on its declared length."""
    with pytest.raises(wire.Unreadable, match=complaint):
        read(bytes.fromhex(octets), strict=True)
