"""The job: `gateway spark --config FILE`, or `spark-submit job.py --config FILE`."""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway import DEFAULT_CONFIGS, default_config
from gateway.spark.commit.handover import HandOverFailed
from gateway.spark.commit.ledger import Broken
from gateway.spark.jvm import java, session
from gateway.spark.run import admin, auditing, progress
from gateway.spark.run.failure import Failed, in_words, lacking, reason
from gateway.spark.run.health import Health
from gateway.spark.run.running import Job
from gateway.spark.source import spool_of
from gateway.standard import when_the_parent_ends
from gateway.store.names import parse_file_name
from gateway.store.readers.lake import INTERNAL
from gateway.store.system.lock import Lock, Locked, lock, lock_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("gateway.spark")

Start = Callable[["SparkSession", Path], "StreamingQuery"]
"""Begins a query of one's own, told the `data_dir`."""

_LOOK = 0.2  # seconds between looks at the queries
_TEND = 1.0
_SAY = 2.0
_LITTLE = (
    1_000_000  # events: about as many cost the same with either of Java's compilers
)
_PATIENCE = 30.0  # for the Java of a killed job to be gone


class Stopped(BaseException):
    """The job was asked to stop while it was starting."""


def run(
    config: Any,
    spark: SparkSession | None = None,
    stop_event: threading.Event | None = None,
    *,
    available_now: bool = False,
    beside: Start | None = None,
    report: progress.Report = lambda news: None,
) -> None:
    """Run until *stop_event*, or with *available_now* until the spool is read.

    The query that *beside* begins runs in the same session; then files of a day stay as they
    are until it is over, or it would read their rows again.  Starts a session and stops it
    unless *spark* is given.  Raises `Failed` when it can not go on: the tables are whole then
    too, and the next start goes on from there.
    """
    if not config.spool.has_job:
        raise Failed(
            f"spool.after: {config.spool.after} says that there is no job, and the gateway takes files "
            "away itself: set it to archive, and restart the gateway, before this job"
        )
    stop = stop_event or threading.Event()
    internal = config.data_dir / "lake" / INTERNAL
    with contextlib.ExitStack() as held:
        try:
            held.callback(lock(internal / "lock", "gateway spark").release)
        except Locked as why:
            raise Failed(str(why)) from None
        except OSError as why:
            raise Failed(f"{why.filename or internal}: {why.strerror or why}") from None
        held.callback(_alone_in(spool_of(config)).release)
        _run(
            config, spark, stop, report,
            available_now=available_now, beside=beside,
        )  # fmt: skip


def _alone_in(spool: Path) -> Lock:
    """Or each of two would find files gone that the other has taken."""
    try:
        spool.mkdir(parents=True, exist_ok=True)
        return lock_directory(spool)
    except Locked:
        raise Failed(
            f"{spool} is read by another gateway spark, of another data_dir: a spool"
            " directory has one job. Stop one of the two, or give it a spool.directory"
            " of its own"
        ) from None
    except OSError as why:
        raise Failed(f"{why.filename or spool}: {why.strerror or why}") from None


def _run(
    config: Any,
    spark: SparkSession | None,
    stop: threading.Event,
    report: progress.Report,
    *,
    available_now: bool,
    beside: Start | None,
) -> None:
    health = Health(config.data_dir / "lake")

    def work() -> None:
        _work(
            config, spark, stop, health, report,
            available_now=available_now, beside=beside,
        )  # fmt: skip

    _told(config, health, report, work)


def _told(
    config: Any, health: Health, report: progress.Report, work: Callable[[], None]
) -> None:
    """Run, and report how it ended: also why it never came to a batch."""
    failed: str | None = "ended by an error"
    try:
        health.begin()
        work()
        failed = None
    except (Stopped, KeyboardInterrupt):  # PySpark's own way to deal with ^C
        failed = None
        report(_stopped(config))
        raise
    except OSError as why:
        failed = reason(why)
        raise Failed(failed) from why
    except BaseException as why:
        failed = str(why) if isinstance(why, Failed) else reason(why)
        raise
    finally:
        _quietly(lambda: health.ended(failed))


def _work(
    config: Any,
    spark: SparkSession | None,
    stop: threading.Event,
    health: Health,
    report: progress.Report,
    *,
    available_now: bool,
    beside: Start | None,
) -> None:
    internal = config.data_dir / "lake" / INTERNAL
    mine, ours = None, spark is None
    try:
        report({"state": "starting"})
        if spark is None:
            health.say(doing="starting Java")
            brief = available_now and _is_little(config)
            spark = mine = session.of(config, brief=brief)
            if stop.is_set():
                report(_stopped(config))
                return
        health.say(doing="waiting for the Java of another job")
        with _JavaLock(spark, internal / "lock-java", stop):
            health.say(doing="looking at what the last one left")
            with _beside(beside, config, spark, stop):
                with in_words():
                    open_day = beside is None
                    job = Job(config, spark, health, report, open_day=open_day)
                _loop(job, stop, report, available_now=available_now)
        report(_stopped(config))
    except (Stopped, KeyboardInterrupt):
        if ours:
            session.end_java()
        raise
    except ModuleNotFoundError as why:
        raise lacking(config, why) from why
    except (Broken, HandOverFailed, java.NoJava, OSError, ValueError) as why:
        raise Failed(reason(why)) from why
    finally:
        if mine is not None:
            _quietly(mine.stop)


def _is_little(config: Any) -> bool:
    """Whether the spool has so few events that compiling for them costs more than it saves."""
    if config.spool.bucket is not None:
        return False
    names = (parse_file_name(path.name) for path in spool_of(config).glob("*"))
    return sum(file.events for file in names if file is not None) <= _LITTLE


@contextlib.contextmanager
def _beside(
    start: Start | None, config: Any, spark: SparkSession, stop: threading.Event
) -> Iterator[None]:
    """Run the query of *start* meanwhile.

    *stop* is set where it ends by itself, and `Failed` is raised where it failed.
    """
    if start is None:
        yield
        return
    query, failures = start(spark, config.data_dir), list[str]()

    def wait() -> None:
        try:
            query.awaitTermination()
        except Exception as why:
            # While we stop, Java may go away under this thread: that is no failure.
            if not stop.is_set():
                failures.append(str(why).partition("\n=== Streaming Query")[0])
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    yield
    query.stop()
    if failures:
        raise Failed(f"the query beside the job has failed: {failures[0]}")


def _stopped(config: Any) -> dict[str, Any]:
    return {"state": "stopped", "java": str(session.noise_of(config))}


def _loop(
    job: Job, stop: threading.Event, report: progress.Report, *, available_now: bool
) -> None:
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        job.start(available_now=available_now)
        report({"state": "running"})
        turns = _Turn(job.tend, _TEND), _Turn(job.say, _SAY)
        while not job.over() and not stop.wait(_LOOK):
            for turn in turns:
                turn.take()
        if available_now:
            job.house.expiry.finish()
            if not stop.is_set():
                job.house.maintain()
        job.stop()
        job.clean()
        job.say(last=True)
    except (Py4JJavaError, PySparkException) as why:
        _quietly(job.stop)
        raise Failed(reason(why)) from why
    except (Py4JError, ConnectionError) as why:
        raise Failed(job.incomplete.java_ended(why)) from why
    except BaseException:
        _quietly(job.stop)
        raise


class _Turn:
    """Something that is done now and then, a third of the time at the most.

    Where a week of files waits a look takes seconds, and the batches need the CPU, too.
    """

    def __init__(self, do: Callable[[], None], seconds: float) -> None:
        self._do = do
        self._seconds = seconds
        self._due = time.monotonic() + seconds

    def take(self) -> None:
        """Do it, if it is time."""
        begun = time.monotonic()
        if begun >= self._due:
            self._do()
            ended = time.monotonic()
            self._due = max(begun + self._seconds, ended + 2 * (ended - begun))


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
    """Do one of the last things; the job ends for a better reason than that this failed."""
    try:
        last()
    except Exception as why:
        _log.debug("%s", why)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `gateway spark`."""
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", default=Path(default_config()),
        help=f"the gateway's configuration (default: {' or '.join(DEFAULT_CONFIGS)})",
    )  # fmt: skip
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


def start(options: argparse.Namespace, beside: Start | None = None) -> int:
    """Run with these options, and a query *beside*; returns 0 (stopped), 1 (failed) or 2 (wrong use)."""
    from gateway.config import Invalid, load

    try:
        config = load(options.config)
    except Invalid as why:
        hint = "" if options.config.exists() else "; say --config FILE"
        sys.stderr.write(f"gateway spark: {why}{hint}\n")
        return 2
    progress.start_logging(config.logging)
    stop, started = threading.Event(), threading.Event()
    _stop_on_signals(stop, started)
    tell = progress.as_json if options.json else progress.as_text

    def report(news: Mapping[str, Any]) -> None:
        if news.get("state", "starting") != "starting":
            started.set()
        tell(news)

    try:
        with admin.serving(config), auditing.running(config, options):
            once = options.once
            run(config, None, stop, available_now=once, beside=beside, report=report)
    except Failed as why:
        _log.error("%s", why)
        return 1
    except (Stopped, KeyboardInterrupt):
        return 0
    return 0


def _stop_on_signals(stop: threading.Event, started: threading.Event) -> None:
    """The first signal finishes the batch, the second kills.  Before there can be one it
    ends the start, wherever that is.
    """

    def stopping(number: int, frame: object) -> None:
        # A parent that dies with several threads says so once for each of them.
        when_the_parent_ends(0)
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        stop.set()
        if not started.is_set():
            raise Stopped

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stopping)

    def once_more(number: int, frame: object) -> None:
        if not started.is_set():
            raise Stopped

    hook = sys.unraisablehook

    def lost(what: Any) -> None:
        # Beside a fork Python runs code of its own, out of which no exception gets.
        if isinstance(what.exc_value, Stopped):
            signal.signal(signal.SIGALRM, once_more)
            signal.setitimer(signal.ITIMER_REAL, _LOOK)
        else:
            hook(what)

    sys.unraisablehook = lost


if __name__ == "__main__":
    sys.exit(main())
