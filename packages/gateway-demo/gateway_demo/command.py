"""`gateway demo`: the whole path on this machine, and the proof."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.sdk.command import WrongUse, positive

if TYPE_CHECKING:
    from rich.console import Console

    from gateway_demo.processes import Processes

HELP = """\
Run the whole path on this machine: senders → gateway → spool → Spark → tables, and
prove at the end that every acknowledged event is in the tables exactly once.

Needs nothing set up: certificates and configuration are made in a directory of its
own, ports are free ones on 127.0.0.1, Java comes with the package if there is none.

With --cluster: three gateways, a spool in an S3 server, a Spark of two workers, and a
table of Iceberg beside the spool.  A gateway loses its disk on the way, and a worker is
killed.  It needs: pip install 'gateway-demo[cluster]'

With --edge: two small gateways without Spark forward to a hub, which has the tables.
The line of one is cut for a while, and the other is killed.

Example:
  gateway demo
  gateway demo --events 500000 --rate 20000 --directory /tmp/demo
  gateway demo --cluster
  gateway demo --edge

Exit status: 0 complete; 1 something is missing or failed; 2 wrong use.
"""

_DRAIN_SECONDS = 240.0
_PUSH_SECONDS = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--directory", type=Path, default=Path("demo-data"), metavar="DIR",
        help="where everything goes (default: demo-data; an earlier demo's is replaced)",
    )  # fmt: skip
    parser.add_argument(
        "--events", type=positive, default=20_000, metavar="N",
        help="how many each sender sends (default: 20000)",
    )  # fmt: skip
    parser.add_argument(
        "--rate", type=positive, default=1_000, metavar="R",
        help="events a second of each sender (default: 1000)",
    )  # fmt: skip
    _add_kinds(parser)


def _add_kinds(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--cluster", action="store_true",
        help="many gateways, one table: on object storage and a cluster",
    )  # fmt: skip
    kinds.add_argument(
        "--edge", action="store_true",
        help="two edges forward to a hub, over a line that is cut",
    )  # fmt: skip
    parser.add_argument(
        "--jars", type=Path, metavar="DIR",
        help="with --cluster: Spark's jars, instead of those of Maven Central",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from gateway_demo.processes import Failed
    from gateway_demo.setup import NotADemo

    if args.jars is not None:
        if not args.cluster:
            raise WrongUse("--jars is for --cluster")
        if not args.jars.is_dir():
            raise WrongUse(f"--jars {args.jars}: no such directory")
    if args.cluster:
        demo = _cluster
    elif importlib.util.find_spec("pyspark") is None:
        raise WrongUse("the demo needs Spark: pip install 'gateway[spark]'")
    else:
        demo = _edge if args.edge else _one_machine
    console = _console()
    try:
        return 0 if demo(args, console) else 1
    except NotADemo as why:
        raise WrongUse(str(why)) from None
    except (Failed, OSError) as why:
        console.print(f"[bold red]The demo failed:[/] {why}", highlight=False)
        return 1


def _one_machine(args: argparse.Namespace, console: Console) -> bool:
    from gateway_demo.follow import follow
    from gateway_demo.processes import Processes
    from gateway_demo.progress import Progress
    from gateway_demo.report import report
    from gateway_demo.setup import prepare

    setup = prepare(args.directory.absolute())
    with Processes(setup).running() as processes:
        _start(processes, args.events, args.rate, console)
        follow(
            processes,
            lambda seconds: Progress(processes, seconds),
            console,
            patience=_DRAIN_SECONDS,
            log=setup.directory / "spark.log",
        )
        _show_tapped(processes, console)
        _show_pushes(processes, console)
        return report(processes, console)


def _edge(args: argparse.Namespace, console: Console) -> bool:
    from gateway_demo.edge.run import run

    return run(args.directory.absolute(), args.events, args.rate, console)


def _cluster(args: argparse.Namespace, console: Console) -> bool:
    from gateway_demo.cluster import needs
    from gateway_demo.cluster.run import run

    try:
        needs.check()
    except needs.Missing as why:
        raise WrongUse(str(why)) from None
    directory = args.directory.absolute()
    return run(directory, args.events, args.rate, args.jars, console)


def _console() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() else 100
    return Console(width=width, highlight=False)


def _start(processes: Processes, events: int, rate: int, console: Console) -> None:
    console.rule("[bold]gateway demo")
    console.print(f"Everything goes to {processes.setup.directory}")
    processes.start_daemon()
    for one in processes.status()["listeners"]:
        console.print(f"  {one['name']:<10} {one['protocol']} on {one['address']}")
    console.print(f"  live page  http://{processes.setup.admin}/")
    processes.start_spark()
    console.print("Spark starts (10 to 30 seconds); the senders do not wait for it …")
    processes.start_senders(events, rate)


def _show_tapped(processes: Processes, console: Console) -> None:
    """The events that `gateway tap` has shown meanwhile."""
    for event in processes.tapped():
        reading = event["payload"]
        console.print(
            f"  gateway tap shows: lsn {event['lsn']} in {event['channel']}: "
            f"{reading['sensor']} is at {reading['celsius']} °C",
            markup=False,
        )


def _show_pushes(processes: Processes, console: Console) -> None:
    """The scores that Spark has computed and the players have received."""
    end = time.monotonic() + _PUSH_SECONDS
    while not processes.pushes() and time.monotonic() < end:
        processes.check()
        time.sleep(0.2)
    found = processes.pushes()
    for push in {each["player"]: each for each in found}.values():
        console.print(
            f"  Spark says: player {push['player']} scored {push['score']} points "
            f"in the 5 s from {push['from']}   (pushed over "
            f"{'WebSocket' if push['websocket'] else 'TCP'})"
        )
    if not found:
        console.print("[yellow]  No score has come back in time; see spark.log[/]")
