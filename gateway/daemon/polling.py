"""Serves what Twisted's epoll reactor finds ready, without a log context for each event.

Twisted's own loop makes one for every read, for log calls of the old kind that do not say
who logs: six calls, a tenth of what it costs to take a small message and answer it.
Here only Twisted's `_doReadOrWrite` logs like that, of what raises, and our log
(`gateway.daemon.logs`) never writes what the context would say, `system`.
"""

from __future__ import annotations

from select import EPOLLIN
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.logger import Logger

__all__ = ["poll_plainly"]

_log = Logger()


def poll_plainly(reactor: Any) -> None:
    """Let the reactor do so, if it is one of epoll."""
    if not isinstance(reactor, EPollReactor):
        return
    own: Any = reactor

    def poll(seconds: float | None) -> None:
        ready, serve = own._selectables, own._doReadOrWrite  # noqa: SLF001
        wait = -1 if seconds is None else seconds
        for number, event in own._poller.poll(wait, len(ready)):  # noqa: SLF001
            if number in ready:  # not lost meanwhile
                try:
                    serve_one = read if event == EPOLLIN else serve
                    serve_one(ready[number], number, event)
                except Exception:
                    _log.failure("a connection could not be served")

    def read(one: Any, *_: int) -> None:
        """As Twisted's, of one that has something to read and no more."""
        try:
            why = one.doRead()
        except BaseException as error:  # as Twisted does
            _log.failure("a connection could not be read")
            why = error
        if why:
            own._disconnectSelectable(one, why, True)  # noqa: SLF001

    own.doIteration = poll
