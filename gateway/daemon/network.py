"""What all listeners of the daemon share: memory, turns, and what is known of peers."""

from __future__ import annotations

import time
from typing import Any

from gateway import config
from gateway.admin.metrics import Metrics
from gateway.config.model import Logging
from gateway.daemon.ports import session_names
from gateway.net import (
    ConnectionLog,
    Listener,
    MemoryBudget,
    Penalties,
    RejectionLog,
)
from gateway.net.traffic import Traffic
from gateway.net.turns import Turns
from gateway.sdk.protocol import Port
from gateway.store.journal import Journal

__all__ = ["Network"]


class Network:
    """That of one daemon."""

    def __init__(
        self, settings: config.Config, reactor: Any, journal: Journal, metrics: Metrics
    ) -> None:
        self.rejection_log = RejectionLog(reactor)
        self.penalties = Penalties(reactor)
        self.turns = turns = Turns(reactor)
        turns.before.append(journal.end_turn)
        self.memory = MemoryBudget(
            journal.reserve,
            _read_ahead_bytes(settings),
            lambda: journal.reservable_bytes - turns.put_off_bytes,
        )
        self._connection_log = ConnectionLog(reactor)
        self._connection_log.configure(**_connection_lines(settings.logging))
        self._sessions = session_names(time.time())
        self._reactor, self._metrics = reactor, metrics

    def listener(
        self, settings: config.Listener, port: Port, traffic: Traffic | None
    ) -> Listener:
        """One that is not bound yet: see `listeners.Make`."""
        return Listener(
            settings,
            port,
            self._reactor,
            self._sessions,
            traffic=traffic,
            rejection_log=self.rejection_log,
            turns=self.turns,
            memory=self.memory,
            connection_log=self._connection_log,
            penalties=self.penalties,
            on_wrong_credentials=self._metrics.wrong_credentials,
            on_refused=self._metrics.refused,
        )

    def configure(self, settings: config.Config) -> None:
        """Go on with what of this can change while the daemon runs."""
        self.memory.read_ahead_bytes = _read_ahead_bytes(settings)
        self._connection_log.configure(**_connection_lines(settings.logging))


def _read_ahead_bytes(settings: config.Config) -> int:
    return settings.journal.memory_bytes // 4


def _connection_lines(settings: Logging) -> dict[str, Any]:
    return {"lines": settings.connections, "opened": settings.level == "debug"}
