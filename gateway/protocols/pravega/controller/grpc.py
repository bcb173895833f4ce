"""The server side of a gRPC connection, without I/O: unary calls over HTTP/2.

`h2` implements HTTP/2.  This adds what gRPC needs: one message with a prefix of five bytes
in each direction, a status in the trailers, a deadline, and limits of unfinished calls.  The
status is in the headers when a call fails.  A call that breaks a rule
fails with a status.  A client that breaks HTTP/2 is refused, with GOAWAY.

No I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from urllib.parse import quote

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from hyperframe.frame import GoAwayFrame

from gateway.sdk.costs import Turn
from gateway.sdk.http2 import CONTROL_BYTES, FrameCutter, is_open, served
from gateway.sdk.interfaces import Refusal

_PREFIX = 5
_UNITS = {b"H": 3600, b"M": 60, b"S": 1, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT = re.compile(rb"(\d{1,8})([HMSmun])")
_HEAD = [(b":status", b"200"), (b"content-type", b"application/grpc")]
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_TEXT = 500


class Code(IntEnum):
    """gRPC's status codes, as far as they are used."""

    OK = 0
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class Failed(Exception):
    """A call fails with this status and text, which clients log."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def over_limit(
    what: str,
    limit: int,
    key: str | None = None,
    *,
    code: Code = Code.RESOURCE_EXHAUSTED,
) -> Failed:
    """The error of a call that goes over a limit; *key* is its configuration key."""
    return Failed(code, str(Refusal(what, limit=limit, key=key)))


@dataclass(slots=True, eq=False)
class Call:
    """A complete request."""

    stream: int
    """The id of its HTTP/2 stream."""
    path: str
    """`/package.Service/method`."""
    authority: str
    """`host:port` as the client addressed the server."""
    authorization: str = ""
    timeout: float | None = None
    """How many seconds the client waits."""
    message: bytes = b""


@dataclass(slots=True)
class _Open:
    """An HTTP/2 stream whose answer is not sent yet."""

    call: Call
    body: bytearray = field(default_factory=bytearray)
    answer: memoryview | None = None
    """The bytes to send before the trailers."""


class Calls:
    def __init__(self, *, message_bytes: int, streams: int) -> None:
        """Limit the calls at once to *streams*, and the bytes of each to *message_bytes*."""
        self._limit = message_bytes
        self._open: dict[int, _Open] = {}
        self._last = 0
        self._draining = False
        self.held_bytes = 0
        """Size of the incomplete messages."""
        self._h2 = served({SettingCodes.MAX_CONCURRENT_STREAMS: streams})
        self._frames = FrameCutter()
        self.control = 0
        """Frames from the client; its user may reset it to 0."""
        self._goaway = b""
        self._window_opened = False
        """The client may have opened its flow control window."""
        self.unsent_bytes = 0
        """Size of the answers that wait for the client's flow control window."""
        self.left = False
        """The client has sent GOAWAY."""

    @property
    def open(self) -> int:
        return len(self._open)

    def waits(self, call: Call) -> bool:
        """Whether the client still wants the answer."""
        found = self._open.get(call.stream)
        return found is not None and found.call is call and found.answer is None

    @property
    def unread(self) -> bool:
        """The turn of the last `received` was over before the input was."""
        return self._frames.unread

    def received(self, data: bytes, turn: Turn) -> Iterator[Call]:
        """The calls that are complete with *data*.  Raises `Refusal`.

        Stops when *turn* is over; then call it again, perhaps without bytes.
        """
        self._frames.feed(data)
        try:
            data, frames = self._frames.take(turn)
        except Refusal as why:
            self._h2.close_connection(ErrorCodes.FRAME_SIZE_ERROR)
            why.reply = self.output()
            raise
        self.control += frames
        try:
            # h2 has already seen all of these events when the first one is taken: a
            # stream that the last one ends is closed by then.
            taken = [self._take(event) for event in self._h2.receive_data(data)]
            self._push_all()
        except ProtocolError as why:
            raise Refusal(
                f"HTTP/2: {why or type(why).__name__}", reply=self.output()
            ) from None
        for call in taken:
            if call is not None and self.waits(call):
                yield call

    def output(self) -> bytes:
        goaway, self._goaway = self._goaway, b""
        return self._h2.data_to_send() + goaway

    def answer(self, call: Call, message: bytes) -> None:
        """Answer a call, if the client still waits for it."""
        if self.waits(call):
            self._h2.send_headers(call.stream, _HEAD)
            found = self._open[call.stream]
            found.answer = memoryview(b"\0" + len(message).to_bytes(4) + message)
            self.unsent_bytes += len(found.answer)
            self._push(call.stream, found)

    def fail(self, call: Call, code: Code, text: str) -> None:
        """Fail a call, if the client still waits for it."""
        if self.waits(call):
            self._fail(call.stream, code, text)

    def drain(self) -> None:
        """Send GOAWAY: take no new calls, and answer the open ones."""
        if not self._draining:
            self._draining = True
            frame = GoAwayFrame(0, last_stream_id=self._last)
            self._goaway = self._h2.data_to_send() + frame.serialize()

    def calm(self, why: Refusal) -> Refusal:
        """*why*, with a GOAWAY that tells the client to calm down."""
        self._h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
        why.reply = self.output()
        return why

    # -- requests ------------------------------------------------------------------

    def _take(self, event: Event) -> Call | None:
        match event:
            case RequestReceived():
                self._begin(event)
            case DataReceived():
                return self._arrived(event)
            case StreamEnded():
                return self._complete(event.stream_id)
            case StreamReset():
                self._forget(event.stream_id)
            case ConnectionTerminated():
                self.left = True
                for stream in list(self._open):
                    self._forget(stream)
            case WindowUpdated() | RemoteSettingsChanged():
                self._window_opened = True
        return None

    def _begin(self, event: RequestReceived) -> None:
        stream = event.stream_id
        if self._draining:
            self._reset(stream, ErrorCodes.REFUSED_STREAM)
            return
        self._last = stream
        headers = {bytes(name): bytes(value) for name, value in event.headers}
        size = sum(len(value) for _, value in event.headers)
        self.control += size // CONTROL_BYTES
        self._open[stream] = _Open(
            Call(
                stream,
                _text(headers, b":path"),
                _text(headers, b":authority") or _text(headers, b"host"),
                _text(headers, b"authorization"),
                _seconds(headers.get(b"grpc-timeout")),
            )
        )
        if headers.get(b":method") != b"POST":
            self._refuse(stream, [(b":status", b"405")])
        elif not headers.get(b"content-type", b"").startswith(b"application/grpc"):
            self._refuse(stream, [(b":status", b"415")])

    def _arrived(self, event: DataReceived) -> Call | None:
        stream = event.stream_id
        length = event.flow_controlled_length
        if length:
            self._h2.acknowledge_received_data(length, stream)
        found = self._open.get(stream)
        if found is None or found.answer is not None:
            return None
        body = found.body
        body += event.data
        self.held_bytes += len(event.data)
        if len(body) < _PREFIX:
            return None
        size = int.from_bytes(body[1:_PREFIX])
        if body[0]:
            self._fail(stream, Code.UNIMPLEMENTED, "compressed messages are not taken")
        elif size > self._limit:
            text = f"message of {size} bytes, limit {self._limit}"
            self._fail(stream, Code.RESOURCE_EXHAUSTED, text)
        elif len(body) > _PREFIX + size:
            self._fail(stream, Code.UNIMPLEMENTED, "more than one message")
        return None

    def _complete(self, stream: int) -> Call | None:
        found = self._open.get(stream)
        if found is None:
            return None
        body = found.body
        if len(body) < _PREFIX or len(body) != _PREFIX + int.from_bytes(body[1:5]):
            self._fail(stream, Code.INVALID_ARGUMENT, "the message is cut off")
            return None
        found.call.message = bytes(body[_PREFIX:])
        self._release(found)
        return found.call

    # -- answers --------------------------------------------------------------------

    def _push_all(self) -> None:
        """Send what fits now; once for many WINDOW_UPDATE frames that came together."""
        if self._window_opened and self.unsent_bytes:
            for stream, found in list(self._open.items()):
                self._push(stream, found)
        self._window_opened = False

    def _push(self, stream: int, found: _Open) -> None:
        """Send as much of an answer as fits into the client's window."""
        if found.answer is None:
            return
        while found.answer:
            room = min(
                self._h2.local_flow_control_window(stream),
                self._h2.max_outbound_frame_size,
            )
            if room <= 0:
                return
            self._h2.send_data(stream, found.answer[:room].tobytes())
            self.unsent_bytes -= len(found.answer[:room])
            found.answer = found.answer[room:]
        self._h2.send_headers(stream, [(b"grpc-status", b"0")], end_stream=True)
        self._finish(stream)

    def _fail(self, stream: int, code: Code, text: str) -> None:
        text = text[:_TEXT]  # it may have a name as long as a message
        trailers = [
            (b"grpc-status", str(int(code)).encode()),
            (b"grpc-message", quote(text, safe=_PRINTABLE).encode()),
        ]
        self._refuse(stream, _HEAD + trailers)

    def _refuse(self, stream: int, headers: list[tuple[bytes, bytes]]) -> None:
        if is_open(self._h2, stream):
            self._h2.send_headers(stream, headers, end_stream=True)
        self._finish(stream)

    def _finish(self, stream: int) -> None:
        """The call is answered: reset the stream if the client has not ended it."""
        self._forget(stream)
        self._reset(stream, ErrorCodes.NO_ERROR)

    def _reset(self, stream: int, code: ErrorCodes) -> None:
        if is_open(self._h2, stream):
            self._h2.reset_stream(stream, code)

    def _forget(self, stream: int) -> None:
        found = self._open.pop(stream, None)
        if found is not None:
            self._release(found)

    def _release(self, found: _Open) -> None:
        self.unsent_bytes -= len(found.answer or b"")
        self.held_bytes -= len(found.body)
        found.body.clear()


def _text(headers: dict[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")


def _seconds(timeout: bytes | None) -> float | None:
    found = _TIMEOUT.fullmatch(timeout or b"")
    return None if found is None else int(found[1]) * _UNITS[found[2]]
