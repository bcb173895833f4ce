"""The protocols of one running daemon: starts the services of the installed plug-ins.

A plug-in is foreign code.  Its exceptions at the start end the start, with a sentence that
names it.  Later ones are logged once for each kind of call, and counted, and everything
else goes on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.logger import Logger

from gateway.admin.site import OWN_PATHS
from gateway.plugins import RAISED, Installed, failure
from gateway.sdk.protocol import Context, Port, Service, Statistics, Unusable

if TYPE_CHECKING:
    from gateway.config import Listener
    from gateway.event import Decode
    from gateway.sdk.interfaces import Memory
    from gateway.sdk.protocol import Get, Post

_T = TypeVar("_T")


class Broken(Exception):
    """A plug-in failed at the start; the text names it."""


class Protocols:
    """The protocols that are served, and those that only keep what they remember."""

    _log = Logger()

    def __init__(
        self,
        installed: Installed,
        listeners: Iterable[Listener],
        on_failure: Callable[[str], None],
    ) -> None:
        """*on_failure* is told the protocol's name whenever one of its calls fails."""
        self._installed = installed.protocols
        self._listeners: defaultdict[str, list[Listener]] = defaultdict(list)
        for listener in listeners:
            self._listeners[listener.protocol].append(listener)
        self._services: dict[str, Service] = {}
        self._served: list[tuple[str, Service]] = []
        self._on_failure = on_failure
        self._told: set[tuple[str, str]] = set()
        self._lend: Callable[[str, list[Listener]], Context] | None = None
        self.served: dict[str, list[Listener]] = {}
        """The listeners that each protocol's service began with."""
        self._unsettled: list[str] = []
        """Protocols whose service was made for a reload that is not decided yet."""
        for why in installed.broken.values():
            self._log.error("left out: {why}", why=why)

    @property
    def remember(self) -> bool:
        """Whether a protocol that is served has a memory."""
        return any(self._installed[name].remembers for name in self._listeners)

    def decoders(self) -> dict[str, Decode]:
        """The decoders of each installed protocol's batches, as configured.

        Raises `Broken` where a protocol is needed.
        """
        found: dict[str, Decode] = {}
        for name, protocol in self._installed.items():
            options = [one.options for one in self._listeners.get(name, ())]
            try:
                found[name] = self._ask(name, protocol.decoder, options, gives=Callable)
            except Broken as why:
                if name in self._listeners or protocol.remembers:
                    raise
                self._log.error("left out: {why}", why=str(why))
        return found

    def open(
        self, remembered: Iterable[str], lend: Callable[[str, list[Listener]], Context]
    ) -> dict[str, Memory]:
        """Make the services; returns what they remember, by protocol.

        *remembered* names the protocols that have state on disk: it is kept even where
        no listener serves them.  Raises `Broken`.
        """
        self._lend = lend
        for name in self._listeners:
            self._begin(name)
        for name in remembered:
            if name in self._installed and name not in self._services:
                self._services[name] = self._make(name, lend(name, []))
        return {
            name: service.memory
            for name, service in self._services.items()
            if service.memory is not None
        }

    def _begin(self, name: str) -> None:
        assert self._lend is not None
        listeners = self._listeners[name]
        service = self._make(name, self._lend(name, listeners))
        self._services[name] = service
        self._served.append((name, service))
        self.served[name] = list(listeners)

    def _make(self, name: str, lent: Context) -> Service:
        return self._ask(name, self._installed[name].service, lent, gives=Service)

    def configure(self, listeners: Iterable[Listener]) -> None:
        """A reload: these are the listeners from now on, or again.

        `settle` or `undo` comes after it, and `ports` of what is new in between.
        """
        for each in self._listeners.values():
            each.clear()
        for listener in listeners:
            self._listeners[listener.protocol].append(listener)

    def settle(self) -> bool:
        """The reload is decided; returns whether there are protocols that were not."""
        begun, self._unsettled = self._unsettled, []
        for name in begun:
            try:
                self._services[name].start()
            except RAISED:
                self._failed(name, "start")
        return bool(begun)

    def undo(self, listeners: Iterable[Listener]) -> None:
        """There is no reload: *listeners* are those from before."""
        self.configure(listeners)
        for name in self._unsettled:
            service = self._services.pop(name)
            self._served.remove((name, service))
            del self.served[name]
            try:
                service.close()
            except RAISED:
                self._failed(name, "close")
        self._unsettled = []

    def retired(self, protocol: str, port: Port) -> None:
        """A port that a reload has replaced has no connection left."""
        if (service := self._services.get(protocol)) is None:
            return
        try:
            service.retired(port)
        except RAISED:
            self._failed(protocol, "retired")

    def ports(self, listener: Listener) -> list[Port]:
        """The ports that one of `listeners` opens.  Raises `Unusable`, `Broken`."""
        name = listener.protocol
        if name not in self.served:
            self._begin(name)
            self._unsettled.append(name)

        def ports() -> list[Port]:
            found = list(self._services[name].ports(listener))
            if not found or not all(isinstance(one, Port) for one in found):
                raise TypeError(f"ports of {listener.name} are {found!r}"[:200])
            return found

        try:
            return self._ask(name, ports)
        except Unusable as why:
            raise Unusable(f"listener {listener.name}: {why}") from None

    def start(self) -> None:
        """The journal takes batches.  Raises `Broken`."""
        for name, service in self._served:
            self._ask(name, service.start)

    async def stop(self) -> None:
        """Connections are about to be drained."""
        for name, service in self._served:
            try:
                await service.stop()
            except RAISED:
                self._failed(name, "stop")

    def close(self) -> None:
        """All connections are gone."""
        self._each("close", lambda service: service.close())

    def reload(self) -> list[str]:
        """SIGHUP; returns what can not be used."""
        found = self._each("reload", lambda service: list(service.reload() or ()))
        return [each for problems in found for each in problems]

    def files_removed(self) -> None:
        """The archive has dropped old files.  Any thread may call."""
        self._each("files_removed", lambda service: service.files_removed())

    def statistics(self) -> Iterator[Statistics]:
        """The figures of all protocols."""
        found = self._each("statistics", lambda service: list(service.statistics()))
        return (section for sections in found for section in sections)

    def gets(self) -> dict[str, Get]:
        """GET pages of the admin port, by path.  Raises `Broken`."""
        return self._by_path(lambda service: service.gets)

    def posts(self) -> dict[str, Post]:
        """POST pages of the admin port, by path.  Raises `Broken`."""
        return self._by_path(lambda service: service.posts)

    def _by_path(
        self, of: Callable[[Service], Callable[[], Mapping[str, _T]]]
    ) -> dict[str, _T]:
        found: dict[str, _T] = {}
        for name, service in self._served:
            for path, answer in self._ask(name, of(service), gives=Mapping).items():
                if path in found or path in OWN_PATHS:
                    raise Broken(f"protocol {name!r}: {path} is taken by another")
                if not path.startswith("/api/"):
                    raise Broken(f"protocol {name!r}: {path} is not below /api/")
                found[path] = answer
        return found

    def _ask(
        self,
        name: str,
        call: Callable[..., _T],
        *arguments: object,
        gives: Any = object,
    ) -> _T:
        """Call at the start: a failure is the daemon's.  The result is of the type *gives*."""
        try:
            found = call(*arguments)
            if not isinstance(found, gives):
                raise TypeError(f"it gives {found!r}, and not a {gives.__name__}")
        except (Unusable, OSError):
            raise
        except RAISED as why:
            self._log.failure("protocol {name}", name=name)
            raise Broken(failure(name, call.__name__, why)) from why
        return found

    def _each(self, what: str, call: Callable[[Service], _T]) -> list[_T]:
        """While the daemon runs: a failure is the protocol's own."""
        found = []
        for name, service in self._served:
            try:
                found.append(call(service))
            except RAISED:
                self._failed(name, what)
        return found

    def _failed(self, name: str, what: str) -> None:
        self._on_failure(name)
        if (name, what) not in self._told:
            self._told.add((name, what))
            self._log.failure(
                "protocol {name} fails in {what}; told once", name=name, what=what
            )
