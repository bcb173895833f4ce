"""`gateway spark`: the job that turns spool files into tables, and their upkeep."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.sdk.command import WrongUse, amount, day, positive
from gateway.sink import Ability, Kind, able, kind_of
from gateway.spark import job
from gateway.spark.commit.handover import settle
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken
from gateway.spark.commit.partition import Busy, without_job
from gateway.spark.jvm import session
from gateway.spark.jvm.java import NoJava
from gateway.spark.later import requeue
from gateway.spark.later.compact import compact
from gateway.spark.later.deletion import Asked, delete
from gateway.spark.run import orders
from gateway.spark.run.failure import Failed, lacking
from gateway.spark.source import spool_of
from gateway.store.objects import s3
from gateway.store.objects.bucket import BucketError
from gateway.store.readers.lake import INTERNAL, tables_of
from gateway.store.system.lock import Locked
from gateway.tables import QUARANTINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gateway.config import Config
    from gateway.spark.run.nodes import NodeState

HELP = """\
Turn the files of the spool into tables, each event exactly once.

Runs until SIGTERM or ^C and finishes its batch first; started again, it goes on where
it was.  Needs pyspark, and Java 17 or newer: pip install 'gateway[spark]' brings both.

  backfill  make columns of rows that are in the tables already: those that were added to
            spark.columns since, or the COLUMNs that you name, whose paths have changed;
            one that you name and have no more is taken out.  May run beside the job
  delete    take the rows of which --where is true out of the tables, their counts, archive
            and bucket for good, and write down why (--reason); --dry-run counts them.  A
            call goes on with one that was cut off.  A job that runs does it itself, between
            two batches
  columns   --suggest: look at the newest events of spool and archive, or of the PATHs (files,
            folders, tables), and print which columns spark.columns might have, as YAML, with
            type, how many events have that, and an example.  Needs no Spark
  adopt     FOLDER: of Delta and Iceberg, begin the tables with the rows of a lake of
            Parquet folders, and its ledger; no job runs meanwhile
  requeue   put through again what was set aside: files of poison/ that can be read now,
            and rows of quarantine that are JSON after all or whose flaw you accept
  settle    tell the job whether the target of your own function (spark.sink) has a batch
            of which a file can not be read any more; it stops and asks for that
  maintain  of Delta and Iceberg tables: compact them, and remove snapshots and files that
            are older than --days and no longer of a table; the job does so by itself, each
            hour (spark.compact).  May run beside it
  nodes     whose files are in the bucket (spool.directory: s3://…): what of each node is in
            the tables, what waits and for how long, and which incarnation runs
  forget    a node that left for good: once all of it is in the tables, what it has in the
            bucket is taken out
  compact   rewrite the small files of days that are over as a few large ones; the job
            does so by itself, and with the current day's (spark.compact).  May run beside it; needs no Spark

Example:
  gateway spark --config conf/gateway.yaml
  gateway spark --config conf/gateway.yaml --once    read what is there, then stop
  gateway spark backfill status level --config conf/gateway.yaml
  gateway spark columns --suggest --config conf/gateway.yaml
  gateway spark compact --config conf/gateway.yaml
  gateway spark delete --where "uid = 'ann'" --reason "request 4711" --dry-run
  gateway spark requeue --config conf/gateway.yaml --flaw oversized
  gateway spark forget gw-2 --config conf/job.yaml

Exit status: 0 stopped or all done; 1 it can not go on; 2 wrong use.
"""


#: Snapshots are kept for so long, and what a writer may still need.
_DAYS = 5.0
_LEAST_DAYS = 3.0
_LOOK_SECONDS = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", nargs="?", choices=tuple(_ACTIONS), default="run",
        help="what to do (default: run the job)")  # fmt: skip
    add("names", nargs="*", metavar="NAME",
        help="forget: which node; backfill: which columns (default: those that lack); adopt: which folder; columns: which files")  # fmt: skip
    job.add_arguments(parser)
    add("--before", metavar="DATE", type=day,
        help="compact: days before this one (default: today, UTC)")  # fmt: skip
    add("--days", metavar="N", type=amount,
        help="maintain: keep what is younger (default: 5, at least 3; Delta: at least 7)")  # fmt: skip
    add("--suggest", action="store_true", help="columns: print which there might be")
    add("--events", metavar="N", type=positive, default=100_000,
        help="columns: look at so many of the newest (default: 100000)")  # fmt: skip
    add("--flaw", metavar="NAME", action="append", default=[],
        help="requeue: rows with this flaw are fine; may be repeated")  # fmt: skip
    add("--batch", metavar="N", type=int, help="settle: the batch that the job names")
    add("--where", metavar="SQL",
        help="delete: which rows, as a condition over the columns of the tables")  # fmt: skip
    add("--reason", metavar="TEXT", help="delete: why; the audit says so each time")
    add("--table", dest="tables", action="append", default=[], metavar="NAME",
        help="backfill, delete: only rows of this one (default: of all)")  # fmt: skip
    add("--dry-run", action="store_true",
        help="delete: count by place what would go, and change nothing")  # fmt: skip
    add("--purge", action="store_true",
        help="delete: also remove what Delta and Iceberg keep of earlier versions, at once")  # fmt: skip
    known = partial(
        parser.add_mutually_exclusive_group().add_argument, action="store_true"
    )
    known("--written", help="settle: the target has it, whole")
    known("--missing", help="settle: the target has nothing of it")


def run(args: argparse.Namespace) -> int:
    if args.names and args.action not in ("adopt", "backfill", "columns", "forget"):
        raise WrongUse(f"{args.action} takes no NODE and no COLUMN: {args.names[0]}")
    settled = args.batch is not None or args.written or args.missing
    for given, named, action in (
        (args.flaw, "--flaw is", "requeue"),
        (args.days is not None, "--days is", "maintain"),
        (args.before is not None, "--before is", "compact"),
        (settled, "--batch, --written and --missing are", "settle"),
        (
            args.where or args.reason or args.dry_run or args.purge,
            "--where, --reason, --dry-run and --purge are",
            "delete",
        ),
    ):
        if given and args.action != action:
            raise WrongUse(f"{named} for {action}")
    if args.tables and args.action not in ("backfill", "delete"):
        raise WrongUse("--table is for backfill and delete")
    try:
        return _ACTIONS[args.action](args)
    except (Broken, Busy, Locked, BucketError, NoJava, Failed) as why:
        return _failed(args, why)


def _config(args: argparse.Namespace) -> Config:
    from gateway.config import load

    return load(args.config)


def _able(args: argparse.Namespace, ability: Ability) -> tuple[Config, Kind]:
    """Raises `WrongUse` where the tables are of a kind that can not do this."""
    config = _config(args)
    kind = kind_of(config.spark.sink)
    if ability not in kind.abilities:
        fitting = ", ".join(able(ability))
        raise WrongUse(f"{args.action} is for {fitting}, not {config.spark.sink}")
    return config, kind


@contextlib.contextmanager
def _session(config: Config) -> Iterator[SparkSession]:
    """Raises `Failed`, `NoJava`, and what `session.of` raises."""
    try:
        # The job beside it has a file of its own.
        spark = session.of(config, "java-command")
    except ModuleNotFoundError as why:
        raise lacking(config, why) from why
    try:
        yield spark
    finally:
        spark.stop()


def _compact(args: argparse.Namespace) -> int:
    config, _ = _able(args, "compact")
    today = datetime.now(UTC).date()
    before = min(args.before or today, today)
    for done in compact(config.data_dir / "lake", Lake(), before=before):
        counts = {"before": done.before, "after": done.after, "rows": done.rows}
        _say(args, str(done), {"folder": done.day, **counts})
    return 0


def _backfill(args: argparse.Namespace) -> int:
    config, kind = _able(args, "backfill")
    tables = _asked_tables(args, config)
    with _session(config) as spark:
        for done in kind.backfill(config, spark, Lake(), args.names, tables):
            _say(args, str(done), {"done": str(done)})
    return 0


def _columns(args: argparse.Namespace) -> int:
    from gateway.config.tables import columns_of_all
    from gateway.spark.rows import suggestion

    if not args.suggest:
        raise WrongUse("columns needs --suggest")
    config = _config(args)
    survey = suggestion.Survey(columns_of_all(config.spark))
    paths = [Path(name) for name in args.names]
    if missing := [path for path in paths if not path.exists()]:
        raise WrongUse(f"{missing[0]}: no such file or folder")
    found = list(_parquet(paths)) if paths else _newest_files(config)
    for event in suggestion.newest(found, args.events):
        survey.add(event)
    made = survey.suggestions()
    if args.json:
        events = [[*of, count] for of, count in survey.events.items()]
        columns = [
            {"name": one.name, "path": one.path, "type": one.type,
             "events": [[*of, count] for of, count in one.counts.items()],
             "remarks": one.remarks} for one in made]  # fmt: skip
        print(
            json.dumps(
                {"events": events, "columns": columns, "left_out": survey.left_out}
            )
        )
        return 0
    seen = ", ".join(
        f"{count:,} of {listener} ({protocol})"
        for (listener, protocol), count in survey.events.most_common()
    )
    print(f"# {survey.events.total():,} events with JSON objects: {seen or 'none'}")
    print("# Columns that there are, and paths that they take, are not repeated.")
    for one in made:
        print(one.line(survey.events))
    if survey.left_out:
        print(f"# {survey.left_out} paths are left out, which few events have.")
    for listener, protocol in survey.too_many:
        print(
            f"# Events of {listener} ({protocol}) have ever new keys; not all are here."
        )
    return 0


def _newest_files(config: Config) -> list[Path]:
    """Files of spool and archive; of the tables, where these are empty."""
    from gateway.audit import sinks

    spool = [spool_of(config), config.data_dir / "archive"]
    if found := list(_parquet(spool)):
        return found
    places = sinks.table_files(config.data_dir / "lake")
    return [place for place, _ in places if isinstance(place, Path)]


def _parquet(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from path.rglob("[!._]*.parquet")
        elif path.exists():
            yield path


def _adopt(args: argparse.Namespace) -> int:
    if len(args.names) != 1:
        raise WrongUse("adopt needs the FOLDER that was lake/")
    config, kind = _able(args, "adopt")
    old = Path(args.names[0])
    if not (old / INTERNAL).is_dir():
        raise WrongUse(f"{old} is no lake: it has no {INTERNAL}")
    what = "gateway spark adopt"
    # A job of before would write there, and one of now begin the tables with other rows.
    with without_job(old, what), _alone(args, config), _session(config) as spark:
        for done in kind.adopt(config, spark, Lake(), old):
            _say(args, done, {"done": done})
    return 0


def _maintain(args: argparse.Namespace) -> int:
    days = _DAYS if args.days is None else args.days
    if days < _LEAST_DAYS:
        raise WrongUse(
            f"--days: at least {_LEAST_DAYS}, so that no batch loses its files"
        )
    config, kind = _able(args, "maintain")
    with _session(config) as spark:
        for done in kind.maintain(config, spark, Lake(), days):
            _say(args, done, {"done": done})
    return 0


def _delete(args: argparse.Namespace) -> int:
    config, _ = _able(args, "expire")
    order = orders.Order(_asked(args, config), args.purge)
    if args.dry_run:
        return _delete_here(args, config, order)
    try:
        with _alone(args, config):
            return _delete_here(args, config, order)
    except Locked as why:
        return _ordered(args, config, order, str(why))


def _ordered(
    args: argparse.Namespace, config: Config, order: orders.Order, why: str
) -> int:
    """Let the job do it that has the tables; do it here once it has ended."""
    path = orders.place(config.data_dir / "lake", Lake(), order)
    text = f"{why}: it deletes between two batches, also if this command ends before"
    _say(args, text, {"ordered": text})
    while (answer := orders.answer_to(path)) is None:
        time.sleep(_LOOK_SECONDS)
        with contextlib.suppress(Locked), _alone(args, config):
            # It may have ended just after its answer.
            if (answer := orders.answer_to(path)) is None:
                orders.withdraw(path)
                return _delete_here(args, config, order)
            break
    return _answered(args, answer)


def _delete_here(args: argparse.Namespace, config: Config, order: orders.Order) -> int:
    with _session(config) as spark:
        begin = partial(delete, config, spark, Lake(), dry_run=args.dry_run)
        answer = orders.attempt(lambda one: begin(one.asked, purge=one.purge), order)
        return _answered(args, answer)


def _answered(args: argparse.Namespace, answer: orders.Answer) -> int:
    for text, data in answer.said:
        if answer.status == orders.WRONG_USE and (text, data) == answer.said[-1]:
            raise WrongUse(text)
        _say(args, text, data)
    return answer.status


def _asked(args: argparse.Namespace, config: Config) -> Asked | None:
    """The deletion to do; None: go on with an earlier one.  Raises `WrongUse`."""
    if args.where is None:
        if args.dry_run or args.reason or args.tables:
            raise WrongUse("delete needs --where: which rows")
        return None
    if not args.where.strip():
        raise WrongUse("--where: which rows? true is all of them")
    reason = (args.reason or "").strip()
    if not reason and not args.dry_run:
        raise WrongUse("--reason: say why: who looks later will want to know")
    return Asked(args.where, reason, _asked_tables(args, config))


def _asked_tables(args: argparse.Namespace, config: Config) -> tuple[str, ...]:
    """The tables of --table; none: all.  Raises `WrongUse`."""
    try:
        there = tables_of(config.data_dir / "lake")
    except ValueError as why:
        raise WrongUse(str(why)) from None
    known = there.with_all(config.spark.tables).of_events
    if strange := [name for name in args.tables if name not in known]:
        raise WrongUse(f"--table: no {strange[0]}; there is: {', '.join(known)}")
    return tuple(dict.fromkeys(args.tables))


def _alone(
    args: argparse.Namespace, config: Config
) -> contextlib.AbstractContextManager[None]:
    return without_job(config.data_dir / "lake", f"gateway spark {args.action}")


def _nodes(args: argparse.Namespace) -> int:
    if args.action == "forget" and len(args.names) != 1:
        raise WrongUse("forget needs the name of one NODE")
    # They log by Twisted, which no job needs.
    from gateway.spark.commit import closing
    from gateway.spark.run import nodes

    config = _config(args)
    bucket = s3.bucket_of(config.spool)
    if bucket is None:
        raise WrongUse(f"{args.action}: spool.directory is no bucket (s3://…)")
    lake = config.data_dir / "lake"
    ledger = closing.load(lake, Lake(), bucket)
    if args.action == "nodes":
        for one in nodes.states(bucket, ledger):
            _say(args, _told(one), asdict(one))
        return 0
    (node,) = args.names
    try:
        last = nodes.forget(
            bucket,
            ledger,
            node,
            inbox=[path.name for path in spool_of(config).glob("events-*")],
            archived=config.spool.after == "archive",
        )
    except nodes.Unknown as why:
        raise WrongUse(str(why)) from None
    except nodes.NotDrained as why:
        return _failed(args, why)
    aside = [hole for hole in ledger.holes if hole.node == node]
    events = sum(hole.last - hole.first + 1 for hole in aside)
    text = f"{node} is forgotten; its events, up to lsn {last}, are in the tables"
    if aside:
        text += (
            f", but for {events} in {len(aside)} files that could not be read:"
            f" {aside[0].file} first; they lie in {config.data_dir / 'poison'}."
            " gateway spark requeue puts through again what can be read there"
        )
    news = {"node": node, "forgotten": True, "last_lsn": last, "aside": events}
    _say(args, text, news)
    return 0


def _told(one: NodeState) -> str:
    waits = "nothing waits"
    if one.oldest is not None:
        seconds = max(0, int(datetime.now(UTC).timestamp() - one.oldest))
        waits = f"{one.events} events in {one.files} files wait, for {seconds} s"
    if one.lacking:
        waits += f"; {one.lacking} events are in no table and not in the bucket"
    served = f"incarnation {one.served_by} runs" if one.served_by else "none runs"
    return f"{one.node}: lsn {one.in_tables} in the tables; {waits}; {served}"


def _requeue(args: argparse.Namespace) -> int:
    config, disk = _config(args), Lake()
    poison, bucket = config.data_dir / "poison", s3.bucket_of(config.spool)
    moved, kept = requeue.files(poison, spool_of(config), disk, bucket)
    for name in moved:
        _say(args, f"{name}: back in the spool", {"file": name, "moved": True})
    for name, why in kept.items():
        _say(args, f"{name}: {why}", {"file": name, "moved": False, "why": why})
    if any((config.data_dir / "lake" / QUARANTINE).rglob("*.parquet")):
        with _session(config) as spark:
            done = requeue.rows(spark, config, disk, args.flaw)
        text = f"quarantine: {done.rows} rows, {done.fine} of them are events now"
        for one in done.taken_back:
            text += f"; {one} is complete again once the job has said so"
        _say(args, text, asdict(done))
    return 1 if kept else 0


def _settle(args: argparse.Namespace) -> int:
    if args.batch is None or not (args.written or args.missing):
        raise WrongUse("settle needs --batch N and one of --written, --missing")
    config = _config(args)
    lake = config.data_dir / "lake"
    try:
        with _alone(args, config):
            left = settle(
                lake, spool_of(config), Lake(), args.batch, written=args.written
            )
    except Locked as why:
        hint = "stop the job first; the gateway goes on taking events meanwhile"
        raise Locked(f"{why}: {hint}") from None
    told = (
        f"batch {args.batch} is committed"
        if args.written
        else f"batch {args.batch} comes again, without {left} events that are aside"
    )
    _say(args, told, {"batch": args.batch, "written": args.written, "aside": left})
    return 0


_ACTIONS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "run": job.start,
    "adopt": _adopt,
    "columns": _columns,
    "backfill": _backfill,
    "compact": _compact,
    "delete": _delete,
    "requeue": _requeue,
    "maintain": _maintain,
    "settle": _settle,
    "nodes": _nodes,
    "forget": _nodes,
}


def _failed(args: argparse.Namespace, why: Exception) -> int:
    _say(args, str(why), {"error": str(why)})
    return 1


def _say(args: argparse.Namespace, text: str, news: dict[str, Any]) -> None:
    print(json.dumps(news) if args.json else text, flush=True)
