"""`gateway send pomelo`: requests that are sent again until they are answered."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from twisted.internet.defer import Deferred, DeferredList, DeferredLock
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from gateway.cli._sending import Events, Generated, Lines, Totals, progress, source
from gateway.outgoing import endpoint
from gateway.pomelo.client import Client, Disconnected
from gateway.pomelo.sample import moves

if TYPE_CHECKING:
    from twisted.python.failure import Failure

__all__ = ["Sending"]

_NOTIFIES = 100
"""In one lot; the last is a request.  The journal keeps their order, so its answer
speaks for all of them."""
_READ_AHEAD = 256
_PAUSE_SECONDS = 1.0


class Sending:
    """One run, from the first connection to the totals."""

    def __init__(self, args: Namespace) -> None:
        from twisted.internet import reactor

        self._args = args
        self._reactor: Any = reactor
        self._totals = Totals()
        self._clients: set[Client] = set()
        self._running = args.connections
        self._lot = _NOTIFIES if args.notify else 1
        self._ahead: deque[tuple[str, bytes]] = deque()
        self._again: deque[Events] = deque()
        self._reading = DeferredLock()
        self._stopping = self._ended = False
        self._due = self._heard = time.monotonic()
        self._trouble = "no answer"
        self._acked: TextIO | None = None
        self._source = source(args, moves)

    def run(self) -> Totals:
        """Send everything; return when it is acknowledged or hopeless."""
        totals, started = self._totals, time.monotonic()
        if self._args.acked is not None:
            self._acked = self._args.acked.open("a")
        self._reactor.callWhenRunning(self._start)
        with progress() as show:
            self._reactor.callLater(0, self._watch, show)
            self._reactor.run()
        if self._acked is not None:
            self._acked.close()
        totals.seconds = round(time.monotonic() - started, 3)
        totals.complete = self._ended and totals.sent == totals.acknowledged
        return totals

    def _start(self) -> None:
        for _ in range(self._args.connections):
            sending = Deferred.fromCoroutine(self._keep_connected())
            sending.addErrback(self._broken)

    def _client(self) -> Client:
        args = self._args
        host, port = args.target
        target = endpoint(
            self._reactor,
            host,
            port,
            tls=args.tls,
            ca=args.ca,
            certificate=args.cert,
            private_key=args.key,
        )
        path = None
        if args.websocket is not None:
            path = f"//{host}:{port}/{args.websocket.removeprefix('/')}"
        user = {} if args.token is None else {"token": args.token}
        return Client(target, clock=self._reactor, user=user, websocket=path)

    async def _keep_connected(self) -> None:
        """Until nothing is left to be sent, or sent again."""
        while not self._stopping:
            client = self._client()
            self._clients.add(client)
            try:
                await client.connect()
            except Disconnected as why:
                self._trouble = str(why)
                await deferLater(self._reactor, _PAUSE_SECONDS)
            else:
                self._totals.connections += 1
                works = [
                    Deferred.fromCoroutine(self._work(client))
                    for _ in range(self._args.depth)
                ]
                for work in works:
                    await work
                if not self._again:
                    break
            finally:
                self._clients.discard(client)
        else:
            return
        self._clients.add(client)
        self._running -= 1
        if not self._running:
            self._stop()

    async def _work(self, client: Client) -> None:
        """Keep one lot in flight until the source ends, or the connection."""
        totals, route = self._totals, self._args.route
        while (lot := await self._next()) is not None:
            try:
                for _, body in lot[:-1]:
                    client.notify(route, body)
                answer = json.loads(await client.request(route, lot[-1][1]))
            except Disconnected as why:
                self._trouble = str(why)
                self._again.append(lot)
                return
            if not isinstance(answer, dict) or answer.get("code") != 200:
                self._trouble = f"answered {answer!r}"
                self._again.append(lot)
                await deferLater(self._reactor, _PAUSE_SECONDS)
                continue
            self._heard = time.monotonic()
            totals.acknowledged += len(lot)
            if self._acked is not None:
                self._acked.write("".join(f"{identity}\n" for identity, _ in lot))
                self._acked.flush()

    async def _next(self) -> Events | None:
        """The next lot, when its time has come; None at the end."""
        if self._stopping:
            return None
        if self._again:
            lot = self._again.popleft()
            self._totals.resent += len(lot)
            return lot
        rate = self._args.rate
        if rate is not None:
            now = time.monotonic()
            self._due = max(self._due, now - 1.0) + self._lot / rate
            if self._due > now:
                await deferLater(self._reactor, self._due - now)
        if not self._ahead:
            await self._read()
        lot = [self._ahead.popleft() for _ in range(min(self._lot, len(self._ahead)))]
        self._totals.sent += len(lot)
        return lot or None

    async def _read(self) -> None:
        if isinstance(self._source, Generated):
            events = self._source.read(_READ_AHEAD)
        else:
            async with self._reading:
                if self._ahead or self._ended:
                    return
                events = await deferToThread(self._source.read, _READ_AHEAD)
                self._heard = time.monotonic()
        if events is None:
            self._ended = self._ended or not self._stopping
        else:
            self._ahead += events

    def _watch(self, show: Callable[[Totals], None]) -> None:
        show(self._totals)
        waiting = self._totals.sent > self._totals.acknowledged
        idle = not self._totals.connections
        late = time.monotonic() - self._heard > self._args.patience
        if (waiting or idle) and late and not self._stopping:
            print(
                "gateway send: nothing was acknowledged for "
                f"{self._args.patience:g} s: {self._trouble}",
                file=sys.stderr,
            )
            self._ended = False
            self._stop()
        self._reactor.callLater(0.2, self._watch, show)

    def _broken(self, why: Failure) -> None:
        print(f"gateway send: {why.getErrorMessage()}", file=sys.stderr)
        self._ended = False
        self._stop()

    def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        if isinstance(self._source, Lines):
            self._source.stopped = True
        closed = DeferredList([client.stop() for client in self._clients])
        closed.addTimeout(2.0, self._reactor)
        closed.addBoth(lambda _: self._reactor.stop())
