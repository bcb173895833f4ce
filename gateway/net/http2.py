"""HTTP/2 under a protocol: one connection carries one stream, a protocol's octets both ways.

    connection ─► Carrier.received ─► h2 ─► the protocol's server
               ◄─ Carrier.write    ◄─ h2 ◄─

A `Carrier` stands between a connection and the server of what it carries, and is each to
the other.  A client asks by `POST` with the protocol's content type, or by extended
CONNECT (RFC 8441) with that type's name.  From the answer's head on, DATA is octets, and
where frames end means nothing.

*One stream*: limits, address and turns are those of the connection, as with any other
transport (docs/adr/0037-one-stream-of-http2.md).  A second stream is refused with
REFUSED_STREAM, which says that another connection may have it.

*Windows*: the peer's input is credited when the server has taken it, and a server that
takes nothing is not read, as elsewhere.  Output beyond the peer's windows waits here, and
counts as unsent for `writing` and `memory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RequestReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from hyperframe.frame import SettingsFrame

from gateway.net.phase import Phase
from gateway.net.reading import READ_BYTES
from gateway.sdk.costs import ControlBudget, Turn
from gateway.sdk.http2 import CONTROL_BYTES, FrameCutter, is_open, served
from gateway.sdk.interfaces import Aging, Publishing, Refusal, Server, Yielding

if TYPE_CHECKING:
    from twisted.internet.interfaces import IDelayedCall

    from gateway.net.connection import AcceptedConnection
    from gateway.net.listen import Listener

_ANSWERS = 4
"""Frames that a client may send for each DATA frame that it gets: it credits two windows."""
_SETTINGS = {
    SettingCodes.INITIAL_WINDOW_SIZE: READ_BYTES,
    SettingCodes.ENABLE_CONNECT_PROTOCOL: 1,
}
_ONE_STREAM = SettingsFrame(0, {SettingCodes.MAX_CONCURRENT_STREAMS: 1}).serialize()
"""Told apart from h2, which would end the connection for a second stream that was sent
before the client had seen this."""


class Stage(Enum):
    """How far the one stream is."""

    WAITING = "waiting"
    """No request was granted yet."""
    CARRYING = "carrying"
    ENDING = "ending"
    """The server has closed; what it wrote waits for the peer's window."""
    ENDED = "ended"
    """All is sent; the peer is to end its side, and what it sends is dropped."""
    OVER = "over"
    """Nothing is taken or sent any more."""


class Carrier(Publishing, Yielding, Aging):
    """One HTTP/2 connection: an `interfaces.Server`, and the `Connection` of its stream's.

    42 methods, as it is both: 19 and 8 are those of the two interfaces.
    """

    def __init__(self, below: AcceptedConnection, listener: Listener) -> None:
        self.origin = below.origin
        self.report, self.count = below.report, below.count
        self.introduced = below.introduced
        self._below = below
        self._listener = listener
        self._type = listener.http2.encode()
        self._h2 = served(_SETTINGS)
        self._h2.increment_flow_control_window(READ_BYTES)
        self._cutter = FrameCutter()
        self._control = ControlBudget(
            listener.clock.seconds, listener.limits.control_messages
        )
        self._stage = Stage.WAITING
        self._stream = 0
        self._server: Server | None = None
        self._payload: list[bytes] = []
        """Payload of this turn's frames, for the server."""
        self._pending = bytearray()
        """Output that waits for the peer's windows."""
        self._late: IDelayedCall | None = None
        """When the peer has had its time, once the server has closed."""
        self._held = 0, 0
        """Bytes of input that is not whole, and of output, as the server says."""
        self._choked = False
        """More waits than the server is to add to."""
        self._asked = False
        """The server has input left, or waits for room: it is to have a turn."""
        self._paused = False
        self._busy = False
        self._peer_ended = False
        """The peer has ended its side of the stream."""
        self._peer_gone = False
        """The peer has reset the stream, or sent GOAWAY, behind which h2 sends nothing."""
        below.times.deadline = listener.seconds() + listener.limits.handshake
        below.write(self._h2.data_to_send() + _ONE_STREAM)

    # Called by the connection: `interfaces.Server`

    def received(self, data: bytes) -> None:
        if self._stage is Stage.OVER:
            return
        self._cutter.feed(data)
        if not data and self._server is not None:
            self._asked = False
            self._deliver(b"")
        if self._takes:
            self._read()
        self._settle()
        if self._cutter.unread and self._takes:
            self._below.again()
        self._count_held()

    def closed(self) -> None:
        self._stage = Stage.OVER
        self._count_pending(0)
        if self._late is not None and self._late.active():
            self._late.cancel()
        self._leave_server()

    def drain(self) -> None:
        """Have the server end the stream, or leave if there is none.

        GOAWAY comes with the end of the stream: no other could be opened before, and many
        a client (h2 among them) hears nothing that comes behind it.
        """
        if self._server is None:
            self._leave()
        else:
            self._server.drain()

    def aged(self) -> None:
        if isinstance(self._server, Aging):
            self._server.aged()

    def writable(self, ready: bool) -> None:  # noqa: FBT001 - a state, not a mode
        if ready and self._choked:  # the socket takes more, the peer's window does not
            self._below.output.pauseProducing()
        elif isinstance(self._server, Publishing):
            self._server.writable(ready)

    def give_up(self, why: Refusal) -> None:
        if isinstance(self._server, Yielding):
            self._server.give_up(why)
        else:
            self.refuse(why)

    def begun(self) -> str:
        return self._server.begun() if isinstance(self._server, Yielding) else ""

    # Called by the stream's server: `interfaces.Connection`

    @property
    def framed(self) -> bool:
        """False: it is a stream of octets."""
        return False

    @property
    def unsent_bytes(self) -> int:
        return self._below.unsent_bytes

    def write(self, data: bytes) -> None:
        if self._stage is not Stage.CARRYING or self._below.phase >= Phase.CLOSING:
            return
        if not self._below.output.outgrows(len(data)):
            self._pending += data
            self._push()

    def write_each(self, messages: Sequence[bytes | memoryview]) -> None:
        self.write(b"".join(messages))

    def close(self) -> None:
        if self._stage is not Stage.CARRYING:
            return
        self._stage = Stage.ENDING
        self._push()
        if self._stage is not Stage.OVER:
            listener = self._listener
            self._late = listener.clock.callLater(listener.linger, self._leave)
            self._paused = self._asked = False
            self._below.resume()  # its window, or its end, is in what is not read
            self._read_on()

    def abort(self) -> None:
        self._stage = Stage.OVER
        self._below.abort()

    def pause(self) -> None:
        self._paused = True
        self._below.pause()

    def resume(self) -> None:
        self._paused = False
        self._below.resume()
        self._read_on()

    def take_no_more(self) -> None:
        self._paused = True
        self._cutter = FrameCutter()
        self._count_held()
        self._below.take_no_more()

    def again(self) -> None:
        self._asked = True
        self._below.again()

    def may_begin(self) -> bool:
        begins = self._below.may_begin()
        self._asked = self._asked or not begins
        return begins

    @property
    def waits_for_room(self) -> bool:
        return self._below.waits_for_room

    def hold(self, size: int, unsent: int = 0) -> None:
        self._held = size, unsent
        self._count_held()

    def _count_held(self) -> None:
        """Frames that the server has not got, too, are in memory."""
        size, unsent = self._held
        self._below.hold(size + self._cutter.unread_bytes, unsent)

    @property
    def unread_input(self) -> bool:
        return self._cutter.unread or self._below.unread_input

    def refuse(self, why: Refusal) -> None:
        """Refuse, with as much of the reply as the peer's window takes."""
        if self._stage is Stage.OVER:
            return
        self._pending += why.reply
        self._fill()
        self._go_away()
        self._below.ending.refuse(why, self._h2.data_to_send())

    def busy(self, waiting: bool) -> None:  # noqa: FBT001 - as the interface
        self._busy = waiting
        if self._peer_ended and not waiting:
            # After the acknowledgement that this may stand right before, and before a FIN.
            self._listener.clock.callLater(0, self._settle)
        self._below.busy(waiting)

    # Input

    @property
    def _takes(self) -> bool:
        """Frames may be read: their payload has somewhere to go."""
        return not (self._asked or self._paused or self._stage is Stage.OVER)

    def _read(self) -> None:
        """One turn of frames, and what they had for the server in one piece."""
        try:
            piece, frames = self._cutter.take(Turn())
        except Refusal as why:
            self._h2.close_connection(ErrorCodes.FRAME_SIZE_ERROR)
            self._violated(why)
            return
        try:
            events = self._h2.receive_data(piece)
        except ProtocolError as why:
            self._violated(Refusal(f"HTTP/2: {why or type(why).__name__}"))
            return
        for event in events:
            frames += self._take(event)
        payload, self._payload = b"".join(self._payload), []
        if payload:
            self._deliver(payload)
        if self._peer_gone:
            self._lost()
        self._push()
        flood = self._control.spend(frames)
        if flood is not None and self._stage is not Stage.OVER:
            self._h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            self._violated(flood)

    def _take(self, event: Event) -> int:
        """Take it; how many frames it counts beside its own."""
        match event:
            case DataReceived():
                length = event.flow_controlled_length or 0
                if length:
                    self._h2.acknowledge_received_data(length, event.stream_id)
                if event.data and event.stream_id == self._stream:
                    self._payload.append(event.data)
                    return -1  # it moves data
            case RequestReceived():
                self._request(event)
                return sum(len(value) for _, value in event.headers) // CONTROL_BYTES
            case StreamEnded() if event.stream_id == self._stream:
                self._peer_ended = True
            case StreamReset() if event.stream_id == self._stream:
                self._peer_gone = True
            case ConnectionTerminated():
                self._peer_gone = True
        return 0

    def _deliver(self, data: bytes) -> None:
        if self._server is None or self._stage is not Stage.CARRYING:
            return
        try:
            self._server.received(data)
        except Refusal as why:
            self.refuse(why)

    def _read_on(self) -> None:
        if self._cutter.unread and self._takes:
            self._below.again()

    def _settle(self) -> None:
        """Close if the peer has ended its side, and its server has had and answered all."""
        if self._stage is Stage.ENDED and self._peer_ended:
            self._leave()
        elif self._peer_ended and not (self._busy or self._asked or self._paused):
            self._below.ending.by_peer()
            self.close()

    # The request

    def _request(self, event: RequestReceived) -> None:
        stream = event.stream_id
        if self._stage is not Stage.WAITING:
            if is_open(self._h2, stream):
                self._h2.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
            self._below.report(Refusal("streams of an HTTP/2 connection", limit=1))
            return
        fields = {bytes(name): bytes(value) for name, value in event.headers}
        fault = self._fault(fields)
        if fields.get(b":protocol") == b"websocket" and self._listener.websocket:
            # A browser tries it so if it has this connection for something else.
            if is_open(self._h2, stream):
                self._h2.reset_stream(stream, ErrorCodes.HTTP_1_1_REQUIRED)
        elif fault is not None:
            self._answer(stream, *fault)
        elif is_open(self._h2, stream):
            head = [(b":status", b"200"), (b"content-type", self._type)]
            self._h2.send_headers(stream, head)
            self._stream, self._stage = stream, Stage.CARRYING
            self._below.times.deadline = None
            try:
                self._server = self._listener.accept(self)
            except Refusal as why:
                self.refuse(why)

    def _fault(self, fields: dict[bytes, bytes]) -> tuple[int, str] | None:
        """The answer to a request that is not for what is carried here; None: it is."""
        method, wanted = fields.get(b":method"), self._type.decode()
        name = self._type.rpartition(b"/")[2]
        if method == b"CONNECT":
            found = fields.get(b":protocol")
            return (
                None if found == name else (501, f":protocol is {name.decode()} here")
            )
        if method != b"POST":
            return 405, f"POST {wanted}, or CONNECT with :protocol {name.decode()}"
        found = fields.get(b"content-type", b"").partition(b";")[0].strip().lower()
        return None if found == self._type else (415, f"content-type is {wanted} here")

    def _answer(self, stream: int, status: int, line: str) -> None:
        """Refuse a request, with as much of *line* as the peer's window takes; the
        connection may have another.
        """
        self._below.report(Refusal(f"HTTP/2 request answered with {status}: {line}"))
        if not is_open(self._h2, stream):
            return
        head = [(b":status", b"%d" % status), (b"content-type", b"text/plain")]
        self._h2.send_headers(stream, head)
        text = f"{line}\n".encode()[: self._h2.local_flow_control_window(stream)]
        self._h2.send_data(stream, text, end_stream=True)
        if is_open(self._h2, stream):
            self._h2.reset_stream(stream, ErrorCodes.NO_ERROR)

    # Output

    def _push(self) -> None:
        """Send what the peer's windows take, and whatever h2 has to say."""
        self._fill()
        if output := self._h2.data_to_send():
            self._below.write(output)
        if self._stage is Stage.ENDING and not self._pending:
            self._stage = Stage.ENDED
            if is_open(self._h2, self._stream):
                self._h2.end_stream(self._stream)
                self._below.write(self._h2.data_to_send())
            if self._peer_ended:
                self._leave()

    def _fill(self) -> None:
        """Give h2 what the peer's windows take."""
        h2, stream, pending = self._h2, self._stream, self._pending
        if not is_open(h2, stream):
            pending.clear()
        at = 0
        while at < len(pending):
            room = min(h2.local_flow_control_window(stream), h2.max_outbound_frame_size)
            if room <= 0:
                break
            h2.send_data(stream, bytes(pending[at : at + room]))
            at += room
            self._control.earn(_ANSWERS)
        del pending[:at]
        self._count_pending(len(pending))

    def _count_pending(self, size: int) -> None:
        """Let the connection know what waits here, as if it were in its transport."""
        below = self._below
        below.output.hold_back(size)
        if not self._choked and size > READ_BYTES:
            self._choked = True
            below.output.pauseProducing()
        elif self._choked and not size:
            self._choked = False
            below.output.resumeProducing()

    # The end

    def _go_away(self) -> None:
        """Give h2 the last that there is to say: the stream's end, and GOAWAY.

        A stream whose end was sent is not reset, though its peer has not ended it.  Clients
        as curl drop what they have not read of one that is.
        """
        before, self._stage = self._stage, Stage.OVER
        if before is not Stage.ENDED and is_open(self._h2, self._stream):
            if self._pending:
                self._h2.reset_stream(self._stream, ErrorCodes.CANCEL)
            else:
                self._h2.end_stream(self._stream)
        self._h2.close_connection()

    def _leave(self) -> None:
        """Both sides have ended, or the peer has had its time."""
        if self._stage is not Stage.OVER:
            self._go_away()
            self._below.write(self._h2.data_to_send())
            self._below.close()

    def _violated(self, why: Refusal) -> None:
        """The peer broke HTTP/2, or floods: h2 has the GOAWAY that says so."""
        self._stage = Stage.OVER
        self._leave_server()
        self._below.ending.refuse(why, self._h2.data_to_send())

    def _lost(self) -> None:
        """The peer has left without an end of its side: the server hears of a lost one."""
        if self._stage is Stage.OVER:
            return
        below = self._below
        below.ending.by_peer()
        self._leave()
        self._leave_server()

    def _leave_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.closed()
