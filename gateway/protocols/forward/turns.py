"""Whose step is next, of many who bring files.

Steps block, so they are in threads, which others need too: some at a time, and as many that
may ask a bucket, which may hang: no file waits for that.  Whoever has had one is behind all
others who wait, however many connections they have and nodes they bring.  Of a node one is
in hand at a time: the next one would hold a thread, and wait for it there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from attrs import define, field
from twisted.internet.defer import Deferred

__all__ = ["Turns"]


class _Step(NamedTuple):
    node: str
    do: Callable[[], Any]
    done: Deferred[Any]
    asks: bool


@define(eq=False)
class Turns:
    """*most* steps of each kind are in a thread at a time."""

    _in_thread: Callable[..., Deferred[Any]]
    _most: int = 4
    _waiting: dict[bool, dict[str, list[_Step]]] = field(init=False)
    """Those that ask, and others: by whom; who is next comes first."""
    _nodes: dict[str, bool] = field(factory=dict, init=False)
    """Whose steps are in a thread, and whether they ask."""

    def __attrs_post_init__(self) -> None:
        self._waiting = {True: {}, False: {}}

    def take(
        self, whom: str, node: str, do: Callable[[], Any], *, asks: bool = False
    ) -> Deferred[Any]:
        """*do* it in a thread, for *whom* (`event.client_of`), with the files of *node*,
        when that is next; *asks*: it may ask a bucket.
        """
        step = _Step(node, do, Deferred(), asks)
        self._waiting[asks].setdefault(whom, []).append(step)
        self._go_on()
        return step.done

    def _go_on(self) -> None:
        while (step := self._next()) is not None:
            self._nodes[step.node] = step.asks
            taken = self._in_thread(step.do)
            taken.addBoth(self._ended, step)

    def _next(self) -> _Step | None:
        kinds = [*self._nodes.values()]
        for asks, waiting in self._waiting.items():
            if kinds.count(asks) < self._most and (step := self._of(waiting)):
                return step
        return None

    def _of(self, waiting: dict[str, list[_Step]]) -> _Step | None:
        for whom, steps in waiting.items():
            for at, step in enumerate(steps):
                if step.node not in self._nodes:
                    del steps[at], waiting[whom]
                    if steps:
                        waiting[whom] = steps  # behind all others
                    return step
        return None

    def _ended(self, result: Any, step: _Step) -> None:
        del self._nodes[step.node]
        self._go_on()
        step.done.callback(result)
