"""`gateway table`: the newest rows of a table; waits for the Spark job's first batch."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gateway.cli import _data_dir
from gateway.cli._columns import table, terminal_width
from gateway.sdk.command import WrongUse, day, nobody_reads, positive, printable
from gateway.spoken import duration
from gateway.tables import EVENTS, QUARANTINE, STATS

if TYPE_CHECKING:
    from gateway.store.directories import Directories
    from gateway.store.finder import SpoolFile
    from gateway.store.lsns import Lsns

HELP = """\
Show the newest rows of a table that the Spark job writes.  As long as there are none,
wait for its first batch, and say what is missing.

  events      what came: when, what was done, by whom; --columns shows others
  stats       how many events came, by minute, protocol, listener and channel; its rows
              are written together with those of events
  quarantine  what was stored although something is wrong with it; column flaw says what

`gateway table complete` says whether a day is complete: nothing that was acknowledged on it is
missing, or may come yet.  If it is not, it says who holds it.

Times are this machine's.  Spark, DuckDB, Polars, pandas and pyarrow read the same files: docs/spark.md.

Example:
  gateway table --config conf/demo.yaml
  gateway table stats --config conf/demo.yaml
  gateway table -n 1000 --json --columns lsn,body | jq .body
  gateway table complete --day 2026-11-28 --wait

Exit status: 0 shown, or complete; 1 not complete; 2 wrong use, no gateway has run there, or
it has no tables.
"""

_COMPLETE = "complete"
_LOOK_SECONDS = 0.5
_DEFAULT = {
    EVENTS: ("event_time", "protocol", "listener", "host", "message"),
    STATS: ("window_start", "protocol", "listener", "channel", "events", "flawed"),
    QUARANTINE: ("event_time", "protocol", "listener", "peer", "flaw"),
}
"""Columns for programs, as the table has them."""
_ORDER = ("received_at", "window_start", "node", "lsn")
_WIDTH = 120
_NARROW = 80
_LOOKED_AT, _NAMED = 1000, 5
"""Events whose paths are looked at, and paths without a column that are named."""
_LONGEST = 1000
"""Characters of a cell."""
Row = dict[str, Any]
_T = TypeVar("_T")


def _first_of(*names: str) -> Callable[[Row], Any]:
    return lambda row: next((row[one] for one in names if row.get(one)), None)


_place = _first_of("channel", "log_file_path", "event_dataset")


def _what(row: Row) -> str:
    """The kind of a row and its place: `request area.chat.say`, a segment, a log file."""
    kind, place = row.get("kind") or "data", _place(row)
    if place is None:
        return str(kind)
    return str(place) if kind == "data" else f"{kind} {place}"


_WHO = _first_of("host", "uid", "principal", "peer")
_BODY = _first_of("message", "body", "payload")
_COMMON: dict[str, Callable[[Row], Any]] = {
    "time": _first_of("event_time"),
    "protocol": _first_of("protocol"),
    "listener": _first_of("listener"),
    "what": _what,
    "who": _WHO,
}
_FOR_PEOPLE: Mapping[str, Mapping[str, Callable[[Row], Any]]] = {
    EVENTS: {**_COMMON, "body": _BODY},
    QUARANTINE: {**_COMMON, "flaw": _first_of("flaw")},
}
"""Columns for people: each protocol has its own words for what was done, by whom, and
what came of it, and keeps them in other columns of the table."""


class _Names(tuple[str, ...]):
    """Names that are shown and completed; a table by rule has another one."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", choices=_Names([*_DEFAULT, _COMPLETE]), default=EVENTS,
        help="which table (default: events); complete: whether a day is",
    )  # fmt: skip
    _data_dir.add_arguments(parser)
    add = parser.add_argument
    add("-n", "--rows", type=positive, default=10, metavar="N",
        help="how many, the newest last (default: 10)")  # fmt: skip
    add("--columns", metavar="A,B", help="these; `all` are all that there are")
    add("--no-wait", action="store_true", help="if there are none yet, show none")
    add("--json", action="store_true", help="a JSON object a line, for programs")
    add("--day", type=day, metavar="DAY",
        help="of complete: which, 2026-11-28 (default: yesterday in UTC)")  # fmt: skip
    add("--wait", action="store_true", help="of complete: until it is")


def run(args: argparse.Namespace) -> int:
    with _data_dir.readable():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    places = _data_dir.places(args)
    lake = places.lake
    if args.name == _COMPLETE:
        from gateway.cli import _complete

        return _complete.run(args, lake)
    _check_name(args, lake)
    _check_sink(lake, args.name)
    if not args.no_wait:
        _check_job(args, lake / args.name)
        _wait(lake, args.name, time.sleep)
    rows = newest(lake / args.name, args.rows)
    if args.json:
        columns = _columns(args, rows)
        for row in rows:
            print(json.dumps({name: row.get(name) for name in columns}, default=_plain))
    elif rows:
        _print(_shown(args, rows))
        if args.name == EVENTS and args.columns is None:
            _tell_paths(args, lake)
    else:
        print(f"no rows in {lake / args.name}", file=sys.stderr)
    if args.name != QUARANTINE and (more := _on_their_way(places)):
        print(f"{more:,} newer events are on their way", file=sys.stderr)
    return 0


def _check_name(args: argparse.Namespace, lake: Path) -> None:
    """Raise `WrongUse` for a name that no table has."""
    from gateway.store.readers.lake import tables_of

    with contextlib.suppress(ValueError):  # the job says what is wrong with the ledger
        config = _data_dir.config_of(args)
        known = tables_of(lake).with_all(config.spark.tables if config else ()).all
        if args.name not in known:
            raise WrongUse(f"no table {args.name!r}; there is: {', '.join(known)}")


def _like(name: str, of: Mapping[str, _T]) -> _T:
    """The part of a table; one by rule has that of `events`."""
    return of.get(name, of[EVENTS])


def _check_job(args: argparse.Namespace, folder: Path) -> None:
    """Raise `WrongUse` where no job will ever write that table, and none has."""
    config = _data_dir.config_of(args)
    if config is not None and not config.spool.has_job and not any(files(folder)):
        raise WrongUse(
            f"no tables here: spool.after is {config.spool.after}, so no Spark job makes "
            "any; see gateway spool cat"
        )


def _on_their_way(places: Directories) -> int:
    """How many acknowledged events are in journal and spool, and in no table yet."""
    from gateway.store.finder import journals_in, spool_files, waiting
    from gateway.store.lsns import Lsns
    from gateway.store.readers.lake import committed

    try:
        done = committed(places.lake)
        in_spool = sum(
            (Lsns([(file.first, file.last)]) - _of(done, file)).size
            for each in spool_files(places.spool).values()
            for file in each
        )
        in_journals = sum(
            count
            for journal in journals_in(places.journal)
            for *_, count in waiting(journal)
        )
    except (OSError, ValueError):  # of what is damaged others tell
        return 0
    return in_spool + in_journals


def _of(done: Mapping[str, Mapping[str, Lsns]], file: SpoolFile) -> Lsns:
    from gateway.store.lsns import Lsns

    return done.get(file.node, {}).get(file.incarnation, Lsns())


def _tell_paths(args: argparse.Namespace, lake: Path) -> None:
    """Name paths that many events of late have, and that have no column."""
    from gateway.config.tables import columns_of_all
    from gateway.spark.rows import suggestion

    config = _data_dir.config_of(args)
    if config is None:
        return
    chosen, there = columns_of_all(config.spark), files(lake / EVENTS)
    paths = suggestion.without_column(there, chosen, _LOOKED_AT)
    if paths:
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        print(
            f"In many events, and in no column: {printable(', '.join(paths[:_NAMED]))}{more};"
            " gateway spark columns --suggest says more of them.",
            file=sys.stderr,
        )


def _check_sink(lake: Path, name: str) -> None:
    """Raise `WrongUse` unless its tables are folders of Parquet."""
    from gateway.sink import kind_of
    from gateway.store.readers.lake import sink_of

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


def newest(folder: Path, most: int) -> list[Row]:
    """The *most* newest rows, oldest first: the last ones of the newest day's newest files."""
    from gateway.audit.lake import Unusable

    rows: list[Row] = []
    # By day first: those that are over are written anew, too.
    for path in sorted(files(folder), key=_day_and_time, reverse=True):
        try:
            rows += _last_rows(folder, path, most)
        except FileNotFoundError:  # compacted meanwhile: newer files have its rows
            continue
        except Unusable as why:
            raise WrongUse(f"{path}: {why}") from None
        if len(rows) >= most:
            break
    rows.sort(key=lambda row: [row[name] for name in _ORDER if name in row])
    return rows[-most:]


def files(folder: Path) -> Iterator[Path]:
    """Data files of a table; hidden ones are not committed yet."""
    for path in folder.glob("protocol=*/date=*/*.parquet"):
        if not path.name.startswith((".", "_")):
            yield path


def _day_and_time(path: Path) -> tuple[str, float]:
    return path.parent.name, _written(path)


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _last_rows(folder: Path, path: Path, most: int) -> list[Row]:
    import pyarrow.parquet as pq

    from gateway.audit.lake import reading

    partitions = dict(
        part.split("=", 1) for part in path.parent.relative_to(folder).parts
    )
    rows: list[Row] = []
    with reading(path), pq.ParquetFile(path) as file:
        for group in reversed(range(file.num_row_groups)):
            read = file.read_row_group(group)
            rows[:0] = read.slice(max(0, len(read) - most)).to_pylist()
            if len(rows) >= most:
                break
    return [{**row, **partitions} for row in rows[-most:]]


def _columns(args: argparse.Namespace, rows: Sequence[Row]) -> list[str]:
    known = list(dict.fromkeys(name for row in rows for name in row))
    if args.columns is None:
        return [name for name in _like(args.name, _DEFAULT) if name in known]
    if args.columns == "all":
        return known
    wanted = str(args.columns).split(",")
    strange = [name for name in wanted if name not in known]
    if strange and rows:
        raise WrongUse(f"no column {strange[0]!r}; there is: {', '.join(known)}")
    return wanted


def _shown(args: argparse.Namespace, rows: Sequence[Row]) -> dict[str, list[Any]]:
    if args.columns is None and args.name != STATS:
        own = _like(args.name, _FOR_PEOPLE)
        return {name: [value(row) for row in rows] for name, value in own.items()}
    return {name: [row.get(name) for row in rows] for name in _columns(args, rows)}


def _wait(lake: Path, name: str, sleep: Callable[[float], object]) -> None:
    """Wait until the job has committed a batch; a table may stay empty then."""
    from gateway.store.readers.lake import tables_of

    with _telling() as tell:
        while not any(files(lake / name)):
            fine: Sequence[str] = (EVENTS,)
            with contextlib.suppress(ValueError):
                fine = tables_of(lake).fine
            if any(any(files(lake / one)) for one in fine):
                return
            if nobody_reads():
                raise BrokenPipeError
            tell(missing(lake, name, time.time()))
            sleep(_LOOK_SECONDS)


class Missing(NamedTuple):
    """The reason why a table has no rows yet."""

    why: str
    since: str = ""
    """How long it has been so, if that matters."""

    def __str__(self) -> str:
        return f"gateway table: {self.why}{self.since} …"


@contextlib.contextmanager
def _telling() -> Iterator[Callable[[Missing], None]]:
    """A function that tells a reason: in one changing line on a terminal, else in a new one."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.markup import escape

        with Console(stderr=True).status("") as line:
            yield lambda missing: line.update(escape(str(missing)))
        return
    told = ""

    def tell(missing: Missing) -> None:
        nonlocal told
        if missing.why != told:
            told = missing.why
            print(missing, file=sys.stderr, flush=True)

    yield tell


def missing(lake: Path, name: str, now: float) -> Missing:
    """Why the table has no rows.  *now* is in seconds since the epoch."""
    from gateway.figures.reported import BEAT
    from gateway.store.readers.lake import health_path

    empty = f"nothing in {lake / name} yet"
    silent = now - _written(health_path(lake))
    if silent > now / 2:
        return Missing(f"{empty}: no Spark job has run here; start one: gateway spark")
    if silent > 4 * BEAT:
        why = f"{empty}: does the Spark job run?  It has said nothing for "
        return Missing(why, duration(silent))
    return Missing(f"{empty}: waiting for the Spark job's first batch")


def _print(columns: Mapping[str, Sequence[Any]]) -> None:
    width = terminal_width() or _WIDTH
    cells = [_cells(values) for values in columns.values()]
    expendable = ("protocol",) if width < _NARROW else ()  # the listener says it, too
    print(table(list(columns), zip(*cells, strict=True), width, expendable))


def _cells(values: Sequence[Any]) -> list[str]:
    """A column for people, with times as short as they can be told apart by."""
    times = [value.astimezone() for value in values if isinstance(value, datetime)]
    today = {one.date() for one in times} <= {datetime.now().astimezone().date()}
    form = "%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S"
    return [
        value.astimezone().strftime(form)
        if isinstance(value, datetime)
        else _cell(value)
        for value in values
    ]


def _cell(value: Any) -> str:
    return "" if value is None else str(_plain(value))[:_LONGEST]


def _plain(value: Any) -> Any:
    """A JSON value for types that JSON lacks."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value
