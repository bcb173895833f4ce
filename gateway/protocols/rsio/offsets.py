"""How far each sender's publishers are stored: what makes resuming exact (extension 2).

A sender that has a name is asked to go on behind the elements that are stored, and the
numbers of its elements go on as well.  For that to be exact

- one connection at a time publishes for a name: a newer one takes over,
- a new stream begins only when nothing of the last one is on its way to the disk,
- the numbers are in the journal, with the elements: `replay` reads them back.

What was stored behind a batch that could not be is not counted; its elements will come
again, as doubles, rather than be lost.

A name that was proved (`options.tokens`, a certificate) and one that was only said are
never the same sender.  Whoever may connect can say any number of names, so of those
only the latest are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import msgspec
from twisted.internet.defer import Deferred, succeed

from gateway.event import Origin, Stored
from gateway.protocols.rsio import events

__all__ = ["SOURCE", "Claim", "Key", "Offsets"]

PROTOCOL = "rsio"

SOURCE = "source"
"""The attribute of an origin whose peer gave a name without a proof."""

_SAID = 1 << 17  # a place costs 400 bytes, and the reactor some time in each snapshot

Told: TypeAlias = "Callable[[Claim, int], None]"
Evicted: TypeAlias = "Callable[[Claim], None]"


class Key(NamedTuple):
    """Whose elements are numbered together."""

    source: str
    publisher: str
    proved: bool = False

    @classmethod
    def of(cls, origin: Origin, publisher: str) -> Key | None:
        """That of a sender's publisher; None if the sender has no name."""
        if origin.principal:
            return cls(origin.principal, publisher, proved=True)
        said = origin.attributes.get(SOURCE)
        return cls(said, publisher) if said else None


class Claim:
    """One stream's right to publish for a name."""

    __slots__ = ("_evicted", "_place", "_ready", "key")

    def __init__(self, key: Key, place: _Place, ready: Told, evicted: Evicted) -> None:
        self.key = key
        self._place = place
        self._ready = ready
        self._evicted = evicted

    def begin(self) -> None:
        """Call *ready* as soon as nothing is on its way: now, or later."""
        place = self._place
        place.waiting = True
        if not place.pending:
            place.start()

    def go(self, stored: int) -> None:
        """Publish, behind the first *stored* elements."""
        self._ready(self, stored)

    def submitted(self, count: int) -> None:
        """*count* elements are on their way to the disk."""
        self._place.pending += count

    def settled(self, count: int, *, stored: bool) -> None:
        """… and have arrived there, or have not."""
        place = self._place
        place.pending -= count
        if not stored:
            place.broken = True
        elif not place.broken:
            place.durable += count
        if not place.pending:
            place.broken = False
            place.start()

    def release(self) -> None:
        """The stream is over; what is on its way still counts."""
        if self._place.claim is self:
            self._place.claim = None

    def take_away(self) -> None:
        """A newer stream takes over."""
        self.release()
        self._evicted(self)


class _Place:
    __slots__ = ("broken", "claim", "durable", "pending", "waiting")

    def __init__(self, durable: int) -> None:
        self.durable = durable
        self.pending = 0
        self.broken = False
        self.claim: Claim | None = None
        self.waiting = False

    def start(self) -> None:
        if self.waiting and self.claim is not None:
            self.waiting = False
            self.claim.go(self.durable)


class Offsets:
    """All that are known."""

    def __init__(
        self, known: Iterable[tuple[Key, int]] = (), *, most: int = _SAID
    ) -> None:
        """*most* names that are not proved have a place.  For the next one, that which
        came before all others goes; while all of them are here, it publishes without.
        """
        self._most = most
        self._know((Key(*key), durable) for key, durable in known)

    def _know(self, known: Iterable[tuple[Key, int]]) -> None:
        self._places = {key: _Place(durable) for key, durable in known}
        """In the order in which they came."""
        self._said = sum(not key.proved for key in self._places)

    def claim(self, key: Key, ready: Told, evicted: Evicted) -> Claim | None:
        """The right to publish for *key*; None if there is no place left.

        After `begin`, *ready* is called with how many elements are stored; and
        *evicted* if another stream claims the same.
        """
        place = self._places.pop(key, None)
        if place is None:
            if not key.proved and self._said >= self._most and not self._forget():
                return None
            place = _Place(0)
            self._said += not key.proved
        self._places[key] = place
        if place.claim is not None:
            place.claim.take_away()
        claim = place.claim = Claim(key, place, ready, evicted)
        return claim

    @property
    def known(self) -> list[tuple[Key, int]]:
        """Who has a place, and how many of its elements are durable."""
        return [(key, one.durable) for key, one in self._places.items() if one.durable]

    # -- a memory: see `interfaces.Memory` ------------------------------------------

    def restore(self, data: bytes) -> None:
        """Begin where a snapshot says; raises msgspec.DecodeError."""
        known = msgspec.msgpack.decode(data, type=list[tuple[str, str, bool, int]])
        self._know(
            (Key(source, publisher, proved), durable)
            for source, publisher, proved, durable in known
        )

    def replay(self, stored: Stored) -> None:
        """A batch that was found in the journal, in the order of the journal."""
        origin = stored.batch.origin
        if origin.protocol != PROTOCOL or Key.of(origin, "") is None:
            return
        for part in events.parts(stored.batch.body):
            key = Key.of(origin, part.publisher)
            if part.resumed and key is not None:
                self._learn(key, part.first, part.count)

    def start(self) -> None:
        """Nothing to do: peers come to us."""

    def stop(self) -> None:
        """Nothing to do."""

    def snapshot(self) -> Deferred[bytes]:
        """How far each sender is durable."""
        return succeed(msgspec.msgpack.encode([(*key, n) for key, n in self.known]))

    def _learn(self, key: Key, first: int, count: int) -> None:
        last = first + count - 1
        place = self._places.pop(key, None)
        if place is None:
            place = _Place(last)
            self._said += not key.proved
        elif first <= place.durable + 1:
            place.durable = max(place.durable, last)
        self._places[key] = place

    def _forget(self) -> bool:
        """Let go of the name that came before all others that are not here."""
        for key, one in self._places.items():
            if not (key.proved or one.pending or one.claim):
                del self._places[key]
                self._said -= 1
                return True
        return False
