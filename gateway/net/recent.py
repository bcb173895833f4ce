"""The last rejections, by address, listener and rule, for `/api/rejections`.

One that comes again is counted, not listed again: a flood of one peer hides nobody.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

_MOST_ENTRIES = 100
_TEXT_CHARACTERS = 300


@dataclass(slots=True)
class Recent:
    """What one address did again and again."""

    listener: str
    peer: str
    """The last one; of an IPv6 /64, say."""
    why: str
    """Of the last time, with limit and key."""
    key: str | None
    """The configuration key of the limit."""
    at: float
    """When it was the last time; by the reactor's clock."""
    count: int


class RecentRejections:
    """Those of all listeners; the hundred that came last."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, str, str], Recent] = OrderedDict()
        self.serial = 0
        """Grows with each rejection."""

    def note(
        self,
        kind: tuple[str, str, str],
        peer: str,
        why: str,
        key: str | None,
        at: float,
    ) -> None:
        """One more; *kind* is its address, listener and kind of fault."""
        self.serial += 1
        before = self._entries.pop(kind, None)
        count = 1 if before is None else before.count + 1
        self._entries[kind] = Recent(
            kind[1], peer, why[:_TEXT_CHARACTERS], key, at, count
        )
        if len(self._entries) > _MOST_ENTRIES:
            self._entries.popitem(last=False)

    def __iter__(self) -> Iterator[Recent]:
        """The newest first."""
        return reversed(self._entries.values())
