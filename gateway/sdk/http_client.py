"""HTTP requests to other services: bounded in time, in number and in size.

    http://HOST:PORT/PATH   https://HOST/PATH   unix:/run/auth.sock:/PATH

Connections are kept alive; redirects are not followed.  A request that gets no answer,
because its connection ends, may be sent once more, if what it asks may be asked twice.
Twisted's own client does the rest (docs/adr/0012-backends.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.defer import TimeoutError as TimedOut
from twisted.internet.endpoints import UNIXClientEndpoint
from twisted.internet.error import (
    ConnectError,
    ConnectingCancelledError,
    DNSLookupError,
)
from twisted.internet.protocol import Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.client import (  # type: ignore[attr-defined] # one is not in `__all__`
    Agent,
    BrowserLikePolicyForHTTPS,
    HTTPConnectionPool,
    RequestNotSent,
    RequestTransmissionFailed,
    ResponseNeverReceived,
)
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IBodyProducer, IPolicyForHTTPS
from zope.interface import implementer

from gateway.sdk.fair import FairQueue

__all__ = ["QUIET_SECONDS", "Backend", "Reply", "Unconnected", "Unreachable"]

_ANSWER_BYTES = 1 << 16
_IDLE_SECONDS = 15
"""Seconds for which a connection is kept on which nothing is sent."""
_LOST = (RequestNotSent, RequestTransmissionFailed, ResponseNeverReceived)
_CANCELLED = (CancelledError, ConnectingCancelledError)
QUIET_SECONDS = 60.0
"""Seconds without a second line of a kind about one service in the log."""
_NEWS_SECONDS = 300.0
"""Seconds for which a failure is told, unless an answer comes."""


class Unreachable(Exception):
    """There is no answer, or none of use; str() says why."""


class Unconnected(Unreachable):
    """No connection could be made, so the service has seen nothing of it."""


class Reply(msgspec.Struct):
    """The answer of a service."""

    code: int
    body: bytes

    def json(self, kind: Any) -> Any:
        """The body as an object of this type.  Raises `Unreachable`."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as why:
            raise Unreachable(f"answers {self.code}, and its body: {why}") from None


@define(eq=False, slots=False)
class Backend:
    """One service.  Who waits for it takes turns with the others, by address.

    A request takes *seconds* at most, waiting included; *requests* run at once.  With
    *repeat* one whose connection ends without an answer is sent once more.  An answer
    has *answer_bytes* at most.  Each request has these *headers*; *policy* says whose
    certificates are believed.  *agent* is one of Twisted's, if none is to be made.

    The log has a line when it is away, once a minute at most, and one when it is back.

    17 attributes: nine are given; the others are who waits, and how long it was away.
    """

    _log = Logger()

    url: str
    _reactor: Any
    _seconds: float
    _free: int = field(alias="requests")
    repeat: bool = True
    """Whether the request may be repeated."""
    _answer_bytes: int = _ANSWER_BYTES
    _headers: Mapping[str, str] = {}
    _policy: IPolicyForHTTPS | None = None
    _agent: Any = None

    def __attrs_post_init__(self) -> None:
        self._queue: FairQueue[Deferred[None]] = FairQueue()
        path, self._uri = _target(self.url)
        self._pool = HTTPConnectionPool(self._reactor)
        self._pool.maxPersistentPerHost = self._free
        self._pool.cachedConnectionTimeout = _IDLE_SECONDS
        self._agent = self._agent or self._new_agent(path)
        self._failed_at = float("-inf")
        self._failure = ""
        self._away = False
        self._told_away_at = float("-inf")
        self.waiting = 0
        """Requests that have no answer yet."""

    @property
    def trouble(self) -> str | None:
        """The reason why it did not answer the last time; old news is none."""
        lately = self._reactor.seconds() - self._failed_at < _NEWS_SECONDS
        failed = lately and self._failure
        return f"{self.url} does not answer: {failed}" if failed else None

    def _new_agent(self, path: str | None) -> Any:
        if path is None:
            return Agent(
                self._reactor,
                self._policy or BrowserLikePolicyForHTTPS(),
                connectTimeout=self._seconds,
                pool=self._pool,
            )
        endpoints = _UnixSocket(self._reactor, path, self._seconds)
        return Agent.usingEndpointFactory(self._reactor, endpoints, self._pool)

    def post(self, value: object, client: str = "") -> Deferred[Reply]:
        """Post this as JSON; fails with `Unreachable`.  May be cancelled.

        If it has to wait, then in turn with what is posted for other *client*s.
        """
        return self._bounded(b"POST", value, client)

    def get(self) -> Deferred[Reply]:
        """Get it; fails with `Unreachable`.  May be cancelled."""
        return self._bounded(b"GET", None, "")

    def _bounded(self, method: bytes, value: object, client: str) -> Deferred[Reply]:
        self.waiting += 1
        done = Deferred.fromCoroutine(self._in_turn(method, value, client))
        done.addTimeout(self._seconds, self._reactor)
        done.addCallbacks(self._answered, self._failed)
        return done

    def close(self) -> None:
        """Let go of the connections that are kept."""
        self._pool.closeCachedConnections()

    async def _in_turn(self, method: bytes, value: object, client: str) -> Reply:
        if self._free:
            self._free -= 1
        else:
            turn: Deferred[None] = Deferred(partial(self._queue.remove, client))
            self._queue.put(client, turn)
            await turn
        try:
            body = None if method == b"GET" else msgspec.json.encode(value)
            return await self._ask(method, body)
        finally:
            if self._queue:
                self._queue.take().callback(None)
            else:
                self._free += 1

    async def _ask(self, method: bytes, body: bytes | None) -> Reply:
        try:
            try:
                return await self._ask_once(method, body)
            except _LOST as why:
                if not self.repeat or _is_cancelled(why):
                    raise
            return await self._ask_once(method, body)
        except Exception as why:
            # Nobody waits for it any more: Twisted's client says so in its own words.
            if _is_cancelled(why):
                raise CancelledError from None
            raise

    async def _ask_once(self, method: bytes, body: bytes | None) -> Reply:
        fields = {"Content-Type": "application/json"} if body is not None else {}
        fields |= self._headers
        headers = Headers({name: [value] for name, value in fields.items()})
        response = await self._agent.request(
            method, self._uri, headers, None if body is None else _Whole(body)
        )
        collector = _Collector(self._answer_bytes)
        response.deliverBody(collector)
        return Reply(response.code, await collector.done)

    def _answered(self, reply: Reply) -> Reply:
        self.waiting -= 1
        self._failure = ""
        if self._away:
            self._away = False
            self._log.info("{url} answers again", url=self.url)
        return reply

    def _failed(self, why: Failure) -> Failure:
        self.waiting -= 1
        if why.check(CancelledError):
            return why
        timed_out = why.check(TimedOut) is not None
        text = f"no answer in {self._seconds:g} s" if timed_out else _reason(why)
        now = self._reactor.seconds()
        self._failed_at, self._failure = now, text
        if not self._away and now - self._told_away_at >= QUIET_SECONDS:
            self._away, self._told_away_at = True, now
            self._log.error("{url} does not answer: {why}", url=self.url, why=text)
        never = why.check(ConnectError, DNSLookupError)
        return Failure(Unconnected(text) if never else Unreachable(text))


@implementer(IBodyProducer)
class _Whole:
    """A short body."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: Any) -> Deferred[None]:
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None: ...

    def resumeProducing(self) -> None: ...

    def stopProducing(self) -> None: ...


class _Collector(Protocol):
    """The body of an answer, unless it is too long."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.done: Deferred[bytes] = Deferred(lambda _: self._abort())
        self._pieces: list[bytes] = []
        self._size = 0

    def dataReceived(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= self._most:
            self._pieces.append(data)
        elif not self.done.called:
            self.done.errback(Unreachable(f"answers with more than {self._most} B"))
            self._abort()

    def connectionLost(self, reason: Failure | None = None) -> None:
        """All of it has come, or the connection is gone: JSON tells which."""
        if not self.done.called:
            self.done.callback(b"".join(self._pieces))

    def _abort(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()


@implementer(IAgentEndpointFactory)
@define(eq=False, slots=False)
class _UnixSocket:
    """Leads everywhere."""

    _reactor: Any
    _path: str
    _seconds: float

    def endpointForURI(self, uri: object) -> UNIXClientEndpoint:
        return UNIXClientEndpoint(self._reactor, self._path, timeout=self._seconds)


def _target(url: str) -> tuple[str | None, bytes]:
    """The unix socket, if it is one, and the URI of the request."""
    if not url.startswith("unix:"):
        return None, url.encode()
    path, _, page = url.removeprefix("unix:").partition(":")
    return path, b"http://localhost" + (page or "/").encode()


def _reason(why: Failure) -> str:
    inner = getattr(why.value, "reasons", None)
    return inner[0].getErrorMessage() if inner else why.getErrorMessage()


def _is_cancelled(why: Exception) -> bool:
    reasons = getattr(why, "reasons", ())
    return isinstance(why, _CANCELLED) or any(
        each.check(*_CANCELLED) for each in reasons
    )
