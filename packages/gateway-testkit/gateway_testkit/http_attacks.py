"""Attacks on any protocol in HTTP/1.1: slow and lying bodies, bombs, empty requests.

`tests/sdk/test_http_server.py` has those on HTTP itself.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from itertools import chain, repeat

from gateway_testkit.attacks import Attack, repeated

__all__ = ["http_attacks"]


def http_attacks(
    protocol: str, path: str, content_type: str, one: bytes, many: bytes
) -> list[Attack]:
    """Posts to *path*; *one* is the smallest body with an event, *many* has many small ones."""

    def post(body: bytes, *fields: str, length: int | None = None) -> bytes:
        size = len(body) if length is None else length
        lines = [
            f"POST {path} HTTP/1.1", "Host: a", f"Content-Type: {content_type}",
            f"Content-Length: {size}", *fields,
        ]  # fmt: skip
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    def packed(body: bytes) -> bytes:
        return post(gzip.compress(body, mtime=0), "Content-Encoding: gzip")

    def tables() -> bytes:
        """A gzip stream of deflate blocks that make nothing."""
        maker = zlib.compressobj(wbits=31)
        blocks = (
            maker.compress(b"") + maker.flush(zlib.Z_FULL_FLUSH) for _ in range(512)
        )
        return post(b"".join(blocks), "Content-Encoding: gzip")

    def chunks() -> Iterator[bytes]:
        head = post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        return chain([head], repeat(b"1\r\n \r\n"))

    def lie() -> Iterator[bytes]:
        return chain([post(b"", length=1 << 40)], repeat(b" "))

    progress = {
        "the smallest requests": post(one),
        "events of a few bytes": post(many),
        "bombs of events": packed(many),
    }
    endless = {
        "bombs of nothing": repeated(packed(bytes(1 << 22))),
        "bombs beyond the limit": repeated(packed(b" " * (65 << 20))),
        "tables that make nothing": repeated(tables()),
        "requests for nothing": repeated(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        "headers without end": repeated(b"POST / HTTP/1.1\r\n" + b"a: b\r\n" * 50),
        "chunks of a byte": chunks,
        "a length that lies": lie,
        "wrong bodies": repeated(post(b"x")),
    }
    most = 1 << 14
    return [
        *(
            Attack(protocol, name, repeated(unit), most=most)
            for name, unit in progress.items()
        ),
        *(
            Attack(protocol, name, units, endless=True, most=most)
            for name, units in endless.items()
        ),
    ]
