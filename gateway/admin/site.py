"""The admin port's HTTP: a few fixed paths, read-only, each answer whole.

Nothing here trusts the client: bodies are dropped unread, unknown paths, methods
and hosts get one line, a failure is logged here and is only "500" there.
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

__all__ = ["AdminSite", "Answer", "Page"]

_TEXT = "text/plain; charset=utf-8"
_IDLE = 75.0  # seconds; longer than any sane scrape interval, so connections last
_BODY_LIMIT = 64 * 1024  # bytes; nobody has a reason to send any


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response."""

    body: bytes
    content_type: str = _TEXT
    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


#: Answers GET and HEAD on one path; None means it writes and finishes by itself.
Page = Callable[["AdminRequest"], Answer | None]


class AdminSite(Site):
    """The pages, and who may see them.

    *health* pages are for anyone who can connect, *pages* for holders of the token.
    """

    log_failures = Logger()

    def __init__(
        self,
        where: Tcp | Unix,
        token: str | None,
        *,
        health: Mapping[str, Page],
        pages: Mapping[str, Page],
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

    def startFactory(self) -> None:
        """Open no access log."""

    def answer(self, request: AdminRequest) -> Answer | None:
        """What *request* gets, whatever it is."""
        path = request.path.decode("latin-1")
        try:
            return self._refuse(request, path) or self._page(path)(request)
        except Exception:
            self.log_failures.failure("GET {path!r} failed", path=path[:256])
            return _plain(500, "internal error; the daemon's log has the details", path)

    def _page(self, path: str) -> Page:
        return self._health.get(path) or self._pages[path]

    def _refuse(self, request: AdminRequest, path: str) -> Answer | None:
        """Why *request* gets no page, or None when it does."""
        if not knows(self._where, request.fields("Host")):
            return _plain(
                403, "only localhost is answered here; this Host is another name", path
            )
        if request.method not in (b"GET", b"HEAD"):
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
        if path not in self._pages:
            known = " ".join(sorted({*self._health, *self._pages}))
            return _plain(404, f"no such page; there are {known}", path)
        return None


class AdminRequest(Request):
    """One request; its body goes nowhere."""

    _swallowed = 0

    def gotLength(self, length: int | None) -> None:
        """Set no memory or file aside, whatever length is declared."""
        self.content = BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        """Drop it, and the client too when it goes on and on."""
        before, self._swallowed = self._swallowed, self._swallowed + len(data)
        if before <= _BODY_LIMIT < self._swallowed:  # once: closing twice raises
            self.channel.loseConnection()

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


def _plain(code: int, text: str, path: str, **headers: str) -> Answer:
    """A short answer: JSON where programs look, a line of text elsewhere."""
    if path.startswith("/api/"):
        body = json.dumps({"error": text}).encode()
        return Answer(body, "application/json", code, headers)
    return Answer(f"{text}\n".encode(), _TEXT, code, headers)
