"""`gateway spark`: the job that turns spool files into tables, and their upkeep."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from gateway.cli import _spark_delete
from gateway.sdk.command import WrongUse
from gateway.sink import able, kind_of
from gateway.spark import job

if TYPE_CHECKING:
    from gateway.spark.nodes import NodeState

HELP = """\
Turn the files of the spool into tables, each event exactly once.

Runs until SIGTERM or ^C and finishes its batch first; started again, it goes on where
it was.  Needs pyspark, and Java 17 or newer: pip install 'gateway[spark]' brings both.

  backfill  make columns of rows that are in the tables already: those that were added to
            spark.columns since, or the COLUMNs that you name, whose paths have changed;
            one that you name and have no more is taken out.  May run beside the job
  delete    take the rows of which --where is true out of the tables, their counts, archive
            and bucket for good, and write down why (--reason); --dry-run counts them.  A
            call goes on with one that was cut off.  The job must not run meanwhile
  requeue   put through again what was set aside: files of poison/ that can be read now,
            and rows of quarantine that are JSON after all or whose flaw you accept
  settle    tell the job whether the target of your own function (spark.sink) has a batch
            of which a file can not be read any more; it stops and asks for that
  maintain  of Delta and Iceberg tables: compact them, and remove snapshots and files that
            are older than --days and no longer of a table; the job does so by itself, each
            hour (spark.compact).  May run beside it
  nodes     whose files are in the bucket (spool.directory: s3://…): what of each node is in
            the tables, what waits and for how long, and which gateway serves it
  forget    a node that left for good: once all of it is in the tables, its last file is
            taken out of the bucket, and no gateway may have its name again
  compact   rewrite the small files of days that are over as a few large ones; the job
            does so by itself, and with the current day's (spark.compact).  May run beside it; needs no Spark

Example:
  gateway spark --config conf/gateway.yaml
  gateway spark --config conf/gateway.yaml --once    read what is there, then stop
  gateway spark backfill status level --config conf/gateway.yaml
  gateway spark compact --config conf/gateway.yaml
  gateway spark delete --where "uid = 'ann'" --reason "request 4711" --dry-run
  gateway spark requeue --config conf/gateway.yaml --flaw oversized
  gateway spark forget gw-2 --config conf/job.yaml

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
        choices=(
            "run",
            "backfill",
            "compact",
            "delete",
            "requeue",
            "maintain",
            "settle",
            "nodes",
            "forget",
        ),
        default="run",
        help="what to do (default: run the job)",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="forget: which node; backfill: which columns (default: those that lack)",
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
    parser.add_argument(
        "--batch", metavar="N", type=int, help="settle: the batch that the job names"
    )
    _spark_delete.add_arguments(parser)
    known = parser.add_mutually_exclusive_group()
    known.add_argument(
        "--written", action="store_true", help="settle: the target has it, whole"
    )
    known.add_argument(
        "--missing", action="store_true", help="settle: the target has nothing of it"
    )


def run(args: argparse.Namespace) -> int:
    """See `gateway.cli`."""
    if args.flaw and args.action != "requeue":
        raise WrongUse("--flaw is for requeue")
    if args.days is not None and args.action != "maintain":
        raise WrongUse("--days is for maintain")
    if args.names and args.action not in ("backfill", "forget"):
        raise WrongUse(f"{args.action} takes no NODE and no COLUMN: {args.names[0]}")
    if _spark_delete.is_used(args) and args.action != "delete":
        raise WrongUse(
            "--where, --reason, --table, --dry-run and --purge are for delete"
        )
    if args.action == "delete":
        return _spark_delete.run(args, lambda text, news: _say(args, text, news))
    if args.action == "forget" and len(args.names) != 1:
        raise WrongUse("forget needs the name of one NODE")
    if args.action in ("nodes", "forget"):
        return _nodes(args)
    settled = args.batch is not None and (args.written or args.missing)
    if args.action == "settle":
        if not settled:
            raise WrongUse("settle needs --batch N and one of --written, --missing")
        return _settle(args)
    if args.batch is not None or args.written or args.missing:
        raise WrongUse("--batch, --written and --missing are for settle")
    if args.action == "requeue":
        return _requeue(args)
    if args.action == "backfill":
        return _backfill(args)
    if args.action == "maintain":
        return _maintain(args)
    if args.action == "compact":
        return _compact(args)
    if args.before is not None:
        raise WrongUse("--before is for compact")
    return job.start(args)


def _compact(args: argparse.Namespace) -> int:
    from gateway.config import load
    from gateway.spark.compact import compact
    from gateway.spark.lakedisk import Lake
    from gateway.spark.partition import Busy

    config = load(args.config)
    if "compact" not in kind_of(config.spark.sink).abilities:
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
        return _failed(args, why)
    return 0


def _backfill(args: argparse.Namespace) -> int:
    from gateway.config import load
    from gateway.spark.lakedisk import Lake
    from gateway.spark.ledger import Broken
    from gateway.spark.partition import Busy

    config = load(args.config)
    kind = kind_of(config.spark.sink)
    if "backfill" not in kind.abilities:
        fitting = ", ".join(able("backfill"))
        raise WrongUse(f"backfill is for {fitting}, not {config.spark.sink}")
    try:
        spark = job.start_session(config)
        try:
            for done in kind.backfill(config, spark, Lake(), args.names):
                _say(args, done, {"done": done})
        finally:
            spark.stop()
    except (Broken, Busy) as why:
        return _failed(args, why)
    return 0


def _maintain(args: argparse.Namespace) -> int:
    from gateway.config import load
    from gateway.spark.lakedisk import Lake
    from gateway.spark.ledger import Broken

    config = load(args.config)
    days = _DAYS if args.days is None else args.days
    if days < _LEAST_DAYS:
        raise WrongUse(
            f"--days: at least {_LEAST_DAYS}, so that no batch loses its files"
        )
    kind = kind_of(config.spark.sink)
    if "maintain" not in kind.abilities:
        fitting = " and ".join(able("maintain"))
        raise WrongUse(f"maintain is for {fitting}, not {config.spark.sink}")
    try:
        spark = job.start_session(config)
        try:
            for done in kind.maintain(config, spark, Lake(), days):
                _say(args, done, {"done": done})
        finally:
            spark.stop()
    except Broken as why:
        return _failed(args, why)
    return 0


def _nodes(args: argparse.Namespace) -> int:
    from gateway.config import load
    from gateway.spark import nodes
    from gateway.spark.lakedisk import Lake
    from gateway.spark.ledger import Broken, Ledger
    from gateway.spark.source import spool_of
    from gateway.store.bucket import BucketError
    from gateway.store.claim import REQUEST_SECONDS, Claim
    from gateway.store.lake import INTERNAL
    from gateway.store.s3 import bucket_of
    from gateway.store.word import Holder

    config = load(args.config)
    bucket = bucket_of(config.spool)
    asked = bucket_of(config.spool, REQUEST_SECONDS)
    if bucket is None or asked is None:
        raise WrongUse(f"{args.action}: spool.directory is no bucket (s3://…)")
    lake = config.data_dir / "lake"
    try:
        ledger = Ledger.load(Lake(), lake / INTERNAL / "events.json")
        if args.action == "nodes":
            for one in nodes.states(bucket, ledger):
                _say(args, _told(one), asdict(one))
            return 0
        last = nodes.forget(
            bucket,
            ledger,
            Claim(asked, args.names[0], Holder.here(lake, "")),
            inbox=[path.name for path in spool_of(config).glob("events-*")],
            archived=config.spool.after == "archive",
        )
    except nodes.Unknown as why:
        raise WrongUse(str(why)) from None
    except (Broken, BucketError, nodes.NotDrained) as why:
        return _failed(args, why)
    aside = [hole for hole in ledger.holes if hole.node == args.names[0]]
    events = sum(hole.last - hole.first + 1 for hole in aside)
    text = (
        f"{args.names[0]} is forgotten; its events, up to lsn {last}, are in the tables"
    )
    if aside:
        text += (
            f", but for {events} in {len(aside)} files that could not be read:"
            f" {aside[0].file} first; they lie in {config.data_dir / 'poison'}."
            " gateway spark requeue puts through again what can be read there"
        )
    news = {"node": args.names[0], "forgotten": True, "last_lsn": last, "aside": events}
    _say(args, text, news)
    return 0


def _told(one: NodeState) -> str:
    if one.forgotten:
        return f"{one.node}: forgotten, with lsn {one.in_tables} in the tables"
    waits = "nothing waits"
    if one.oldest is not None:
        seconds = max(0, int(datetime.now(UTC).timestamp() - one.oldest))
        waits = f"{one.events} events in {one.files} files wait, for {seconds} s"
    if one.lacking:
        waits += f"; {one.lacking} events are in no table and not in the bucket"
    served = f"served by {one.served_by}" if one.served_by else "served by nobody"
    return f"{one.node}: lsn {one.in_tables} in the tables; {waits}; {served}"


def _requeue(args: argparse.Namespace) -> int:
    from gateway.config import load
    from gateway.spark import requeue
    from gateway.spark.lakedisk import Lake
    from gateway.spark.ledger import Broken
    from gateway.spark.partition import Busy
    from gateway.spark.source import spool_of

    config = load(args.config)
    disk = Lake()
    spool = spool_of(config)
    moved, kept = requeue.files(config.data_dir / "poison", spool, disk)
    for name in moved:
        _say(args, f"{name}: back in the spool", {"file": name, "moved": True})
    for name, why in kept.items():
        _say(args, f"{name}: {why}", {"file": name, "moved": False, "why": why})
    if any((config.data_dir / "lake" / "quarantine").rglob("*.parquet")):
        spark = job.start_session(config)
        try:
            done = requeue.rows(spark, config, disk, args.flaw)
        except (Broken, Busy) as why:
            return _failed(args, why)
        finally:
            spark.stop()
        _say(
            args,
            f"quarantine: {done.rows} rows, {done.fine} of them are events now",
            asdict(done),
        )
    return 1 if kept else 0


def _settle(args: argparse.Namespace) -> int:
    from gateway.config import load
    from gateway.spark.handover import settle
    from gateway.spark.lakedisk import Lake
    from gateway.spark.ledger import Broken
    from gateway.spark.source import spool_of
    from gateway.store.lake import INTERNAL
    from gateway.store.lock import Locked, lock

    config = load(args.config)
    lake = config.data_dir / "lake"
    try:
        held = lock(lake / INTERNAL / "lock", "gateway spark settle")
    except Locked as why:
        return _failed(args, why)
    try:
        left = settle(lake, spool_of(config), Lake(), args.batch, written=args.written)
    except Broken as why:
        return _failed(args, why)
    finally:
        held.release()
    told = (
        f"batch {args.batch} is committed"
        if args.written
        else f"batch {args.batch} comes again, without {left} events that are aside"
    )
    _say(args, told, {"batch": args.batch, "written": args.written, "aside": left})
    return 0


def _failed(args: argparse.Namespace, why: Exception) -> int:
    _say(args, str(why), {"error": str(why)})
    return 1


def _say(args: argparse.Namespace, text: str, news: dict[str, Any]) -> None:
    print(json.dumps(news) if args.json else text, flush=True)
