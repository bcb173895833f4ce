"""Fair shares: how many of the few replays and queries one client may have.

A client is `gateway.event.client_of` its peer.  Connecting often gives it no more.
"""

from __future__ import annotations

from collections import Counter

from gateway.sdk.publisher import Fault


class Shares:
    """Places, of which each client gets so many."""

    def __init__(self, whole: int, share: int, what: str) -> None:
        self._whole, self._share, self._what = whole, share, what
        self._taken: Counter[str] = Counter()

    def take(self, client: str) -> None:
        """One more for *client*; raises `Fault` if that is too many."""
        if self._taken.total() >= self._whole:
            raise Fault(429, f"more than {self._whole} {self._what}")
        if client and self._taken[client] >= self._share:
            raise Fault(429, f"more than {self._share} {self._what} of one client")
        self._taken[client] += 1

    def give_back(self, client: str) -> None:
        self._taken[client] -= 1
        if not self._taken[client]:
            del self._taken[client]
