"""Pomelo clients that print every push they receive as a line of JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from twisted.internet import reactor
from twisted.internet.endpoints import HostnameEndpoint

from gateway.protocols.pomelo.client import Client

__all__ = ["PLAYERS", "main"]

#: User id: whether it connects over WebSocket.
PLAYERS = {"p3": False, "p17": False, "p29": True, "p41": True}


def main(address: str) -> None:
    """Connect all players to HOST:PORT; runs until SIGTERM."""
    host, _, port = address.rpartition(":")
    loop: Any = reactor
    for uid, web in PLAYERS.items():

        def show(route: str, body: bytes, web: bool = web) -> None:  # noqa: FBT001
            line = {"route": route, "websocket": web, **json.loads(body)}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

        client = Client(
            HostnameEndpoint(loop, host, int(port)),
            clock=loop,
            user={"uid": uid},
            on_push=show,
            websocket=f"//{address}/" if web else None,
        )
        client.connect()
    loop.run()


if __name__ == "__main__":
    main(sys.argv[1])
