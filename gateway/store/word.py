"""What a bucket says of a node's name: who has it, how far that one has acknowledged, how
those before it ended, and whose files come too late.

    .gateway-node-NODE    a `Word` as JSON; Spark passes the object over

Gateways write it, by compare and swap (`gateway.store.claim`); the Spark job reads it, after
it has fetched files and before it takes them on.  A gateway that takes the name over from
one that is silent fences its incarnation first, then lists the bucket, and goes on behind
what is there.  So what the silent one has put there *later*, should it wake up, is found by
the job: it was fetched, and its incarnation is fenced by then.

The word outlives its holder: a machine that lost its disk goes on behind what it says was
acknowledged, and writes down how the one before it ended.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from gateway.store.bucket import Bucket, BucketError, NotThere
from gateway.store.incarnation import Incarnation
from gateway.store.lake import End, Lsn

FORM = 2
"""Of the object; the first had neither `reached` nor `ended`, nor a form."""

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


class Reached(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the name's last holder said of itself."""

    incarnation: str
    """Who gives lsns; empty if there was no room for an id."""
    since: Lsn
    """The first one that it may have given."""
    lsn: Lsn
    """The last one that it has acknowledged; before `since` if there is none."""
    at: float
    """When that was, in seconds since the epoch, by its clock."""
    ack: str
    """How it acknowledges: `journal` or `spool`."""
    exact: bool = False
    """It has ended in good order, and acknowledged nothing behind that."""
    earlier: tuple[str, ...] = ()
    """The incarnations that its directory had before, and vouches for, oldest first."""

    def is_behind(self, own: Incarnation, here: int) -> bool:
        """Whether it is of *own*, or before it, and nothing behind lsn *here*."""
        return self.is_of(own) and (self.lsn <= here or self.lsn < self.since)

    def is_of(self, own: Incarnation) -> bool:
        """Whether it is of *own*, or of one before it for which that vouches."""
        return self.incarnation in (own.id, *own.whole)

    @property
    def all_told(self) -> bool:
        """Whether nothing was acknowledged behind `lsn`, now that it has ended."""
        return self.exact or self.ack == "spool"


class Word(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
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
    """How far who has the name is, or who had it last."""
    ended: Mapping[str, End] = {}
    """How others before that one ended, by incarnation, oldest first."""

    def last_lsn_of(self, incarnation: str) -> int | None:
        """The last lsn that may come from there, or `UNDECIDED`; None: any."""
        found = self.fenced.get(incarnation)
        return self.forgotten if found is None else found

    @property
    def last_lsn(self) -> int:
        """The last one that it knows anybody to have given."""
        lsns = [
            self.forgotten or 0,
            *self.fenced.values(),
            *(one.acknowledged for one in self.ended.values()),
            self.reached.lsn if self.reached is not None else 0,
        ]
        return max(0, *lsns)


class _Form(msgspec.Struct):
    form: Annotated[int, msgspec.Meta(ge=1)] = 1


def name_of(node: str) -> str:
    """The object's."""
    return f".gateway-node-{node}"


def encode(said: Word) -> bytes:
    """As the object has it."""
    return msgspec.json.encode({"form": FORM, **msgspec.to_builtins(said)})


def decode(data: bytes) -> Word:
    """What an object says; raises ValueError, which says why it is not ours."""
    if (form := msgspec.json.decode(data, type=_Form).form) > FORM:
        raise ValueError(f"form {form}; this version knows {FORM}")
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    if fields.pop("form", None) is None and not fields:
        raise ValueError("it says nothing")
    return msgspec.json.decode(msgspec.json.encode(fields), type=Word)


def read(bucket: Bucket, node: str) -> tuple[Word, str] | None:
    """What the object says, and its tag; None if there is none.

    Raises `BucketError`, also for what no gateway has written, or a newer one: that must
    not be written over.
    """
    try:
        data, tag = bucket.read_tagged(name_of(node))
    except NotThere:
        return None
    try:
        return decode(data), tag
    except (ValueError, RecursionError) as why:
        raise BucketError(
            f"{bucket.url}/{name_of(node)} is damaged, not a gateway's, or a newer one's"
            f" ({why}): start the version that wrote it, or remove it if nobody else"
            " serves this node; then what it knew of lsns is gone"
        ) from None
