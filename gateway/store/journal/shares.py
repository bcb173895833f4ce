"""How much of the queue for the disk one address may fill before it is read no further.

Batches leave that queue in the order in which they came, over all connections: an event's
number is its place in it, and what a protocol keeps is changed in this order.  So nobody
passes a crowd by; instead the crowd is not let in.  What one address may have in the queue
is a share of a few commit groups, the smaller the more addresses have something there, and
never less than a few batches.  The disk has enough to do meanwhile, so nobody is slower.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from twisted.internet.defer import Deferred

from gateway.event import Batch, Origin, address_of
from gateway.store.journal.queues import GROUP_BATCHES, GROUP_BYTES

_ALL_BATCHES = 8 * GROUP_BATCHES
"""What an address may have that is alone, …"""
_LEAST_BATCHES = 4
"""… and among however many, in batches …"""
_BATCH_BYTES = GROUP_BYTES // GROUP_BATCHES
"""… of as many bytes: a larger one counts as several."""
_OWN_BATCHES = 2
"""A connection that has fewer is not held back for its neighbours: who asks and waits for
the answer never is."""
_AT_ONCE = 128
"""So many connections are read again in one turn of the reactor."""


class Shares:
    """Of one journal; for the reactor's thread.  An address is `event.address_of`."""

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        """What each address has in the queue, if anything."""
        self._asked: dict[str, OrderedDict[Deferred[None], None]] = {}
        """Who waits until it is less, if anybody, …"""
        self._less: dict[str, None] = {}
        """… and where it is, since `wake` has looked."""

    def add(self, batch: Batch) -> None:
        """It comes into the queue."""
        origin, waiting = batch.origin, self._waiting
        address = origin.address
        if not address:
            address = origin.address = address_of(origin.peer)
        counted = 1 + len(batch.body) // _BATCH_BYTES
        origin.queued += counted
        waiting[address] = waiting.get(address, 0) + counted

    def remove(self, batches: Sequence[Batch]) -> None:
        """They leave the queue, with the bodies that they came with."""
        waiting = self._waiting
        addresses: dict[str, None] = {}
        for batch in batches:
            origin, counted = batch.origin, 1 + len(batch.body) // _BATCH_BYTES
            origin.queued -= counted
            waiting[origin.address] -= counted
            addresses[origin.address] = None
        for address in addresses:
            if not waiting[address]:
                del waiting[address]
            if address in self._asked:
                self._less[address] = None

    def over(self, origin: Origin) -> bool:
        """Its address has all that it may have, and it has more of that than a little."""
        if origin.queued < _OWN_BATCHES:
            return False
        count = self._waiting.get(origin.address, 0)
        return count >= _LEAST_BATCHES and count * len(self._waiting) >= _ALL_BATCHES

    @property
    def _most(self) -> int:
        return max(_LEAST_BATCHES, -(-_ALL_BATCHES // max(1, len(self._waiting))))

    def when_less(self, origin: Origin) -> Deferred[None]:
        """Fires when `over` is no longer true, for one after another."""
        address = origin.address
        waiter: Deferred[None] = Deferred(lambda gone: self._forget(address, gone))
        self._asked.setdefault(address, OrderedDict())[waiter] = None
        return waiter

    def _forget(self, address: str, waiter: Deferred[None]) -> None:
        asked = self._asked.get(address)
        if asked is not None:
            asked.pop(waiter, None)
            if not asked:
                del self._asked[address]

    def wake(self, *, all_of_them: bool) -> bool:
        """Tell those who wait, one for each batch that their addresses may have more.

        True if that was enough for one turn, and others are to be told in the next.
        """
        left = _AT_ONCE
        for address in tuple(self._asked if all_of_them else self._less):
            waiting = self._waiting.get(address, 0)
            room = self._most - waiting
            if all_of_them or not waiting:
                # Nothing may leave the queue for long, so nobody may be left.
                room = len(self._asked.get(address, ()))
            while room > 0 and (asked := self._asked.get(address)):
                if not left:
                    return True
                left -= 1
                room -= 1
                waiter = next(iter(asked))
                self._forget(address, waiter)
                waiter.callback(None)
            self._less.pop(address, None)
        return bool(self._less)  # meanwhile, by those who were told
