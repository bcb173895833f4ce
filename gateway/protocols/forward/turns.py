"""Turns of many who bring files: whose step is next.

Steps block, so they are in threads, which others need too: some at a time.  Who has had one
is behind all others who wait, however many connections they have and nodes they bring.  Of a
node one is in hand at a time: the next one would hold a thread, and wait for it there.
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


@define(eq=False)
class Turns:
    """*most* steps are in a thread at a time."""

    _in_thread: Callable[..., Deferred[Any]]
    _most: int = 4
    _waiting: dict[str, list[_Step]] = field(factory=dict, init=False)
    """Steps by who takes them; who is next comes first."""
    _nodes: set[str] = field(factory=set, init=False)
    """Nodes with a step in a thread."""

    def take(self, whom: str, node: str, do: Callable[[], Any]) -> Deferred[Any]:
        """*do* it in a thread, for *whom* (`event.client_of`), with the files of *node*,
        when that is next.
        """
        step = _Step(node, do, Deferred())
        self._waiting.setdefault(whom, []).append(step)
        self._go_on()
        return step.done

    def _go_on(self) -> None:
        while len(self._nodes) < self._most and (step := self._next()) is not None:
            self._nodes.add(step.node)
            taken = self._in_thread(step.do)
            taken.addBoth(self._ended, step)

    def _next(self) -> _Step | None:
        waiting = self._waiting
        for whom, steps in waiting.items():
            for at, step in enumerate(steps):
                if step.node not in self._nodes:
                    del steps[at], waiting[whom]
                    if steps:
                        waiting[whom] = steps  # behind all others
                    return step
        return None

    def _ended(self, result: Any, step: _Step) -> None:
        self._nodes.discard(step.node)
        self._go_on()
        step.done.callback(result)
