"""The Spark job with a streaming query of one's own beside it, in one session.

    def start(spark, data):                       # *data* is the `data_dir`
        rows = spark.readStream.schema(…).parquet(f"{data}/lake/events")
        return rows.writeStream.foreachBatch(push).….start()

    sys.exit(beside.run("gateway.yaml", start))

One Java instead of two.  `put` writes what the query computed as a file of an outbox, from
where the gateway pushes it to Pomelo's clients.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.config import Invalid, load
from gateway.spark import job
from gateway.spark.commit.ledger import Broken
from gateway.spark.jvm import java, session
from gateway.spark.run import progress
from gateway.spark.run.failure import Failed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def put(outbox: Path, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the file *name* of the directory *outbox*, a row a line; it appears whole.

    A name that was pushed already is not pushed again: a batch that Spark repeats after
    a crash must have the same one.
    """
    outbox.mkdir(parents=True, exist_ok=True)
    hidden = outbox / f".{name}"
    hidden.write_text("\n".join(json.dumps(row) for row in rows))
    hidden.rename(outbox / name)


def run(
    config_path: str | Path,
    start: Callable[[SparkSession, Path], StreamingQuery],
    report: progress.Report = progress.as_json,
) -> int:
    """Run the job and the query that *start* begins, until SIGTERM or SIGINT.

    Returns the exit status: 0 stopped, 1 if one of the two failed, 2 for a configuration
    that is none; standard error says why.
    """
    try:
        config = load(config_path)
    except Invalid as why:
        sys.stderr.write(f"{why}\n")
        return 2
    progress.start_logging(config.logging)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        spark = session.of(config)
    except (ModuleNotFoundError, java.NoJava, Broken) as why:
        sys.stderr.write(f"{why}\n")
        return 1
    try:
        query = start(spark, config.data_dir)
        failures = _watch(query, stop)
        # The query would read rows again whenever their files are written anew.
        job.run(config, spark, stop, open_day=False, report=report)
        query.stop()
    except Failed as why:
        sys.stderr.write(f"{why}\n")
        return 1
    finally:
        spark.stop()
    for reason in failures:
        sys.stderr.write(f"the query has failed: {reason}\n")
    return 1 if failures else 0


def _watch(query: StreamingQuery, stop: threading.Event) -> list[str]:
    """Set *stop* when the query ends by itself; the list gets the reason."""
    failures: list[str] = []

    def wait() -> None:
        try:
            query.awaitTermination()
        except Exception as why:
            # While we stop, Java may go away under this thread: that is no failure.
            if not stop.is_set():
                failures.append(str(why).partition("\n=== Streaming Query")[0])
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    return failures
