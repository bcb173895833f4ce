"""What a bucket says of a node's name: who has it, and whose files come too late.

    .gateway-node-NODE    a `Word` as JSON; Spark passes the object over

Gateways write it, by compare and swap (`gateway.store.claim`); the Spark job reads it, after
it has fetched files and before it takes them on.  A gateway that takes the name over from
one that is silent fences its incarnation first, then lists the bucket, and goes on behind
what is there.  So what the silent one has put there *later*, should it wake up, is found by
the job: it was fetched, and its incarnation is fenced by then.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.store.bucket import Bucket, BucketError, NotThere

__all__ = ["UNDECIDED", "Ended", "Holder", "Reached", "Word", "name_of", "read"]

UNDECIDED = -1
"""The fence of an incarnation while who took over has not said yet from where it goes on."""


class Holder(msgspec.Struct, frozen=True):
    """A gateway's process."""

    run: str
    """Of this process, and no other."""
    host: str
    pid: int
    path: str
    """Its journal."""
    incarnation: str = ""
    """Of the journal, if it has one yet."""

    @classmethod
    def here(cls, path: Path, incarnation: str) -> Holder:
        """This process, with its journal in *path*."""
        return cls(
            secrets.token_hex(8),
            socket.gethostname(),
            os.getpid(),
            str(path.absolute()),
            incarnation,
        )

    @property
    def fence(self) -> str:
        """Under which `Word.fenced` has it."""
        return self.incarnation or f"run {self.run}"

    def was(self, other: Holder) -> bool:
        """Whether *other* had this very journal, which is locked by now."""
        mine = self.host, self.path, self.incarnation
        theirs = other.host, other.path, other.incarnation
        return bool(self.incarnation) and mine == theirs

    def __str__(self) -> str:
        known = f", incarnation {self.incarnation}" if self.incarnation else ""
        return f"pid {self.pid} on {self.host} with {self.path}{known}"


class Reached(msgspec.Struct, frozen=True):
    """How far the holder is."""

    incarnation: str
    since: int
    """The first lsn that it may have given."""
    lsn: int
    """The last one that it has acknowledged."""
    at: float
    """When, in seconds since the epoch, by its clock."""
    ack: str
    """How it acknowledges: `journal` or `spool`."""
    exact: bool
    """Whether it has acknowledged none behind that."""
    earlier: tuple[str, ...] = ()
    """The incarnations that its directory had before."""


class Ended(msgspec.Struct, frozen=True):
    """How an incarnation ended that the holder's directory does not go on from."""

    acknowledged: int
    heard: float
    ack: str
    exact: bool
    found: float


class Word(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the object says."""

    holder: Holder | None = None
    asks: Holder | None = None
    """Who would like to be it."""
    refused: str = ""
    """Whose question, by `run`, the holder has answered last; who asks lets it stand."""
    forgotten: int | None = None
    """The node's last lsn, if it is no more."""
    fenced: Mapping[str, int] = {}
    """Incarnations whose name was taken over, oldest first, and the last lsn that may be
    theirs."""
    reached: Reached | None = None
    ended: Mapping[str, Ended] = {}
    """By incarnation, oldest first."""
    form: int = 1

    def last_lsn_of(self, incarnation: str) -> int | None:
        """The last lsn that may come from there, or `UNDECIDED`; None: any."""
        found = self.fenced.get(incarnation)
        return self.forgotten if found is None else found


def name_of(node: str) -> str:
    """The object's."""
    return f".gateway-node-{node}"


def read(bucket: Bucket, node: str) -> tuple[Word, str] | None:
    """What the object says, and its tag; None if there is none.  Raises `BucketError`."""
    try:
        data, tag = bucket.read_tagged(name_of(node))
    except NotThere:
        return None
    try:
        return msgspec.json.decode(data, type=Word), tag
    except msgspec.DecodeError as why:
        raise BucketError(
            f"{bucket.url}/{name_of(node)} is not a gateway's ({why}):"
            " remove it if nobody else serves this node"
        ) from None
