"""The memory that peers make us hold, counted over all listeners: who holds most lets go.

A connection holds the input that its server can not use yet, as the beginning of a
message, and the output that its peer does not take.  All connections together may hold
half of `journal.memory_bytes`.  When they hold more, the *address* that holds most loses
the connection that holds most of it: many small connections of one peer weigh as much as
a large one, and nobody else pays for them.

Many addresses that hold a little each could make an honest sender the one that holds most.
So where no address has an eighth of all, those connections let go first that *stand*: at
the pace of late, what they have begun would take more than half a minute.  Whoever goes
on faster than that has to send, again and again, as much as all hold.

A share of it may be *read ahead* (`read_ahead`): it counts for its address like all else,
but to read more of it is never a reason to let go, as there is a limit before each read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from gateway.event import network_of
from gateway.interfaces import Refusal

__all__ = ["Account", "MemoryBudget"]


_MUCH = 8
"""An address with the eighth part of all lets go first, whatever it does."""


class _Holder(Protocol):
    def let_go(self, why: Refusal) -> None:
        """Hold nothing any more, and close."""


class MemoryBudget:
    """What all connections of a daemon hold."""

    def __init__(
        self, reserve: Callable[[int], bool], read_ahead_bytes: int = 64 << 20
    ) -> None:
        """*reserve* adds to what is held in all; false: that is too much.

        *read_ahead_bytes* is what all connections together may have read ahead.
        """
        self._reserve = reserve
        self.read_ahead_bytes = read_ahead_bytes
        """It may change; what is read ahead already is then let be."""
        self._ahead = 0
        self._held = 0
        self._addresses: dict[str, int] = {}
        """What each holds, with what is read ahead of it …"""
        self._ahead_of: dict[str, int] = {}
        """… and that alone."""
        self._accounts: dict[Account, None] = {}
        self._freeing = False

    def account(self, holder: _Holder, host: str) -> Account:
        """That of a new connection from *host*; it holds nothing yet."""
        return Account(self, holder, network_of(host))

    def changed(self, account: Account, change: int) -> None:
        """Count it.  May call anybody's `let_go`."""
        self._count(account, change)
        if not self._reserve(change) and change > 0 and not self._freeing:
            self._freeing = True
            try:
                self._free()
            finally:
                self._freeing = False

    def ahead_changed(self, account: Account, change: int) -> None:
        """Count it: so much more is read ahead, or less."""
        self._count_ahead(account, change)
        self._reserve(change)

    def take_room(self, account: Account, size: int) -> bool:
        """Count *size* bytes more as read ahead, if they may be.

        A connection may have as much as it leaves to all others, and an address three
        times that: the more there are, the less has each, and nobody takes all that is
        left.
        """
        left = self.read_ahead_bytes - self._ahead - size
        of_address = self._ahead_of.get(account.address, 0)
        if account.ahead > left or of_address + size > 3 * left:
            return False
        if not self._reserve(size):
            self._reserve(-size)
            return False
        account.ahead += size
        self._count_ahead(account, size)
        return True

    def _count(self, account: Account, change: int) -> None:
        self._held += change
        _add(self._addresses, account.address, change)
        if account.size or account.ahead:
            self._accounts[account] = None
        else:
            self._accounts.pop(account, None)

    def _count_ahead(self, account: Account, change: int) -> None:
        self._ahead += change
        _add(self._ahead_of, account.address, change)
        self._count(account, change)

    def _free(self) -> None:
        """Let go of the largest until it is not too much any more."""
        while self._accounts and not self._reserve(0):
            self._free_largest()

    def _free_largest(self) -> None:
        held = self._addresses
        address = max(held, key=held.__getitem__)
        of_it, what = held[address], "the most"
        accounts: Iterable[Account] = self._accounts
        if of_it * _MUCH < self._held and (standing := self._standing()):
            accounts = (one for one in self._accounts if one.stands)
            address = max(standing, key=standing.__getitem__)
            of_it, what = standing[address], "the most of those that make no progress"
        largest = max(
            (one for one in accounts if one.address == address),
            key=lambda one: one.size + one.ahead,
        )
        why = Refusal(
            f"{largest.size + largest.ahead} bytes of unfinished input or unread output, "
            f"of {of_it} from its address, {what} while all connections together hold too "
            "many",
            key="journal.memory_bytes",
        )
        largest.holder.let_go(why)
        largest.hold(0)
        largest.read_ahead(0)

    def _standing(self) -> dict[str, int]:
        """What each address holds with connections that stand."""
        found: dict[str, int] = {}
        for one in self._accounts:
            if one.stands:
                _add(found, one.address, one.size + one.ahead)
        return found


def _add(counts: dict[str, int], key: str, change: int) -> None:
    """What is 0 is not kept."""
    total = counts.get(key, 0) + change
    if total:
        counts[key] = total
    else:
        counts.pop(key, None)


class Account:
    """What one connection holds."""

    __slots__ = ("_budget", "address", "ahead", "holder", "size", "stands")

    def __init__(self, budget: MemoryBudget, holder: _Holder, address: str) -> None:
        self.holder = holder
        self.address = address
        """Whom it counts for: an IPv4 address, an IPv6 network, `unix`."""
        self.size = 0
        """Bytes of unfinished input and unread output."""
        self.ahead = 0
        """Bytes that are read ahead, and the room for the next read."""
        self.stands = False
        """What it holds does not come any further, or is not taken."""
        self._budget = budget

    def hold(self, size: int) -> None:
        """It holds *size* bytes now.  May call anybody's `let_go`."""
        change, self.size = size - self.size, size
        if change:
            self._budget.changed(self, change)

    def take_room(self, size: int) -> bool:
        """Count room to read *size* bytes more ahead; false: there is none now."""
        return self._budget.take_room(self, size)

    def read_ahead(self, size: int) -> None:
        """So much of it is read ahead now, with the room for the next read."""
        change, self.ahead = size - self.ahead, size
        if change:
            self._budget.ahead_changed(self, change)
