"""One connection to the hub: says which node's files come, sends them in order, and takes
away what is told to be there.

    hello → welcome;  life → position;  file, data … → stored

Files are sent ahead of their answers, up to some.  What blocks is in a thread; this side
waits in one coroutine for whatever comes next: room to write, an answer, a new file.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.forward.files import (
    ForwardedFiles,
    Outgoing,
    Unreadable,
    Waiting,
    in_order,
)
from gateway.sdk import forwarding
from gateway.sdk.forwarding import (
    DATA_BYTES,
    Begun,
    File,
    Frames,
    Hello,
    Life,
    Ping,
    Position,
    Refused,
    Said,
    Stored,
    Welcome,
    Word,
    encode,
)
from gateway.sdk.interfaces import Refusal
from gateway.sdk.outgoing import Stream, why_lost
from gateway.store.names import SpoolFile
from gateway.store.objects.word import EVERY_SECONDS

_AHEAD_FILES = 8
"""So many are sent before the first of them is told to be there, …"""
_AHEAD_BYTES = 64 << 20
"""… or so many bytes of them; one at least."""
_READ_BYTES = 1 << 18
_LOOK_SECONDS = 1.0
"""From one look into the spool to the next, while there is nothing to send."""
_PING_SECONDS = 30.0
_SILENT_SECONDS = 60.0
"""A hub that says nothing for so long is not there: it has a word each ten seconds."""
_FOREIGN, _NO_FILE = 403, 422
_ASK_SECONDS = 0.2
"""From one node of which only the archive has files to the next."""


class Lost(Exception):
    """The connection is over; the text says why."""


class Failed(Lost):
    """For something here, not for the line."""


class Denied(Lost):
    """The hub has refused it; that *holds* the files of another node alone."""

    def __init__(self, refused: Refused, node: str, *, holds: bool) -> None:
        super().__init__(refused.why)
        self.code = refused.code
        self.node = node
        """Whose files came; "" if none did."""
        self.holds = holds


class Observer(Protocol):
    """Whom a connection tells how it goes."""

    def opened(self, hub: str, arrived: int | None) -> None:
        """The node *hub* has said what it has: of ours all up to *arrived*, if any is left
        to be sent.
        """

    def said(self, word: Word) -> None:
        """It takes files, or why it does not."""

    def arrived(self, outgoing: Outgoing, waiting: int) -> None:
        """It has a file since now; so many wait there."""

    def has(self, named: SpoolFile) -> None:
        """It has a file, since whenever."""

    def relayed(self, node: str, last: int) -> None:
        """It has all of another node's present life up to there."""

    def lacks(self, incarnation: str, first: int, last: int) -> None:
        """It lacks these lsns, which are not here any more."""

    def unreadable(self, why: Unreadable) -> None:
        """A file could not be sent, and was set aside."""

    def ended(self, why: Exception) -> None:
        """It is over."""


@define(eq=False, slots=False)
class Inquiry:
    """Asks a hub whether it is there and takes files of *life*: *welcomed* is called if so.

    Implements `gateway.sdk.outgoing.User`.
    """

    _hello: Hello
    _life: Life
    _welcomed: Callable[[], None]

    _stream: Stream | None = field(default=None, init=False)
    _frames: Frames = field(factory=Frames, init=False)
    _over: bool = field(default=False, init=False)

    def connected(self, stream: Stream) -> None:
        """See `User`."""
        self._stream = stream
        if self._over:
            stream.abort()

    def opened(self) -> None:
        """See `User`."""
        if self._stream is not None and not self._over:
            self._stream.send(encode(self._hello))

    def received(self, data: bytes) -> None:
        """See `User`."""
        if self._over:
            return
        self._frames.feed(data)
        try:
            while not self._over and (answer := self._frames.next()) is not None:
                self._answered(answer)
        except Refusal:
            self.end()

    def _answered(self, answer: forwarding.Message | bytes) -> None:
        match answer:
            case Welcome():
                assert self._stream is not None
                self._stream.send(encode(self._life))
            case Word():
                # It is there, and may have no room: its position comes all the same.
                pass
            case _:
                self.end()
                if isinstance(answer, Position):
                    self._welcomed()

    def closed(self, why: Failure) -> None:
        """See `User`."""

    def end(self) -> None:
        """Hang up."""
        if not self._over:
            self._over = True
            if self._stream is not None:
                self._stream.abort()


@define(eq=False, slots=False)
class Connection:
    """Implements `gateway.sdk.outgoing.User`; *rate* in bytes a second, None: any."""

    _log = Logger()

    _hello: Hello
    _rate: int | None
    _files: ForwardedFiles
    _clock: IReactorTime
    _in_thread: Callable[..., Deferred[Any]]
    _observer: Observer
    _doubted: bool = False
    """The hub said last that a file is none."""
    _is_held: Callable[[str], bool] = lambda _: False
    """Says of a node of others whether the hub has refused it, so that it waits."""
    _words: Callable[[], list[Said]] = list
    """What this gateway, and those that bring their files here, say of themselves."""

    _stream: Stream | None = field(default=None, init=False)
    _frames: Frames = field(factory=Frames, init=False)
    _over: Exception | None = field(default=None, init=False)
    """Why it is, once it is."""
    _waiter: Deferred[None] | None = field(default=None, init=False)
    _welcome: Welcome | None = field(default=None, init=False)
    _choked: bool = field(default=False, init=False)
    _life: Life | None = field(default=None, init=False)
    """Which was announced last."""
    _lives: dict[str, Life] = field(factory=dict, init=False)
    """All that were, by node, …"""
    _positions: dict[str, Position] = field(factory=dict, init=False)
    """… and the answers to the first of each."""
    _archive: dict[str, list[str]] = field(factory=dict, init=False)
    """Names of what the archive had after the first look into the spool, by node: of those that the
    hub was not asked about.  What has come there since, went over from here."""
    _queue: deque[Waiting] = field(factory=deque, init=False)
    """What is next."""
    _sent: deque[Outgoing] = field(factory=deque, init=False)
    """All of it was sent, and it is not told to be there."""
    _leaving: set[Path] = field(factory=set, init=False)
    """Files that are sent, or there and not yet taken away, …"""
    _left: set[Path] = field(factory=set, init=False)
    """… and that were, since the last look began."""
    _next_byte_at: float = field(default=0.0, init=False)
    """Not before that, by `rate`."""
    _heard_at: float = field(default=0.0, init=False)
    _silent: bool = field(default=False, init=False)
    """For too long, at the last look: if we stood still meanwhile, its words are in the socket,
    and read by the next one."""
    _said_at: float = field(default=0.0, init=False)
    _words_at: float = field(default=-math.inf, init=False)

    # What the network tells

    def connected(self, stream: Stream) -> None:
        """See `User`."""
        self._stream = stream
        self._heard_at = self._clock.seconds()
        if self._over is not None:
            stream.abort()

    def opened(self) -> None:
        """See `User`."""
        assert self._stream is not None
        self._stream.when_choked(self._tell_choked)
        Deferred.fromCoroutine(self._talk()).addErrback(self._failed)

    def received(self, data: bytes) -> None:
        """See `User`."""
        self._heard_at = self._clock.seconds()
        self._frames.feed(data)
        try:
            while self._over is None and (frame := self._frames.next()) is not None:
                self._take(frame)
        except Refusal as why:
            self.end(Lost(f"the hub says what it must not: {why}"))
        self._wake()

    def closed(self, why: Failure) -> None:
        """See `User`."""
        self._end(Lost(why_lost(why)))

    def _tell_choked(self, ready: bool) -> None:  # noqa: FBT001 - as `when_choked` has it
        self._choked = not ready
        self._wake()

    # What the forwarder tells

    def look(self) -> None:
        """Time goes by: say that we are here; give up on a hub that is silent."""
        now = self._clock.seconds()
        if self._stream is None:
            return
        silent = now - self._heard_at > _SILENT_SECONDS
        was_silent, self._silent = self._silent, silent
        if silent and was_silent:
            self.end(Lost(f"nothing was heard for {_SILENT_SECONDS:g} s"))
        elif self._welcome is not None and now - self._words_at >= EVERY_SECONDS:
            told = Deferred.fromCoroutine(self._tell_words())
            told.addErrback(self._failed)
        elif self._welcome is not None and now - self._said_at > _PING_SECONDS:
            self._say(encode(Ping()))

    def end(self, why: Exception) -> None:
        """Hang up."""
        self._end(why)
        if self._stream is not None:
            self._stream.abort()

    def _end(self, why: Exception) -> None:
        if self._over is not None:
            return
        self._over = why
        self._wake()
        self._observer.ended(why)

    # The coroutine

    async def _talk(self) -> None:
        self._say(encode(self._hello))
        while self._welcome is None:
            await self._something()
        own = self._files.node
        position = await self._announce(self._files.life_of(own, ""))
        await self._tell_words()
        await self._find_all(position)
        while True:
            if not self._queue:
                await self._look()
            elif self._is_ahead:
                await self._something()
            else:
                await self._send(self._queue.popleft())

    def _failed(self, why: Failure) -> None:
        if self._over is not None:
            return
        if why.check(OSError):
            self.end(Failed(why.getErrorMessage()))
        else:
            self._log.failure("Forwarding", why)
            self.end(Failed(f"failed: {why.getErrorMessage()}"))

    async def _tell_words(self) -> None:
        """How far this gateway is, and others."""
        self._words_at = self._clock.seconds()
        for said in await self._in_thread(self._words):
            if self._over is None:
                self._say(encode(said))

    async def _announce(self, life: Life) -> Position:
        """The answer tells what is there; after the first one of a node we know."""
        self._life = self._lives[life.node] = life
        self._say(encode(life))
        while (position := self._positions.get(life.node)) is None:
            await self._something()
        return position

    async def _find_all(self, position: Position) -> None:
        """What the hub lacks of what is here, and what of it is not here any more."""
        files = self._files
        # In that order: a file goes from the spool to the archive, and may do so now, where
        # a connection to another hub was there before.
        self._queue = deque(await self._in_spool())
        self._archive = await self._in_thread(files.in_archive)
        archived = self._archive.pop(files.node, [])
        self._put_before(await self._in_thread(files.lacked, archived, position.last))
        if self._over is not None:  # meanwhile
            raise self._over
        own = [one for one in self._queue if one.named.node == files.node]
        if own:
            first = own[0].named.first
            by = files.incarnation.of_lsn(first)
            began = {
                **files.incarnation.began,
                files.incarnation.id: files.incarnation.since,
            }
            expected = max(position.last.get(by, 0) + 1, began.get(by, first) or first)
            if first > expected:
                self._observer.lacks(by, expected, first - 1)
        assert self._welcome is not None
        self._observer.opened(
            self._welcome.node, own[0].named.first - 1 if own else None
        )

    async def _in_spool(self) -> list[Waiting]:
        found = await self._in_thread(self._files.in_spool)
        return [one for one in found if not self._is_held(one.named.node)]

    async def _look(self) -> None:
        """What is new in the spool; or else what the hub lacks of those who have brought
        nothing since: it may have come back older.
        """
        self._left.clear()
        new = [one for one in await self._in_spool() if one.path not in self._leaving]
        if new:
            self._queue.extend(new)
            return
        seconds = _LOOK_SECONDS
        for node in [one for one in self._archive if not self._is_held(one)]:
            life = await self._in_thread(self._files.life_of, node, "")
            if life.incarnation and node not in self._lives:
                await self._first_of(life)
                seconds = _ASK_SECONDS
                break
            del self._archive[node]
        await self._pause(seconds)

    async def _first_of(self, life: Life, *then: Waiting) -> bool:
        """Begin with a node of others; whether the hub lacks files of it that it had, which
        go before *then*.
        """
        position = await self._announce(life)
        archived = self._archive.pop(life.node, [])
        behind = await self._in_thread(self._files.lacked, archived, position.last)
        if behind:
            self._queue.extendleft(then)
            self._put_before(behind)
        return bool(behind)

    def _put_before(self, behind: list[Waiting]) -> None:
        """Files of the archive go first, but for earlier ones of their node in the spool, as
        a crash leaves them: behind a later one the hub would not take them.
        """
        if not behind:
            return
        node, last = behind[-1].named.node, max(one.named.first for one in behind)
        first, rest = behind, deque[Waiting]()
        for one in self._queue:
            early = one.named.node == node and one.named.first < last
            (first if early else rest).append(one)
        self._queue = deque(sorted(first, key=in_order)) + rest

    async def _pause(self, seconds: float) -> None:
        timer = self._clock.callLater(seconds, self._wake)
        try:
            await self._something()
        finally:
            if timer.active():
                timer.cancel()

    @property
    def _is_ahead(self) -> bool:
        ahead = sum(one.file.bytes for one in self._sent)
        return len(self._sent) >= _AHEAD_FILES or ahead >= _AHEAD_BYTES

    async def _send(self, waiting: Waiting) -> None:
        try:
            look_at = partial(self._files.look_at, doubted=self._doubted)
            outgoing = await self._in_thread(look_at, waiting)
            if outgoing is None and waiting.path not in self._left:
                # Another hub has told to have it just before we came to this one.
                archived = self._files.archived(waiting)
                outgoing = await self._in_thread(look_at, archived)
        except Unreadable as why:
            await self._in_thread(self._files.set_aside, waiting, why)
            self._observer.unreadable(why)
            return
        if outgoing is not None:
            await self._send_all(outgoing)

    async def _send_all(self, outgoing: Outgoing) -> None:
        file, waiting = outgoing.file, outgoing.waiting
        node = waiting.named.node
        if self._life is None or self._life.node != node or self._is_another(file):
            life = await self._in_thread(self._files.life_of, node, file.incarnation)
            if node not in self._lives and node != self._files.node:
                if await self._first_of(life, waiting):
                    return
            else:
                await self._announce(life)
        position = self._positions[node]
        self._leaving.add(waiting.path)
        if waiting.named.last <= position.last.get(file.incarnation, 0):
            await self._take_away([outgoing])  # it was there, and we were not told
            return
        at = _goes_on(outgoing, position.begun)
        self._sent.append(outgoing)
        self._say(encode(msgspec.structs.replace(file, at=at)))
        while at < file.bytes:
            data = await self._in_thread(self._files.read, outgoing, at, _READ_BYTES)
            for begin in range(0, len(data), DATA_BYTES):
                await self._may_write()
                octets = data[begin : begin + DATA_BYTES]
                self._say(forwarding.data(octets))
                if self._rate is not None:
                    now = self._clock.seconds()
                    since = max(self._next_byte_at, now - 1.0)
                    self._next_byte_at = since + len(octets) / self._rate
            at += len(data)

    def _is_another(self, file: File) -> bool:
        """Whether it is of a life that has begun since."""
        life = self._life
        assert life is not None
        if life.node == self._files.node:
            return False
        known = self._positions[life.node].last
        return file.incarnation not in {life.incarnation, *life.earlier, *known}

    async def _may_write(self) -> None:
        while self._choked:
            await self._something()
        while (pause := self._next_byte_at - self._clock.seconds()) > 0:
            await self._pause(pause)

    async def _take_away(self, there: Sequence[Outgoing]) -> None:
        waiting = [one.waiting for one in there]
        for each in waiting:
            self._observer.has(each.named)
        await self._in_thread(self._files.have_arrived, waiting)
        for one in waiting:
            self._leaving.discard(one.path)
            self._left.add(one.path)

    async def _something(self) -> None:
        """Wait until anything is different.  Raises whatever says why all is over."""
        if self._over is not None:
            raise self._over
        self._waiter = Deferred()
        await self._waiter
        if self._over is not None:
            raise self._over

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.callback(None)

    def _say(self, data: bytes) -> None:
        if self._over is not None:
            raise self._over
        assert self._stream is not None
        self._said_at = self._clock.seconds()
        self._stream.send(data)

    def _tell_relayed(self, node: str, last: Mapping[str, int]) -> None:
        life = self._lives[node]
        if node != self._files.node and life.incarnation in last:
            self._observer.relayed(node, last[life.incarnation])

    # What the hub says

    def _take(self, frame: forwarding.Message | bytes) -> None:
        match frame:
            case Welcome():
                self._welcome = frame
            case Position() if frame.node in self._lives:
                self._positions.setdefault(frame.node, frame)
                self._tell_relayed(frame.node, frame.last)
            case Word():
                self._observer.said(frame)
            case Stored() if self._sent and self._sent[0].file.name == frame.name:
                outgoing = self._sent.popleft()
                self._observer.arrived(outgoing, frame.waiting)
                file, named = outgoing.file, outgoing.waiting.named
                self._tell_relayed(named.node, {file.incarnation: named.last})
                taken = Deferred.fromCoroutine(self._take_away([outgoing]))
                taken.addErrback(self._failed)
            case Refused():
                # Another one may have a name that was ours once, or a node's that came here.
                node = "" if self._life is None else self._life.node
                if self._sent:  # what is before that is there
                    node = self._sent[0].waiting.named.node
                ours = node in ("", self._files.node)
                looked_at = frame.code == _NO_FILE and self._doubted
                holds = not ours and (frame.code == _FOREIGN or looked_at)
                self.end(Denied(frame, node, holds=holds))
            case _:
                raise Refusal(f"{type(frame).__name__} at a time that is not for it")


def _goes_on(outgoing: Outgoing, begun: Begun | None) -> int:
    """Where a file goes on of which the hub may have the beginning."""
    file = outgoing.file
    if begun is None:
        return 0
    same = (begun.name, begun.incarnation, begun.sha256)
    return begun.at if same == (file.name, file.incarnation, file.sha256) else 0
