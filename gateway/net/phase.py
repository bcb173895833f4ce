"""The phases of a connection, as a table: what it can be, and what may follow.

    NEW ─► PROXY_HEADER ─► CLIENT_HELLO ─► TLS_HANDSHAKE ─► FIRST_BYTES ─► UPGRADE ─► SERVING
                (each where the listener has it: `handshake`)                            │
                                             ANSWERING ◄─────────────────────────────────┘
                                                 └─► REFUSING ─► CLOSING ─► LOST

It only goes on, never back.  Until it is `ANSWERING` what comes is for its server; from
then on what comes is dropped.  Everything that depends on how far a connection is asks
this, and only `connection.AcceptedConnection.become` changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class Phase(IntEnum):
    """How far a connection is; what comes later is larger."""

    NEW = 0
    """The connection has no transport yet."""
    PROXY_HEADER = 1
    """The load balancer's header, which says who the peer is, is awaited."""
    CLIENT_HELLO = 2
    """The first byte, which says whether it speaks TLS, is awaited."""
    TLS_HANDSHAKE = 3
    FIRST_BYTES = 4
    """The first bytes, which say whether they are the protocol's, are awaited.

    Without WebSocket the connection has a server already, which may speak first."""
    UPGRADE = 5
    """The peer has begun to ask for a WebSocket."""
    SERVING = 6
    """Input goes to the server."""
    ANSWERING = 7
    """The server takes no more: it answers what it has, then closes."""
    REFUSING = 8
    """The peer gave wrong credentials, and waits for the answer; only a timer ends this."""
    CLOSING = 9
    """Our FIN is under way behind what is written, and the peer's is waited for; or it is
    dropped, and the transport about to say so."""
    LOST = 10
    """The transport is gone."""


_END = {Phase.CLOSING, Phase.LOST}

FOLLOWS: Mapping[Phase, frozenset[Phase]] = {
    phase: frozenset(following | _END)
    for phase, following in {
        Phase.NEW: {Phase.PROXY_HEADER, Phase.CLIENT_HELLO, Phase.FIRST_BYTES},
        Phase.PROXY_HEADER: {Phase.CLIENT_HELLO, Phase.FIRST_BYTES, Phase.ANSWERING},
        Phase.CLIENT_HELLO: {Phase.TLS_HANDSHAKE, Phase.ANSWERING},
        Phase.TLS_HANDSHAKE: {Phase.FIRST_BYTES, Phase.ANSWERING},
        Phase.FIRST_BYTES: {
            Phase.UPGRADE,
            Phase.SERVING,
            Phase.ANSWERING,
            Phase.REFUSING,
        },
        Phase.UPGRADE: {Phase.SERVING, Phase.ANSWERING},
        Phase.SERVING: {Phase.ANSWERING, Phase.REFUSING},
        Phase.ANSWERING: {Phase.REFUSING},
        Phase.REFUSING: set[Phase](),
    }.items()
} | {Phase.CLOSING: frozenset({Phase.LOST}), Phase.LOST: frozenset()}
"""The states that may follow each.

Any connection may be refused, dropped or lost.  One that has no server yet is `ANSWERING`
only if it holds too much, for the moment of its refusal."""
