"""How far each edge's events have come, at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from gateway_demo.edge.processes import Processes

__all__ = ["EdgeProgress", "Progress"]


@dataclass(frozen=True, slots=True)
class EdgeProgress:
    name: str
    running: bool
    acknowledged: int
    """The last lsn that is on its disk; 0 while it does not run."""
    at_hub: int
    """The last lsn that the hub has, as the edge knows; 0 while it does not run."""
    in_tables: int
    connected: bool
    waiting: int
    """Bytes in its spool."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of all edges, *seconds* after the senders began."""

    seconds: float
    edges: Sequence[EdgeProgress]
    sent: bool
    """All senders have ended."""

    @classmethod
    def now(cls, processes: Processes, seconds: float) -> Progress:
        # Before the journals: what was sent is received, what is received is asked.
        sent = all(one.status is not None for one in processes.senders)
        in_tables = processes.in_tables()
        found = []
        for edge in processes.setup.edges:
            rows = in_tables.get(edge.name, 0)
            try:
                status = processes.status(edge)
            except OSError:
                found.append(EdgeProgress(edge.name, False, 0, 0, rows, False, 0))
                continue
            hub = status["forward"]
            found.append(
                EdgeProgress(
                    edge.name,
                    True,
                    status["journal"]["durable_lsn"],
                    hub["arrived_lsn"],
                    rows,
                    hub["connected"],
                    status["spool"]["bytes"],
                )
            )
        return cls(seconds, found, sent)

    @property
    def in_tables(self) -> int:
        return sum(one.in_tables for one in self.edges)

    @property
    def done(self) -> bool:
        return self.sent and all(
            one.running and one.at_hub == one.acknowledged <= one.in_tables
            for one in self.edges
        )

    def line(self) -> str:
        edges = "   ".join(
            f"{one.name} {one.acknowledged:,} acknowledged, {one.at_hub:,} at the hub, "
            f"{one.in_tables:,} in the tables" + ("" if one.connected else ", no line")
            if one.running
            else f"{one.name} is gone"
            for one in self.edges
        )
        return f"{self.seconds:5.0f} s  {edges}"

    def table(self) -> Table:
        """A row for each edge, for a terminal."""
        from rich.table import Table

        from gateway.spoken import size

        table = Table(title=f"after {self.seconds:.0f} s", title_justify="left")
        table.add_column("edge")
        for name in ("acknowledged", "waits here", "at the hub", "in the tables"):
            table.add_column(name, justify="right")
        table.add_column("line")
        for one in self.edges:
            if one.running:
                table.add_row(
                    one.name,
                    f"{one.acknowledged:,}",
                    size(one.waiting),
                    f"{one.at_hub:,}",
                    f"{one.in_tables:,}",
                    "" if one.connected else "[red]cut[/]",
                )
            else:
                table.add_row(one.name, "[red]gone[/]", "", "", f"{one.in_tables:,}")
        return table
