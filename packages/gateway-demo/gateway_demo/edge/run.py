"""The demo of edges from its start to its proof."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.spoken import size
from gateway_demo import tables
from gateway_demo.edge.faults import Faults
from gateway_demo.edge.processes import Processes
from gateway_demo.edge.progress import Progress
from gateway_demo.edge.setup import prepare
from gateway_demo.follow import follow
from gateway_demo.report import show_senders

if TYPE_CHECKING:
    from rich.console import Console

    from gateway_demo.edge.setup import Setup

__all__ = ["run"]

_DRAIN_SECONDS = 240.0
"""Seconds without a row more, after everything was sent."""


def run(directory: Path, events: int, rate: int, console: Console) -> bool:
    """Whether all acknowledged events are in the hub's tables.  Raises `Failed`, `NotADemo`, OSError."""
    setup = prepare(directory)
    with Processes(setup).running() as processes:
        _start(processes, console)
        processes.start_senders(events, rate)
        first, second = setup.edges
        faults = Faults(
            processes,
            first,
            second,
            events // 4,
            lambda text: console.print(f"[bold yellow]{text}[/]"),
        )
        follow(
            processes,
            lambda seconds: Progress.now(processes, seconds),
            console,
            patience=_DRAIN_SECONDS,
            log=setup.directory / "spark.log",
            trouble=faults,
        )
        complete = _prove(processes, console)
    _show_places(setup, console)
    return complete


def _start(processes: Processes, console: Console) -> None:
    setup = processes.setup
    console.rule("[bold]gateway demo --edge")
    console.print(f"Everything goes to {setup.directory}")
    console.print("The hub's Spark job starts (10 to 30 seconds) …")
    processes.start()
    console.print(f"  {setup.hub.name:<8} live page http://{setup.hub.admin}/")
    for node in setup.edges:
        to = f"forwards to https://localhost:{setup.lines[node.name]}"
        console.print(f"  {node.name:<8} live page http://{node.admin}/, {to}")


def _prove(processes: Processes, console: Console) -> bool:
    """Ask the command that anybody would, while all gateways run."""
    setup = processes.setup
    console.rule("[bold]the proof")
    acknowledged = show_senders(processes.senders, console, again=True)
    for edge in setup.edges:
        carried = size(processes.lines[edge.name].carried)
        console.print(f"  {carried} went over the line of {edge.name}")
    rows = tables.event_rows(setup.hub.data / "lake")
    console.print(f"  rows in the hub's tables {rows:>9,}")
    noted = [str(sender.acknowledged_ids) for sender in processes.senders]
    words = ["audit", "--config", str(setup.hub.config)]
    for edge in setup.edges:
        words += ["--gateway", edge.admin]
    for each in noted:
        words += ["--acknowledged", each]
    console.print(f"$ gateway {shlex.join(words)}", markup=False, soft_wrap=True)
    done = subprocess.run(
        [sys.executable, "-m", "gateway.cli", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    console.print(done.stdout + done.stderr, markup=False, soft_wrap=True)
    ids = len(set(processes.acknowledged_ids()))
    if done.returncode == 0 and ids == acknowledged:
        console.print(
            f"[bold green]complete: {acknowledged:,} events that {len(setup.edges)} edges "
            "acknowledged are in the hub's tables, none is missing or doubled[/]"
        )
        return True
    console.print(
        f"[bold red]INCOMPLETE[/]: {acknowledged:,} events were acknowledged, {ids:,} ids "
        f"noted; see {setup.directory}"
    )
    return False


def _show_places(setup: Setup, console: Console) -> None:
    console.rule("[bold]where everything is")
    names = ", ".join(node.config.name for node in (setup.hub, *setup.edges))
    console.print(f"  configurations  {names} in {setup.directory}")
    console.print(f"  tables          {setup.hub.data / 'lake'}/events")
    console.print(f"  logs            {setup.directory}/*.log")
    console.print("docs/edge.md has the same for more than one machine.")
