"""The memory that peers make us hold, counted over all listeners: who holds most lets go.

A connection holds the input that its server can not use yet, as the beginning of a
message, and the output that its peer does not take.  All connections together may hold
half of `journal.memory_bytes`.  When they hold more, the *address* that holds most loses
the connection that holds most of it: many small connections of one peer weigh as much as
a large one, and nobody else pays for them.

A share of it may be *read ahead* (`read_ahead`), which is never a reason to let go: nobody
can do without what was read already, so there is a limit before the read instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.interfaces import Refusal
from gateway.net.limits import network_of

__all__ = ["Account", "MemoryBudget"]


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
        self._read_ahead_bytes = read_ahead_bytes
        self._ahead = 0
        self._addresses: dict[str, int] = {}
        self._accounts: dict[Account, None] = {}
        self._freeing = False

    def account(self, holder: _Holder, host: str) -> Account:
        """That of a new connection from *host*; it holds nothing yet."""
        return Account(self, holder, network_of(host))

    def changed(self, account: Account, change: int) -> None:
        """Count it.  May call anybody's `let_go`."""
        address = account.address
        total = self._addresses.get(address, 0) + change
        if total:
            self._addresses[address] = total
        else:
            del self._addresses[address]
        if account.size:
            self._accounts[account] = None
        else:
            del self._accounts[account]
        if not self._reserve(change) and change > 0 and not self._freeing:
            self._freeing = True
            try:
                self._free()
            finally:
                self._freeing = False

    def read_ahead(self, held: int, size: int) -> bool:
        """Whether a connection that *held* so much may read *size* bytes more ahead.

        It may have as much as it leaves to all others: the more there are, the less has
        each, and there is always some for the next one.
        """
        if held + size > self._read_ahead_bytes - self._ahead:
            return False
        if not self._reserve(size):
            self._reserve(-size)
            return False
        self._ahead += size
        return True

    def free_ahead(self, size: int) -> None:
        """So much less is read ahead; negative: more, as was read already."""
        if size:
            self._ahead -= size
            self._reserve(-size)

    def _free(self) -> None:
        """Let go of the largest until it is not too much any more."""
        while self._accounts and not self._reserve(0):
            self._free_largest()

    def _free_largest(self) -> None:
        address = max(self._addresses, key=self._addresses.__getitem__)
        largest = max(
            (one for one in self._accounts if one.address == address),
            key=lambda one: one.size,
        )
        why = Refusal(
            f"{largest.size} bytes of unfinished input or unread output, of "
            f"{self._addresses[address]} from its address, the most while all "
            "connections together hold too many",
            key="journal.memory_bytes",
        )
        largest.holder.let_go(why)
        largest.hold(0)


class Account:
    """What one connection holds."""

    __slots__ = ("_budget", "address", "holder", "size")

    def __init__(self, budget: MemoryBudget, holder: _Holder, address: str) -> None:
        self.holder = holder
        self.address = address
        """Whom it counts for: an IPv4 address, an IPv6 network, `unix`."""
        self.size = 0
        """Bytes."""
        self._budget = budget

    def hold(self, size: int) -> None:
        """It holds *size* bytes now.  May call anybody's `let_go`."""
        change, self.size = size - self.size, size
        if change:
            self._budget.changed(self, change)
