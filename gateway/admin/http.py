"""One connection of the admin port: HTTP/1.1 by h11, as a server of a listener's.

Bytes come from `gateway.net`, with its TLS, PROXY headers, limits and turns; `sdk.http1`
makes requests of them, and bytes of answers; `site` says what is answered.  What is here is
when:

- One request is served in a turn.  What came behind it waits for a turn of its own, unread,
  and until the peer has taken the answers so far.
- A request is refused by its header.  A body that is not wanted is not read: the answer
  says that the connection ends, and it does.
- A request must be whole in time, from the beginning of its connection or from its first
  byte on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from gateway.admin.site import POST_BYTES, Outcome, Request, Site, plain
from gateway.admin.stream import EventStream
from gateway.plugins import RAISED
from gateway.sdk import http1
from gateway.sdk.http1 import END, BadRequest, Requests, answer_bytes
from gateway.sdk.interfaces import Connection, Publishing, Refusal
from gateway.sdk.protocol import Answer

_REQUEST_SECONDS = 15.0
"""Seconds for a whole request."""
_EVENTS_IN_A_TURN = 100
"""A body may come in chunks of a byte."""
_ALWAYS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class HttpServer(Publishing):
    """A connection of the admin port.

    *served* is told of each whole request, and whether it has an answer that goes on.
    """

    def __init__(
        self,
        connection: Connection,
        site: Site,
        clock: IReactorTime,
        served: Callable[[Connection, bool], object],
    ) -> None:
        self._connection = connection
        self._site = site
        self._clock = clock
        self._served = served
        self._requests = Requests()
        self._asked: Request | None = None
        """The request whose body comes."""
        self._body = bytearray()
        """The body so far."""
        self._answering: Request | None = None
        """The request that is whole, until its answer is."""
        self._stream: EventStream | None = None
        self._writable = True
        self._ending = False
        """No other request is served."""
        self._timer: IDelayedCall | None = None
        """The timer of a request that has begun; or of the answer to a wrong token."""
        self._wait()

    # interfaces.Server

    def received(self, data: bytes) -> None:
        self._requests.feed(data)
        if self._answering is not None or not self._writable:
            if self._requests.held_bytes:
                self._connection.pause()
            return
        try:
            self._read()
        except BadRequest as why:
            reply = self._last_words(why.code, why.rule)
            raise Refusal(why.rule, reply=reply) from None

    def writable(self, ready: bool) -> None:  # noqa: FBT001 - as the interface
        self._writable = ready
        if self._stream is not None:
            self._stream.writable = ready
        elif ready and self._answering is None:
            self._next()

    def closed(self) -> None:
        self._answering = None
        self._stop_waiting()
        self._end_stream()

    def drain(self) -> None:
        self._ending = True
        if self._stream is not None:
            self._stream.end()
        elif self._answering is None:
            self._connection.close()

    # Requests

    def _read(self) -> None:
        """Take what came, up to the end of one request."""
        for _ in range(_EVENTS_IN_A_TURN):
            event = self._requests.next()
            if event is None:
                if self._begun and self._timer is None:
                    self._wait()
                return
            if isinstance(event, http1.Request):
                self._head(event)
            elif event is END:
                self._whole()
            elif self._asked is not None and isinstance(event, bytes):
                self._body += event
                if len(self._body) > POST_BYTES:
                    text = f"more than {POST_BYTES} bytes"
                    self._whole(plain(413, text, self._asked.path))
            if self._asked is None:
                return
        self._connection.again()

    def _head(self, head: http1.Request) -> None:
        trusted = self._site.access.trusted
        self._asked = request = Request(head.method, head.target, head.headers, trusted)
        refusal = self._site.refusal(request)
        if refusal is not None or not self._site.is_post(request):
            if request.length == 0:
                self._requests.next()  # its end
            self._whole(refusal)
        elif self._requests.waits_for_leave:
            self._connection.write(self._requests.leave())

    def _whole(self, refusal: Answer | None = None) -> None:
        """Answer the request: it is whole, or the rest of its body is not wanted."""
        request, self._asked = self._asked, None
        assert request is not None
        self._answering = request
        body, self._body = bytes(self._body), bytearray()
        self._stop_waiting()
        self._served(self._connection, False)
        if refusal is None:
            self._respond(request, self._site.answer(request, body))
            return
        seconds = 0.0
        if refusal.code == 401 and request.fields(b"authorization"):
            # Browsers ask without one first.
            why = Refusal("wrong token", key="admin.token", wrong_credentials=True)
            seconds = self._connection.report(why)
        if seconds:
            self._connection.busy(True)
            self._timer = self._clock.callLater(seconds, self._answer, refusal)
        else:
            self._answer(refusal)

    @property
    def _begun(self) -> bool:
        """A part of a request is there."""
        return self._asked is not None or self._requests.held_bytes > 0

    def _wait(self) -> None:
        """Wait for the rest of a request, and not for long."""
        self._timer = self._clock.callLater(_REQUEST_SECONDS, self._too_late)

    def _stop_waiting(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _too_late(self) -> None:
        rule, limit = "request not complete", f"{_REQUEST_SECONDS:g} s"
        reply = self._last_words(408, f"{rule} in {limit}") if self._begun else b""
        self._connection.refuse(Refusal(rule, limit=limit, reply=reply))

    # Answers

    def _respond(self, request: Request, outcome: Outcome) -> None:
        if isinstance(outcome, EventStream):
            self._begin_stream(outcome)
        elif isinstance(outcome, Deferred):
            self._connection.busy(True)
            outcome.addErrback(lambda why: self._site.failed(request, why))
            outcome.addCallback(self._answer)
        else:
            self._answer(outcome)

    def _answer(self, answer: Answer) -> None:
        """Write a whole response; HEAD gets its header only."""
        request = self._answering
        if request is None:  # who asked has gone
            return
        self._stop_waiting()
        try:
            sent, ends = self._sent(answer, request)
        except RAISED:  # fields or a body of a plug-in's that are none
            sent, ends = self._sent(self._site.failed(request, Failure()), request)
        self._connection.write(sent)
        self._done(ends=ends)

    def _sent(self, answer: Answer, request: Request) -> tuple[bytes, bool]:
        return self._requests.answer(_dressed(answer), request, close=self._ending)

    def _last_words(self, code: int, text: str) -> bytes:
        """An answer to what is no request, unless that is in the middle of another."""
        self._ending = True
        if not self._requests.unanswered:
            return b""
        return answer_bytes(_dressed(plain(code, text)))

    def _done(self, *, ends: bool) -> None:
        """The answer is written: go on, or end."""
        self._answering = None
        self._connection.busy(False)
        if ends or self._ending:
            self._connection.close()
            return
        self._next()

    def _next(self) -> None:
        """There may be another request."""
        self._connection.resume()
        if self._begun:
            self._connection.again()

    # Answers that go on

    def _begin_stream(self, stream: EventStream) -> None:
        self._stream = stream
        stream.writable = self._writable
        self._site.streams[stream] = self._connection
        self._served(self._connection, True)
        fields = {**_ALWAYS, **stream.headers}
        self._connection.write(self._requests.begin(200, fields, close=self._ending))
        stream.begin(self._send_events)

    def _send_events(self, data: bytes | None) -> None:
        if self._stream is None:
            return
        if data is not None:
            self._connection.write(self._requests.more(data))
            self._connection.busy(False)  # it is not idle
            return
        sent, ends = self._requests.end()
        self._connection.write(sent)
        self._end_stream()
        self._served(self._connection, False)
        self._done(ends=ends)

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            del self._site.streams[stream]
            stream.gone()


def _dressed(answer: Answer) -> Answer:
    headers = {**_ALWAYS, **answer.headers}
    return replace(answer, body=bytes(answer.body), headers=headers)
