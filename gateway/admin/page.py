"""The live page: HTML, CSS and JavaScript modules in `live/`, served as they are.

    index.html   the page; style.css
    main.js      listens to `/api/feed` and gives each part what it shows
    way.js       the sentence, and the six places that an event passes
    plots.js     the last hour        tables.js   tables that are sorted by their headers
    peers.js     listeners, connections, rejections      tap.js   events as they come
    words.js     numbers as people read them

There is no build step.  The page loads nothing from elsewhere, and the
Content-Security-Policy has the browser refuse whatever else somebody might get into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from gateway.admin.site import AdminRequest, Page
from gateway.sdk.protocol import Answer

__all__ = ["live_pages"]

_KINDS = {".js": "text/javascript", ".css": "text/css"}
_POLICY = (
    "default-src 'none'; connect-src 'self'; script-src 'self'; style-src 'self';"
    " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def live_pages() -> Mapping[str, Page]:
    """`/`, and what it loads from `/live/`, by path."""
    return {path: _page(answer) for path, answer in _answers().items()}


def _page(answer: Answer) -> Page:
    def page(_: AdminRequest) -> Answer:
        return answer

    return page


@cache
def _answers() -> Mapping[str, Answer]:
    found: dict[str, Answer] = {}
    for file in files("gateway.admin").joinpath("live").iterdir():
        name, body = file.name, file.read_bytes()
        if name == "index.html":
            headers = {
                "Content-Security-Policy": _POLICY,
                "Referrer-Policy": "no-referrer",
            }
            found["/"] = Answer(body, "text/html; charset=utf-8", headers=headers)
            continue
        kind = _KINDS.get(name[name.rfind(".") :])
        if kind is not None:
            found[f"/live/{name}"] = Answer(body, f"{kind}; charset=utf-8")
    return found
