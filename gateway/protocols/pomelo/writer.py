"""The sending side of `gateway send pomelo`, without I/O: lots as requests and notifies.

A lot is the caller's unit of acknowledgement: notifies, and at its end a request.  Its answer
with code 200 speaks for all of them, as the gateway's journal keeps their order.  Events that
were not answered when a connection ends are sent again on the next one.

No I/O, no clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gateway.protocols.pomelo import client_session
from gateway.protocols.pomelo.client_session import ClientSession
from gateway.protocols.pomelo.protobuf import Unencodable
from gateway.sdk.sender import Batch, Unexpected, Unsendable

_SIGNS = 2
"""Signs of life in one of the server's intervals."""


class Writer:
    """Sends lots over one connection after the other.  See `gateway.sdk.sender.Writer`."""

    def __init__(self, route: str, user: Mapping[str, Any] | None = None) -> None:
        """*route* is that of all messages, *user* is told in the handshake."""
        self.at_once: int | None = None
        self.alive_every = 0.0
        self.resent = 0
        self._route = route
        self._user = user
        self._session = ClientSession(user)
        self._batches: dict[Batch, None] = {}
        self._flight: dict[int, tuple[Batch, int]] = {}
        """The batch and the number of events that each request, by id, acknowledges."""

    @property
    def in_flight(self) -> int:
        return sum(count for _, count in self._flight.values())

    @property
    def waiting(self) -> bool:
        """An answer is due, to the handshake or to a request."""
        return bool(self._flight) or not self._session.opened

    @property
    def batches(self) -> Sequence[Batch]:
        return list(self._batches)

    def connected(self) -> bytes:
        self._session = ClientSession(self._user)
        return self._session.handshake()

    def add(self, batch: Batch) -> None:
        self._batches[batch] = None

    def take(self) -> bytes:
        """The bytes to write next.  Raises `Unsendable`."""
        session = self._session
        if out := session.outgoing():
            return out
        if not session.opened:
            return b""
        for batch in self._batches:
            # Of one lot a request is answered before the next: answers to others may come
            # in any order.
            if batch.sent > batch.acknowledged:
                continue
            count = len(batch.events) - batch.sent
            if self.at_once is not None:
                count = min(count, self.at_once - self.in_flight)
                if count <= 0:
                    return b""
            return self._messages(batch, count)
        return b""

    def received(self, data: bytes) -> Iterator[Batch]:
        """The acknowledged batches.  Raises `Unexpected` for a kick, and a code other than 200."""
        try:
            for each in self._session.received(data):
                if isinstance(each, client_session.Response):
                    batch, count = self._flight[each.id]
                    answer = _answer(each.body)
                    if answer.get("code") != 200:
                        raise Unexpected(
                            f"answered {each.body.decode(errors='replace')}"
                        )
                    del self._flight[each.id]
                    batch.acknowledged += count
                    if batch.done:
                        del self._batches[batch]
                        yield batch
                elif isinstance(each, client_session.HandshakeDone):
                    self.alive_every = each.heartbeat / _SIGNS
                elif isinstance(each, client_session.Kicked):
                    raise Unexpected(f"kicked: {each.reason}")
        except client_session.Unexpected as why:
            raise Unexpected(str(why)) from None

    def disconnected(self) -> None:
        """The connection ended: what is not answered is to be sent again."""
        self.resent += self.in_flight
        self._flight.clear()
        for batch in self._batches:
            batch.sent = batch.acknowledged

    def set_aside(self) -> Batch | None:
        batch = next(iter(self._batches))
        self._set_aside(batch)
        return batch if batch.done else None

    def alive(self) -> bytes:
        return self._session.heartbeat()

    def _messages(self, batch: Batch, count: int) -> bytes:
        """The next *count* events of a batch: all but the last as notifies."""
        first = batch.sent
        *notified, last = batch.events[first : first + count]
        parts = []
        for number, event in enumerate(notified):
            try:
                parts.append(self._session.notify(self._route, event))
            except _UNSENDABLE as why:
                if number:  # what is before it can go
                    return self._messages(batch, number)
                raise self._unsendable(batch, why) from None
        try:
            identity, package = self._session.request(self._route, last)
        except _UNSENDABLE as why:
            if notified:
                return self._messages(batch, len(notified))
            raise self._unsendable(batch, why) from None
        batch.sent += count
        self._flight[identity] = batch, count
        return b"".join((*parts, package))

    def _unsendable(self, batch: Batch, why: Exception) -> Unsendable:
        text = f"it fits no message of {self._route!r}: {why}"
        self._set_aside(batch, text)
        return Unsendable(batch, text)

    def _set_aside(self, batch: Batch, why: str = "") -> None:
        batch.set_aside(why)
        if batch.done:
            del self._batches[batch]


_UNSENDABLE = (Unencodable, msgspec.DecodeError, OverflowError, ValueError)
"""Errors of an event that becomes no message: no object for a route with definitions, or too
large."""


def _answer(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
