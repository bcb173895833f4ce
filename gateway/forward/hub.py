"""A hub, as its edge knows it: what it has, and how a file gets there.

    GET /nodes/NODE             its incarnation; where that is new, its sets of lsns
    PUT /words/NODE_INCARNATION
    HEAD, PUT /spool/NAME       docs/forward.md

Calls block; threads share the connections, of which one stays open in between.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import io
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import formatdate
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import urlsplit

import msgspec
import pyarrow.parquet as pq
from attrs import define, field
from twisted.logger import Logger

from gateway.config.model import Forward
from gateway.forward.http import PIECE_BYTES, HubLine, Lost, Reply, why_lost
from gateway.sdk.arrivals import DIGEST, EVENTS, OFFSET, WHY, Known, digest_field
from gateway.sdk.disk import Disk, replace_file
from gateway.store.digests import EVENTS_KEY, said
from gateway.store.hub.arrivals import why_no_spool_file
from gateway.store.lsns import Lsns
from gateway.store.names import SpoolFile
from gateway.store.objects.bucket import BucketError
from gateway.store.spool.parts import derived_part
from gateway.store.spool.uploads import Held, Put, SetAside

_FOREIGN, _NO_FILE = 403, 422
_CHUNK_BYTES = 1 << 20


class Denied(BucketError):
    """The hub is there, and takes nothing of this gateway."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Busy(BucketError):
    """The hub takes nothing now; the text says why."""


class _Damaged(Exception):
    """A file that no hub would take; the text says why."""


class _Digests(NamedTuple):
    """A file that was read once."""

    size: int
    sha256: bytes
    events: str

    @property
    def fields(self) -> dict[str, str]:
        return {DIGEST: digest_field(self.sha256), EVENTS: self.events}


@define(eq=False, slots=False)
class Rate:
    """Holds threads back to so many bytes a second together; None: any."""

    _most: int | None
    _clock: Callable[[], float]
    _condition: Any
    _next: float = 0.0

    def wait(self, size: int) -> None:
        """Return when so many may be sent."""
        if self._most is None:
            return
        with self._condition:
            now = self._clock()
            begins = max(self._next, now - 1.0)
            self._next = begins + size / self._most
            while (left := begins - self._clock()) > 0:
                self._condition.wait(left)


@define(eq=False, slots=False)
class Hub:
    """The hub at one address.

    *node* is this gateway's own; *found* is told when it is known what the hub has of another
    node, once for each incarnation of the hub.  Files that are damaged go to *aside*.

    17 attributes: nine are given; threads that bring files share the others.
    """

    _log = Logger()

    url: str
    _settings: Forward
    _node: str
    _aside: Path
    _disk: Disk
    _connect: Callable[[str, Forward], socket.socket]
    _rate: Rate
    _found: Callable[[str], None]
    _wall_clock: Callable[[], float] = time.time

    incarnation: str = ""
    """The one whose lacks are known here; empty: none."""
    waiting: int = 0
    """Files that wait there for the reader of its spool."""
    _has: dict[str, dict[str, Lsns]] = field(factory=dict)
    """Lsns that are there, by node and incarnation, of nodes that it was asked about."""
    _doubted: set[str] = field(factory=set)
    """Files of which a part may be there."""
    _idle: list[HubLine] = field(factory=list)
    _busy: set[HubLine] = field(factory=set)
    _closed: bool = False
    _kept: bool = True
    """Whether a connection was left open behind the last answer."""

    # Connections

    def close(self) -> None:
        """Hang up; who waits for an answer gets none.  Any thread."""
        self._closed = True
        for one in [*self._busy]:
            one.hang_up()
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    @property
    def is_open(self) -> bool:
        """Whether a connection stays open, as far as is known, or none ever does."""
        if (line := self._waits()) is not None:
            self._idle.append(line)
        return bool(line or self._busy or not self._kept)

    def _waits(self) -> HubLine | None:
        """A connection that waits for a request, and is the caller's now."""
        with contextlib.suppress(IndexError):
            while True:
                if (found := self._idle.pop()).is_idle:
                    return found
                found.close()
        return None

    def _line(self) -> HubLine:
        if (waits := self._waits()) is not None:
            return waits
        to = urlsplit(self.url)
        unix = to.scheme == "unix"
        try:
            opened = self._connect(self.url, self._settings)
        except (OSError, ValueError) as why:
            raise Lost(why_lost(why)) from None
        path = "" if unix else to.path.rstrip("/")
        return HubLine(opened, "hub" if unix else to.netloc, path)

    def _ask(
        self,
        method: str,
        target: str,
        fields: Mapping[str, str] | None = None,
        body: Callable[[], Iterator[bytes]] = lambda: iter(()),
        size: int = 0,
    ) -> Reply:
        settings, line = self._settings, self._line()
        token = "" if settings.token is None else settings.token.get_secret_value()
        proof = f"{settings.name or self._node}:{token}".encode()
        head = {
            "Authorization": f"Basic {base64.b64encode(proof).decode()}",
            "Date": formatdate(self._wall_clock(), usegmt=True),
        }
        self._busy.add(line)
        try:
            if self._closed:
                line.close()
                raise Lost("stopped")
            reply = line.ask(method, target, {**head, **(fields or {})}, body(), size)
        finally:
            self._busy.discard(line)
        self._kept = not line.over
        if line.over or self._idle or self._closed:
            line.close()
        else:
            self._idle.append(line)
        if reply.code == 401:
            raise Denied(401, _why(reply))
        if reply.code >= 500 or reply.code == 429:
            raise Busy(_why(reply))
        return reply

    # What it has

    def greet(self) -> Known | None:
        """Ask who it is; None: of that `incarnation`.  Raises `Lost`, `Denied`, `Busy`."""
        tag = {"If-None-Match": f'"{self.incarnation}"'} if self.incarnation else {}
        reply = self._ask("GET", f"/nodes/{self._node}", tag)
        if reply.code == 304:
            return None
        self._has = {}  # what others still note in the one before says nothing of this one
        return self._learn(self._node, reply)

    def has(self, file: SpoolFile) -> bool:
        """Whether that file is there, as far as is known."""
        lsns = self._has.get(file.node, {}).get(file.incarnation)
        return lsns is not None and lsns.covers(file.first, file.last)

    def lsns_of(self, node: str) -> Mapping[str, Lsns] | None:
        """Lsns of a node that are there, by incarnation; None: it was not asked."""
        return self._has.get(node)

    def ask_about(self, node: str) -> None:
        """Have it tell what it has of a node, unless it has.  Raises `BucketError`."""
        if node not in self._has:
            self._learn(node, self._ask("GET", f"/nodes/{node}"))
            self._found(node)

    def _learn(self, node: str, reply: Reply) -> Known:
        if reply.code != 200:
            self._refused(node, reply)
        try:
            known = msgspec.json.decode(reply.body, type=Known)
        except ValueError as why:
            raise Lost(f"the hub says what it must not: {why}") from None
        self._has[node] = {by: Lsns(spans) for by, spans in known.lsns.items()}
        self.waiting = known.waiting
        return known

    def _refused(self, node: str, reply: Reply) -> None:
        """Raise what a refusal of a node, or of a file of it, means."""
        if node == self._node and reply.code == _FOREIGN:
            raise Denied(reply.code, _why(reply))
        if reply.code in (_FOREIGN, _NO_FILE):
            raise Held(_why(reply), reply.code)
        raise BucketError(_why(reply))

    def say(self, node: str, incarnation: str, word: bytes) -> None:
        """Hand on what an incarnation says of itself.  Raises `Held` where it is not taken."""
        target = f"/words/{node}_{incarnation}"
        reply = self._ask("PUT", target, None, lambda: iter((word,)), len(word))
        if reply.code != 204:
            raise Held(_why(reply), reply.code)

    # Files

    def put(self, file: SpoolFile, path: Path) -> Put:
        has = self._has
        self.ask_about(file.node)
        try:
            with path.open("rb") as opened:
                read = _digests_of(opened)
                there = self._put(file, opened, read)
        except _Damaged as why:
            self._set_aside(path, why)
            raise SetAside(f"{path} is damaged: {why}") from None
        if there not in (None, read.events):
            self._put_another_past(file, path)
        self._doubted.discard(file.name)
        of = has.setdefault(file.node, {})
        now = of.get(file.incarnation, Lsns()).copy()
        now.add(file.first, file.last)
        of[file.incarnation] = now
        return Put(read.size, there is None)

    def _put_another_past(self, file: SpoolFile, path: Path) -> None:
        """Two machines were one incarnation: what this one has goes under one of its own."""
        one, data = derived_part(path, file)
        opened = io.BytesIO(data)
        self._put(one, opened, _digests_of(opened))
        self._log.error(
            "{file} is at the hub with other events: two gateways are the same "
            "incarnation, as a machine was copied as it ran.  Those from here are there as "
            "incarnation {by}",
            file=file.name,
            by=one.incarnation,
        )

    def _put(self, file: SpoolFile, opened: BinaryIO, read: _Digests) -> str | None:
        """Bring it: None, or the digest of the events that are there under its name already."""
        target, at = f"/spool/{file.name}", 0
        of = self._has.get(file.node, {}).get(file.incarnation, Lsns())
        if file.name in self._doubted or of.touches(file.first, file.last):
            reply = self._ask("HEAD", target, read.fields)
            if reply.code == 200:
                return _events_there(reply)
            if reply.code != 404:
                self._refused(file.node, reply)
            at = int(reply.fields.get(OFFSET, "0"))
            at = at if at < read.size else 0
        self._doubted.add(file.name)  # until it is told to be there
        fields = {"If-None-Match": "*", **read.fields}
        if at:
            fields["Content-Range"] = f"bytes {at}-{read.size - 1}/{read.size}"
        body = lambda: self._pieces(opened, at, read.size)  # noqa: E731
        reply = self._ask("PUT", target, fields, body, read.size - at)
        if reply.code == 412:
            return _events_there(reply)
        if reply.code == _NO_FILE and (wrong := why_no_spool_file(opened, file)):
            raise _Damaged(wrong)  # else the hub is older
        if reply.code != 201:
            self._refused(file.node, reply)
        with contextlib.suppress(ValueError, KeyError, TypeError):
            self.waiting = int(msgspec.json.decode(reply.body)["waiting"])
        return None

    def _pieces(self, opened: BinaryIO, at: int, size: int) -> Iterator[bytes]:
        opened.seek(at)
        while at < size:
            data = opened.read(min(PIECE_BYTES, size - at))
            if not data:
                raise OSError(errno.EIO, "it became shorter")
            self._rate.wait(len(data))
            yield data
            at += len(data)

    def _set_aside(self, path: Path, why: Exception) -> None:
        """Move a file to `poison/`, beside its reason: those behind it must not wait."""
        disk, number, name = self._disk, 1, path.name
        disk.make_directory(self._aside)
        while disk.exists(self._aside / name):  # it came again, and is damaged again
            number += 1
            name = f"{path.name}.{number}"
        reason = {"file": name, "why": f"{path} is damaged: {why}", "at": time.time()}
        text = msgspec.json.encode(reason)
        replace_file(disk, self._aside / f"{name}.json", [text]).close()
        disk.rename(path, self._aside / name)


def _digests_of(opened: BinaryIO) -> _Digests:
    """Raises `_Damaged`, OSError."""
    sha256, size = hashlib.sha256(), 0
    while data := opened.read(_CHUNK_BYTES):
        sha256.update(data)
        size += len(data)
    try:
        events = said(pq.read_metadata(opened).metadata, EVENTS_KEY)
    except Exception as why:  # a damaged footer makes pyarrow raise anything
        if getattr(why, "errno", None) or isinstance(why, MemoryError):
            raise  # it may be sound
        raise _Damaged(f"its footer can not be read: {why}") from why
    if not events:
        raise _Damaged("it does not say the digest of its events")
    return _Digests(size, sha256.digest(), events)


def _why(reply: Reply) -> str:
    """The reason that an answer gives, in a line."""
    return reply.fields.get(WHY) or f"the hub answers {reply.code}"


def _events_there(reply: Reply) -> str:
    """The digest of the events of a file that is there.

    Raises `BucketError`, if it is not said: that was no hub, as a page of a proxy before it.
    """
    if (found := reply.fields.get(EVENTS)) is None:
        raise BucketError(f"an answer {reply.code} without {EVENTS} is none of a hub")
    return found
