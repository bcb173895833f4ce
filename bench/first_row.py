"""How long it takes from `gateway run`, in an empty folder, to the first row in the table.

    python bench/first_row.py
    python bench/first_row.py --times 3

An event is sent as soon as somebody takes it; the row is there when `gateway table` would
show it.  The first start of all is told apart: Spark's classes are not recorded yet (`python -m
gateway.spark.jvm.recording`), which this does next, in a cache of its own.  Beside them, in the
same run, what any program of Spark spends: a bare session that writes one row as Parquet.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from _machine import machine
from _report import Claim, Report, arguments, main, workplace
from _together import address, wait

from gateway.cli.table import files

_MOST_SECONDS = 30.0
_BARE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = spark.config("spark.sql.warehouse.dir", "warehouse").getOrCreate()
spark.createDataFrame([(1, "a")], "n int, text string").write.parquet("bare")
spark.stop()
"""


def first_row(home: Path, env: dict[str, str]) -> float:
    """Seconds from the start in that empty folder to the first row."""
    home.mkdir()
    gateway = [sys.executable, "-m", "gateway"]
    begun = time.monotonic()
    log = home / "log"
    with log.open("wb") as out:
        run = subprocess.Popen([*gateway, "run"], cwd=home, env=env, stdout=out)
    try:
        wait(run, log, lambda: "takes events" in log.read_text())
        listener = address(home)
        subprocess.run(
            [*gateway, "send", "lumberjack", listener, "--generate", "1"],
            cwd=home, env=env, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        table = home / "gateway-data" / "lake" / "events"
        wait(run, log, lambda: any(files(table)))
        return time.monotonic() - begun
    finally:
        run.send_signal(signal.SIGTERM)  # heard in the background, too
        run.wait()


def bare(home: Path, env: dict[str, str]) -> float:
    """Seconds for Spark alone."""
    home.mkdir()
    begun = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", _BARE], cwd=home, env=env, check=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return time.monotonic() - begun


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument(
        "--times", type=int, default=3, help="of each; the median counts"
    )
    options = parser.parse_args()
    with workplace(options) as home:
        report = Report("gateway run, to the first row", machine(home))
        env = {**os.environ, "XDG_CACHE_HOME": str(home / "cache")}
        for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
            env.pop(name, None)
        first = first_row(home / "first", env)
        subprocess.run(
            [sys.executable, "-m", "gateway.spark.jvm.recording"], env=env, check=True
        )
        later = [first_row(home / f"later-{n}", env) for n in range(options.times)]
        alone = [bare(home / f"bare-{n}", env) for n in range(options.times)]
    median, spark = statistics.median(later), statistics.median(alone)
    report.add("the very first start", first, "s")
    report.add("later ones, median", median, "s")
    report.add("Spark alone: a session and one write, median", spark, "s")
    report.add("later ones: beside Spark alone", median / spark, "x")
    report.notes.append("an event is sent as soon as the gateway takes it")
    report.claims.append(Claim("later ones, median", median, "s", _MOST_SECONDS))
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
