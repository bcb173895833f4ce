"""`gateway table`: the newest rows of a table; waits for the Spark job's first batch."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gateway.cli import _data_dir
from gateway.sdk.command import WrongUse, positive, printable
from gateway.spoken import duration

__all__ = ["HELP", "add_arguments", "run"]

HELP = """\
Show the newest rows of a table that the Spark job writes.  As long as there are none,
wait for its first batch, and say what is missing.

  events      what came; body has each event's JSON as it was sent
  stats       how many events came, by minute, protocol, listener and channel; its rows
              are written together with those of events
  quarantine  what was stored although something is wrong with it; column flaw says what

Spark, DuckDB, Polars, pandas and pyarrow read the same files: docs/spark.md.

Example:
  gateway table --config conf/demo.yaml
  gateway table stats --config conf/demo.yaml
  gateway table -n 1000 --json --columns lsn,body | jq .body

Exit status: 0 shown; 2 wrong use, or no gateway has run there.
"""

_LOOK_SECONDS = 0.5
_DEFAULT = {
    "events": ("event_time", "protocol", "listener", "host", "message"),
    "stats": ("window_start", "protocol", "listener", "channel", "events", "flawed"),
    "quarantine": ("event_time", "protocol", "listener", "peer", "flaw"),
}
_ORDER = ("received_at", "window_start", "node", "lsn")
_WIDTH = 120
Row = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `gateway.cli`."""
    parser.add_argument(
        "name", nargs="?", choices=tuple(_DEFAULT), default="events",
        help="which table (default: events)",
    )  # fmt: skip
    _data_dir.add_arguments(parser)
    add = parser.add_argument
    add("-n", "--rows", type=positive, default=10, metavar="N",
        help="how many, the newest last (default: 10)")  # fmt: skip
    add("--columns", metavar="A,B", help="these; `all` are all that there are")
    add("--no-wait", action="store_true", help="if there are none yet, show none")
    add("--json", action="store_true", help="a JSON object a line, for programs")


def run(args: argparse.Namespace) -> int:
    """See `gateway.cli`."""
    lake = _data_dir.places(args).lake
    _check_sink(lake, args.name)
    if not args.no_wait:
        _wait(lake, args.name, time.sleep)
    rows = newest(lake / args.name, args.rows)
    columns = _columns(args, rows)
    if args.json:
        for row in rows:
            print(json.dumps({name: row.get(name) for name in columns}, default=_plain))
    elif rows:
        _print(rows, columns)
    else:
        print(f"no rows in {lake / args.name}", file=sys.stderr)
    return 0


def _check_sink(lake: Path, name: str) -> None:
    """Raise `WrongUse` unless its tables are folders of Parquet."""
    from gateway.sink import kind_of
    from gateway.store.lake import sink_of

    try:
        sink = sink_of(lake)
        if sink is None or "folders" in kind_of(sink["sink"]).abilities:
            return
    except (ValueError, OSError):
        return  # the job says what is wrong with it
    raise WrongUse(
        f"{lake / name} is no folder of Parquet: spark.sink is {sink['sink']}, and"
        f" {sink.get('table', 'that')} has the rows"
    )


def newest(table: Path, most: int) -> list[Row]:
    """Up to so many of its newest rows, oldest first, in the files written last.

    Each file gives its last rows only, so that a large one costs little.
    """
    rows: list[Row] = []
    for path in sorted(files(table), key=_written, reverse=True):
        try:
            rows += _last_rows(table, path, most)
        except FileNotFoundError:  # compacted meanwhile: newer files have its rows
            continue
        if len(rows) >= most:
            break
    rows.sort(key=lambda row: [row[name] for name in _ORDER if name in row])
    return rows[-most:]


def files(table: Path) -> Iterator[Path]:
    """Its data files; what is hidden is not there yet."""
    for path in table.glob("protocol=*/date=*/*.parquet"):
        if not path.name.startswith((".", "_")):
            yield path


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _last_rows(table: Path, path: Path, most: int) -> list[Row]:
    import pyarrow.parquet as pq

    partitions = dict(
        part.split("=", 1) for part in path.parent.relative_to(table).parts
    )
    rows: list[Row] = []
    with pq.ParquetFile(path) as file:
        for group in reversed(range(file.num_row_groups)):
            read = file.read_row_group(group)
            rows[:0] = read.slice(max(0, len(read) - most)).to_pylist()
            if len(rows) >= most:
                break
    return [{**row, **partitions} for row in rows[-most:]]


def _columns(args: argparse.Namespace, rows: Sequence[Row]) -> list[str]:
    known = list(dict.fromkeys(name for row in rows for name in row))
    if args.columns is None:
        return [name for name in _DEFAULT[args.name] if name in known]
    if args.columns == "all":
        return known
    wanted = str(args.columns).split(",")
    strange = [name for name in wanted if name not in known]
    if strange and rows:
        raise WrongUse(f"no column {strange[0]!r}; there is: {', '.join(known)}")
    return wanted


def _wait(lake: Path, name: str, sleep: Callable[[float], object]) -> None:
    """Until the job has committed a batch; quarantine may stay empty then."""
    told = ""
    while not any(files(lake / name)):
        if name == "quarantine" and any(files(lake / "events")):
            return
        why = missing(lake, name, time.time())
        if why != told:
            told = why
            print(f"gateway table: {why} …", file=sys.stderr, flush=True)
        sleep(_LOOK_SECONDS)


def missing(lake: Path, name: str, now: float) -> str:
    """What the table's first rows wait for.  *now* is in seconds since the epoch."""
    from gateway.store.lake import BEAT, health_path

    empty = f"nothing in {lake / name} yet"
    silent = now - _written(health_path(lake))
    if silent > now / 2:
        return f"{empty}: no Spark job has run here; start one: gateway spark"
    if silent > 4 * BEAT:
        return (
            f"{empty}: the Spark job said nothing for {duration(silent)}; does it run?"
        )
    return f"{empty}: waiting for the Spark job's first batch"


def _print(rows: Sequence[Row], columns: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False)
    for name in columns:
        shown.add_column(name, no_wrap=True, overflow="ellipsis")
    for row in rows:
        shown.add_row(*(Text(_cell(row.get(name))) for name in columns))
    Console(width=None if sys.stdout.isatty() else _WIDTH).print(shown)


def _cell(value: Any) -> str:
    return "" if value is None else printable(str(_plain(value)))


def _plain(value: Any) -> Any:
    """What JSON has no word for."""
    from datetime import date, datetime

    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value
