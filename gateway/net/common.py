"""Objects that the listeners of a daemon have in common: the reactor, memory, turns,
the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import Factory, define

from gateway.net.connection_log import ConnectionLog
from gateway.net.memory import MemoryBudget
from gateway.net.penalties import Penalties
from gateway.net.rejection_log import RejectionLog
from gateway.net.turns import Turns


@define(eq=False)
class Common:
    """A listener alone has each of these for itself, and memory without an end."""

    reactor: Any
    sessions: Callable[[], str]
    """Names the next connection."""
    memory: MemoryBudget = Factory(lambda: MemoryBudget(lambda _: True))
    turns: Turns = Factory(lambda self: Turns(self.reactor), takes_self=True)
    penalties: Penalties = Factory(
        lambda self: Penalties(self.reactor), takes_self=True
    )
    rejection_log: RejectionLog = Factory(
        lambda self: RejectionLog(self.reactor), takes_self=True
    )
    connection_log: ConnectionLog = Factory(
        lambda self: ConnectionLog(self.reactor), takes_self=True
    )
    on_refused: Callable[[str | None], None] = lambda key: None
    """Called with the configuration key of every refusal, None if it has none."""
    on_wrong_credentials: Callable[[str], None] = lambda listener: None
    """Called with the name of the listener whose peer gave some."""
