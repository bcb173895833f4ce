"""Objects that all listeners of the daemon share: memory, turns, and what is known of
peers.
"""

from __future__ import annotations

import time
from typing import Any

from gateway import config
from gateway.admin.metrics import Metrics
from gateway.config.model import Logging
from gateway.daemon.ports import session_names
from gateway.net import Common, Listener, MemoryBudget
from gateway.net.traffic import Traffic
from gateway.sdk.protocol import Port
from gateway.store.journal import Journal


class Network:
    """The network of one daemon."""

    def __init__(
        self, settings: config.Config, reactor: Any, journal: Journal, metrics: Metrics
    ) -> None:
        self.common = common = Common(
            reactor,
            session_names(time.time()),
            MemoryBudget(
                journal.reserve,
                _read_ahead_bytes(settings),
                lambda: journal.reservable_bytes - common.turns.put_off_bytes,
            ),
            on_refused=metrics.refused,
            on_wrong_credentials=metrics.wrong_credentials,
        )
        common.turns.before.append(journal.end_turn)
        common.connection_log.configure(**_connection_lines(settings.logging))

    def listener(
        self, settings: config.Listener, port: Port, traffic: Traffic | None
    ) -> Listener:
        """One that is not bound yet: see `listeners.Make`."""
        return Listener(settings, port, self.common, traffic=traffic)

    def configure(self, settings: config.Config) -> None:
        """Go on with what of this can change while the daemon runs."""
        self.common.memory.read_ahead_bytes = _read_ahead_bytes(settings)
        self.common.connection_log.configure(**_connection_lines(settings.logging))


def _read_ahead_bytes(settings: config.Config) -> int:
    return settings.journal.memory_bytes // 4


def _connection_lines(settings: Logging) -> dict[str, Any]:
    return {"lines": settings.connections, "opened": settings.level == "debug"}
