"""Executors of their own processes, and a driver, killed while a batch is under way."""

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyspark
import pytest

from deadlines import environment, finish
from gateway.audit import audit
from gateway.sinks.delta import kind as delta
from gateway.sinks.iceberg import kind as iceberg
from gateway.spark.commit.formats import Format
from gateway.store.directories import Directories
from quick_java import OF_A_CLUSTER
from samples import some_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

KINDS: dict[str, Format] = {"delta": delta, "iceberg": iceberg}

#: The job as it is, on a master with two workers; at a step of a commit somebody dies.
JOB = """
import json, os, signal, sys
from pathlib import Path
from gateway.sink import kind_of
from gateway.spark import job

config, deaths, log = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
kind = type(kind_of(sys.argv[4]))
make, batches = kind.make, [0]
BACKEND = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"

def executors():
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\\0")
            session = os.getsid(int(path.name))
        except (OSError, ProcessLookupError):
            continue
        if session == os.getsid(0) and BACKEND in words:
            yield int(path.name)

def point(name):
    batches[0] += name == "begun"
    for batch, step, who in deaths:
        if (batch, step) == (batches[0], name):
            if who == "driver":
                os.kill(os.getpid(), signal.SIGKILL)
            for pid in [*executors()][:1]:
                os.kill(pid, signal.SIGKILL)
                with log.open("a") as file:
                    print(name, file=file)

def made(*given, **named):
    sink = make(*given, **named)
    sink._point = point
    return sink

kind.make = made
sys.exit(job.main(["--config", config, "--once"]))
"""


@pytest.fixture
def run(tmp_path, settings_file) -> Iterator[Callable[..., int]]:
    """The job until it ends, or kills itself; nothing of it is left."""
    sessions: list[int] = []

    def end() -> None:
        for session in sessions:
            try:
                os.killpg(session, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def begin(*deaths: tuple[int, str, str], sink: str = "parquet") -> int:
        settings = settings_file(
            master="local-cluster[2,1,512]",
            sink=sink,
            max_bytes_per_trigger="1MiB",
            compact=False,
            conf={"spark.executor.memory": "512m"},
        )
        words = [str(settings), json.dumps(deaths), str(tmp_path / "killed"), sink]
        process = subprocess.Popen(
            [sys.executable, "-c", JOB, *words],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=environment() | OF_A_CLUSTER, start_new_session=True,
        )  # fmt: skip
        sessions.append(process.pid)
        finish(process, seconds=240)
        return process.returncode

    yield begin
    end()


def fill(spool: Any) -> None:
    """Files for four batches."""
    for number in range(4):
        spool.put("gw", 1 + number * 300, [b"{", *(
            b'{"message": "%b"}' % os.urandom(2048).hex().encode() for _ in range(299)
        )], flaws={0: "invalid-json"})  # fmt: skip


def test_executors_and_the_driver_are_killed(run, spool, tmp_path, lake_events):
    """An executor before the rows are written, and after: its tasks go to another one.
    Then the driver, decided and not yet named: the next start ends that.  Each event is
    there once, and the audit says so."""
    fill(spool)
    deaths = [
        (1, "begun", "executor"),
        (2, "begun", "executor"),
        (2, "written", "executor"),
        (3, "decided", "driver"),
    ]
    assert run(*deaths) == -signal.SIGKILL
    killed = (tmp_path / "killed").read_text().split()
    assert killed == ["begun", "begun", "written"]
    lake = tmp_path / "data" / "lake"
    assert set(lake_events(lake).values()) <= {1}
    assert run() == 0
    assert lake_events(lake) == spool.produced
    report = audit(Directories.under(tmp_path / "data"))
    assert report.complete
    assert [node.in_lake for node in report.nodes] == [len(spool.produced)]


def counted(lake: Path, sink: str) -> int:
    """Events, by the table of counts, as others than Spark read it."""
    if sink == "delta":
        deltalake = pytest.importorskip("deltalake")
        table = deltalake.DeltaTable(str(lake / "delta" / "events_stats"))
        rows = table.to_pyarrow_table(columns=["events"])
    else:
        catalogs = pytest.importorskip("pyiceberg.catalog.sql")
        uri = f"sqlite:///{lake / 'iceberg' / 'catalog.db'}"
        table = catalogs.SqlCatalog("lake", uri=uri).load_table("gateway.events_stats")
        rows = table.scan().to_arrow()
    return sum(rows["events"].to_pylist())


@pytest.mark.needs_maven
@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_killed_while_a_format_commits(run, spool, tmp_path, sink):
    """An executor before a batch is committed, and before it is counted; then the driver,
    committed and not counted, and at the next start before its first batch.  Each event is
    in the table once, and counted once."""
    if not KINDS[sink].fits(pyspark.__version__):
        pytest.skip(f"no jar of {sink} fits Spark {pyspark.__version__}")
    fill(spool)
    deaths = [
        (1, "begun", "executor"),
        (2, "begun", "executor"),
        (2, "committed", "executor"),
        (3, "committed", "driver"),
    ]
    assert run(*deaths, sink=sink) == -signal.SIGKILL
    killed = (tmp_path / "killed").read_text().split()
    assert killed == ["begun", "begun", "committed"]
    assert run((1, "begun", "driver"), sink=sink) == -signal.SIGKILL
    assert run(sink=sink) == 0
    report = audit(Directories.under(tmp_path / "data"))
    assert report.complete
    assert [node.in_lake for node in report.nodes] == [len(spool.produced)]
    assert counted(tmp_path / "data" / "lake", sink) == len(spool.produced)


#: The job as it is; each step of a batch is a line.
SAYING = """
import sys
from pathlib import Path
from gateway.sink import kind_of
from gateway.spark import job

kind, log = type(kind_of(sys.argv[3])), Path(sys.argv[2])
make = kind.make

def point(name):
    with log.open("a") as file:
        print(name, file=file)

def made(*given, **named):
    sink = make(*given, **named)
    sink._point = point
    return sink

kind.make = made
sys.exit(job.main(["--config", sys.argv[1], "--once"]))
"""

KILLS = some_of(20, 2)
#: Rules as the file has them from one start to another.
RULES = [
    {"ones": "[1-3]$", "fours": "[45]$", "sixes": "6$"},
    {"sixes": "[56]$", "ones": "[12]$", "sevens": "7$"},
    {"fours": "[4-9]$", "sixes": "6$", "sevens": "7$"},
]


def placed(rules: dict[str, str], number: int) -> str:
    """The table of an event whose message ends like this."""
    found = (name for name, one in rules.items() if re.search(one, str(number)))
    return next(found, "events")


def rows_of(lake: Path, sink: str, table: str, *columns: str) -> list[dict[str, Any]]:
    """Rows of a table, as others than Spark read it; none where there is none."""
    if sink == "delta":
        deltalake = pytest.importorskip("deltalake")
        folder = lake / "delta" / table
        if not folder.exists():
            return []
        found = deltalake.DeltaTable(str(folder)).to_pyarrow_table(columns=[*columns])
    else:
        tables = pytest.importorskip("pyiceberg.table")
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
        with closing(sqlite3.connect(lake / "iceberg" / "catalog.db")) as catalog:
            told = catalog.execute(query, (table,)).fetchone()
        if told is None:
            return []
        static = tables.StaticTable.from_metadata(told[0])
        found = static.scan(selected_fields=columns).to_arrow()
    return list(found.to_pylist())


@pytest.mark.needs_maven
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_killed_with_tables_by_rule(spool, tmp_path, settings_file, sink):
    """At random moments of a batch with three tables, while rules change from start to start:
    each event is in one table once, that of a rule of its time, and counted once.
    """
    if not KINDS[sink].fits(pyspark.__version__):
        pytest.skip(f"no jar of {sink} fits Spark {pyspark.__version__}")
    dice, log, each = (
        random.Random(f"{sink} {os.environ.get('SEED', '1')}"),
        tmp_path / "log",
        50,
    )

    def start(rules: dict[str, str]) -> subprocess.Popen[str]:
        where = {
            name: {"path": "message", "matches": one} for name, one in rules.items()
        }
        settings = settings_file(
            sink=sink,
            max_bytes_per_trigger="1",
            compact=False,
            tables={name: {"where": one} for name, one in where.items()},
        )
        return subprocess.Popen(
            [sys.executable, "-c", SAYING, str(settings), str(log), sink],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=environment() | OF_A_CLUSTER, start_new_session=True,
        )  # fmt: skip

    killed, files, used, after = 0, 0, [RULES[0]], []
    while killed < KILLS:
        for _ in range(3):
            first = 1 + files * each
            texts = [b'{"message": "%d"}' % n for n in range(first, first + each)]
            spool.put("gw", first, texts, flaws={0: "invalid-json"})
            files += 1
        log.write_text("")
        process, steps = start(used[-1]), dice.randrange(1, 12)
        try:
            while process.poll() is None and len(log.read_text().split()) < steps:
                time.sleep(0.02)
            time.sleep(dice.random() * 0.5)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        _, said = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), said[-2000:]
        killed += process.returncode != 0
        after += log.read_text().split()[-1:]
        used.append(dice.choice(RULES))
    log.write_text("")
    last = start(used[-1])
    finish(last, seconds=600)
    assert last.returncode == 0
    lake = tmp_path / "data" / "lake"
    names = ["events", *sorted({name for rules in used for name in rules})]
    there = [
        (row["lsn"], name if row["flaw"] is None else "quarantine")
        for name in names
        for row in rows_of(lake, sink, name, "lsn", "flaw")
    ]
    assert Counter(lsn for lsn, _ in there) == Counter(range(1, files * each + 1))
    for lsn, table in there:
        wanted = {placed(rules, lsn) for rules in used}
        assert table in ({"quarantine"} if lsn % each == 1 else wanted)
    counts: Counter[str] = Counter()
    for row in rows_of(lake, sink, "events_stats", "table", "events"):
        counts[row["table"]] += row["events"]
    assert counts == Counter(table for _, table in there)
    report = audit(Directories.under(tmp_path / "data"))
    assert report.complete, report
    print(f"{killed} kills, {len(there)} events, behind {dict(Counter(after))}")
