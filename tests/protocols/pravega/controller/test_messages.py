"""Messages against bytes of the published client, and of the reference compiler."""

from pathlib import Path

import pytest
import yaml

from gateway.protocols.pravega.controller import messages
from gateway.protocols.pravega.controller.messages import Undecodable
from pravega_messages import decode, new

VECTORS = Path(__file__).parents[3] / "vectors" / "pravega-controller.yaml"


@pytest.mark.parametrize("vector", yaml.safe_load(VECTORS.read_text()))
def test_bytes(vector):
    """Of the published client and of the reference compiler, both ways."""
    name, data = vector["message"], bytes.fromhex(vector["hex"])
    message = new(name, **vector["fields"])
    assert decode(name, data) == message
    assert decode(name, message.SerializeToString(deterministic=True)) == message  # type: ignore[attr-defined]
    assert len(message.SerializeToString()) == len(data)  # type: ignore[attr-defined]


def test_numbers_packed_or_not():
    """Both forms of repeated numbers are read."""
    packed, single = bytes.fromhex("12020501"), bytes.fromhex("10051001")
    assert decode("SegmentEntry", packed) == decode("SegmentEntry", single)


def test_fields_of_later_versions():
    """What we do not know is no error."""
    assert decode("ScopeInfo", bytes.fromhex("0a027363 f80601")).scope == "sc"


@pytest.mark.parametrize(
    "raw", ["0a05", "0a0180", "ff", "0a02c328", "08ffffffffffffffffffff01"]
)
def test_no_message(raw):
    """Cut off, no UTF-8, numbers without an end: one exception."""
    with pytest.raises(Undecodable):
        decode("ScopeInfo", bytes.fromhex(raw))


def test_depth():
    """Messages in messages have an end, whatever a peer sends."""
    raw = b""
    for _ in range(1000):
        raw = b"\x0b" + raw + b"\x0c"  # groups, which nest without lengths
    with pytest.raises(Undecodable):
        decode("ScopeInfo", raw)


def test_every_message_has_another_field_for_each_number():
    """A table with a slip in it would lose a field."""
    found = [each for each in vars(messages).values() if hasattr(each, "DESCRIPTOR")]
    assert len(found) > 40
    for each in found:
        numbers = [field.number for field in each.DESCRIPTOR.fields]
        assert len(set(numbers)) == len(numbers), each
        assert numbers or each.__name__ == "ServerRequest"
