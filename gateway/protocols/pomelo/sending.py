"""`gateway send pomelo`: requests that are sent again until they are answered."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import deque
from collections.abc import Iterable

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from gateway.protocols.pomelo.client import Client, Disconnected
from gateway.protocols.pomelo.sample import moves
from gateway.sdk.command import endpoint, websocket
from gateway.sdk.sending import Sending as _Sending
from gateway.sdk.source import Events

_NOTIFIES = 100
"""In one lot; the last is a request.  The journal keeps their order, so its answer
speaks for all of them."""
_PAUSE_SECONDS = 1.0


class Sending(_Sending):
    """One run.  Whatever connection there is takes what another one has left."""

    def __init__(self, args: Namespace) -> None:
        super().__init__(args, moves)
        self._clients: set[Client] = set()
        self._lot = _NOTIFIES if args.notify else 1
        self._again: deque[Events] = deque()
        self._trouble = ""

    def begin(self) -> None:
        """See `gateway.sdk.sending.Sending`."""
        for _ in range(self.args.connections):
            self.spawn(self._keep_connected())

    def close(self) -> Iterable[Deferred[None]]:
        """See `gateway.sdk.sending.Sending`."""
        return [client.stop() for client in tuple(self._clients)]

    @property
    def trouble(self) -> str:
        """See `gateway.sdk.sending.Sending`."""
        return self._trouble

    def _client(self) -> Client:
        args = self.args
        return Client(
            endpoint(self.reactor, args),
            clock=self.reactor,
            user={} if args.token is None else {"token": args.token},
            websocket=websocket(args),
        )

    async def _keep_connected(self) -> None:
        """Until nothing is left to be sent, or sent again."""
        while not self.stopping:
            client = self._client()
            self._clients.add(client)
            try:
                await client.connect()
            except Disconnected as why:
                self._trouble = str(why)
                self._clients.discard(client)
                await deferLater(self.reactor, _PAUSE_SECONDS)
                continue
            self.totals.connections += 1
            works = [
                Deferred.fromCoroutine(self._work(client))
                for _ in range(self.args.depth)
            ]
            for work in works:
                await work
            if not self._again:
                return  # its connection stays open until all are done
            self._clients.discard(client)

    async def _work(self, client: Client) -> None:
        """Keep one lot in flight until the source ends, or the connection."""
        route = self.args.route
        while (lot := await self._next()) is not None:
            try:
                for _, body in lot[:-1]:
                    client.notify(route, body)
                answer = json.loads(await client.request(route, lot[-1][1]))
            except Disconnected as why:
                self._trouble = str(why)
                self._again.append(lot)
                return
            if isinstance(answer, dict) and answer.get("code") == 200:
                self.safe(lot)
                continue
            self._trouble = f"answered {answer!r}"
            self._again.append(lot)
            await deferLater(self.reactor, _PAUSE_SECONDS)

    async def _next(self) -> Events | None:
        if self._again and not self.stopping:
            lot = self._again.popleft()
            self.totals.resent += len(lot)
            return lot
        return await self.take(self._lot)
