"""From the last byte of a window to its rows in the lake, Spark included.

Starts a gateway and `gateway spark` on this machine, sends --rate events/s
(windows of 2048, 4 connections) and afterwards asks every file of `lake/events`
whose windows it holds: each event's message begins with its window's number.

A row counts as committed when readers may see it: the modification time of the
`_spark_metadata` entry that names its file where the table has such a log, else
the change time of the file (the rename that published it).  A window counts when
the last of its rows does.  Every window must be there, whole and once.

The same is done with the gateway's own Parquet files, which splits the time in
two: until Spark can see the rows, and until readers of the table can.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import sys
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from _daemon import Gateway, Usage, end, load, spawn, usage
from _machine import machine, processor_seconds
from _report import Broken, Claim, Report, arguments, main, workplace
from _windows import MARK_AT

_WINDOW = 2048
_CONNECTIONS = 4
#: Marks of the events that only wake Spark up.
_WAKING = 900_000


@dataclass
class Seen:
    """What a set of Parquet files holds, by window."""

    rows: Counter[int] = field(default_factory=Counter)
    at: dict[int, float] = field(default_factory=dict)
    """When its last row became visible: seconds since the epoch."""

    def read(self, files: Iterable[tuple[Path, float]]) -> None:
        for path, visible in files:
            for window, rows in _windows_in(path):
                self.rows[window] += rows
                self.at[window] = max(visible, self.at.get(window, 0.0))


@functools.cache
def _windows_in(path: Path) -> list[tuple[int, int]]:
    """(window, rows) for all windows with rows in a file; files never change."""
    file = pq.ParquetFile(path)
    names = file.schema_arrow.names
    if "message" in names:
        marks = _text(file, "message", 1)
    else:
        marks = _text(file, "payload", MARK_AT)
    return [
        (int(mark), entry["counts"].as_py())
        for entry in pc.value_counts(marks)
        if (mark := entry["values"].as_py()) is not None and mark.isdigit()
    ]


def _text(file: pq.ParquetFile, column: str, at: int) -> pa.ChunkedArray:
    data = file.read([column], use_threads=False)[column]
    if pa.types.is_dictionary(data.type):
        data = data.cast(data.type.value_type)
    return pc.utf8_slice_codeunits(data.cast(pa.string()), at, at + 6)


def lake_files(table: Path) -> Iterator[tuple[Path, float]]:
    """Every committed file of a table, and when it was committed."""
    log = table / "_spark_metadata"
    if not log.is_dir():
        for path in table.rglob("*.parquet"):
            hidden = any(p[0] in "._" for p in path.relative_to(table).parts)
            if not hidden:
                yield path, path.stat().st_ctime
        return
    times: dict[Path, float] = {}
    for entry in log.iterdir():
        if not entry.name.split(".")[0].isdigit():
            continue
        committed = entry.stat().st_mtime
        for line in entry.read_text().splitlines()[1:]:
            named = urllib.parse.urlsplit(json.loads(line)["path"]).path
            path = Path(urllib.parse.unquote(named))
            times[path] = min(committed, times.get(path, committed))
    yield from times.items()


def published_files(data: Path) -> Iterator[tuple[Path, float]]:
    """Every file that the gateway gave to Spark, and when."""
    for place in (data / "spool", data / "archive"):
        for path in place.rglob("events-*.parquet"):
            yield path, path.stat().st_mtime


class Spark:
    """`gateway spark` in a process group of its own."""

    def __init__(self, gateway: Gateway) -> None:
        self.log = gateway.config.with_name("spark.log")
        code = "import sys; from gateway.cli import main; sys.exit(main())"
        words = ["spark", "--config", str(gateway.config)]
        self.process = spawn([sys.executable, "-c", code, *words], self.log)

    def check(self) -> None:
        if self.process.poll() is not None:
            lines = self.log.read_text(errors="replace").splitlines()[-30:]
            raise Broken("the Spark job ended\n  " + "\n  ".join(lines))

    def usage(self) -> Usage:
        return usage(self.process.pid)

    def stop(self) -> None:
        end(self.process)


def wait(until: Callable[[], bool], spark: Spark, seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not until():
        spark.check()
        if time.monotonic() > end:
            raise Broken(f"no {what} in {seconds:.0f} s; Spark's log: {spark.log}")
        time.sleep(0.25)


def run(
    report: Report, gateway: Gateway, spark: Spark, options: argparse.Namespace
) -> None:
    table = gateway.data / "lake" / "events"
    begin = time.monotonic()
    address = gateway.address()
    waking = {"first": _WAKING, "windows": 20, "warm_up": 0, "seconds": 2}
    with load(address, connections=1, rate=10_000, **waking) as running:
        running.until("drained")
    wait(lambda: any(lake_files(table)), spark, 180, "rows in the lake")
    report.add("Spark's first rows after", time.monotonic() - begin, "s")

    record = gateway.config.with_name("sent.json")
    length = options.warm_up + options.seconds
    windows = int(length * options.rate / _WINDOW * 1.1) + 2 * _CONNECTIONS
    with load(
        address,
        connections=_CONNECTIONS,
        rate=options.rate,
        windows=windows,
        warm_up=options.warm_up,
        seconds=options.seconds,
        record=record,
    ) as running:
        running.until("measuring")
        measuring = time.time()
        before = gateway.usage(), spark.usage(), processor_seconds()
        measured = running.until("measured")
        measured_until = time.time()
        after = gateway.usage(), spark.usage(), processor_seconds()
        running.until("drained")
        running.process.wait()
    sent = {mark: at for mark, at, _ in json.loads(record.read_text())}
    lake, spool = Seen(), Seen()

    def complete() -> bool:
        lake.rows.clear()
        lake.at.clear()
        with contextlib.suppress(FileNotFoundError):  # moved while we looked
            lake.read(lake_files(table))
        return all(lake.rows[mark] >= _WINDOW for mark in sent)

    with contextlib.suppress(Broken):
        wait(complete, spark, options.patience, "complete lake")
    with contextlib.suppress(FileNotFoundError):
        spool.read(published_files(gateway.data))

    inside = [m for m, at in sent.items() if measuring <= at < measured_until]
    whole = [mark for mark in inside if lake.rows[mark] == _WINDOW]
    delays = sorted(lake.at[mark] - sent[mark] for mark in whole)
    report.add("events/s", measured["events_per_second"])
    report.add("windows measured", len(inside))
    report.spread("last byte to ack", measured["ack_ms"], "ms")
    _delays(report, "last byte to spool", spool, sent, whole)
    _delays(report, "last byte to lake/events", lake, sent, whole)
    report.add("gateway", after[0].since(before[0])[0], "cores")
    report.add("Spark", after[1].since(before[1])[0], "cores")
    report.add("gateway memory", after[0].rss / 2**20, "MiB")
    report.add("Spark memory", after[1].rss / 2**20, "MiB")
    spent = {name: after[2][name] - before[2][name] for name in after[2]}
    report.add("machine idle", spent["idle"] / sum(spent.values()) * 100, "%")
    p99 = _at(delays, 0.99) if delays else None
    what = (
        f"last byte of a window to its rows in lake/events, {options.rate:,.0f}/s, p99"
    )
    report.claims.append(Claim(what, p99, "s", 6))
    report.claims.append(
        Claim(
            "rate that was kept up",
            measured["events_per_second"],
            "events/s",
            options.rate * 0.98,
            at_least=True,
        )
    )
    holes = sum(lake.rows[mark] < _WINDOW for mark in sent)
    doubles = sum(lake.rows[mark] > _WINDOW for mark in sent)
    report.claims.append(Claim("windows not whole in the lake", holes, "", 0))
    report.claims.append(Claim("windows with rows twice", doubles, "", 0))
    report.raw.update(load=measured, delays=delays)


def _delays(
    report: Report, name: str, seen: Seen, sent: dict[int, float], marks: list[int]
) -> None:
    found = sorted(seen.at[mark] - sent[mark] for mark in marks if mark in seen.at)
    if not found:
        report.add(name, "not to be seen")
        return
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    report.spread(name, {key: _at(found, at) for key, at in shares.items()}, "s")


def _at(ranked: list[float], share: float) -> float:
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--rate", type=float, default=20_000, help="events/s")
    parser.add_argument("--warm-up", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--patience", type=float, default=60.0, help="for the rest")
    options = parser.parse_args()
    settings = {
        "spool": {"roll_interval": "1s", "after": "archive"},
        "spark": {"trigger": "1s"},
    }
    with workplace(options) as home:
        report = Report("pipeline: socket to table", machine(home))
        with Gateway(home / "gateway", settings) as gateway:
            spark = Spark(gateway)
            try:
                run(report, gateway, spark, options)
            finally:
                spark.stop()
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
