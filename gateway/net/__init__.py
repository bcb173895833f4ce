"""The network: listeners, and their connections from socket to protocol.

`Listener` is what the daemon builds from one entry of `listeners`.
"""

from gateway.net.admission import GivingWay
from gateway.net.common import Common
from gateway.net.connection_log import ConnectionLog
from gateway.net.descriptors import admin_connections, raise_descriptor_limit
from gateway.net.listen import CannotListen, Listener
from gateway.net.memory import MemoryBudget
from gateway.net.penalties import Penalties
from gateway.net.rejection_log import RejectionLog
from gateway.net.rejections import Rejections
from gateway.net.turns import Turns

__all__ = [
    "CannotListen",
    "Common",
    "ConnectionLog",
    "GivingWay",
    "Listener",
    "MemoryBudget",
    "Penalties",
    "RejectionLog",
    "Rejections",
    "Turns",
    "admin_connections",
    "raise_descriptor_limit",
]
