"""The end of the demo: what pyiceberg reads, what the audit says, where everything is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gateway.audit import audit
from gateway.audit.acknowledged import search
from gateway.audit.remote import access_of
from gateway.audit.sites import Site
from gateway.config import load
from gateway.plugins import decoders
from gateway.store.directories import Directories
from gateway_demo.cluster.setup import CATALOG, TABLE, Setup
from gateway_demo.report import show_senders

if TYPE_CHECKING:
    from rich.console import Console

    from gateway_demo.cluster.processes import Processes

__all__ = ["report"]


def report(processes: Processes, console: Console) -> bool:
    """Stop gateways and job, and compare what was sent with what is in the table.

    True if every acknowledged event is in the table, and none under one lsn twice.
    Raises `processes.Failed` if a sender failed, OSError.
    """
    acknowledged = show_senders(processes.senders, console, again=True)
    for gateway in processes.gateways.values():
        gateway.stop()
    assert processes.job is not None
    processes.job.stop()
    setup = processes.setup
    rows = _show_table(setup, console)
    complete = _prove(processes, acknowledged, rows, console)
    _show_places(setup, console)
    return complete


def _show_table(setup: Setup, console: Console) -> int:
    """Read with pyiceberg, from catalog and bucket alone; how many rows there are."""
    table = setup.server.catalog_reached(CATALOG).load_table(TABLE)
    found = table.scan(selected_fields=("node", "listener")).to_arrow()
    console.rule("[bold]the table, as pyiceberg reads it: no Spark, no gateway")
    counts = found.group_by(["node", "listener"]).aggregate([([], "count_all")])
    for row in sorted(
        counts.to_pylist(), key=lambda one: (one["node"], one["listener"])
    ):
        console.print(
            f"  {row['node']:<6} {row['listener']:<10} {row['count_all']:>9,} rows"
        )
    for event in _sample(table):
        console.print(
            f"  {event['node']} lsn {event['lsn']}  {event['event_time']:%H:%M:%S}  "
            f"{event['host']}  {event['message']}"[:96],
            markup=False,
        )
    return int(found.num_rows)


def _sample(table: Any) -> Sequence[dict[str, Any]]:
    columns = ("node", "lsn", "event_time", "host", "message")
    scan = table.scan("protocol = 'lumberjack'", selected_fields=columns, limit=3)
    found: list[dict[str, Any]] = scan.to_arrow().to_pylist()
    return found


def _prove(
    processes: Processes, acknowledged: int, rows: int, console: Console
) -> bool:
    config = load(processes.setup.job)
    place = Site(
        Directories.of(config), bucket=processes.bucket, access=access_of(config)
    )
    audited = audit(place)
    found = search(place, processes.acknowledged_ids(), decoders())
    console.rule("[bold]the proof")
    for node in audited.nodes:
        console.print(
            f"  {node.node:<6} lsn 1 to {node.last:>9,}: {node.in_lake:>9,} in the table, "
            f"{node.holes.size} missing, {node.doubles.size} doubled"
        )
    console.print(f"  acknowledged, say the senders   {acknowledged:>9,}")
    console.print(f"  ids that the senders noted      {found.ids:>9,}")
    console.print(
        f"  of them in the table            {found.ids - len(found.missing):>9,}"
    )
    console.print(f"  rows in the table               {rows:>9,}")
    if found.copies:
        console.print(
            f"  {found.copies:,} of the rows came twice from their sender, which was not"
            " answered before its gateway was killed"
        )
    fine = audited.complete and not (found.missing or found.unsearched)
    fine = fine and all(node.in_lake == node.events for node in audited.nodes)
    fine = fine and audited.events == rows == found.ids + found.copies
    fine = fine and found.ids == acknowledged
    if fine:
        console.print(
            f"[bold green]complete: {audited.events:,} events of {len(audited.nodes)} "
            "nodes, each exactly once[/]"
        )
    else:
        console.print(
            f"[bold red]INCOMPLETE[/]: the audit counts {audited.events:,} events; see "
            f"{processes.setup.directory}"
        )
    return fine


def _show_places(setup: Setup, console: Console) -> None:
    console.rule("[bold]where everything is")
    names = ", ".join(node.config.name for node in setup.nodes)
    console.print(f"  configurations  {names}, {setup.job.name} in {setup.directory}")
    console.print(f"  the S3 server   {setup.storage}, which keeps spool and table")
    console.print(f"  logs            {setup.directory}/*.log")
    console.print(
        "docs/spark.md, «On a cluster», has the same for more than one machine."
    )
