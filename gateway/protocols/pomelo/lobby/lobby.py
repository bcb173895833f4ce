"""Carries out rows on this gateway, and on the others of its lobby.

A row for one gateway goes to all others, each once, and their counts are added up.  One
for a session that is connected here goes nowhere else.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from attrs import define, field
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.ssl import trustRootFromCertificates
from twisted.logger import Logger
from twisted.web.client import BrowserLikePolicyForHTTPS

from gateway.protocols.pomelo.lobby.call import Call, call
from gateway.protocols.pomelo.lobby.neighbour import MOST_CALL_BYTES, Neighbour
from gateway.protocols.pomelo.options import Lobby as LobbyOptions
from gateway.protocols.pomelo.push.delivery import Slices
from gateway.protocols.pomelo.push.row import Membership, Row
from gateway.protocols.pomelo.registry import Registry
from gateway.sdk.http_client import Backend, Unreachable
from gateway.sdk.outgoing import certificates

OUTCOMES = ("answered", "refused", "away")
_PORTION_BYTES = MOST_CALL_BYTES // 2
"""Bytes of the bodies in one call, without the last one."""


@define(slots=True)
class Heard:
    """The answer of one gateway."""

    gateway: str | None
    """The node, if it said so."""
    run: str | None = None
    at: str | None = None
    """The address; None: this gateway."""
    counts: Mapping[str, int] = field(factory=dict)
    shown: bytes = b""
    """The page that was asked for."""
    error: str | None = None
    """The reason why some of it is not done, or may not be; None: it is done."""

    def as_json(self) -> dict[str, Any]:
        said = {"gateway": self.gateway, "at": self.at, "error": self.error}
        told = {name: text for name, text in said.items() if text is not None}
        return told | dict(self.counts)


def total(heard: Iterable[Heard]) -> dict[str, int]:
    """How many clients of all of them had what."""
    counts: Counter[str] = Counter()
    for one in heard:
        counts.update(one.counts)
    return dict(counts)


def portions(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows for one call each; a row that is larger than a call goes alone."""
    some: list[Row] = []
    size = 0
    for row in rows:
        if some and size + row.size > _PORTION_BYTES:
            yield some
            some, size = [], 0
        some.append(row)
        size += row.size
    if some:
        yield some


def backend_of(address: str, options: LobbyOptions, reactor: Any) -> Backend:
    """The client for the gateway at *address*.  Raises ValueError."""
    headers = {}
    if options.token is not None:
        headers["Authorization"] = f"Bearer {options.token.get_secret_value()}"
    return Backend(
        f"{address.rstrip('/')}{':' if address.startswith('unix:') else ''}/api/lobby",
        reactor,
        seconds=options.timeout,
        requests=options.requests,
        answer_bytes=MOST_CALL_BYTES,
        headers=headers,
        policy=BrowserLikePolicyForHTTPS(_trust(options.ca)),
    )


def _pem(options: LobbyOptions | None) -> bytes:
    if options is None or options.ca is None:
        return b""
    try:
        return options.ca.read_bytes()
    except OSError as why:
        raise ValueError(f"options.lobby.ca: {why}") from None


def _trust(ca: Path | None) -> Any:
    """The authorities of the others' certificates; None: those that the platform trusts."""
    if ca is None:
        return None
    try:
        return trustRootFromCertificates(certificates(ca))
    except Exception as why:  # OpenSSL's, for what is no certificate
        raise ValueError(f"options.lobby.ca: {ca}: {why}") from None


@define(eq=False, slots=False)
class Lobby:
    """This gateway, *node*, with its clients in *registry*, and the others, if any."""

    _log = Logger()

    _node: str
    registry: Registry
    _reactor: Any
    _connect: Callable[[str, LobbyOptions, Any], Backend] = backend_of

    def __attrs_post_init__(self) -> None:
        self.run = secrets.token_hex(8)
        """The name of this run of the daemon."""
        self._numbers = count(1)
        self._known: tuple[LobbyOptions | None, bytes] = None, b""
        """The options in force, and the content of the file of authorities."""
        self._neighbours: Sequence[Neighbour] = ()
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        """Outcomes of calls: a refused one was answered, and some of it is not done."""

    @property
    def others(self) -> Sequence[Neighbour]:
        """All that are, or may be, another gateway."""
        return [one for one in self._neighbours if not one.itself]

    @property
    def troubles(self) -> Sequence[str]:
        """The reasons of gateways that do not answer."""
        return [one.trouble for one in self._neighbours if one.trouble is not None]

    def configure(self, options: LobbyOptions | None) -> None:
        """Take these options from now on, if they are others.  Raises ValueError."""
        known = options, _pem(options)
        if known == self._known:
            return
        neighbours = []
        if options is not None:
            for address in dict.fromkeys(options.gateways):
                backend = self._connect(address, options, self._reactor)
                seconds = options.timeout
                neighbours.append(Neighbour(address, backend, self._reactor, seconds))
        self.close()
        self._known, self._neighbours = known, neighbours

    def close(self) -> None:
        """Let go of the connections to them."""
        for one in self._neighbours:
            one.close()

    async def carry_out(self, row: Row) -> list[Heard]:
        """Do it here and there, this gateway's answer first; ValueError if not possible here."""
        elsewhere = self.concerns_others(row)
        delivery = row.begin(self.registry)
        asked = Deferred.fromCoroutine(self.spread([row])) if elsewhere else None
        await Slices(self._reactor).deliver(delivery)
        here = Heard(self._node, self.run, counts=delivery.counts)
        return [here, *(await asked if asked is not None else ())]

    def itself(self, shown: bytes) -> Heard:
        return Heard(self._node, self.run, shown=shown)

    def concerns_others(self, row: Row) -> bool:
        """Whether an addressee may be connected elsewhere."""
        session = row.to_session
        here = session is not None and self.registry.session(session)
        return not here and bool(self.others)

    async def spread(self, rows: Iterable[Row]) -> list[Heard]:
        """Have each of the others do all this, which has begun here, in one call."""
        return await self._ask_all(call(self.run, next(self._numbers), rows))

    async def show(self, page: str, query: Mapping[str, str]) -> list[Heard]:
        number = next(self._numbers)
        return await self._ask_all(Call(self.run, number, [], page, query))

    async def _ask_all(self, what: Call) -> list[Heard]:
        said = msgspec.json.encode(what)
        asked = [Deferred.fromCoroutine(self._ask(one, said)) for one in self.others]
        found: dict[str | None, Heard] = {}
        for heard in await gatherResults(asked):
            found.setdefault(heard.run or heard.at, heard)
        found.pop(self.run, None)
        return list(found.values())

    def change(self, memberships: Sequence[Membership]) -> None:
        """Change groups here, and have the others do so in this order, without waiting for them."""
        for one in memberships:
            one.apply(self.registry)
        elsewhere = [one for one in memberships if self.concerns_others(one)]
        asked = Deferred.fromCoroutine(self._spread_each(portions(elsewhere)))
        asked.addErrback(lambda why: self._log.failure("lobby", why))

    async def _spread_each(self, calls: Iterable[Sequence[Row]]) -> None:
        for rows in calls:
            await self.spread(rows)

    async def _ask(self, one: Neighbour, said: bytes) -> Heard:
        try:
            done = await one.ask(said)
        except Unreachable as why:
            self.outcomes["away"] += 1
            return Heard(None, None, one.address, error=str(why))
        if done.run == self.run:
            one.itself = True
            return Heard(done.gateway, done.run, one.address)
        self.outcomes["refused" if done.refused else "answered"] += 1
        error = f"{done.refused} refused: {done.why}" if done.refused else None
        return Heard(
            done.gateway, done.run, one.address, done.counts, bytes(done.shown), error
        )
