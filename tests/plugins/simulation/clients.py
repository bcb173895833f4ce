"""The real clients of the four protocols, which connect and send again by themselves."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gateway.protocols.lumberjack import client as lumberjack
from gateway.protocols.lumberjack.writer import Writer as LumberjackWriter
from gateway.protocols.pomelo.client import Client as PomeloClient
from gateway.protocols.pomelo.client import Disconnected
from gateway.protocols.pravega.client import DraftWriter, V17Writer
from gateway.protocols.pravega.writer import Writer as PravegaWriter
from gateway.protocols.rsio.client import Fenced
from gateway.protocols.rsio.client.on_twisted import connect
from gateway.protocols.rsio.client.sender import Sender as RsioSender
from gateway.sdk.sender import Backoff, Sender
from simulation.judge import Broken
from simulation.network import Target
from simulation.ways import Way

if TYPE_CHECKING:
    from simulation.world import World

__all__ = ["KINDS", "ClientSender"]

_WINDOW = 4


def _made(
    kind: Callable[..., Any], world: World, target: Target, *given: Any, **more: Any
) -> Any:
    return kind(target, *given, clock=world.outside, websocket=target.websocket, **more)


def lumberjack_v2(world: World, target: Target, name: str) -> Any:
    """A Beats shipper."""
    writer = LumberjackWriter(
        pipelining=world.chance.choice((1, 2)),
        compression=world.chance.choice((0, 3)),
        slow_start=False,
    )
    return _made(lumberjack.Client, world, target, writer=writer)


def lumberjack_v1(world: World, target: Target, name: str) -> Any:
    """logstash-forwarder."""
    writer = LumberjackWriter(v1=True, pipelining=1, slow_start=False)
    return _made(lumberjack.Client, world, target, writer=writer)


def pravega(world: World, target: Target, name: str) -> Any:
    """An event writer of wire version 17."""
    writer = V17Writer(world.chance.randbytes(16), f"sim/{name}/0.#epoch.0")
    return _made(Sender, world, target, PravegaWriter(writer, window=20))


def pravega_draft(world: World, target: Target, name: str) -> Any:
    """One of 2016."""
    writer = DraftWriter(world.chance.randbytes(16), f"draft-{name}")
    return _made(Sender, world, target, PravegaWriter(writer, window=20))


def pomelo(world: World, target: Target, name: str) -> Any:
    """A game's client."""
    return _Requests(world, target)


def rsio(world: World, target: Target, name: str) -> Any:
    """A publisher that says who it is; in some worlds, that it is the same as others."""
    clock = world.outside
    name = "twin" if world.twins else name
    return RsioSender(
        lambda: connect(target, clock=clock, websocket=target.websocket, name=name),
        clock=clock,
    )


class _Requests:
    """Pomelo requests that are sent again until they are answered with 200."""

    def __init__(self, world: World, target: Target) -> None:
        self._world = world
        self._target = target
        self._backoff = Backoff()
        self._client: PomeloClient | None = None
        self._open = False
        self._waiting: dict[bytes, Deferred[None]] = {}

    def start(self) -> None:
        """Connect."""
        client = self._client = PomeloClient(
            self._target,
            clock=self._world.outside,
            on_closed=self._closed,
            websocket=self._target.websocket,
        )
        client.connect().addCallbacks(lambda _: self._opened(), lambda _: None)

    def send(self, events: Sequence[bytes]) -> Deferred[None]:
        """One request for each; fires when all are answered."""
        done: list[Deferred[None]] = []
        for event in events:
            self._waiting[event] = Deferred()
            done.append(self._waiting[event])
            self._request(event)
        last = done[-1]
        for other in done[:-1]:  # answers come in order
            other.addErrback(lambda _: None)
        return last

    def _opened(self) -> None:
        self._open = True
        assert self._client is not None
        self._target.shown_code(self._client._session._codes["sim.event"])
        self._backoff.succeeded()
        for event in list(self._waiting):
            self._request(event)

    def _request(self, event: bytes) -> None:
        if self._open and self._client is not None:
            answer = self._client.request("sim.event", event)
            answer.addCallbacks(self._answered, _expect, (event,))

    def _answered(self, body: bytes, event: bytes) -> None:
        if json.loads(body).get("code") == 200 and event in self._waiting:
            self._waiting.pop(event).callback(None)

    def _closed(self, why: str) -> None:
        self._open = False
        self._client = None
        self._world.outside.callLater(self._backoff.pause(), self.start)


def _expect(why: Any) -> None:
    why.trap(Disconnected)


KINDS: dict[str, tuple[str, Callable[[World, Target, str], Any]]] = {
    "l": ("lumberjack", lumberjack_v2),
    "o": ("lumberjack", lumberjack_v1),
    "v": ("pravega", pravega),
    "w": ("pravega", pravega_draft),
    "m": ("pomelo", pomelo),
    "r": ("rsio", rsio),
}
"""By the first letter of a sender's name."""


class ClientSender:
    """Gives events to a client, and hears which of them are acknowledged."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name = name
        protocol, self._make = KINDS[name[0]]
        own = random.Random(f"{world.seed} certificate of {name}")
        way = Way.drawn(protocol, world.also, own)
        self._target = Target(world.network, way, name)
        self._number = 0
        self._unacknowledged: set[int] = set()
        self._begin()

    def _begin(self) -> None:
        self._client = self._make(self._world, self._target, self.name)
        self._fenced = False
        self._world.outside.callLater(0, self._client.start)

    @property
    def way(self) -> Way:
        """How it connects."""
        return self._target.way

    @property
    def idle(self) -> bool:
        """Everything is acknowledged."""
        return not self._unacknowledged

    def act(self, *, fresh: bool) -> None:
        """Send more, unless too much waits."""
        if not fresh or len(self._unacknowledged) >= _WINDOW:
            return
        if self._fenced:
            self._begin()
        self._number += 1
        chance = self._world.chance
        count, size = chance.choice((1, 1, 2, 5)), chance.choice((1, 20, 200, 3000))
        events = [
            b'{"id":"%b/%d/%d/%d/%b"}'
            % (self.name.encode(), self._number, n, count, b"x" * size)
            for n in range(count)
        ]
        self._unacknowledged.add(self._number)
        self._world.tell(f"{self.name} has {count} events: {self._number}")
        opened = self._target.connections
        sent = self._client.send(events)
        if not isinstance(sent, Deferred):
            sent = Deferred.fromCoroutine(sent)
        number = self._number
        sent.addCallback(self._acknowledged, number, count, opened)
        sent.addErrback(self._ended, number)

    def _acknowledged(self, _: object, number: int, count: int, opened: int) -> None:
        self._unacknowledged.discard(number)
        self._world.tell(f"{self.name} hears of {number}")
        copies = self._target.connections - opened + 1
        self._world.judge.hears(self.name, number, count, copies)

    def _ended(self, why: Failure, number: int) -> None:
        """The client ends for good: another sender has its name.

        What it was not told of may be stored or not; it begins anew with other events.
        """
        if not (self._world.twins and why.check(Fenced)):
            raise Broken(f"{self.name} ends: {why.value}")
        self._world.tell(f"{self.name} is fenced: {number} is given up")
        self._unacknowledged.discard(number)
        self._fenced = True
