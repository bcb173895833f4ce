"""What every protocol of the gateway promises."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence

from gateway_bulk import protocol
from gateway_testkit.contract import ProtocolContract
from gateway_testkit.killed import KilledContract


def post(body: bytes, *fields: str, path: str = "/_bulk") -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: here",
        f"Content-Length: {len(body)}",
        *fields,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


ONE = b'{"create":{"_index":"shop","_id":"7"}}\n{"message":"one"}\n'
TWO = b'{"index":{}}\n{"message":"two"}\n{"delete":{"_id":"7"}}\n'


class TestBulk(ProtocolContract):
    protocol = protocol
    batches = [
        (post(ONE), 1),
        (post(gzip.compress(TWO * 2, mtime=0), "Content-Encoding: gzip"), 2),
        (
            post(
                ONE + TWO,
                path="/shop/_bulk?filter_path=errors,items.*.error,items.*.status",
            ),
            2,
        ),
    ]
    too_much = {
        "limits.message_bytes": b"POST /_bulk HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n"
    }
    unfinished = post(b"x" * 60000)[:1000]
    endless = None

    def acknowledged(self, sent: bytes) -> int:
        assert not re.findall(rb"HTTP/1.1 (?!200|503)", sent)
        return sent.count(b'"status":201')

    def replies(self, sent: bytes) -> object:
        return re.sub(rb'\r\nDate: [^\r]*|"_id":"[^"]*"', b"", sent)


class TestKilled(KilledContract):
    protocol = protocol

    def batch(self, names: Sequence[str]) -> bytes:
        return post(
            b"".join(b'{"create":{"_id":"%b"}}\n{}\n' % n.encode() for n in names)
        )

    def name(self, payload: bytes) -> str:
        found: str = json.loads(payload)["_id"]
        return found

    def acknowledged(self, sent: bytes) -> int:
        return sent.count(b'"status":201')
