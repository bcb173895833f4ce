"""What `listeners[].options` says for Pomelo; defaults included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["Jwt", "Options"]


@dataclass(slots=True, frozen=True, kw_only=True)
class Jwt:
    """How to verify the JSON Web Token in `user.token` of a handshake."""

    key: str = field(repr=False)
    """The shared secret, or a public key in PEM."""
    algorithms: Sequence[str] = ("HS256",)
    audience: str | None = None
    issuer: str | None = None
    leeway: float = 0.0
    """Seconds by which clocks may differ."""
    claim: str = "sub"
    """Who the client is, and whom pushes to a uid reach."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Options:
    """Times in seconds, sizes in bytes."""

    heartbeat: int = 3
    """Whole seconds, because clients in C and Go parse no other; 0 for none."""
    handshake_timeout: float = 10.0
    """From the connection to the client's acknowledgement of the handshake."""
    handshake_bytes: int = 1 << 16
    """Largest handshake."""
    user_bytes: int = 1024
    """Of the handshake's user data that is kept with every event."""
    routes: Sequence[str] | Mapping[str, int] | Path | None = None
    """The dictionary: routes in the order of their codes, or with them."""
    client_protos: Mapping[str, Any] | Path | None = None
    """Of requests and notifies."""
    server_protos: Mapping[str, Any] | Path | None = None
    """Of responses and pushes."""
    reload_interval: float = 5.0
    """How often to look whether files of definitions changed; 0 for never."""
    profiles: Mapping[str, str] = field(default_factory=dict)
    """`sys.type` (or `sys.platform`) to the name of a profile; `*` for all others."""
    clients: Mapping[str, str] = field(default_factory=dict)
    """`sys.type` to the least version that may connect; `*` for all others.  Not
    empty: others are told that they are too old (501)."""
    token: str | None = field(default=None, repr=False)
    """What `user.token` must be."""
    jwt: Jwt | None = None
    """Or what it must be signed with."""
    push_bytes: int = 1 << 20
    """Unsent output of a connection above which `push_policy` holds."""
    push_policy: Literal["drop", "kick"] = "drop"
    """Drop further pushes, or the client.  Responses are never dropped."""
