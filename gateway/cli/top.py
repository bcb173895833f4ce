"""`gateway top`: a running gateway in the terminal, as it changes."""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from gateway.cli import _admin
from gateway.sdk.command import WrongUse

HELP = """\
Watch a running gateway: the sentence that says how it is and what to do, where events
stand, rates, latencies, backlog, listeners, and whom it rejected lately.  It shows what
the live page shows, and asks for the same token.

Keys: q quits; p stops the picture, and lets it go on.

Example:
  gateway top
  gateway top --config /etc/gateway/gateway.yaml
  gateway top --address gw.example:8080 --token-file token

Exit status: 0 you quit; 2 wrong use.  For programs: gateway status --json
"""

_PAUSE_SECONDS = 1.0
_LOOK_SECONDS = 0.1
_News = tuple[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _admin.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    port = _admin.admin_port(args)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise WrongUse("top is for a terminal; elsewhere say gateway status")
    news: queue.SimpleQueue[_News] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(port, news), daemon=True).start()
    _show(port.address, news)
    return 0


def _listen(port: _admin.AdminPort, news: queue.SimpleQueue[_News]) -> None:
    """Put all that the gateway tells into *news*; connect again whenever it ends."""
    while True:
        try:
            for each in port.feed():
                news.put(each)
        except _admin.Unreachable as why:
            news.put(("trouble", str(why)))
        time.sleep(_PAUSE_SECONDS)


def _show(address: str, news: queue.SimpleQueue[_News]) -> None:
    from rich.console import Console
    from rich.live import Live

    from gateway.cli._view import View

    view = View(address)
    screen = Live(view, console=Console(), screen=True, auto_refresh=False)
    shown_size = None
    with _keys() as pressed, screen:
        while True:
            size = os.get_terminal_size(sys.stdout.fileno())
            key = pressed()
            if key in ("q", "Q", "\x03"):
                return
            if key in ("p", "P"):
                view.stopped = not view.stopped
            if _take(view, news) or key or size != shown_size:
                shown_size = size
                screen.refresh()


def _take(view: Any, news: queue.SimpleQueue[_News]) -> bool:
    """Take all news; return whether the view has changed."""
    changed = False
    while True:
        try:
            kind, data = news.get_nowait()
        except queue.Empty:
            return changed
        if view.stopped:
            continue
        if kind == "trouble":
            view.trouble = data
        else:
            view.heard(kind, data, time.monotonic())
        changed = True


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """A function that waits a little for a key, or an empty text; restores the terminal."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed() -> str:
        if not select.select([descriptor], [], [], _LOOK_SECONDS)[0]:
            return ""
        return os.read(descriptor, 1).decode(errors="replace") or "q"

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
