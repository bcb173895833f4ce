"""The memory that peers make us hold, counted over all listeners: who reads on, who lets go.

A connection holds the input that its server can not use yet, as the beginning of a
message, and the output that its peer does not take.  All connections together may hold
half of `journal.memory_bytes`.

Senders that behave can want more: a thousand that are in the middle of a window each,
or all of them when the disk hangs.  So when a quarter of it is left it is *tight*, and
input is read in an order (`Account.room`).  Those go on that have waited longest for an
event to become durable.  These are as many as what is left will do for, if their messages
are as large as the last.  The others are left in the kernel's hands until there is room;
new ones go last.  Addresses that hold little are read as they come, until there is an
eighth of all left, which is for those that have begun.  And one that has not an eighth of
all waits for no address that has a quarter.

When they hold too much all the same, the *address* that holds most loses the connection
that holds most of it.  So many small connections of one peer weigh as much as a large one,
and no other peer pays for them.

Many addresses that hold a little each could make an honest sender the one that holds most.
So where no address has an eighth of all, those connections let go first that *stand*.  At
their latest pace, what they have begun would take more than half a minute.  To be faster
than that, an attacker has to send, again and again, as much as all hold.

A share of it may be *read ahead* (`read_ahead`).  It counts for its address like all else,
but to read more of it is never a reason to let go, as there is a limit before each read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Protocol

from attrs import define

from gateway.event import network_of
from gateway.sdk.interfaces import Refusal

_MUCH = 8
"""An address with the eighth part of all lets go first, whatever it does."""
_LITTLE = 1 << 12
"""Bytes of the smallest read; and of a connection that holds nothing, when it is tight."""
_FEW_CONNECTIONS = 32
"""Connections that read as much as they like at a time, if there is plenty."""
_LOOKED_BYTES = 1 << 18
"""The least change of what is left, or a quarter, after which the order is made again."""


class _Holder(Protocol):
    def let_go(self, why: Refusal) -> None:
        """Hold nothing any more, and close."""


@define(eq=False, slots=False)
class MemoryBudget:
    """The memory of all connections of a daemon.

    *reserve* adds to what is held in all; false: that is too much.  *left* says how many
    bytes may still be held.

    29 methods: who reads on and who lets go is told by the same sums, in the same order.
    """

    _reserve: Callable[[int], bool]
    read_ahead_bytes: int = 64 << 20
    """Bytes that all connections together may have read ahead.

    It may change; what is read ahead already is then let be."""
    _left: Callable[[], int] = lambda: 1 << 40

    def __attrs_post_init__(self) -> None:
        self._ahead = 0
        self.held_bytes = 0
        """Unfinished input and unread output of all connections."""
        self._addresses: dict[str, int] = {}
        """Bytes that each address holds, with what is read ahead of it."""
        self._ahead_of: dict[str, int] = {}
        """Bytes that are read ahead of each address."""
        self._accounts: dict[Account, None] = {}
        """Accounts that hold something, or wait to, in the order of `Account.place`."""
        self._places = count(1)
        self._freeing = False
        self._tight = False
        self._last_place = 0
        """The last place in order that may read."""
        self._first = self._first_left = 0
        """The number that may read, and of those that still hold what they held."""
        self._largest = 0
        """Bytes of the address that has most."""
        self._looked_at = 0
        """Bytes that were left when the order was made."""
        self._usual = 0
        """The most that a connection held before an event of it was durable, of late."""
        self._waiting: dict[Account, Callable[[], None]] = {}
        """Accounts that may not read, and the callback that tells each that it may."""

    def account(self, holder: _Holder, host: str) -> Account:
        """The account of a new connection from *host*; it holds nothing yet."""
        return Account(self, holder, network_of(host))

    def changed(self, account: Account, change: int) -> None:
        """Count it.  May call `let_go` of any account."""
        self._count(account, change)
        enough = self._reserve(change)
        if change < 0:
            self._less_held()
        elif not enough and not self._freeing:
            self._freeing = True
            try:
                self._free()
            finally:
                self._freeing = False

    def ahead_changed(self, account: Account, change: int) -> None:
        """Count it: so much more is read ahead, or less."""
        self._count_ahead(account, change)
        self._reserve(change)
        if change < 0:
            self._less_held()

    def take_room(self, account: Account, size: int) -> bool:
        """Count *size* bytes more as read ahead, if they may be.

        A connection may have as much as it leaves to all others, and an address three times that.
        So the more there are, the less has each, and none takes all that is left.
        """
        left = self.read_ahead_bytes - self._ahead - size
        of_address = self._ahead_of.get(account.address, 0)
        if self.tight or account.ahead > left or of_address + size > 3 * left:
            return False
        if not self._reserve(size):
            self._reserve(-size)
            return False
        account.ahead += size
        self._count_ahead(account, size)
        return True

    def _count(self, account: Account, change: int) -> None:
        self.held_bytes += change
        _add(self._addresses, account.address, change)
        holds = account.size or account.ahead
        if account in self._accounts:
            if not holds:
                self._leave_place(account)
                account.place = 0
        elif holds:
            self._go_last(account)
        if account in self._waiting and not account.place:
            self._go_last(account)

    def _go_last(self, account: Account) -> None:
        self._accounts[account] = None
        account.place = next(self._places)

    def _leave_place(self, account: Account) -> None:
        del self._accounts[account]
        if account.place <= self._last_place:
            self._first_left -= 1

    def served(self, account: Account) -> None:
        """An event of it became durable: it had its turn."""
        most = account.most + account.most // 8  # as its last read is not in it
        # One alone says little of the others.
        most = min(most, 2 * self._usual + _LOOKED_BYTES)
        account.most = account.input
        self._usual = max(most, self._usual - self._usual // 64)
        if account in self._accounts:
            self._leave_place(account)
            self._go_last(account)
            self._less_held()

    def _count_ahead(self, account: Account, change: int) -> None:
        self._ahead += change
        _add(self._ahead_of, account.address, change)
        self._count(account, change)

    @property
    def waiting(self) -> int:
        """How many connections are not read, as others go first."""
        return len(self._waiting)

    @property
    def plenty(self) -> int:
        """Bytes that may be read of every connection; 0: ask for each (`room`)."""
        left = self._left()
        if self._tight or left * 3 <= self.held_bytes:
            return 0
        return max(_LITTLE, left // (_FEW_CONNECTIONS + len(self._accounts)) // 2)

    @property
    def tight(self) -> bool:
        """Not everybody may read."""
        return not self.plenty

    def room(self, account: Account, again: Callable[[], None]) -> int:
        """Bytes that may be read of it; 0: none now, and *again* is called once it may.

        *again* must not call back into this.
        """
        if plenty := self.plenty:
            return plenty
        left = self._left()
        if not self._tight or self._looked_at - left > self._noticed:
            self._tight = True
            self._look(left)
        if room := self._may_read(account, left):
            self._may_go_on(account)
            return room
        self._waiting[account] = again
        if account not in self._accounts:
            self._go_last(account)
        return 0

    def _may_go_on(self, account: Account) -> Callable[[], None] | None:
        """End its waiting; returns the callback that tells it."""
        again = self._waiting.pop(account, None)
        if again and not (account.size or account.ahead):
            self._leave_place(account)  # which it keeps until it holds something
        return again

    def forget(self, account: Account) -> None:
        """Forget a connection that reads no more."""
        self._may_go_on(account)

    def look(self) -> None:
        """Look whether those that wait may read: due every few seconds.

        The memory that they wait for may have been given back elsewhere.
        """
        if self._tight and not self._ends_tight():
            self._look(self._left())

    def _ends_tight(self) -> bool:
        if self._left() < self.held_bytes:
            return False
        self._tight = False
        self._tell(list(self._waiting))
        return True

    def _less_held(self) -> None:
        if not self._tight or self._ends_tight():
            return
        left = self._left()
        few = self._first_left * 2 <= self._first and self._first_left < self._first
        if few or left - self._looked_at > self._noticed:
            self._look(left)

    @property
    def _noticed(self) -> int:
        """The change of what is left after which to look again."""
        return max(_LOOKED_BYTES, self.held_bytes // 64, abs(self._looked_at) // 4)

    def _look(self, left: int) -> None:
        """Say who goes on while so much is left, and tell those who waited for it."""
        self._looked_at = left
        self._largest = max(self._addresses.values(), default=0)
        self._first = self._last_place = 0
        if left * 16 < left + self.held_bytes:
            left = 0  # the first has all of it
        for one in self._accounts:
            if one.stands or one.size > one.input == 0:  # it waits for no input
                continue
            left -= self._needs(one)
            if left < 0 and self._first:
                break
            self._first += 1
            self._last_place = one.place
        self._first_left = self._first
        free, held = self._free_below(self._looked_at), self._addresses
        last = self._last_place
        self._tell(
            [
                one
                for one in self._waiting
                if held.get(one.address, 0) < free or one.place <= last
            ]
        )

    def _tell(self, accounts: list[Account]) -> None:
        """Tell them to go on; one that does may end the waiting of others of them."""
        for one in accounts:
            if again := self._may_go_on(one):
                again()

    def _needs(self, account: Account) -> int:
        """Bytes that it will presumably hold in addition, until its message is whole."""
        more = max(account.most, self._usual) - account.input
        return more if more > 0 else account.input

    def _free_below(self, left: int) -> int:
        """Bytes of an address below which it may read, whatever its place."""
        free = (left - (left + self.held_bytes) // _MUCH) // _MUCH
        if self._largest * 4 >= self.held_bytes:
            free = max(free, self._largest // _MUCH)
        return free

    def _may_read(self, account: Account, left: int) -> int:
        """Bytes that *account* may read when so much is left; 0: it has to wait."""
        room = self._free_below(left) - self._addresses.get(account.address, 0)
        if room > 0:
            most = room
        elif 0 < account.place <= self._last_place:
            most = left // (1 + self._first) // 2
        else:
            return 0
        return max(_LITTLE, most) if account.size else _LITTLE

    def _free(self) -> None:
        """Let go of the largest until it is not too much any more."""
        while self.held_bytes > 0 and not self._reserve(0):
            self._free_largest()

    def _free_largest(self) -> None:
        held = self._addresses
        address = max(held, key=held.__getitem__)
        of_it, what = held[address], "the most"
        accounts: Iterable[Account] = self._accounts
        if of_it * _MUCH < self.held_bytes and (standing := self._standing()):
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
        """Bytes that each address holds with connections that stand."""
        found: dict[str, int] = {}
        for one in self._accounts:
            if one.stands:
                _add(found, one.address, one.size + one.ahead)
        return found


def _add(counts: dict[str, int], key: str, change: int) -> None:
    """Add to a count; one of 0 is not kept."""
    total = counts.get(key, 0) + change
    if total:
        counts[key] = total
    else:
        counts.pop(key, None)


@define(eq=False, weakref_slot=False)
class Account:
    """The memory of one connection."""

    _budget: MemoryBudget
    holder: _Holder
    address: str
    """The address it counts for: an IPv4 address, an IPv6 network, `unix`."""
    size: int = 0
    """Bytes of unfinished input and unread output."""
    ahead: int = 0
    """Bytes that are read ahead, and the room for the next read."""
    stands: bool = False
    """Whether what it holds does not come any further, or is not taken."""
    input: int = 0
    """Bytes of unfinished input alone."""
    most: int = 0
    """The most bytes of unfinished input since an event of it was durable."""
    place: int = 0
    """The place in order; a lower one goes on first; 0: it holds nothing, and waits for nothing."""

    def hold(self, size: int, unfinished: int | None = None) -> None:
        """Note that it holds *size* bytes now, *unfinished* of input, or all.

        May call the `let_go` of any connection.
        """
        change, self.size = size - self.size, size
        self.input = size if unfinished is None else unfinished
        if change:
            self.most = max(self.most, self.input)
            self._budget.changed(self, change)

    def room(self, again: Callable[[], None]) -> int:
        """Bytes that may be read; 0: none now, and *again* is called once it may."""
        return self._budget.room(self, again)

    def served(self) -> None:
        """An event of it became durable."""
        self._budget.served(self)

    def forget(self) -> None:
        """The connection reads no more."""
        self._budget.forget(self)

    def take_room(self, size: int) -> bool:
        """Count room to read *size* bytes more ahead; false: there is none now."""
        return self._budget.take_room(self, size)

    def read_ahead(self, size: int) -> None:
        """Note the bytes that are read ahead, with the room for the next read."""
        change, self.ahead = size - self.ahead, size
        if change:
            self._budget.ahead_changed(self, change)
