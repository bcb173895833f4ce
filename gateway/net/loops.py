"""Periodic calls by the reactor's clock, which are stopped together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure


@define(eq=False, slots=False)
class Loops:
    """*failed* is told what has raised, and why; it is called no more, the others are."""

    _clock: Any
    _failed: Callable[[Callable[[], object], Failure], object]
    _loops: list[LoopingCall] = field(factory=list, init=False)

    def every(self, seconds: float, do: Callable[[], object]) -> None:
        """Call *do* in so many seconds for the first time."""
        loop = LoopingCall(do)
        loop.clock = self._clock
        loop.start(seconds, now=False).addErrback(lambda why: self._failed(do, why))
        self._loops.append(loop)

    def stop(self) -> None:
        """Call none of them again."""
        for loop in self._loops:
            if loop.running:  # one that raised has stopped
                loop.stop()
        self._loops.clear()
