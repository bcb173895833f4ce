"""The demo of a cluster from its start to its proof."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gateway_demo.cluster.losses import Losses
from gateway_demo.cluster.processes import Processes
from gateway_demo.cluster.progress import Progress
from gateway_demo.cluster.report import report
from gateway_demo.cluster.setup import prepare
from gateway_demo.follow import follow

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["run"]

_DRAIN_SECONDS = 600.0
"""Seconds without a row more, after everything was sent."""


def run(
    directory: Path, events: int, rate: int, jars: Path | None, console: Console
) -> bool:
    """Whether all acknowledged events are in the table.  Raises `Failed`, `NotADemo`, OSError."""
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
        follow(
            processes,
            lambda seconds: Progress.now(processes, seconds),
            console,
            patience=_DRAIN_SECONDS,
            log=setup.directory / "job.log",
            trouble=losses,
            busy=processes.job_is_busy,
        )
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
