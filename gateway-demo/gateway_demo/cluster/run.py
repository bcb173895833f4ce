"""The demo of a cluster from its start to its proof."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from gateway_demo.cluster.losses import Losses
from gateway_demo.cluster.processes import Processes
from gateway_demo.cluster.progress import Progress
from gateway_demo.cluster.report import report
from gateway_demo.cluster.setup import prepare
from gateway_demo.processes import Failed

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["run"]

_DRAIN_SECONDS = 600.0
"""Without a row more, after everything was sent."""
_LINES_SECONDS = 5.0
_LOOK = 0.3


def run(
    directory: Path, events: int, rate: int, jars: Path | None, console: Console
) -> bool:
    """Whether every acknowledged event is in the table at the end.

    Raises `processes.Failed`, `demo.setup.NotADemo`, OSError.
    """
    setup = prepare(directory, jars)
    with Processes(setup).running() as processes:
        _start(processes, console)
        processes.start_senders(events, rate)
        losses = Losses(
            processes,
            setup.nodes[1],
            events // 4,
            lambda text: console.print(f"[bold yellow]{text}[/]"),
        )
        _follow(processes, losses, console)
        return report(processes, console)


def _start(processes: Processes, console: Console) -> None:
    setup = processes.setup
    console.rule("[bold]gateway demo --cluster")
    console.print(f"Everything goes to {setup.directory}")
    processes.start_server()
    console.print(f"  S3 server       {setup.server.url}")
    console.print(f"  Iceberg catalog {setup.server.catalog}")
    for node in setup.nodes:
        processes.start_gateway(node)
        console.print(f"  {node.name:<15} live page http://{node.admin}/")
    processes.start_cluster()
    workers = ", ".join(one.name for one in processes.workers)
    console.print(f"  Spark           spark://127.0.0.1:{setup.master}: {workers}")
    console.print(
        "The Spark job starts (half a minute; the first time it fetches 66 MB of jars) …"
    )
    processes.start_job()


def _follow(processes: Processes, losses: Losses, console: Console) -> None:
    """Show the progress, with its losses, until all is in the table."""
    from rich.live import Live

    begun = said = moved = time.monotonic()
    rows = 0
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            processes.check()
            now = time.monotonic()
            progress = Progress.now(processes, now - begun)
            if console.is_terminal:
                live.update(progress.table())
            elif now - said >= _LINES_SECONDS:
                said = now
                console.print(progress.line())
            losses.look(progress)
            if progress.done and losses.all and not processes.job_is_busy():
                break
            if progress.in_table != rows or not progress.sent:
                rows, moved = progress.in_table, now
            elif now - moved > _DRAIN_SECONDS or (progress.done and not losses.all):
                raise Failed(_stuck(progress, losses, processes))
            time.sleep(_LOOK)
    console.print(progress.table())


def _stuck(progress: Progress, losses: Losses, processes: Processes) -> str:
    if progress.done and not losses.all:
        return (
            "everything was in the table before anything could be killed; send more:"
            " --events"
        )
    assert processes.job is not None
    return f"the table does not catch up; see {processes.job.log}"
