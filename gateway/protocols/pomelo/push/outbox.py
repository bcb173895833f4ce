"""Pushes the files of an outbox directory: what a Spark job computes reaches the clients.

A file is moved away before it is pushed: a crash in between loses its pushes, and none
is ever pushed twice.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import LoopingCall, deferLater
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from gateway.protocols.pomelo.push.folder import Batch, Folder
from gateway.protocols.pomelo.registry import Registry

__all__ = ["Outbox"]

_POLL_SECONDS = 0.2
_SWEEP_SECONDS = 10.0
_AT_ONCE = 256
"""Pushes between two turns of the reactor."""


class Outbox:
    """Pushes what appears in a folder, as long as it runs."""

    _log = Logger()

    def __init__(self, folder: Folder, registry: Registry, reactor: Any) -> None:
        self._folder = folder
        self._registry = registry
        self._reactor = reactor
        self._loop = LoopingCall(self._look)
        self._loop.clock = reactor
        self._stopped: Deferred[Any] = succeed(None)
        self._stopping = False
        self._swept = 0.0
        self.files = self.rows = self.refused = 0
        """Files that were pushed, their rows, and those of the rows that were refused."""

    @property
    def set_aside(self) -> int:
        """Files that could not be read."""
        return self._folder.set_aside

    def start(self) -> None:
        """Look for files every 200 ms, until `stop`."""
        self._stopped = self._loop.start(_POLL_SECONDS)
        self._stopped.addErrback(lambda why: self._log.failure("outbox", why))

    def stop(self) -> Deferred[Any]:
        """Fires when the file that is being pushed is finished."""
        self._stopping = True
        if self._loop.running:
            self._loop.stop()
        return self._stopped

    def _look(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._push_all())

    async def _push_all(self) -> None:
        try:
            while (batch := await self._thread(self._folder.take)) is not None:
                await self._push(batch)
                if self._stopping:
                    return
            now = self._reactor.seconds()
            if now - self._swept >= _SWEEP_SECONDS:
                self._swept = now
                await self._thread(self._folder.sweep)
        except OSError as why:
            self._log.error("outbox: {why}", why=str(why))

    async def _thread(self, work: Any) -> Any:
        pool = self._reactor.getThreadPool()
        return await maybeDeferred(deferToThreadPool, self._reactor, pool, work)

    async def _push(self, batch: Batch) -> None:
        sent = dropped = failed = 0
        reason = ""
        for number, push in enumerate(batch.pushes, 1):
            try:
                pushed = push.send(self._registry)
            except ValueError as why:
                failed += 1
                reason = reason or str(why)
            else:
                sent += pushed.sent
                dropped += pushed.dropped
            if number % _AT_ONCE == 0:
                await deferLater(self._reactor, 0)
        self.files += 1
        self.rows += len(batch.pushes)
        self.refused += failed
        self._log.debug(
            "outbox: {name}: {count} pushes, {sent} sent, {dropped} dropped",
            name=batch.name,
            count=len(batch.pushes),
            sent=sent,
            dropped=dropped,
        )
        if failed:
            self._log.error(
                "outbox: {name}: {failed} of {count} not pushed: {why}",
                name=batch.name,
                failed=failed,
                count=len(batch.pushes),
                why=reason,
            )
