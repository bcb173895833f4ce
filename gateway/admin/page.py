"""The pages that every gateway has: health, metrics, status, and the live page.

The live page is HTML, CSS and JavaScript modules in `live/`, served as they are:

    index.html   the page; style.css
    main.js      listens to `/api/feed` and gives each part what it shows
    way.js       the sentence, and the six places that an event passes
    plots.js     the last hour        tables.js   tables that are sorted by their headers
    peers.js     listeners, connections, rejections      tap.js   events as they come
    words.js     numbers as people read them

There is no build step.  The page loads nothing from elsewhere, and the
Content-Security-Policy has the browser refuse anything that gets into it otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from gateway.admin.metrics import Metrics
from gateway.admin.site import Page, Request
from gateway.admin.status import Probe, as_json
from gateway.sdk.protocol import Answer

_KINDS = {".js": "text/javascript", ".css": "text/css"}
_POLICY = (
    "default-src 'none'; connect-src 'self'; script-src 'self'; style-src 'self';"
    " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def fixed_pages(probe: Probe, metrics: Metrics) -> dict[str, Page]:
    """The pages that every gateway has, by path."""

    def readyz(_: Request) -> Answer:
        reason = probe().not_ready_reason
        if reason is None:
            return Answer(b"ready\n")
        return Answer(f"not ready: {reason}\n".encode(), code=503)

    return {
        "/healthz": lambda _: Answer(b"ok\n"),
        "/readyz": readyz,
        **{path: _page(answer) for path, answer in _live().items()},
        "/metrics": lambda request: Answer(
            *metrics.render(",".join(request.fields(b"accept")))
        ),
        "/api/status": lambda _: Answer(as_json(probe()), "application/json"),
    }


def _page(answer: Answer) -> Page:
    return lambda _: answer


@cache
def _live() -> Mapping[str, Answer]:
    """`/`, and what it loads from `/live/`, by path."""
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
