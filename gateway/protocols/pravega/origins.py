"""Origins of the events of one connection: one for each name that it proves."""

from __future__ import annotations

from dataclasses import replace

from gateway.event import Origin


class Origins:
    """The origins of one connection's batches.

    A published client proves one name for each of its connections; others may share one,
    as callers behind a proxy do.
    """

    def __init__(self, own: Origin) -> None:
        """*own* is the connection's, with the name that its certificate proves."""
        self._own = own
        self._others: dict[str, Origin] = {}

    def of(self, name: str) -> Origin:
        """The origin for a name that a password or a token has proved; empty: none has."""
        own = self._own
        if own.principal is None and name:
            own.principal = name
        if name in ("", own.principal):
            return own
        found = self._others.get(name)
        if found is None:
            found = replace(own, principal=name, unacknowledged=0, queued=0)
            self._others[name] = found
        return found
