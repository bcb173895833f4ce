"""A small RS.io server in memory, complete and correct, in pieces that can be broken.

It uses the messages of `rsio_check.wire`, which `tests/rsio_check/test_wire.py` holds
against the vectors, and nothing of the gateway.  Its clock moves when a client waits.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

from rsio_check import wire
from rsio_check.wire import Message, Unreadable
from small_rsio.streams import UNBOUNDED, Consumed, Refused, Served, Source, source

_TICK = 0.05
_AT_ONCE = 256


class Violated(Exception):
    """The client broke a rule."""


class Server:
    """What all connections share."""

    extensions: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    window = 100
    subscribe: tuple[str, ...] = ("events", "more")
    hello_seconds = 10.0
    element_bytes = 1 << 20
    streams = 256
    unfinished = 64
    unfinished_bytes = 16 << 20
    control = 1 << 14

    def __init__(
        self, connection: type[Connection], token: bytes | None = None
    ) -> None:
        self.connection = connection
        self.token = token
        self.now = 0.0
        self.events: list[bytes] = []
        self.known: dict[tuple[bytes, str], int] = {}
        self.lives: dict[tuple[bytes, str], bytes] = {}
        self.owners: dict[tuple[bytes, str], Connection] = {}

    def connect(self) -> Link:
        """A new connection; the client's end."""
        return Link(self)

    def ticks(self, since: float) -> int:
        return int((self.now - since) * 10 + 1e-6)

    def store(self, stream: Consumed, element: bytes) -> None:
        """An element is on disk."""
        seq = stream.offset + stream.taken
        event = {"lsn": len(self.events), "channel": stream.publisher, "seq": seq,
                 "payload_text": element.decode("latin-1")}  # fmt: skip
        self.events.append(json.dumps(event).encode())
        if stream.named is not None:
            self.known[stream.named, stream.publisher] = seq

    def stored_from(self, first: int) -> Iterator[bytes]:
        while True:
            yield self.events[first]
            first += 1


class Link:
    """The client's end of a connection: a `rsio_check.Transport`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.connection = server.connection(server)

    def send(self, data: bytes) -> None:
        self.connection.received(data)

    def receive(self, seconds: float) -> bytes | None:
        connection = self.connection
        while True:
            connection.turn()
            if connection.out:
                data = bytes(connection.out)
                connection.out.clear()
                return data
            if connection.closed:
                return b""
            if seconds <= 0:
                return None
            seconds -= _TICK
            self._server.now += _TICK

    def close(self) -> None:
        self.connection.lost()

    reset = close


class Connection:
    """The server's end."""

    part_octets = 1 << 13

    def __init__(self, server: Server) -> None:
        self.server = server
        self.out = bytearray()
        self.closed = False
        self.opened_at = server.now
        self.greeted = self.identified = self.awaits_token = False
        self.used: frozenset[int] = frozenset()
        self.name: bytes | None = None
        self.served: dict[int, Served] = {}
        self.consumed: dict[int, Consumed] = {}
        self.overran = self.told = False
        self.element_bytes: int | None = None
        self.next_id = 1
        self.spent = 0
        self.asked = False
        self.inflate: Any = None
        self.decoder = wire.Decoder(self.size_of, strict=False)

    # -- in and out

    def received(self, data: bytes) -> None:
        if self.closed:
            return
        try:
            for message in self.decoder.feed(data):
                self.take(message)
                if self.closed:
                    return
        except (Violated, Unreadable) as why:
            self.violated(str(why))
        self.grant_all()

    def send(self, message: Message) -> None:
        if not self.closed:
            self.out += wire.encode(message)

    def violated(self, why: str) -> None:
        if not self.closed:
            code = "E400 " if 5 in self.used and not why.startswith("E") else ""
            self.send(wire.Goodbye(code + why))
            self.hang_up()

    def hang_up(self) -> None:
        self.closed = True

    def lost(self) -> None:
        self.closed = True
        self.out.clear()

    def turn(self) -> None:
        """Whatever the clock or the demand allows."""
        if self.closed:
            return
        waited = self.server.now - self.opened_at
        if not self.identified and waited >= self.server.hello_seconds:
            self.timed_out()
        self.publish()

    def timed_out(self) -> None:
        self.violated("no hello, or no token, in time")

    def size_of(self, number: int) -> int | None:
        stream = self.consumed.get(number)
        return None if stream is None else stream.size

    # -- the connection

    def take(self, message: Message) -> None:
        self.check_order(message)
        self.count(message)
        name = type(message).__name__
        getattr(self, f"on_{name}")(message)

    def check_order(self, message: Message) -> None:
        """Whether a message may come now."""
        code = message.CODE
        extension = {0x40: 1, 0x41: 1, 0x42: 2, 0x43: 2, 0x04: 3, 0x44: 4,
                     0x45: 6, 0x46: 6, 0x47: 6, 0x48: 7, 0x49: 8}.get(code)  # fmt: skip
        first = isinstance(message, wire.ClientHello)
        if not isinstance(message, wire.Goodbye) and first is self.greeted:
            raise Violated("a message at a time that is not for it")
        if extension is not None and extension not in self.used:
            raise Violated(f"type {code} without its extension")
        if self.awaits_token and isinstance(
            message, wire.Subscribe | wire.SubscribeFrom | wire.Announce
        ):
            raise Violated("E401 the token comes first")

    def count(self, message: Message) -> None:
        element = isinstance(
            message, wire.OnNext | wire.OnNextLastPart | wire.OnNextPart
        )
        self.spent += not element
        if self.spent > self.server.control:
            raise Violated("too many control messages")

    def on_ClientHello(self, hello: wire.ClientHello) -> None:
        if hello.version != 0:
            raise Violated(f"unsupported version {hello.version}; 0 only")
        self.greeted = True
        self.send(wire.ServerHello(0, self.server.extensions))
        used = frozenset(hello.extensions) & frozenset(self.server.extensions)
        self.used = used if 2 in used else used - {7}
        if 4 in self.used:
            self.awaits_token = True
        elif self.server.token is not None:
            raise Violated("E401 a token is required")
        else:
            self.begin()

    def on_ServerHello(self, hello: wire.ServerHello) -> None:
        raise Violated("the other side's hello")

    def on_Goodbye(self, goodbye: wire.Goodbye) -> None:
        self.send(wire.GoodbyeAck("") if 3 in self.used else wire.Goodbye(""))
        self.hang_up()

    def on_GoodbyeAck(self, ack: wire.GoodbyeAck) -> None:
        raise Violated("goodbyeAck without a goodbye")

    def on_Ping(self, ping: wire.Ping) -> None:
        self.send(wire.Pong(ping.data))

    def on_Pong(self, pong: wire.Pong) -> None:
        pass

    def on_Token(self, token: wire.Token) -> None:
        if not self.awaits_token:
            self.second_token(token)
            return
        right = self.server.token is None or token.data == self.server.token
        if token.scheme not in ("bearer", "name") or not right:
            raise Violated("E401 a token that nobody has")
        if self.server.token is not None and token.scheme != "bearer":
            raise Violated("E401 a token is required")
        self.awaits_token = False
        self.name = token.data
        self.begin()

    def second_token(self, token: wire.Token) -> None:
        """Who it is, among those with one token (extension 7)."""
        bearer = self.server.token is not None and self.name == self.server.token
        if 7 not in self.used or not bearer or token.scheme != "name":
            raise Violated("a second token")
        self.name = self.server.token + b"/" + token.data  # type: ignore[operator]

    def begin(self) -> None:
        """The client is known: subscribe to what it publishes."""
        self.identified = True
        for publisher in self.server.subscribe if 7 not in self.used else ():
            self.subscribe_to(publisher)

    def on_Announce(self, announce: wire.Announce) -> None:
        publisher, life = announce.publisher, announce.instance
        if any(one.publisher == publisher for one in self.consumed.values()):
            raise Violated("announced again, and its stream is not over")
        if announce.resumed > 1 or (announce.resumed and not life):
            raise Violated("an announce that is none")
        if publisher not in self.server.subscribe:
            return
        key = (self.name or b"", publisher)
        known = self.server.lives.get(key)
        if announce.resumed and (
            known != life if known else self.server.known.get(key)
        ):
            self.refuse_life()
        older = self.server.owners.get(key)
        if older is not None and older is not self and not older.closed:
            self.take_over(older, publisher, fenced=bool(known) and known != life)
        self.server.owners[key] = self
        self.server.lives[key] = life
        self.subscribe_to(publisher)

    def refuse_life(self) -> None:
        raise Violated("E412 another life of this sender began later")

    def take_over(self, older: Connection, publisher: str, *, fenced: bool) -> None:
        """A newer stream of the same sender begins."""
        if fenced:
            older.violated("E412 another life of this sender began later")
            return
        for stream in older.consumed.values():
            if stream.publisher == publisher:
                older.cancel(stream)

    def subscribe_to(self, publisher: str) -> None:
        self.tell_limits()
        window = self.server.window
        stream = Consumed(self.next_id, publisher, window)
        self.consumed[stream.id] = stream
        self.next_id += 1
        if self.name is None or 2 not in self.used:
            self.send(wire.Subscribe(publisher, stream.id, window))
            return
        stream.named = self.name
        stream.offset = self.server.known.get((self.name, publisher), 0)
        self.send(wire.SubscribeFrom(publisher, stream.id, window, stream.offset))

    def tell_limits(self) -> None:
        if 8 in self.used and not self.told:
            self.told = True
            self.send(wire.Limits(self.server.element_bytes))

    def on_Limits(self, limits: wire.Limits) -> None:
        if self.element_bytes is not None or self.asked or not limits.element_bytes:
            raise Violated("limits again, too late, or none")
        self.element_bytes = limits.element_bytes

    # -- blocks

    def on_Compress(self, compress: wire.Compress) -> None:
        known = compress.algorithm == 1
        if known:
            self.inflate = zlib.decompressobj()
        self.send(wire.CompressAck(int(known)))

    def on_CompressAck(self, ack: wire.CompressAck) -> None:
        pass

    def on_Block(self, block: wire.Block) -> None:
        if self.inflate is None:
            raise Violated("a block, and nobody asked for them")
        inner = wire.Decoder(self.size_of, strict=False)
        for message in inner.feed(self.inflated(block.data)):
            if isinstance(message, wire.Block):
                raise Violated("a block in a block")
            self.take(message)
        if inner.unread:
            raise Violated("a message that is cut by the end of a block")

    def inflated(self, data: bytes) -> bytes:
        try:
            found: bytes = self.inflate.decompress(data, 16 << 20)
        except zlib.error:
            raise Violated("a block that can not be inflated") from None
        if self.inflate.eof or self.inflate.unconsumed_tail:
            raise Violated("too large a block, or the end of the zlib stream")
        return found

    # -- streams that it publishes

    def on_Subscribe(self, asked: wire.Subscribe) -> None:
        self.subscribed(asked.publisher, asked.subscriber, asked.demand, 0)

    def on_SubscribeFrom(self, asked: wire.SubscribeFrom) -> None:
        self.subscribed(asked.publisher, asked.subscriber, asked.demand, asked.offset)

    def subscribed(self, publisher: str, number: int, demand: int, offset: int) -> None:
        self.asked = True
        if number in self.served:
            raise Violated("the Id is in use (1.10)")
        try:
            if len(self.served) >= self.server.streams:
                raise Refused("E429 too many streams")
            if demand > UNBOUNDED:
                raise Refused("E400 demand is not positive (3.9)")
            made = self.source(publisher, offset)
        except Refused as why:
            self.reject(number, str(why))
            return
        stream = self.served[number] = Served(number, made)
        self.send(wire.OnSubscribe(number, made.size))
        self.wanted(stream, demand)

    def source(self, publisher: str, offset: int) -> Source:
        return source(self.server, publisher, offset, self.server.now)

    def reject(self, number: int, error: str) -> None:
        self.send(wire.OnSubscribe(number, 0))
        self.send(wire.OnError(number, error))

    def wanted(self, stream: Served, more: int) -> None:
        stream.demand = min(stream.demand + more, UNBOUNDED)

    def on_Request(self, request: wire.Request) -> None:
        stream = self.served.get(request.subscriber)
        if stream is None:
            self.unknown(request.subscriber)
        elif 0 < request.demand <= UNBOUNDED:
            self.wanted(stream, request.demand)
        else:
            self.not_positive(stream)

    def unknown(self, number: int) -> None:
        """request or cancel for an Id that is not in use."""

    def not_positive(self, stream: Served) -> None:
        self.fail(stream, "E400 demand is not positive (3.9)")

    def on_Cancel(self, cancel: wire.Cancel) -> None:
        if self.served.pop(cancel.subscriber, None) is None:
            self.unknown(cancel.subscriber)

    def on_Stored(self, stored: wire.Stored) -> None:
        pass

    def publish(self) -> None:
        for stream in list(self.served.values()):
            if stream.unsent:
                self.send(stream.unsent.popleft())
                continue
            elements = stream.source.take(min(stream.demand, _AT_ONCE))
            if any(self.is_too_large(each) for each in elements):
                self.fail(stream, f"E413 {self.element_bytes} octets at most")
                continue
            if elements:
                self.charge_demand(stream, len(elements))
                self.emit(stream, elements)
            if self.served.get(stream.id) is not stream or stream.unsent:
                continue
            if stream.source.over():
                self.finish(stream)

    def is_too_large(self, element: bytes) -> bool:
        return self.element_bytes is not None and len(element) > self.element_bytes

    def charge_demand(self, stream: Served, count: int) -> None:
        stream.demand -= count

    def emit(self, stream: Served, elements: list[bytes]) -> None:
        if stream.source.size and len(elements) > 1:
            self.send(wire.OnNextPacked(stream.id, len(elements), b"".join(elements)))
            return
        many = sum(map(len, elements)) > self.part_octets
        for element in elements:
            if len(element) > self.part_octets:
                self.emit_parts(stream, element)
                continue
            message = wire.OnNext(stream.id, element, bool(stream.source.size))
            if many:
                stream.unsent.append(message)
            else:
                self.send(message)

    def emit_parts(self, stream: Served, element: bytes) -> None:
        """To be sent one by one, between those of other streams."""
        size = self.part_octets
        *parts, last = [element[at : at + size] for at in range(0, len(element), size)]
        number, split = stream.id, stream.split
        stream.unsent += [wire.OnNextPart(number, split, part) for part in parts]
        stream.unsent.append(wire.OnNextLastPart(number, split, last))
        stream.split += 1

    def finish(self, stream: Served) -> None:
        if stream.source.error is None:
            self.complete(stream)
        else:
            self.fail(stream, stream.source.error)

    def complete(self, stream: Served) -> None:
        del self.served[stream.id]
        self.send(wire.OnComplete(stream.id))

    def fail(self, stream: Served, error: str) -> None:
        del self.served[stream.id]
        self.send(wire.OnError(stream.id, error))

    # -- streams that it consumes

    def stream(self, number: int, *, started: bool = True) -> Consumed:
        found = self.consumed.get(number)
        if found is None:
            raise Violated(f"stream {number} was never subscribed")
        if started and found.size is None:
            raise Violated(f"stream {number} has no onSubscribe yet (1.9)")
        return found

    def on_OnSubscribe(self, started: wire.OnSubscribe) -> None:
        stream = self.stream(started.subscriber, started=False)
        if stream.size is not None:
            self.second_on_subscribe(stream)
        if started.size > 16 << 20:
            raise Violated("too large a size")
        stream.size = started.size

    def second_on_subscribe(self, stream: Consumed) -> None:
        self.cancel(stream)
        raise Violated("a second onSubscribe (2.5)")

    def on_OnComplete(self, done: wire.OnComplete) -> None:
        self.ended(self.stream(done.subscriber))

    def on_OnError(self, failed: wire.OnError) -> None:
        self.ended(self.stream(failed.subscriber))

    def ended(self, stream: Consumed) -> None:
        del self.consumed[stream.id]

    def on_OnNext(self, message: wire.OnNext) -> None:
        stream = self.stream(message.subscriber)
        if self.charge(stream):
            self.element(stream, message.element)

    def on_OnNextPacked(self, message: wire.OnNextPacked) -> None:
        stream = self.stream(message.subscriber)
        size = stream.size or 1
        if not message.count or not self.charge(stream, message.count):
            return
        for at in range(0, len(message.data), size):
            self.element(stream, message.data[at : at + size])

    def charge(self, stream: Consumed, count: int = 1) -> bool:
        """*count* elements begin: whether they are taken."""
        if stream.dropped:
            return False
        if count > stream.room:
            self.overrun(stream)
            return False
        stream.room -= count
        return True

    def overrun(self, stream: Consumed) -> None:
        if self.overran:
            raise Violated("more elements than requested, again (1.1)")
        self.overran = True
        self.cancel(stream)

    def cancel(self, stream: Consumed) -> None:
        if not stream.dropped:
            stream.dropped = True
            stream.parts.clear()
            self.send(wire.Cancel(stream.id))

    def on_OnNextPart(self, part: wire.OnNextPart) -> None:
        self.part(part, last=False)

    def on_OnNextLastPart(self, part: wire.OnNextLastPart) -> None:
        self.part(part, last=True)

    def part(self, part: Any, *, last: bool) -> None:
        stream = self.stream(part.subscriber)
        begins = part.element not in stream.parts
        if stream.dropped or (begins and not self.charge(stream)):
            return
        stream.parts[part.element] = stream.parts.get(part.element, b"") + part.data
        joined = stream.parts[part.element]
        if stream.size and (len(joined) > stream.size or (last and
                            len(joined) != stream.size)):  # fmt: skip
            self.wrong_total()
        if last:
            del stream.parts[part.element]
            self.element(stream, joined)
        elif self.too_much_unfinished(stream, joined):
            if len(joined) > self.server.element_bytes:
                self.too_large(stream, joined)
            self.cancel(stream)

    def wrong_total(self) -> None:
        raise Violated("parts that do not join to the fixed size")

    def too_large(self, stream: Consumed, element: bytes) -> None:
        self.cancel(stream)
        if not self.told:
            most = self.server.element_bytes
            raise Violated(f"E413 an element of {len(element)} octets, {most} at most")

    def too_much_unfinished(self, stream: Consumed, joined: bytes) -> bool:
        server = self.server
        held = [each for one in self.consumed.values() for each in one.parts.values()]
        return (
            len(held) > server.unfinished
            or sum(map(len, held)) > server.unfinished_bytes
            or len(joined) > server.element_bytes
        )

    def element(self, stream: Consumed, element: bytes) -> None:
        """An element is whole."""
        if len(element) > self.server.element_bytes:
            self.too_large(stream, element)
            return
        stream.taken += 1
        self.server.store(stream, element)

    def grant_all(self) -> None:
        """What was read is on disk."""
        for stream in self.consumed.values():
            more = stream.taken - stream.granted
            if more and not stream.dropped:
                stream.granted += more
                self.grant(stream, more)

    def grant(self, stream: Consumed, more: int) -> None:
        if 2 in self.used:
            self.send(wire.Stored(stream.id, stream.offset + stream.taken))
        stream.room += more
        self.send(wire.Request(stream.id, more))
