"""Work on all streams from time to time, a little in each turn of the event loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from attrs import define
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from gateway.protocols.pravega.container import Container
from gateway.protocols.pravega.controller.grpc import Failed

_AT_ONCE = 100
"""The cost of the steps in one turn of the event loop."""


@define(eq=False, slots=False)
class Rounds:
    """Makes rounds: *steps* begins one, and each step says what it cost.

    *what* names the work in the log.  It ends when the container takes no more changes.
    *seconds* are between two rounds.
    """

    _log = Logger()

    _container: Container
    _what: str
    _steps: Callable[[], Iterator[int]]
    _seconds: float = 60.0

    def __attrs_post_init__(self) -> None:
        self._round: Iterator[int] = iter(())
        self._next: IDelayedCall | None = None
        self._told: set[str] = set()
        """Streams and segments with which it fails, as the log says."""

    def start(self) -> None:
        """Begin with the first round, after the pause between two."""
        self._next = self._container.clock.callLater(self._seconds, self._begin)

    def stop(self) -> None:
        if self._next is not None and self._next.active():
            self._next.cancel()
        self._next = None

    def _begin(self) -> None:
        self._round = self._steps()
        self._go_on()

    def _go_on(self) -> None:
        if self._container.broken:
            return
        more = False
        try:
            more = self._turn()
        except Exception:  # the next round begins anew
            self._log.failure("{what} of streams fails", what=self._what)
        finally:
            seconds, then = self._seconds, self._begin
            if more:
                seconds, then = 0.0, self._go_on
            self._next = self._container.clock.callLater(seconds, then)

    def _turn(self) -> bool:
        done = 0
        for cost in self._round:
            done += cost
            if done >= _AT_ONCE:
                return True
        return False

    @contextlib.contextmanager
    def telling(self, name: str) -> Iterator[None]:
        """Log what fails with one stream, once until it works, and go on."""
        try:
            yield
        except Failed as why:
            if name not in self._told:
                self._told.add(name)
                self._log.warn(
                    "{what} of {name}: {why}", what=self._what, name=name, why=why
                )
        except Exception:
            if name not in self._told:
                self._told.add(name)
                self._log.failure("{what} of {name} fails", what=self._what, name=name)
        else:
            self._told.discard(name)
