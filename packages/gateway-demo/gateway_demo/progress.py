"""A snapshot of how far the demo's events have come, as a line or as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.spoken import size
from gateway_demo import tables

if TYPE_CHECKING:
    from rich.table import Table

    from gateway_demo.processes import Processes

__all__ = ["Progress"]


class Progress:
    """Counts at one moment, *seconds* after the start.  Raises OSError without an answer."""

    def __init__(self, processes: Processes, seconds: float) -> None:
        self._seconds = seconds
        self._status = processes.status()
        self._spark_running = processes.spark_running()
        self._durable = self._status["journal"]["durable_lsn"]
        self.in_tables = tables.event_rows(processes.setup.data / "lake")
        self.sent = all(sender.status is not None for sender in processes.senders)
        """Whether all senders have ended."""

    @property
    def done(self) -> bool:
        return self.sent and self.in_tables >= self._durable

    def line(self) -> str:
        spark = "reads" if self._spark_running else "starts"
        return (
            f"{self._seconds:5.0f} s  acknowledged {self._durable:>9,}   "
            f"in {self._status['spool']['files']} spool files   "
            f"in the tables {self.in_tables:>9,}   (Spark {spark})"
        )

    def table(self) -> Table:
        """A row for each step of the way, for a terminal."""
        from rich.table import Table

        spool, archive = self._status["spool"], self._status["archive"]
        table = Table(title=f"after {self._seconds:.0f} s", title_justify="left")
        table.add_column("the way of an event")
        table.add_column("events", justify="right")
        table.add_column("")
        for one in self._status["listeners"]:
            table.add_row(
                f"received and fsynced: {one['name']}",
                f"{one['events']:,}",
                f"{size(one['bytes'])} on the wire",
            )
        table.add_row(
            "published in the spool",
            f"{spool['published_lsn']:,}",
            f"{spool['files']} files wait, {archive['files']} archived",
        )
        spark = "" if self._spark_running else "Spark is starting …"
        table.add_row("[bold]in the tables[/]", f"[bold]{self.in_tables:,}[/]", spark)
        return table
