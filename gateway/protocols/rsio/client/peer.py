"""A connection from a program's side: what it subscribes to, what it publishes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gateway.interfaces import Refusal
from gateway.protocols.rsio.client.outbox import Outbox
from gateway.protocols.rsio.client.publishing import Publishing
from gateway.protocols.rsio.client.runtime import (
    Condition,
    Disconnected,
    Runtime,
    Transport,
)
from gateway.protocols.rsio.client.subscription import Subscription
from gateway.protocols.rsio.decoder import Run
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import Extension
from gateway.protocols.rsio.session import Session, State
from gateway.protocols.rsio.signals import (
    Cancelled,
    DemandAdded,
    GoodbyeReceived,
    Opened,
    Signal,
    StoredReceived,
    SubscribeReceived,
    Terminated,
    Violated,
)
from gateway.protocols.rsio.streams import Consumed, Served

__all__ = ["Peer"]

_HELLO_SECONDS = 10.0
_GOODBYE_SECONDS = 5.0
_WRITE_BYTES = 1 << 16
_LIMITS = Limits(element_bytes=1 << 24)
_ALWAYS = (Extension.KEEPALIVE, Extension.GOODBYE_ACK)


class Peer:
    """Whoever is at the other end.  Made by `connect`."""

    def __init__(
        self,
        transport: Transport,
        runtime: Runtime,
        *,
        name: str | None = None,
        token: str | None = None,
        compress: bool = False,
        extensions: Iterable[Extension] = _ALWAYS,
        limits: Limits | None = None,
    ) -> None:
        """*name* is who we are; with it, publishing goes on exactly where it was.

        *token* proves it, where proof is asked for.
        """
        offered = {*extensions}
        if name is not None or token is not None:
            offered |= {Extension.AUTH, Extension.OFFSETS}
        if compress:
            offered.add(Extension.COMPRESSION)
        self.can_write = True
        """The transport takes more."""
        self._session = Session(limits or _LIMITS, server=False, offered=offered)
        self._transport = transport
        self._runtime = runtime
        self._name = name
        self._token = token
        self._compress = compress
        self._changed = Condition(runtime)
        self._waiting: list[Subscription] = []
        self._subscriptions: set[Subscription] = set()
        self._publishing: dict[str, Publishing] = {}
        self._unwritten = 0
        self._flushing = False
        self._why: str | None = None
        self._closing = False
        self._session.greet()
        self._flush()
        self._greeted = runtime.later(_HELLO_SECONDS, self._never_greeted)

    @property
    def extensions(self) -> frozenset[Extension]:
        """What both know; empty until `opened`."""
        return self._session.extensions

    async def opened(self) -> None:
        """Wait until both sides have said hello."""
        while self._session.state is State.GREETING:
            await self._changed.wait()
        if self._session.state is State.CLOSED:
            raise Disconnected(self._why or "closed")

    def subscribe(
        self, publisher: str, *, window: int = 1024, offset: int | None = None
    ) -> Subscription:
        """The elements of one of the other end's publishers.

        *window* is how many may be here at once; *offset*, in extension 2, how many of
        them we have already.
        """

        def ask() -> Consumed:
            consumer = self._session.consumer
            return consumer.subscribe(publisher, window, offset=offset)

        subscription = Subscription(self, ask, Condition(self._runtime), window)
        self._subscriptions.add(subscription)
        if self._why is not None:
            subscription.lost(self._why)
        elif self._session.state is State.OPEN:
            subscription.opened()
            self._flush()
        else:
            self._waiting.append(subscription)
        return subscription

    def publisher(
        self,
        name: str,
        *,
        size: int = 0,
        outbox: Outbox | None = None,
        confirms: bool = True,
    ) -> Publishing:
        """Publish under *name*, to whoever subscribes to it.

        ValueError if that is done already.  `Publishing` says what the others mean.
        """
        if name in self._publishing:
            raise ValueError(f"{name} is published already")
        made = Publishing(
            self,
            Condition(self._runtime),
            Outbox() if outbox is None else outbox,
            size=size,
            confirms=confirms,
        )
        self._publishing[name] = made
        if self._why is not None:
            made.lost(self._why)
        else:
            for stream in self._session.producer.streams.values():
                if stream.publisher == name and stream.context is None:
                    self._offer(stream, made)
            self._flush()
        return made

    async def close(self, reason: str = "") -> None:
        """Say goodbye, and wait for the answer, but not for long."""
        if self._session.state is State.CLOSED:
            return
        self._session.goodbye(reason)
        self._flush()
        give_up = self._runtime.later(_GOODBYE_SECONDS, self._transport.abort)
        while self._why is None:
            await self._changed.wait()
        give_up()

    def abandon(self) -> None:
        """Go without a goodbye."""
        self._abandon("abandoned")

    def _abandon(self, why: str) -> None:
        self._session.lost()
        self._end(why)
        self._closing = True
        self._transport.abort()

    # What subscriptions and publishers ask for

    def request(self, stream: Consumed, more: int) -> None:
        """More elements of a stream."""
        self._session.consumer.request(stream, more)
        self._flush()

    def cancel(self, stream: Consumed) -> None:
        """No more of them."""
        if isinstance(stream.context, Subscription):
            self._subscriptions.discard(stream.context)
        self._session.consumer.cancel(stream)
        self._flush()

    def stored(self, stream: Consumed, offset: int) -> None:
        """So many are safe."""
        self._session.consumer.stored(stream, offset)
        self._flush()

    def send(self, stream: Served, elements: Sequence[bytes]) -> None:
        """Publish."""
        self._session.producer.send(stream, elements)
        self._wrote(sum(map(len, elements)))

    def send_packed(self, stream: Served, octets: bytes) -> None:
        """Publish."""
        self._session.producer.send_packed(stream, octets)
        self._wrote(len(octets))

    def finish(self, stream: Served, error: str | None) -> None:
        """Publish no more."""
        if error is None:
            self._session.producer.complete(stream)
        else:
            self._session.producer.fail(stream, error)
        self._flush()

    def forget(self, publishing: Publishing) -> None:
        """Its name is free again."""
        for name, one in list(self._publishing.items()):
            if one is publishing:
                del self._publishing[name]

    def _wrote(self, size: int) -> None:
        """Small things are written together, in the next turn."""
        self._unwritten += size
        if self._unwritten >= _WRITE_BYTES:
            self._flush()
        elif not self._flushing:
            self._flushing = True
            self._runtime.soon(self._flush_later)

    def _flush_later(self) -> None:
        self._flushing = False
        self._flush()

    def _flush(self) -> None:
        self._unwritten = 0
        data = self._session.take()
        if data and self._why is None:
            self._transport.write(data)

    def _never_greeted(self) -> None:
        self._abandon(f"no hello within {_HELLO_SECONDS:g} s: is that RS.io?")

    # What the transport tells

    def received(self, data: bytes) -> None:
        """Octets have arrived."""
        try:
            for event in self._session.received(data):
                self._take(event)
        except Refusal as why:
            self._transport.write(why.reply)
            self._end(str(why))
        else:
            self._flush()
        if self._session.state is State.CLOSED and not self._closing:
            self._closing = True
            self._transport.close()

    def writable(self, ready: bool) -> None:  # noqa: FBT001 - a state, not a mode
        """Whether the transport takes more."""
        self.can_write = ready
        if ready:
            for publishing in list(self._publishing.values()):
                publishing.writable()

    def lost(self, why: str) -> None:
        """The connection is gone."""
        self._session.lost()
        self._end(why)

    def _take(self, event: Signal) -> None:
        match event:
            case Run(stream=stream):
                if isinstance(stream.context, Subscription):
                    stream.context.arrived(event)
            case Terminated(stream, error):
                self._ended(stream, error)
            case Violated(stream, why):
                self._ended(stream, str(why))
            case SubscribeReceived(stream):
                made = self._publishing.get(stream.publisher)
                if made is not None:
                    self._offer(stream, made)
                # else: it waits for its publisher
            case DemandAdded(stream):
                if isinstance(stream.context, Publishing):
                    stream.context.demanded()
            case StoredReceived(stream, offset):
                if isinstance(stream.context, Publishing):
                    stream.context.safe(offset)
            case Cancelled(stream):
                if isinstance(stream.context, Publishing):
                    stream.context.cancelled()
            case Opened():
                self._opened()
            case GoodbyeReceived(reason):
                self._flush()
                self._end(reason or "the other end said goodbye")
            case _:
                pass

    def _opened(self) -> None:
        self._greeted()
        if Extension.AUTH in self.extensions:
            if self._token is not None:
                self._session.identify("bearer", self._token.encode())
            elif self._name is not None:
                self._session.identify("name", self._name.encode())
        if self._compress and Extension.COMPRESSION in self.extensions:
            self._session.compress()
        waiting, self._waiting = self._waiting, []
        for subscription in waiting:
            subscription.opened()
        self._changed.notify_all()

    def _offer(self, stream: Served, made: Publishing) -> None:
        try:
            size = made.asked(stream)
        except ValueError as why:
            self._session.producer.fail(stream, f"E416 {why}")
            made.impossible(str(why))
            return
        if size is None:
            self._session.producer.fail(stream, "E409 one subscriber at a time")
            return
        self._session.producer.accept(stream, size)
        made.demanded()

    def _ended(self, stream: Consumed, error: str | None) -> None:
        if isinstance(stream.context, Subscription):
            self._subscriptions.discard(stream.context)
            stream.context.ended(error)

    def _end(self, why: str) -> None:
        if self._why is not None:
            return
        self._why = why
        self._greeted()
        for subscription in self._subscriptions:
            subscription.lost(why)
        self._subscriptions.clear()
        for publishing in list(self._publishing.values()):
            publishing.lost(why)
        self._changed.notify_all()
