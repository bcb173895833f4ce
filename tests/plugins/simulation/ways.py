"""Ways to a protocol: plain, in TLS, in WebSocket, behind a proxy; a listener of each."""

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

    @classmethod
    def drawn(cls, protocol: str, chance: random.Random) -> Way:
        """Plain, as often as not."""
        tls, websocket = chance.choice(
            ((False, False), (False, False), (True, False), (False, True), (True, True))
        )
        return cls(protocol, tls, websocket, chance.random() < 0.2)

    @property
    def name(self) -> str:
        """Of its listener."""
        parts = [
            self.protocol,
            *(["proxied"] if self.proxied else ()),
            *(["tls"] if self.tls else ()),
            *(["ws"] if self.websocket else ()),
        ]
        return "-".join(parts)
