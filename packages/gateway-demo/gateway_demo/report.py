"""The demo's final report: row counts, the audit, where everything is, what to try."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from gateway.audit import audit
from gateway.audit.acknowledged import search
from gateway.store.directories import Directories
from gateway_demo import tables, traffic

if TYPE_CHECKING:
    from rich.console import Console

    from gateway_demo.processes import Processes, Sender
    from gateway_demo.setup import Setup

__all__ = ["report", "show_senders"]


def report(processes: Processes, console: Console) -> bool:
    """Stop daemon and Spark job, and compare what was sent with what is in the tables.

    True if every acknowledged event is in the tables exactly once.  Raises
    `processes.Failed` if a sender failed.
    """
    acknowledged = show_senders(processes.senders, console)
    assert processes.daemon is not None
    assert processes.spark is not None
    processes.daemon.stop()
    processes.spark.stop()
    setup = processes.setup
    _show_tables(setup.data / "lake", console)
    _show_traffic(setup, console)
    complete = _prove(setup, acknowledged, processes.acknowledged_ids(), console)
    _show_places(setup, console)
    return complete


def show_senders(
    senders: Iterable[Sender], console: Console, *, again: bool = False
) -> int:
    """The acknowledged events; *again*: and resent ones.  Raises `Failed` if a sender did."""
    acknowledged = 0
    for sender in senders:
        totals = sender.totals()
        acknowledged += totals["acknowledged"]
        console.print(
            f"  {sender.name:<26} sent {totals['sent']:>8,}   "
            f"acknowledged {totals['acknowledged']:>8,}"
            + (f"   again {totals['resent']:>6,}" if again else "")
        )
    return acknowledged


def _show_tables(lake: Path, console: Console) -> None:
    console.rule("[bold]what is there now")
    for table, listener, number in tables.rows_by_listener(lake):
        console.print(f"  lake/{table:<11} {listener:<10} {number:>9,} rows")
    for row in tables.sample(lake):
        console.print(
            f"  lsn {row['lsn']}  {row['event_time']:%H:%M:%S}  {row['host']}  "
            f"{row['message']}"[:96],
            markup=False,
        )


def _show_traffic(setup: Setup, console: Console) -> None:
    """Two questions to the tables, answered; the second as a picture."""
    lake, picture = setup.data / "lake", setup.directory / "traffic.svg"
    console.rule("[bold]who talks most, and how often it fails")
    for one in traffic.talkers(lake):
        console.print(
            f"  {one.host or '?':<20} {one.requests:>9,} requests   "
            f"{one.errors / one.requests:>6.1%} errors"
        )
    found = traffic.traffic(lake)
    if found is None:
        return
    try:
        traffic.draw(found, picture)
    except ImportError:
        console.print("  No picture: pip install matplotlib")
    else:
        console.print(f"  over time: {picture}", soft_wrap=True)


def _prove(
    setup: Setup, acknowledged: int, ids: Sequence[str], console: Console
) -> bool:
    places = Directories.under(setup.data)
    audited = audit(places)
    found = search(places, ids, {})
    count = tables.event_rows(setup.data / "lake")
    console.rule("[bold]the proof")
    console.print(f"  acknowledged, say the senders   {acknowledged:>9,}")
    console.print(f"  rows in the tables              {count:>9,}")
    console.print(f"  ids that the senders noted      {found.ids:>9,}")
    console.print(
        f"  of them in the tables           {found.ids - len(found.missing):>9,}"
    )
    fine = audited.complete and count == acknowledged == audited.events == found.ids
    fine = fine and not (found.missing or found.resent)
    if fine:
        console.print(
            f"[bold green]complete: {audited.events:,} events, each exactly once[/]"
        )
    else:
        console.print(
            f"[bold red]INCOMPLETE[/]: the audit counts {audited.events:,} "
            f"acknowledged; see gateway audit --config {quote(str(setup.config))} "
            f"--acknowledged {quote(str(setup.directory))}/*.acked"
        )
    return fine


def _show_places(setup: Setup, console: Console) -> None:
    logs = setup.directory
    console.rule("[bold]where everything is")
    console.print(f"  configuration  {setup.config}")
    console.print(f"  tables         {setup.data / 'lake'}/events, stats, quarantine")
    console.print(f"  logs           {logs / 'gateway.log'}, {logs / 'spark.log'}")
    console.print("What to try next:")
    program = "gateway"
    if sys.argv[0].endswith("__main__.py"):
        program = f"{quote(sys.executable)} -m gateway.cli"
    elif "/" in sys.argv[0]:
        program = quote(sys.argv[0])
    for what, command in _next_steps(setup, program):
        console.print(f"  {what}:", style="bold")
        console.print(f"    {command}", markup=False, soft_wrap=True)


def _next_steps(setup: Setup, program: str) -> Sequence[tuple[str, str]]:
    """Next steps for a user who wants to look further: what, and a shell command."""
    config, lake = quote(str(setup.config)), setup.data / "lake/events"
    bin_ = quote(str(Path(sys.executable).parent))
    query = (
        "import pyarrow.dataset as d; "
        f"t = d.dataset('{lake}', partitioning='hive').to_table(columns=['listener']); "
        "print(t.group_by('listener').aggregate([([], 'count_all')]).to_pylist())"
    )
    sql = (
        "from pyspark.sql import SparkSession as S; "
        f"S.builder.getOrCreate().read.parquet('{lake}')"
        ".selectExpr('event_time', 'host', 'body:log.file.path').show()"
    )
    found = [
        ("look into the spool's files", f"{program} spool ls --config {config}"),
        ("prove it again", f"{program} audit --config {config}"),
        ("ask the table, without Spark", f'{bin_}/python -c "{query}"'),
        ("ask Spark", f'{bin_}/python -c "{sql}"'),
        ("run it yourself", f"{bin_}/twistd -n gateway --config {config}"),
        ("point Filebeat at it", "README.md, «Five minutes with Filebeat»"),
    ]
    # Spark from PyPI has no Java; only our job knows where to find another.
    return found if shutil.which("java") else [x for x in found if x[0] != "ask Spark"]
