"""A reactor whose turns are steps of a task, in any order that a real one might have.

What threads ask of it waits in order, calls that are due wait in order of their times,
and sockets are read and written as epoll would say, by Twisted's own code.
"""

import random
import select
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.posixbase import _DisconnectSelectableMixin, _PollLikeMixin
from twisted.internet.task import Clock

from gateway_testkit.reactor import deferred_to
from simulation.scheduler import Scheduler
from simulation.sockets import Port

__all__ = ["Reactor"]


class Reactor(Clock, _PollLikeMixin, _DisconnectSelectableMixin):  # type: ignore[misc]
    """Of one life."""

    _POLL_IN = select.POLLIN
    _POLL_OUT = select.POLLOUT
    _POLL_DISCONNECTED = select.POLLHUP | select.POLLERR

    def __init__(self, scheduler: Scheduler, chance: random.Random) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._chance = chance
        self._asked: list[tuple[Callable[..., Any], Any, Any]] = []
        self._wakeup = scheduler.condition()
        self._reads: set[int] = set()
        self._writes: set[int] = set()
        self._selectables: dict[int, Any] = {}
        self.ports: list[Port] = []

    def seconds(self) -> float:
        """Simulated, and monotonic."""
        return self._scheduler.clock()

    def callFromThread(
        self,
        callable: Callable[..., Any],  # noqa: A002 - Twisted's name for it
        *args: object,
        **kwargs: object,
    ) -> None:
        """Any task may call, and the world."""
        self._asked.append((callable, args, kwargs))
        self._wakeup.notify()

    def callLater(self, delay: float, call: Any, *args: Any, **kwargs: Any) -> Any:
        """As Twisted's."""
        self._wakeup.notify()
        return super().callLater(delay, call, *args, **kwargs)

    def in_thread(self, call: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """As `deferToThread`."""
        run, done = deferred_to(self, call, *args)
        self._scheduler.thread("worker", run).start()
        return done

    def run(self) -> None:
        """Turn for ever."""
        while True:
            while not self._turn():
                due = self.calls[0].getTime() - self.seconds() if self.calls else None
                self._scheduler.wait(self._wakeup, due)
            self._scheduler.pause(0.0)

    def _turn(self) -> bool:
        """One call, of a thread's or due, or one socket; false if there is none."""
        late = self.calls and self.calls[0].getTime() <= self.seconds()
        ready = self._ready_sockets()
        kinds = [
            turn
            for turn, able in (
                (self._call, late), (self._answer, self._asked), (self._serve, ready),
            )
            if able
        ]  # fmt: skip
        if not kinds:
            return False
        turn = kinds[0] if len(kinds) == 1 else self._chance.choice(kinds)
        turn(ready)
        return True

    def _call(self, _: object) -> None:
        call = self.calls.pop(0)
        call.called = 1
        call.func(*call.args, **call.kw)

    def _answer(self, _: object) -> None:
        asked, args, kwargs = self._asked.pop(0)
        asked(*args, **kwargs)

    # Sockets

    def _ready_sockets(self) -> list[tuple[int, int]]:
        """Descriptors that epoll would tell of, and what of each."""
        found = []
        for number, selectable in self._selectables.items():
            wanted = self._POLL_DISCONNECTED
            if number in self._reads:
                wanted |= self._POLL_IN
            if number in self._writes:
                wanted |= self._POLL_OUT
            if events := selectable.getHandle().events & wanted:
                found.append((number, events))
        return found

    def _serve(self, ready: list[tuple[int, int]]) -> None:
        number, events = ready[0] if len(ready) == 1 else self._chance.choice(ready)
        self._doReadOrWrite(self._selectables[number], number, events)

    @property
    def sockets(self) -> int:
        """How many it watches."""
        return len(self._selectables)

    def addReader(self, selectable: Any) -> None:
        """See `IReactorFDSet`."""
        self._add(selectable, self._reads)

    def addWriter(self, selectable: Any) -> None:
        """See `IReactorFDSet`."""
        self._add(selectable, self._writes)

    def removeReader(self, selectable: Any) -> None:
        """See `IReactorFDSet`."""
        self._remove(selectable, self._reads)

    def removeWriter(self, selectable: Any) -> None:
        """See `IReactorFDSet`."""
        self._remove(selectable, self._writes)

    def _add(self, selectable: Any, to: set[int]) -> None:
        number = selectable.fileno()
        to.add(number)
        self._selectables[number] = selectable
        selectable.getHandle().changed = self._wakeup.notify
        self._wakeup.notify()

    def _remove(self, selectable: Any, of: set[int]) -> None:
        number = selectable.fileno()
        of.discard(number)
        if number not in self._reads | self._writes:
            self._selectables.pop(number, None)  # epoll forgets it

    def listenTCP(self, port: object, factory: Any, **_: object) -> Port:
        """See `IReactorTCP`."""
        made = Port(self, factory, 1 + len(self.ports))
        self.ports.append(made)
        return made
