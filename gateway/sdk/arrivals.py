"""Files that other gateways bring: how a protocol hands them to the spool, durably.

A file of the spool, with its name, its lsns and who gave them, is made public here as it was
there: the same events, in the same bytes.  Each is taken once: how far a node's files are
there is on disk before anybody is told, by incarnation, and what is not behind that is there
already (docs/adr/0039-an-edge-forwards-its-files.md).

    Arrivals    of one gateway
    Bringing    the files of one node, by one who brings them
    Unwelcome   why not

All that blocks is said to; it belongs in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gateway.sdk.forwarding import Begun, File, Life, Said

__all__ = ["Arrivals", "Bringing", "Unwelcome"]


class Unwelcome(Exception):
    """A node, or a file of it, is not taken; *code* says what of it is wrong.

    403     the node is this machine's own, or is not the bringer's
    409     it is brought by another connection since, or a file goes on in the wrong place
    422     it is no file of that node
    503     the disk fails: it is to come again
    """

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Bringing(Protocol):
    """The files of one node, one after the other.  Each method blocks, and raises
    `Unwelcome`, OSError.
    """

    @property
    def last(self) -> Mapping[str, int]:
        """The last lsn that is there, by incarnation.  Blocks not."""

    @property
    def begun(self) -> Begun | None:
        """A file that is there in part.  Blocks not."""

    @property
    def ended(self) -> Unwelcome | None:
        """Why it can not go on: somebody else brings the node's files now.  Blocks not."""

    def begin(self, file: File) -> bool:
        """A file comes, or goes on; False: it is there, and its octets are for nothing."""

    def write(self, octets: Sequence[bytes]) -> None:
        """More of it.  After an OSError the same may be written again."""

    def finish(self) -> int:
        """That was all of it: make it public; how many events it has.  What was acknowledged
        after this, once it `is_settled`, is there after any crash.
        """

    def close(self) -> None:
        """Nothing more comes; what came of an unfinished file stays for the next time."""


class Arrivals(Protocol):
    """Where files of other gateways become durable."""

    files: int
    """That have arrived since the start, …"""
    bytes: int
    """… and their bytes …"""
    events: int
    """… and events."""

    def open(self) -> None:
        """Before any are taken: no other gateway takes some into this spool.  Idempotent.
        Blocks; raises `sdk.protocol.Unusable`, OSError.
        """

    @property
    def waiting(self) -> int:
        """So many files, of all nodes, wait for whoever reads the spool."""

    def why_not(self, size: int = 0) -> str | None:
        """Why a file of so many bytes can not be taken now, if so."""

    def is_settled(self, name: str) -> bool:
        """Whether who has brought that file, which is finished, may be told that it is
        there.  Blocks not.
        """

    def hear(self, said: Said) -> None:
        """What an incarnation says of itself is to be kept.  Blocks; raises `Unwelcome`,
        OSError.
        """

    def bring(self, life: Life) -> Bringing:
        """Files of a node come from now on.  Blocks; raises `Unwelcome`, OSError."""
