"""Gives the system back the memory that a burst took and nothing holds any more.

The C library returns only the end of its heap.  One small object behind the bodies of a
burst keeps the pages of all of them, until it is told to look (`malloc_trim` of glibc).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from attrs import define

_LEAST_BYTES = 32 << 20
"""Less is not worth the call."""

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)


def give_back() -> None:
    """Have no more than is in use; where the C library can not, nothing happens.

    It takes some ten milliseconds of CPU for 100 MiB, in which no thread gets memory.
    """
    if _trim is not None:
        _trim(0)


@define(eq=False)
class Bursts:
    """Gives memory back once a burst is over: less than half of it was in use at two looks.
    And once when what is in use does not change, as before a disk that hangs.
    """

    _give_back: Callable[[], None] = give_back
    _most: int = 0
    _before: int = 0
    _was_low: bool = False
    _stood: bool = False

    def note(self, in_use: int) -> None:
        """Note the bytes in use at this look."""
        self._most = max(self._most, in_use)
        low = self._most - in_use >= max(_LEAST_BYTES, self._most // 2)
        stands = in_use == self._before and in_use >= _LEAST_BYTES
        if (low and self._was_low) or (stands and not self._stood):
            self._most, low = in_use, False
            self._give_back()
        self._before, self._was_low, self._stood = in_use, low, stands
