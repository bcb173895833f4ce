"""What the first bytes of a connection say, if they say it in the wrong language.

A load balancer's probe, a browser, a TLS client on a plain port: each gets a name in
the log, and an answer it understands.  A verdict needs a prefix that no protocol of
ours can begin with (Lumberjack: `1` or `2` and a letter; Pravega: an int32 near 0;
Pomelo: 01 00 00; RS.io: 01 or 02), so bytes are held back only while they are a
proper prefix of one of those, and no legitimate byte ever is.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gateway.interfaces import Refusal
from gateway.net.proxy import SIGNATURE_V1, SIGNATURE_V2

__all__ = [
    "HTTP2",
    "Language",
    "Port",
    "http_answer",
    "recognise",
    "undecided",
    "wrong",
]

#: How HTTP/2 begins, which is what some ports speak.
HTTP2 = b"PRI "

_METHODS = tuple(
    method + b" "
    for method in (
        b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"DELETE", b"PATCH", b"TRACE",
        b"CONNECT", b"PRI",
    )
)  # fmt: skip
_PROXY = (SIGNATURE_V1, SIGNATURE_V2)
_CLIENT_HELLO = 6
"""Bytes that make a TLS ClientHello sure: 16 03 0v, length, 01."""
_TLS_ALERT = bytes.fromhex("15 0303 0002 02 28")
"""Fatal, handshake_failure."""


class Language(Enum):
    """Something other than the port's own protocol."""

    HTTP = "HTTP"
    TLS = "a TLS ClientHello"
    PROXY = "a PROXY header"


def recognise(head: bytes) -> Language | None:
    """The language that *head* is surely in, or None."""
    if head.startswith(_METHODS):
        return Language.HTTP
    if head.startswith(_PROXY):
        return Language.PROXY
    if len(head) >= _CLIENT_HELLO and _maybe_hello(head):
        return Language.TLS
    return None


def undecided(head: bytes) -> bool:
    """Whether *head* is still too short to say."""
    if head.startswith(b"\x16"):
        return len(head) < _CLIENT_HELLO and _maybe_hello(head)
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


class Port(NamedTuple):
    """What would have been right."""

    protocol: str
    sealed: bool
    """TLS was expected right now."""
    websocket: bool
    """An HTTP upgrade was expected right now."""
    proxied: bool
    """PROXY headers are taken, from others than this peer."""


def wrong(language: Language | None, head: bytes, port: Port) -> Refusal:
    """The refusal of *head*, in *language* (None: no known one), on *port*."""
    on = f"a port that speaks {'TLS' if port.sealed else port.protocol}"
    if language is Language.PROXY and port.proxied:
        return Refusal(
            "a PROXY header from a source that is not trusted",
            key="proxy_protocol.trusted",
        )
    if language is Language.PROXY:
        return Refusal(f"a PROXY header on {on}", key="proxy_protocol")
    if language is Language.TLS:
        return Refusal(f"a TLS ClientHello on {on}", key="tls", reply=_TLS_ALERT)
    if language is Language.HTTP:
        return _http(head, on, sealed=port.sealed)
    expected, key = ("TLS", "tls") if port.sealed else ("a WebSocket", "websocket")
    return Refusal(f"{head[:16]!r} on a port that expects {expected}", key=key)


def _http(head: bytes, on: str, *, sealed: bool) -> Refusal:
    upgrade = b"upgrade: websocket" in head.lower()
    rule = f"{'a WebSocket upgrade' if upgrade else 'an HTTP request'} on {on}"
    key = "tls" if sealed else "websocket" if upgrade else None
    return Refusal(rule, key=key, reply=http_answer("400 Bad Request", rule + "."))


def http_answer(status: str, line: str, *headers: str) -> bytes:
    """A whole HTTP response that says *line* and ends the connection."""
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
