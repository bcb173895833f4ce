"""The live page: one HTML file, served with a strict Content-Security-Policy.

It loads nothing from elsewhere, polls `/api/status`, and computes the rates itself, so
the daemon keeps no history.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from gateway.admin.site import Answer

__all__ = ["live_page"]


@cache
def live_page() -> Answer:
    """`page.html`; a browser runs exactly its own script and style and no others."""
    html = files("gateway.admin").joinpath("page.html").read_text("utf-8")
    policy = (
        "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none';"
        f" frame-ancestors 'none'; script-src {_hash(html, 'script')};"
        f" style-src {_hash(html, 'style')}; img-src data:"
    )
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}
    return Answer(html.encode(), "text/html; charset=utf-8", headers=headers)


def _hash(html: str, element: str) -> str:
    """The policy's source for the page's only *element*."""
    [text] = re.findall(f"<{element}>(.*?)</{element}>", html, re.DOTALL)
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
