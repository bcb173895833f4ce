"""Files that other gateways bring: how a protocol hands them to the spool, durably.

A spool file becomes public here as it was there, in the same bytes.  What is here of each
incarnation is a set of lsns, on disk before anybody is told
(docs/adr/0043-a-hub-is-a-bucket.md).

    Announced   what is said of a file before its bytes come
    Arrivals    takes the files, of one gateway
    Bringing    one file that comes
    Unwelcome   why not

Methods that block say so; they belong in a thread.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

__all__ = [
    "DIGEST",
    "EVENTS",
    "OFFSET",
    "WHY",
    "Announced",
    "Arrivals",
    "Bringing",
    "Known",
    "Unwelcome",
    "digest_field",
    "sha256_of",
    "why_field",
]

DIGEST = "repr-digest"
"""The header field with the SHA-256 of a whole file (RFC 9530)."""
EVENTS = "gateway-events"
"""The header field with the digest of a file's events, as its footer says it."""
OFFSET = "upload-offset"
"""The header field with the number of bytes that a hub has of a file."""

Octets: TypeAlias = bytes
WHY = "gateway-why"
"""The header field with the reason of a refusal, for people."""

_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/=]{44}):")


def digest_field(sha256: bytes) -> str:
    """The value of `DIGEST`."""
    return f"sha-256=:{base64.b64encode(sha256).decode()}:"


def sha256_of(field: str) -> str:
    """The digest that such a value has, in hex; empty if it is none."""
    found = _DIGEST.fullmatch(field)
    try:
        return base64.b64decode(found[1], validate=True).hex() if found else ""
    except binascii.Error:
        return ""


def why_field(why: Exception) -> str:
    """The value of `WHY`: some of what it says, in one line of ASCII."""
    text = " ".join(str(why)[:1000].split())
    return text.encode("ascii", "backslashreplace").decode()


class Announced(NamedTuple):
    """A file, as it is announced."""

    name: str
    size: int
    sha256: str
    """Digest of all bytes, in hex."""
    events: str
    """Digest of its events, in hex, as the footer has it (`gateway.events`)."""


class Known(msgspec.Struct, frozen=True):
    """The answer of a hub that is asked about one node."""

    hub: str
    """The hub's node."""
    incarnation: str
    """The hub's own: a hub with another one may have less than it had."""
    waiting: int
    """Files of all nodes that wait for the reader of the hub's spool."""
    lsns: Mapping[str, tuple[tuple[int, int], ...]] = {}
    """Lsns that are there, by incarnation: first and last one of each range."""


class Unwelcome(Exception):
    """A node, or a file of it, is not taken; *code* is the status of HTTP.

    403     the node is this machine's own, or is not the bringer's
    409     another connection brings the file since, or it goes on in the wrong place
    412     the file is there, with these *events*
    422     it is no file of that node
    503     no room, or the disk fails: it is to come again
    """

    def __init__(self, code: int, why: str, events: str = "") -> None:
        super().__init__(why)
        self.code, self.events = code, events


class Bringing(Protocol):
    """One file that comes.  Each method blocks, and raises `Unwelcome`, OSError."""

    def write(self, octets: Sequence[bytes]) -> None:
        """More of it."""

    def finish(self) -> int:
        """Make the file public, as all of it has come; the number of its events.  A file that
        is acknowledged after this, once it `is_settled`, is there after any crash.
        """

    def close(self) -> None:
        """Nothing more comes; what came of an unfinished file stays for the next time."""


class Arrivals(Protocol):
    """Where files of other gateways become durable."""

    files: int
    """Files that have arrived since the start."""
    bytes: int
    """Bytes of these files."""
    events: int
    """Events in these files."""

    def open(self) -> None:
        """See that no other gateway takes files into this spool.  Called before any is taken,
        maybe again.  Blocks; raises `sdk.protocol.Unusable`, OSError.
        """

    @property
    def incarnation(self) -> str:
        """The incarnation of this gateway."""

    @property
    def waiting(self) -> int:
        """Files of all nodes that wait for the reader of the spool."""

    def why_not(self, size: int = 0) -> str | None:
        """Why a file of so many bytes can not be taken now, if so."""

    def is_settled(self, name: str) -> bool:
        """Whether the bringer of that file, which is finished, may be told that it is
        there.  Blocks not.
        """

    def hear(self, node: str, incarnation: str, word: Octets) -> None:
        """Keep what an incarnation says of itself.  Blocks; raises `Unwelcome`, OSError."""

    def known(self, node: str) -> Known:
        """The answer about a node.  Blocks; raises `Unwelcome`, OSError."""

    def look(self, file: Announced) -> int:
        """The number of bytes that are here of a file that has not come whole.

        Blocks; raises `Unwelcome` with 412 where the file is there, OSError.
        """

    def bring(self, file: Announced, at: int) -> Bringing:
        """A file comes, from its byte *at* on.  Blocks; raises as `look`."""
