"""A Pomelo client on Twisted.

    client = Client(target, clock=reactor, user={"uid": "alice"}, on_push=show)
    await client.connect()
    answer = await client.request("area.player.move", b'{"x":1}')   # it is on disk
    client.notify("area.player.wave", b"{}")

It does not reconnect: requests that were not answered when the connection ends fail
with `Disconnected`, and the caller decides whether to send them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import define
from twisted.internet import interfaces
from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.protocols.pomelo import client_session
from gateway.sdk.outgoing import Stream, Streams, why_lost

_TICKS = 2


class Disconnected(Exception):
    """The connection ended, or never was one; str() says why."""


@define(eq=False, slots=False)
class Client:
    """One connection.

    *websocket* is the request's `//HOST/PATH`, or None for no WebSocket.

    The connection is dropped if the handshake takes more than *timeout* seconds, or
    if the server sends nothing for two of its heartbeat intervals.

    18 attributes: seven are given; most of the others end with the connection.
    """

    _log = Logger()

    _target: interfaces.IStreamClientEndpoint
    _clock: interfaces.IReactorTime
    _user: Mapping[str, Any] | None = None
    _on_push: Callable[[str, bytes], None] = lambda route, body: None
    _on_closed: Callable[[str], None] = lambda why: None
    _websocket: str | None = None
    _timeout: float = 30.0

    def __attrs_post_init__(self) -> None:
        self._session = client_session.ClientSession(self._user)
        self._responses: dict[int, Deferred[bytes]] = {}
        self._stream: Stream | None = None
        self._connecting: Deferred[Any] | None = None
        self._opened: Deferred[None] = Deferred()
        self._stopped: Deferred[None] | None = None
        self._timer: interfaces.IDelayedCall | None = None
        self._interval = 0.0
        self._heard = False
        self._quiet = 0
        self._why = ""

    def connect(self) -> Deferred[None]:
        """Fires when the handshake is done; fails with `Disconnected`."""
        self._timer = self._clock.callLater(self._timeout, self._timed_out)
        self._connecting = self._target.connect(Streams(self, self._websocket))
        self._connecting.addErrback(self.closed)
        return self._opened

    def request(self, route: str, body: bytes) -> Deferred[bytes]:
        """Fires with the response's body, as JSON; fails with `Disconnected`."""
        if self._stream is None or not self._session.opened:
            return fail(Disconnected(self._why or "not connected"))
        number, package = self._session.request(route, body)
        response: Deferred[bytes] = Deferred()
        self._responses[number] = response
        self._stream.send(package)
        return response

    def notify(self, route: str, body: bytes) -> None:
        """Send a notify, which has no answer.  Raises `Disconnected`."""
        if self._stream is None or not self._session.opened:
            raise Disconnected(self._why or "not connected")
        self._stream.send(self._session.notify(route, body))

    def stop(self) -> Deferred[None]:
        stopped = self._stopped = Deferred()
        self._why = self._why or "stopped"
        if self._stream is not None:
            self._stream.close()
        elif self._connecting is not None and not self._opened.called:
            self._connecting.cancel()
        else:
            stopped.callback(None)
        return stopped

    # `outgoing.User`

    def connected(self, stream: Stream) -> None:
        self._stream = stream

    def opened(self) -> None:
        assert self._stream is not None
        self._stream.send(self._session.handshake())

    def received(self, data: bytes) -> None:
        self._heard = True
        try:
            for each in self._session.received(data):
                if isinstance(each, client_session.Response):
                    self._responses.pop(each.id).callback(each.body)
                elif isinstance(each, client_session.Push):
                    self._on_push(each.route, each.body)
                elif isinstance(each, client_session.HandshakeDone):
                    self._begin(each.heartbeat)
                else:
                    self._why = f"kicked: {each.reason}"
                    self._log.debug("{why}", why=self._why)
        except client_session.Unexpected as why:
            self._give_up(str(why))

    def closed(self, why: Failure) -> None:
        self._cancel_timer()
        self._stream = None
        reason = self._why = self._why or why_lost(why)
        responses, self._responses = self._responses, {}
        for response in responses.values():
            response.errback(Disconnected(reason))
        if not self._opened.called:
            self._opened.errback(Disconnected(reason))
        if self._stopped is not None and not self._stopped.called:
            self._stopped.callback(None)
        self._on_closed(reason)

    def _begin(self, heartbeat: int) -> None:
        self._cancel_timer()
        assert self._stream is not None
        self._stream.send(self._session.outgoing())
        if heartbeat:
            self._interval = heartbeat / _TICKS
            self._timer = self._clock.callLater(self._interval, self._tick)
        self._opened.callback(None)

    # Time

    def _tick(self) -> None:
        assert self._stream is not None
        self._quiet = 0 if self._heard else self._quiet + 1
        self._heard = False
        if self._quiet > 2 * _TICKS:
            self._timer = None
            self._give_up("the server gives no sign of life")
            return
        self._timer = self._clock.callLater(self._interval, self._tick)
        self._stream.send(self._session.heartbeat())

    def _timed_out(self) -> None:
        self._timer = None
        self._why = f"no handshake within {self._timeout:g} s"
        if self._stream is not None:
            self._stream.abort()
        elif self._connecting is not None:
            self._connecting.cancel()

    def _give_up(self, why: str) -> None:
        self._why = self._why or why
        if self._stream is not None:
            self._stream.abort()

    def _cancel_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
