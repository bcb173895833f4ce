"""Clients whose requests are put to a service alone, because posts with theirs failed.

A client's request may make a service fail a whole post, and with it the requests of others.
So all whose requests were in it are *apart*, until posts of theirs were answered: one after
the first such failure, two after the next, then four, up to 128.  Ten minutes
after the last failure it is over in any case.  So a client that fails posts on purpose
reaches others seldom, and a service that was away for a moment is soon asked as before.

No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_MOST_CLIENTS = 4096
"""The most clients; of more, the one whose last failure is longest ago is forgotten."""
_MOST_FAILURES = 7
_FORGIVEN_SECONDS = 600.0


@dataclass(slots=True)
class _Record:
    failures: int = 0
    owed: int = 0
    """Posts that are to be answered before it shares posts again."""
    at: float = 0.0
    """When the last one failed."""


class Apart:
    """The clients that one service is asked about alone."""

    def __init__(self) -> None:
        self._clients: dict[str, _Record] = {}

    def asked_alone(self, client: str, now: float) -> bool:
        known = self._clients.get(client)
        if known is None or now - known.at > _FORGIVEN_SECONDS:
            return False
        return known.owed > 0

    def failed(self, clients: Iterable[str], now: float) -> None:
        """A post with requests of these clients, several of them, had no answer."""
        for client in clients:
            known = self._clients.pop(client, None)
            if known is None or now - known.at > _FORGIVEN_SECONDS:
                known = _Record()
            known.owed = 1 << known.failures
            known.failures = min(known.failures + 1, _MOST_FAILURES)
            known.at = now
            self._clients[client] = known
        while len(self._clients) > _MOST_CLIENTS:
            del self._clients[next(iter(self._clients))]

    def answered(self, client: str) -> None:
        known = self._clients.get(client)
        if known is not None and known.owed:
            known.owed -= 1
