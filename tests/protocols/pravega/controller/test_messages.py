"""Messages against bytes of the published client, and of the reference compiler."""

import pytest

from gateway.protocols.pravega.controller import messages
from gateway.protocols.pravega.controller.messages import Undecodable
from pravega_messages import decode, new

INFO = {"scope": "sc", "stream": "st"}
STREAM = "0a08 0a027363 12027374"

#: What pravega 0.3.8 of PyPI sent.
SENT = [
    ("ScopeInfo", "0a027363", new("ScopeInfo", scope="sc")),
    (
        "StreamConfig",
        STREAM + "12022002 1a0a 18ffffffffffffffff7f",
        new(
            "StreamConfig",
            stream_info=INFO,
            scaling={"segments": 2},
            retention={"max": 2**63 - 1},
        ),
    ),
    ("SegmentId", STREAM + "1001", new("SegmentId", stream_info=INFO, number=1)),
    (
        "CreateTxnRequest",
        STREAM + "1090bf05",
        new("CreateTxnRequest", stream_info=INFO, lease=90_000),
    ),
    (
        "TxnRequest",
        STREAM + "1210 08beccb5db0f 10c0f3aeede1b8d1b330 1a0137 2080808080808080808001",
        new(
            "TxnRequest",
            stream_info=INFO,
            txn={"high": 0xFB6D663E, "low": 0x306745C61DABB9C0},
            writer="7",
            timestamp=-(2**63),
        ),
    ),
    (
        "StreamConfig",
        STREAM + "1200 1a0a 18ffffffffffffffff7f 2206 0a0161 0a0162",
        new(
            "StreamConfig",
            stream_info=INFO,
            scaling={},
            retention={"max": 2**63 - 1},
            tags={"tag": ["a", "b"]},
        ),
    ),
]

#: What protoc's code makes of the same fields.
MADE = [
    (
        "StreamCut",
        STREAM + "1204 08011002 1204 08021005",
        new("StreamCut", stream_info=INFO, cut={1: 2, 2: 5}),
    ),
    (
        "SegmentRanges",
        "0a20 0a0c " + STREAM + "1001 11000000000000e03f 19000000000000f03f 120174",
        new(
            "SegmentRanges",
            ranges=[
                {
                    "segment": {"stream_info": INFO, "number": 1},
                    "low": 0.5,
                    "high": 1.0,
                }
            ],
            token="t",
        ),
    ),
    (
        "SuccessorResponse",
        "0a06 0a00 1202 0501",
        new("SuccessorResponse", segments=[{"segment": {}, "value": [5, 1]}]),
    ),
    ("NodeUri", "0a0161 10c3df02", new("NodeUri", host="a", port=44995)),
    ("Status", "0803", new("Status", status=3)),
]


@pytest.mark.parametrize(("name", "raw", "message"), SENT + MADE)
def test_bytes(name, raw, message):
    """Both ways."""
    data = bytes.fromhex(raw)
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
