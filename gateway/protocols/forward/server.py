"""The hub's end of a connection of an edge: HTTP/1.1, whose requests bring one file each.

    GET  /nodes/NODE              what is here of it           (docs/forward.md)
    PUT  /words/NODE_INCARNATION  what an incarnation says of itself
    HEAD /spool/NAME              whether that file is here, or how much of it
    PUT  /spool/NAME              begin │ write │ finish ──► Arrivals, in a thread
                                  201 ◄────────────────┘ (only now)

While a step is in its thread nothing is read of the connection.  Where there is no room the
answer is 503, with the reason, and what came of the file stays.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

import msgspec
from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.event import client_of
from gateway.protocols.forward.options import Options, may_bring, proved
from gateway.protocols.forward.turns import Turns
from gateway.sdk.arrivals import (
    DIGEST,
    EVENTS,
    OFFSET,
    WHY,
    Announced,
    Arrivals,
    Bringing,
    Known,
    Unwelcome,
    sha256_of,
    why_field,
)
from gateway.sdk.closing import Closing
from gateway.sdk.costs import REPLY, ControlBudget, Turn
from gateway.sdk.deadlines import Deadlines
from gateway.sdk.http1 import END, BadRequest, Request, Requests, answer_bytes
from gateway.sdk.interfaces import Connection, Refusal
from gateway.sdk.protocol import Answer, Listener

_WRITTEN_BYTES = 1 << 18
"""Bytes of a file that are gathered for a step, at most."""
_GATHERED_BYTES = 16 << 20
"""Bytes that are gathered of all files together, more or less."""
_GATHERING_SECONDS = 10.0
"""Seconds after which what was gathered is written: the line may have died unseen."""
_SETTLING_SECONDS = 0.2
"""Seconds between two looks whether what is finished is in the bucket."""
_PATIENCE_SECONDS = 30.0
"""Seconds for which an answer waits for that."""
_WORD_BYTES = 1 << 16
_AHEAD_SECONDS = 300.0
"""A clock that is so far off is told; less, a slow line may make of a good one."""
_FILE = 16
"""Control messages that a request for a file counts for: each may be a file made."""
_REQUEST = 100.0
"""Cost of a request: h11 reads a header and writes another."""
_ROUTINE = frozenset((404, 409, 412, 503))
"""Answers that are no fault of the edge: they are not logged."""
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


@define(eq=False, slots=False)
class ForwardListener:
    """The part that connections of one listener share.  Implements `interfaces.Accept`."""

    _settings: Listener[Options]
    arrivals: Arrivals
    clock: IReactorTime
    connections: set[ForwardServer]
    """Connections of all listeners whose edge is known."""
    count_refused: Callable[[], None]
    turns: Turns
    wall_clock: Callable[[], float] = time.time

    def __attrs_post_init__(self) -> None:
        self.name, self.options = self._settings.name, self._settings.options
        self.control_messages = self._settings.limits.control_messages
        self.gathering: Deadlines[ForwardServer] = Deadlines(
            self.clock, _GATHERING_SECONDS, ForwardServer.write_gathered
        )

    @property
    def written_bytes(self) -> int:
        """Bytes of a file that are gathered for a step."""
        return min(_WRITTEN_BYTES, _GATHERED_BYTES // max(1, len(self.connections)))

    def __call__(self, connection: Connection) -> ForwardServer:
        return ForwardServer(self, connection)


class ForwardServer(Closing):
    """One connection.  Implements `interfaces.Server`.

    34 methods: a request has many steps, as a large body is read in many turns.
    """

    __slots__ = (
        "_bringing",
        "_certified",
        "_control",
        "_draining",
        "_gathered",
        "_listener",
        "_node",
        "_proof",
        "_request",
        "_requests",
        "_resting",
        "_shown",
        "_then",
        "_timer",
        "by",
    )  # fmt: skip

    _log = Logger()

    def __init__(self, listener: ForwardListener, connection: Connection) -> None:
        super().__init__(connection)
        self._listener = listener
        self._certified = connection.origin.principal
        """The edge's name by its certificate, if it has shown one."""
        self._requests = Requests()
        self._request: Request | None = None
        """The request that comes, or is being answered."""
        self._node = ""
        """The node that it is about."""
        self._then: Callable[[], None] = lambda: None
        """Called once the request is whole."""
        self._proof = "", ""
        """Name and token that it has."""
        self.by = ""
        """The edge's name; empty before the first request."""
        self._shown: float | None = None
        """Seconds by which its clock was ahead of the reactor's; None: it did not say."""
        self._bringing: Bringing | None = None
        """The file that comes."""
        self._gathered = bytearray()
        """Octets for the next step, or of a word."""
        self._resting = False
        """A step is in its thread, or an answer waits for the bucket."""
        self._timer: Any = None
        self._draining = False
        self._control = ControlBudget(listener.clock.seconds, listener.control_messages)

    @property
    def trouble(self) -> str | None:
        """A sentence about the edge's clock, where that is wrong; it stops no event."""
        if self._shown is None:
            return None
        listener = self._listener
        # One of the two may have been set meanwhile: the next request says so.
        ahead = self._shown + listener.clock.seconds() - listener.wall_clock()
        if abs(ahead) < _AHEAD_SECONDS:
            return None
        way = "ahead of" if ahead > 0 else "behind"
        return (
            f"the clock of {self.by}, which forwards to this gateway, is "
            f"{abs(ahead) / 3600:,.1f} h {way} the one here, and so is "
            "received_at of its events, with the day in the tables that spark.retention "
            "goes by: set the one that is wrong, and keep it with NTP"
        )

    # Called by the network

    def received(self, data: bytes) -> None:
        if not self._closed:
            self._requests.feed(data)
            self._go_on()

    def drain(self) -> None:
        self._draining = True
        if not self._resting or self._timer is not None:
            self._stop()

    def _forget(self) -> None:
        listener = self._listener
        listener.gathering.forget(self)
        listener.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._resting = None, False
        if not self._resting:
            self._let_go()

    # Called by the listener

    def write_gathered(self) -> None:
        """Some seconds have gone by since more of a file came."""
        if self._bringing is not None and self._gathered and not self._resting:
            self._write()

    def look_again(self) -> None:
        """The listener's options are others: a token that is taken away ends this."""
        if self.by and not proved(self._listener.options, *self._proof):
            self._refuse_stranger()

    # What comes

    def _go_on(self) -> None:
        turn = Turn()
        try:
            while not (self._resting or self._closed):
                if turn.over:
                    self._connection.again()
                    break
                if (event := self._requests.next()) is None:
                    break
                turn.charge(REPLY)  # about as much work
                if isinstance(event, Request):
                    turn.charge(_REQUEST)
                    self._begin(event)
                elif event is END:
                    self._then()
                else:
                    assert isinstance(event, bytes)
                    self._octets(event)
        except BadRequest as why:
            self._end(Refusal(why.rule), Answer(b"", code=why.code))
        except Unwelcome as why:
            self._fail(why)
        if not self._closed:
            held = self._requests.held_bytes + len(self._gathered)
            self._connection.hold(held)

    def _begin(self, request: Request) -> None:
        self._request, self._node = request, ""
        self._gathered.clear()
        if is_whole := request.length == 0:
            self._requests.next()  # its end
        if self._greet(request):
            self._route(request)
            if is_whole:
                self._then()

    def _route(self, request: Request) -> None:
        """Do what is asked, or say what is done once the request is whole."""
        *_, kind, name = "", *request.path.split("/")
        arrivals = self._listener.arrivals
        if request.method in ("HEAD", "PUT") and kind == "spool":
            self._count(_FILE)
            file, at = _announced(request, name)
            self._see_who_may(name.removeprefix("events-").partition("_")[0])
            why = arrivals.why_not(file.size - at)
            if request.method == "HEAD":
                look = partial(arrivals.look, file)
                self._then = partial(self._step, look, partial(self._tell_part, why))
            elif why:
                raise Unwelcome(503, why)
            elif request.length == 0:
                raise Unwelcome(422, f"{name} is empty")
            else:
                self._step(partial(arrivals.bring, file, at), self._brings)
            return
        self._count(1)
        if request.method == "GET" and kind == "nodes":
            self._see_who_may(name)
            self._then = partial(
                self._step, partial(arrivals.known, name), self._tell_known
            )
        elif request.method == "PUT" and kind == "words":
            node, _, incarnation = name.rpartition("_")
            self._see_who_may(node)
            if (request.length or 0) > _WORD_BYTES:
                raise Unwelcome(413, f"a word of {request.length} bytes")
            self._then = partial(self._hear, node, incarnation)
        else:
            raise Unwelcome(404, f"{request.method} {request.path!r} is nothing here")
        if self._requests.waits_for_leave:
            self._connection.write(self._requests.leave())

    def _greet(self, request: Request) -> bool:
        """Whether we know who asks."""
        listener, origin = self._listener, self._connection.origin
        self._proof = name, token = _credentials(request)
        if listener.options.tokens:
            owners = (None, name, f"CN={name}")  # as a certificate may say it
            known = proved(listener.options, name, token)
            if self._certified not in owners or not known:
                self._refuse_stranger(wrong=True)
                return False
            origin.principal = name
        self.by = origin.principal or name or "somebody"
        listener.connections.add(self)
        with contextlib.suppress(ValueError, IndexError, OverflowError):
            shown = parsedate_to_datetime(request.fields(b"date")[0]).timestamp()
            self._shown = shown - listener.clock.seconds()
        return True

    def _count(self, messages: int) -> None:
        if (why := self._control.spend(messages)) is not None:
            raise Refusal(
                why.rule, key=why.key, reply=answer_bytes(Answer(b"", code=429))
            )

    def _see_who_may(self, node: str) -> None:
        """Raise `Unwelcome` if the edge may not bring that node, as is configured."""
        who = self._connection.origin.principal
        if who is not None and not may_bring(self._listener.options, who, node):
            raise Unwelcome(403, f"{who} may not bring node {node} (options.nodes)")
        self._node = node

    def _octets(self, octets: bytes) -> None:
        """Gather what came, and write it if that is enough."""
        self._gathered += octets
        if self._bringing is None:
            if len(self._gathered) > _WORD_BYTES:
                raise Unwelcome(413, "a body of too many bytes")
            return
        listener = self._listener
        if len(self._gathered) < listener.written_bytes:
            listener.gathering.watch(self)
        elif why := listener.arrivals.why_not(len(self._gathered)):
            self._gathered.clear()
            raise Unwelcome(503, why)  # others began when it had room
        else:
            self._write()

    def _write(self) -> None:
        bringing = self._bringing
        assert bringing is not None
        octets, self._gathered = bytes(self._gathered), bytearray()
        self._step(partial(bringing.write, [octets]), lambda _: None)

    # Answers

    def _brings(self, bringing: Bringing) -> None:
        self._bringing, self._then = bringing, self._whole
        if self._requests.waits_for_leave:
            self._connection.write(self._requests.leave())

    def _whole(self) -> None:
        bringing, octets = self._bringing, bytes(self._gathered)
        assert bringing is not None
        self._gathered.clear()

        def finish() -> int:
            if octets:
                bringing.write([octets])
            return bringing.finish()

        self._step(finish, self._is_stored)

    def _is_stored(self, events: int) -> None:
        self._bringing = None
        self._connection.count(events=events)
        self._control.earn(_FILE)
        self._settle(self._listener.clock.seconds() + _PATIENCE_SECONDS)

    def _settle(self, until: float) -> None:
        """Tell that a file is there, once it is in the bucket, if that is waited for."""
        assert self._request is not None
        listener, name = self._listener, self._request.path.rpartition("/")[2]
        if listener.arrivals.is_settled(name):
            waiting = {"waiting": listener.arrivals.waiting}
            self._answer(201, msgspec.json.encode(waiting))
        elif listener.clock.seconds() > until:
            self._fail(Unwelcome(503, f"{name} is not in the bucket yet (ack: spool)"))
        else:
            self._rest()

            def again() -> None:
                self._timer, self._resting = None, False
                self._settle(until)
                self._rested()

            self._timer = listener.clock.callLater(_SETTLING_SECONDS, again)

    def _tell_part(self, why_not: str | None, size: int) -> None:
        self._control.earn(_FILE)
        if why_not:
            self._fail(Unwelcome(503, why_not))
            return
        self._answer(404, headers={OFFSET: str(size)})

    def _tell_known(self, known: Known) -> None:
        assert self._request is not None
        tag = f'"{known.incarnation}"'
        if tag in self._request.fields(b"if-none-match"):
            self._answer(304, headers={"ETag": tag})
        else:
            self._answer(200, msgspec.json.encode(known), {"ETag": tag})

    def _hear(self, node: str, incarnation: str) -> None:
        word = bytes(self._gathered)
        self._gathered.clear()
        hear = partial(self._listener.arrivals.hear, node, incarnation, word)
        self._step(hear, lambda _: self._answer(204))

    def _answer(
        self, code: int, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        request, self._request = self._request, None
        assert request is not None
        answer = Answer(body, "application/json", code, headers or {})
        sent, ends = self._requests.answer(answer, request, close=self._draining)
        self._connection.write(sent)
        if ends:
            self._hang_up()

    def _fail(self, why: Unwelcome) -> None:
        """Answer that something is not taken."""
        self._let_go()
        if self._closed or self._request is None:
            return
        if why.code not in _ROUTINE:
            self._listener.count_refused()
            self._connection.report(Refusal(f"E{why.code} {why}"))
        headers = {WHY: why_field(why)}
        if why.events:
            headers[EVENTS] = why.events
        is_there = why.code == 412 and self._request.method == "HEAD"
        code = 200 if is_there else why.code
        self._answer(code, headers=headers)

    def _refuse_stranger(self, *, wrong: bool = False) -> None:
        why = "no such name and token (options.tokens)"
        if not wrong:
            why += ": it was taken away"
        answer = Answer(b"", code=401, headers={WHY: why})
        self._end(Refusal(f"E401 {why}", wrong_credentials=wrong), answer)

    def _end(self, why: Refusal, answer: Answer) -> None:
        if not self._closed:
            self._listener.count_refused()
            self._refusal = Refusal(
                why.rule,
                reply=answer_bytes(answer),
                wrong_credentials=why.wrong_credentials,
            )
            self._hang_up()

    # Steps

    def _step(self, do: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Do it in a thread; nothing is read before it is over."""
        self._rest()
        step = self._in_turn(do)
        step.addCallbacks(partial(self._stepped, then), self._failed)

    def _in_turn(self, do: Callable[[], Any]) -> Deferred[Any]:
        client = client_of(self._connection.origin)
        return self._listener.turns.take(client, self._node, do)

    def _stepped(self, then: Callable[[Any], None], result: Any) -> None:
        self._resting = False
        if self._closed:
            if then == self._brings:
                self._bringing = result
            self._let_go()
            return
        then(result)
        self._rested()

    def _failed(self, failure: Failure) -> None:
        self._resting = False
        if isinstance(failure.value, Unwelcome):
            self._fail(failure.value)
        elif failure.check(OSError):
            self._fail(Unwelcome(503, failure.getErrorMessage()))
        else:
            self._log.failure("Files that are forwarded", failure)
            self._fail(Unwelcome(500, f"failed: {failure.getErrorMessage()}"))
        self._rested()

    def _rest(self) -> None:
        if not self._resting:
            self._resting = True
            self._connection.pause()
            self._connection.busy(True)

    def _rested(self) -> None:
        """Go on, unless there is another step."""
        if self._closed or self._resting:
            return
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

        self._in_turn(let_go)

    def _stop(self) -> None:
        if self._request is not None:
            self._fail(Unwelcome(503, "the gateway stops"))
        self._hang_up()


def _credentials(request: Request) -> tuple[str, str]:
    """Name and token of who asks (`Basic`); empty if it says none."""
    kind, _, given = next(iter(request.fields(b"authorization")), "").partition(" ")
    try:
        text = base64.b64decode(given, validate=True).decode()
    except (binascii.Error, ValueError):
        return "", ""
    name, _, token = text.partition(":")
    return (name, token) if kind.lower() == "basic" else ("", "")


def _announced(request: Request, name: str) -> tuple[Announced, int]:
    """The file that a request is about, and where its body goes on."""
    size, at = request.length, 0
    if spans := request.fields(b"content-range"):
        found = _RANGE.fullmatch(spans[0])
        first, last, size = map(int, found.groups()) if found else (0, -1, 0)
        if request.length != last + 1 - first or last + 1 != size:
            raise Unwelcome(400, f"{name}: no range to its end")
        at = first
    if request.method == "PUT" and size is None:
        raise Unwelcome(411, f"{name}: of no declared length")
    if request.method == "HEAD":
        size = 1  # it is not known, and not asked for
    sha256 = sha256_of(next(iter(request.fields(DIGEST.encode())), ""))
    events = next(iter(request.fields(EVENTS.encode())), "")
    return Announced(name, size or 0, sha256, events), at
