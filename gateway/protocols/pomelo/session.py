"""The server's side of a Pomelo connection, without I/O: makes batches and responses.

    new --handshake--> acknowledging --ack--> open --kick--> over

Packages are taken in their order, however they are sliced: a handshake, its
acknowledgement and a request may come in one segment.  The messages that arrive at once
are one batch.

Time comes as ticks, `TICKS` to a heartbeat interval.  A client that sent nothing for two
intervals is cut off; one that was sent nothing for more than one gets a heartbeat.

No I/O, no clock.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import msgspec

from gateway.interfaces import Refusal
from gateway.protocols.pomelo import events, wire
from gateway.protocols.pomelo.handshake import (
    OK,
    Handshake,
    Handshaker,
    KnownRoute,
    Terms,
)
from gateway.protocols.pomelo.protobuf import Schema, Undecodable
from gateway.protocols.pomelo.wire import Messages, Package, Route

__all__ = ["HEARTBEAT", "TICKS", "Left", "Opened", "Ready", "Session"]

TICKS = 4
"""To one heartbeat interval."""
_CUT_AFTER = 2 * TICKS
_BEAT_AFTER = TICKS + 1  # later than the client's own heartbeat, which we answer

HEARTBEAT = wire.package(wire.HEARTBEAT)
_RESPONSES = [wire.response(number, OK) for number in range(0x80)]
_ZLIB_OR_GZIP = 47
#: A body that JSON would make longer than this is kept in protobuf.
_MOST_JSON = wire.MOST_BYTES - 300


class Opened:
    """The client acknowledged the handshake: pushes may be sent."""


class Left:
    """The client sent a kick: it is about to leave."""


class Ready:
    """Messages that arrived at once: store `body()`, then answer the requests."""

    __slots__ = (
        "codes",
        "count",
        "encoded",
        "flawed",
        "ids",
        "payload_bytes",
        "pieces",
    )

    def __init__(self) -> None:
        self.count = 0
        self.payload_bytes = 0
        self.ids: list[int] = []
        """Of the requests among them."""
        self.encoded: dict[int, str] | None = None
        """Positions in `ids` of requests that are answered in protobuf, and routes."""
        self.pieces: list[bytes] = []
        self.codes: dict[Route, str] | None = None
        self.flawed: list[tuple[int, int]] | None = None

    def name(self, code: Route, known: KnownRoute) -> None:
        """A message uses *code* for this route."""
        if self.codes is None:
            self.codes = {}
        self.codes[code] = known.name

    def encode(self, known: KnownRoute) -> None:
        """The next request is answered in protobuf."""
        if self.encoded is None:
            self.encoded = {}
        self.encoded[len(self.ids)] = known.name

    def flaw(self, row: int, flaw: int) -> None:
        """The event of this row has this flaw (`events.UNDECODABLE_…`)."""
        if self.flawed is None:
            self.flawed = []
        self.flawed.append((row, flaw))

    def body(self, message_bytes: int) -> bytes:
        """The body of the batch, for `events.decode`."""
        if self.codes is None and self.flawed is None:
            head = events.plain_head(message_bytes)
        else:
            head = events.head(message_bytes, self.codes or {}, self.flawed or ())
        return b"".join((head, *self.pieces))


class Session:
    """One connection.  Raises `Refusal` only."""

    __slots__ = ("_decoder", "_handshaker", "_message_bytes", "_mute", "_patience",
                 "_quiet", "_terms", "heard", "opened", "spoke")  # fmt: skip

    def __init__(
        self,
        handshaker: Handshaker,
        *,
        message_bytes: int,
        handshake_bytes: int,
        patience: int,
    ) -> None:
        """*patience* is how many ticks a client may take for its handshake."""
        self._handshaker = handshaker
        self._decoder = wire.Decoder(message_bytes, handshake_bytes)
        self._message_bytes = message_bytes
        self._patience = patience
        self._terms: Terms | None = None
        self._quiet = 0
        self._mute = 0
        self.opened = False
        """The handshake was acknowledged."""
        self.heard = False
        """Something arrived since the last tick."""
        self.spoke = False
        """Something was sent since the last tick."""

    @property
    def held_bytes(self) -> int:
        """How many bytes of an incomplete package are buffered."""
        return self._decoder.held_bytes

    @property
    def begun(self) -> bool:
        """The client has sent something."""
        return self._terms is not None or self._decoder.held_bytes > 0

    @property
    def terms(self) -> Terms:
        """What was sent in the handshake, which must be over."""
        assert self._terms is not None, "before the handshake"
        return self._terms

    # What arrives

    def received(
        self, data: bytes
    ) -> Iterator[bytes | Handshake | Opened | Left | Ready]:
        """Take bytes of the stream, in any slicing; yields what to do about them.

        Bytes, and the reply of a `Handshake`, are to be sent at once; a `Ready` is to be
        stored.  A `Refusal` is raised after everything that came before its cause.
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
            yield Left()

    def _control(self, package: Package) -> Iterator[bytes | Handshake | Opened]:
        kind = package.kind
        if kind == wire.HEARTBEAT:
            if self._terms is None:
                raise wire.refusal("heartbeat before the handshake")
            yield HEARTBEAT
        elif kind == wire.HANDSHAKE:
            if self._terms is not None:
                raise wire.refusal("second handshake")
            handshake = self._handshaker.answer(package.body)
            self._terms = handshake.terms
            yield handshake
        else:  # acknowledgement
            if self._terms is None:
                raise wire.refusal("acknowledgement before the handshake")
            if not self.opened:
                self.opened = self._decoder.open = True
                yield Opened()
                if self._handshaker.heartbeat:
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
        """Take a message with the compression bit, which pitaya's clients set."""
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
        """The JSON of a body in protobuf; as it came, with a flaw, if it is not valid."""
        try:
            decoded = msgspec.json.encode(schema.decode(route, body))
        except Undecodable:
            decoded = None
        if decoded is not None and len(decoded) <= _MOST_JSON:
            return decoded
        ready.flaw(row, events.UNDECODABLE_PROTOBUF)
        return body

    # Responses

    def answers(self, ready: Ready) -> list[bytes]:
        """The responses to a stored batch's requests, one package each."""
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
        """The responses to the requests of a batch that could not be stored."""
        encoded, terms = ready.encoded or {}, self.terms
        return [
            terms.failed(number, encoded.get(at), why)
            for at, number in enumerate(ready.ids)
        ]

    # Time

    def tick(self, *, paused: bool) -> bool:
        """A tick has passed; true if a heartbeat is due now.

        Raises `Refusal` if the client has been silent too long.  While reading is
        *paused* it can not be.
        """
        heard = self.heard or paused
        self.heard = False
        if not self.opened:
            self._patience -= not paused
            if self._patience < 0:
                raise wire.refusal(
                    "handshake not finished in time", key="options.handshake_timeout"
                )
            return False
        if not self._handshaker.heartbeat:
            return False
        self._quiet = 0 if heard else self._quiet + 1
        if self._quiet >= _CUT_AFTER:
            raise wire.refusal(
                "no sign of life",
                limit=f"{2 * self._handshaker.heartbeat} s",
                key="options.heartbeat",
            )
        self._mute = 0 if self.spoke else self._mute + 1
        self.spoke = False
        if self._mute < _BEAT_AFTER:
            return False
        self._mute = 0
        return True


def _check(route: Route) -> None:
    """A route without a definition must be a name, in UTF-8."""
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
    """The inflated body, or the body itself if it is not compressed; None if corrupt."""
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
