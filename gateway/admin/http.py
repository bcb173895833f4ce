"""One connection of the admin port: HTTP/1.1 by h11, as a server of a listener's.

Bytes come from `gateway.net`, with its TLS, PROXY headers, limits and turns; h11 makes
requests of them, and keeps account of where both sides are; `site` says what is answered.
What is here is when:

- One request is served in a turn.  What came behind it waits for a turn of its own, unread,
  and until the peer has taken the answers so far.
- A request is refused by its header.  A body that nobody wants is not read: the answer
  says that the connection ends, and it does.
- A request must be whole in time, from the beginning of its connection or from its first
  byte on.

What a proxy before us could read in another way than we do is refused: h11 takes no
malformed line, and a body has one length (RFC 9112 §6.3, §11.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from email.utils import formatdate
from http.client import responses

import h11
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from gateway.admin.site import POST_BYTES, Outcome, Request, Site, plain
from gateway.admin.stream import EventStream
from gateway.plugins import RAISED
from gateway.sdk.interfaces import Connection, Publishing, Refusal
from gateway.sdk.protocol import Answer

METHODS = tuple(
    method + b" "
    for method in (
        b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE",
        b"CONNECT",
    )
)  # fmt: skip
"""How requests begin that get an answer, if only that there is no such method here."""
_REQUEST_SECONDS = 15.0
"""For a whole request."""
_HEAD_BYTES = 1 << 14
"""Of a request's line and fields, or of what says how long a chunk is."""
_MOST_FIELDS = 100
_PIECE_BYTES = 1 << 10
"""Of a header: h11 and we look at these limits between two of them."""
_EVENTS_IN_A_TURN = 100
"""A body may come in chunks of a byte."""
_FRAMING = frozenset({"content-length", "transfer-encoding"})
"""How long a response is, is not for a page to say."""


class HttpServer(Publishing):
    """See `gateway.sdk.interfaces.Server`.

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
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self._unread = b""
        """What came, and h11 has not."""
        self._asked: Request | None = None
        """The request whose body comes, …"""
        self._body = bytearray()
        """… what of it has come, …"""
        self._answering: Request | None = None
        """… and the request that is whole, until its answer is."""
        self._stream: EventStream | None = None
        self._writable = True
        self._ending = False
        """No other request is served."""
        self._timer: IDelayedCall | None = None
        """Of a request that has begun; or of the answer to a wrong token."""
        self._wait()

    # interfaces.Server

    def received(self, data: bytes) -> None:
        """See `interfaces.Server`."""
        self._unread += data
        if self._answering is not None or not self._writable:
            if self._unread:
                self._connection.pause()
            return
        try:
            self._read()
        except h11.RemoteProtocolError as why:
            # What h11 names behind a colon is the peer's: of that there is no end.
            rule = f"no HTTP request: {str(why).partition(':')[0]}"
            reply = self._last_words(why.error_status_hint, rule)
            raise Refusal(rule, reply=reply) from None

    def writable(self, ready: bool) -> None:  # noqa: FBT001 - as the interface
        """See `interfaces.Publishing`."""
        self._writable = ready
        if self._stream is not None:
            self._stream.writable = ready
        elif ready and self._answering is None:
            self._next()

    def closed(self) -> None:
        """See `interfaces.Server`."""
        self._answering = None
        self._stop_waiting()
        self._end_stream()

    def drain(self) -> None:
        """See `interfaces.Server`."""
        self._ending = True
        if self._stream is not None:
            self._stream.end()
        elif self._answering is None:
            self._connection.close()

    # Requests

    def _read(self) -> None:
        """Take what came, up to the end of one request."""
        for _ in range(_EVENTS_IN_A_TURN):
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if not self._unread:
                    if self._begun and self._timer is None:
                        self._wait()
                    return
                self._feed()
                continue
            if isinstance(event, h11.Request):
                self._head(event)
            elif isinstance(event, h11.Data) and self._asked is not None:
                self._body += event.data
                if len(self._body) > POST_BYTES:
                    text = f"more than {POST_BYTES} bytes"
                    self._whole(plain(413, text, self._asked.path))
            elif isinstance(event, h11.EndOfMessage):
                self._whole()
            if self._asked is None:
                return
        self._connection.again()

    def _feed(self) -> None:
        size = _HEAD_BYTES
        if self._asked is None:
            size = _PIECE_BYTES
            if self._http.trailing_data[0].count(b"\n") > _MOST_FIELDS:
                raise h11.RemoteProtocolError(f"more than {_MOST_FIELDS} fields", 431)
        self._http.receive_data(self._unread[:size])
        self._unread = self._unread[size:]

    def _head(self, event: h11.Request) -> None:
        if not event.http_version.startswith(b"1."):
            raise h11.RemoteProtocolError("not of version 1", 505)
        self._asked = request = Request(
            event.method.decode(),
            event.target.decode(),
            list(event.headers),
            self._site.access.trusted,
        )
        refusal = self._site.refusal(request)
        if request.fields(b"transfer-encoding") and (
            request.fields(b"content-length") or event.http_version == b"1.0"
        ):
            refusal = plain(400, "two lengths of one body", request.path)
        if refusal is not None or not self._site.is_post(request):
            if not request.has_body:
                self._http.next_event()  # its end
            self._whole(refusal)
        elif self._http.they_are_waiting_for_100_continue:
            self._write(h11.InformationalResponse(status_code=100, headers=[]))

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
        return self._asked is not None or bool(self._http.trailing_data[0])

    def _wait(self) -> None:
        """For the rest of a request, and not for long."""
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
        bare = request.method == "HEAD"
        try:
            events = self._events(answer, bare=bare)
        except RAISED:  # fields or a body of a plug-in's that are none
            failed = self._site.failed(request, Failure())
            events = self._events(failed, bare=bare)
        self._write(*events)
        self._done()

    def _events(self, answer: Answer, *, bare: bool = False) -> list[h11.Event]:
        body = bytes(answer.body)
        more = answer.headers.items()
        head = self._response(
            answer.code,
            {
                "Content-Type": answer.content_type,
                "Content-Length": str(len(body)),
                **{name: text for name, text in more if name.lower() not in _FRAMING},
            },
        )
        if bare or not body or answer.code in (204, 304):
            return [head, h11.EndOfMessage()]
        return [head, h11.Data(data=body), h11.EndOfMessage()]

    def _response(self, code: int, more: Mapping[str, str]) -> h11.Response:
        fields = {
            "Date": formatdate(usegmt=True),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            **more,
        }
        if self._ending or self._http.their_state is h11.SEND_BODY:  # and is not read
            fields["Connection"] = "close"
        return h11.Response(
            status_code=code, reason=responses.get(code, ""), headers=[*fields.items()]
        )

    def _write(self, *events: h11.Event) -> None:
        self._connection.write_each(
            [part for event in events if (part := self._http.send(event))]
        )

    def _last_words(self, code: int, text: str) -> bytes:
        """An answer to what is no request, unless that is in the middle of another."""
        self._ending = True
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return b""
        events = self._events(plain(code, text))
        return b"".join(self._http.send(event) or b"" for event in events)

    def _done(self) -> None:
        """The answer is written: go on, or end."""
        self._answering = None
        self._connection.busy(False)
        if self._http.our_state is not h11.DONE or self._ending:
            self._connection.close()
            return
        self._http.start_next_cycle()
        self._next()

    def _next(self) -> None:
        """There may be another request."""
        self._connection.resume()
        if self._unread or self._begun:
            self._connection.again()

    # Answers that go on

    def _begin_stream(self, stream: EventStream) -> None:
        self._stream = stream
        stream.writable = self._writable
        self._site.streams[stream] = self._connection
        self._served(self._connection, True)
        self._write(self._response(200, stream.headers))
        stream.begin(self._send_events)

    def _send_events(self, data: bytes | None) -> None:
        if self._stream is None:
            return
        if data is not None:
            self._write(h11.Data(data=data))
            self._connection.busy(False)  # it is not idle
            return
        self._write(h11.EndOfMessage())
        self._end_stream()
        self._served(self._connection, False)
        self._done()

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            del self._site.streams[stream]
            stream.gone()
