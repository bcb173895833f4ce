"""Faults on the way: the line of one edge is cut, and the other edge is killed.

Each when it hurts: while there are more events to come, and the line stays away until the
edge has acknowledged many that the hub does not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway_demo.edge.processes import Processes
    from gateway_demo.edge.progress import EdgeProgress, Progress
    from gateway_demo.nodes import Node

__all__ = ["Faults"]


@define(eq=False, slots=False)
class Faults:
    """Cuts the line of *first* and kills *second*; *say* is told.

    Each edge has acknowledged at least so many events by then, and as many again wait when
    the line is mended.
    """

    _processes: Processes
    _first: Node
    _second: Node
    _least: int
    _say: Callable[[str], None]

    def __attrs_post_init__(self) -> None:
        self.cut = self.mended = self.killed = False
        """Whether each fault has happened."""
        self._at_hub = 0

    @property
    def all(self) -> bool:
        return self.mended and self.killed

    def look(self, progress: Progress) -> None:
        edges = {one.name: one for one in progress.edges}
        first, second = edges[self._first.name], edges[self._second.name]
        if not self.cut:
            if first.at_hub >= self._least and not progress.sent:
                self._cut(first)
        elif not self.killed and not progress.sent:
            if second.at_hub >= self._least:
                self._kill(second)
        elif not self.mended:
            waiting = first.acknowledged - self._at_hub
            if waiting >= self._least or progress.sent:
                self._mend(waiting)

    def _cut(self, edge: EdgeProgress) -> None:
        self._say(
            f"the line of {edge.name} is cut; the hub has {edge.at_hub:,} of its events"
        )
        self._processes.lines[edge.name].cut()
        self.cut, self._at_hub = True, edge.at_hub

    def _kill(self, edge: EdgeProgress) -> None:
        self._say(
            f"kill -9 {edge.name}, which has acknowledged {edge.acknowledged:,} events"
        )
        self._processes.kill(self._second)
        self.killed = True
        self._processes.start_gateway(self._second)
        self._say(f"{edge.name} is started again; its senders go on")

    def _mend(self, waiting: int) -> None:
        name = self._first.name
        self._say(
            f"the line of {name} is back; it has acknowledged {waiting:,} events meanwhile"
        )
        self._processes.lines[name].mend()
        self.mended = True
