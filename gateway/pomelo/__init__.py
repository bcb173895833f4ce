"""Pomelo's hybridconnector: what game and mobile clients speak, and how to push to them.

`accept` makes what a listener needs, `decode` turns a stored batch into rows, the
`Registry` reaches connected clients; the other way round, `client` is one.
docs/pomelo.md says what is accepted, what is refused, and which clients are known.
"""

from gateway.pomelo.auth import Unavailable
from gateway.pomelo.events import decode
from gateway.pomelo.options import Jwt, Options
from gateway.pomelo.protobuf import Unusable
from gateway.pomelo.registry import Pushed, Registry
from gateway.pomelo.server import Pomelo, accept

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
