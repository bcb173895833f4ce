"""What a bucket says of each incarnation of a node: how far it had acknowledged when it last
said so, and whether that is all.

    .gateway-node-NODE_INCARNATION    in a bucket: a `Word` as JSON; Spark passes it over
    arrivals/NODE_INCARNATION         the same at a hub, of an edge

The gateway that is this incarnation says it, and nobody else: at its start, once a minute,
and at its end.  The Spark job and the audit read it: what a lost disk
had acknowledged, and is in no file, is missing then, and not forgotten.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from attrs import define

from gateway.store.bucket import Bucket, BucketError, StoredObject
from gateway.store.lake import End, Lsn
from gateway.store.lineage import Lineage
from gateway.store.names import INCARNATION

EVERY_SECONDS = 60.0
"""So often a word is written."""
SILENT_SECONDS = 300.0
"""Whose word is older than this, and not its last one, is not known to live."""

_NAME = ".gateway-node-"
MOST_EARLIER = 50
"""Incarnations before its own that a word names."""


class Word(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What an incarnation says of itself."""

    incarnation: str
    since: Lsn
    """The first lsn that it may have given."""
    lsn: Lsn
    """The last one that it has acknowledged; before `since` if there is none."""
    at: float
    """When that was, in seconds since the epoch, by its clock."""
    ack: str
    """How it acknowledges: `journal` or `spool`."""
    exact: bool = False
    """It has ended in good order, and acknowledged nothing behind `lsn`."""
    earlier: tuple[str, ...] = ()
    """The incarnations that its directory had before, and vouches for, oldest first."""
    published: Lsn = 0
    """Up to this one all that its directory was ever given is in the bucket, or was."""
    decommissioned: str = ""
    """Why nothing follows it, as somebody has said; empty if nobody has."""

    @property
    def all_told(self) -> bool:
        """Whether it acknowledged nothing behind `lsn` that is in no file, if it has ended."""
        return self.exact or self.ack == "spool"

    def goes_on_from(self, other: Word) -> bool:
        """Whether its directory has what *other* acknowledged: a disk that was set back
        to an earlier moment has not.
        """
        return other.incarnation in self.earlier and other.lsn < self.since


_FILE = re.compile(rf"([a-z0-9.-]+)_({INCARNATION})")


def name_of(node: str, incarnation: str = "") -> str:
    """The object's name; without an incarnation, what the names of a node's begin with."""
    return f"{_NAME}{node}_{incarnation}"


class Heard(NamedTuple):
    """A word in a bucket."""

    node: str
    word: Word | None
    why: str
    """Why it can not be read, if it is None."""
    modified: float
    """When it was written, in seconds since the epoch, by the bucket's clock."""


def read_all(bucket: Bucket, node: str | None = None) -> Iterator[Heard]:
    """What it says of all nodes, or of one: node by node.  Raises `BucketError`."""
    return (read(bucket, one) for one in listed(bucket, node))


def listed(bucket: Bucket, node: str | None = None) -> Iterator[StoredObject]:
    """The objects of all nodes, or of one.  Raises `BucketError`."""
    for one in bucket.list(_NAME if node is None else name_of(node)):
        if _whose(one.name):  # else an earlier version's
            yield one


def read(bucket: Bucket, one: StoredObject) -> Heard:
    """What one of them says.  Any thread; blocks."""
    node = _whose(one.name)
    try:
        word = msgspec.json.decode(bucket.read(one.name), type=Word)
    except (BucketError, ValueError, RecursionError) as why:
        return Heard(node, None, f"{bucket.url}/{one.name}: {why}", one.modified)
    return Heard(node, word, "", one.modified)


def at_hub(arrivals: Path, node: str | None = None) -> Iterator[Heard]:
    """What edges have said to the hub whose directory this is: all nodes, or one.

    Raises OSError.
    """
    if not arrivals.is_dir():
        return
    for path in sorted(arrivals.iterdir()):
        if (found := _FILE.fullmatch(path.name)) and node in (None, found[1]):
            try:
                modified = path.stat().st_mtime
                word = msgspec.json.decode(path.read_bytes(), type=Word)
            except FileNotFoundError:
                continue
            except (ValueError, RecursionError) as why:
                yield Heard(found[1], None, f"{path}: {why}", 0.0)
            else:
                yield Heard(found[1], word, "", modified)


def _whose(name: str) -> str:
    return name.removeprefix(_NAME).rpartition("_")[0]


def ended(
    words: Collection[Word], silent: Collection[str], now: float
) -> dict[str, End]:
    """How incarnations of one node have ended, by their *words*; *silent* are those that
    have written none for long.

    One that another of these goes on from has not ended: its directory is there.
    """
    by = {word.incarnation: word for word in words}
    goes_on = {
        each
        for word in words
        for each in word.earlier
        if each in by and word.goes_on_from(by[each])
    }
    return {
        word.incarnation: End(
            word.lsn, word.at, word.ack, word.all_told, now, word.since
        )
        for word in words
        if word.incarnation not in goes_on
        and (word.exact or word.incarnation in silent)
    }


@define(eq=False, slots=False)
class Speaker:
    """Writes the word of the incarnation that gives *node*'s lsns.  Any thread; blocks.

    *acknowledged* gives the last lsn that senders may have been told of, *published* up to
    which all is in the bucket.
    """

    _bucket: Bucket
    _node: str
    _lineage: Lineage
    _ack: str
    _acknowledged: Callable[[], int]
    _published: Callable[[], int]
    _clock: Callable[[], float] = time.time

    def say(self, *, exact: bool = False) -> None:
        """Write it.  Raises `BucketError`."""
        published = self._published()  # first: it is never ahead of the other
        lsn = self._acknowledged()
        own = self._lineage.at(lsn)
        lsn = max(lsn, own.since - 1)
        word = Word(
            own.id,
            own.since,
            lsn,
            self._clock(),
            self._ack,
            exact,
            own.whole[-MOST_EARLIER:],
            published,
        )
        name = name_of(self._node, own.id)
        self._bucket.replace(name, msgspec.json.encode(word))
