"""The admin port's connections: whoever comes is served, and nobody can sit there.

A connection that brings no whole request in time is dropped.  When there are too many,
or too many of one address, a new one takes the place of the one that has waited longest
without a request: so a probe gets its answer however many sockets somebody holds open.

Requests stand in one line with what listeners read (`gateway.net.turns`), so that nobody
waits for hundreds of them; those that come behind another one at once, too, and not before
the answers so far are taken.  Twisted would serve all of a read in one go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel, Request

from gateway.sdk.interfaces import Refusal

__all__ = ["AdminChannel", "Guard", "LimitedFactory", "Line", "address_of"]

_REQUEST_SECONDS = 15.0
"""For a whole request, from the connection or from its first byte."""
_MOST = 256
_OF_ONE_ADDRESS = 4
"""So many parts of all connections are the most of one address."""


class Line(Protocol):
    """Who waits for the reactor, of all the daemon's ports: `gateway.net.turns.Turns`."""

    @property
    def crowded(self) -> bool:
        """What is read now is to be put off."""

    def spent(self, seconds: float) -> None:
        """To serve a read took so long."""

    def put_off(self, connection: AdminChannel, /) -> None:
        """`take_turn` is to serve what is left."""

    def remove(self, connection: AdminChannel, /) -> None:
        """It is over."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What the daemon does so that no peer of the admin port is in others' way."""

    line: Line

    report: Callable[[str, str, Refusal], None] = lambda host, peer, why: None
    """Told host, peer and rule."""
    wrong_token: Callable[[str, str], float] = lambda host, peer: 0.0
    """Told host and peer; returns how many seconds the answer is to wait."""


def address_of(address: Any) -> tuple[str, str]:
    """Host and peer at *address*, as the log names them."""
    host = getattr(address, "host", None) or "unix"
    port = getattr(address, "port", None)
    return host, host if port is None else f"{host}:{port}"


class AdminChannel(HTTPChannel):
    """One connection; `AdminSite` makes it."""

    guard: Guard
    since = 0.0
    """When it came, or last had a whole request."""
    streaming = False
    """A page goes on writing to it."""
    host = "unix"
    _deadline: IDelayedCall | None = None
    _lost = False
    _unserved = b""
    """What was read when the reactor had enough to do …"""
    _answered: Request | None = None
    """… and the request that is done, if more came behind it."""
    _in_turn = False

    def connectionMade(self) -> None:
        """See IProtocol."""
        super().connectionMade()
        self.since = self._now()
        self._begin()

    def dataReceived(self, data: bytes) -> None:
        """See IProtocol."""
        if self._in_turn:  # what came behind a request
            self._serve(data)
            return
        if self._unserved or self.guard.line.crowded:
            self._unserved += data
            self._networkProducer.pauseProducing()
            self.guard.line.put_off(self)
            return
        begun = self._now()
        self._serve(data)
        self.guard.line.spent(self._now() - begun)

    def take_turn(self) -> None:
        """Serve what was put off."""
        if self._lost:
            return
        begun = self._now()
        data, self._unserved = self._unserved, b""
        if data:  # behind a request that is under way it only joins what waits there
            self._serve(data)
        elif self._answered is not None and not self._waitingForTransport:
            request, self._answered = self._answered, None
            self._in_turn = True
            super().requestDone(request)
            self._in_turn = False
        self.guard.line.spent(self._now() - begun)
        if self._answered is not None:
            self._wait_for_a_turn()
        elif not (self._handlingRequest or self._waitingForTransport):
            self._networkProducer.resumeProducing()

    def requestDone(self, request: Request) -> None:
        """It is answered; the next one, if it came already, has a turn of its own."""
        if self._buffer or any(self._dataBuffer):
            self._answered = request
            if self._savedTimeOut:  # of a peer that does not take its answers, too
                self.setTimeout(self._savedTimeOut)
            self._wait_for_a_turn()
        else:
            super().requestDone(request)

    def resumeProducing(self) -> None:
        """All answers so far are taken."""
        super().resumeProducing()
        if self._answered is not None:
            self._wait_for_a_turn()

    def _wait_for_a_turn(self) -> None:
        if not self._waitingForTransport:
            self.guard.line.put_off(self)

    def _serve(self, data: bytes) -> None:
        self._begin_if_due()
        super().dataReceived(data)
        if self._buffer or self.requests:  # a part of the next request came with one
            self._begin_if_due()
        if any(self._dataBuffer):  # more behind a request than is served now
            self._networkProducer.pauseProducing()

    def _begin_if_due(self) -> None:
        if self._deadline is None and not (self._handlingRequest or self._lost):
            self._begin()

    def allContentReceived(self) -> None:
        """A request is whole."""
        self._end()
        self.since = self._now()
        super().allContentReceived()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """See IProtocol."""
        self._lost = True
        self._end()
        self.guard.line.remove(self)
        super().connectionLost(reason)

    def _now(self) -> float:
        clock: IReactorTime = self.factory.reactor
        return clock.seconds()

    def _begin(self) -> None:
        self._deadline = self.callLater(_REQUEST_SECONDS, self._too_late)

    def _end(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()

    def _too_late(self) -> None:
        self._deadline = None
        self.drop("request not complete", _REQUEST_SECONDS)

    def drop(self, rule: str, seconds: float) -> None:
        """End it for what took longer than so many *seconds*, and say so."""
        transport: Any = self.transport
        host, peer = address_of(transport.getPeer())
        self.guard.report(host, peer, Refusal(rule, limit=f"{seconds:g} s"))
        transport.abortConnection()


class _Wrapper(ProtocolWrapper):
    """A connection with the address that it counts for."""

    host = "unix"
    dying = False

    @property
    def channel(self) -> AdminChannel:
        return cast(AdminChannel, self.wrappedProtocol)


class LimitedFactory(WrappingFactory[ProtocolWrapper]):
    """Wraps the site: limits its open connections, and can close them all."""

    protocol = _Wrapper

    def __init__(self, site: Any, most: int = _MOST) -> None:
        """*most* connections are open at once; `at_once` more are being closed."""
        super().__init__(site)
        self._most = max(1, min(most, _MOST))

    @property
    def at_once(self) -> int:
        """So many connections may come in one turn of the reactor, and find room.

        Those that give way to them are gone when the next turn begins.
        """
        return (self._most + 1) // 2

    def buildProtocol(  # type: ignore[override]  # None closes, as any factory may
        self, addr: IAddress | None
    ) -> ProtocolWrapper | None:
        """See IProtocolFactory."""
        host, _ = address_of(addr)
        if len(self.protocols) >= self._most + self.at_once:
            return None  # those that give way are not gone yet
        self._make_room(host)
        made = cast(_Wrapper, super().buildProtocol(addr))
        made.host = host
        return made

    def _make_room(self, host: str) -> None:
        there = [one for one in cast("list[_Wrapper]", [*self.protocols])
                 if not one.dying]  # fmt: skip
        of_each = Counter(one.host for one in there)
        if host != "unix" and of_each[host] >= max(1, self._most // _OF_ONE_ADDRESS):
            busiest = host
        elif len(there) >= self._most:
            busiest = of_each.most_common(1)[0][0]
        else:
            return
        oldest = min(
            (one for one in there if one.host == busiest),
            key=lambda one: (one.channel.streaming, one.channel.since),
        )
        oldest.dying = True
        oldest.abortConnection()
