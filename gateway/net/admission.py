"""Admission: which new connections a listener accepts, by its limits and their host."""

from __future__ import annotations

from gateway.config.listener import ProxyProtocol
from gateway.event import network_of
from gateway.net.limits import (
    ConnectionCounts,
    descriptor_ceiling,
    next_descriptor,
)
from gateway.net.proxy import TrustedNetworks
from gateway.sdk.interfaces import Refusal
from gateway.sdk.limits import Limits

__all__ = ["Admission"]


class Admission:
    """That of one listener.

    Behind a load balancer, which sends PROXY headers, `connections_per_peer` is about
    the hosts that those name.  An IPv6 host counts as its /64.
    """

    def __init__(
        self,
        limits: Limits,
        proxy: ProxyProtocol | None,
        hosts: ConnectionCounts | None = None,
    ) -> None:
        """*hosts* has the connections that are open already."""
        self._limits = limits
        self._proxied = proxy is not None
        self._trusted = TrustedNetworks(proxy.trusted if proxy else ())
        self._per_host = ConnectionCounts() if hosts is None else hosts

    def expects_header(self, host: str) -> bool:
        """Whether connections from *host* begin with a PROXY header.

        All peers on a unix socket do, as they have no address to trust.
        """
        return self._proxied and (host == "unix" or host in self._trusted)

    def check(self, connections: int, host: str) -> tuple[Refusal, str] | None:
        """Why a new connection from *host*, beside so many open ones, is rejected.

        With the reason that it is counted by.
        """
        limit = self._limits.connections
        if connections >= limit:
            why = Refusal("too many connections", limit=limit, key="limits.connections")
            return why, "connections"
        ceiling = descriptor_ceiling()
        if next_descriptor() > ceiling:
            return Refusal("too many open files", limit=ceiling), "descriptors"
        return None if self.expects_header(host) else self.check_host(host)

    def check_host(self, host: str) -> tuple[Refusal, str] | None:
        """As `check`, for a *host* that a PROXY header named."""
        limit = self._limits.connections_per_peer
        if self._per_host[network_of(host)] < limit:
            return None
        key = "limits.connections_per_peer"
        why = Refusal("too many connections from one peer", limit=limit, key=key)
        return why, "connections_per_peer"

    def add(self, host: str) -> None:
        """Count an open connection."""
        self._per_host.add(network_of(host))

    def remove(self, host: str) -> None:
        """It is closed."""
        self._per_host.remove(network_of(host))
