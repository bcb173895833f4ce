"""Protocol detection: is a connection's beginning HTTP, TLS or PROXY where it should not be?

A load balancer's probe, a browser, a TLS client on a plain port: each gets a name in the
log, and an answer that it understands.  A protocol whose own connections may begin so
names those beginnings (`Port.prefixes`): they are its own.  Bytes are held back only
while they are a proper prefix of either kind of beginning.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gateway.net.proxy import SIGNATURE_V1, SIGNATURE_V2
from gateway.sdk.interfaces import Refusal

_METHODS = tuple(
    method + b" "
    for method in (
        b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"DELETE", b"PATCH", b"TRACE",
        b"CONNECT", b"PRI",
    )
)  # fmt: skip
_PROXY = (SIGNATURE_V1, SIGNATURE_V2)
_CLIENT_HELLO_BYTES = 6
"""Bytes that make a TLS ClientHello sure: 16 03 0v, length, 01."""
_TLS_ALERT = bytes.fromhex("15 0303 0002 02 28")
"""Fatal, handshake_failure."""


class ForeignProtocol(Enum):
    """A protocol other than the port's own."""

    HTTP = "HTTP"
    TLS = "a TLS ClientHello"
    PROXY = "a PROXY header"


def detect(head: bytes, own: tuple[bytes, ...] = ()) -> ForeignProtocol | None:
    """The protocol that *head* surely is the beginning of; None: none of these.

    What begins as one of *own* is the port's own.
    """
    if head.startswith(own):
        return None
    if head.startswith(_METHODS):
        return ForeignProtocol.HTTP
    if head.startswith(_PROXY):
        return ForeignProtocol.PROXY
    if len(head) >= _CLIENT_HELLO_BYTES and _maybe_hello(head):
        return ForeignProtocol.TLS
    return None


def undecided(head: bytes, own: tuple[bytes, ...] = ()) -> bool:
    """Whether *head* is too short for `detect` to say."""
    if head.startswith(own):
        return False
    if any(each.startswith(head) for each in own):
        return True
    if head.startswith(b"\x16"):
        return len(head) < _CLIENT_HELLO_BYTES and _maybe_hello(head)
    return any(
        len(head) < len(each) and each.startswith(head) for each in _METHODS + _PROXY
    )


def _maybe_hello(head: bytes) -> bool:
    return (
        head[:1] == b"\x16"
        and head[1:2] in (b"", b"\x03")
        and head[2:3] <= b"\x04"
        and head[5:6] in (b"", b"\x01")
    )


class Expected(NamedTuple):
    """The right bytes at this point of the connection."""

    protocol: str
    """The port's own."""
    tls: bool
    """A TLS ClientHello."""
    websocket: bool
    """An HTTP upgrade to WebSocket."""
    proxy: bool
    """PROXY headers are read on this port, from other sources than this one."""


def mismatch(found: ForeignProtocol | None, head: bytes, expected: Expected) -> Refusal:
    """The refusal of a connection that began with *head*."""
    on = f"a port that speaks {'TLS' if expected.tls else expected.protocol}"
    if found is ForeignProtocol.PROXY and expected.proxy:
        return Refusal(
            "a PROXY header from a source that is not trusted",
            key="proxy_protocol.trusted",
        )
    if found is ForeignProtocol.PROXY:
        return Refusal(f"a PROXY header on {on}", key="proxy_protocol")
    if found is ForeignProtocol.TLS:
        return Refusal(f"a TLS ClientHello on {on}", key="tls", reply=_TLS_ALERT)
    if found is ForeignProtocol.HTTP:
        return _http(head, on, tls=expected.tls)
    wanted, key = ("TLS", "tls") if expected.tls else ("a WebSocket", "websocket")
    return Refusal(f"{head[:16]!r} on a port that expects {wanted}", key=key)


def _http(head: bytes, on: str, *, tls: bool) -> Refusal:
    upgrade = b"upgrade: websocket" in head.lower()
    rule = f"{'a WebSocket upgrade' if upgrade else 'an HTTP request'} on {on}"
    key = "tls" if tls else "websocket" if upgrade else None
    return Refusal(rule, key=key, reply=http_response("400 Bad Request", rule + "."))


def http_response(status: str, line: str, *headers: str) -> bytes:
    """A whole HTTP response whose body is *line*; it ends the connection."""
    body = line.encode() + b"\n"
    head = "\r\n".join(
        (
            f"HTTP/1.1 {status}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *headers,
        )
    )
    return head.encode() + b"\r\n\r\n" + body
