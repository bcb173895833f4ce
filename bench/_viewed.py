"""`twistd` that writes down what its live page costs.

    python bench/_viewed.py FILE <twistd's arguments>

FILE has the seconds of CPU that the event loop has spent so far in what only the page and
its feed need: requests to the admin port and writes to it, the feed's states, and the
samples of the last hour.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from gateway.admin.feed import Feed
from gateway.admin.http import HttpServer
from gateway.daemon.running import Running
from gateway.net.twisted_internals import AcceptedSocket


class Meter:
    """Seconds in the calls that it counts; those inside of another count once."""

    def __init__(self, where: str) -> None:
        self._file = os.open(where, os.O_WRONLY | os.O_CREAT)
        self._spent = 0.0
        self._inside = False

    def count(
        self, owner: type, name: str, counts: Callable[[Any], bool] = lambda _: True
    ) -> None:
        """Calls of this method, of objects that *counts* says yes to."""
        call = getattr(owner, name)

        def counted(self_: Any, *arguments: Any) -> Any:
            if self._inside or not counts(self_):
                return call(self_, *arguments)
            self._inside, begun = True, time.thread_time()
            try:
                return call(self_, *arguments)
            finally:
                self._inside = False
                self._spent += time.thread_time() - begun
                os.pwrite(self._file, f"{self._spent:20.9f}".encode(), 0)

        setattr(owner, name, counted)


def _is_admins(socket: AcceptedSocket) -> bool:
    origin = getattr(socket.protocol, "origin", None)
    return origin is not None and origin.listener == "admin"


if __name__ == "__main__":
    _, where, *rest = sys.argv
    meter = Meter(where)
    meter.count(Feed, "_tick")
    meter.count(Running, "_sample")
    for name in ("received", "writable", "closed"):
        meter.count(HttpServer, name)
    for name in ("doRead", "send", "doWrite"):
        # What events come by is not the page's.
        meter.count(AcceptedSocket, name, _is_admins)
    sys.argv = ["twistd", *rest]
    from twisted.scripts.twistd import run

    run()
