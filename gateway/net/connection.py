"""One accepted connection: the `interfaces.Connection` of its server, and what it is made of.

    phase       how far it is: a table of states, and of what may follow each
    intake      what its transport brings, on its way to the server
    handshake   the steps up to its server: PROXY header, TLS, detection, WebSocket
    layers      TLS and WebSocket frames, where it has them
    pacing      when it is read, and when the server gets what was read
    reading     what its server has not had, and why it is not read: a set of reasons
    calls       what the network tells its server
    writing     what is sent, and a peer that does not read it
    http2       what is carried in HTTP/2, and by what windows
    holding     what it holds in memory, and whether that comes any further
    ending      how it ends, and why
    looks       what it is late with, as is looked every few seconds

Each acts for one party: `Intake` for the transport that reads, `PeerOutput` for the one that
writes, `ServerCalls` and `AcceptedConnection` for the server, `Ending` for whatever ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted.python.failure import Failure

from gateway.event import Origin
from gateway.net.admission import Standing
from gateway.net.calls import ServerCalls
from gateway.net.connection_log import Seen
from gateway.net.ending import Ending
from gateway.net.holding import Holding
from gateway.net.intake import Intake
from gateway.net.layers import Layers
from gateway.net.looks import Times
from gateway.net.phase import FOLLOWS, Phase
from gateway.net.reading import Unread
from gateway.net.transport import NO_TRANSPORT, Transport
from gateway.net.websocket_frames import binary_message, binary_messages
from gateway.net.writing import PeerOutput
from gateway.sdk.interfaces import Refusal

if TYPE_CHECKING:
    from gateway.net.listen import Listener

_SERVING, _ANSWERING, _CLOSING = Phase.SERVING, Phase.ANSWERING, Phase.CLOSING
_LOST = Phase.LOST
# By these names, as a member of an enumeration takes longer to find than to compare.


class AcceptedConnection:
    """The connection of a protocol's server, whatever is below it.

    26 methods: `interfaces.Connection` has 19 of them.
    """

    __slots__ = (
        "_listener",
        "calls",
        "counted",
        "ending",
        "events",
        "held",
        "host",
        "input",
        "layers",
        "origin",
        "output",
        "phase",
        "standing",
        "times",
        "transport",
    )  # fmt: skip

    def __init__(self, listener: Listener, host: str, peer: str) -> None:
        self.host = host
        """The peer that rejections and `connections_per_peer` are about."""
        self.standing = Standing.UNCOUNTED
        self.counted = ""
        """The address or principal that it counts for: see `admission`."""
        self.origin = Origin(
            listener.protocol, listener.name, listener.next_session(), peer
        )
        self.phase = Phase.NEW
        self.transport: Transport = NO_TRANSPORT
        self.layers: Layers | None = None
        """None: its socket has the protocol's own bytes."""
        self.held: Holding | None = None
        """None: it never held anything, or waited to."""
        self.times = Times(listener.seconds())
        self.events = 0
        """Events that became durable, ever."""
        self.input = Intake(self, listener)
        self.output = PeerOutput(self, listener)
        self.calls = ServerCalls(self, listener)
        self.ending = Ending(self, listener)
        self._listener = listener

    def become(self, phase: Phase) -> None:
        """Go on to *phase*; from `ANSWERING` on, what comes or waits is dropped."""
        assert phase in FOLLOWS[self.phase], (self.phase, phase)
        input_ = self.input
        if phase > _SERVING and input_.is_spare:
            input_.received = (
                0  # but for TLS's own: it only looked whether we speak that
            )
        self.phase = phase
        if phase >= _SERVING:
            input_.setup = None
        if phase <= _SERVING:
            input_.set_read_bytes()
        else:
            input_.drop_all()

    @property
    def layered(self) -> Layers:
        """The layers, made now if there were none."""
        if self.layers is None:
            self.layers = Layers(self)
        return self.layers

    @property
    def holding(self) -> Holding:
        """The memory that it holds, counted from now on if it was not."""
        if self.held is None:
            self.held = Holding(self._listener.memory.account(self.ending, self.host))
        return self.held

    def drop_input(self) -> None:
        """The server is to have nothing more."""
        if self.phase < _ANSWERING:
            self.become(_ANSWERING)

    def lose(self, reason: Failure, why: str) -> None:
        """Let go of all as the transport is lost; *why* is logged if nothing ended it before."""
        if self.layers is not None:
            self.layers.stop(reason)
        self.transport = NO_TRANSPORT
        self.layers = None
        self.calls.closed()
        if self.held is not None:
            self.held.release()
        self._listener.closed(self)
        if self.input.received:  # many a load balancer only looks whether we are there
            self._listener.connection_log.closed(
                self.origin, self.ending.why or why, lambda: self.seen
            )

    @property
    def seen(self) -> Seen:
        """The figures of the connection so far."""
        origin = self.origin
        return Seen(
            listener=origin.listener,
            session=origin.session,
            peer=origin.peer,
            principal=origin.principal,
            seconds=self._listener.seconds() - self.times.began,
            bytes=self.input.received,
            events=self.events,
            unacknowledged=origin.unacknowledged,
            paused=bool(self.input.unread & Unread.PAUSED),
            last_error=self.ending.last_error,
        )

    # `interfaces.Connection`: what comes

    def pause(self) -> None:
        """The server takes nothing for now."""
        self.input.add(Unread.PAUSED)

    def resume(self) -> None:
        """The server takes more."""
        self.input.closed_since = None
        self.input.remove(Unread.PAUSED)

    def take_no_more(self) -> None:
        """The server takes nothing ever again."""
        if self.phase < _CLOSING:
            self.input.unread |= Unread.PAUSED
            self.drop_input()
            self.input.read_or_not()

    def again(self) -> None:
        """The server has input left, and waits for a turn."""
        self.input.again()

    def may_begin(self) -> bool:
        """Whether the server may begin one more message."""
        input_ = self.input
        if not input_.unread and self._listener.memory.plenty:
            return True
        if self.phase >= _CLOSING or input_.room_in_memory():
            return True
        input_.add(Unread.TURN)
        return False

    @property
    def waits_for_room(self) -> bool:
        """Others go first; `memory` says who."""
        return bool(self.input.unread & Unread.ROOM)

    @property
    def unread_input(self) -> bool:
        """There is input that the server has not had."""
        return self.input.has_unread

    def hold(self, size: int, unsent: int = 0) -> None:
        held = self.held
        if held is None:
            if self.phase is _LOST or not (size or unsent):
                return
            held = self.holding
        held.hold(size, unsent)

    # What is sent

    @property
    def framed(self) -> bool:
        return self.layers is not None and self.layers.frames is not None

    @property
    def unsent_bytes(self) -> int:
        return self.output.unsent_bytes

    def write(self, data: bytes) -> None:
        if self.phase < _CLOSING:
            framed = self.layers is not None and self.layers.frames is not None
            self.output.send(binary_message(data) if framed else data)

    def write_each(self, messages: Sequence[bytes | memoryview]) -> None:
        if self.phase >= _CLOSING:
            return
        if self.framed:
            self.output.send(binary_messages(messages))
        else:
            self.output.send(*messages)

    # What it did, and its end

    def busy(self, waiting: bool) -> None:  # noqa: FBT001 - as the interface
        self.times.busy = waiting
        if not waiting:
            self.times.active = True
            if self.input.unread & (Unread.FIN | Unread.END) == Unread.FIN:
                # After the acknowledgement that this may stand right before.
                self._listener.clock.callLater(0, self.close)

    def introduced(self) -> None:
        self._listener.admission.proven(self)

    def count(self, *, events: int) -> None:
        self._listener.traffic.events += events
        if not self.events:
            self.introduced()
        self.events += events
        if self.held is not None:
            self.held.account.served()

    def report(self, why: Refusal) -> float:
        return self.ending.report(why)

    def refuse(self, why: Refusal) -> None:
        self.ending.refuse(why)

    def close(self) -> None:
        self.ending.close()

    def abort(self) -> None:
        self.ending.abort()
