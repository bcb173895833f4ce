"""The server's side of a Pomelo connection, without I/O: makes batches and responses.

    new --handshake--> acknowledging --ack--> open --kick--> over

Packages are taken in their order, however they are sliced: a handshake, its
acknowledgement and a request may come in one segment.  The messages that arrive at once
are one batch, unless they are more than a turn of the event loop has time for.

Time comes as ticks, `TICKS` or more to a heartbeat interval.  A client that sent nothing for
two intervals is cut off; one that was sent nothing for more than one gets a heartbeat.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial

import msgspec

from gateway.protocols.pomelo import events, wire
from gateway.protocols.pomelo.handshake import (
    OK,
    Handshake,
    Handshaker,
    KnownRoute,
    Terms,
)
from gateway.protocols.pomelo.inflation import MOST_GROWTH, Inflation
from gateway.protocols.pomelo.protobuf import Schema, Undecodable
from gateway.protocols.pomelo.ready import Ready
from gateway.protocols.pomelo.text import text
from gateway.protocols.pomelo.wire import Messages, Package, Route, Sums
from gateway.sdk import native
from gateway.sdk.costs import EVENT, FRAME, REPLY, Turn
from gateway.sdk.interfaces import Refusal

TICKS = 4
"""The fewest ticks of one heartbeat interval."""
_BEATS = 16
"""Heartbeats of a client that are answered at once in a tick, and any further with one at
its end: some clients answer our answers, and so for ever."""

HEARTBEAT = wire.package(wire.HEARTBEAT)
_ok = lru_cache(maxsize=1 << 12)(partial(wire.response, body=OK))
"""The response to a request of this number: clients count, and have the same ones."""
_NOTIFY_COST, _ANSWER_COST = 2 * EVENT, EVENT  # many at once
_PROTOBUF_COST = 0.3
"""Decoding a byte to JSON."""
_PROTOBUF_MESSAGE_COST = 8.0
_PROTOBUF_RUN, _PROTOBUF_BYTES = 16, 4096
"""Messages, and their bytes, between two looks at the turn, if they may have to be decoded."""
_FEW_BYTES, _MORE_BYTES = 2048, 1 << 16
"""Bytes that are looked at twice if a message among them is cut; with the kernel, more."""
_ZIPPED_COST = 25.0
"""The cost of a message that is compressed, beside its bytes."""
#: A body that JSON would make longer than this is kept in protobuf.
_MOST_JSON = wire.MOST_BYTES - 300


class Acknowledged:
    """The client acknowledged the handshake: pushes may be sent."""


class Left:
    """The client sent a kick: it is about to leave."""


Step = bytes | Handshake | Acknowledged | Left | Ready


class Session:
    """One connection.  Raises `Refusal` only.

    19 attributes: what may come next depends on all that came in this connection.
    """

    __slots__ = ("_beats", "_control", "_control_packages", "_decoder", "_handshaker",
                 "_inflation", "_message_bytes", "_mute", "_patience", "_quiet",
                 "_terms", "_ticks", "_ticks_each", "asks", "heard", "more", "opened",
                 "spoke", "waits")  # fmt: skip

    def __init__(
        self,
        handshaker: Handshaker,
        *,
        message_bytes: int,
        handshake_bytes: int,
        patience: int,
        control_packages: int = 1000,
        asks: bool = False,
        ticks: int = TICKS,
    ) -> None:
        """*patience* is how many ticks a client may take for its handshake, *ticks* how many
        a heartbeat interval has.

        *control_packages* is how many packages that are no messages it may send in
        one heartbeat interval.  With *asks* a service decides about a handshake:
        nothing is taken behind it until `go_on`.
        """
        self.asks = asks
        self.waits = 0
        """Bytes of the handshake that is being decided about; 0: none is."""
        self._handshaker = handshaker
        self._decoder = wire.Decoder(message_bytes, handshake_bytes)
        self._message_bytes = message_bytes
        self._patience = patience
        self._terms: Terms | None = None
        self._quiet = 0
        self._mute = 0
        self._ticks = 0
        self._ticks_each = ticks
        self._beats = 0
        """Heartbeats of the client in this tick."""
        self._control_packages = control_packages
        self._control = 0  # in this interval, less those that waited to be read
        self._inflation: Inflation | None = None
        self.opened = False
        """The handshake was acknowledged."""
        self.heard = False
        """Something arrived since the last tick."""
        self.spoke = False
        """Something was sent since the last tick."""
        self.more = False
        """There is input left for another turn: `received(b"", turn)`."""

    @property
    def held_bytes(self) -> int:
        """How many bytes are buffered, of an incomplete package or for later turns."""
        held = self._decoder.held_bytes + self.waits
        return held if self._inflation is None else held + len(self._inflation.body)

    @property
    def begun(self) -> bool:
        return self._terms is not None or self._decoder.held_bytes > 0

    @property
    def terms(self) -> Terms:
        """The terms of the handshake, which must be over."""
        assert self._terms is not None, "before the handshake"
        return self._terms

    # What arrives

    def go_on(self) -> None:
        """The handshake is decided about: take what came behind it."""
        self.waits = 0
        self.more = self._decoder.more

    def discard(self) -> None:
        """Forget what is buffered: nothing more of it will be taken."""
        self._decoder.clear()
        self._inflation = None
        self.more = False
        self.waits = 0

    def received(self, data: bytes, turn: Turn | None = None) -> Iterable[Step]:
        """Take bytes of the stream, in any slicing; iterate over what to do about them.

        Bytes, and the reply of a `Handshake`, are to be sent at once; a `Ready` is to be
        stored.  A `Refusal` is raised after everything that came before its cause.
        When the *turn* is over the rest is kept, for `more`.  A tuple says that nothing
        is buffered, and nothing was.
        """
        if turn is None:
            turn = Turn(math.inf)
        ready = self._whole(data, turn)
        return self._steps(data, turn) if ready is None else (ready,)

    def _whole(self, data: bytes, turn: Turn) -> Ready | None:
        """The batch of a few bytes that are plain messages, and no part of one, as most are.

        None if they are not, or some of them must be refused.
        """
        if not data or self._inflation is not None:
            return None
        size = len(data)
        if size > _FEW_BYTES and (native.kernel is None or size > _MORE_BYTES):
            return None
        found = self._decoder.whole(data)
        if found is None:
            return None
        sums, each = found
        ready = Ready()
        if not self._plain(ready, data, 0, sums, turn):
            routes = self.terms.routes
            for route in sums[-1]:
                if route not in routes and not _is_name(route):
                    return None
            self._each(ready, Messages(data, 0, len(data), sums, _found=each), turn)
        self.heard = True
        return ready

    def _plain(
        self, ready: Ready, buffer: bytes, start: int, sums: Sums, turn: Turn
    ) -> bool:
        """Take messages of which there is nothing to do for one alone; else false."""
        stop, count, octets, ids, routes = sums
        known = self.terms.routes
        for route in routes:
            if route in known or not _is_name(route):
                return False
        ready.ids += ids
        ready.count += count
        ready.payload_bytes += octets
        ready.pieces.append(buffer[start:stop])
        ready.taken_bytes += stop - start
        turn.left -= count * _NOTIFY_COST + len(ids) * _ANSWER_COST
        return True

    def _steps(self, data: bytes, turn: Turn) -> Iterator[Step]:
        self.heard = True
        self.more = False
        decoder = self._decoder
        if data:
            decoder.feed(data)
        ready = Ready()
        left = False
        try:
            while turn.left > 0 and not self.waits:
                if self._inflation is not None:
                    self._inflate(ready, turn, self._inflation)
                    continue
                token = decoder.take()
                if token is None:
                    break
                if isinstance(token, Messages):
                    self._messages(ready, token, turn)
                    if self._inflation is None and not decoder.more:
                        break
                elif token.kind == wire.KICK:
                    left = True
                    break
                else:
                    turn.charge(FRAME + REPLY)
                    yield from self._control_package(token)
        except Refusal:
            if ready.count:
                yield ready
            raise
        self.more = turn.left <= 0 and (self._inflation is not None or decoder.more)
        if ready.count:
            yield ready
        if left:
            yield Left()

    def _control_package(
        self, package: Package
    ) -> Iterator[bytes | Handshake | Acknowledged]:
        kind = package.kind
        self._control += 1
        if self._control > self._control_packages:
            raise wire.refusal(
                "too many packages that are no messages in one heartbeat interval",
                limit=self._control_packages,
                key="options.control_packages",
            )
        if kind == wire.HEARTBEAT:
            if self._terms is None:
                raise wire.refusal("heartbeat before the handshake")
            self._beats += 1
            if self._beats <= _BEATS:
                yield HEARTBEAT
        elif kind == wire.HANDSHAKE:
            if self._terms is not None:
                raise wire.refusal("second handshake")
            handshake = self._handshaker.answer(package.body)
            if self.asks:
                self.waits = len(package.body)
            self._terms = handshake.terms
            if any(known.request for known in handshake.terms.routes.values()):
                self._decoder.most_run = _PROTOBUF_RUN
                self._decoder.most_bytes = _PROTOBUF_BYTES
            yield handshake
        else:  # acknowledgement
            if self._terms is None:
                raise wire.refusal("acknowledgement before the handshake")
            if not self.opened:
                self.opened = self._decoder.open = True
                yield Acknowledged()
                if self._handshaker.heartbeat:
                    yield HEARTBEAT

    def _messages(self, ready: Ready, run: Messages, turn: Turn) -> None:
        if run.zipped:
            self._zipped(ready, run, turn)
        elif not self._plain(ready, run.buffer, run.start, run.sums, turn):
            self._each(ready, run, turn)

    def _each(self, ready: Ready, run: Messages, turn: Turn) -> None:
        """Take messages of which some have something to do for them, or are refused."""
        routes = self.terms.routes
        ids = ready.ids
        buffer = run.buffer
        keep = before = run.start
        count, size = ready.count, 0
        requests = len(ids)
        try:
            for number, route, at, stop in run.found:
                known = routes.get(route)
                if known is None:
                    _check(route)
                elif known.request is not None:
                    ready.pieces.append(buffer[keep:before])
                    turn.charge(_PROTOBUF_MESSAGE_COST + (stop - at) * _PROTOBUF_COST)
                    body = self._json(
                        ready, count, known.request, known.name, buffer[at:stop]
                    )
                    ready.pieces.append(
                        events.repacked(number, _spelled(ready, route, known), body)
                    )
                    size += len(body) - (stop - at)
                    keep = stop
                    if number and known.backed:
                        ready.ask(known, body, count)
                else:
                    if known.coded:
                        ready.name(route, known)
                    if number and known.backed:
                        ready.ask(known, buffer[at:stop], count)
                if number:
                    if known is not None and known.answer:
                        ready.encode(known)
                    ids.append(number)
                count += 1
                size += stop - at
                before = stop
        finally:
            ready.pieces.append(buffer[keep:before])
            ready.taken_bytes += before - run.start
            requests = len(ids) - requests
            turn.left -= (count - ready.count) * _NOTIFY_COST + requests * _ANSWER_COST
            ready.count = count
            ready.payload_bytes += size

    def _zipped(self, ready: Ready, run: Messages, turn: Turn) -> None:
        """Take a message with the compression bit, which pitaya's clients set."""
        turn.charge(_ZIPPED_COST)
        [(_, route, at, stop)] = run.found
        body = run.buffer[at:stop]
        known = self.terms.routes.get(route)
        if known is None:
            _check(route)
        run.buffer, run.start = run.buffer[run.start : stop], 0
        if body[:1] == b"\x78" or body[:2] == b"\x1f\x8b":
            self._inflation = Inflation(run, known, body)
            return
        request = None if known is None else known.request
        if request is not None:
            assert known is not None
            turn.charge(len(body) * _PROTOBUF_COST)
            body = self._json(ready, ready.count, request, known.name, body)
        self._ask(ready, run, known, body)
        self._add(ready, run, known, body, None, turn)

    def _ask(
        self, ready: Ready, run: Messages, known: KnownRoute | None, body: bytes | None
    ) -> None:
        """Put it to a service if its route says so, and it is a request."""
        if known is not None and known.backed and run.found[0][0]:
            ready.ask(known, body, ready.count)

    def _inflate(self, ready: Ready, turn: Turn, zipped: Inflation) -> None:
        """Go on with a compressed body, until it is over or the turn is."""
        most = self._message_bytes
        try:
            while not (zipped.over or turn.over):
                turn.charge(FRAME + zipped.step())
                if zipped.size > most:
                    raise wire.refusal(
                        f"message that inflates to {zipped.size} bytes or more",
                        limit=most,
                        key="limits.message_bytes",
                    )
        except zlib.error:
            turn.charge(zipped.failed_cost)
            whole = False
        else:
            if not zipped.over:
                return
            whole = zipped.inflater.eof
        self._inflation = None
        self._inflated(ready, turn, zipped, whole=whole)

    def _inflated(
        self, ready: Ready, turn: Turn, zipped: Inflation, *, whole: bool
    ) -> None:
        run, known = zipped.run, zipped.known
        if not whole:
            ready.flaw(ready.count, events.UNDECODABLE_ZLIB)
            self._ask(ready, run, known, zipped.body)
            self._add(ready, run, known, zipped.body, None, turn)
            return
        if known is not None and known.request is not None:
            body = b"".join(zipped.kept or ())
            turn.charge(len(body) * _PROTOBUF_COST)
            most = MOST_GROWTH * len(run.buffer)
            flaws = len(ready.flawed or ())
            body = self._json(ready, ready.count, known.request, known.name, body, most)
            self._ask(ready, run, known, body)
            if len(ready.flawed or ()) == flaws:
                self._add(ready, run, known, body, None, turn)
                return
        else:
            kept = zipped.kept
            self._ask(ready, run, known, None if kept is None else b"".join(kept))
        self._add(ready, run, known, run.buffer, zipped.size, turn)

    def _add(
        self,
        ready: Ready,
        run: Messages,
        known: KnownRoute | None,
        body: bytes,
        size: int | None,
        turn: Turn,
    ) -> None:
        """Add a message of its own to the batch.

        *body* is its body as it is stored; or the whole package as it came, compressed,
        if there is a *size*, which it inflates to.
        """
        [(number, route, _, _)] = run.found
        spelled = _spelled(ready, route, known)
        if size is None:
            size = len(body)
            body = events.repacked(number, spelled, body)
        else:
            ready.zipped = True
        ready.pieces.append(body)
        if number:
            if known is not None and known.answer:
                ready.encode(known)
            ready.ids.append(number)
        ready.count += 1
        ready.taken_bytes += len(run.buffer)
        ready.payload_bytes += size
        turn.charge(FRAME + REPLY)

    def _json(
        self,
        ready: Ready,
        row: int,
        schema: Schema,
        route: str,
        body: bytes,
        most: int = _MOST_JSON,
    ) -> bytes:
        """The JSON of a body in protobuf; as it came, with a flaw, if it is not valid."""
        try:
            decoded = msgspec.json.encode(schema.decode(route, body))
        except Undecodable:
            decoded = None
        if decoded is not None and len(decoded) <= min(most, _MOST_JSON):
            return decoded
        ready.flaw(row, events.UNDECODABLE_PROTOBUF)
        return body

    # Responses

    def answers(self, ready: Ready) -> list[bytes]:
        """The responses to a stored batch's requests, one package each.

        Those that a service answers have none yet.
        """
        if ready.asked is None and ready.encoded is None:
            return list(map(_ok, ready.ids))
        asked, encoded, terms = ready.asked or (), ready.encoded or {}, self.terms
        return [
            wire.response(n, terms.ok(encoded[at]) if at in encoded else OK)
            for at, n in enumerate(ready.ids)
            if at not in asked
        ]

    def failures(self, ready: Ready, why: str, code: int = 500) -> list[bytes]:
        """The responses to the requests of a batch that is not stored.

        On routes that are mute there is none: it would say the same as for a stored one.
        """
        encoded, terms = ready.encoded or {}, self.terms
        return [
            terms.failed(number, encoded.get(at), why, code)
            for at, number in enumerate(ready.ids)
            if at not in encoded or not terms.is_mute(encoded[at])
        ]

    def untold(self, ready: Ready) -> bool:
        """Whether `failures` leaves some of the batch unsaid: its client must be kicked.

        A notify has no answer, and some definitions have no room for one.
        """
        if ready.count > len(ready.ids):
            return True
        routes = set((ready.encoded or {}).values())
        return any(self.terms.is_mute(route) for route in routes)

    # Time

    def tick(self, *, paused: bool) -> bool:
        """A tick has passed; true if a heartbeat is due now.

        Raises `Refusal` if the client has been silent too long.  While reading is
        *paused* it can not be.
        """
        heard = self.heard or paused
        self.heard = False
        asked, self._beats = self._beats > _BEATS, 0
        self._ticks += 1
        if paused:
            self._control -= 1  # what it sends meanwhile will be read all at once
        elif self._ticks % self._ticks_each == 0:
            self._control = min(self._control, 0)
        if not self.opened:
            self._patience -= not paused
            if self._patience < 0:
                raise wire.refusal(
                    "handshake not finished in time", key="options.handshake_timeout"
                )
            return asked
        if not self._handshaker.heartbeat:
            return asked
        self._quiet = 0 if heard else self._quiet + 1
        if self._quiet >= 2 * self._ticks_each:
            raise wire.refusal(
                "no sign of life",
                limit=f"{2 * self._handshaker.heartbeat} s",
                key="options.heartbeat",
            )
        self._mute = 0 if self.spoke else self._mute + 1
        self.spoke = False
        if self._mute <= self._ticks_each:  # the client's own, which we answer, is due
            return asked
        self._mute = 0
        return True

    def excuse(self) -> None:
        """Give the client two more ticks: its heartbeat is here, and was not read in time."""
        self._patience, self._quiet = 1, 2 * self._ticks_each - 2


@lru_cache(maxsize=1 << 10)
def _is_name(route: Route) -> bool:
    """Whether a route without a definition is surely a name, in UTF-8."""
    return isinstance(route, bytes) and route.isascii()


def _check(route: Route) -> None:
    """A route without a definition must be a name, in UTF-8."""
    if isinstance(route, int):
        raise wire.refusal(
            f"route code {route} is not in the dictionary", key="options.routes"
        )
    if not route.isascii():
        try:
            text(route)
        except UnicodeDecodeError:
            raise wire.refusal("route is not UTF-8") from None


def _spelled(ready: Ready, route: Route, known: KnownRoute | None) -> int | str:
    """The route for `events.repacked`: its code, if the batch can say what it means."""
    if isinstance(route, int):
        assert known is not None
        ready.name(route, known)
        return route
    return text(route) if known is None else known.name
