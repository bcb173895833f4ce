"""HTTP/1.1 at a server's end, without I/O: requests of bytes by h11, within limits, and answers.

What a proxy before us could read in another way than we do is refused: h11 takes no
malformed line, and a body has one length (RFC 9112 §6.3, §11.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from http.client import responses
from urllib.parse import parse_qsl

import h11

from gateway.sdk.protocol import Answer

__all__ = [
    "END",
    "METHODS",
    "BadRequest",
    "Request",
    "Requests",
    "answer_bytes",
]

METHODS = tuple(
    method + b" "
    for method in (
        b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE",
        b"CONNECT",
    )
)  # fmt: skip
"""How requests begin that get an answer, if only that there is no such method here:
`Port.prefixes` of who speaks HTTP."""
END = h11.EndOfMessage()
"""A request is whole."""
_HEAD_BYTES = 1 << 14
"""Bytes of a request's line and fields, or of a chunk's size."""
_MOST_FIELDS = 100
_PIECE_BYTES = 1 << 10
"""Bytes of a piece of a header: h11 and we look at these limits between two of them."""
_BODY_BYTES = 1 << 16
"""Bytes of a piece of a body."""
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection"})
"""How long a response is, and what follows it, is not for a page to say."""


class BadRequest(Exception):
    """The bytes are no request that we take."""

    def __init__(self, rule: str, code: int = 400) -> None:
        super().__init__(rule)
        self.rule, self.code = rule, code


@dataclass(frozen=True, slots=True)
class Request:
    """A request without its body."""

    method: str
    target: str
    """The target as sent: the path, and maybe a query."""
    headers: Sequence[tuple[bytes, bytes]]
    """Names in small letters."""

    @property
    def path(self) -> str:
        """The path as sent, without the query."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> Mapping[str, str]:
        """The last value of each name."""
        text = self.target.partition("?")[2]
        return dict(parse_qsl(text, keep_blank_values=True))

    def fields(self, name: bytes) -> list[str]:
        """The values of a header field; bytes beyond ASCII survive as latin-1."""
        return [
            value.decode("latin-1") for known, value in self.headers if known == name
        ]

    @property
    def length(self) -> int | None:
        """Bytes of its body, as declared; None: it comes in chunks."""
        if self.fields(b"transfer-encoding"):
            return None
        return next(map(int, self.fields(b"content-length")), 0)


class Requests:
    """The requests of one connection, one after the other, each to be answered.

    `next` gives a `Request`, pieces of its body, `END`, and then nothing before it is
    answered.
    """

    def __init__(self) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self._unread = bytearray()
        """Bytes that h11 has not got yet."""

    def feed(self, data: bytes) -> None:
        """Take bytes of the stream."""
        self._unread += data

    @property
    def held_bytes(self) -> int:
        """Bytes that came and were not given by `next`."""
        return len(self._unread) + len(self._http.trailing_data[0])

    def next(self) -> Request | bytes | h11.EndOfMessage | None:
        """The next part; None: nothing for now.  Raises `BadRequest`."""
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as why:
                # What h11 names behind a colon is the peer's: of that there is no end.
                rule = f"no HTTP request: {str(why).partition(':')[0]}"
                raise BadRequest(rule, why.error_status_hint) from None
            if isinstance(event, h11.Request):
                return self._head(event)
            if isinstance(event, h11.Data):
                return bytes(event.data)
            if isinstance(event, h11.EndOfMessage):
                return END
            if event is not h11.NEED_DATA or not self._unread:
                return None
            self._feed()

    def _feed(self) -> None:
        size = _BODY_BYTES
        if self._http.their_state is not h11.SEND_BODY:
            size = _PIECE_BYTES
            if self._http.trailing_data[0].count(b"\n") > _MOST_FIELDS:
                raise BadRequest(
                    f"no HTTP request: more than {_MOST_FIELDS} fields", 431
                )
        self._http.receive_data(bytes(self._unread[:size]))
        del self._unread[:size]

    def _head(self, event: h11.Request) -> Request:
        if not event.http_version.startswith(b"1."):
            raise BadRequest("no HTTP request: not of version 1", 505)
        target = event.target.decode()
        request = Request(event.method.decode(), target, list(event.headers))
        if request.length is None and (
            request.fields(b"content-length") or event.http_version == b"1.0"
        ):
            raise BadRequest("two lengths of one body")
        return request

    @property
    def waits_for_leave(self) -> bool:
        """The peer sends the body once it is told to (`Expect: 100-continue`)."""
        return bool(self._http.they_are_waiting_for_100_continue)

    def leave(self) -> bytes:
        """Tells the peer to send the body."""
        return self._send(h11.InformationalResponse(status_code=100, headers=[]))

    @property
    def unanswered(self) -> bool:
        """No answer has begun to the request that comes, or would come next."""
        return self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE)

    def answer(
        self, answer: Answer, request: Request, *, close: bool = False
    ) -> tuple[bytes, bool]:
        """A whole response, and whether the connection ends with it, as it does with
        *close*, and where the request is not read to its end.

        Raises whatever says that an answer's fields are none.
        """
        sent = self.begin(answer.code, _framed(answer), close=close)
        if answer.body and request.method != "HEAD" and answer.code not in (204, 304):
            sent += self.more(answer.body)
        last, ends = self.end()
        return sent + last, ends

    def begin(self, code: int, fields: Mapping[str, str], *, close: bool) -> bytes:
        """The header of a response whose body is sent by `more`, up to `end`."""
        close = close or self._http.their_state is h11.SEND_BODY
        return self._send(
            h11.Response(
                status_code=code,
                reason=responses.get(code, ""),
                headers=[*_header(fields, close=close).items()],
            )
        )

    def more(self, data: bytes) -> bytes:
        """A piece of the body."""
        return self._send(h11.Data(data=data))

    def end(self) -> tuple[bytes, bool]:
        """The end of a response, and whether the connection ends with it."""
        sent = self._send(h11.EndOfMessage())
        if self._http.our_state is not h11.DONE:
            return sent, True
        self._http.start_next_cycle()
        return sent, False

    def _send(self, event: h11.Event) -> bytes:
        return self._http.send(event) or b""


def answer_bytes(answer: Answer, *, close: bool = True) -> bytes:
    """A response beside the order of requests: to what is none, or instead of another."""
    lines = [f"HTTP/1.1 {answer.code} {responses.get(answer.code, '')}"]
    fields = _header(_framed(answer), close=close)
    lines += [f"{name}: {text}" for name, text in fields.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + answer.body


def _framed(answer: Answer) -> dict[str, str]:
    more = answer.headers.items()
    return {
        "Content-Type": answer.content_type,
        "Content-Length": str(len(answer.body)),
        **{name: text for name, text in more if name.lower() not in _FRAMING},
    }


def _header(fields: Mapping[str, str], *, close: bool) -> dict[str, str]:
    end = {"Connection": "close"} if close else {}
    return {"Date": formatdate(usegmt=True), **fields, **end}
