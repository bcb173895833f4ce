"""A reactor in memory whose turns are run by the test, for code that has threads.

Time is that of `twisted.internet.task.Clock`.  What a thread asks of the reactor waits
until the test runs it, so a test waits for progress and never for seconds.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.task import Clock
from zope.interface import implementer

__all__ = ["QueuedReactor", "deferred_to"]

_TURN_SECONDS = 30  # then the thread that was waited for has died


def deferred_to(
    reactor: Any, call: Callable[..., Any], *args: Any
) -> tuple[Callable[[], None], Deferred[Any]]:
    """A function for a thread, and a Deferred that *reactor* fires with the result of *call*."""
    done: Deferred[Any] = Deferred()

    def run() -> None:
        try:
            result = call(*args)
        except Exception as why:
            reactor.callFromThread(done.errback, why)
        else:
            reactor.callFromThread(done.callback, result)

    return run, done


@implementer(IReactorFromThreads)
class QueuedReactor(Clock):
    """Runs what threads ask for in their order, when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: queue.Queue[tuple[Callable[..., Any], Any, Any]] = queue.Queue()

    def callFromThread(
        self,
        callable: Callable[..., Any],  # noqa: A002 - Twisted's name for it
        *args: object,
        **kwargs: object,
    ) -> None:
        """Any thread may call."""
        self._calls.put((callable, args, kwargs))

    def in_thread(self, call: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """Call as `twisted.internet.threads.deferToThread`, in a thread of its own."""
        run, done = deferred_to(self, call, *args)
        threading.Thread(target=run, daemon=True).start()
        return done

    @property
    def idle(self) -> bool:
        return self._calls.empty()

    def turn(self) -> None:
        """Run what is due, or wait for a thread's call.  Raises `queue.Empty` if none comes."""
        if self.calls and self.calls[0].getTime() <= self.seconds():
            self.advance(0)
            return
        call, args, kwargs = self._calls.get(timeout=_TURN_SECONDS)
        call(*args, **kwargs)

    def run(self, until: Callable[[], object]) -> None:
        while not until():
            self.turn()

    def wait(self, done: Deferred[Any]) -> None:
        """Turn until it has fired; raises what it failed with."""
        ended: list[None] = []
        failed: list[Exception] = []
        done.addCallbacks(lambda _: None, lambda why: failed.append(why.value))
        done.addBoth(ended.append)
        self.run(lambda: ended)
        for why in failed:
            raise why
