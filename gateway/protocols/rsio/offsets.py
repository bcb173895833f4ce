"""How many elements are stored of each named sender, for exact resumption (extension 2).

A sender that has a name is asked to resume behind its stored elements, and their
numbers continue.  This is exact because

- one connection at a time publishes under a name: a newer one takes over,
- a new stream begins only when no element of the last one is on its way to the disk,
- the numbers are in the journal, with the elements: `replay` reads them back.

If a batch can not be stored, the ones submitted after it are not counted, even if they
are stored: their elements come again, as doubles, rather than be lost.

A proved name (`options.tokens`, a certificate) and an unproved one are never the same
sender, even if they are spelled alike.  Whoever may connect can send any number of
unproved names, so only the latest of those are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import msgspec
from attrs import define
from twisted.internet.defer import Deferred, succeed

from gateway.event import Origin, Stored
from gateway.protocols.rsio import events

__all__ = ["SOURCE", "Claim", "Key", "Offsets"]

PROTOCOL = "rsio"

SOURCE = "source"
"""The attribute of an event's origin that holds an unproved name."""

_UNPROVED = 1 << 17
"""Each costs 400 bytes, and the reactor some time in every snapshot."""

Ready: TypeAlias = "Callable[[Claim, int], None]"
Evicted: TypeAlias = "Callable[[Claim], None]"


class Key(NamedTuple):
    """A sender's publisher: its elements are numbered together."""

    source: str
    publisher: str
    proved: bool = False

    @classmethod
    def of(cls, origin: Origin, publisher: str) -> Key | None:
        """The key of a sender's publisher; None if the sender has no name."""
        if origin.principal:
            return cls(origin.principal, publisher, proved=True)
        said = origin.attributes.get(SOURCE)
        return cls(said, publisher) if said else None


@define(eq=False)
class Claim:
    """One stream's exclusive right to publish under a key."""

    key: Key
    _progress: _Progress
    _ready: Ready
    _evicted: Evicted

    def begin(self) -> None:
        """Call *ready* when no element is on its way to the disk: now, or later."""
        progress = self._progress
        progress.waiting = True
        if not progress.pending:
            progress.start()

    def start(self, stored: int) -> None:
        """Resume behind the first *stored* elements."""
        self._ready(self, stored)

    def submitted(self, count: int) -> None:
        """*count* elements are on their way to the disk."""
        self._progress.pending += count

    def settled(self, count: int, *, stored: bool) -> None:
        """*count* elements are durable, or could not be *stored*."""
        progress = self._progress
        progress.pending -= count
        if not stored:
            progress.broken = True
        elif not progress.broken:
            progress.durable += count
        self._check_settled()

    def withdrawn(self, count: int) -> None:
        """The last *count* elements submitted will not be stored, nor any behind them."""
        self._progress.pending -= count
        self._check_settled()

    def _check_settled(self) -> None:
        progress = self._progress
        if not progress.pending:
            progress.broken = False
            progress.start()

    def release(self) -> None:
        """The stream is over; its elements on their way to the disk still count."""
        if self._progress.claim is self:
            self._progress.claim = None

    def evict(self) -> None:
        """A newer stream takes over."""
        self.release()
        self._evicted(self)


class _Progress:
    """How far one key is."""

    __slots__ = ("broken", "claim", "durable", "pending", "waiting")

    def __init__(self, durable: int) -> None:
        self.durable = durable
        self.pending = 0
        """Elements on their way to the disk."""
        self.broken = False
        """One of those could not be stored: the others do not count."""
        self.claim: Claim | None = None
        self.waiting = False
        """The claim has begun, and starts when nothing is pending."""

    def start(self) -> None:
        if self.waiting and self.claim is not None:
            self.waiting = False
            self.claim.start(self.durable)


class Offsets:
    """The progress of all named senders."""

    def __init__(
        self, known: Iterable[tuple[Key, int]] = (), *, most: int = _UNPROVED
    ) -> None:
        """At most *most* unproved names are remembered.  A further one replaces the
        oldest that is not connected; if all are connected, it can not resume.
        """
        self._most = most
        self._load((Key(*key), durable) for key, durable in known)

    def _load(self, known: Iterable[tuple[Key, int]]) -> None:
        self._known = {key: _Progress(durable) for key, durable in known}
        """Oldest first, by the time of the latest claim."""
        self._unproved = sum(not key.proved for key in self._known)

    def claim(self, key: Key, ready: Ready, evicted: Evicted) -> Claim | None:
        """The right to publish under *key*; None if there are too many unproved names.

        After `begin`, *ready* is called with the number of stored elements.  *evicted*
        is called if another stream claims the same key.
        """
        progress = self._known.pop(key, None)
        if progress is None:
            if not key.proved and self._unproved >= self._most and not self._forget():
                return None
            progress = _Progress(0)
            self._unproved += not key.proved
        self._known[key] = progress
        if progress.claim is not None:
            progress.claim.evict()
        claim = progress.claim = Claim(key, progress, ready, evicted)
        return claim

    @property
    def known(self) -> list[tuple[Key, int]]:
        """The number of durable elements of each key that has any."""
        return [(key, one.durable) for key, one in self._known.items() if one.durable]

    # -- implements `interfaces.Memory` ------------------------------------------

    def restore(self, data: bytes) -> None:
        """Load a snapshot; raises msgspec.DecodeError."""
        known = msgspec.msgpack.decode(data, type=list[tuple[str, str, bool, int]])
        self._load(
            (Key(source, publisher, proved), durable)
            for source, publisher, proved, durable in known
        )

    def replay(self, stored: Stored) -> None:
        """Count a batch that is in the journal; called in the order of the journal."""
        origin = stored.batch.origin
        if origin.protocol != PROTOCOL or Key.of(origin, "") is None:
            return
        for part in events.parts(stored.batch.body):
            key = Key.of(origin, part.publisher)
            if part.resumed and key is not None:
                self._learn(key, part.first, part.count)

    def start(self) -> None:
        """Nothing to do."""

    def stop(self) -> None:
        """Nothing to do."""

    def snapshot(self) -> Deferred[bytes]:
        """All progress, as bytes for `restore`."""
        return succeed(msgspec.msgpack.encode([(*key, n) for key, n in self.known]))

    def _learn(self, key: Key, first: int, count: int) -> None:
        last = first + count - 1
        progress = self._known.pop(key, None)
        if progress is None:
            progress = _Progress(last)
            self._unproved += not key.proved
        elif first <= progress.durable + 1:
            progress.durable = max(progress.durable, last)
        self._known[key] = progress

    def _forget(self) -> bool:
        """Forget the oldest unproved name that is not connected; False if there is none."""
        for key, one in self._known.items():
            if not (key.proved or one.pending or one.claim):
                del self._known[key]
                self._unproved -= 1
                return True
        return False
