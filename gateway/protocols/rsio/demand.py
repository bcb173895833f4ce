"""Demand: how many elements a subscriber requested and has not got yet.

Requests add up (3.8); one that is not positive is an error (3.9); at 2^63 - 1 and above
demand is unbounded: it saturates, and never wraps or fails (3.17).

`Demand` is the publisher's account of a stream.  `Credit` is the account of a
subscriber whose requests are its acknowledgements.
"""

from __future__ import annotations

UNBOUNDED = 2**63 - 1
"""The demand at and above which a stream is unbounded, for good."""


def not_positive(number: int) -> bool:
    """Whether a Long is 0, or 2^63 and above: a negative number on the wire."""
    return number == 0 or number > UNBOUNDED


def saturating_add(one: int, other: int) -> int:
    """The sum, or `UNBOUNDED` if it is above."""
    return min(one + other, UNBOUNDED)


class Demand:
    """How many elements may be published on a stream now."""

    __slots__ = ("left",)

    def __init__(self, left: int = 0) -> None:
        self.left = min(left, UNBOUNDED)
        """Elements; `UNBOUNDED` is not used up."""

    def add(self, more: int) -> None:
        """The subscriber requested *more* elements."""
        self.left = saturating_add(self.left, more)

    def take(self, count: int) -> None:
        """*count* elements are sent; ValueError if they exceed the demand (1.1)."""
        if count > self.left:
            raise ValueError(f"{count} elements for a demand of {self.left} (1.1)")
        if self.left != UNBOUNDED:
            self.left -= count


class Credit:
    """Demand as acknowledgement: k more elements are requested when k more are durable.

    So the publisher knows: durable >= all demand it ever got - the first demand.
    Invariant: durable <= arrived <= granted = window + acknowledged.

    A publisher that knows extension 2 is told what is durable apart from that, so that
    it hears of it also while nothing more can be requested.
    """

    __slots__ = ("acknowledged", "arrived", "durable", "told", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        """The first demand."""
        self.arrived = 0
        self.durable = 0
        self.acknowledged = 0
        """Durable, and requested again: the publisher knows."""
        self.told = 0
        """Durable, and the publisher was told so (extension 2)."""

    @property
    def due(self) -> bool:
        """Whether to request now.

        Yes if half the window is durable and not acknowledged: a request for every
        element would cost more than the elements.  Yes if all that arrived is durable:
        a publisher that sends nothing more must not wait for its acknowledgement.
        """
        return self._due(self.acknowledged)

    @property
    def untold(self) -> bool:
        """Whether to tell now what is durable: by the rule of `due`."""
        return self._due(self.told)

    def _due(self, known: int) -> bool:
        owed = self.durable - known
        return owed > 0 and (owed * 2 >= self.window or self.durable == self.arrived)

    def tell(self) -> int:
        """How many elements are durable; they count as told."""
        self.told = self.durable
        return self.durable

    def grant(self) -> int:
        """How many elements to request now; they count as requested."""
        more = self.durable - self.acknowledged
        self.acknowledged = self.durable
        return more
