"""What the Spark job costs, beside a plain copy of the same rows in the same session.

Beats events lie in Parquet files as the gateway publishes them.  They are copied,
copied into folders as our tables have them, and made into rows of the tables; what is
compared is the CPU time of Java (and of Python, for the counts), which a busy machine
disturbs less than wall time.  Then the whole job reads them from a spool as a backlog.
Each figure is the best of --rounds after one that warms Java up.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from _machine import machine
from _report import Claim, Report, arguments, main, workplace

from gateway.config import Config
from gateway.event import SCHEMA
from gateway.spark import job, session, stats, tables
from gateway.spark.source import SCHEMA_DDL

_TICKS = os.sysconf("SC_CLK_TCK")
_FILES = 4


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
        name = f"events-gw-{first:020d}-{first + each - 1:020d}.parquet"
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
        self.bytes = publish(home / "spool", self.events)
        config = {"driver_memory": "2g"}
        self.config = Config.model_validate(
            {
                "data_dir": home,
                "spark": config,
                "listeners": [
                    {"name": "b", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"}
                ],
            }
        )
        self.spark = session.start(self.config.spark)
        assert self.spark._jvm is not None
        self._java = int(self.spark._jvm.java.lang.ProcessHandle.current().pid())

    def processor(self) -> float:
        """CPU seconds of Java and of this process."""
        stat = Path(f"/proc/{self._java}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, stat[11:13])) / _TICKS + time.process_time()

    def cost(self, do: Callable[[], object]) -> Cost:
        found = []
        for _ in range(self.options.rounds + 1):
            cpu, wall = self.processor(), time.monotonic()
            do()
            found.append(Cost(self.processor() - cpu, time.monotonic() - wall))
        return min(found[1:])

    def read(self) -> Any:
        return self.spark.read.schema(SCHEMA_DDL).parquet(f"file://{self.home}/spool")

    def write(self, rows: Any, *partitions: str) -> None:
        shutil.rmtree(self.home / "out", ignore_errors=True)
        rows.write.partitionBy(*partitions).parquet(f"file://{self.home}/out")

    def written(self) -> int:
        return sum(p.stat().st_size for p in (self.home / "out").rglob("*.parquet"))

    def partitioned(self) -> Any:
        return self.read().selectExpr(
            "*", "'events' AS table", "cast(received_at AS date) AS date"
        )

    def count(self) -> None:
        files = [("protocol=x", p) for p in (self.home / "out").rglob("*.parquet")]
        stats.count(files, timedelta(minutes=1))

    def backlog(self) -> float:
        """The whole job, from a spool to tables; the second time, with Java warm."""
        for round_ in range(2):
            data = self.home / f"job-{round_}"
            shutil.copytree(self.home / "spool", data / "spool")
            config = self.config.model_copy(update={"data_dir": data})
            begin = time.monotonic()
            job.run(config, self.spark, available_now=True)
        return time.monotonic() - begin


def run(report: Report, bench: Bench) -> None:
    million = 1e6 / bench.events

    def noop(rows: Any) -> None:
        rows.write.format("noop").mode("append").save()

    def add(name: str, cost: Cost) -> Cost:
        value = f"{cost.cpu * million:.1f} s CPU, {cost.wall * million:.1f} s"
        report.add(f"{name}, a million events", value)
        return cost

    add("read", bench.cost(lambda: noop(bench.read())))
    made = add(
        "read and make rows", bench.cost(lambda: noop(tables.events(bench.read())))
    )
    add("plain copy", bench.cost(lambda: bench.write(bench.read())))
    copied = add(
        "copy in our folders",
        bench.cost(
            lambda: bench.write(bench.partitioned(), "table", "protocol", "date")
        ),
    )
    report.add("bytes an event, copied", bench.written() / bench.events, "B")
    ours = add(
        "our rows in our folders",
        bench.cost(
            lambda: bench.write(tables.events(bench.read()), *tables.PARTITIONS)
        ),
    )
    report.add("bytes an event, ours", bench.written() / bench.events, "B")
    report.add("bytes an event, sent", bench.bytes / bench.events, "B")
    counted = add("counts for stats", bench.cost(bench.count))
    total = ours.cpu + counted.cpu
    report.add("share of making rows", made.cpu / total * 100, "%")
    report.add("share of counts", counted.cpu / total * 100, "%")
    claim = "CPU of our rows and counts, times a copy in our folders"
    report.claims.append(Claim(claim, total / copied.cpu, "x", 2))
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


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with workplace(options) as home:
        report = Report("spark: spool to tables", machine(home))
        run(report, Bench(home / "spark", options))
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
