"""Keeps a connection to the hub, and tells how it goes.

A connection that ends is made again, with pauses that grow up to ten seconds and differ from
gateway to gateway.

Of several hubs the first has the files.  Where none was reached for `forward.next_after`, the
next one is tried, and so on in turns; while another one than the first has them, those before
it are asked as often whether they are back.  What each lacks, each says itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from attrs import define
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.config.model import Forward
from gateway.forward.connection import Connection, Denied, Inquiry, Lost
from gateway.forward.files import ForwardedFiles, Outgoing, Unreadable
from gateway.sdk.backoff import Backoff
from gateway.sdk.forwarding import ALPN, SUBPROTOCOL, VERSION, Hello, Said, Word
from gateway.sdk.outgoing import Streams, User, end_of, endpoint, why_lost
from gateway.store.lsns import Lsns
from gateway.store.names import SpoolFile

_LOOK_SECONDS = 10.0
_SEE_SECONDS = 60.0
"""Between two looks at all that waits while the hub is away: they take their time."""
_SET_SECONDS = 60.0
"""By so much a clock is set that the hub is told anew what it shows."""
_NO_FILE = 422
_HELD_SECONDS = 60.0
"""Files of another node that the hub refuses wait so long, while all others go on, …"""
_TOLD_SECONDS = 600.0
"""… and where they are not tried again, as they are gone, that is told no longer."""
_AGAIN = frozenset((0, 409, 500, 503))


class _Stopped(Exception):
    """The daemon stops, or its configuration is another one."""


@dataclass(frozen=True, slots=True)
class Hub:
    """How it stands with the hub."""

    to: str
    """Its address; all of them, where there are several and none is connected."""
    connected: bool
    """It has said what it has, and the connection is there."""
    seconds: float
    """Since when that is so, or since when it is not."""
    why: str
    """Why not; or why the hub takes nothing now, empty if it does."""
    refused: int
    """What the hub has answered in place of that, as in docs/forward-v0.md; 0: nothing."""
    place: int = 1
    """Which of `forward.to` is connected, or tried."""

    @property
    def denied(self) -> bool:
        """It refuses this gateway until somebody does something."""
        return self.refused not in _AGAIN


def connect(reactor: Any, url: str, settings: Forward, user: User) -> Deferred[Any]:
    """Open a connection to one of the hubs, as configured."""
    to = urlsplit(url)
    secure = to.scheme in ("tls", "wss")
    websocket = None
    if to.scheme in ("ws", "wss"):
        websocket = f"//{to.netloc}{to.path or '/'}"
    target = endpoint(
        reactor,
        to.hostname or "",
        to.port or 0,
        unix=None if to.scheme != "unix" else Path(to.path),
        tls=secure,
        ca=settings.ca,
        certificate=settings.certificate,
        private_key=settings.private_key,
        alpn=() if websocket else [ALPN],
    )
    streams = Streams(user, websocket, subprotocols=[SUBPROTOCOL])
    found: Deferred[Any] = target.connect(streams)
    return found


@define(eq=False, slots=False)
class Forwarder:
    """Of one gateway; `start` and `stop`, once each."""

    name = "forward.certificate"
    """That of the certificate which the hub is shown, among those of listeners."""
    _log = Logger()

    _settings: Forward
    _files: ForwardedFiles
    _reactor: Any
    _in_thread: Callable[..., Deferred[Any]]
    _connect: Callable[[Any, str, Forward, User], Deferred[Any]] = connect
    _wall_clock: Callable[[], float] = time.time
    _words: Callable[[], Callable[[Mapping[str, Lsns]], list[Said]]] = lambda: (
        lambda _: []
    )
    """For a new connection: what is said on it, again and again, with what can not be brought
    anywhere."""

    def __attrs_post_init__(self) -> None:
        self._backoff = Backoff()
        self._connection: Connection | None = None
        self._connecting: Deferred[Any] | None = None
        self._timer: Any = None
        self._looks: Any = None
        self._at = 0
        """Which of the hubs has the files, or is tried."""
        self._inquiries: list[tuple[Inquiry, Deferred[Any]]] = []
        self._asked_at = self._seen_at = self._reactor.seconds()
        self._ahead = 0.0
        """By how much the wall's clock was ahead when the hub was told what it shows."""
        self.node = ""
        """The name of the hub that was connected last."""
        self._running = False
        self._connected = False
        self._since = self._reactor.seconds()
        self._why, self._told = "not connected yet", ""
        self._word = ""
        self._denied: Denied | None = None
        self._held: dict[str, tuple[float, Denied]] = {}
        """Nodes of others that were refused, and until when they wait."""
        self.nodes: dict[str, int] = {}
        """Of others whose files go over from here: the last lsn that the hub has of their
        present life; of those that were not asked for yet, what is before all that waits."""
        self.arrived_lsn = 0
        """The hub has all of our node's up to there, as far as that is known."""
        self.files = 0
        """What waits at the hub for whoever reads its spool, as it said last."""
        self.sent_files = self.sent_bytes = self.sent_events = 0
        """That the hub has told to be there, since the start."""
        self.connections = 0
        self.certificate_ends: datetime | None = None
        """When that which the hub is shown does; None: there is none, or none was read."""
        self.left: Mapping[str, Lsns] = {}
        """What lies in the spool of others and can not be brought anywhere, as of the last
        word."""
        self.set_aside = 0
        """Files that could not be read."""

    # The daemon

    def start(self, published_lsn: int) -> None:
        """Connect, and go on until `stop`; there are files up to that lsn."""
        self._running = True
        self.nodes = self._files.before_spool()
        before = self.nodes.pop(self._files.node, published_lsn)
        self.arrived_lsn = min(published_lsn, before)
        self._since = self._reactor.seconds()
        self._begin()
        self._look()

    def stop(self) -> None:
        """Hang up; what is not told to be there is sent again by the next start."""
        self._running = False
        self._cancel()
        if self._looks is not None:
            self._looks.cancel()
            self._looks = None

    def configure(self, settings: Forward) -> None:
        """Go on with these, on a new connection if they are others."""
        if settings == self._settings:
            return
        self._settings, self._at = settings, 0
        if self._running:
            self._cancel()
            self._denied = None
            self._held.clear()
            self._backoff.succeeded()
            self._begin()

    @property
    def hub(self) -> Hub:
        """How it stands."""
        seconds = self._reactor.seconds() - self._since
        why = self._word if self._connected else self._why
        hubs, denied = self._settings.hubs, self._denied
        if denied is None:
            since = self._reactor.seconds() - _TOLD_SECONDS
            told = (one for until, one in self._held.values() if until > since)
            denied = next(told, None)
            why = why or str(denied or "")
        to = hubs[self._at] if self._connected else " or ".join(hubs)
        refused = 0 if denied is None else denied.code
        return Hub(to, self._connected, seconds, why, refused, self._at + 1)

    @property
    def why_waiting(self) -> str:
        """What files in the spool wait for."""
        hub = self.hub
        if not hub.connected:
            return f"the hub, {hub.to}, is away: {hub.why}"
        return f"the hub, {hub.to}, is behind" + (f": {hub.why}" if hub.why else "")

    # The connection

    def _begin(self) -> None:
        self._timer = None
        settings, self._ahead = self._settings, self._ahead_now
        self._connection = connection = Connection(
            self._hello,
            settings.rate,
            self._files,
            self._reactor,
            self._in_thread,
            self,
            self._denied is not None and self._denied.code == _NO_FILE,
            self._is_held,
            partial(self._said, self._words()),
        )
        self._connecting = maybeDeferred(
            self._connect, self._reactor, self._to, settings, connection
        )
        self._connecting.addErrback(self._failed, connection)

    def _said(self, words: Callable[[Mapping[str, Lsns]], list[Said]]) -> list[Said]:
        self.left = self._files.left(self._is_held)
        return words(self.left)

    @property
    def _ahead_now(self) -> float:
        seconds: float = self._reactor.seconds()
        return self._wall_clock() - seconds

    @property
    def _to(self) -> str:
        return self._settings.hubs[self._at]

    @property
    def _hello(self) -> Hello:
        settings = self._settings
        token = "" if settings.token is None else settings.token.get_secret_value()
        name = settings.name or self._files.node
        return Hello(VERSION, name, token, self._wall_clock())

    def _try_next(self) -> None:
        """Another hub, if this one was away for long."""
        if self._reactor.seconds() - self._since >= self._settings.next_after:
            self._at = (self._at + 1) % len(self._settings.hubs)

    def _ask(self) -> None:
        """Those before the one that has the files, whether they are back."""
        self._ask_no_more()
        self._asked_at = self._reactor.seconds()
        for at, to in enumerate(self._settings.hubs[: self._at]):
            life = self._files.life_of(self._files.node, "")
            inquiry = Inquiry(self._hello, life, partial(self._is_back, at))
            asked = maybeDeferred(
                self._connect, self._reactor, to, self._settings, inquiry
            )
            asked.addErrback(lambda _: None)  # it is not
            self._inquiries.append((inquiry, asked))

    def _ask_no_more(self) -> None:
        inquiries, self._inquiries = self._inquiries, []
        for inquiry, asked in inquiries:
            inquiry.end()
            asked.cancel()

    def _is_back(self, at: int) -> None:
        if self._running and at < self._at:
            self._cancel()
            self._at = at
            self._begin()

    def _failed(self, why: Failure, connection: Connection) -> None:
        if connection is self._connection:
            connection.end(Lost(why_lost(why)))

    def _cancel(self) -> None:
        connection, self._connection = self._connection, None
        connecting, self._connecting = self._connecting, None
        self._ask_no_more()
        if connection is not None:
            connection.end(_Stopped())
        if connecting is not None:
            connecting.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_away("stopped")

    def _look(self) -> None:
        own = self._settings.certificate
        self.certificate_ends = None if own is None else end_of(own)
        if self._connection is not None:
            self._connection.look()
        if self._connected and abs(self._ahead_now - self._ahead) > _SET_SECONDS:
            assert self._connection is not None
            self._connection.end(Lost("the clock of this machine was set"))
        seen = self._reactor.seconds() - self._seen_at
        if not self._connected and seen >= _SEE_SECONDS:
            self._see_who_waits()
        asked = self._reactor.seconds() - self._asked_at
        if self._at and self._connected and asked >= self._settings.next_after:
            self._ask()
        self._looks = self._reactor.callLater(_LOOK_SECONDS, self._look)

    def _see_who_waits(self) -> None:
        """Others bring files while the hub is away."""

        def seen(before: dict[str, int]) -> None:
            before.pop(self._files.node, None)
            for node, last in before.items():
                known = self.nodes.setdefault(node, last)
                if not self._connected:  # or the hub has said more since
                    self.nodes[node] = min(last, known)

        self._seen_at = self._reactor.seconds()
        looked = self._in_thread(self._files.before_spool)
        looked.addCallbacks(seen, lambda failed: failed.trap(OSError) and None)

    def _is_away(self, why: str) -> None:
        if self._connected:
            self._since = self._reactor.seconds()
        self._connected, self._why, self._word = False, why, ""

    # What it tells

    def opened(self, hub: str, arrived: int | None) -> None:
        """See `Observer`."""
        self.connections += 1
        self._connected, self._since = True, self._reactor.seconds()
        self._asked_at = self._since
        self._denied = None
        self._told = ""
        if self.node not in ("", hub):
            self.nodes.clear()
            self._see_who_waits()
        self.node = hub
        if arrived is not None:
            self.arrived_lsn = arrived
        self._log.info("Forwarding to {to}", to=self._to)

    def said(self, word: Word) -> None:
        """See `Observer`."""
        self._word = word.why

    def has(self, named: SpoolFile) -> None:
        """See `Observer`."""
        if named.node == self._files.node:
            self.arrived_lsn = max(self.arrived_lsn, named.last)

    def relayed(self, node: str, last: int) -> None:
        """See `Observer`."""
        self.nodes[node] = last
        self._held.pop(node, None)

    def _hold(self, denied: Denied) -> None:
        if denied.holds:
            until = self._reactor.seconds() + _HELD_SECONDS
            self._held[denied.node] = until, denied

    def _is_held(self, node: str) -> bool:
        until, _ = self._held.get(node, (0.0, None))
        now: float = self._reactor.seconds()
        return now < until

    def arrived(self, outgoing: Outgoing, waiting: int) -> None:
        """See `Observer`."""
        self._backoff.succeeded()
        self.files = waiting
        self.sent_files += 1
        self.sent_bytes += outgoing.file.bytes
        self.sent_events += outgoing.events

    def lacks(self, incarnation: str, first: int, last: int) -> None:
        """See `Observer`."""
        self._log.warn(
            "The hub lacks lsns {first} to {last} of incarnation {incarnation}, of which "
            "there are no files here any more (spool.retention)",
            first=first,
            last=last,
            incarnation=incarnation or "unknown",
        )

    def unreadable(self, why: Unreadable) -> None:
        """See `Observer`."""
        self.set_aside += 1
        self._log.error("{why}; it is in poison/ now, and not at the hub", why=why)

    def ended(self, why: Exception) -> None:
        """See `Observer`."""
        if self._connection is None:
            return  # we have ended it
        self._connection = None
        self._denied = why if isinstance(why, Denied) else None
        if isinstance(why, Denied):
            self._hold(why)
        self._is_away(str(why) or type(why).__name__)
        if self._why != self._told:
            self._told = self._why
            self._log.warn("Not forwarding to {to}: {why}", to=self._to, why=self._why)
        if self._running:
            self._try_next()
            self._timer = self._reactor.callLater(self._backoff.pause(), self._begin)
