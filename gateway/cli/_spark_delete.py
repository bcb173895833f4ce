"""`gateway spark delete`: take events out of the tables, and wherever else they are."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from gateway.sdk.command import WrongUse
from gateway.sink import able, kind_of
from gateway.spark import job

__all__ = ["add_arguments", "run"]

Say = Callable[[str, dict[str, Any]], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe its part of the command line."""
    parser.add_argument(
        "--where",
        metavar="SQL",
        help="delete: which rows, as a condition over the columns of the tables",
    )
    parser.add_argument(
        "--reason", metavar="TEXT", help="delete: why; the audit says so each time"
    )
    parser.add_argument(
        "--table",
        dest="tables",
        choices=("events", "quarantine"),
        action="append",
        default=[],
        help="delete: only rows of this one (default: of both)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="delete: count by place what would go, and change nothing",
    )
    parser.add_argument(
        "--purge",
        action="store_true",
        help="delete: also remove what Delta and Iceberg keep of earlier versions, at once",
    )


def is_used(args: argparse.Namespace) -> bool:
    """Whether an argument of it was given."""
    given = args.where, args.reason, args.tables, args.dry_run, args.purge
    return any(given)


def run(args: argparse.Namespace, say: Say) -> int:
    """Do it; 0, or 1 where it can not be now.  Raises `WrongUse`."""
    from gateway.config import load
    from gateway.spark.deletion import Asked
    from gateway.store.lake import INTERNAL
    from gateway.store.lock import Locked, lock

    config = load(args.config)
    if "expire" not in kind_of(config.spark.sink).abilities:
        fitting = ", ".join(able("expire"))
        raise WrongUse(f"delete is for {fitting}, not {config.spark.sink}")
    asked = None
    if args.where is not None:
        if not args.where.strip():
            raise WrongUse("--where: which rows? true is all of them")
        if not (args.reason or "").strip() and not args.dry_run:
            raise WrongUse("--reason: say why: who looks later will want to know")
        tables = tuple(dict.fromkeys(args.tables)) or ("events", "quarantine")
        asked = Asked(args.where, (args.reason or "").strip(), tables)
    elif args.dry_run or args.reason or args.tables:
        raise WrongUse("delete needs --where: which rows")
    if args.dry_run:
        return _delete(args, config, asked, say)
    internal = config.data_dir / "lake" / INTERNAL
    try:
        held = lock(internal / "lock", "gateway spark delete")
    except Locked as why:
        text = f"{why}: stop the job first; the gateway goes on taking events meanwhile"
        say(text, {"error": text})
        return 1
    try:
        return _delete(args, config, asked, say)
    finally:
        held.release()


def _delete(args: argparse.Namespace, config: Any, asked: Any, say: Say) -> int:
    from pyspark.errors import AnalysisException, ParseException

    from gateway.spark.deletion import delete
    from gateway.spark.lakedisk import Lake
    from gateway.spark.ledger import Broken
    from gateway.spark.partition import Busy

    spark = job.start_session(config)
    try:
        for text, data in delete(
            config, spark, Lake(), asked, dry_run=args.dry_run, purge=args.purge
        ):
            say(text, data)
    except (AnalysisException, ParseException) as why:
        raise WrongUse(f"--where: {str(why).strip().splitlines()[0]}") from None
    except (Broken, Busy, OSError, ValueError) as why:
        say(str(why), {"error": str(why)})
        return 1
    finally:
        spark.stop()
    return 0
