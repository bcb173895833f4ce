"""What every protocol of the gateway promises, in both forms."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from importlib.util import find_spec

import pytest

from gateway_otlp import protocol
from gateway_testkit.contract import ProtocolContract
from gateway_testkit.killed import KilledContract


def post(body: bytes, *fields: str, kind: str = "application/json") -> bytes:
    lines = [
        "POST /v1/logs HTTP/1.1",
        "Host: here",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        *fields,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def request(*messages: str) -> bytes:
    records = [{"body": {"stringValue": each}} for each in messages]
    return json.dumps(
        {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    ).encode()


def field(number: int, data: bytes) -> bytes:
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def message(*messages: bytes) -> bytes:
    """The same in protobuf."""
    records = [field(2, field(5, field(1, each))) for each in messages]
    return field(1, field(2, b"".join(records)))


class TestJson(ProtocolContract):
    protocol = protocol
    batches = [
        (post(request("one", "two")), 2),
        (post(gzip.compress(request("three"), mtime=0), "Content-Encoding: gzip"), 1),
        (post(request("four", "five", "six")), 3),
    ]
    too_much = {
        "limits.message_bytes": post(b"")[:-4].replace(b": 0", b": 70000") + b"\r\n\r\n"
    }
    unfinished = post(b"x" * 60000)[:1000]
    endless = None

    def acknowledged(self, sent: bytes) -> int:
        events = [count for _, count in self.batches]
        codes = [part[:3] for part in sent.split(b"HTTP/1.1 ")[1:]]
        assert set(codes) <= {b"200", b"503"}
        return sum(n for n, code in zip(events, codes, strict=False) if code == b"200")

    def replies(self, sent: bytes) -> object:
        return [part.partition(b"\r\nDate:")[0] for part in sent.split(b"HTTP/1.1 ")]


@pytest.mark.skipif(
    find_spec("opentelemetry") is None, reason="opentelemetry-proto is not installed"
)
class TestProtobuf(TestJson):
    batches = [
        (post(data, kind="application/x-protobuf"), count)
        for data, count in (
            (message(b"a", b"b"), 2),
            (message(b"c"), 1),
            (message(b"d"), 1),
        )
    ]


class TestKilled(KilledContract):
    protocol = protocol

    def batch(self, names: Sequence[str]) -> bytes:
        return post(request(*names))

    def name(self, payload: bytes) -> str:
        message: str = json.loads(payload)["message"]
        return message

    def acknowledged(self, sent: bytes) -> int:
        return self.events * sent.count(b"HTTP/1.1 200")
