"""The network: listeners, and their connections from socket to protocol.

`Listener` is what the daemon builds from one entry of `listeners`.
"""

from gateway.net.limits import RejectionLog, raise_descriptor_limit
from gateway.net.listen import CannotListen, Listener
from gateway.net.memory import MemoryBudget

__all__ = [
    "CannotListen",
    "Listener",
    "MemoryBudget",
    "RejectionLog",
    "raise_descriptor_limit",
]
