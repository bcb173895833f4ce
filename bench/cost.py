"""What a row costs on its whole way to a table, each part beside a peer of the same run.

    python bench/cost.py                          all of it, on a quiet machine (25 minutes)
    python bench/cost.py --case rows,start,small

rows    Documents of 1.26 KB as Filebeat ships them from a cluster, with twenty columns of
        the user's own.  The job takes 300,000 of them, and then 900,000: CPU of a row of
        these.  Beside it a job by hand: the same documents as lines of text, `from_json`,
        the same columns, the whole document as `body`, a folder a day; and a copy of the
        spool's own columns.
start   CPU of `gateway spark --once` for the first 300,000 of them, from start to end.
        Beside it the job by hand with `availableNow`.
small   `gateway run` as it is written the first time: CPU and memory of all its processes
        while nothing comes, and then at 500 events/s, after a minute of them.  Seconds from
        `received_at` until a row can be read.  Beside it a bare session of Spark.
daemon  What an event costs before that, a window's time to its acknowledgement, and Pomelo
        with one request in flight beside npm's: by `lumberjack.py` and `pomelo.py`.

Compiling is what Java's compilers took of the CPU, which ends some minutes after a start.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from _documents import Shippers
from _machine import machine
from _report import Broken, Claim, Report, arguments, main, workplace
from _together import address, wait
from _tree import Spent, Watch, spent

from gateway.cli.table import files
from gateway.event import SCHEMA
from gateway.store.names import file_name

_FILE_ROWS, _GROUP_ROWS = 50_000, 10_000
_GATEWAY = [sys.executable, "-m", "gateway"]
_RATE, _WINDOW = 500, 50
_OF_DAEMON = {"lumberjack": "sustained,sustained-documents,latency", "pomelo": "depth1"}

#: The columns of the user: name, path in the document, type.
COLUMNS = (
    ("log_path", "log.file.path", "string"),
    ("log_offset", "log.offset", "bigint"),
    ("stream", "stream", "string"),
    ("input", "input.type", "string"),
    ("ecs", "ecs.version", "string"),
    ("arch", "host.architecture", "string"),
    ("platform", "host.os.platform", "string"),
    ("os_version", "host.os.version", "string"),
    ("kernel", "host.os.kernel", "string"),
    ("agent_id", "agent.id", "string"),
    ("agent_version", "agent.version", "string"),
    ("container_id", "container.id", "string"),
    ("runtime", "container.runtime", "string"),
    ("image", "container.image.name", "string"),
    ("namespace", "kubernetes.namespace", "string"),
    ("node_name", "kubernetes.node.name", "string"),
    ("pod", "kubernetes.pod.name", "string"),
    ("pod_uid", "kubernetes.pod.uid", "string"),
    ("pod_ip", "kubernetes.pod.ip", "string"),
    ("app", "kubernetes.labels.app", "string"),
)


def documents(first: int, count: int) -> Iterator[list[bytes]]:
    """The payloads of each file."""
    shippers = Shippers(1, first)
    for at in range(first, first + count, _FILE_ROWS):
        made: list[bytes] = []
        while len(made) < _FILE_ROWS:
            made += shippers.window("kubernetes", at + len(made), 2000)
        yield made[:_FILE_ROWS]


def publish(folder: Path, first: int, count: int) -> None:
    """The documents as spool files in `spool`, and as lines of text in `lines`."""
    spool, lines = folder / "spool", folder / "lines"
    spool.mkdir(parents=True)
    lines.mkdir()
    same = {"node": "gw", "protocol": "lumberjack", "listener": "beats"}
    same |= {"session": "s-1", "peer": "192.0.2.1:4711", "kind": "data"}
    same |= {"content_type": "application/json"}
    for lsn, made in zip(
        range(first, first + count, _FILE_ROWS), documents(first, count), strict=True
    ):
        columns: dict[str, Any] = {
            "lsn": range(lsn, lsn + len(made)),
            "received_at": [datetime.now(UTC)] * len(made),
            "seq": range(len(made)),
            "payload": made,
            "attributes": [None] * len(made),
        }
        arrays = [
            pa.array(columns[one.name], one.type)
            if one.name in columns
            else pa.array([same.get(one.name)] * len(made)).cast(one.type)
            for one in SCHEMA
        ]
        pq.write_table(
            pa.table(arrays, schema=SCHEMA),
            spool / file_name("gw", "a" * 10, lsn, lsn + len(made) - 1),
            compression="zstd",
            write_page_checksum=True,
            row_group_size=_GROUP_ROWS,  # of some 13 MB, as the gateway makes them
        )
        (lines / f"{lsn:09d}.txt").write_bytes(b"\n".join(made) + b"\n")


def settings(data: Path) -> dict[str, Any]:
    """A configuration of the job alone."""
    own = {name: {"path": path, "type": _named(kind)} for name, path, kind in COLUMNS}
    return {
        "data_dir": str(data),
        "node": "gw",
        "listeners": [
            {"name": "beats", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"}
        ],
        "spark": {"columns": own, "admin": {"listen": None}},
    }


def _named(kind: str) -> str:
    return {"bigint": "long"}.get(kind, kind)


_BY_HAND = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession, functions as f
columns = {columns!r}
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "1g").config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.parquet.compression.codec", "zstd")
    .config("spark.driver.extraJavaOptions", "-XX:-DontCompileHugeMethods")
    .config("spark.sql.warehouse.dir", "warehouse").getOrCreate())
tree = {{"@timestamp": "string", "message": "string"}}
for _, path, kind in columns:
    at = tree
    *above, last = path.split(".")
    for key in above:
        at = at.setdefault(key, {{}})
    at[last] = kind
def ddl(node):
    return "struct<" + ", ".join(
        f"`{{k}}`: {{ddl(v) if isinstance(v, dict) else v}}" for k, v in node.items()) + ">"
schema = ddl(tree)
def job(folder):
    rows = spark.readStream.schema("value string").option("maxFilesPerTrigger", 4).text(f"{{folder}}/lines")
    rows = rows.select(f.from_json("value", schema).alias("j"), "value")
    event_time = f.expr("try_cast(j.`@timestamp` AS timestamp)")
    rows = rows.select(
        event_time.alias("event_time"), f.expr("j.message").alias("message"),
        *(f.expr("j." + ".".join(f"`{{k}}`" for k in path.split("."))).alias(name) for name, path, _ in columns),
        f.col("value").alias("body"), f.current_date().alias("date"))
    query = (rows.writeStream.format("parquet").partitionBy("date").trigger(availableNow=True)
        .option("checkpointLocation", f"{{folder}}/checkpoint").option("path", f"{{folder}}/table").start())
    query.awaitTermination()
"""

_COPY = """
import sys
from gateway.spark.source import SCHEMA_DDL
from pyspark.sql import SparkSession, functions as f
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "1g").config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.parquet.compression.codec", "zstd")
    .config("spark.sql.warehouse.dir", "warehouse").getOrCreate())
def job(folder):
    rows = spark.readStream.schema(SCHEMA_DDL).option("maxFilesPerTrigger", 4).parquet(f"{folder}/spool")
    rows = rows.withColumn("date", f.current_date())
    query = (rows.writeStream.format("parquet").partitionBy("protocol", "date").trigger(availableNow=True)
        .option("checkpointLocation", f"{folder}/checkpoint").option("path", f"{folder}/table").start())
    query.awaitTermination()
"""

_OURS = """
import sys
from pathlib import Path
from gateway.config import load
from gateway.spark import job as jobs
from gateway.spark.jvm import session
config = load(Path(sys.argv[1], "gateway.yaml"))
spark = session.of(config)
def job(folder):
    jobs.run(load(Path(folder, "gateway.yaml")), spark, available_now=True)
"""

_TWICE = """
for folder in sys.argv[1:]:
    print("begins", flush=True)
    sys.stdin.readline()
    job(folder)
print("over", flush=True)
sys.stdin.readline()
"""


def in_turns(program: str, folders: list[Path], home: Path) -> list[Spent]:
    """What the program had spent before each folder, and at the end."""
    found = []
    with (home / "job.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", program + _TWICE, *map(str, folders)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=home,
        )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() in (b"begins", b"over"):
            found.append(spent(process.pid))
            process.stdin.write(b"\n")
            process.stdin.flush()
    if process.wait() or len(found) != len(folders) + 1:
        raise Broken((home / "job.log").read_text()[-4000:])
    return found


def to_its_end(command: list[str], home: Path) -> Spent:
    """What a program had spent when it ended."""
    with (home / "once.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=home
        )
        with Watch(process) as watch:
            status = process.wait()
    if status:
        raise Broken((home / "once.log").read_text()[-4000:])
    return watch.last


def size_of(folder: Path) -> int:
    """Bytes of the Parquet files in a table."""
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def prepared(home: Path, first: int, count: int) -> Path:
    """A new folder *home* with documents, and a configuration for them."""
    publish(home, first, count)
    (home / "gateway.yaml").write_text(json.dumps(settings(home)))
    return home


def copied(source: Path, home: Path) -> Path:
    """The same documents once more, for another job."""
    shutil.copytree(source, home, copy_function=os.link)
    (home / "gateway.yaml").unlink()
    (home / "gateway.yaml").write_text(json.dumps(settings(home)))
    return home


def rows(report: Report, home: Path, options: argparse.Namespace) -> None:
    """What a row costs once Java is warm."""
    by_hand = _BY_HAND.format(columns=COLUMNS)
    jobs = {"ours": _OURS, "by hand": by_hand, "a copy": _COPY}
    us: dict[str, float] = {}
    for name, program in jobs.items():
        work = home / f"rows {name}".replace(" ", "-")
        folders = [copied(home / one, work / one) for one in ("warm", "many")]
        _, begun, end = in_turns(program, folders, work)
        us[name] = (end.total - begun.total) / options.rows * 1e6
        report.add(f"rows, {name}: CPU of a row", us[name], "µs")
        part = (end.compiling - begun.compiling) / options.rows * 1e6
        report.add(f"rows, {name}: of it compiling", part, "µs")
        table = folders[1] / ("lake/events" if name == "ours" else "table")
        report.add(f"rows, {name}: bytes of a row", size_of(table) / options.rows, "B")
        shutil.rmtree(work)
    report.add("rows: ours beside by hand", us["ours"] / us["by hand"], "x")
    report.claims.append(Claim("CPU of a row of 1.26 KB", us["ours"], "µs", 12))


def start(report: Report, home: Path, options: argparse.Namespace) -> None:
    """What a start costs that takes a few rows and ends."""
    work = copied(home / "warm", home / "start-ours")
    ours = to_its_end(
        [*_GATEWAY, "spark", "--once", "--config", str(work / "gateway.yaml")], work
    )
    hand = copied(home / "warm", home / "start-hand")
    program = _BY_HAND.format(columns=COLUMNS) + "job(sys.argv[1])\nspark.stop()\n"
    by_hand = to_its_end([sys.executable, "-c", program, str(hand)], hand)
    for name, one in {"ours": ours, "by hand": by_hand}.items():
        report.add(f"start, {name}: CPU", one.total, "s")
        report.add(f"start, {name}: of it compiling", one.compiling, "s")
    report.add("start: ours beside by hand", ours.total / by_hand.total, "x")
    name = f"CPU of a start with {options.warm:,} rows"
    report.claims.append(Claim(name, ours.total, "s", 12))
    shutil.rmtree(work)
    shutil.rmtree(hand)


class Fresh(threading.Thread):
    """Watches a table: seconds from the oldest `received_at` of new rows until they are there.

    Files that compaction makes have no new rows.
    """

    def __init__(self, table: Path) -> None:
        super().__init__(daemon=True)
        self._table = table
        self._over = threading.Event()
        self._known: set[Path] = set()
        self._lsn, self._since = 0, time.time()
        self.seconds: list[float] = []

    def run(self) -> None:
        while not self._over.wait(0.02):
            for path in set(files(self._table)) - self._known:
                self._known.add(path)
                found = pq.read_table(path, columns=["lsn", "received_at"])
                rows = found.filter(pc.greater(found["lsn"], self._lsn))
                if not rows:
                    continue
                oldest = min(rows["received_at"].to_pylist()).timestamp()
                if oldest > self._since:
                    self.seconds.append(time.time() - oldest)
                self._lsn = max(rows["lsn"].to_pylist())

    def stop(self) -> None:
        """The last look."""
        self._over.set()
        self.join()


class Sender:
    """A shipper of small windows to one gateway, one after the other."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._documents = Shippers(7, 1)
        self._windows = 0

    def send(self) -> None:
        """One window, to its acknowledgement."""
        self._windows += 1
        made = self._documents.window("access", self._windows, _WINDOW)
        frames = b"".join(
            b"2J" + struct.pack(">II", number, len(body)) + body
            for number, body in enumerate(made, 1)
        )
        packed = zlib.compress(frames)
        window = b"2W" + struct.pack(">I", _WINDOW)
        self._socket.sendall(window + b"2C" + struct.pack(">I", len(packed)) + packed)
        answer = b""
        while answer[2:] != struct.pack(">I", _WINDOW):
            answer = b"" if len(answer) == 6 else answer
            got = self._socket.recv(6 - len(answer))
            if not got:
                raise Broken("the gateway closed the connection")
            answer += got

    def flow(self, seconds: float) -> None:
        """So long, at `_RATE` events a second."""
        begun, sent = time.monotonic(), 0
        while (now := time.monotonic() - begun) < seconds:
            if (early := sent / _RATE - now) > 0:
                time.sleep(early)
            self.send()
            sent += _WINDOW


_BARE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = spark.config("spark.driver.memory", "1g").config("spark.sql.warehouse.dir", "warehouse").getOrCreate()
spark.createDataFrame([(1, "a")], "n int, text string").write.parquet("bare")
print("over", flush=True)
sys.stdin.readline()
"""


def bare_memory(home: Path) -> float:
    """Bytes of a session of Spark that has written one row."""
    home.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", _BARE], cwd=home,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    found = sum(spent(process.pid, memory=True).memory.values())
    process.communicate(b"\n")
    return found


def small(report: Report, home: Path, options: argparse.Namespace) -> None:
    """A small flow through `gateway run`."""
    # What it says is no part of the report.
    recording = [sys.executable, "-m", "gateway.spark.jvm.recording"]
    subprocess.run(recording, check=True, stdout=sys.stderr)
    work = home / "small"
    work.mkdir()
    log = work / "log"
    with log.open("wb") as out:
        run = subprocess.Popen([*_GATEWAY, "run"], cwd=work, stdout=out, stderr=out)
    try:
        wait(run, log, lambda: "takes events" in log.read_text())
        listener = address(work)
        table = work / "gateway-data" / "lake" / "events"
        sender = Sender(listener)
        sender.send()
        wait(run, log, lambda: any(files(table)))
        time.sleep(options.seconds / 6)
        _added(report, "small, idle", run, options.seconds / 3, time.sleep)
        sender.flow(options.seconds)
        fresh = Fresh(table)
        fresh.start()
        cpu = _added(report, "small, 500/s", run, options.seconds, sender.flow)
        fresh.stop()
    finally:
        run.send_signal(signal.SIGTERM)
        run.wait()
    late = statistics.quantiles(fresh.seconds, n=100)
    report.add("small, 500/s: until a row can be read, p50", late[49], "s")
    report.add("small, 500/s: until a row can be read, p99", late[98], "s")
    report.add(
        "a bare session of Spark: memory", bare_memory(home / "bare") / 2**20, "MiB"
    )
    report.claims.append(Claim("CPU of gateway run at 500/s", cpu, "% of a core", 15))
    report.claims.append(Claim("oldest row of a batch, p99", late[98], "s", 3))
    most = report.numbers["small, 500/s: memory"]
    report.claims.append(Claim("memory of gateway run", most, "MiB", 800))


def _added(
    report: Report,
    name: str,
    run: subprocess.Popen[bytes],
    seconds: float,
    do: Callable[[float], None],
) -> float:
    """Percent of a core that all processes took while *do* did; all of it in the report."""
    before, begun = spent(run.pid), time.monotonic()
    do(seconds)
    after, took = spent(run.pid, memory=True), time.monotonic() - begun
    for kind, cpu in after.cpu.items():
        part = (cpu - before.cpu.get(kind, 0.0)) / took * 100
        report.add(f"{name}: CPU, {kind}", part, "% of a core")
        report.add(f"{name}: memory, {kind}", after.memory[kind] / 2**20, "MiB")
    compiling = (after.compiling - before.compiling) / took * 100
    report.add(f"{name}: CPU, of it compiling", compiling, "% of a core")
    cpu = (after.total - before.total) / took * 100
    report.add(f"{name}: CPU", cpu, "% of a core")
    report.add(f"{name}: memory", sum(after.memory.values()) / 2**20, "MiB")
    return cpu


def daemon(report: Report, home: Path, options: argparse.Namespace) -> None:
    """What the daemon's own benchmarks say."""
    for script, case in _OF_DAEMON.items():
        work = home / script
        work.mkdir()
        path = str(Path(__file__).with_name(f"{script}.py"))
        words = ["--json", "--case", case, "--directory", str(work)]
        done = subprocess.run(
            [sys.executable, path, *words], stdout=subprocess.PIPE, check=False
        )
        if not done.stdout:
            raise Broken(f"{script}.py failed, see above")
        said = json.loads(done.stdout)
        for name, figure in said["figures"].items():
            report.rows.append((f"{script}, {name}", figure))
        for one in said["claims"]:
            del one["kept"]
            report.claims.append(Claim(**one))


_CASES = {"rows": rows, "start": start, "small": small, "daemon": daemon}


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--case", default=",".join(_CASES), help="of those above")
    parser.add_argument("--warm", type=int, default=300_000, help="rows before")
    parser.add_argument("--rows", type=int, default=900_000, help="rows that count")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a small flow")
    options = parser.parse_args()
    wanted = options.case.split(",")
    if unknown := set(wanted) - _CASES.keys():
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    with workplace(options) as home:
        report = Report("a row on its whole way", machine(home))
        if {"rows", "start"} & set(wanted):
            prepared(home / "warm", 1, options.warm)
        if "rows" in wanted:
            prepared(home / "many", options.warm + 1, options.rows)
        for name in wanted:
            _CASES[name](report, home, options)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
