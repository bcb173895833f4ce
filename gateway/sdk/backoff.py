"""What reconnecting senders share: the pauses between attempts, and what `send` raises.

Of the standard library only: `clients/python` takes it along.
"""

from __future__ import annotations

import random

__all__ = ["Backoff", "Unacknowledged"]

_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 10.0


class Unacknowledged(Exception):
    """The sender was stopped before these events were acknowledged."""


class Backoff:
    """Pauses between attempts to connect: about twice as long each time, and differing from
    sender to sender, up to 10 s; 0.1 s again after a success.
    """

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = _FIRST_SECONDS

    def pause(self) -> float:
        """How many seconds to wait before the next attempt."""
        now = self._next
        longer = now * random.uniform(1.5, 2.5)  # noqa: S311 - spreads retries
        self._next = min(_LONGEST_SECONDS, longer)
        return now

    def succeeded(self) -> None:
        """The other end answered: start from the shortest pause again."""
        self._next = _FIRST_SECONDS
