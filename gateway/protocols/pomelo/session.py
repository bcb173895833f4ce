"""What a Pomelo client is owed: bytes in, batches and replies out.

    waiting --handshake--> greeted --ack--> working --kick--> over

Packages count in the order in which they come, however they are sliced: a handshake,
its acknowledgement and a request in one segment are fine.  What lies together in what
arrived at once is one batch.

Time comes as ticks, `TICKS` to the heartbeat interval.  Any package is a sign of life;
a client that gave none for two intervals is cut off, one that was told nothing for more
than one is sent a heartbeat.

No I/O, no clock.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import msgspec

from gateway.interfaces import Refusal
from gateway.protocols.pomelo import events, wire
from gateway.protocols.pomelo.handshake import OK, Greeter, Greeting, Known, Terms
from gateway.protocols.pomelo.protobuf import Schema, Undecodable
from gateway.protocols.pomelo.wire import Messages, Package, Route

__all__ = ["HEARTBEAT", "TICKS", "Farewell", "Ready", "Session", "Working"]

TICKS = 4
"""To one heartbeat interval."""
_CUT_AFTER = 2 * TICKS
_SPEAK_AFTER = TICKS + 1  # later than the client's own beat, which we answer

HEARTBEAT = wire.package(wire.HEARTBEAT)
_RESPONSES = [wire.response(number, OK) for number in range(0x80)]
_ZLIB_OR_GZIP = 47
#: A body that JSON would make longer than this is kept in protobuf.
_MOST_JSON = wire.MOST_BYTES - 300


class Working:
    """The client acknowledged the handshake: it may be sent pushes."""


class Farewell:
    """The client says that it goes."""


class Ready:
    """Messages that lie together: store `body()`, then answer the requests."""

    __slots__ = ("codes", "count", "encoded", "ids", "odd", "payload_bytes", "pieces")

    def __init__(self) -> None:
        self.count = 0
        self.payload_bytes = 0
        self.ids: list[int] = []
        """Of the requests among them."""
        self.encoded: dict[int, str] | None = None
        """Places in `ids` whose answers are in protobuf, and their routes."""
        self.pieces: list[bytes] = []
        self.codes: dict[Route, str] | None = None
        self.odd: list[tuple[int, int]] | None = None

    def name(self, code: Route, known: Known) -> None:
        """Remember what *code* stands for."""
        if self.codes is None:
            self.codes = {}
        self.codes[code] = known.name

    def encode(self, known: Known) -> None:
        """The next request's answer is in protobuf."""
        if self.encoded is None:
            self.encoded = {}
        self.encoded[len(self.ids)] = known.name

    def flaw(self, row: int, flaw: int) -> None:
        """The event of this row is not what it should be."""
        if self.odd is None:
            self.odd = []
        self.odd.append((row, flaw))

    def body(self, message_bytes: int) -> bytes:
        """What `events.decode` makes rows of."""
        if self.codes is None and self.odd is None:
            head = events.plain_head(message_bytes)
        else:
            head = events.head(message_bytes, self.codes or {}, self.odd or ())
        return b"".join((head, *self.pieces))


class Session:
    """One connection's side of the protocol.  Raises `Refusal` only."""

    __slots__ = ("_decoder", "_greeter", "_message_bytes", "_mute", "_patience",
                 "_quiet", "_terms", "heard", "spoke", "working")  # fmt: skip

    def __init__(
        self,
        greeter: Greeter,
        *,
        message_bytes: int,
        handshake_bytes: int,
        patience: int,
    ) -> None:
        """*patience* is how many ticks a client may take to get to work."""
        self._greeter = greeter
        self._decoder = wire.Decoder(message_bytes, handshake_bytes)
        self._message_bytes = message_bytes
        self._patience = patience
        self._terms: Terms | None = None
        self._quiet = 0
        self._mute = 0
        self.working = False
        """The handshake is over."""
        self.heard = False
        """Something came since the last tick."""
        self.spoke = False
        """Something was sent since the last tick."""

    @property
    def held_bytes(self) -> int:
        """What is buffered of a package that is not complete."""
        return self._decoder.held_bytes

    @property
    def begun(self) -> bool:
        """The client has said something."""
        return self._terms is not None or self._decoder.held_bytes > 0

    @property
    def terms(self) -> Terms:
        """What was told in the handshake; once there was one."""
        assert self._terms is not None, "before the handshake"
        return self._terms

    # What arrives

    def received(
        self, data: bytes
    ) -> Iterator[bytes | Greeting | Working | Farewell | Ready]:
        """Take any slicing of the stream; what to send at once, and what to store.

        A `Refusal` is raised behind everything that came before its cause.
        """
        self.heard = True
        decoder = self._decoder
        decoder.feed(data)
        ready: Ready | None = None
        try:
            while (token := decoder.take()) is not None:
                if isinstance(token, Messages):
                    if ready is None:
                        ready = Ready()
                    self._messages(ready, token)
                elif token.kind == wire.KICK:
                    break
                else:
                    yield from self._control(token)
        except Refusal:
            if ready is not None and ready.count:
                yield ready
            raise
        if ready is not None:
            yield ready
        if token is not None:
            yield Farewell()

    def _control(self, package: Package) -> Iterator[bytes | Greeting | Working]:
        kind = package.kind
        if kind == wire.HEARTBEAT:
            if self._terms is None:
                raise wire.refusal("heartbeat before the handshake")
            yield HEARTBEAT
        elif kind == wire.HANDSHAKE:
            if self._terms is not None:
                raise wire.refusal("second handshake")
            greeting = self._greeter.greet(package.body)
            self._terms = greeting.terms
            yield greeting
        else:  # acknowledgement
            if self._terms is None:
                raise wire.refusal("acknowledgement before the handshake")
            if not self.working:
                self.working = self._decoder.open = True
                yield Working()
                if self._greeter.heartbeat:
                    yield HEARTBEAT

    def _messages(self, ready: Ready, run: Messages) -> None:
        if run.zipped:
            self._zipped(ready, run)
            return
        routes = self.terms.routes
        ids = ready.ids
        buffer = run.buffer
        keep = before = run.start
        count, size = ready.count, 0
        try:
            for number, route, at, stop in run.found:
                known = routes.get(route)
                if known is None:
                    _check(route)
                elif known.request is not None:
                    ready.pieces.append(buffer[keep:before])
                    body = self._json(
                        ready, count, known.request, known.name, buffer[at:stop]
                    )
                    ready.pieces.append(events.repacked(number, known.name, body))
                    size += len(body) - (stop - at)
                    keep = stop
                elif known.coded:
                    ready.name(route, known)
                if number:
                    if known is not None and known.answer:
                        ready.encode(known)
                    ids.append(number)
                count += 1
                size += stop - at
                before = stop
        finally:
            ready.pieces.append(buffer[keep:before])
            ready.count = count
            ready.payload_bytes += size

    def _zipped(self, ready: Ready, run: Messages) -> None:
        """One message whose body claims to be compressed, as pitaya's clients do."""
        [(number, route, at, stop)] = run.found
        body = run.buffer[at:stop]
        known = self.terms.routes.get(route)
        if known is None:
            _check(route)
        name = wire.text(route) if isinstance(route, bytes) else ""
        request = None
        if known is not None:
            name, request = known.name, known.request
        inflated = _inflated(body, self._message_bytes)
        if inflated is None:
            ready.flaw(ready.count, events.UNDECODABLE_ZLIB)
        elif request is not None:
            body = self._json(ready, ready.count, request, name, inflated)
        else:
            body = inflated
        ready.pieces.append(events.repacked(number, name, body))
        if number:
            if known is not None and known.answer:
                ready.encode(known)
            ready.ids.append(number)
        ready.count += 1
        ready.payload_bytes += len(body)

    def _json(
        self, ready: Ready, row: int, schema: Schema, route: str, body: bytes
    ) -> bytes:
        """The JSON of a body in protobuf; the body itself, with a flaw, if it is none."""
        try:
            decoded = msgspec.json.encode(schema.decode(route, body))
        except Undecodable:
            decoded = None
        if decoded is not None and len(decoded) <= _MOST_JSON:
            return decoded
        ready.flaw(row, events.UNDECODABLE_PROTOBUF)
        return body

    # What is durable, and what is not

    def answers(self, ready: Ready) -> list[bytes]:
        """The responses to its requests, one package each: it is stored."""
        ids, encoded = ready.ids, ready.encoded
        if encoded is None:
            known = _RESPONSES
            return [known[n] if n < 0x80 else wire.response(n, OK) for n in ids]
        terms = self.terms
        return [
            wire.response(n, terms.ok(encoded[at]) if at in encoded else OK)
            for at, n in enumerate(ids)
        ]

    def failures(self, ready: Ready, why: str) -> list[bytes]:
        """The responses to its requests: it could not be stored."""
        encoded, terms = ready.encoded or {}, self.terms
        return [
            terms.failed(number, encoded.get(at), why)
            for at, number in enumerate(ready.ids)
        ]

    # Time

    def tick(self, *, deaf: bool) -> bool:
        """A tick has passed; whether to send a heartbeat now.

        Raises `Refusal` if the client is overdue.  While we are *deaf*, because we do
        not read what it sends, it can not be.
        """
        heard = self.heard or deaf
        self.heard = False
        if not self.working:
            self._patience -= not deaf
            if self._patience < 0:
                raise wire.refusal(
                    "handshake not finished in time", key="options.handshake_timeout"
                )
            return False
        if not self._greeter.heartbeat:
            return False
        self._quiet = 0 if heard else self._quiet + 1
        if self._quiet >= _CUT_AFTER:
            raise wire.refusal(
                "no sign of life",
                limit=f"{2 * self._greeter.heartbeat} s",
                key="options.heartbeat",
            )
        self._mute = 0 if self.spoke else self._mute + 1
        self.spoke = False
        if self._mute < _SPEAK_AFTER:
            return False
        self._mute = 0
        return True


def _check(route: Route) -> None:
    """A route that nothing is known about must be a name."""
    if isinstance(route, int):
        raise wire.refusal(
            f"route code {route} is not in the dictionary", key="options.routes"
        )
    if not route.isascii():
        try:
            wire.text(route)
        except UnicodeDecodeError:
            raise wire.refusal("route is not UTF-8") from None


def _inflated(body: bytes, most: int) -> bytes | None:
    """Inflated if it is compressed, as it is if not, None if that fails."""
    if body[:1] != b"\x78" and body[:2] != b"\x1f\x8b":
        return body
    inflater = zlib.decompressobj(wbits=_ZLIB_OR_GZIP)
    try:
        inflated = inflater.decompress(body, most + 1)
    except zlib.error:
        return None
    if len(inflated) > most:
        raise wire.refusal(
            f"message that inflates to {len(inflated)} bytes or more",
            limit=most,
            key="limits.message_bytes",
        )
    return inflated if inflater.eof else None
