"""The admin port's pages: which there are, who gets one, and what is wrong with a request.

    GET  /healthz, /readyz    for anyone who can connect
    GET  everything else      with the token, if there is one
    POST                      JSON, with the token; or of whom the configuration trusts

Nothing here trusts the client: unknown paths, methods and hosts get one line, and the
client learns no more of a failure than "500".  A web page elsewhere can make a browser
post, but not JSON: for that the browser asks us first (CORS), and gets no leave.
There is no access log: a scrape every few seconds would bury the lines that matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.access import Access
from gateway.admin.stream import EventStream
from gateway.plugins import RAISED
from gateway.sdk import http1
from gateway.sdk.interfaces import Connection
from gateway.sdk.protocol import Answer, Get, Post

UNTRUSTED = "set admin.token in the configuration and send it, or set admin.trust_loopback: true"
"""The advice to one without a token, who may look, and no more."""
POST_BYTES = 2**20
"""A body has no more."""
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request(http1.Request):
    """A request without its body."""

    trusted: bool = False
    """Whether who asks may change things, and see payloads."""


#: What a page makes of a request, now or later.
Outcome = Answer | EventStream | Deferred[Answer]
#: Answers GET and HEAD on one path.
Page = Callable[[Request], Outcome]


#: Paths below /api/ that no protocol can have: the daemon has them itself.
OWN_PATHS = frozenset(
    f"/api/{name}"
    for name in (
        "connections", "feed", "gateways", "history", "rejections", "reload", "status",
        "tap",
    )
)  # fmt: skip


def page_of(get: Get) -> Page:
    """The page of a `Get`."""

    def page(request: Request) -> Answer | Deferred[Answer]:
        answer = get(request.query)
        if isinstance(answer, Deferred):
            return answer.addCallback(_checked)
        return _checked(answer)

    return page


def _checked(answer: object) -> Answer:
    """The answer of a protocol's code; raises TypeError if it is none."""
    if not isinstance(answer, Answer):
        raise TypeError(f"it answers {answer!r}, and not a gateway.sdk.protocol.Answer")
    return answer


class Site:
    """The pages by path, and access to them."""

    _HEALTH = frozenset({"/healthz", "/readyz"})
    _log = Logger()

    def __init__(
        self, access: Access, pages: Mapping[str, Page], posts: Mapping[str, Post]
    ) -> None:
        self.access = access
        self._pages = pages
        self._posts = posts
        self.streams: dict[EventStream, Connection] = {}
        """The streams that go on."""

    def add(self, pages: Mapping[str, Page], posts: Mapping[str, Post]) -> None:
        """Serve these, too."""
        self._pages = {**self._pages, **pages}
        self._posts = {**self._posts, **posts}

    def trust(self, access: Access) -> None:
        """Ask for its token from now on.

        Streams that others may have begun end: who may look comes again.
        """
        before, self.access = self.access, access
        if (before.token, before.trusted) != (access.token, access.trusted):
            for connection in tuple(self.streams.values()):
                connection.abort()

    def is_post(self, request: Request) -> bool:
        """Whether its body is wanted."""
        return request.path in self._posts

    def refusal(self, request: Request) -> Answer | None:
        """The error that *request* gets, whatever its body; None if it gets its page."""
        path, post = request.path, self.is_post(request)
        health = path in self._HEALTH
        allowed = ("POST",) if post else ("GET", "HEAD")
        if not self.access.knows(request.fields(b"host")):
            return plain(
                403, "only localhost is answered here; this Host is another name", path
            )
        # Before all else: without it no answer tells which paths there are.
        if not (health or self.access.admits(request.fields(b"authorization"))):
            return plain(
                401,
                "send 'Authorization: Bearer TOKEN' with the value of admin.token",
                path,
                **{"WWW-Authenticate": 'Basic realm="gateway (password: admin.token)"'},
            )
        if request.method not in allowed:
            text = f"only {' and '.join(allowed)}"
            return plain(405, text, path, Allow=", ".join(allowed))
        if post:
            return self._refuse_post(request)
        if path not in self._pages:
            known = " ".join(sorted({*self._pages, *self._posts}))
            return plain(404, f"no such page; there are {known}", path)
        return None

    def _refuse_post(self, request: Request) -> Answer | None:
        path, kinds = request.path, request.fields(b"content-type")
        if not self.access.trusted:
            return plain(403, UNTRUSTED, path)
        if [kind.partition(";")[0].strip().lower() for kind in kinds] != [
            "application/json"
        ]:
            return plain(415, "send Content-Type: application/json", path)
        if any(int(size) > POST_BYTES for size in request.fields(b"content-length")):
            return plain(413, f"more than {POST_BYTES} bytes", path)
        return None

    def answer(self, request: Request, body: bytes) -> Outcome:
        """The outcome of the page of *request*, which is not refused."""
        try:
            if not self.is_post(request):
                return self._pages[request.path](request)
            answer = self._posts[request.path](body)
            if isinstance(answer, Deferred):
                return answer.addCallback(_checked)
            return _checked(answer)
        except RAISED:
            return self.failed(request, Failure())

    def failed(self, request: Request, why: Failure) -> Answer:
        """Log *why*; the response to the request."""
        self._log.failure("{path!r} failed", why, path=request.path[:256])
        text = "internal error; the daemon's log has the details"
        return plain(500, text, request.path)


def number(text: str, most: int) -> int | None:
    """The number in digits of a query, 1 to *most*; None: something else."""
    known = text.isascii() and text.isdecimal() and len(text) < 10
    return int(text) if known and 0 < int(text) <= most else None


def plain(code: int, text: str, path: str = "", **headers: str) -> Answer:
    """A short response: JSON below /api/, a line of text elsewhere."""
    if path.startswith("/api/"):
        body = json.dumps({"error": text}).encode()
        return Answer(body, "application/json", code, headers)
    return Answer(f"{text}\n".encode(), _TEXT, code, headers)
