"""The network: listeners, and what lies between a socket and a protocol's server.

`Listener` is what the daemon builds from one entry of `listeners`.
"""

from gateway.net.limits import Complaints, raise_descriptor_limit
from gateway.net.listen import CannotListen, Listener

__all__ = ["CannotListen", "Complaints", "Listener", "raise_descriptor_limit"]
