"""Pushes the files of an outbox directory: what a Spark job computes reaches the clients.

A file is moved away, and its name noted, before it is pushed (`folder`): a crash in
between loses its pushes, and none is ever pushed twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from gateway.protocols.pomelo.lobby.lobby import Lobby, portions
from gateway.protocols.pomelo.push.delivery import Slices
from gateway.protocols.pomelo.push.folder import File, Folder
from gateway.protocols.pomelo.push.row import Row
from gateway.protocols.pomelo.push.rows import BrokenFile
from gateway.sdk.interfaces import Journal

_POLL_SECONDS = 0.2
_FORGET_SECONDS = 10.0
_SWEEPS = 100
"""Sweeps in the time that files are kept: they may be many, and each sweep looks at all."""
_STOP_SECONDS = 5.0


@define(eq=False, slots=False)
class Outbox:
    """Pushes files that appear in a folder; rows that wait count as memory of *journal*."""

    _log = Logger()

    folder: Folder
    """Where they appear."""
    _lobby: Lobby
    _journal: Journal
    _reactor: Any
    _clock: Callable[[], float] = time.time
    """Seconds since the epoch, as the times of files are."""

    def __attrs_post_init__(self) -> None:
        self._loop = LoopingCall(self._push_all)
        self._loop.clock = self._reactor
        self._stopped: Deferred[Any] = succeed(None)
        self._stop_by: float | None = None
        self._forgot = self._swept = 0.0
        self._trouble = ""
        """Why it can not look, as the log has it."""
        self.files = self.rows = self.refused = self.expired = 0
        """Files that were pushed, their rows, and how many of those were refused, or had
        waited longer than their time to live."""

    def start(self) -> None:
        """Look for files every 200 ms, until `stop`."""
        self._stopped = self._loop.start(_POLL_SECONDS)
        self._stopped.addErrback(lambda why: self._log.failure("outbox", why))

    def stop(self) -> Deferred[Any]:
        """Fires when the file that is being pushed is finished, or after 5 s."""
        self._stop_by = self._reactor.seconds() + _STOP_SECONDS
        if self._loop.running:
            self._loop.stop()
        return self._stopped

    async def _push_all(self) -> None:
        try:
            while (file := await self._thread(self.folder.take)) is not None:
                try:
                    await self._push_file(file)
                finally:
                    file.close()
                if self._stop_by is not None:
                    return
            self._trouble = ""
            now = self._reactor.seconds()
            if now - self._forgot >= _FORGET_SECONDS:
                self._forgot = now
                await self._thread(self.folder.forget)
                if now - self._swept >= self.folder.retention / _SWEEPS:
                    self._swept = now
                    await self._thread(self.folder.sweep)
        except OSError as why:
            if str(why) != self._trouble:
                self._trouble = str(why)
                self._log.error("outbox: {why}", why=str(why))
        except Exception:  # it looks again: one file must not stop all others
            self._log.failure("outbox")

    async def _thread(self, work: Any) -> Any:
        pool = self._reactor.getThreadPool()
        return await maybeDeferred(deferToThreadPool, self._reactor, pool, work)

    async def _push_file(self, file: File) -> None:
        tally = _Tally()
        try:
            while rows := await self._thread(file.chunk):
                size = sum(row.size for row in rows)
                self._journal.reserve(size)
                try:
                    await self._push(rows, file.written_at, tally)
                finally:
                    self._journal.reserve(-size)
        except (BrokenFile, OSError) as why:
            self._log.error(
                "outbox: {name}: given up after {count} rows: {why}",
                name=file.name,
                count=tally.rows,
                why=str(why),
            )
        self.files += 1
        self.rows += tally.rows
        self.refused += tally.failed
        self.expired += tally.expired
        self._report(file.name, tally)

    async def _push(
        self, rows: Iterable[Row], written_at: float, tally: _Tally
    ) -> None:
        slices, registry = Slices(self._reactor), self._lobby.registry
        elsewhere: list[Row] = []
        for row in rows:
            tally.rows += 1
            await slices.count(1)
            if self._stop_by is not None and self._reactor.seconds() > self._stop_by:
                raise BrokenFile("the gateway stops")
            if row.ttl is not None and self._clock() - written_at > row.ttl:
                tally.expired += 1
                registry.outcomes["expired"] += 1
                continue
            concerns_others = self._lobby.concerns_others(row)
            try:
                delivery = row.begin(registry)
            except ValueError as why:
                tally.failed += 1
                tally.reason = tally.reason or str(why)
                continue
            if concerns_others:
                elsewhere.append(row)
            await slices.deliver(delivery)
            tally.add(delivery.counts)
        for some in portions(elsewhere):
            for heard in await self._lobby.spread(some):
                tally.add(heard.counts)
                if heard.error is not None:
                    tally.missed[str(heard.at)] = heard.error

    def _report(self, name: str, tally: _Tally) -> None:
        self._log.debug(
            "outbox: {name}: {count} pushes, {sent} sent, {dropped} dropped",
            name=name,
            count=tally.rows,
            sent=tally.sent,
            dropped=tally.dropped,
        )
        if tally.expired or tally.dropped:
            self._log.info(
                "outbox: {name}: not delivered: {expired} of {count} pushes, which had "
                "waited longer than their ttl; {dropped} messages to clients that read "
                "too slowly (options.push_bytes)",
                name=name,
                count=tally.rows,
                expired=tally.expired,
                dropped=tally.dropped,
            )
        if tally.missed:
            self._log.error(
                "outbox: {name}: of {count} rows some did not reach the clients of other "
                "gateways (options.lobby), or nobody knows: {missed}",
                name=name,
                count=tally.rows,
                missed="; ".join(f"{at} {why}" for at, why in tally.missed.items()),
            )
        if tally.failed:
            self._log.error(
                "outbox: {name}: {failed} of {count} not pushed: {why}",
                name=name,
                failed=tally.failed,
                count=tally.rows,
                why=tally.reason,
            )


@dataclass(slots=True)
class _Tally:
    """Outcomes of one file's rows."""

    rows: int = 0
    failed: int = 0
    expired: int = 0
    sent: int = 0
    dropped: int = 0
    reason: str = ""
    """Why the first one of them failed."""
    missed: dict[str, str] = field(default_factory=dict)
    """Other gateways that have not done some of them, and why, of late."""

    def add(self, counts: Mapping[str, int]) -> None:
        self.sent += counts.get("sent", 0)
        self.dropped += counts.get("dropped", 0)
