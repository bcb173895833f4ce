"""Demand: what a subscriber has asked for and not got.

Reactive Streams in three sentences.  Asking adds up (3.8), asking for nothing or less
is an error (3.9), and from 2^63 - 1 on the demand has no bound any more: it saturates,
never wraps, never is an error (3.17).

`Credit` is a subscriber's side where asking for more *is* the acknowledgement.
"""

from __future__ import annotations

__all__ = ["UNBOUNDED", "Credit", "Demand", "not_positive", "saturating_add"]

UNBOUNDED = 2**63 - 1
"""The demand at and above which all is wanted, for ever."""


def not_positive(number: int) -> bool:
    """Whether a Long is not positive: 0, or what a peer's negative one looks like."""
    return number == 0 or number > UNBOUNDED


def saturating_add(one: int, other: int) -> int:
    """Their sum, or no bound."""
    return min(one + other, UNBOUNDED)


class Demand:
    """What may be published on a stream now."""

    __slots__ = ("left",)

    def __init__(self, left: int = 0) -> None:
        self.left = min(left, UNBOUNDED)
        """So many elements; `UNBOUNDED` stays as it is."""

    def add(self, more: int) -> None:
        """The subscriber asks for *more*."""
        self.left = saturating_add(self.left, more)

    def take(self, count: int) -> None:
        """*count* elements are on their way (1.1); ValueError if that is too many."""
        if count > self.left:
            raise ValueError(f"{count} elements for a demand of {self.left} (1.1)")
        if self.left != UNBOUNDED:
            self.left -= count


class Credit:
    """The demand of a subscriber that asks for k more when k more are durable.

    So its publisher knows: durable >= all demand it ever got - the first demand.
    Always: durable <= arrived <= granted = window + acknowledged.
    """

    __slots__ = ("acknowledged", "arrived", "durable", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        """The first demand."""
        self.arrived = 0
        self.durable = 0
        self.acknowledged = 0
        """Durable, and the publisher knows."""

    @property
    def due(self) -> bool:
        """Half the window is durable and not acknowledged, or all that arrived is.

        Half, because a request for every element would cost more than the elements;
        all, because nothing may be withheld for want of company.
        """
        unsaid = self.durable - self.acknowledged
        return unsaid > 0 and (
            unsaid * 2 >= self.window or self.durable == self.arrived
        )

    def grant(self) -> int:
        """What to ask for now; it counts as asked for."""
        more = self.durable - self.acknowledged
        self.acknowledged = self.durable
        return more
