"""The admin port's HTTP server: a few fixed paths, whole responses, no resource tree.

Nothing here trusts the client: a body is dropped unread unless it is JSON from someone
with the token, unknown paths, methods and hosts get one line, and the client learns no
more of a failure than "500".  A web page elsewhere can make a browser post, but not
JSON: for that the browser asks us first (CORS), and gets no leave.
There is no access log: a scrape every few seconds would bury the lines that matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from io import BytesIO
from typing import Any, cast
from weakref import WeakSet

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import RESPONSES, datetimeToString
from twisted.web.server import Request, Site

from gateway.admin.access import authorized, host_allowed, trusted
from gateway.admin.connections import AdminChannel, Guard, address_of
from gateway.config.model import Admin
from gateway.plugins import RAISED
from gateway.sdk.endpoint import Tcp, Unix
from gateway.sdk.protocol import Answer, Get, Post

__all__ = [
    "OWN_PATHS",
    "UNTRUSTED",
    "AdminSite",
    "Page",
    "page_of",
]

UNTRUSTED = "set admin.token in the configuration and send it, or set admin.trust_loopback: true"
"""Why somebody without a token may look, and no more."""
_TEXT = "text/plain; charset=utf-8"
_IDLE_SECONDS = 75.0  # longer than any sane scrape interval, so connections last
_IGNORED_BYTES = 64 * 1024  # of a body that is not wanted; then the connection ends
_POST_BYTES = 2**20
_REFUSED_POST_BYTES = 16 * 2**20  # of a post that is too long; then likewise


#: Answers GET and HEAD on one path; None means it writes and finishes by itself.
Page = Callable[["AdminRequest"], Answer | None]


#: Paths below /api/ that no protocol can have: the daemon has them itself.
OWN_PATHS = frozenset(
    f"/api/{name}"
    for name in (
        "connections", "feed", "history", "rejections", "reload", "status", "tap",
    )
)  # fmt: skip


def page_of(get: Get) -> Page:
    """The page of a `Get`."""

    def page(request: AdminRequest) -> Answer:
        query = (request.args or {}).items()
        return _checked(get({_text(name): _text(values[-1]) for name, values in query}))

    return page


def _checked(answer: object) -> Answer:
    """What a protocol's code answered; raises TypeError if that is no answer."""
    if not isinstance(answer, Answer):
        raise TypeError(f"it answers {answer!r}, and not a gateway.sdk.protocol.Answer")
    return answer


def _text(given: bytes) -> str:
    return given.decode(errors="replace")


class AdminSite(Site):
    """The pages by path, and access to them.

    *health* pages are for anyone who can connect, *pages* and *posts* need the token.
    """

    log_failures = Logger()
    protocol = AdminChannel  # type: ignore[assignment]  # it would speak HTTP/2 too

    def __init__(
        self,
        where: Tcp | Unix,
        token: str | None,
        *,
        health: Mapping[str, Page],
        pages: Mapping[str, Page],
        posts: Mapping[str, Post],
        clock: IReactorTime,
        guard: Guard,
        trust_loopback: bool = False,
    ) -> None:
        super().__init__(
            None,
            AdminRequest,
            timeout=_IDLE_SECONDS,
            parsePOSTFormSubmission=False,
            reactor=clock,
        )
        self.where = where
        self._token = token
        self.trusted = trusted(where, token, trust_loopback=trust_loopback)
        """Who gets a page may also change things, and see payloads."""
        self._health = health
        self._pages = pages
        self._posts = posts
        self._guard = guard
        self._streams: WeakSet[AdminChannel] = WeakSet()

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """See IProtocolFactory."""
        channel = super().buildProtocol(addr)
        channel.guard = self._guard
        channel.host, _ = address_of(addr)
        return channel

    def startFactory(self) -> None:
        """Open no access log."""

    def trust(self, admin: Admin) -> None:
        """Ask for its token from now on; not at another address.

        Streams that others may have begun end: who may look comes again.
        """
        before = self._token, self.trusted
        token = None if admin.token is None else admin.token.get_secret_value()
        self._token = token
        self.trusted = trusted(self.where, token, trust_loopback=admin.trust_loopback)
        if (self._token, self.trusted) != before:
            for channel in list(self._streams):
                cast(Any, channel.transport).abortConnection()

    def streams(self, channel: AdminChannel) -> None:
        """A page goes on writing to it."""
        channel.streaming = True
        self._streams.add(channel)

    def add(self, pages: Mapping[str, Page], posts: Mapping[str, Post]) -> None:
        """Serve these, too."""
        self._pages = {**self._pages, **pages}
        self._posts = {**self._posts, **posts}

    def answer(self, request: AdminRequest) -> Answer | Deferred[Answer] | None:
        """The response to *request*; None if its page writes it."""
        path = request.path.decode("latin-1")
        try:
            refused = self._refuse(request, path)
            if refused is None and path in self._posts:
                answer = self._posts[path](request.posted)
                if isinstance(answer, Deferred):
                    return answer.addCallback(_checked)
                return _checked(answer)
            return refused or self._page(path)(request)
        except RAISED:
            return self.failed(path, Failure())

    def failed(self, path: str, why: Failure) -> Answer:
        """Log *why*; the response to whoever asked."""
        self.log_failures.failure("{path!r} failed", why, path=path[:256])
        return _plain(500, "internal error; the daemon's log has the details", path)

    def _page(self, path: str) -> Page:
        return self._health.get(path) or self._pages[path]

    def _refuse(self, request: AdminRequest, path: str) -> Answer | None:
        """The error that *request* gets; None if it gets its page."""
        if not host_allowed(self.where, request.fields("Host")):
            return _plain(
                403, "only localhost is answered here; this Host is another name", path
            )
        if path in self._posts:
            if request.method != b"POST":
                return _plain(405, "only POST", path, Allow="POST")
        elif request.method not in (b"GET", b"HEAD"):
            return _plain(405, "only GET and HEAD", path, Allow="GET, HEAD")
        if path in self._health:
            return None
        given = request.fields("Authorization")
        if not authorized(self._token, given):
            answer = _plain(
                401,
                "send 'Authorization: Bearer TOKEN' with the value of admin.token",
                path,
                **{"WWW-Authenticate": 'Basic realm="gateway (password: admin.token)"'},
            )
            if not given:  # browsers ask first
                return answer
            wait = self._guard.wrong_token(*address_of(request.getClientAddress()))
            return replace(answer, wait=wait)
        if path in self._posts:
            return self._refuse_post(request, path)
        if path not in self._pages:
            known = " ".join(sorted({*self._health, *self._pages, *self._posts}))
            return _plain(404, f"no such page; there are {known}", path)
        return None

    def _refuse_post(self, request: AdminRequest, path: str) -> Answer | None:
        if not self.trusted:
            return _plain(403, UNTRUSTED, path)
        if not _is_json(request):
            return _plain(415, "send Content-Type: application/json", path)
        if request.too_long:
            return _plain(413, f"more than {_POST_BYTES} bytes", path)
        return None

    def takes_body(self, request: AdminRequest) -> bool:
        """Whether to keep the body of *request*, whose path is not known yet."""
        return (
            bool(self._posts)
            and self.trusted
            and _is_json(request)
            and authorized(self._token, request.fields("Authorization"))
        )


class AdminRequest(Request):
    """One request; its body is dropped unless `AdminSite.takes_body`."""

    _received = 0
    _limit = _IGNORED_BYTES

    def gotLength(self, length: int | None) -> None:
        """Reserve no memory or file, whatever length is declared."""
        self.content = self._kept = BytesIO()
        if self.channel.site.takes_body(self):  # type: ignore[attr-defined]
            self._limit = _REFUSED_POST_BYTES

    def handleContentChunk(self, data: bytes) -> None:
        """Keep or drop it; close the connection when far too much comes."""
        before, self._received = self._received, self._received + len(data)
        if before <= self._limit < self._received:  # once: closing twice raises
            self.channel.loseConnection()
        if self._limit == _REFUSED_POST_BYTES and self._received <= _POST_BYTES:
            self._kept.write(data)

    @property
    def posted(self) -> bytes:
        """The body, if it is a post's."""
        return self._kept.getvalue()

    @property
    def too_long(self) -> bool:
        """The body was longer than a post may be: `posted` is not all of it."""
        return self._received > _POST_BYTES

    def process(self) -> None:
        """Respond, without Twisted's resource tree and its Server header."""
        self.site = site = cast(AdminSite, self.channel.site)  # type: ignore[attr-defined]
        answer = site.answer(self)
        if answer is None:
            site.streams(cast(AdminChannel, self.channel))
            return
        if isinstance(answer, Answer):
            answer = succeed(answer)
        path = self.path.decode("latin-1")
        answer.addErrback(lambda why: site.failed(path, why))
        answer.addCallback(self._send_in_time, site.reactor)

    @property
    def trusted(self) -> bool:
        """Whether who asks may change things, and see payloads."""
        site: AdminSite = self.channel.site  # type: ignore[attr-defined]
        return site.trusted

    def fields(self, name: str) -> list[str]:
        """The values of a header field; bytes beyond ASCII survive as latin-1."""
        raw = self.requestHeaders.getRawHeaders(name.encode()) or []
        return [value.decode("latin-1") for value in raw]

    def _send_in_time(self, answer: Answer, clock: IReactorTime) -> None:
        """Send it after its `wait`, unless the client is gone by then."""
        if self.channel is None:
            return
        if not answer.wait:
            self.send(answer)
            return
        later = clock.callLater(answer.wait, self.send, answer)
        self.notifyFinish().addErrback(lambda _: later.cancel())

    def send(self, answer: Answer) -> None:
        """Write a whole response; HEAD gets its headers only."""
        self.setResponseCode(answer.code, RESPONSES[answer.code])
        headers = {
            "Date": datetimeToString().decode(),
            "Content-Type": answer.content_type,
            "Content-Length": str(len(answer.body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            **answer.headers,
        }
        for name, value in headers.items():
            self.setHeader(name, value)
        self.write(answer.body)
        self.finish()


def _is_json(request: AdminRequest) -> bool:
    kinds = request.fields("Content-Type")
    return len(kinds) == 1 and (
        kinds[0].partition(";")[0].strip().lower() == "application/json"
    )


def _plain(code: int, text: str, path: str, **headers: str) -> Answer:
    """A short response: JSON below /api/, a line of text elsewhere."""
    if path.startswith("/api/"):
        body = json.dumps({"error": text}).encode()
        return Answer(body, "application/json", code, headers)
    return Answer(f"{text}\n".encode(), _TEXT, code, headers)
