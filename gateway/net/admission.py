"""Admission: which new connections a listener accepts, by its limits and their peer.

`Admission` turns new ones away, `GivingWay` lets others give way to them.

A connection's `Standing` says what it counts as, and only `Admission` changes it:

    (not counted) ─► STRANGER ─► PEER          of its address
                         └─────────┴─► NAMED   of its principal

A new one is let in if its address has fewer than `connections_per_peer`.  It is let in
beyond that, too, if so many *strangers* are not there, and half of all places are free.  So
a site behind one address gets in as its senders bring their messages, and peers that bring
nothing take no more places than before.  One that has a principal counts for that, as long
as that has fewer than `connections_per_peer`, and leaves its place to others of its address.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Any, Protocol

from gateway.config.listener import ProxyProtocol
from gateway.event import Origin, network_of
from gateway.net.descriptors import descriptor_ceiling, next_descriptor
from gateway.net.proxy import TrustedNetworks
from gateway.net.traffic import Peers
from gateway.sdk.interfaces import Refusal
from gateway.sdk.limits import Limits

_OF_ONE_ADDRESS = 4
"""The divisor of all places that gives the most of one address."""
_PER_PEER = "connections_per_peer"


class Standing(Enum):
    """The group that an open connection counts in."""

    UNCOUNTED = "nothing: it is not known whose it is"
    STRANGER = "one of its address that has brought nothing yet"
    PEER = "one of its address that has brought a message"
    NAMED = "one of its principal"


class Visitor(Protocol):
    """A connection, as far as this module knows it."""

    host: str
    origin: Origin
    standing: Standing
    counted: str
    """The address or principal that it counts for, if it does."""

    def abort(self) -> None:
        """Drop it at once."""


class Admission:
    """The admission of one listener.

    Behind a load balancer, which sends PROXY headers, the address is that of the hosts
    which those name.  An IPv6 host counts as its /64.
    """

    def __init__(
        self,
        limits: Limits,
        proxy: ProxyProtocol | None,
        peers: Peers | None = None,
        *,
        certificates: bool = False,
    ) -> None:
        """*peers* has the connections that are open already; *certificates*: clients are
        asked for theirs, so that those of an address may be told apart.
        """
        self._limits = limits
        self._peers = Peers() if peers is None else peers
        self._certificates = certificates
        self.believe(proxy)

    def believe(self, proxy: ProxyProtocol | None) -> None:
        """Believe PROXY headers of these networks from now on."""
        self._proxied = proxy is not None
        self._believes_names = proxy is not None and proxy.names
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
        if self.expects_header(host):
            return None
        return self.check_host(host, connections)

    def check_host(self, host: str, connections: int) -> tuple[Refusal, str] | None:
        """Check a *host* that a PROXY header named."""
        address, limit = network_of(host), self._limits.connections_per_peer
        if self._peers.addresses[address] < limit:
            return None
        if self._peers.strangers[address] >= limit:
            return self._too_many("from one peer that have brought nothing yet")
        # A certificate may give a name that counts by itself: `known` looks again.
        may_be_named = self._certificates or self._believes_names
        return None if may_be_named else self._check_places(connections)

    def _check_places(self, connections: int) -> tuple[Refusal, str] | None:
        """Check for one of an address that has all that it may have, beside strangers."""
        if 2 * connections <= self._limits.connections:
            return None
        return self._too_many("from one peer, half of limits.connections being taken")

    def _too_many(self, whose: str) -> tuple[Refusal, str]:
        limit, key = self._limits.connections_per_peer, f"limits.{_PER_PEER}"
        return Refusal(f"too many connections {whose}", limit=limit, key=key), _PER_PEER

    def add(self, connection: Visitor) -> None:
        """Count an open connection, whose host is known."""
        peers = self._peers
        connection.standing = Standing.STRANGER
        connection.counted = address = network_of(connection.host)
        peers.addresses.add(address)
        peers.strangers.add(address)

    def known(
        self, connection: Visitor, connections: int
    ) -> tuple[Refusal, str] | None:
        """The reason to reject one whose handshake is done, with a principal or none."""
        address = connection.counted
        if connection.standing is not Standing.STRANGER or self._count_by_name(
            connection
        ):
            return None
        if self._peers.addresses[address] <= self._limits.connections_per_peer:
            return None
        return self._check_places(connections)

    def proven(self, connection: Visitor) -> None:
        """Note that it has brought its first message."""
        if connection.standing is not Standing.STRANGER:
            return
        if not self._count_by_name(connection):
            connection.standing = Standing.PEER
            self._peers.strangers.remove(connection.counted)

    def _count_by_name(self, connection: Visitor) -> bool:
        """Count a stranger for its principal from now on, if it has one and that has room."""
        name, peers = connection.origin.principal, self._peers
        if name is None or peers.names[name] >= self._limits.connections_per_peer:
            return False
        self.remove(connection)
        connection.standing, connection.counted = Standing.NAMED, name
        peers.names.add(name)
        return True

    def remove(self, connection: Visitor) -> None:
        """Note that it is closed, or is to be counted otherwise."""
        peers, counted = self._peers, connection.counted
        match connection.standing:
            case Standing.NAMED:
                peers.names.remove(counted)
            case Standing.PEER:
                peers.addresses.remove(counted)
            case Standing.STRANGER:
                peers.addresses.remove(counted)
                peers.strangers.remove(counted)
        connection.standing = Standing.UNCOUNTED


class GivingWay(Admission):
    """Lets all in; without a free place, the one gives way that has waited longest to be served.

    So it does where only its address has no place.  So a probe of the admin port gets its answer
    however many sockets one peer holds open.  Those that give way are gone when the reactor's
    next turn begins; until then there may be half as many more (`bind` accepts no more in one
    turn).
    """

    def __init__(self, limits: Limits, proxy: ProxyProtocol | None) -> None:
        super().__init__(limits, proxy)
        self._places = limits.connections
        self._there: dict[Visitor, bool] = {}
        """Connections in the order in which they were served, or came; whether each goes on."""

    def served(self, connection: Any, goes_on: bool) -> None:  # noqa: FBT001 - a state
        """Put it behind all that wait; if it *goes_on*, it gives way last."""
        if self._there.pop(connection, None) is not None:
            self._there[connection] = goes_on

    def check(self, connections: int, host: str) -> tuple[Refusal, str] | None:
        limit = self._places + (self._places + 1) // 2
        if connections >= limit:
            return Refusal("too many connections", limit=limit), "connections"
        if self.expects_header(host):
            return None
        return self.check_host(host, connections)

    def check_host(self, host: str, connections: int) -> tuple[Refusal, str] | None:
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
        self._there[connection] = False

    def known(
        self, connection: Visitor, connections: int
    ) -> tuple[Refusal, str] | None:
        """None: others give way."""
        return None

    def proven(self, connection: Visitor) -> None:
        """Nothing to do: no visitor is a stranger."""

    def remove(self, connection: Visitor) -> None:
        self._there.pop(connection, None)
