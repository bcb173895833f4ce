"""The connections of one Pomelo listener: shared definitions, admission, one timer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from gateway.event import Origin, client_of
from gateway.protocols.pomelo import routes, wire
from gateway.protocols.pomelo.answering import Answering
from gateway.protocols.pomelo.auth import admission
from gateway.protocols.pomelo.handshake import Handshaker, refused
from gateway.protocols.pomelo.hook import Hook
from gateway.protocols.pomelo.options import Backend as BackendOptions
from gateway.protocols.pomelo.options import Options
from gateway.protocols.pomelo.protobuf import Unusable
from gateway.protocols.pomelo.push.row import Membership
from gateway.protocols.pomelo.questions import Questions
from gateway.protocols.pomelo.rates import Rates
from gateway.protocols.pomelo.registry import Client, Registry
from gateway.protocols.pomelo.server import PomeloServer
from gateway.protocols.pomelo.session import TICKS
from gateway.protocols.pomelo.sessions import SessionEvents
from gateway.protocols.pomelo.standing import standing
from gateway.sdk.costs import Turn
from gateway.sdk.http_client import Backend
from gateway.sdk.interfaces import Connection, Journal, Refusal
from gateway.sdk.protocol import Settings

_LEAST_ANSWER_BYTES, _MOST_ANSWER_BYTES = 512, 8 << 10
_ANSWERS = 4096
"""The most answers due to one connection: few enough to be sent together quickly."""
_ANSWERS_BYTES = 4 << 20
"""Bytes of a backend's answers to one post."""
_HOOK_ANSWER_BYTES = 1 << 16
"""Bytes of an answer of the hook, beside what it has to tell the client."""
_SHARED = 256
"""Attributes that are looked for when another client comes."""
_MOST_TICK_SECONDS = 2.5
"""However long the heartbeat interval is: handshakes are late, and tokens expire, by a clock."""
_TICKED_AT_ONCE = 256
"""Connections whose time is looked at before others have their turn."""


def _answer_bytes(limit: int) -> int:
    """The count of an answer that makes a limit of the default size allow `_ANSWERS`."""
    return max(_LEAST_ANSWER_BYTES, min(limit // _ANSWERS, _MOST_ANSWER_BYTES))


class Pomelo:
    """The connections of one listener: their definitions, clients, and timer.

    29 attributes: what its connections share.
    """

    _log = Logger()

    def __init__(
        self,
        settings: Settings[Options],
        journal: Journal,
        clock: IReactorTime,
        registry: Registry | None = None,
        change: Callable[[Sequence[Membership]], object] | None = None,
    ) -> None:
        """*change* is told changes of groups by backends; None: they are made in *registry*."""
        limits, options = settings.limits, settings.options
        self.name = ""
        """The listener's."""
        self.journal = journal
        self.clock = clock
        self.registry = Registry() if registry is None else registry
        change = change or (lambda asked: [one.apply(self.registry) for one in asked])
        self.message_bytes = min(limits.message_bytes, wire.MOST_BYTES)
        self.unacknowledged_bytes = limits.unacknowledged_bytes
        self.answer_bytes = _answer_bytes(limits.unacknowledged_bytes)
        """The count of a due answer among the unacknowledged bytes."""
        self.sessions: SessionEvents | None = None
        """Where its sessions are told of; None: nowhere."""
        if options.session_events:
            self.sessions = SessionEvents(journal, clock)
        self.hook: Hook | None = None
        """Decides about handshakes; None: `options.token` and `options.jwt` do."""
        if options.authenticate is not None:
            self.hook = Hook(_backend(options, clock), options.handshake_bytes)
        self.rates = Rates(options.rates)
        self.turn = Turn()
        """The turn of the connection that is being served."""
        self.options = options
        definitions = options.routes, options.client_protos, options.server_protos
        self._loads = (
            (routes.Watched(*definitions), self._load_definitions),
            (routes.Watched(options.groups), self._load_groups),
        )
        """Files of options, and the function that reads them, again when they change."""
        self.handshaker = _handshaker(options, self._load())
        self.standing = standing(options.groups)
        """Groups that users are in from the start, by uid."""
        nobody = cast(Client, None)
        self._no_questions = Questions(nobody, journal, {}, {}, lambda _: None)
        self.services: dict[str, Answering] = {}
        """Services by the routes whose requests they answer."""
        self.late: dict[str, dict[str, Any]] = {}
        """Answers by route for when the service gives none."""
        for backend in options.backends:
            answering = _answering(backend, clock, change)
            self.services |= dict.fromkeys(backend.routes, answering)
            self.late |= dict.fromkeys(backend.routes, backend.late)
        self.registry.judges.append(self.handshaker.judge)
        self.ticks = max(TICKS, math.ceil(options.heartbeat / _MOST_TICK_SECONDS))
        """The ticks of one heartbeat interval."""
        self.tick_seconds = options.heartbeat / self.ticks or 1.0
        self.patience = math.ceil(options.handshake_timeout / self.tick_seconds)
        self._attributes: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
        """Attributes of recent clients, each set once."""
        self._servers: dict[PomeloServer, None] = {}
        self._to_tick: list[PomeloServer] = []
        """Connections that this tick has not reached yet, the last one first."""
        self._ticking = False
        self._due = 0.0
        self._looked = self._began = clock.seconds()
        self.wall_clock = time.time
        """The clock by which tokens expire."""

    def __call__(self, connection: Connection) -> PomeloServer:
        server = PomeloServer(self, connection)
        self._servers[server] = None
        if not self._ticking:
            self._ticking = True
            self._reload_if_changed()
            self._due = self.clock.seconds() + self.tick_seconds
            self.clock.callLater(self.tick_seconds, self._tick)
        return server

    def questions(self, client: Client, tell: Callable[[bytes], None]) -> Questions:
        """Where the requests of a connection go that services answer."""
        if not self.services:
            return self._no_questions
        return Questions(client, self.journal, self.services, self.late, tell)

    def shared(self, attributes: dict[str, str]) -> Mapping[str, str]:
        """The same attributes; one object for clients that have the same."""
        if len(self._attributes) >= _SHARED:
            self._attributes.clear()
        return self._attributes.setdefault(tuple(attributes.items()), attributes)

    def stand(self, server: PomeloServer, before: Iterable[str] = ()) -> None:
        """Put it into the groups that its user is in, and out of those of *before*."""
        groups, now = self.registry.groups, self._standing_of(server, self.standing)
        for name in before:
            if name not in now:
                groups.leave(server, name)
        for name in now:
            groups.join(server, name)

    def _standing_of(
        self, server: PomeloServer, where: Mapping[str, Sequence[str]]
    ) -> Sequence[str]:
        uid = server.uid if server.reachable else None
        return () if uid is None else where.get(uid, ())

    def turn_away(self, origin: Origin) -> Refusal | None:
        """Why its address may begin no more sessions now; None: it begins one."""
        rate = self.rates.begins(client_of(origin), self.age)
        if rate is None:
            return None
        rule = "too many sessions of one address"
        return refused(500, rule, limit=str(rate), key=rate.key)

    @property
    def age(self) -> float:
        return self.clock.seconds() - self._began

    def forget(self, server: PomeloServer) -> None:
        self._servers.pop(server, None)

    def close(self) -> None:
        """Store what sessions have told, and close services: the last client is gone."""
        if self.sessions is not None:
            self.sessions.flush()
        if self.hook is not None:
            self.hook.backend.close()
        for service in set(self.services.values()):
            service.close()

    def reload(self) -> str | None:
        """Read the definitions again; open connections keep what they were sent.  And the
        groups, into which those who are connected are put at once.

        If they have errors, those are logged and the old ones stay; returns them.
        """
        problems = (self._read_again(*each) for each in self._loads)
        return "; ".join(why for why in problems if why) or None

    def _read_again(
        self, files: routes.Watched, load: Callable[[], None]
    ) -> str | None:
        files.note()
        try:
            load()
        except Unusable as why:
            self._log.error("not reloaded: {why}", why=str(why))
            return str(why)
        return None

    def _load_definitions(self) -> None:
        self.handshaker.definitions = self._load()

    def _load_groups(self) -> None:
        before, self.standing = self.standing, standing(self.options.groups)
        for server in self._servers:
            if server in self.registry.session(server.origin.session):
                self.stand(server, self._standing_of(server, before))

    def _load(self) -> routes.Definitions:
        options = self.options
        return routes.load(options.routes, options.client_protos, options.server_protos)

    def _reload_if_changed(self) -> None:
        """Read again what has changed.  Also called when the timer starts again."""
        interval, now = self.options.reload_interval, self.clock.seconds()
        if interval and now - self._looked >= interval:
            self._looked = now
            for files, load in self._loads:
                if files.changed:
                    self._read_again(files, load)

    def _tick(self) -> None:
        """Look at all connections, and let others have their turn in between."""
        now, due = self.wall_clock(), self._to_tick
        if not due:
            due.extend(reversed(self._servers))
        for _ in range(min(len(due), _TICKED_AT_ONCE)):
            due.pop().tick(now)
        if due:
            self.clock.callLater(0, self._tick)
            return
        self._reload_if_changed()
        self._ticking = bool(self._servers)
        if self._ticking:
            # Keep time, but if the reactor was late, do not catch up all at once.
            self._due += self.tick_seconds
            pause = max(self._due - self.clock.seconds(), self.tick_seconds / 2)
            self.clock.callLater(pause, self._tick)


def _handshaker(options: Options, definitions: routes.Definitions) -> Handshaker:
    token = None if options.token is None else options.token.get_secret_value()
    return Handshaker(
        definitions,
        admission(token, options.jwt, trust_uid=options.trust_uid),
        heartbeat=int(options.heartbeat),
        user_bytes=options.user_bytes,
        profiles=options.profiles,
        clients=options.clients,
        backed=frozenset(
            route for backend in options.backends for route in backend.routes
        ),
        user=options.told_user,
    )


def _answering(
    options: BackendOptions,
    clock: IReactorTime,
    change: Callable[[Sequence[Membership]], object],
) -> Answering:
    backend = None
    if options.url is not None:
        backend = Backend(
            options.url,
            clock,
            seconds=options.timeout,
            requests=options.requests,
            repeat=options.repeat,
            answer_bytes=_ANSWERS_BYTES,
        )
    return Answering(
        backend,
        clock,
        seconds=options.timeout,
        requests=options.requests,
        batch=options.batch,
        waiting=options.waiting,
        change=change,
    )


def _backend(options: Options, clock: IReactorTime) -> Backend:
    assert options.authenticate is not None
    return Backend(
        options.authenticate,
        clock,
        seconds=options.authenticate_timeout,
        requests=options.authenticate_requests,
        answer_bytes=_HOOK_ANSWER_BYTES + options.handshake_bytes,
    )
