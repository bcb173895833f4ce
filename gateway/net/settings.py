"""The parts of the configuration that the network reads, by shape (design §5).

`gateway.config` has the models; a test passes any object with these attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

__all__ = ["Limits", "ListenerSettings", "ProxySettings", "Tls", "WebSocketSettings"]


class Limits(Protocol):
    """Sizes in bytes, times in seconds."""

    @property
    def connections(self) -> int:
        """At most so many at once."""

    @property
    def connections_per_peer(self) -> int:
        """At most so many at once from one address."""

    @property
    def idle(self) -> float:
        """A peer that says nothing for so long, and waits for nothing, is cut off."""

    @property
    def handshake(self) -> float:
        """PROXY header, TLS and WebSocket upgrade together."""

    @property
    def message_bytes(self) -> int:
        """The longest WebSocket message."""


class WebSocketSettings(Protocol):
    """Where a WebSocket may be opened, and by whom."""

    @property
    def path(self) -> str:
        """The request's path, without query."""

    @property
    def origins(self) -> Sequence[str]:
        """The pages that may connect; empty: any.  Programs, which have none, may."""


class ProxySettings(Protocol):
    """Who announces other peers."""

    @property
    def trusted(self) -> Sequence[object]:
        """Networks."""


class Tls(Protocol):
    """A certificate and who may connect with which."""

    @property
    def certificate(self) -> str | Path:
        """PEM; the chain in the same file."""

    @property
    def private_key(self) -> str | Path:
        """PEM, not encrypted."""

    @property
    def client_auth(self) -> Literal["none", "optional", "required"]:
        """Whether clients show certificates."""

    @property
    def client_ca(self) -> str | Path | None:
        """PEM; who signs clients' certificates."""

    @property
    def allowed_names(self) -> Sequence[str]:
        """Subjects, common names or alternative names that may connect; empty: all."""

    @property
    def minimum_version(self) -> str:
        """`TLSv1.2` or `TLSv1.3`."""


class ListenerSettings(Protocol):
    """One of `listeners`."""

    @property
    def name(self) -> str:
        """Names it in logs, metrics and events."""

    @property
    def protocol(self) -> str:
        """What it speaks."""

    @property
    def listen(self) -> object:
        """Its text is `tcp:PORT`, `tcp:HOST:PORT`, `unix:PATH` or `systemd:NAME`."""

    @property
    def websocket(self) -> WebSocketSettings | Literal[False] | None:
        """Falsy: no WebSocket."""

    @property
    def proxy_protocol(self) -> ProxySettings | Literal[False] | None:
        """Falsy: no PROXY header."""

    @property
    def tls(self) -> Tls | None:
        """None: plain."""

    @property
    def limits(self) -> Limits:
        """See `Limits`."""
