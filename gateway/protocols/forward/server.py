"""The hub's end of a connection of an edge: takes its files, one after the other.

    frames ──► begin │ write │ finish ──► Arrivals      in a thread, one at a time
               Stored ◄─────────────────┘ (only now)

While a step is in its thread, or there is no room, nothing is read of the connection; the
peer hears why, and every `options.word_interval` that somebody is there.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.event import client_of
from gateway.protocols.forward.options import Options, may_bring, proved
from gateway.protocols.forward.turns import Turns
from gateway.sdk import forwarding
from gateway.sdk.arrivals import Arrivals, Bringing, Unwelcome
from gateway.sdk.closing import Closing
from gateway.sdk.costs import REPLY, ControlBudget, Turn
from gateway.sdk.deadlines import Deadlines
from gateway.sdk.forwarding import (
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
from gateway.sdk.interfaces import Connection, Refusal
from gateway.sdk.protocol import Listener

_WRITTEN_BYTES = 1 << 18
"""So much of a file is gathered for a step, …"""
_GATHERED_BYTES = 16 << 20
"""… but of all files together not much more than this."""
_PAUSE_SECONDS = 1.0
"""Between two looks for room."""
_SETTLING_SECONDS = 0.2
"""Between two looks whether what is finished is in the bucket."""
_MOST_NAME_CHARACTERS = 255
_AHEAD_SECONDS = 300.0
"""A clock that is so far off is told; less, a slow line may make of a good one."""
_UNPROVED = "no such name and token (options.tokens)"
_LIFE = 16
"""Control messages that one of these counts for: each may be a file written."""


@define(eq=False, slots=False)
class ForwardListener:
    """What the connections of one listener share.  Implements `interfaces.Accept`."""

    _settings: Listener[Options]
    node: str
    arrivals: Arrivals
    clock: IReactorTime
    connections: set[ForwardServer]
    """Those of all listeners that have said who they are."""
    count_refused: Callable[[], None]
    turns: Turns
    wall_clock: Callable[[], float] = time.time

    def __attrs_post_init__(self) -> None:
        self.name, self.options = self._settings.name, self._settings.options
        self.control_messages = self._settings.limits.control_messages
        self.greetings: Deadlines[ForwardServer] = Deadlines(
            self.clock, self.options.hello_timeout, ForwardServer.never_greeted
        )
        self.words: Deadlines[ForwardServer] = Deadlines(
            self.clock, self.options.word_interval, ForwardServer.say
        )

    @property
    def written_bytes(self) -> int:
        """So much of a file is gathered for a step."""
        return min(_WRITTEN_BYTES, _GATHERED_BYTES // max(1, len(self.connections)))

    def __call__(self, connection: Connection) -> ForwardServer:
        """The server of a new connection."""
        return ForwardServer(self, connection)


class ForwardServer(Closing):
    """One connection.  Implements `interfaces.Server`."""

    __slots__ = ("_bringing", "_by", "_control", "_draining", "_file", "_frames",
                 "_gathered", "_hello", "_left", "_listener", "_node", "_resting", "_shown",
                 "_taken", "_telling", "_timer", "_untold", "_why")  # fmt: skip

    _log = Logger()

    def __init__(self, listener: ForwardListener, connection: Connection) -> None:
        super().__init__(connection)
        self._listener = listener
        self._frames = Frames()
        self._by: str | None = None
        """Who it is; None: it has not said."""
        self._hello: Hello | None = None
        """How it said so, …"""
        self._shown: float | None = None
        """… and what its clock showed, behind the reactor's; None: it did not say."""
        self._bringing: Bringing | None = None
        """Whose node's files come, …"""
        self._node = ""
        """… and which node that is."""
        self._file: File | None = None
        """What comes now, …"""
        self._left = 0
        """… of which so many bytes are still to come, …"""
        self._taken = False
        """… and are written: of what is there already they are not."""
        self._gathered = bytearray()
        """Octets for the next step."""
        self._resting = False
        """A step is in its thread, or waits for room."""
        self._why = ""
        """What for, in the latter case."""
        self._timer: Any = None
        self._untold: deque[File] = deque()
        """Files that are finished, and not told to be there."""
        self._telling: Any = None
        self._draining = False
        self._control = ControlBudget(listener.clock.seconds, listener.control_messages)
        listener.greetings.watch(self)

    @property
    def trouble(self) -> str | None:
        """What is wrong with who is there, and stops no event."""
        if self._shown is None:
            return None
        listener = self._listener
        # One of the two may have been set meanwhile: an edge says so by another hello.
        ahead = self._shown + listener.clock.seconds() - listener.wall_clock()
        if abs(ahead) < _AHEAD_SECONDS:
            return None
        way = "ahead of" if ahead > 0 else "behind"
        return (
            f"the clock of {self._by}, which forwards to this gateway, is "
            f"{abs(ahead) / 3600:,.1f} h {way} the one here, and so is "
            "received_at of its events, with the day in the tables that spark.retention "
            "goes by: set the one that is wrong, and keep it with NTP"
        )

    # Called by the network

    def received(self, data: bytes) -> None:
        """See `interfaces.Server`."""
        if self._closed:
            return
        self._frames.feed(data)
        self._go_on()

    def drain(self) -> None:
        """See `interfaces.Server`."""
        self._draining = True
        if not self._resting or self._timer is not None:
            self._stop()

    def _forget(self) -> None:
        listener = self._listener
        listener.greetings.forget(self)
        listener.words.forget(self)
        listener.connections.discard(self)
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._resting = None, False
        if not self._resting:
            self._let_go()

    # Called by the listener

    def never_greeted(self) -> None:
        """No hello came, of which nothing is here and unread."""
        if self._connection.unread_input:
            self._listener.greetings.watch(self)
            return
        self._refuse(Unwelcome(400, "no hello"), key="options.hello_timeout")

    def say(self) -> None:
        """Somebody is here."""
        if self._bringing is not None and self._bringing.ended is not None:
            self._refuse(self._bringing.ended)
            return
        self._connection.write(encode(Word(self._why)))
        self._listener.words.watch(self)
        if self._gathered and not self._resting:
            # The line may be dead, and nobody know: what came goes on with the next one.
            self._write()

    def look_again(self) -> None:
        """The listener's options are others: a token that is taken away ends this."""
        if not self._is_proved():
            self._refuse(Unwelcome(401, f"{_UNPROVED}: it was taken away"))

    # What comes

    def _go_on(self) -> None:
        turn = Turn()
        try:
            while not (self._resting or self._closed):
                if turn.over:
                    self._connection.again()
                    break
                if (frame := self._frames.next()) is None:
                    break
                turn.charge(REPLY)  # about as much work
                self._take(frame)
        except Refusal as why:
            self._refuse(Unwelcome(400, str(why)), key=why.key)
        except Unwelcome as why:
            self._refuse(why)
        if not self._closed:
            held = self._frames.held_bytes + len(self._gathered)
            self._connection.hold(held)

    def _take(self, frame: forwarding.Message | bytes) -> None:
        if self._by is None and not isinstance(frame, Hello):
            raise Refusal("something else than a hello first")
        match frame:
            case bytes():
                self._octets(frame)
            case Hello():
                self._greet(frame)
            case Ping():
                self._count(1)
            case Said():
                self._count(1)
                if self._may_bring(frame.node):
                    hear = partial(self._listener.arrivals.hear, frame)
                    self._step(hear, lambda _: None, node=frame.node)
            case Life() if self._file is None:
                self._count(_LIFE)
                self._see_who_may(frame.node)
                self._step(
                    partial(self._listener.arrivals.bring, frame),
                    partial(self._brings, frame.node),
                    late=partial(self._close, frame.node),
                    node=frame.node,
                    asks=True,
                )
            case File() if self._file is None and self._bringing is not None:
                self._count(1)
                self._file, self._left = frame, frame.bytes - frame.at
                if self._left < 0 or frame.at < 0:
                    raise Unwelcome(422, f"{frame.name} can not go on there")
                self._begin(frame)
            case _:
                raise Refusal(f"{type(frame).__name__} at a time that is not for it")

    def _count(self, messages: int) -> None:
        if (why := self._control.spend(messages)) is not None:
            raise why

    def _greet(self, hello: Hello) -> None:
        if self._by is not None:
            raise Refusal("a second hello")
        if hello.version != forwarding.VERSION:
            only = f"version {hello.version}; {forwarding.VERSION} only"
            raise Unwelcome(400, only)
        if len(hello.name) > _MOST_NAME_CHARACTERS:
            most = f"a name of more than {_MOST_NAME_CHARACTERS} characters"
            raise Unwelcome(400, most)
        listener, origin = self._listener, self._connection.origin
        name, self._hello = hello.name, hello
        if hello.time:
            self._shown = hello.time - listener.clock.seconds()
        if listener.options.tokens:
            owners = (None, name, f"CN={name}")  # as a certificate may say it
            if origin.principal not in owners or not self._is_proved():
                self._refuse(Unwelcome(401, _UNPROVED), wrong_credentials=True)
                return
            origin.principal = name
        self._by = origin.principal or name
        listener.greetings.forget(self)
        listener.connections.add(self)
        listener.words.watch(self)
        self._connection.write(encode(Welcome(forwarding.VERSION, listener.node)))

    def _see_who_may(self, node: str) -> None:
        """Raise `Unwelcome` if somebody else brings that node, as is configured."""
        if not self._may_bring(node):
            who = self._connection.origin.principal
            raise Unwelcome(403, f"{who} may not bring node {node} (options.nodes)")

    def _may_bring(self, node: str) -> bool:
        who = self._connection.origin.principal
        return who is None or may_bring(self._listener.options, who, node)

    def _is_proved(self) -> bool:
        hello, options = self._hello, self._listener.options
        return hello is not None and proved(options, hello.name, hello.token)

    def _brings(self, node: str, found: Bringing) -> None:
        if self._bringing is not None:
            self._close(self._node, self._bringing)
        self._bringing, self._node = found, node
        self._connection.write(encode(Position(node, found.last, found.begun)))

    def _close(self, node: str, bringing: Bringing) -> None:
        self._in_turn(node, bringing.close)

    def _in_turn(
        self, node: str, do: Callable[[], Any], *, asks: bool = False
    ) -> Deferred[Any]:
        client = client_of(self._connection.origin)
        return self._listener.turns.take(client, node, do, asks=asks)

    def _begin(self, file: File) -> None:
        assert self._bringing is not None
        if why := self._listener.arrivals.why_not(self._left):
            self._wait(why, partial(self._begin, file))
            return

        def then(taken: bool) -> None:  # noqa: FBT001 - the answer of `begin`
            self._taken = taken
            self._gather()

        self._step(partial(self._bringing.begin, file), then)

    def _octets(self, octets: bytes) -> None:
        if self._file is None:
            raise Refusal("octets of no file")
        if not octets:
            self._count(1)
        self._left -= len(octets)
        if self._left < 0:
            raise Unwelcome(422, f"{self._file.name} has more bytes than it says")
        if self._taken:
            self._gathered += octets
        self._gather()

    def _gather(self) -> None:
        """Write what came, if that is enough, and finish a file that is all there."""
        assert self._bringing is not None
        if self._gathered and (
            not self._left or len(self._gathered) >= self._listener.written_bytes
        ):
            if why := self._listener.arrivals.why_not(len(self._gathered)):
                self._wait(why, self._gather)  # others began when it had
                return
            self._write()
        elif not self._left:
            if self._taken:
                self._step(self._bringing.finish, self._is_stored)
            else:
                self._is_stored(0)

    def _write(self) -> None:
        assert self._bringing is not None
        octets, self._gathered = bytes(self._gathered), bytearray()
        write = partial(self._bringing.write, [octets])
        self._step(write, lambda _: self._gather())

    def _is_stored(self, events: int) -> None:
        file, self._file = self._file, None
        assert file is not None
        self._connection.count(events=events)
        self._untold.append(file)
        if self._telling is None:
            self._tell()

    def _tell(self) -> None:
        """Of what is there; what still goes to a bucket is looked at again soon."""
        self._telling, untold, arrivals = None, self._untold, self._listener.arrivals
        while untold and arrivals.is_settled(untold[0].name):
            file = untold.popleft()
            stored = Stored(file.name, file.incarnation, arrivals.waiting)
            self._connection.write(encode(stored))
            self._control.earn(_LIFE)
        if untold:
            later = self._listener.clock.callLater
            self._telling = later(_SETTLING_SECONDS, self._tell)

    # Steps

    def _step(
        self,
        do: Callable[[], Any],
        then: Callable[[Any], None],
        late: Callable[[Any], None] = lambda _: None,
        node: str = "",
        *,
        asks: bool = False,
    ) -> None:
        """In a thread; nothing is read before it is over.  *late* is called instead of
        *then* where the connection is over by then.
        """
        self._rest()
        again = partial(self._step, do, then, late, node, asks=asks)
        step = self._in_turn(node or self._node, do, asks=asks)
        step.addCallbacks(
            partial(self._stepped, then, late), partial(self._failed, again)
        )

    def _stepped(
        self, then: Callable[[Any], None], late: Callable[[Any], None], result: Any
    ) -> None:
        self._resting = False
        if self._closed:
            late(result)
            self._let_go()
            return
        try:
            then(result)
        except Unwelcome as why:
            self._refuse(why)
        self._rested()

    def _failed(self, again: Callable[[], None], failure: Failure) -> None:
        """What the disk does not do now is tried again: nothing is lost by waiting."""
        self._resting = False
        if self._closed:
            self._let_go()
        elif failure.check(OSError):
            self._wait(failure.getErrorMessage(), again)
        elif isinstance(failure.value, Unwelcome):
            self._refuse(failure.value)
        else:
            self._log.failure("Files that are forwarded", failure)
            self._refuse(Unwelcome(500, f"failed: {failure.getErrorMessage()}"))

    def _wait(self, why: str, then: Callable[[], None]) -> None:
        """Until there may be room; the peer hears why it is not read."""
        if self._draining:
            self._stop()
            return
        self._rest()
        if why != self._why:
            self._why = why
            self._connection.write(encode(Word(why)))

        def again() -> None:
            self._timer, self._resting = None, False
            then()
            self._rested()

        self._timer = self._listener.clock.callLater(_PAUSE_SECONDS, again)

    def _rest(self) -> None:
        if not self._resting:
            self._resting = True
            self._connection.pause()
            self._connection.busy(True)

    def _rested(self) -> None:
        """Go on, unless there is another step."""
        if self._closed or self._resting:
            return
        if self._why:
            self._why = ""
            self._connection.write(encode(Word()))
        if self._draining:
            self._stop()
            return
        self._connection.busy(False)
        self._connection.resume()
        self._connection.again()

    # The end

    def _let_go(self) -> None:
        bringing, self._bringing = self._bringing, None
        octets, self._gathered = bytes(self._gathered), bytearray()
        if bringing is None:
            return

        def let_go() -> None:
            with contextlib.suppress(OSError, Unwelcome):
                if octets:  # a slow line need not bring them again
                    bringing.write([octets])
            bringing.close()

        self._in_turn(self._node, let_go)

    def _stop(self) -> None:
        if not self._closed:
            self._connection.write(encode(Refused(503, "the gateway stops")))
            self._hang_up()

    def _refuse(
        self,
        why: Unwelcome,
        *,
        key: str | None = None,
        wrong_credentials: bool = False,
    ) -> None:
        if self._closed:
            return
        self._listener.count_refused()
        self._refusal = Refusal(
            f"E{why.code} {why}",
            key=key,
            reply=encode(Refused(why.code, str(why))),
            wrong_credentials=wrong_credentials,
        )
        self._hang_up()
