"""An RS.io connection's state machine, client or server side: hello, streams, goodbye.

    new -- our hello --> greeting -- their hello --> open -- goodbye --> leaving
    leaving -- goodbye | goodbyeAck --> closed        open -- their goodbye --> closed

`received` takes bytes and yields `signals`; the other methods send messages, whose
bytes `take` returns.  `consumer` has the streams that we subscribe to, `producer`
those that the peer subscribes to; a connection may have both.  Wrong use by our own
side raises ValueError.  A violation by the peer raises `Refusal`, whose reply holds
our goodbye.

A number like 1.9 is a rule of the Reactive Streams specification.

No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from gateway.protocols.rsio import messages
from gateway.protocols.rsio.consumer import Consumer
from gateway.protocols.rsio.decoder import ENDLESS, Decoder, Overrun, Oversized, Run
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import Code, Extension
from gateway.protocols.rsio.outbound import Outbound, State
from gateway.protocols.rsio.producer import Producer
from gateway.protocols.rsio.signals import (
    Announced,
    GoodbyeReceived,
    HelloReceived,
    Signal,
    TokenReceived,
)
from gateway.sdk.costs import REPLY, Turn
from gateway.sdk.interfaces import Refusal

_PART_MOVES = 64
"""Bytes of a part that count as much as an element: tiny parts are control messages."""

_ZLIB = 1
"""The only compression algorithm: zlib, flushed after each block."""


class Session:
    """One end of a connection.

    27 methods, most of them short: one for a message, or for a signal.
    """

    __slots__ = ("_decoder", "_fed", "_offered", "_outbound", "consumer", "control",
                 "moved", "producer", "server")  # fmt: skip

    def __init__(
        self, limits: Limits, *, server: bool, offered: Iterable[Extension] = ()
    ) -> None:
        self.server = server
        self._outbound = Outbound(limits, server=server)
        self.consumer = Consumer(self._outbound)
        self.producer = Producer(self._outbound)
        self.control = 0
        """Messages from the peer other than elements; its user may reset it to 0."""
        self.moved = 0
        """Elements from and to the peer, parts as one for each 64 bytes; its user may
        reset it to 0."""
        self._fed = 0
        self._offered = tuple(sorted(offered))
        hello = Code.CLIENT_HELLO if server else Code.SERVER_HELLO
        legal = frozenset({hello, Code.GOODBYE})
        self._decoder = Decoder(self.consumer.streams, limits, legal)

    @property
    def state(self) -> State:
        return self._outbound.state

    @property
    def extensions(self) -> frozenset[Extension]:
        """The extensions that both hellos listed; empty until `HelloReceived`."""
        return self._outbound.extensions

    @property
    def held_bytes(self) -> int:
        """Bytes buffered of incomplete messages and elements."""
        return self._decoder.held_bytes + self.consumer.held_bytes

    # -- what arrives ---------------------------------------------------------

    @property
    def taken(self) -> int:
        """How many bytes were decoded so far, of a block as many as were inflated."""
        return self._fed - self._decoder.unread_bytes

    @property
    def inflates(self) -> bool:
        """The peer may send blocks (extension 6)."""
        return self._decoder.inflates

    @property
    def unread(self) -> bool:
        """The turn of the last `received` was over before the input was."""
        return self._decoder.stopped and self.state is not State.CLOSED

    def received(self, data: bytes, turn: Turn | None = None) -> Iterator[Signal]:
        """Take the next bytes, however the transport cut them; yields their signals.

        Stops when *turn* is over; then call it again, perhaps without bytes.

        Raises `Refusal` if the peer broke the protocol; then the conversation is over.
        """
        outbound, decoder = self._outbound, self._decoder
        if outbound.state is State.CLOSED:
            return
        if data:
            self._fed += len(data)
            decoder.feed(data)
        turn = decoder.turn = Turn(ENDLESS) if turn is None else turn
        if self.producer.sent:  # each may be answered with a request for another
            decoder.allow(self.producer.sent)
            self.moved += self.producer.sent
            self.producer.sent = 0
        try:
            while (token := decoder.next()) is not None:
                if type(token) is Run:
                    token.stream.arrived += token.count
                    self.moved += token.count
                    yield token
                else:
                    self.control += 1
                    turn.charge(REPLY)
                    signal = _HANDLERS[type(token)](self, token)
                    if signal is not None:
                        yield signal
                if self.state is State.CLOSED:  # after whatever the signal led to
                    return
        except Refusal as why:
            if outbound.state is not State.LEAVING:
                outbound.send(messages.Goodbye(outbound.with_code(400, why.rule)))
            self.lost()
            why.reply = self.take()
            raise
        finally:
            self.control += decoder.control
            decoder.control = 0

    def _hello(self, hello: messages.ClientHello | messages.ServerHello) -> Signal:
        outbound = self._outbound
        leaving = outbound.state is State.LEAVING
        if not leaving:
            if hello.version != messages.VERSION:
                raise Refusal(
                    f"unsupported version {hello.version}; {messages.VERSION} only"
                )
            if self.server:
                self.greet()
            outbound.state = State.OPEN
        if not (leaving and self.server):  # without our hello none is in use
            in_use = {each for each in self._offered if each in hello.extensions}
            if Extension.OFFSETS not in in_use:
                in_use.discard(Extension.INSTANCES)
            outbound.extensions = frozenset(in_use)
        self._decoder.legal = outbound.legal_types()
        return HelloReceived()

    def _goodbye(self, goodbye: messages.Goodbye) -> Signal:
        outbound = self._outbound
        if outbound.state is not State.LEAVING:
            known = Extension.GOODBYE_ACK in outbound.extensions
            outbound.send(messages.GoodbyeAck("") if known else messages.Goodbye(""))
        self.lost()
        return GoodbyeReceived(goodbye.reason)

    def _goodbye_ack(self, ack: messages.GoodbyeAck) -> Signal:
        if self.state is not State.LEAVING:
            raise Refusal("goodbyeAck without a goodbye")
        self.lost()
        return GoodbyeReceived(ack.message)

    def _ping(self, ping: messages.Ping) -> None:
        self._outbound.send(messages.Pong(ping.data))

    def _pong(self, pong: messages.Pong) -> None:
        """Nothing to do: any octet that arrives is a sign of life."""

    def _token(self, token: messages.Token) -> Signal:
        if not self.server:
            raise Refusal("token from a server")
        return TokenReceived(token.scheme, token.data)

    def _announce(self, announce: messages.Announce) -> Signal:
        if not self.server:
            raise Refusal("announce from a server")
        instance, resumed = announce.instance, announce.resumed
        if resumed > 1 or (resumed and not instance):
            raise Refusal(f"announce with {resumed} for whether it resumed")
        return Announced(announce.publisher, instance, resumed == 1)

    def _compress(self, compress: messages.Compress) -> None:
        known = compress.algorithm == _ZLIB
        if known:
            self._decoder.inflate()
        self._outbound.send(messages.CompressAck(_ZLIB if known else 0))

    def _part(
        self, part: messages.OnNextPart | messages.OnNextLastPart
    ) -> Signal | None:
        self.moved += len(part.data) // _PART_MOVES
        return self.consumer.part(part)

    def _compress_ack(self, ack: messages.CompressAck) -> None:
        if ack.algorithm == _ZLIB:
            self._outbound.compress()

    # -- what we send ---------------------------------------------------------

    def take(self) -> bytes:
        return self._outbound.take()

    def greet(self) -> None:
        """Send our hello.  For clients; a server answers clientHello by itself."""
        outbound = self._outbound
        if self.server:
            outbound.send(messages.ServerHello(messages.VERSION, self._offered))
        else:
            outbound.send(messages.ClientHello(messages.VERSION, self._offered))
            outbound.state = State.GREETING

    def goodbye(self, reason: str) -> None:
        """End all streams of both directions, and wait for the peer's answer."""
        outbound = self._outbound
        if outbound.state in (State.LEAVING, State.CLOSED):
            return
        outbound.send(messages.Goodbye(outbound.shortened(reason)))
        outbound.state = State.LEAVING
        self.consumer.end()
        self.producer.end()

    def identify(self, scheme: str, data: bytes) -> None:
        """Send a token: who we are (extension 4)."""
        self._outbound.require(Extension.AUTH)
        self._outbound.send(messages.Token(scheme, data))

    def announce(self, publisher: str, instance: bytes, *, resumed: bool) -> None:
        """Say that we publish, and as which instance (extension 7)."""
        self._outbound.require(Extension.INSTANCES)
        self._outbound.send(messages.Announce(publisher, instance, int(resumed)))

    def ping(self, data: bytes = b"") -> None:
        """Ask for a sign of life (extension 1)."""
        self._outbound.require(Extension.KEEPALIVE)
        self._outbound.send(messages.Ping(data))

    def compress(self) -> None:
        """Compress what we send as soon as the peer agrees (extension 6)."""
        self._outbound.require(Extension.COMPRESSION)
        self._outbound.send(messages.Compress(_ZLIB))

    def discard(self) -> None:
        """Forget what is buffered, and unsent: nothing more will be taken."""
        self._decoder.discard()
        self.consumer.discard()
        self.producer.parts.clear()

    def lost(self) -> None:
        """The transport is gone, or about to be closed: all streams end."""
        self._decoder.discard()
        self._outbound.state = State.CLOSED
        self.consumer.end()
        self.producer.end()


_Handler: TypeAlias = Callable[[Session, Any], Signal | None]

_HANDLERS: dict[type, _Handler] = {
    messages.ClientHello: Session._hello,  # noqa: SLF001 - the table is the session's
    messages.ServerHello: Session._hello,  # noqa: SLF001
    messages.Goodbye: Session._goodbye,  # noqa: SLF001
    messages.GoodbyeAck: Session._goodbye_ack,  # noqa: SLF001
    messages.Ping: Session._ping,  # noqa: SLF001
    messages.Pong: Session._pong,  # noqa: SLF001
    messages.Token: Session._token,  # noqa: SLF001
    messages.Announce: Session._announce,  # noqa: SLF001
    messages.Compress: Session._compress,  # noqa: SLF001
    messages.CompressAck: Session._compress_ack,  # noqa: SLF001
    messages.Limits: lambda self, told: self.producer.limits(told),
    messages.Subscribe: lambda self, asked: self.producer.subscribe(asked),
    messages.SubscribeFrom: lambda self, asked: self.producer.subscribe(asked),
    messages.Request: lambda self, request: self.producer.request(request),
    messages.Cancel: lambda self, cancel: self.producer.cancel(cancel),
    messages.Stored: lambda self, stored: self.producer.stored(stored),
    messages.OnSubscribe: lambda self, started: self.consumer.on_subscribe(started),
    messages.OnComplete: lambda self, done: self.consumer.on_complete(done),
    messages.OnError: lambda self, failed: self.consumer.on_error(failed),
    messages.OnNextPart: Session._part,  # noqa: SLF001
    messages.OnNextLastPart: Session._part,  # noqa: SLF001
    Overrun: lambda self, token: self.consumer.overrun(token),
    Oversized: lambda self, token: self.consumer.oversized(token),
}
