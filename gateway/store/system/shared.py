"""A dict and a queue that one thread changes while others look through them, without a lock.

Any thread may add, take and look up single things: each is one call, which the
interpreter does not interrupt.  Going through them is many, and between two of them
another thread may add or take something: then Python raises RuntimeError in the middle.
So take a `snapshot` to go through one, which is one call again.
"""

from __future__ import annotations

from collections import deque
from typing import TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


class SharedDict(dict[_K, _V]):
    """A dict; go through its `snapshot`, never through it."""

    __slots__ = ()

    def snapshot(self) -> dict[_K, _V]:
        """All that is in it now.  Any thread may call."""
        return self.copy()


class SharedDeque(deque[_V]):
    """A deque; go through its `snapshot`, never through it."""

    __slots__ = ()

    def snapshot(self) -> list[_V]:
        """All that is in it now, in order.  Any thread may call."""
        return list(self)
