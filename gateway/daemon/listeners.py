"""All listeners of the daemon: opened at the start, changed by reloads, drained at the end.

A reload is all or nothing: `prepare` asks the protocols, loads certificates and binds
what is new, and whatever fails there leaves everything as it was; `commit` can not fail.
A socket that stays where it was is handed on, so that it never refuses a connection.  Open
connections of a listener that was changed go on as they began; those of one that is gone,
has moved or speaks another protocol are drained.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from attrs import define
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from gateway import config
from gateway.daemon.ports import settings_of
from gateway.net import Listener
from gateway.net.connection_log import Seen
from gateway.net.traffic import Traffic
from gateway.sdk.endpoint import Tcp
from gateway.sdk.protocol import Port

#: Makes what `Listeners` opens, of its settings, for connections of this `Traffic`.
Make = Callable[[config.Listener, Port, Traffic | None], Listener]


class Ports(Protocol):
    """The knowledge of what is served: `Protocols`."""

    def ports(self, listener: config.Listener, /) -> Iterable[Port]:
        """The ports of an entry."""

    def retired(self, protocol: str, port: Port, /) -> None:
        """Nothing is left of one."""


@dataclass(frozen=True, slots=True, eq=False)
class _Serving:
    """A port of one entry of `listeners`."""

    configured: config.Listener
    port: Port
    listener: Listener

    @property
    def socket(self) -> object:
        """The key of its socket: its endpoint; of any free port, its name too."""
        where = self.listener.endpoint
        if isinstance(where, Tcp) and not where.port:
            return where, self.listener.name
        return where

    @property
    def identity(self) -> tuple[str, str]:
        """Two with the same one are the same listener, before and after a change."""
        return self.listener.name, self.listener.protocol


@dataclass(slots=True)
class Change:
    """A change that `prepare` has made ready."""

    after: list[_Serving] = field(default_factory=list)
    """All that will be open, those that stay among them."""
    new: list[_Serving] = field(default_factory=list)
    bound: list[_Serving] = field(default_factory=list)
    """The new ones with a socket of their own."""
    handed: list[tuple[_Serving, _Serving]] = field(default_factory=list)
    """The new ones that get the socket of another, which is the second."""


@define(eq=False, slots=False)
class Listeners:
    """The open listeners, in the order of the file."""

    _log = Logger()

    _protocols: Ports
    _make: Make
    _drain_seconds: float = 10.0

    def __attrs_post_init__(self) -> None:
        self._opened: list[_Serving] = []
        self._leaving: dict[_Serving, None] = {}
        """Listeners that accept no more, and have connections."""
        self._serving = False

    def __iter__(self) -> Iterator[Listener]:
        return iter([one.listener for one in self._opened])

    @property
    def leaving(self) -> list[Listener]:
        """The listeners that were replaced, and still have connections."""
        return [one.listener for one in self._leaving]

    @property
    def names(self) -> list[str]:
        """The configured names; a listener with two ports has one."""
        return list(dict.fromkeys(one.configured.name for one in self._opened))

    def seen(self) -> Iterator[Seen]:
        """Every connection, of replaced listeners too."""
        for listener in (*self, *self.leaving):
            yield from listener.seen()

    def address(self, name: str) -> str:
        """Where the listener of that name is bound.  Raises LookupError."""
        for one in self:
            if one.name == name:
                return one.address
        raise LookupError(name)

    def open(self, configured: Iterable[config.Listener]) -> None:
        """Bind them; connections wait in the kernel until `start`.

        Raises `CannotListen`, `Unusable`, `Broken`.
        """
        self.commit(self.prepare(configured))

    def start(self) -> None:
        """Accept connections."""
        self._serving = True
        for listener in self:
            listener.start()

    # -- a reload -------------------------------------------------------------

    def prepare(self, configured: Iterable[config.Listener]) -> Change:
        """Make ready what *configured* says; nothing changes yet.

        Raises as `open` does, and then nothing is left of it.
        """
        before: dict[str, list[_Serving]] = defaultdict(list)
        for one in self._opened:
            before[one.configured.name].append(one)
        change = Change()
        wanted = list(configured)
        stay = {
            settings.name
            for settings in wanted
            if (known := before.get(settings.name)) and known[0].configured == settings
        }
        sockets = {
            one.socket: one for one in self._opened if one.configured.name not in stay
        }
        traffic = {one.identity: one.listener.traffic for one in self._opened}
        try:
            for settings in wanted:
                if settings.name in stay:
                    change.after += before[settings.name]
                else:
                    self._prepare(settings, sockets, traffic, change)
        except BaseException:
            self.abandon(change)
            raise
        return change

    def _prepare(
        self,
        settings: config.Listener,
        sockets: dict[object, _Serving],
        traffic: dict[tuple[str, str], Traffic],
        change: Change,
    ) -> None:
        for port in self._protocols.ports(settings):
            own = settings_of(settings, port)
            known = traffic.get((own.name, own.protocol))
            one = _Serving(settings, port, self._make(own, port, known))
            change.new.append(one)
            if (before := sockets.pop(one.socket, None)) is not None:
                one.listener.prepare()
                change.handed.append((one, before))
            else:
                one.listener.bind()
                change.bound.append(one)
            change.after.append(one)

    def abandon(self, change: Change) -> None:
        """Undo what `prepare` did."""
        for one in change.bound:
            self._ignore(one.listener.stop(), one)
        for one in change.new:
            self._protocols.retired(one.listener.protocol, one.port)

    def commit(self, change: Change) -> None:
        for new, before in change.handed:
            new.listener.take_over(before.listener)
        stays = {before for new, before in change.handed
                 if new.identity == before.identity}  # fmt: skip
        after = set(change.after)
        gone = [one for one in self._opened if one not in after]
        self._opened = change.after
        if self._serving:
            for one in change.new:
                one.listener.start()
        for one in gone:
            self._leave(one, drain=one not in stays)

    def _leave(self, one: _Serving, *, drain: bool) -> None:
        if drain:
            self._ignore(one.listener.stop(), one)
            for earlier in tuple(self._leaving):
                if earlier.identity == one.identity:
                    earlier.listener.drain(self._drain_seconds)
            one.listener.drain(self._drain_seconds)
        self._leaving[one] = None
        one.listener.ended().addCallback(lambda _: self._left(one))

    def _left(self, one: _Serving) -> None:
        self._leaving.pop(one, None)
        self._protocols.retired(one.listener.protocol, one.port)

    def _ignore(self, done: Deferred[None], one: _Serving) -> None:
        done.addErrback(
            lambda why: self._log.failure("{name}", why, name=one.listener.name)
        )

    def reload(self) -> list[str]:
        """Read all certificates again; returns which can not be used, and why."""
        return [why for one in self if (why := one.reload())]

    # -- the end --------------------------------------------------------------

    async def stop(self) -> None:
        """Accept no more connections."""
        for listener in self:
            await listener.stop()

    async def drain(self) -> None:
        """Let every connection end, those of replaced listeners too."""
        listeners = [*self, *self.leaving]
        for one in [each.drain(self._drain_seconds) for each in listeners]:
            await one
