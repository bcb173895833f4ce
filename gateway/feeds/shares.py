"""Fair shares: how many of the few replays and queries one client may have.

A client is who it proved to be, or else its address: a host, the /64 of an IPv6 one, or
a user of this machine.  So nobody takes all there is by connecting often.
"""

from __future__ import annotations

from collections import Counter

from gateway.event import Origin, address_of
from gateway.feeds.publisher import Fault

__all__ = ["Shares", "client_of"]


def client_of(origin: Origin) -> str:
    """Whom a peer is counted with; empty for the gateway's own pages."""
    if origin.principal:
        return f"name {origin.principal}"
    return address_of(origin.peer)


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
        """One less."""
        self._taken[client] -= 1
        if not self._taken[client]:
            del self._taken[client]
