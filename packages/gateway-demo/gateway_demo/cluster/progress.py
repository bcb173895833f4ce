"""How far each node's events have come, and how far behind the table is, at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from gateway_demo.cluster.processes import Processes

__all__ = ["NodeProgress", "Progress"]


@dataclass(frozen=True, slots=True)
class NodeProgress:
    name: str
    running: bool
    received: int
    """The last lsn in its journal; 0 while it does not run."""
    published: int
    """The last lsn in the bucket, after which its sender is answered; 0 while it does not run."""
    in_table: int

    @property
    def lag(self) -> int:
        """Events that are received and in no table yet."""
        return max(0, self.received - self.in_table)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of all nodes, *seconds* after the senders began."""

    seconds: float
    nodes: Sequence[NodeProgress]
    workers: Mapping[str, bool]
    """Whether each worker runs, by name."""
    sent: bool
    """All senders have ended."""

    @classmethod
    def now(cls, processes: Processes, seconds: float) -> Progress:
        # Before the journals: what was sent is received, what is received is asked.
        sent = all(one.status is not None for one in processes.senders)
        in_table = processes.in_table()
        found = []
        for node in processes.setup.nodes:
            try:
                status = processes.status(node)
            except OSError:
                status = None
            found.append(
                NodeProgress(
                    node.name,
                    status is not None,
                    status["journal"]["durable_lsn"] if status else 0,
                    status["spool"]["published_lsn"] if status else 0,
                    in_table.get(node.name, 0),
                )
            )
        workers = {one.name: one.status is None for one in processes.workers}
        return cls(seconds, found, workers, sent)

    @property
    def in_tables(self) -> int:
        return sum(one.in_table for one in self.nodes)

    @property
    def received(self) -> int:
        return sum(one.received for one in self.nodes)

    @property
    def done(self) -> bool:
        return self.sent and all(one.running and not one.lag for one in self.nodes)

    def line(self) -> str:
        nodes = "   ".join(
            f"{one.name} {one.in_table:,} of {one.received:,}"
            if one.running
            else f"{one.name} is gone"
            for one in self.nodes
        )
        return f"{self.seconds:5.0f} s  in the table: {nodes}"

    def table(self) -> Table:
        """A row for each node and worker, for a terminal."""
        from rich.table import Table

        table = Table(title=f"after {self.seconds:.0f} s", title_justify="left")
        table.add_column("node")
        for name in ("received", "in the bucket", "in the table", "lag"):
            table.add_column(name, justify="right")
        for one in self.nodes:
            if one.running:
                cells = (one.received, one.published, one.in_table, one.lag)
                table.add_row(one.name, *(f"{cell:,}" for cell in cells))
            else:
                table.add_row(one.name, "[red]gone[/]", "", f"{one.in_table:,}", "")
        for name, running in self.workers.items():
            table.add_row(name, "works" if running else "[red]gone[/]")
        return table
