"""Losses on the way: a gateway with its disk, then one of Spark's workers.

Each when its loss hurts: the gateway while it has acknowledged events that only the bucket
has, the worker while the job has a batch in hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway_demo.cluster.processes import Processes
    from gateway_demo.cluster.progress import Progress
    from gateway_demo.nodes import Node

__all__ = ["Losses"]


@define(eq=False, slots=False)
class Losses:
    """Kills *node* and a worker, when their time has come; *say* is told.

    The node has acknowledged at least so many events by then.
    """

    _processes: Processes
    _node: Node
    _least: int
    _say: Callable[[str], None]

    def __attrs_post_init__(self) -> None:
        self.gateway = self.worker = False
        """Whether it was killed."""
        self._rows = 0

    @property
    def all(self) -> bool:
        return self.gateway and self.worker

    def look(self, progress: Progress) -> None:
        if not self.gateway:
            mine = next(one for one in progress.nodes if one.name == self._node.name)
            waiting = mine.published > mine.in_table
            if waiting and mine.published >= self._least and not progress.sent:
                self._lose_gateway(mine.published)
                self._rows = progress.in_tables
        elif not self.worker and self._batch_in_hand(progress.in_tables):
            self._lose_worker(progress.in_tables)

    def _batch_in_hand(self, rows: int) -> bool:
        """Whether the job has a batch that is not its first, or has ended one since."""
        return rows > 0 and (self._processes.job_is_busy() or rows > self._rows)

    def _lose_gateway(self, published: int) -> None:
        name = self._node.name
        self._say(
            f"kill -9 {name}, which had {published:,} events in the bucket; its disk is"
            " deleted with journal, spool and state"
        )
        self._processes.lose_gateway(self._node)
        self.gateway = True
        self._processes.start_gateway(self._node)
        self._say(f"{name} is back under its name on an empty disk; its sender goes on")

    def _lose_worker(self, rows: int) -> None:
        worker = self._processes.lose_worker()
        self.worker = True
        self._say(
            f"kill -9 {worker.name} with {rows:,} events in the table; the other one goes"
            " on alone"
        )
