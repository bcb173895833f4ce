"""A batch to store and requests to answer: all that arrived at once on a connection.

`session` fills it, message by message; no I/O, no clock.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from gateway.protocols.pomelo import events
from gateway.protocols.pomelo.handshake import KnownRoute
from gateway.protocols.pomelo.wire import Route

_SMALL = 4096
"""A batch up to this size is not worth compressing."""


class ServiceRequest(NamedTuple):
    """A request that is put to a service of the game's."""

    route: str
    body: bytes | None
    """The payload; None if it inflates to too much to be kept."""
    row: int
    """The row in the batch."""


class Ready(Struct, eq=False):
    """Messages that arrived at once: store `body()`, then answer the requests."""

    count: int = 0
    payload_bytes: int = 0
    ids: list[int] = []
    """Ids of the requests among the messages."""
    asked: dict[int, ServiceRequest] | None = None
    """Requests that a service of the game's answers, by their positions in `ids`."""
    encoded: dict[int, str] | None = None
    """Positions in `ids` of requests that are answered in protobuf, and routes."""
    pieces: list[bytes] = []
    codes: dict[Route, str] | None = None
    flawed: list[tuple[int, int]] | None = None
    taken_bytes: int = 0
    """Bytes of the packages as they arrived."""
    zipped: bool = False
    """Some of its bodies are compressed."""

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

    def ask(self, known: KnownRoute, body: bytes | None, row: int) -> None:
        """The next request, whose event is in this *row*, is put to a service."""
        if self.asked is None:
            self.asked = {}
        self.asked[len(self.ids)] = ServiceRequest(known.name, body, row)

    @property
    def asked_bytes(self) -> int:
        """Bytes that are kept for services, beside the batch."""
        if self.asked is None:
            return 0
        return sum(len(one.body) for one in self.asked.values() if one.body is not None)

    def drop_asked(self) -> None:
        """There is no room to keep it."""
        if self.asked is not None:
            self.asked = {at: one._replace(body=None) for at, one in self.asked.items()}

    def flaw(self, row: int, flaw: int) -> None:
        """The event of this row has this flaw (`events.UNDECODABLE_…`)."""
        if self.flawed is None:
            self.flawed = []
        self.flawed.append((row, flaw))

    def body(self, message_bytes: int) -> bytes:
        """The body of the batch, for `events.decode`."""
        if self.codes is None and self.flawed is None and not self.zipped:
            head = events.plain_head(message_bytes)
        else:
            head = events.head(
                message_bytes,
                self.codes or {},
                self.flawed or (),
                zipped=self.zipped,
            )
        body = b"".join((head, *self.pieces))
        if len(body) > 2 * self.taken_bytes + _SMALL:
            body = events.packed(body)
        return body
