"""Ways to a protocol: plain, in TLS, with a certificate of the client's, in WebSocket,
behind a proxy; a listener of each.
"""

from __future__ import annotations

import random
from typing import NamedTuple

__all__ = ["WEBSOCKET", "Way"]

WEBSOCKET = "//gw/"
"""Where the clients' WebSockets go."""


class Way(NamedTuple):
    """A sender has one for all its connections."""

    protocol: str
    tls: bool
    websocket: bool
    proxied: bool
    """A PROXY header comes first."""
    certified: bool = False
    """In TLS the client shows a certificate, too."""

    @classmethod
    def drawn(cls, protocol: str, chance: random.Random, own: random.Random) -> Way:
        """Plain, as often as not; *own* decides about certificates of clients."""
        tls, websocket = chance.choice(
            ((False, False), (False, False), (True, False), (False, True), (True, True))
        )
        proxied, certified = chance.random() < 0.2, own.random() < 0.5
        return cls(protocol, tls, websocket, proxied, tls and certified)

    @property
    def name(self) -> str:
        """Of its listener."""
        parts = [
            self.protocol,
            *(["proxied"] if self.proxied else ()),
            *(["tls"] if self.tls else ()),
            *(["certified"] if self.certified else ()),
            *(["ws"] if self.websocket else ()),
        ]
        return "-".join(parts)
