"""Pomelo's hybridconnector: what game and mobile clients speak, and how to push to them.

`accept` makes what a listener needs, `decode` turns a stored batch into rows, the
`Registry` reaches connected clients; the other way round, `client` is one.
docs/pomelo.md says what is accepted, what is refused, and which clients are known.
"""

from gateway.protocols.pomelo.auth import Unavailable
from gateway.protocols.pomelo.events import decode
from gateway.protocols.pomelo.options import Jwt, Options
from gateway.protocols.pomelo.protobuf import Unusable
from gateway.protocols.pomelo.registry import Pushed, Registry
from gateway.protocols.pomelo.server import Pomelo, accept

__all__ = [
    "Jwt",
    "Options",
    "Pomelo",
    "Pushed",
    "Registry",
    "Unavailable",
    "Unusable",
    "accept",
    "decode",
]
