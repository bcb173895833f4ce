"""Who serves a node's name in a bucket: one gateway, which answers when another asks for it.

A directory is locked by the operating system; a bucket has no lock, and a lease needs
clocks that agree and renewals in time.  So a gateway that starts asks, and who runs
answers: what is silent for `PATIENCE` seconds is gone, and its name is taken over.

    .gateway-node-NODE    {"holder": …, "asks": …, "refused": …}, as JSON; Spark passes it over

While nobody starts, a look now and then is all that it costs.  A clean stop removes it; a
node that was forgotten (`gateway spark forget`) leaves how far its lsns were used.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from attrs import define
from twisted.logger import Logger

from gateway.store import incarnation
from gateway.store.bucket import AlreadyThere, Bucket, BucketError, NotThere
from gateway.store.disk import Disk

__all__ = [
    "PATIENCE",
    "REQUEST_SECONDS",
    "Claim",
    "Forgotten",
    "Holder",
    "Taken",
    "Word",
    "claimed",
    "name_of",
]

PATIENCE = 15.0
"""Seconds in which whoever serves the name answers."""
_LOOK = 3.0
_ASK_AGAIN = 0.5
_STOP_SECONDS = 5.0
"""A stop does not wait for a request that hangs."""
REQUEST_SECONDS = 4.0
"""The most that a request of a claim takes: a look and its answer fit in `PATIENCE`."""
_AWAY_LOOKS = 3
"""So many that fail in a row are told; one is what any network does."""


class Taken(BucketError):
    """Another gateway, *holder*, serves this node's name; the text names both."""

    def __init__(self, text: str, holder: Holder) -> None:
        super().__init__(text)
        self.holder = holder


class Forgotten(BucketError):
    """The node was forgotten: its lsns are used, and nobody gives them again."""


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

    def was(self, other: Holder) -> bool:
        """Whether *other* had this very journal, which is locked by now."""
        mine = self.host, self.path, self.incarnation
        theirs = other.host, other.path, other.incarnation
        return bool(self.incarnation) and mine == theirs

    def __str__(self) -> str:
        known = f", incarnation {self.incarnation}" if self.incarnation else ""
        return f"pid {self.pid} on {self.host} with {self.path}{known}"


class Word(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the object says."""

    holder: Holder | None = None
    asks: Holder | None = None
    """Who would like to be it."""
    refused: str = ""
    """Whose question, by `run`, the holder has answered last; who asks lets it stand."""
    forgotten: int | None = None
    """The node's last lsn, if it is no more."""


def name_of(node: str) -> str:
    """The object's."""
    return f".gateway-node-{node}"


@define(eq=False, slots=False)
class Claim:
    """Of *me* to the name *node*: `take` it, `watch` it, `release` it or just `stop`.

    *bucket* ends its requests within `REQUEST_SECONDS`; *clock* and *sleep* are the
    machine's, but in tests.
    """

    _log = Logger()

    bucket: Bucket
    node: str
    me: Holder
    _clock: Callable[[], float] = time.monotonic
    _sleep: Callable[[float], None] = time.sleep

    def __attrs_post_init__(self) -> None:
        self.held = False
        self.why: str | None = None
        """Why it is not known whose the name is, if a request for it failed."""
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def by(cls, bucket: Bucket, node: str, journal: Path, disk: Disk) -> Claim:
        """Of who has that node's *journal*.  Raises OSError."""
        known, _ = incarnation.read(journal, disk)
        here = known is not None and known.directory == disk.identity(journal)
        return cls(
            bucket, node, Holder.here(journal, known.id if known and here else "")
        )

    def take(self) -> str | None:
        """Hold the name; a sentence if it is taken over from one that does not answer.

        Blocks.  Raises `Taken`, `Forgotten`, `BucketError`.
        """
        try:
            return self._take()
        except (Taken, Forgotten):
            raise
        except BucketError as why:
            self.why = str(why)
            raise

    def _take(self) -> str | None:
        told = None
        while not self.held:
            word = self.read()
            if word is None:
                with contextlib.suppress(AlreadyThere):
                    self.bucket.create(name_of(self.node), _encoded(Word(self.me)))
                    self.held = True
                continue
            if word.forgotten is not None:
                raise Forgotten(
                    f"node {self.node} of {self.bucket.url} was forgotten (gateway spark"
                    f" forget) with lsns up to {word.forgotten}: what it gave under them"
                    " again would be taken for what the tables have; give this gateway"
                    " another `node`"
                )
            before = word.holder
            if before is not None and not self._mine(before):
                if not self._silent(before, word.refused):
                    continue
                told = (
                    f"node {self.node} of {self.bucket.url} was served by {before},"
                    f" which has not answered for {PATIENCE:g} s: it is taken over"
                )
            self._say(Word(self.me))
            self.held = True
        return told

    def _mine(self, holder: Holder) -> bool:
        return holder.run == self.me.run or self.me.was(holder)

    def _silent(self, holder: Holder, refused: str) -> bool:
        """Ask *holder*: whether there is no answer; false if it is another one by now.

        *refused* is whom it had refused before.  Whom it refuses after that, it lives:
        others may ask at the same time, and their questions take each other's place.
        """
        self._log.info(
            "Node {node} of {bucket} is or was served by {holder}; it is asked, for"
            " {seconds:g} s",
            node=self.node,
            bucket=self.bucket.url,
            holder=str(holder),
            seconds=PATIENCE,
        )
        if refused == self.me.run:  # an attempt that a failed request ended
            refused = ""
        self._say(Word(holder, self.me, refused))
        until = self._clock() + PATIENCE
        while True:
            self._sleep(_ASK_AGAIN)
            late = self._clock() >= until  # before the request, which may take long
            word = self.read()
            if word is None or word.holder != holder or word.forgotten is not None:
                return False
            if word.refused not in ("", refused):
                raise Taken(self._both(holder), holder)
            if self._ending.is_set():
                raise BucketError(f"node {self.node} is not asked for: a stop")
            if late:
                return True
            if word.asks != self.me:  # or another one's question is in its place
                self._say(Word(holder, self.me, word.refused))

    def look(self) -> str | None:
        """Answer whoever asks; a sentence if somebody else has taken the name.

        Raises `BucketError`.
        """
        if not self.held:  # the bucket was away at the start
            try:
                told = self.take()
            except (Taken, Forgotten) as why:
                return str(why)
            if told is not None:
                self._log.warn("{told}", told=told)
            return None
        word = self.read()
        if word is not None and word.holder is not None:
            if word.holder.run != self.me.run:
                return self._both(word.holder)
            if word.asks is not None:
                self._say(Word(self.me, refused=word.asks.run))
                self._log.warn(
                    "Another gateway has this one's node, {node}, and is refused: {other}",
                    node=self.node,
                    other=str(word.asks),
                )
            elif word.holder != self.me:
                self._say(Word(self.me, refused=word.refused))
        elif word is None or word.forgotten is None:
            self._say(Word(self.me))
        else:
            return f"node {self.node} of {self.bucket.url} was forgotten while it ran"
        return None

    def known_as(self, incarnation: str) -> None:
        """The journal has an incarnation now; the next look says so."""
        self.me = msgspec.structs.replace(self.me, incarnation=incarnation)

    def watch(
        self, lost: Callable[[str], None], had: Callable[[], None] = lambda: None
    ) -> None:
        """Look now and then, in a thread; *lost* is told once, and then nothing is.

        *had* is told when the name is held, if it is not yet.
        """
        held = self.held

        def run() -> None:
            nonlocal held
            failures = 0
            while not self._ending.wait(_LOOK):
                try:
                    why = self.look()
                except Exception as error:
                    failures += 1
                    self._tell_failed(error, failures)
                    continue
                failures = 0
                if why is not None:
                    self.held = False
                    lost(why)
                    return
                if not held:
                    held = True
                    had()

        self._thread = threading.Thread(target=run, name="claim", daemon=True)
        self._thread.start()

    def _tell_failed(self, why: Exception, times: int) -> None:
        """A look has failed, so often in a row."""
        if not isinstance(why, BucketError):
            if times == 1:
                self._log.failure("Node {node} of its bucket: a look", node=self.node)
        elif times == _AWAY_LOOKS:
            self._log.error(
                "Whether another gateway has node {node} of {bucket} can not be known: "
                "{why}.  It is looked for again until it can, and who starts as {node} "
                "meanwhile gets no answer",
                node=self.node,
                bucket=self.bucket.url,
                why=str(why),
            )

    def stop(self) -> None:
        """Answer nobody any more; the name stays as it is.  Blocks."""
        if self._thread is not None:
            self._ending.set()
            self._thread.join(_STOP_SECONDS)

    def release(self) -> None:
        """Let go of the name, so that the next start need not wait.  Blocks."""
        self.stop()
        with contextlib.suppress(BucketError):
            word = self.read() if self.held else None
            holder = word.holder if word is not None else None
            if holder is not None and holder.run == self.me.run:
                self.bucket.remove(name_of(self.node))
        self.held = False

    def served(self) -> str | None:
        """Why nobody else may upload under this name, a sentence; None: nobody has it.

        Who may have it is asked, as by `take`.  Blocks; raises `BucketError`.
        """
        if self.read() is None:
            return None
        try:
            self.take()
        except Taken as why:
            return f"node {self.node} of {self.bucket.url} is served by {why.holder}"
        except Forgotten:
            return f"node {self.node} of {self.bucket.url} was forgotten"
        self.release()
        return None

    def forget(self, lsn: int) -> None:
        """Let nobody have the name any more.  Raises `BucketError`."""
        self._say(Word(forgotten=lsn))
        self.held = False

    def read(self) -> Word | None:
        """What the object says; None if there is none.  Raises `BucketError`."""
        try:
            data = self.bucket.read(name_of(self.node))
        except NotThere:
            return None
        try:
            return msgspec.json.decode(data, type=Word)
        except msgspec.DecodeError as why:
            raise BucketError(
                f"{self.bucket.url}/{name_of(self.node)} is not a gateway's ({why}):"
                " remove it if nobody else serves this node"
            ) from None

    def _say(self, word: Word) -> None:
        self.bucket.replace(name_of(self.node), _encoded(word))

    def _both(self, other: Holder) -> str:
        return (
            f"two gateways have node {self.node} of {self.bucket.url}: {other}; and this"
            f" one, {self.me}.  Give one of them another `node`"
        )


def _encoded(word: Word) -> bytes:
    return msgspec.json.encode(word)


def claimed(
    bucket: Bucket, node: str, journal: Path, disk: Disk, tell: Callable[[str], None]
) -> Claim:
    """The node's name in its bucket, which this gateway has from now on.

    Where a request fails it is not held: a start that may go on then claims it later, and
    uploads nothing before.  Raises `Taken`, `Forgotten`, OSError.
    """
    claim = Claim.by(bucket, node, journal, disk)
    try:
        told = claim.take()
    except (Taken, Forgotten):
        raise
    except BucketError:
        told = None
    if told is not None:
        tell(told)
    return claim
