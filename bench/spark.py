"""What the Spark job costs, beside a plain copy of the same rows in the same session.

Beats events lie in Parquet files as the gateway publishes them.  They are copied,
copied into folders as our tables have them, and made into rows of the tables, which are
written as the job writes them: those of a batch that belongs into one folder, and of one
where Spark must look at each row.  What is compared is the CPU time of Java (and of
Python, for the counts), which a busy machine disturbs less than wall time.  What Java
spends on compiling is left out and shown by itself: it ends some minutes after the
start.  Then the whole job reads the files from a spool as a backlog.

    python bench/spark.py                     all of it
    python bench/spark.py --case files        how long a batch of 20,000 files is planned
    python bench/spark.py --case year         small batches, before and after a year
    python bench/spark.py --case day          a day of 86,400 small files, compacted
    python bench/spark.py --case today        the same day, compacted as it goes
    python bench/spark.py --case month        a commit after a month of others, with --sink
                                              delta or iceberg, maintained as the job does it;
                                              with a Spark that their jars fit
    python bench/spark.py --case nodes        the files of ten nodes, beside those of one
    python bench/spark.py --case by-rule      three tables by rule, beside one
    python bench/spark.py --case sinks        tables of Delta and Iceberg, beside Parquet;
                                              with a Spark that their jars fit

Each figure is the best of --rounds, after --warm-up that do not count.  A round does
everything once, so that what else the machine does falls on all alike.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from _commits import of_table, pasts
from _history import many_names, spool_names, year
from _machine import machine
from _nodes import costs_of, spread
from _report import Claim, Report, arguments, main, workplace
from pydantic import TypeAdapter
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQueryListener

from gateway.config import Config
from gateway.config.tables import TableByRule
from gateway.event import SCHEMA
from gateway.sink import kind_of
from gateway.spark import job
from gateway.spark.commit.formats import Format
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.partition import visible
from gateway.spark.commit.sink import Plan
from gateway.spark.files import footers
from gateway.spark.jvm import session
from gateway.spark.later.compact import compact, compact_open
from gateway.spark.rows import stats, tables
from gateway.spark.rows.columns import Columns
from gateway.spark.rows.fields import function
from gateway.spark.run import query
from gateway.spark.source import SCHEMA_DDL
from gateway.store.names import parse_file_name

_TICKS = os.sysconf("SC_CLK_TCK")
_FILES = 4
#: Of a small file.
ROWS = 20


def event(number: int, dice: random.Random) -> bytes:
    """As Filebeat ships a line of an nginx log."""
    host = f"web-{number % 40}"
    line = (
        f'192.0.2.{number % 250} - - [21/Nov/2026:10:00:00 +0000] "GET /api/v1/items/'
        f'{dice.randrange(10**6)} HTTP/1.1" {dice.choice((200, 200, 404, 500))}'
        f' {dice.randrange(10**5)} "-" "curl/8.0"'
    )
    path = f"/var/log/nginx/access-{number % 7}.log"
    at = f"2026-11-21T10:{number // 60000 % 60:02d}:{number // 1000 % 60:02d}"
    return json.dumps(
        {
            "@timestamp": f"{at}.{number % 1000:03d}Z",
            "@metadata": {"beat": "filebeat", "type": "_doc", "version": "9.1.2"},
            "message": line,
            "log": {"offset": number * 120, "file": {"path": path}},
            "input": {"type": "filestream"},
            "host": {"name": host},
            "agent": {"id": f"a-{host}", "name": host, "type": "filebeat"},
            "ecs": {"version": "8.0.0"},
            "event": {"dataset": "nginx.access"},
        }
    ).encode()


def publish(spool: Path, events: int) -> int:
    """Write the spool's files; returns the bytes of all payloads."""
    spool.mkdir(parents=True)
    dice = random.Random(1)
    each = events // _FILES
    total = 0
    for first in range(1, each * _FILES + 1, each):
        payloads = [event(first + n, dice) for n in range(each)]
        total += sum(map(len, payloads))
        same = {"node": "gw", "protocol": "lumberjack", "listener": "beats"}
        same |= {"session": "s-1", "peer": "192.0.2.1:4711", "kind": "data"}
        same |= {"content_type": "application/json"}
        columns: dict[str, Any] = {
            "lsn": range(first, first + each),
            "received_at": [int(time.time() * 1e6)] * each,
            "seq": range(1, each + 1),
            "payload": payloads,
            "attributes": [None] * each,
        }
        arrays = [
            pa.array(columns[field.name], field.type)
            if field.name in columns
            else pa.array([same.get(field.name)] * each).cast(field.type)
            for field in SCHEMA
        ]
        name = f"events-gw_aaaaaaaaaa-{first:020d}-{first + each - 1:020d}.parquet"
        pq.write_table(
            pa.table(arrays, schema=SCHEMA),
            spool / name,
            compression="zstd",
            write_page_checksum=True,
        )
    return total


@dataclass
class Cost:
    """Of one way to handle all events."""

    cpu: float
    """Seconds of a core."""
    wall: float

    def __lt__(self, other: Cost) -> bool:
        return self.cpu < other.cpu


class Bench:
    """One session, one set of files."""

    def __init__(self, home: Path, options: argparse.Namespace) -> None:
        self.home = home
        self.options = options
        self.events = options.events // _FILES * _FILES
        self.bytes = 0
        if not MANY_EVENTS.isdisjoint(options.case.split(",")):
            self.bytes = publish(home / "spool", self.events)
        publish(home / "small", ROWS * _FILES)
        self.template = min((home / "small").iterdir())
        # Or a compiler's thread may end, and its time is nobody's.
        java = "-XX:-UseDynamicNumberOfCompilerThreads"
        config: dict[str, Any] = {
            "driver_memory": "2g",
            "sink": options.sink,
            "conf": {"spark.driver.extraJavaOptions": java},
        }
        if options.jars:
            config["jars_directory"] = options.jars.absolute()
        self.config = Config.model_validate(
            {
                "data_dir": home,
                "spark": config,
                "listeners": [
                    {"name": "b", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"}
                ],
            }
        )
        self.spark = session.of(self.config)
        self._jobs = 0
        assert self.spark._jvm is not None
        self._java = int(self.spark._jvm.java.lang.ProcessHandle.current().pid())

    def compiling(self) -> float:
        """CPU seconds that Java has spent on compiling."""
        ticks = 0
        for path in Path(f"/proc/{self._java}/task").glob("*/stat"):
            with contextlib.suppress(OSError):
                thread = path.read_text()
                if re.search(r"\(C[12] Comp", thread):
                    ticks += _ticks(thread)
        return ticks / _TICKS

    def processor(self) -> float:
        """CPU seconds of Java, compiling apart, and of this process."""
        java = _ticks(Path(f"/proc/{self._java}/stat").read_text()) / _TICKS
        return java - self.compiling() + time.process_time()

    def small(self, name: str) -> Path:
        """An empty spool in a data directory of its own."""
        spool = self.home / name / "spool"
        spool.mkdir(parents=True)
        return spool

    def costs(self, cases: Mapping[str, Callable[[], object]]) -> dict[str, Cost]:
        """Of each case the best."""
        best: dict[str, Cost] = {}
        for round_ in range(-self.options.warm_up, self.options.rounds):
            for name, do in cases.items():
                cpu, wall = self.processor(), time.monotonic()
                do()
                one = Cost(self.processor() - cpu, time.monotonic() - wall)
                if round_ >= 0:
                    best[name] = min(best.get(name, one), one)
        return best

    def read(self) -> Any:
        return self.spark.read.schema(SCHEMA_DDL).parquet(f"file://{self.home}/spool")

    def write(self, rows: Any, name: str, *partitions: str) -> None:
        shutil.rmtree(self.home / name, ignore_errors=True)
        rows.write.partitionBy(*partitions).parquet(f"file://{self.home / name}")

    def batch(self) -> None:
        """Our rows, written as the job writes a batch."""
        spool, folder = self.home / "spool", self.home / "ours"
        shutil.rmtree(folder, ignore_errors=True)
        files = [parse_file_name(path.name) for path in sorted(spool.iterdir())]
        found = footers.read(spool, [file for file in files if file is not None])
        rows = tables.events(self.read())
        query.Writer(self.spark, spool, lambda _: rows)(rows, folder, Plan(found.files))

    def files(self, name: str) -> list[Path]:
        return list((self.home / name).rglob("*.parquet"))

    def bytes_each(self, name: str) -> float:
        return sum(path.stat().st_size for path in self.files(name)) / self.events

    def partitioned(self) -> Any:
        return self.read().selectExpr(
            "*", "'events' AS table", "cast(received_at AS date) AS date"
        )

    def count(self) -> None:
        files = [("protocol=x", path) for path in self.files("ours")]
        stats.count(files, timedelta(minutes=1))

    def parsed(self) -> Any:
        """The one parse of a row, without what is made of it."""
        columns = Columns()
        find = function(self.spark, columns.keys, columns.instants, lists=columns.lists)
        parse = f.expr(f"{find}(payload)")
        return self.read().withColumn("j", parse).drop("payload")

    def at(self, data: Path, **options: Any) -> Config:
        """The configuration of a job on this data directory."""
        chosen = self.config.spark.model_copy(update=options)
        return self.config.model_copy(update={"data_dir": data, "spark": chosen})

    def backlog(self) -> float:
        """The whole job, from a spool to tables; the second time, with Java warm."""
        for round_ in range(2):
            data = self.home / f"job-{round_}"
            shutil.copytree(self.home / "spool", data / "spool")
            begin = time.monotonic()
            job.run(self.at(data), self.spark, available_now=True)
        return time.monotonic() - begin

    def job(self, source: str, **options: Any) -> None:
        """The whole job, from a spool *source* to tables of its own."""
        self._jobs += 1
        data = self.home / f"run-{self._jobs}"
        shutil.copytree(self.home / source, data / "spool", copy_function=os.link)
        table = {}
        if self.options.sink == "iceberg":
            table = {"table": f"lake.run_{self._jobs}.events"}
        job.run(self.at(data, **table, **options), self.spark, available_now=True)
        shutil.rmtree(data)

    def jobs(self, *sources: str) -> dict[str, Cost]:
        """Of the job for all events of each spool; its start and end are left out."""
        cases = {name: partial(self.job, name) for name in ("small", *sources)}
        cost = self.costs(cases)
        start = cost.pop("small")
        return {
            name: Cost(one.cpu - start.cpu, one.wall - start.wall)
            for name, one in cost.items()
        }

    def batches(self, config: Config) -> list[dict[str, float]]:
        """Run the job until its spool is read; how long each batch took, in ms, and `cpu`:
        by when the process had used how many seconds of it.
        """
        heard = _Listener(self.processor)
        self.spark.streams.addListener(heard)
        job.run(config, self.spark, available_now=True)
        while not heard.over:
            time.sleep(0.05)
        self.spark.streams.removeListener(heard)
        return heard.batches

    def memory(self) -> tuple[float, float]:
        """MiB of Java's heap that are in use, and of this process."""
        assert self.spark._jvm is not None
        self.spark._jvm.System.gc()
        java = self.spark._jvm.java.lang.Runtime.getRuntime()
        status = Path("/proc/self/status").read_text()
        mine = int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 2**10
        return (java.totalMemory() - java.freeMemory()) / 2**20, mine


@dataclass(eq=False)
class Filled:
    """Tables of events and counts that the job fills, with a data directory of their own."""

    bench: Bench
    kind: Format
    name: str
    lsn: int = 1
    """Of the next event."""

    def __post_init__(self) -> None:
        self.spool = self.bench.small(self.name)
        asked: dict[str, Any] = {"max_bytes_per_trigger": 1}
        if self.kind.name == "iceberg":
            asked["table"] = f"lake.gateway.{self.name}"
        self.config = self.bench.at(self.spool.parent, **asked)
        self.tables = self.kind.tables(self.config, self.bench.spark)
        self.forget()

    def batches(self, count: int) -> None:
        """The job commits so many more, which are timed."""
        names = spool_names(self.lsn, ROWS, count)
        many_names(self.bench.template, [self.spool / name for name in names])
        self.lsn += ROWS * count
        done = self.bench.batches(self.config)
        self.seconds += [one["addBatch"] / 1000 for one in done]
        self.cpu.append((done[-1]["cpu"] - done[0]["cpu"]) / (len(done) - 1))

    def forget(self) -> None:
        """What was timed: Java was cold."""
        self.seconds, self.cpu = [], []


class _Listener(StreamingQueryListener):
    """Notes how long the steps of each batch take."""

    def __init__(self, processor: Callable[[], float]) -> None:
        self.batches: list[dict[str, float]] = []
        self._processor = processor
        self.over = False

    def onQueryStarted(self, event: Any) -> None:
        """A query begins."""

    def onQueryProgress(self, event: Any) -> None:
        """A batch is over."""
        # Sinks of formats read a batch's files by themselves, and not its rows.
        if "addBatch" in event.progress.durationMs:
            used = {"cpu": self._processor()}
            self.batches.append({**event.progress.durationMs, **used})

    def onQueryIdle(self, event: Any) -> None:
        """There is nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:
        """A query has ended; this comes last."""
        self.over = True


def _ticks(stat: str) -> int:
    return sum(map(int, stat.rpartition(")")[2].split()[11:13]))


def _noop(rows: Any) -> None:
    rows.write.format("noop").mode("append").save()


def speed(report: Report, bench: Bench) -> None:
    """The cost of a row, beside that of copying it."""
    folders = ("table", "protocol", "date")
    cost = bench.costs(
        {
            "read": lambda: _noop(bench.read()),
            "read, parse": lambda: _noop(bench.parsed()),
            "read, make rows": lambda: _noop(tables.events(bench.read())),
            "plain copy": lambda: bench.write(bench.read(), "copy"),
            "copy in our folders": lambda: bench.write(
                bench.partitioned(), "folders", *folders
            ),
            "our rows, row by row into folders": lambda: bench.write(
                tables.events(bench.read()), "mixed", *tables.PARTITIONS
            ),
            "our rows in our folders": bench.batch,
            "counts for stats": bench.count,
        }
    )
    million = 1e6 / bench.events
    for name, one in cost.items():
        value = f"{one.cpu * million:.1f} s CPU, {one.wall * million:.1f} s"
        report.add(f"{name}, a million events", value)
    report.add("compiling, all rounds", bench.compiling(), "s CPU")
    report.add("bytes an event, sent", bench.bytes / bench.events, "B")
    report.add("bytes an event, copied", bench.bytes_each("folders"), "B")
    report.add("bytes an event, ours", bench.bytes_each("ours"), "B")
    cpu = {name: one.cpu for name, one in cost.items()}
    ours, counts = cpu["our rows in our folders"], cpu["counts for stats"]
    for step, seconds in {
        "reading": cpu["read"],
        "the parse": cpu["read, parse"] - cpu["read"],
        "the columns": cpu["read, make rows"] - cpu["read, parse"],
        "writing": ours - cpu["read, make rows"],
        "the counts": counts,
    }.items():
        report.add(f"share of {step}", seconds / (ours + counts) * 100, "%")
    report.add("our rows, times a plain copy", ours / cpu["plain copy"], "x")
    copied = cpu["copy in our folders"]
    report.add("our rows, times a copy in our folders", ours / copied, "x")
    mixed = cpu["our rows, row by row into folders"]
    report.add("the same, of a batch with several folders", mixed / copied, "x")
    claim = "CPU of our rows and counts, times a copy in our folders"
    report.claims.append(Claim(claim, (ours + counts) / copied, "x", 2))
    seconds = bench.backlog()
    report.claims.append(
        Claim(
            "backlog, whole job on local[2]",
            bench.events / seconds,
            "events/s",
            100_000,
            at_least=True,
        )
    )


def files(report: Report, bench: Bench) -> None:
    """Many files wait: how soon the next batch begins."""
    for case, count in (("files, warm-up", 200), ("files", bench.options.files)):
        spool = bench.small(case)
        names = spool_names(1, ROWS, count)
        many_names(bench.template, [spool / name for name in names])
        batches = bench.batches(bench.at(spool.parent))
    steps = ("latestOffset", "walCommit", "getBatch", "queryPlanning")
    for step in (*steps, "addBatch"):
        longest = max(batch.get(step, 0) for batch in batches) / 1000
        report.add(f"{bench.options.files} files, {step}", longest, "s")
    planned = max(sum(batch.get(step, 0) for step in steps) for batch in batches)
    claim = f"{bench.options.files} files wait: the next batch is planned"
    report.claims.append(Claim(claim, planned / 1000, "s", 5))


def history(report: Report, bench: Bench) -> None:
    """Small batches with nothing behind them, and with a year."""
    figures = []
    for name in ("warm-up", "fresh", "year"):
        spool = bench.small(name)
        first = 1
        if name == "year":
            first = year(
                spool.parent,
                bench.home / "fresh",
                rows=ROWS,
                entries=30_000_000,
                archived=bench.options.archived,
            )
        names = spool_names(first, ROWS, bench.options.batches)
        many_names(bench.template, [spool / one for one in names])
        batches = bench.batches(bench.at(spool.parent, max_bytes_per_trigger=1))
        each = statistics.median(batch["triggerExecution"] for batch in batches)
        figures.append((each, *bench.memory()))
    _, fresh, old = figures
    for what, unit, before, after in zip(
        ("a batch", "heap", "Python"), ("ms", "MiB", "MiB"), fresh, old, strict=True
    ):
        report.add(f"{what}, fresh", before, unit)
        report.add(f"{what}, after a year", after, unit)
        claim = f"{what} after a year, times a fresh start's"
        report.claims.append(Claim(claim, after / before, "x", 1.2))


def _one_batch(bench: Bench, name: str) -> tuple[Path, dict[str, Path]]:
    """A lake with one of them: where it is, and the one file of each table."""
    spool = bench.small(name)
    many_names(bench.template, [spool / each for each in spool_names(1, ROWS, 1)])
    lake = spool.parent / "lake"
    job.run(bench.at(spool.parent), bench.spark, available_now=True)
    names = ("events", "stats")
    return lake, {each: next((lake / each).rglob("*.parquet")) for each in names}


def day(report: Report, bench: Bench) -> None:
    """A day with a batch a second is over: its files are rewritten."""
    lake, ones = _one_batch(bench, "second")
    for one in ones.values():
        names = [f"part-{n:010d}-0badcafe-0.parquet" for n in range(2, 86_401)]
        many_names(one, [one.with_name(name) for name in names])
    before, begun, cpu = bench.memory()[1], time.monotonic(), time.process_time()
    for done in compact(lake, Lake(), before=date.max):
        table = done.folder.partition("/")[0]
        report.add(f"a day of {table}, {done.before} files: now", done.after, "files")
        seconds = time.monotonic() - begun
        report.add(f"a day of {table}: compacted in", seconds, "s")
        report.add(f"a day of {table}: CPU", time.process_time() - cpu, "s")
        begun, cpu = time.monotonic(), time.process_time()
    report.add("Python has grown by", bench.memory()[1] - before, "MiB")
    left = sum(1 for _ in lake.rglob("part-*.parquet"))
    claim = "files of a day with a batch a second, compacted"
    report.claims.append(Claim(claim, left, "files", 1000))


def today(report: Report, bench: Bench) -> None:
    """A day with a batch a second: its small files are rewritten while they come."""
    lake, ones = _one_batch(bench, "today")
    day = date.fromisoformat(ones["events"].parent.name.removeprefix("date="))
    templates = {}
    for table, one in ones.items():
        templates[table] = bench.home / f"{table}.parquet"
        shutil.copyfile(one, templates[table])
    most = steps = 0
    spent = slowest = 0.0
    for second in range(2, bench.options.seconds + 1):
        for table, one in ones.items():
            shutil.copyfile(
                templates[table],
                one.with_name(f"part-{second:010d}-0badcafe-0.parquet"),
            )
        if second % 5:
            continue
        most = max(most, *(len(visible(one.parent)) for one in ones.values()))
        begun, cpu = time.monotonic(), time.process_time()
        steps += len(list(compact_open(lake, Lake(), day, upto=second - 1)))
        spent += time.process_time() - cpu
        slowest = max(slowest, time.monotonic() - begun)
    rows = sum(
        pq.read_metadata(path).num_rows for path in visible(ones["events"].parent)
    )
    report.add("batches, one a second", bench.options.seconds)
    report.add("rows of events in the end", rows)
    report.add("folders rewritten", steps, "times")
    report.add("the longest took", slowest, "s")
    report.add("CPU of it, of a core", spent / bench.options.seconds * 100, "%")
    report.claims.append(Claim("files of the current day at most", most, "files", 200))


def month(report: Report, bench: Bench) -> None:
    """A month of commits, the table maintained each day, beside a fresh table.

    The job does that each hour: a day here has more commits than an hour, and fewer than
    a day.
    """
    kind, days = kind_of(bench.options.sink), bench.options.days
    assert isinstance(kind, Format)
    old, fresh = (Filled(bench, kind, name) for name in ("old", "fresh"))
    for _ in range(2):  # until Java is warm; what follows is made of such a commit
        old.batches(bench.options.batches)
        fresh.batches(bench.options.batches)
    past = pasts(old.tables)
    each = max(1, bench.options.commits // days)
    for day in range(days):
        at = datetime.now(UTC) - timedelta(days - day)
        for one in past:
            one.add(at, each, ROWS)
        for _ in kind.maintain(
            old.config,
            bench.spark.newSession(),
            Lake(),
            5.0,
            thorough=day % 24 == 0,
        ):
            pass
    old.lsn += each * days * ROWS
    # An hour since the last maintenance.
    for one in past:
        one.add(datetime.now(UTC), 60, ROWS)
    old.lsn += 60 * ROWS
    for table in (old, fresh):
        table.forget()
    for _ in range(bench.options.rounds):
        for table in (old, fresh):
            table.batches(bench.options.batches)
    report.add(f"commits of a month into {kind.name}", each * days)
    for name, table in (("a fresh table", fresh), ("a month's", old)):
        for what, unit, figure in of_table(table.tables[0]):
            report.add(f"{name}: {what}", figure, unit)
        report.add(f"{name}: a commit, p50", statistics.median(table.seconds), "s")
        report.add(f"{name}: a commit, CPU", statistics.median(table.cpu), "s")
    ratio = statistics.median(old.cpu) / statistics.median(fresh.cpu)
    report.add(
        "CPU of a commit after a month, times that into a fresh table", ratio, "x"
    )
    ratio = statistics.median(old.seconds) / statistics.median(fresh.seconds)
    claim = f"a commit into {kind.name} after a month, times one into a fresh table"
    report.claims.append(Claim(claim, ratio, "x", 1.2))


def nodes(report: Report, bench: Bench) -> None:
    """The same events in as many files: of one node, and of many."""
    count = bench.options.nodes
    for name, number in (("one", 1), ("many", count)):
        spread(
            bench.home / "spool", bench.home / name, bench.options.node_files, number
        )
    cost = bench.jobs("one", "many")
    for name, what in (("one", "one node"), ("many", f"{count} nodes")):
        each = cost[name].cpu / bench.events * 1e6
        report.add(f"job, files of {what}: CPU of an event", each, "µs")
        report.add(f"job, files of {what}: wall", cost[name].wall, "s")
    claim = f"CPU of an event of {count} nodes, times one node's"
    ratio = cost["many"].cpu / cost["one"].cpu
    report.claims.append(Claim(claim, ratio, "x", 1.2))


def one_sink(report: Report, bench: Bench) -> None:
    """The job with `--sink`."""
    cost = bench.jobs("spool")["spool"]
    report.add("CPU of an event", cost.cpu / bench.events * 1e6, "µs")
    report.add("wall", cost.wall, "s")


def by_rule(report: Report, bench: Bench) -> None:
    """The job with three tables by rule, beside that with one."""
    rules = TypeAdapter(dict[str, TableByRule]).validate_python(
        {
            "tens": {"where": {"path": "host.name", "matches": "^web-1"}},
            "second": {"where": [{"path": "agent.name", "equals": "web-2"}]},
            "third": {
                "where": {
                    "path": "log.file.path",
                    "equals": "/var/log/nginx/access-3.log",
                },
                "columns": {"ecs": {"path": "ecs.version"}},
            },
        }
    )
    cases = {
        f"{source}, {name}": partial(bench.job, source, tables=tables)
        for name, tables in (("one", {}), ("three", rules))
        for source in ("small", "spool")
    }
    cost = bench.costs(cases)
    each = {}
    for name in ("one", "three"):
        cpu = cost[f"spool, {name}"].cpu - cost[f"small, {name}"].cpu
        each[name] = cpu / bench.events * 1e6
        word = "one table" if name == "one" else "three tables by rule"
        report.add(f"job, {word}: CPU of an event", each[name], "µs")
    claim = "CPU of an event, with three tables by rule, times with one"
    report.claims.append(Claim(claim, each["three"] / each["one"], "x", 1.15))


def sinks(report: Report, bench: Bench) -> None:
    """The job with each sink, in a process of its own: a session has one's jars."""
    cost = costs_of(("parquet", "delta", "iceberg"), bench.options, report.notes)
    for sink, each in cost.items():
        report.add(f"job, sink {sink}: CPU of an event", each, "µs")
        if sink != "parquet":
            claim = f"CPU of an event into {sink}, times into Parquet"
            report.claims.append(Claim(claim, each / cost["parquet"], "x", 1.5))


CASES = {
    "speed": speed,
    "files": files,
    "year": history,
    "day": day,
    "today": today,
    "nodes": nodes,
    "sinks": sinks,
    "by-rule": by_rule,
}
PARTS = {"sink": one_sink, "month": month}
"""Of cases, or with a sink of their own."""
MANY_EVENTS = {"speed", "nodes", "sink", "by-rule"}
"""Those that read `--events`."""


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=3, metavar="ROUNDS")
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument(
        "--batches", type=int, default=40, help="small ones, for year and month"
    )
    parser.add_argument("--archived", type=int, default=100_000, metavar="FILES")
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--node-files", type=int, default=40, help="of all nodes")
    parser.add_argument("--days", type=int, default=30, help="of month")
    parser.add_argument("--seconds", type=int, default=86_400, help="of today")
    parser.add_argument("--commits", type=int, default=7200, help="of the month")
    parser.add_argument("--sink", default="parquet", help="of the job, for all cases")
    parser.add_argument("--jars", type=Path, help="folder with those of Delta, Iceberg")
    options = parser.parse_args()
    with workplace(options) as home:
        report = Report("spark: spool to tables", machine(home))
        made = Bench(home / "spark", options)
        for name in options.case.split(","):
            {**CASES, **PARTS}[name](report, made)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
