"""Admission: which new connections a listener accepts, by its limits and their host.

`Admission` turns new ones away, `GivingWay` lets others give way to them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

from gateway.config.listener import ProxyProtocol
from gateway.event import network_of
from gateway.net.descriptors import descriptor_ceiling, next_descriptor
from gateway.net.proxy import TrustedNetworks
from gateway.net.traffic import ConnectionCounts
from gateway.sdk.interfaces import Refusal
from gateway.sdk.limits import Limits

_OF_ONE_ADDRESS = 4
"""So many parts of all places are the most of one address."""


class Visitor(Protocol):
    """A connection, as far as this module knows it."""

    host: str

    def abort(self) -> None:
        """Drop it at once."""


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
        self._per_host = ConnectionCounts() if hosts is None else hosts
        self.believe(proxy)

    def believe(self, proxy: ProxyProtocol | None) -> None:
        """From now on, PROXY headers of these."""
        self._proxied = proxy is not None
        self._trusted = TrustedNetworks(proxy.trusted if proxy else ())

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

    def add(self, connection: Visitor) -> None:
        """Count an open connection, whose host is known."""
        self._per_host.add(network_of(connection.host))

    def remove(self, connection: Visitor) -> None:
        """It is closed."""
        self._per_host.remove(network_of(connection.host))


class GivingWay(Admission):
    """Lets everybody in: where there is no place, or none for that address, the one gives
    way that has waited longest to be served.  So a probe of the admin port gets its answer
    however many sockets somebody holds open.

    Those that give way are gone when the reactor's next turn begins; until then there may
    be half as many more (`bind` accepts no more in one turn).
    """

    def __init__(self, limits: Limits, proxy: ProxyProtocol | None) -> None:
        super().__init__(limits, proxy)
        self._places = limits.connections
        self._there: dict[Visitor, bool] = {}
        """In the order in which they were served, or came; whether it goes on."""

    def served(self, connection: Any, goes_on: bool) -> None:  # noqa: FBT001 - a state
        """It is not the one that has waited longest; if it *goes_on*, it gives way last."""
        if self._there.pop(connection, None) is not None:
            self._there[connection] = goes_on

    def check(self, connections: int, host: str) -> tuple[Refusal, str] | None:
        """See `Admission`."""
        limit = self._places + (self._places + 1) // 2
        if connections >= limit:
            return Refusal("too many connections", limit=limit), "connections"
        return None if self.expects_header(host) else self.check_host(host)

    def check_host(self, host: str) -> tuple[Refusal, str] | None:
        """See `Admission`."""
        address = network_of(host)
        of_each = Counter(network_of(one.host) for one in self._there)
        most = max(1, self._places // _OF_ONE_ADDRESS)
        if host != "unix" and of_each[address] >= most:
            self._give_way(address)
        elif len(self._there) >= self._places:
            self._give_way(of_each.most_common(1)[0][0])
        return None

    def _give_way(self, address: str) -> None:
        those = [one for one in self._there if network_of(one.host) == address]
        first = min(those, key=self._there.__getitem__)
        del self._there[first]
        first.abort()

    def add(self, connection: Visitor) -> None:
        """See `Admission`."""
        self._there[connection] = False

    def remove(self, connection: Visitor) -> None:
        """See `Admission`."""
        self._there.pop(connection, None)
