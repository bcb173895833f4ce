"""The listeners of one life, as the daemon makes them, and what must hold of them.

After a turn    memory is counted right, and is within its limits; nothing is read ahead
                beyond its own; files that can not be used change nothing of what is served;
                whoever reads nothing of what waits for him is let go in time
At a handshake  the client is shown what was served since it connected
At a reload     files that can not be used are said; a listener whose settings change is
                replaced, and nothing is if its files can not be used
At the end      when all peers have left, nothing is held, watched or waiting
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gateway.config import Listener as Configured
from gateway.config.listener import ProxyProtocol, Tls, WebSocket
from gateway.daemon.listeners import Listeners as Opened
from gateway.net import CannotListen, Common, Listener, MemoryBudget, RejectionLog
from gateway.net.connection import AcceptedConnection
from gateway.net.phase import Phase
from gateway.net.reading import READ_BYTES
from gateway.net.traffic import Traffic
from gateway.sdk.endpoint import Tcp
from gateway.sdk.interfaces import Refusal
from gateway.sdk.protocol import Port as Served
from gateway.sdk.protocol import Protocol, Unusable
from gateway.testing.plugins import listener_of
from simulation.judge import Broken
from simulation.sockets import Port
from simulation.tls import ALLOWED
from simulation.ways import Way

if TYPE_CHECKING:
    from simulation.life import Life
    from simulation.world import World

__all__ = ["STALL_SECONDS", "Listeners", "configured"]

_DRAIN_SECONDS = 10.0
STALL_SECONDS = 5.0
"""So long a peer may read nothing; the gateway's 45 are more than most seeds last."""
_LOOK_SECONDS = 2.5
"""A listener looks for them so often."""
_CHANGED = 0.5
"""How likely a reload finds other settings."""
_PROXY = ProxyProtocol(trusted=["127.0.0.0/8"])
_NOT_USED = "{listener}: new certificate not used, the old one stays: {why}"
_NOT_RELOADED = "not reloaded: {why}"


def configured(world: World, protocol: Protocol, way: Way) -> Configured:
    """As `listeners` has it."""
    folder = world.files.routes.parent
    listener = listener_of(protocol, folder, {}, world.settings.limits)
    options = listener.options
    if protocol.name == "pomelo":
        options = options.model_copy(update={"routes": str(world.files.routes)})
    tls = None
    if way.tls:
        tls = Tls.model_construct(
            certificate=world.files.certificate,
            private_key=world.files.key,
            client_auth="required" if way.certified else "none",
            client_ca=world.files.authority if way.certified else None,
            allowed_names=[ALLOWED] if way.certified else [],
            minimum_version="TLSv1.2",
        )
    return listener.model_copy(
        update={
            "name": way.name,
            "listen": Tcp("127.0.0.1", 0),
            "options": options,
            "tls": tls,
            "proxy_protocol": _PROXY if way.proxied else None,
            "websocket": WebSocket() if way.websocket else None,
        }
    )


class _Refusals(RejectionLog):
    """Tells of every refusal, however many there are."""

    def __init__(self, life: Life) -> None:
        super().__init__(life.reactor)
        self._life = life
        self._refused: tuple[str | None] | None = None

    def refused(self, key: str | None) -> None:
        """Its rule comes next."""
        self._refused = (key,)

    def admit(self, host: str, listener: str, rule: str) -> bool:
        """See `RejectionLog`."""
        refused, self._refused = self._refused, None
        self._life.tell(f"{listener}: {rule}")
        if refused is not None:
            self._life.refused(Refusal(rule, key=refused[0]))
        return super().admit(host, listener, rule)


class Listeners:
    """Bound, but not accepting before `start`.  Raises `CannotListen`, `Unusable`."""

    def __init__(self, life: Life, wanted: dict[Way, Configured]) -> None:
        self._life = life
        self._world = life.world
        storage = life.storage
        assert storage is not None
        self._journal = storage.journal
        settings = life.world.settings
        self._memory_bytes = settings.journal.memory_bytes
        self.memory = MemoryBudget(
            storage.journal.reserve,
            self._memory_bytes // 4,
            lambda: storage.journal.reservable_bytes,
        )
        self._refusals = _Refusals(life)
        self._common = Common(
            life.reactor,
            life.world.next_session,
            self.memory,
            rejection_log=self._refusals,
            on_refused=self._refusals.refused,
        )
        self._common.turns.before.append(storage.journal.end_turn)
        self._chance = random.Random(f"{life.world.seed} settings {life.world.now}")
        self._wanted = dict(wanted)
        """As configured now."""
        self._stopping = False
        self._opened = Opened(life.protocols, self._make, _DRAIN_SECONDS)
        there = len(life.reactor.ports)
        self._opened.open(wanted.values())
        ports = life.reactor.ports[there:]
        self.ports: dict[Way, Port] = dict(zip(wanted, ports, strict=True))
        self._served: dict[Way, list[object]] = {}
        """What each had, the newest last: a certificate's name, a route's code."""
        self._contexts = {way: self._context(way) for way in self.all if way.tls}
        self._definitions = {way: self._defined(way) for way in self._pomelo}
        self._replaced: list[tuple[Way, Any]] = []
        """Listeners of Pomelo that others stand in for, while they have connections: they
        read definitions that have changed, too.
        """
        self._begin_served()

    def _make(
        self, settings: Configured, port: Served, traffic: Traffic | None
    ) -> Listener:
        return Listener(settings, port, self._common, traffic=traffic)

    @property
    def all(self) -> dict[Way, Listener]:
        """As they are now; of each way one."""
        return dict(zip(self._wanted, self._opened, strict=True))

    @property
    def _pomelo(self) -> dict[Way, Any]:
        found = self.all.items()
        return {way: one.accept for way, one in found if way.protocol == "pomelo"}

    def start(self) -> None:
        """Accept connections."""
        self._opened.start()

    async def stop(self) -> None:
        """As the daemon does."""
        self._stopping = True
        await self._opened.stop()
        await self._life.protocols.stop()
        await self._opened.drain()

    # Files that change

    def _context(self, way: Way) -> object:
        tls = self.all[way].tls
        assert tls is not None
        return tls._context

    def _defined(self, way: Way) -> Any:
        return self._pomelo[way].handshaker.definitions

    def _begin_served(self) -> None:
        files = self._world.files
        self._certificates = {way: [files.name] for way in self._contexts}
        self._codes = {way: [files.code] for way in self._definitions}

    def _look_at_files(self) -> None:
        """What is served has changed only to what can be used."""
        files = self._world.files
        for way, before in self._contexts.items():
            if (now := self._context(way)) is not before:
                self._contexts[way] = now
                self._certificates[way].append(files.name)
                if files.name is None:
                    raise Broken(f"{way.name} took a certificate that can not be used")
        for way, before in self._definitions.items():
            if (definitions := self._defined(way)) is not before:
                self._definitions[way] = definitions
                self._codes[way].append(files.code)
                if files.code is None:
                    raise Broken(f"{way.name} took definitions that can not be used")

    def reload(self) -> None:
        """SIGHUP: all of it is read again, and what can not be used is said."""
        self._look_at_files()
        may = self._wanted and not self._stopping  # as in the daemon
        if may and self._chance.random() < _CHANGED:
            self._change()
            self._look_at_files()
        world, files = self._world, self._world.files
        before = Counter(world.errors.said)
        served = sum(map(len, (*self._certificates.values(), *self._codes.values())))
        self._opened.reload()
        self._life.protocols.reload()
        world.look_at_errors()
        self._look_at_files()
        now = sum(map(len, (*self._certificates.values(), *self._codes.values())))
        unused = len(self._contexts) if files.name is None else 0
        undefined = len(self._definitions) if files.code is None else 0
        can = len(self._contexts) + len(self._definitions) - unused - undefined
        if now - served != can:
            raise Broken("a reload did not take what can be used")
        for text, expected in ((_NOT_USED, unused), (_NOT_RELOADED, undefined)):
            if world.errors.said[text] - before[text] != expected:
                raise Broken(f"{text!r} was not said of {expected} listeners")

    def _change(self) -> None:
        """One listener has other settings: it is replaced, or nothing is."""
        way = self._chance.choice([*self._wanted])
        one, files = self._wanted[way], self._world.files
        limits = one.limits.model_copy(
            update={"connections": one.limits.connections + 1}
        )
        wanted = {**self._wanted, way: one.model_copy(update={"limits": limits})}
        broken = way.tls and files.name is None
        broken |= way.protocol == "pomelo" and files.code is None
        protocols, before = self._life.protocols, [*self._opened]
        protocols.configure(wanted.values())
        try:
            change = self._opened.prepare(wanted.values())
        except (CannotListen, Unusable) as why:
            protocols.undo(self._wanted.values())
            if not broken:
                raise Broken(f"{way.name} is not replaced: {why}") from why
            if [*self._opened] != before:
                raise Broken("a reload that failed has changed listeners") from why
            return
        if broken:
            raise Broken(f"{way.name} took files that can not be used")
        if way in self._definitions:
            self._replaced.append((way, self._pomelo[way]))
        protocols.settle()
        self._wanted = wanted
        self._opened.commit(change)
        self._world.tell(f"{way.name} is replaced")

    def since(self, way: Way) -> tuple[int, int]:
        """To be kept by a connection that begins: what is served, by number."""
        return (
            len(self._certificates.get(way, ())) - 1,
            len(self._codes.get(way, ())) - 1,
        )

    def shown_certificate(self, way: Way, name: str, since: tuple[int, int]) -> None:
        """A client was, on a connection that began then."""
        self._look_at_files()
        if name not in self._certificates[way][since[0] :]:
            raise Broken(f"{way.name} shows certificate {name}: {self._certificates}")

    def shown_code(self, way: Way, code: int, since: tuple[int, int]) -> None:
        """Likewise, a route's."""
        self._look_at_files()
        served = self._codes[way][since[1] :]
        for which, replaced in self._replaced:
            dictionary = replaced.handshaker.definitions.dictionary
            if which == way and dictionary is not None:
                served.append(dictionary.codes["sim.event"])
        if code not in served:
            raise Broken(f"{way.name} sends code {code}: {self._codes}")

    # After every turn of the reactor

    def look(self) -> None:
        """Between two of them."""
        self._look_at_files()
        budget = self.memory
        held = {account: (account.size, account.ahead) for account in budget._accounts}
        total = sum(size + ahead for size, ahead in held.values())
        ahead = sum(ahead for _, ahead in held.values())
        counted = (sum(budget._addresses.values()), budget._ahead)
        if counted != (total, ahead) or self._journal._reserved != total:
            reserved = self._journal._reserved
            raise Broken(
                f"connections hold {total}, {ahead} ahead, of {reserved}: {counted}"
            )
        self._check(
            "journal.memory_bytes, of connections", total, self._memory_bytes // 2
        )
        self._check("read ahead in all", ahead, self._memory_bytes // 4)
        for listener in (*self._opened, *self._opened.leaving):
            self._look_at(listener)

    def _look_at(self, listener: Listener) -> None:
        most = listener.limits.read_ahead_bytes
        for one in listener._connections:
            if (ahead := one.input.ahead) is not None:
                assert one.held is not None
                account = one.held.account
                if account.ahead != ahead.size + ahead._room:
                    raise Broken(f"{account.ahead} bytes count as read ahead")
                if ahead.size != sum(map(len, ahead._pieces)):
                    raise Broken(f"{ahead.size} bytes are read ahead: {ahead._pieces}")
                self._check("limits.read_ahead_bytes", ahead.size, most)
            output = READ_BYTES + listener.unread_bytes
            self._check("unread output", one.unsent_bytes, output)
            self._look_at_stalled(one)

    def _look_at_stalled(self, one: AcceptedConnection) -> None:
        """Whoever reads nothing; once all calls that were due have been made."""
        reactor, stall = self._life.reactor, one.output.stall
        now = reactor.seconds()
        late = bool(reactor.calls) and reactor.calls[0].getTime() <= now
        if stall is None or late or one.phase >= Phase.CLOSING or self._stopping:
            return
        if now - stall.since > STALL_SECONDS + _LOOK_SECONDS:
            raise Broken(
                f"a peer reads nothing for {now - stall.since:.1f} s, and is kept"
            )

    def _check(self, bound: str, value: int, limit: int) -> None:
        if value > limit:
            raise Broken(f"{bound}: {value} is more than {limit}")

    # At the end

    @property
    def connections(self) -> int:
        """Open ones of all listeners."""
        return sum(listener.connections for listener in self.all.values())

    def left(self) -> Iterator[str]:
        """What is kept of connections that are gone."""
        reactor, budget = self._life.reactor, self.memory
        if self._journal._reserved or budget._addresses or budget._accounts:
            yield f"{self._journal._reserved} bytes of {budget._addresses}"
        if budget._ahead or budget._ahead_of:
            yield f"{budget._ahead} bytes read ahead of {budget._ahead_of}"
        if self._common.turns._waiting:
            yield "somebody waits for a turn"
        if reactor.sockets or self._world.network.kernel.open:
            yield f"{reactor.sockets} sockets are watched"
        if leaving := self._opened.leaving:
            yield f"{len(leaving)} listeners that were replaced"
        for listener in self.all.values():
            peers = listener.traffic.peers
            if counted := peers.addresses | peers.strangers | peers.names:
                yield f"{listener.name} counts {dict(counted)}"
        for way, names in self._certificates.items():
            if names[-1] != self._world.files.name:
                yield f"{way.name} has certificate {names[-1]}"
