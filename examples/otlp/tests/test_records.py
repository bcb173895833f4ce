"""Log records: what becomes of them, in both forms, and what is none."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.testing.plugins import FakeDaemon
from gateway_otlp import protocol
from gateway_otlp.records import JSON, PROTOBUF, decode, pack

REQUEST: Any = {
    "resourceLogs": [
        {
            "resource": {
                "attributes": [
                    {"key": "service.name", "value": {"stringValue": "shop"}},
                    {"key": "host.name", "value": {"stringValue": "web1"}},
                ]
            },
            "scopeLogs": [
                {
                    "scope": {"name": "cart", "version": "1"},
                    "logRecords": [
                        {
                            "timeUnixNano": "1700000000123456789",
                            "severityNumber": 13,
                            "body": {"stringValue": "it is late"},
                            "traceId": "0af7651916cd43dd8448eb211c80319c",
                            "spanId": "b7ad6b7169203331",
                            "attributes": [
                                {"key": "n", "value": {"intValue": "5"}},
                                {"key": "x", "value": {"doubleValue": 0.5}},
                                {"key": "ok", "value": {"boolValue": True}},
                                {"key": "raw", "value": {"bytesValue": "AAE="}},
                            ],
                        },
                        {
                            "observedTimeUnixNano": "1700000000000000000",
                            "severityText": "Oops",
                            "body": {
                                "kvlistValue": {
                                    "values": [
                                        {
                                            "key": "many",
                                            "value": {
                                                "arrayValue": {
                                                    "values": [{"intValue": "1"}, {}]
                                                }
                                            },
                                        }
                                    ]
                                }
                            },
                        },
                        {},
                    ],
                }
            ],
        }
    ]
}
SHARED = {
    "host": "web1",
    "service": "shop",
    "scope": {"name": "cart", "version": "1"},
    "resource": {"service.name": "shop", "host.name": "web1"},
}
EVENTS = [
    {
        "@timestamp": "2023-11-14T22:13:20.123456789Z",
        "severity": "warn",
        "message": "it is late",
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "span_id": "b7ad6b7169203331",
        "attributes": {"n": 5, "x": 0.5, "ok": True, "raw": "AAE="},
        **SHARED,
    },
    {
        "@timestamp": "2023-11-14T22:13:20.000000000Z",
        "severity": "Oops",
        "body": {"many": [1, None]},
        **SHARED,
    },
    SHARED,
]


def events(form: str, data: bytes) -> list[Any]:
    rows = decode(pack(form, "", data))
    assert rows.flaws == {}
    assert set(rows.channels.values()) <= {"shop"}
    return [json.loads(payload) for payload in rows.payloads]


def protobuf(request: Any) -> bytes:
    """As the published package writes it."""
    service = pytest.importorskip(
        "opentelemetry.proto.collector.logs.v1.logs_service_pb2",
        reason="opentelemetry-proto is not installed",
    )
    from google.protobuf.json_format import ParseDict

    made = json.loads(json.dumps(request))
    for name in ("traceId", "spanId"):  # whose JSON is not protobuf's
        one = made["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
        one[name] = base64.b64encode(bytes.fromhex(one[name])).decode()
    found: bytes = ParseDict(
        made, service.ExportLogsServiceRequest()
    ).SerializeToString()
    return found


def test_json() -> None:
    """A resource and a scope are in each event; what is not said is left out."""
    assert events(JSON, json.dumps(REQUEST).encode()) == EVENTS


def test_protobuf() -> None:
    """The same events."""
    assert events(PROTOBUF, protobuf(REQUEST)) == EVENTS


def test_a_record_that_is_none() -> None:
    """It is kept as it came, with a flaw; the others are fine."""
    for bad in (
        b'{"body":5}',
        b"7",
        b'{"timeUnixNano":"x"}',
        b'{"body":{"intValue":"\xff"}}',
        b'{"unknown":"\xff"}',
    ):
        data = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{},%b]}]}]}' % bad
        rows = decode(pack(JSON, "", data))
        assert (rows.flaws, rows.payloads[1]) == ({1: "no-log-record"}, bad)
    pytest.importorskip("opentelemetry.proto")
    rows = decode(pack(PROTOBUF, "", b"\x0a\x06\x12\x04\x12\x02\x2a\x05"))
    assert (rows.flaws, rows.payloads) == ({0: "no-log-record"}, [b"\x2a\x05"])


def test_values_that_are_too_deep() -> None:
    """It is no log record for the table; nothing fails."""
    value: Any = {"intValue": "1"}
    for _ in range(200):
        value = {"arrayValue": {"values": [value]}}
    data = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": value}]}]}]}
    assert decode(pack(JSON, "", json.dumps(data).encode())).flaws == {
        0: "no-log-record"
    }


def ask(
    daemon: FakeDaemon, data: bytes, kind: str, path: str = "/v1/logs"
) -> tuple[int, bytes]:
    connection = daemon.connect()
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\n"
    connection.deliver(head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data)
    daemon.store()
    head, _, body = connection.sent.partition(b"\r\n\r\n")
    assert kind.encode() in head or b" 415 " in head
    return int(head.split()[1]), body


@pytest.mark.parametrize("kind", [JSON, PROTOBUF])
def test_answers(kind: str, tmp_path: Path) -> None:
    """In the form of the request; an error is a google.rpc.Status."""
    daemon = FakeDaemon(protocol, tmp_path)
    one = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}]}]}]}'
    good = one if kind == JSON else b"\x0a\x04\x12\x02\x12\x00"
    assert ask(daemon, good, kind) == (200, b"{}" if kind == JSON else b"")
    assert ask(daemon, b"", kind)[0] == (400 if kind == JSON else 200)
    code, status = ask(daemon, b"\x0a\x04\x12\x02\x12", kind)
    assert code == 400
    assert status.startswith(b'{"message":' if kind == JSON else b"\x12")
    assert ask(daemon, good, kind, "/v1/traces")[0] == 404
    assert ask(daemon, good, "text/plain")[0] == 415
    assert len(daemon.journal.stored) == 1


def test_too_many(tmp_path: Path) -> None:
    """Log records, and values of JSON, which is parsed in one piece."""
    daemon = FakeDaemon(protocol, tmp_path)
    scope = b'{"logRecords":[%b]}' % b",".join([b"{}"] * (1 << 15))
    many = b'{"resourceLogs":[{"scopeLogs":[%b,%b,{"logRecords":[{}]}]}]}'
    assert ask(daemon, many % (scope, scope), JSON)[0] == 413
    assert ask(daemon, many % (scope, b"{}"), JSON)[0] == 200
    assert ask(daemon, b'{"x":[%b0]}' % (b"0," * ((1 << 18) + 1)), JSON)[0] == 400
    assert ask(daemon, b'{"x":[0,0]}', JSON)[0] == 200
    scope = b"\x12\x80\x80\x04" + b"\x12\x00" * (1 << 15)
    assert ask(daemon, b"\x0a\x88\x80\x08" + scope + scope, PROTOBUF)[0] == 200
    more = b"\x0a\x8c\x80\x08" + scope + scope + b"\x12\x02\x12\x00"
    assert ask(daemon, more, PROTOBUF)[0] == 413


def test_a_field_beyond_its_message(tmp_path: Path) -> None:
    """It is refused, though the request goes on behind it."""
    daemon = FakeDaemon(protocol, tmp_path)
    scope = b"\x12\x02\x12\x00"
    assert ask(daemon, b"\x0a\x04" + scope + b"\x0a\x00", PROTOBUF)[0] == 200
    longer = b"\x12\x02\x12\x01"
    assert ask(daemon, b"\x0a\x04" + longer + b"\x0a\x00", PROTOBUF)[0] == 400


@pytest.mark.parametrize("form", [JSON, PROTOBUF])
@given(data=st.binary())
def test_whatever_comes(form: str, data: bytes) -> None:
    """It has records, or is refused in words."""
    from gateway_otlp.records import raw_json, raw_protobuf

    raw = raw_json if form == JSON else raw_protobuf
    try:
        count = len([*filter(None, raw(data))])
    except ValueError:
        return
    if form == JSON:
        assert decode(pack(form, "", data)).count == count
