"""Shares of the queue for the disk: how much one address may fill before it is read no further.

Batches leave that queue in the order in which they came, over all connections.  An event's
number is its place in it, and what a protocol keeps is changed in this order.  So no batch
passes a crowd by; instead the crowd is not let in.  An address may have a share of a few
commit groups in the queue.  It is the smaller the more addresses have something there, and
never less than a few batches.  The disk has enough to do meanwhile, so no sender is slower.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from twisted.internet.defer import Deferred

from gateway.event import Batch, Origin, address_of
from gateway.store.journal.queues import GROUP_BATCHES, GROUP_BYTES

_ALL_BATCHES = 8 * GROUP_BATCHES
"""Batches of an address that is alone."""
_LEAST_BATCHES = 4
"""Batches of each address among however many."""
_BATCH_BYTES = GROUP_BYTES // GROUP_BATCHES
"""Bytes of a batch: a larger one counts as several."""
_OWN_BATCHES = 2
"""A connection that has fewer is not held back for its neighbours: who asks and waits for
the answer never is."""
_AT_ONCE = 128
"""Connections that are read again in one turn of the reactor."""


class Shares:
    """The shares of one journal; for the reactor's thread.  An address is `event.address_of`."""

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        """The batches that each address has in the queue, if any."""
        self._asked: dict[str, OrderedDict[Deferred[None], None]] = {}
        """Waiters, by address, until it has less."""
        self._less: dict[str, None] = {}
        """Addresses that have less since `wake` has looked."""

    def add(self, batch: Batch) -> None:
        """Count a batch that comes into the queue."""
        origin, waiting = batch.origin, self._waiting
        address = origin.address
        if not address:
            address = origin.address = address_of(origin.peer)
        counted = 1 + len(batch.body) // _BATCH_BYTES
        origin.queued += counted
        waiting[address] = waiting.get(address, 0) + counted

    def remove(self, batches: Sequence[Batch]) -> None:
        """Count batches off that leave the queue, with the bodies that they came with."""
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
        """Whether its address has all that it may have, and it has more of that than a little."""
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
