"""The admin port's HTTP: a few fixed paths, each answer whole.

Nothing here trusts the client: bodies are dropped unread unless they are JSON from
who may post, unknown paths, methods and hosts get one line, a failure is logged here
and is only "500" there.  A web page elsewhere can make a browser post, but not JSON:
for that the browser asks us first, and is told no.
There is no access log: a scrape every few seconds would bury the lines that matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.web.http import RESPONSES, datetimeToString
from twisted.web.server import Request, Site

from gateway.admin.access import admits, knows
from gateway.config.endpoint import Tcp, Unix

__all__ = ["AdminSite", "Answer", "Page", "Post"]

_TEXT = "text/plain; charset=utf-8"
_IDLE = 75.0  # seconds; longer than any sane scrape interval, so connections last
_BODY_LIMIT = 64 * 1024  # bytes; for those who have no reason to send any
_POST_LIMIT = 2**20
_DROP_LIMIT = 16 * 2**20  # of a post: up to here it gets an answer


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response."""

    body: bytes
    content_type: str = _TEXT
    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


#: Answers GET and HEAD on one path; None means it writes and finishes by itself.
Page = Callable[["AdminRequest"], Answer | None]
#: Answers POST on one path, from the JSON that was posted.
Post = Callable[[bytes], Answer]


class AdminSite(Site):
    """The pages, and who may see them.

    *health* pages are for anyone who can connect, *pages* and *posts* for holders of
    the token.
    """

    log_failures = Logger()

    def __init__(
        self,
        where: Tcp | Unix,
        token: str | None,
        *,
        health: Mapping[str, Page],
        pages: Mapping[str, Page],
        posts: Mapping[str, Post],
        clock: IReactorTime,
    ) -> None:
        super().__init__(
            None,
            AdminRequest,
            timeout=_IDLE,
            parsePOSTFormSubmission=False,
            reactor=clock,
        )
        self._where = where
        self._token = token
        self._health = health
        self._pages = pages
        self._posts = posts

    def startFactory(self) -> None:
        """Open no access log."""

    def answer(self, request: AdminRequest) -> Answer | None:
        """What *request* gets, whatever it is."""
        path = request.path.decode("latin-1")
        try:
            refused = self._refuse(request, path)
            if refused is None and path in self._posts:
                return self._posts[path](request.posted)
            return refused or self._page(path)(request)
        except Exception:
            self.log_failures.failure("{path!r} failed", path=path[:256])
            return _plain(500, "internal error; the daemon's log has the details", path)

    def _page(self, path: str) -> Page:
        return self._health.get(path) or self._pages[path]

    def _refuse(self, request: AdminRequest, path: str) -> Answer | None:
        """Why *request* gets no page, or None when it does."""
        if not knows(self._where, request.fields("Host")):
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
        if not admits(self._token, request.fields("Authorization")):
            return _plain(
                401,
                "send 'Authorization: Bearer TOKEN' with the value of admin.token",
                path,
                **{"WWW-Authenticate": 'Basic realm="gateway (password: admin.token)"'},
            )
        if path in self._posts:
            return self._refuse_post(request, path)
        if path not in self._pages:
            known = " ".join(sorted({*self._health, *self._pages, *self._posts}))
            return _plain(404, f"no such page; there are {known}", path)
        return None

    def _refuse_post(self, request: AdminRequest, path: str) -> Answer | None:
        if not _is_json(request):
            return _plain(415, "send Content-Type: application/json", path)
        if request.too_much:
            return _plain(413, f"more than {_POST_LIMIT} bytes", path)
        return None

    def takes_body(self, request: AdminRequest) -> bool:
        """Whether what *request* posts is worth keeping; its path is not known yet."""
        return (
            bool(self._posts)
            and _is_json(request)
            and admits(self._token, request.fields("Authorization"))
        )


class AdminRequest(Request):
    """One request; its body goes nowhere, unless it may be a post's."""

    _swallowed = 0
    _limit = _BODY_LIMIT

    def gotLength(self, length: int | None) -> None:
        """Set no memory or file aside, whatever length is declared."""
        self.content = self._kept = BytesIO()
        if self.channel.site.takes_body(self):  # type: ignore[attr-defined]
            self._limit = _DROP_LIMIT

    def handleContentChunk(self, data: bytes) -> None:
        """Keep it or drop it, and the client too when it goes on and on."""
        before, self._swallowed = self._swallowed, self._swallowed + len(data)
        if before <= self._limit < self._swallowed:  # once: closing twice raises
            self.channel.loseConnection()
        if self._limit == _DROP_LIMIT and self._swallowed <= _POST_LIMIT:
            self._kept.write(data)

    @property
    def posted(self) -> bytes:
        """The body, if it is a post's."""
        return self._kept.getvalue()

    @property
    def too_much(self) -> bool:
        """There was more than `posted` has."""
        return self._swallowed > _POST_LIMIT

    def process(self) -> None:
        """Answer, without the resource tree and its Server header."""
        self.site = self.channel.site  # type: ignore[attr-defined]
        answer = self.site.answer(self)  # type: ignore[union-attr]
        if answer is not None:
            self.send(answer)

    def fields(self, name: str) -> list[str]:
        """The values of a header field; bytes beyond ASCII survive as latin-1."""
        raw = self.requestHeaders.getRawHeaders(name.encode()) or []
        return [value.decode("latin-1") for value in raw]

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
    """A short answer: JSON where programs look, a line of text elsewhere."""
    if path.startswith("/api/"):
        body = json.dumps({"error": text}).encode()
        return Answer(body, "application/json", code, headers)
    return Answer(f"{text}\n".encode(), _TEXT, code, headers)
