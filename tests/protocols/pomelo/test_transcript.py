"""A conversation recorded with pomelo 2.2.7, repeated with the gateway in its place.

Pomelo's echo handlers answered with bodies of their own, the gateway answers with
`{"code":200}`.  Pushes are the same, byte for byte.
"""

import json

from gateway.protocols.pomelo.routes import load
from gateway.protocols.pomelo.session import HEARTBEAT

ENTRY, ECHO = "connector.entryHandler.entry", "connector.entryHandler.echo"
#: By their codes, from 1 on.
ROUTES = [
    "connector.entryHandler.bye", ECHO, ENTRY, "connector.entryHandler.fail", "r5",
    "connector.entryHandler.kickme", "r7", "connector.entryHandler.note", "r9", "r10",
    "connector.protoHandler.echo", "connector.protoHandler.note", "onNote", "onProto",
]  # fmt: skip
CLIENT_PROTOS = {
    "connector.protoHandler.echo": {
        "required string text": 1,
        "optional uInt32 n": 2,
        "repeated uInt32 tags": 3,
    },
    "connector.protoHandler.note": {"required string text": 1},
}
SERVER_PROTOS = {
    "connector.protoHandler.echo": {
        "required uInt32 code": 1,
        "optional string text": 2,
        "optional sInt32 n": 3,
        "repeated uInt32 tags": 4,
    },
    "onProto": {
        "message At": {"required double x": 1, "required sInt32 y": 2},
        "required string text": 1,
        "optional At at": 2,
    },
}
HELLO = """
    01000045 7b22737973223a7b2274797065223a2270792d726177222c2276657273696f6e223a22302e
    312e30222c22727361223a7b7d7d2c2275736572223a7b226b223a2276227d7d
    02000000
"""
SAID = """
    04000010 01 01 0003 7b22756964223a227531227d
    04000025 00 02 1b 636f6e6e6563746f722e656e74727948616e646c65722e6563686f
        7b2261223a317d
    04000010 03 0008 7b2274657874223a226869227d
    04000010 01 ac02 000b 0a026869 1005 18 02 01 ac02
    04000008 03 000c 0a03796573
    03000000
    04000006 01 03 0004 7b7d
    04000006 01 04 0006 7b7d
"""


def test_what_its_client_said(pomelo):
    """Every message is the event that it meant, and every request is answered."""
    session = pomelo.session(load(ROUTES, CLIENT_PROTOS, SERVER_PROTOS))
    greeted = pomelo.outcome([bytes.fromhex(HELLO)], session)
    told = json.loads(greeted.handshake.reply[4:])["sys"]
    assert told["dict"] == {route: code for code, route in enumerate(ROUTES, 1)}
    assert greeted.sent.endswith(HEARTBEAT)
    found = pomelo.outcome([bytes.fromhex(SAID)], session)
    assert found.refusal is None
    assert found.sent == HEARTBEAT
    assert [event[:4] for event in found.events] == [
        ("request", 1, ENTRY, b'{"uid":"u1"}'),
        ("request", 2, ECHO, b'{"a":1}'),
        ("notify", 0, ROUTES[7], b'{"text":"hi"}'),
        ("request", 300, ROUTES[10], b'{"text":"hi","n":5,"tags":[1,300]}'),
        ("notify", 0, ROUTES[11], b'{"text":"yes"}'),
        ("request", 3, ROUTES[3], b"{}"),
        ("request", 4, ROUTES[5], b"{}"),
    ]
    answer = "0400000e 04 {} 7b22636f6465223a3230307d"
    assert found.responses == bytes.fromhex(
        answer.format("01") + answer.format("02") + "04000006 04 ac02 08c801"
        + answer.format("03") + answer.format("04")
    )  # fmt: skip


def test_what_it_pushed(pomelo):
    """With a code, as JSON and as protobuf."""
    session = pomelo.session(load(ROUTES, CLIENT_PROTOS, SERVER_PROTOS))
    pomelo.outcome([bytes.fromhex(HELLO)], session)
    assert session.terms.push("onNote", b'{"got":"hi"}') == bytes.fromhex(
        "0400000f 07 000d 7b22676f74223a226869227d"
    )
    body = b'{"text":"yes","at":{"x":1.5,"y":-2}}'
    assert session.terms.push("onProto", body) == bytes.fromhex(
        "04000015 07 000e 0a03796573 120b 09000000000000f83f 1003"
    )
