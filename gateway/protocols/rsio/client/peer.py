"""One client connection, on any event loop: its subscriptions and publishers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

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
from gateway.protocols.rsio.demand import UNBOUNDED
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import Extension
from gateway.protocols.rsio.outbound import State
from gateway.protocols.rsio.session import Session
from gateway.protocols.rsio.signals import (
    Cancelled,
    DemandAdded,
    GoodbyeReceived,
    HelloReceived,
    Signal,
    StoredReceived,
    SubscribeReceived,
    Terminated,
    Violated,
)
from gateway.protocols.rsio.streams import Consumed, Served
from gateway.sdk.interfaces import Refusal

_HELLO_SECONDS = 10.0
_GOODBYE_SECONDS = 5.0
_SILENCE_SECONDS = 30.0
_SILENCES = 3
"""The other end is gone if nothing came so often; a gateway that does not read pings twice
meanwhile.
"""
_WRITE_BYTES = 1 << 16
_PARTS_BYTES = 1 << 13
_LIMITS = Limits(element_bytes=1 << 24)
_OFFERED = (
    Extension.KEEPALIVE,
    Extension.GOODBYE_ACK,
    Extension.OFFSETS,
    Extension.LIMITS,
)


@asynccontextmanager
async def connected(connecting: Callable[[], Awaitable[Peer]]) -> AsyncIterator[Peer]:
    """The body of `async with connect(…)`; says goodbye at the end of the block."""
    peer = await connecting()
    try:
        await peer.opened()
        yield peer
    except GeneratorExit:  # no event loop runs us any more: no time for a goodbye
        peer.abandon()
        raise
    finally:
        await peer.close()


class Peer:
    """The program at the other end.  Made by `connect`.

    35 methods: those of its users, of its session and of its transport.
    """

    def __init__(
        self,
        transport: Transport,
        runtime: Runtime,
        *,
        name: str | None = None,
        token: str | None = None,
        compress: bool = False,
        extensions: Iterable[Extension] = _OFFERED,
        limits: Limits | None = None,
    ) -> None:
        """*name* says who we are, so that publishing resumes without loss or doubles.

        *token* is a secret that says that we may, where the gateway asks for one; those
        with the same token and no name are one sender.
        """
        offered = {*extensions}
        if name is not None or token is not None:
            offered |= {Extension.AUTH, Extension.OFFSETS, Extension.INSTANCES}
        if compress:
            offered.add(Extension.COMPRESSION)
        self.can_write = True
        """Whether the transport takes more."""
        self._session = Session(limits or _LIMITS, server=False, offered=offered)
        self._transport = transport
        self._runtime = runtime
        self._name = name
        self._token = token
        self._compress = compress
        self._changed = Condition(runtime)
        self._subscriptions: set[Subscription] = set()
        self._publishing: dict[str, Publishing] = {}
        self._unwritten = 0
        self._flushing = self._sending_parts = False
        self._why: str | None = None
        self._closing = False
        self._session.greet()
        self._flush()
        self._silences = 0
        self._end_timer = runtime.later(_HELLO_SECONDS, self._never_greeted)

    @property
    def extensions(self) -> frozenset[Extension]:
        """The extensions that both sides know; empty until `opened`."""
        return self._session.extensions

    @property
    def element_bytes(self) -> int | None:
        """The most octets of an element that the other end takes, if it has said so."""
        return self._session.producer.element_bytes

    @property
    def announces(self) -> bool:
        """The other end subscribes to what is announced, with its instance."""
        return Extension.INSTANCES in self.extensions

    async def opened(self) -> None:
        """Wait until both hellos were exchanged.  Raises `Disconnected`."""
        while self._session.state is State.GREETING:
            await self._changed.wait()
        if self._session.state is State.CLOSED:
            raise Disconnected(self._why or "closed")

    def subscribe(
        self, publisher: str, *, window: int = 1024, offset: int | None = None
    ) -> Subscription:
        """The elements of one of the other end's publishers.

        *window* is the most elements that are requested and not taken yet; *offset*,
        with extension 2, how many of the publisher's we have already.
        ValueError if *window* is not positive.
        """

        def ask() -> Consumed:
            consumer = self._session.consumer
            return consumer.subscribe(publisher, window, offset=offset)

        if not 0 < window <= UNBOUNDED:
            raise ValueError(f"a window of {window} elements")
        subscription = Subscription(self, ask, Condition(self._runtime), window)
        if self._why is not None:
            subscription.lost(self._why)
            return subscription
        self._subscriptions.add(subscription)
        if self._session.state is State.OPEN:
            subscription.opened()
            self._flush()
        return subscription

    def publisher(
        self,
        name: str,
        *,
        size: int = 0,
        outbox: Outbox | None = None,
        confirms: bool = True,
    ) -> Publishing:
        """Publish under *name*, to one subscriber; for `async with`.

        *size* is in bytes, for elements of a fixed size; 0 if they differ.  For
        *confirms* see `Publishing`.  ValueError if *name* is being published already.
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
            for stream in list(self._session.producer.streams.values()):
                if stream.publisher == name and stream.context is None:
                    self._offer(stream, made)
            if self.announces:
                self._announce(name, made.outbox)
            self._flush()
        return made

    def _announce(self, name: str, outbox: Outbox) -> None:
        resumed = outbox.resumed
        self._session.announce(name, outbox.instance, resumed=resumed)

    async def close(self, reason: str = "") -> None:
        """Say goodbye, and wait up to 5 s for the answer."""
        if self._session.state is State.CLOSED:
            return
        self._session.goodbye(reason)
        self._flush()
        give_up = self._runtime.later(_GOODBYE_SECONDS, self._transport.abort)
        while self._why is None:
            await self._changed.wait()
        give_up()

    def abandon(self) -> None:
        """Drop the connection without a goodbye."""
        self._abandon("abandoned")

    def _abandon(self, why: str) -> None:
        self._session.lost()
        self._end(why)
        self._closing = True
        self._transport.abort()

    # What subscriptions and publishers ask for

    def request(self, stream: Consumed, more: int) -> None:
        """Request *more* elements of a stream."""
        self._session.consumer.request(stream, more)
        self._flush()

    def cancel(self, stream: Consumed) -> None:
        if isinstance(stream.context, Subscription):
            self._subscriptions.discard(stream.context)
        self._session.consumer.cancel(stream)
        self._flush()

    def stored(self, stream: Consumed, offset: int) -> None:
        """Tell that the first *offset* elements are safe (extension 2)."""
        self._session.consumer.stored(stream, offset)
        self._flush()

    def send(self, stream: Served, elements: Sequence[bytes]) -> None:
        """Publish *elements*; of large ones, a part now and the others by and by."""
        self._session.producer.send(stream, elements)
        self._sent(stream, sum(map(len, elements)))

    def send_packed(self, stream: Served, octets: bytes) -> None:
        """Publish elements of a fixed size, joined; of many, a part now and the others
        by and by.
        """
        self._session.producer.send_packed(stream, octets)
        self._sent(stream, len(octets))

    def _sent(self, stream: Served, size: int) -> None:
        if not stream.unsent:
            self._wrote(size)
        elif not self._sending_parts:
            self._send_parts()

    def _send_parts(self) -> None:
        """Some parts in each turn of the loop, so that other streams have theirs."""
        self._sending_parts = False
        parts, left = self._session.producer.parts, _PARTS_BYTES
        while parts and self.can_write and left > 0:
            stream, size = parts.send_next()
            left -= size
            if stream is not None and not stream.unsent:
                self._tell_sent(stream)
        self._flush()
        if parts and self.can_write:
            self._sending_parts = True
            self._runtime.soon(self._send_parts)

    def _tell_sent(self, stream: Served) -> None:
        if isinstance(stream.context, Publishing):
            stream.context.writable()

    @property
    def publishes_more(self) -> bool:
        """Several publishers share the connection."""
        return len(self._publishing) > 1

    def soon(self, call: Callable[[], None]) -> None:
        """Call it in the loop's next turn."""
        self._runtime.soon(call)

    def finish(self, stream: Served, error: str | None) -> None:
        """End a stream that we publish; with *error*, by onError."""
        if error is None:
            self._session.producer.complete(stream)
        else:
            self._session.producer.fail(stream, error)
        self._flush()

    def forget(self, publishing: Publishing) -> None:
        """Make its name free again."""
        for name, one in list(self._publishing.items()):
            if one is publishing:
                del self._publishing[name]

    def _wrote(self, size: int) -> None:
        """Write soon: small elements are collected until the loop's next turn."""
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

    def _silent(self) -> None:
        """Ping the other end if nothing came for some time, or count it for lost."""
        if self._silences == _SILENCES:
            seconds = _SILENCE_SECONDS * _SILENCES
            self._abandon(f"no sign of life for {seconds:g} s")
            return
        if self._silences:
            self._session.ping()
            self._flush()
        self._silences += 1
        self._end_timer = self._runtime.later(_SILENCE_SECONDS, self._silent)

    # What the transport tells

    def received(self, data: bytes) -> None:
        self._silences = 0
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
        self.can_write = ready
        if ready:
            if self._session.producer.parts and not self._sending_parts:
                self._sending_parts = True
                self._runtime.soon(self._send_parts)
            for publishing in list(self._publishing.values()):
                publishing.writable()

    def lost(self, why: str) -> None:
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
                # else: it is answered when the program publishes that name
            case DemandAdded(stream):
                if isinstance(stream.context, Publishing):
                    stream.context.demanded()
            case StoredReceived(stream, offset):
                if isinstance(stream.context, Publishing):
                    stream.context.safe(offset)
            case Cancelled(stream):
                if isinstance(stream.context, Publishing):
                    stream.context.cancelled()
            case HelloReceived():
                self._opened()
            case GoodbyeReceived(reason):
                self._flush()
                self._end(reason or "the other end said goodbye")

    def _opened(self) -> None:
        self._end_timer()
        if Extension.KEEPALIVE in self.extensions:
            self._end_timer = self._runtime.later(_SILENCE_SECONDS, self._silent)
        if Extension.AUTH in self.extensions:
            if self._token is not None:
                self._session.identify("bearer", self._token.encode())
            if self._name is not None and (self._token is None or self.announces):
                self._session.identify("name", self._name.encode())
        if self._compress and Extension.COMPRESSION in self.extensions:
            self._session.compress()
        if self.announces:
            for name, made in self._publishing.items():
                self._announce(name, made.outbox)
        for subscription in list(self._subscriptions):  # that were made before
            subscription.opened()
        self._changed.notify_all()

    def _offer(self, stream: Served, made: Publishing) -> None:
        try:
            size = made.asked(stream)
        except ValueError as why:
            self._session.producer.fail(stream, f"E416 {why}")
            made.rejected(str(why))
            return
        if size is None:
            self._session.producer.fail(stream, "E409 one subscriber at a time")
            return
        if why_not := self._session.producer.why_too_large(made.largest):
            self._session.producer.fail(stream, why_not)
            made.failed(why_not)
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
        self._end_timer()
        subscriptions, self._subscriptions = self._subscriptions, set()
        for subscription in subscriptions:  # who hears of it may cancel others
            subscription.lost(why)
        for publishing in list(self._publishing.values()):
            publishing.lost(why)
        self._changed.notify_all()
