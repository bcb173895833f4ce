"""A protocol that is spoken in HTTP/1.1: requests that bring events, answered once these
are durable.

    bytes ──► Requests ──► HttpSession.asked ──► Stores ──► journal
                           Answer                  └─ answer ◄── durable

A protocol brings a session that is an `HttpSession`, and `HttpListener` does the rest:
keep-alive, pipelined requests, `Expect`, tokens, bodies that are compressed, limits.  What
can not be stored within some seconds is answered 503 with Retry-After, or 429 if that is
by its sender's share of the disk.  The connection goes on where the request was read.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar, cast

from isal import isal_zlib
from pydantic import Field
from twisted.internet.interfaces import IReactorTime

from gateway.event import Origin, Stored
from gateway.sdk.batches import BatchListener, BatchServer, Ready
from gateway.sdk.costs import BYTE, EVENT, FRAME, inflating
from gateway.sdk.deadlines import Deadlines
from gateway.sdk.fields import Secret
from gateway.sdk.http1 import (
    END,
    METHODS,
    BadRequest,
    Request,
    Requests,
    answer_bytes,
)
from gateway.sdk.interfaces import Connection, Journal, Refusal
from gateway.sdk.protocol import Answer, Settings
from gateway.sdk.section import NEW_CONNECTIONS, Section

__all__ = [
    "METHODS",
    "Body",
    "HttpListener",
    "HttpOptions",
    "HttpSession",
    "Request",
    "Stores",
    "inflated",
]

_ZlibError = cast("type[Exception]", isal_zlib.error)
_CODINGS = {"gzip": 31, "deflate": 15}
"""The `wbits` by which zlib knows each."""
_READ, _MADE = 1 << 14, 1 << 17
"""Bytes that are inflated in one piece, and that come of it."""
_REQUEST = 100.0
"""Costs: h11 reads a header and writes another."""
_PATIENCE = 5.0
"""Seconds: half of what published clients wait for an answer."""
_LOOKING = (404, 405)
"""Clients ask so for what a server can do; it is not logged."""
_LATER = {"Retry-After": "5"}
_T = TypeVar("_T")
Steps = Generator[Ready, None, _T]
"""Work in pieces: yields its cost, and what is to be sent meanwhile."""


class HttpOptions(Section):
    """Options of protocols in HTTP."""

    reload: ClassVar = NEW_CONNECTIONS

    tokens: dict[str, Secret] = Field(
        default={}, description="Names to tokens of who may send; {} = everyone"
    )


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request."""

    plain: bytes
    sent: bytes
    """The bytes as they came, in `coding`: what is short and may be stored."""
    coding: str
    """`gzip`, `deflate`, or empty."""


@dataclass(frozen=True, slots=True)
class Stores:
    """A request's events: see `event.Batch`."""

    count: int
    body: bytes
    payload_bytes: int
    answer: Answer
    """Once they are durable."""


class HttpSession:
    """One connection: a `batches.Session`, whose protocol says what requests get."""

    def __init__(
        self, settings: Settings[Any], clock: IReactorTime, origin: Origin
    ) -> None:
        self.settings = settings
        self.clock = clock
        self._origin = origin
        self._origins: dict[str, Origin] = {}
        self._requests = Requests()
        self._asked: Request | None = None
        """The request whose body comes."""
        self._origin_asked: Origin | None = None
        """The one who brings that request."""
        self._body = bytearray()
        """The part of its body that has come."""

    # What a protocol says

    def refusal(self, request: Request) -> Answer | None:
        """The error that *request* gets by its header; its body is not read then."""
        return None

    def asked(self, request: Request, body: Body) -> Steps[Answer | Stores]:
        """Answer a request: with what it stores, or at once.

        A generator, which yields a `Ready` with its `cost` after some work.
        """
        raise NotImplementedError

    def error(self, code: int, text: str) -> Answer:
        """An error in the protocol's own form."""
        return Answer(f"{text}\n".encode(), code=code)

    # batches.Session

    @property
    def held_bytes(self) -> int:
        return len(self._body) + self._requests.held_bytes

    def received(self, data: bytes) -> Iterator[Ready]:
        self._requests.feed(data)
        try:
            while (event := self._requests.next()) is not None:
                if isinstance(event, Request):
                    yield from self._head(event)
                elif event is END:
                    yield from self._whole()
                else:
                    assert isinstance(event, bytes)
                    self._body += event
                    self._check(len(self._body), "limits.message_bytes")
                    yield Ready(cost=10 * FRAME + BYTE * len(event))
        except BadRequest as why:
            raise Refusal(why.rule, reply=self._last(why.code, why.rule)) from None

    def _head(self, request: Request) -> Iterator[Ready]:
        self._asked = request
        refusal = self.refusal(request)
        self._origin_asked = self._who(request)
        coding = _coding(request)
        if refusal is None and coding and coding not in _CODINGS:
            refusal = self.error(415, f"content coding {coding!r}")
        if refusal is not None:
            if request.length == 0:
                self._requests.next()  # its end
            yield self._answered(refusal)
            return
        self._check(request.length or 0, "limits.message_bytes")
        if self._requests.waits_for_leave:
            yield Ready(ack=self._requests.leave())

    def _whole(self) -> Steps[None]:
        request, body = self._asked, bytes(self._body)
        assert request is not None
        coding = _coding(request)
        plain = body
        if coding and body:
            try:
                plain = yield from inflated(
                    body, coding, self.settings.limits.inflated_bytes
                )
            except ValueError as why:
                self._body.clear()
                yield self._answered(self.error(400, f"the body: {why}"))
                return
            self._check(len(plain), "limits.inflated_bytes")
        outcome = yield from self.asked(request, Body(plain, body, coding))
        self._body.clear()
        yield self._answered(outcome)

    def _answered(self, outcome: Answer | Stores) -> Ready:
        request, self._asked = self._asked, None
        assert request is not None
        answer = outcome if isinstance(outcome, Answer) else outcome.answer
        ack, close = self._requests.answer(answer, request)
        if isinstance(outcome, Answer) or not outcome.count:
            wrong = answer.code >= 400 and answer.code not in _LOOKING
            report = Refusal(f"answered {answer.code}") if wrong else None
            return Ready(ack=ack, cost=_REQUEST, control=1, close=close, report=report)
        return Ready(
            outcome.count,
            outcome.body,
            outcome.payload_bytes,
            ack,
            cost=_REQUEST + EVENT * outcome.count + BYTE * len(outcome.body),
            not_stored=self.later(503, "it can not be stored now", close=close),
            close=close,
            origin=self._origin_asked,
        )

    def later(self, code: int, text: str, *, close: bool = True) -> bytes:
        """Tells the peer to send again what was not stored."""
        answer = self.error(code, text)
        more = {**answer.headers, **_LATER}
        return answer_bytes(replace(answer, headers=more), close=close)

    def _last(self, code: int, text: str) -> bytes:
        return answer_bytes(self.error(code, text))

    def _check(self, size: int, key: str) -> None:
        limit = getattr(self.settings.limits, key.removeprefix("limits."))
        if size > limit:
            rule = f"body of {size} bytes"
            raise Refusal(rule, limit=limit, key=key, reply=self._last(413, rule))

    def _who(self, request: Request) -> Origin | None:
        """The origin of its events; None: the connection's."""
        tokens = self.settings.options.tokens
        if not tokens:
            return None
        given = _token(request)
        for name, token in tokens.items():
            if hmac.compare_digest(token.get_secret_value().encode(), given):
                if name not in self._origins:
                    self._origins[name] = replace(self._origin, principal=name)
                return self._origins[name]
        answer = self.error(401, "no token, or a wrong one")
        answer = replace(answer, headers={"WWW-Authenticate": "Bearer"})
        raise Refusal(
            "wrong token" if given else "no token",
            key="options.tokens",
            reply=answer_bytes(answer),
            wrong_credentials=bool(given),
        )


def _coding(request: Request) -> str:
    coding = ", ".join(request.fields(b"content-encoding")).strip().lower()
    return "" if coding == "identity" else coding


def _token(request: Request) -> bytes:
    """The token that a client shows: `Bearer`, `ApiKey`, or a password (`Basic`)."""
    text = next(iter(request.fields(b"authorization")), "")
    kind, _, given = text.partition(" ")
    if kind.lower() == "basic":
        try:
            return base64.b64decode(given, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return (
        given.strip().encode("latin-1") if kind.lower() in ("bearer", "apikey") else b""
    )


def inflated(data: bytes, coding: str, most: int) -> Steps[bytes]:
    """Decode *data*, in pieces, up to a little more than *most* bytes.

    Raises ValueError if it is not what *coding* says.
    """
    inflater = isal_zlib.decompressobj(wbits=_CODINGS[coding])
    found = bytearray()
    try:
        for at in range(0, len(data), _READ):
            rest = data[at : at + _READ]
            while rest and not inflater.eof:
                made = inflater.decompress(rest, _MADE)
                read = len(rest) - len(inflater.unconsumed_tail)
                rest = inflater.unconsumed_tail
                found += made
                if len(found) > most:
                    return bytes(found)
                yield Ready(cost=inflating(read, len(made)))
                if not (made or read):
                    break
            if inflater.eof:
                rest = inflater.unused_data or data[at + _READ :]
                break
    except (_ZlibError, ValueError) as why:
        raise ValueError(f"no {coding}: {why}") from None
    if not inflater.eof:
        raise ValueError(f"no end of its {coding}")
    if rest:
        raise ValueError(f"bytes behind the end of its {coding}")
    return bytes(found)


class HttpListener(BatchListener):
    """The servers' common part, of one listener.  Implements `interfaces.Accept`."""

    def __init__(
        self,
        settings: Settings[Any],
        journal: Journal,
        clock: IReactorTime,
        session: Any,
    ) -> None:
        super().__init__(settings, journal, clock, session)
        self.waiting: Deadlines[HttpServer] = Deadlines(
            clock, _PATIENCE, HttpServer.waited
        )

    def __call__(self, connection: Connection) -> HttpServer:
        return HttpServer(self, connection)


class HttpServer(BatchServer):
    """One connection, whose peer does not wait for long."""

    __slots__ = ()

    _listener: HttpListener

    def stored(self, stored: Stored) -> None:
        super().stored(stored)
        if self._busy_since is not None:
            self._listener.waiting.watch(self)

    def waited(self) -> None:
        """Nothing was answered for some seconds."""
        journal, session = self._listener.journal, self._session
        answered = False
        for pending in self._pending or ():
            if pending.batch is not None and journal.withdraw(pending.batch):
                pending.ack, pending.batch = pending.not_stored, None
                answered = True
        self._acknowledge()
        self._settle()
        comes = self.held_bytes or self._connection.unread_input
        if comes and self._not_read and not (answered or self._pending):
            assert isinstance(session, HttpSession)
            own = not journal.full and journal.over_share(self._connection.origin)
            code, text = (429, "more than its share") if own else (503, "no room")
            why = f"answered {code}, it was not read for {_PATIENCE:g} s: {text}"
            self.give_up(Refusal(why, reply=session.later(code, text)))
        elif self._busy_since is not None:
            self._listener.waiting.watch(self)
