"""The job: `gateway spark --config FILE`, or `spark-submit job.py --config FILE`."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway import DEFAULT_CONFIGS, default_config
from gateway.sink import Kind, kind_of
from gateway.spark import (
    accepting,
    admin,
    auditing,
    deletion,
    footers,
    formats,
    heap,
    java,
    orders,
    partition,
    progress,
    requeue,
    s3a,
    session,
)
from gateway.spark.checkpoint import Checkpoint
from gateway.spark.cleaner import Cleaner
from gateway.spark.compact import Compactor
from gateway.spark.expiry import Expiry
from gateway.spark.gone import Gone
from gateway.spark.handover import HandOverFailed
from gateway.spark.health import Health, Waiting
from gateway.spark.inbox import Inbox
from gateway.spark.lakedisk import Lake
from gateway.spark.ledger import Broken, Hole, SpoolFile
from gateway.spark.places import Places
from gateway.spark.poison import Poison, make_readable
from gateway.spark.sink import Committed, Parts
from gateway.spark.source import limit_of, spool_of
from gateway.spark.upkeep import Upkeep
from gateway.store import deleted, job_word, removal_clock
from gateway.store.bucket import Bucket, BucketError
from gateway.store.job_word import JobWriter
from gateway.store.lake import INTERNAL
from gateway.store.lock import Locked, lock
from gateway.store.removal_clock import RemovalClock, Seen
from gateway.store.s3 import bucket_of
from gateway.store.statefile import StateFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("gateway.spark")

_LOOK = 0.2  # seconds between looks at the queries
_TEND = 1.0
_SAY = 2.0
_INBOX_BATCHES = 4  # of a bucket's files are here at once
_DAYS = 5.0  # that commits of Delta and Iceberg are kept, unless they are many
_FINISH = 600.0  # between attempts at a deletion of which something is left
_FINISH_TIMES = 10  # or so many times as long as it took: meanwhile there is no batch
_PATIENCE = 30.0  # for the Java of a killed job to be gone


class Stopped(BaseException):
    """It was asked to stop while it was starting."""


class Failed(Exception):
    """The job can not go on; the text says why."""


class Job:
    """The query and what goes on around it; `run` is the way in."""

    def __init__(
        self,
        config: Any,
        spark: SparkSession,
        health: Health,
        report: progress.Report,
        *,
        open_day: bool = True,
    ) -> None:
        from gateway.spark import query
        from gateway.spark.columns import Columns

        self._config = config
        self._spark = spark
        self._report = report
        self._disk = Lake()
        self._lake = config.data_dir / "lake"
        self._spool = spool_of(config)
        # The sink's thread appends, ours takes the list away: both are one step.
        self._committed: list[Committed] = []
        self._rows = 0
        self._health = health
        places = Places(self._lake, config.spark.deduplicate_horizon)
        self._places = places if config.spark.deduplicate else None
        checkpoint = Checkpoint(config.data_dir / "checkpoint" / "events", self._disk)
        kind = kind_of(config.spark.sink)
        resent = None if self._places is None else self._places.resent
        sink = kind.make(
            Parts(config, spark, checkpoint, self._disk, self._note, resent)
        )
        self._compacts = config.spark.compact and "compact" in kind.abilities
        self._sink = sink
        self._query = query.Query(
            spark,
            sink,
            checkpoint,
            self._spool,
            query.stream_of(
                config,
                spark,
                Columns.of(config.spark),
            ),
            limit=self._limit,
            trigger=config.spark.trigger,
        )
        self._poison = Poison(self._spool, config.data_dir / "poison", self._disk, sink)
        self._suspects = heap.Suspects(
            self._lake / INTERNAL / "heap.json", self._disk, heap.key_of(config.spark)
        )
        self._cleaner = self._new_cleaner()
        self._inbox = self._new_inbox(spark)
        self._upkeep = self._new_upkeep(kind, spark)
        self._upto: Mapping[str, int] | None = None
        """Where the bucket ended at the start, if no more than that is to be read."""
        self._compactor = self._new_compactor(spark, open_day=open_day)
        self._gone = sink.gone if isinstance(sink.gone, Gone) else Gone(self._lake)
        self._finish_at = time.monotonic() + _FINISH
        """When deletions of which something was left are gone on with."""
        self._available_now = False
        ledger = self._lake / INTERNAL / f"{sink.name}.json"
        self._time = RemovalClock(
            StateFile(self._lake / INTERNAL / removal_clock.NAME, Seen, self._disk),
            lambda text: _log.warning("%s", text),
            lambda: self._disk.modified(ledger),
        )
        self._expiry = Expiry(
            sink.expire,
            config.spark.retention,
            lambda done: _log.info(
                "expired (spark.retention): %s, %d events", done.what, done.events
            ),
            lambda why: _log.warning("could not remove what has expired: %s", why),
            lambda: datetime.fromtimestamp(self._time(), UTC),
        )

    def _limit(self) -> Mapping[str, int]:
        if self._suspects:
            return {"max_files": 1}
        return limit_of(self._spool, self._config.spark.max_bytes_per_trigger)

    def _note(self, committed: Committed) -> None:
        self._committed.append(committed)
        if self._places is not None:
            self._places.committed()
        self._health.committed(committed, self._sink.seconds)

    def _new_cleaner(self) -> Cleaner:
        spool = self._config.spool
        archived = spool.after == "archive" and spool.bucket is None
        return Cleaner(
            self._spool,
            self._config.data_dir / "archive" if archived else None,
            self._query.checkpoint,
            lambda file: self._sink.has_all(self._spool, file),
            self._disk,
        )

    def _new_upkeep(self, kind: Kind, spark: SparkSession) -> Upkeep | None:
        """Of a table whose format asks for it."""
        config = self._config
        if not config.spark.compact or "maintain" not in kind.abilities:
            return None
        return Upkeep(
            self._lake / INTERNAL / "maintained.json",
            self._disk,
            # The settings of the session are those of the batch at hand.
            lambda thorough: kind.maintain(
                config, spark.newSession(), self._disk, _DAYS, thorough=thorough
            ),
            lambda done: _log.info("maintained: %s", done),
            lambda why: _log.warning("could not maintain: %s", _reason(why)),
        )

    def _new_compactor(self, spark: SparkSession, *, open_day: bool) -> Compactor:
        from gateway.spark import backfill

        return Compactor(
            self._lake,
            self._disk,
            lambda done: _log.info("rewritten: %s", done),
            lambda why: _log.warning("could not compact: %s", why),
            # The files of the last batch may be on their way to their names.
            upto=(lambda: self._sink.ledger.sequence - 1) if open_day else None,
            filler=lambda: backfill.Folders(spark, self._config, self._disk),
        )

    def _new_inbox(self, spark: SparkSession) -> Inbox | None:
        bucket = bucket_of(self._config.spool)
        if bucket is None:
            return None
        self._check_owner(bucket)
        return Inbox(
            bucket,
            self._spool,
            self._disk,
            lambda: self._sink.ledger,
            archived=self._config.spool.after == "archive",
            most_bytes=_INBOX_BATCHES * self._config.spark.max_bytes_per_trigger,
            tell_behind=JobWriter(bucket),
            whole=s3a.folder_for_tasks(self._config, spark) is None,
        )

    def _check_owner(self, bucket: Bucket) -> None:
        """Or two jobs that write one table would commit what is here twice."""
        job = self._config.spark.job or ""
        try:
            owner = job_word.owner_of(bucket, job)
        except BucketError:
            if job:
                raise
            return  # the inbox waits for it
        if owner != job:
            raise Broken(
                f"{bucket.url} is read by the job {owner} (spark.job), and this one is"
                f" {job or 'without a name'}: give it a prefix of its own (spool.directory)"
            )

    def start(self, *, available_now: bool) -> None:
        """Repair what a crash has left, then start the query."""
        self._available_now = available_now
        self._disk.make_directory(self._spool)
        self._time()  # before the ledger is written anew, whose time may be its first
        self._recover()
        requeue.finish(self._lake, self._disk)
        partition.finish(self._lake, self._disk)
        for one in deleted.unfinished(self._lake):
            _log.warning(
                "%s is not finished: it is gone on with in ten minutes", one.id
            )
        for text in orders.dropped(self._lake, self._disk):
            _log.warning("%s", text)
        self._poison.finish()
        self._give_up()
        self._sweep()
        self.clean()
        if self._overlooks():
            self._query.checkpoint.retire()
        self._learn()
        if self._inbox is not None:
            self._inbox.recover()
            if available_now:
                self._upto = self._inbox.newest()
                self._inbox.look(upto=self._upto)
            else:
                self._inbox.start()
        self._query.start(available_now=available_now)
        self._cleaner = self._new_cleaner()  # the query may have begun anew
        self._health.say(state="running")

    def _recover(self) -> None:
        try:
            self._sink.recover()
        except Exception as why:
            # A batch may have to be read again, and one of its files be damaged.
            if not self._move_aside(why):
                raise
            self._sink.recover()

    def over(self) -> bool:
        """Whether the query has done all there was.  Raises `Failed`.

        A query that a spool file has stopped begins again without that file.
        """
        active = self._query.active  # before its failure, which may come in between
        if (why := self._query.failure) is not None:
            if not self._move_aside(why) and not self._one_by_one(why):
                raise Failed(f"{self._sink.name}: {_reason(why)}") from why
            self._renew()
            return False
        return not active and not self._goes_on()

    def _goes_on(self) -> bool:
        """With `--once` and a bucket: whether more of what was there is to be read."""
        if self._inbox is None or self._upto is None:
            return False
        self.clean()
        if not self._inbox.look(upto=self._upto):
            return False
        self.clean()
        if self._overlooks():
            self._renew()
        else:
            self._query.go_on()
        return True

    def _move_aside(self, why: Exception) -> bool:
        if isinstance(why, Broken) and "spool" not in str(why):
            return False
        names = self._sweep()
        files = self._sink.batch_files
        try:
            holes, changed = make_readable(
                files, self._inbox, self._poison.examine, known=bool(names)
            )
        except BucketError:
            return False  # *why* says it better
        for hole in holes:
            self._say_aside(hole)
            names.append(hole.file)
        if names:
            self._health.say(last_error=f"moved aside: {', '.join(names)}")
        return bool(names or changed)

    def _one_by_one(self, why: Exception) -> bool:
        """After a batch that ran out of heap: whether its files are tried alone now."""
        files = self._sink.batch_files
        if not heap.ran_out(why) or self._sink.failure is None or not files:
            return False
        if self._sink.repeats or self._innocent():
            raise Failed(self.ran_out()) from why
        _log.warning("%s", self.ran_out())
        self._suspects.failed(files)
        self._query.stop()
        self._sink.recover()
        self._give_up()
        return True

    def _innocent(self) -> bool:
        """Whether the last batch is not why the heap was too small for it."""
        files = self._sink.batch_files
        stored, in_memory = footers.sizes(self._spool / file.name for file in files)
        return stored > 0 and self._suspects.innocent(files, in_memory)

    def ran_out(self) -> str:
        """That the heap was too small, for what, and what to do."""
        names = [file.name for file in self._sink.batch_files]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        if self._sink.repeats:
            then = "the batch comes again, whole, once there is more"
        elif self._innocent():
            then = (
                "it is small and was alone, so something else fills that: give it more"
            )
        else:
            then = (
                "its files are tried one at a time, and one that does not fit alone is"
                " moved aside"
            )
        return (
            f"Java's heap of {heap.key_of(self._config.spark)} was too small for a batch"
            f" of {names[0] if names else 'no file'}{more}: {then}"
        )

    def java_ended(self, why: Exception) -> str:
        """Why, as far as that is known; the next start goes on with what is noted here."""
        at_work = self._sink.busy or self._sink.failure is not None
        if session.java_status() != heap.EXIT or not at_work:
            return f"Spark's Java has ended: {_reason(why)}"
        told = self.ran_out()
        if not self._sink.repeats and not self._innocent():
            self._suspects.failed(self._sink.batch_files)
        return told

    def _give_up(self) -> None:
        """Move aside what did not fit alone."""
        self._sink.careful = bool(self._suspects)
        name = self._suspects.alone
        file = None if name is None else SpoolFile.parse(name)
        if name is None or file is None:
            return
        if self._inbox is not None:
            self._inbox.complete([file])
        if self._disk.exists(self._spool / name):
            why = (
                f"an event of it does not fit into Java's heap of"
                f" {heap.key_of(self._config.spark)}, with no other file beside it: give"
                " it more"
            )
            self._say_aside(self._poison.move(file, why))
        self._suspects.aside(name)
        self._sink.careful = bool(self._suspects)

    def _say_aside(self, hole: Hole) -> None:
        _log.error(
            "%s is moved to %s: %s. Its events, lsn %d to %d of %s, are in no table"
            " until it is mended (gateway spark requeue)",
            *(hole.file, self._config.data_dir / "poison", hole.why),
            *(hole.first, hole.last, hole.node),
        )
        self._health.say(last_error=f"moved aside: {hole.file}")

    def _sweep(self) -> list[str]:
        names = self._poison.sweep()
        for name in names:
            _log.error("%s in the spool is not the gateway's: moved aside", name)
        return names

    def clean(self) -> None:
        """Take out of the spool what is committed, and the long log with it."""
        self._cleaner.run()

    def tend(self) -> None:
        """What is to do now and then between batches."""
        session.bound(noise(self._config))
        self.clean()
        fit = self._suspects.keep({file.name for file in self._cleaner.waiting()})
        if fit:
            self._sink.careful = False
        if self._query.active and (fit or self._query.stale or self._overlooks()):
            _log.info("beginning a new checkpoint")
            self._query.stop()
            self.clean()
            self._renew()
        if not self._deletions():
            self._keep_house()
        self._health.note(
            clock_ahead_seconds=round(self._time.ahead_seconds),
            expiry_problem=self._expiry.problem,
            **self._gone.counts(),
        )
        self._learn()
        self._health.beat(self._sink.ledger, self._waiting, busy=self._sink.busy)

    def _keep_house(self) -> None:
        """What goes on beside the batches, each on a thread of its own."""
        self._expiry.tend()
        if self._expiry.busy:
            return
        if self._compacts:
            self._compactor.tend()
        # Formats ask the clock themselves which files and snapshots are old.
        if self._upkeep is not None and not self._time.ahead_seconds:
            self._upkeep.tend()

    def _deletions(self) -> bool:
        """Do what is ordered, and now and then what could not be finished, between two
        batches; whether something waits for that.
        """
        ordered = orders.waiting(self._lake)
        left = self._gone.counts()["deletions_unfinished"]
        if not ordered and not (left and time.monotonic() >= self._finish_at):
            return False
        others = self._expiry, self._compactor, self._upkeep
        if any(one is not None and one.busy for one in others):
            return True
        begun = time.monotonic()
        self._query.stop()
        self.clean()  # or files that are done would seem to wait
        with self._health.at("deleting events"), self._sink.between_batches():
            answers = [orders.obey(path, self._disk, self._delete) for path in ordered]
            if not ordered:
                answers.append(orders.attempt(self._delete, orders.Order()))
        ended = time.monotonic()
        self._finish_at = ended + max(_FINISH, _FINISH_TIMES * (ended - begun))
        for answer in answers:
            for text, _ in answer.said:
                _log.log(logging.WARNING if answer.status else logging.INFO, "%s", text)
        self._query.start(available_now=self._available_now)
        self._cleaner = self._new_cleaner()
        return False

    def _delete(self, order: orders.Order) -> Iterator[tuple[str, dict[str, Any]]]:
        # The settings of the session are those of the batches.
        spark = self._spark.newSession()
        return deletion.delete(
            self._config, spark, self._disk, order.asked, purge=order.purge
        )

    def _learn(self) -> None:
        """Take into the ledger what people have accepted to be missing, and what gateways
        say of those before them.
        """
        anew = [life._asdict() for life in list(self._sink.anew)]  # it grows beside us
        if anew:
            self._health.note(anew=anew)
        accepted = dict(accepting.waiting(self._lake))
        ends = {} if self._inbox is None else dict(self._inbox.ends)
        new = {
            life: end
            for life, end in ends.items()
            if self._sink.ledger.ends.get(life) != end
        }
        if not (accepted or new) or not self._sink.learn(accepted.values(), new):
            return
        for path in accepted:
            self._disk.unlink(path)
        for life, end in new.items():
            if end is None:
                continue
            _log.log(
                logging.INFO if end.exact else logging.ERROR,
                "incarnation %s of node %s has ended, and its disk is gone: it had"
                " acknowledged events up to lsn %d when it was last heard of, %.1f s before"
                " the next one began%s. gateway audit says which of them are in no table",
                *(life.incarnation, life.node, end.acknowledged),
                end.found - end.heard,
                "" if end.exact else "; what it acknowledged after that nobody knows",
            )

    def _overlooks(self) -> bool:
        """Whether Spark never takes files that are there, until the query begins anew."""
        overlooked = self._cleaner.overlooked
        if overlooked:
            _log.warning(
                "%d files, %s first, have names of files that Spark has taken before, and"
                " other events",
                *(len(overlooked), overlooked[0]),
            )
        return bool(overlooked)

    def _renew(self) -> None:
        self._query.renew()
        self._cleaner = self._new_cleaner()

    def _waiting(self) -> Waiting:
        return Waiting.of(
            self._cleaner.waiting(),
            lambda file: self._disk.modified(self._spool / file.name),
        )

    def say(self, *, last: bool = False) -> None:
        """Report what was committed since the last time.  The *last* word says what is left
        in the spool, also where all of that was reported before it was cleaned.
        """
        new, self._committed = self._committed, []
        if new or last:
            self._health.tables(self._sink.ledger, self._waiting())
        if not new:
            return
        rows = sum(done.rows for done in new)
        self._rows += rows
        self._report(
            {
                "batch": new[-1].batch,
                "batches": len(new),
                "rows": rows,
                "rows_total": self._rows,
                "files": sum(done.files for done in new),
                "spool_files": len(self._cleaner.resident()),
            }
        )

    def expire(self) -> None:
        """Remove what is older than `spark.retention`, before this returns."""
        self._expiry.finish()

    def maintain(self) -> None:
        """What a job that runs on does beside its batches, if it is time."""
        if self._upkeep is not None and not self._time.ahead_seconds:
            self._upkeep.run()

    def stop(self) -> None:
        """Stop between two batches; what was not committed comes again."""
        self._query.stop()
        self._expiry.stop()
        self._compactor.stop()
        if self._upkeep is not None:
            self._upkeep.stop()
        if self._inbox is not None:
            self._inbox.stop()
            self._inbox.tend(most_bytes=0)  # what is committed by now goes
        self._learn()


def run(
    config: Any,
    spark: SparkSession | None = None,
    stop_event: threading.Event | None = None,
    *,
    available_now: bool = False,
    open_day: bool = True,
    report: progress.Report = lambda news: None,
) -> None:
    """Run until *stop_event*, or with *available_now* until the spool is read.

    Without *open_day* the files of a day stay as they are until it is over.  Starts a session and stops it unless *spark* is given.  Raises `Failed` when it can
    not go on: the tables are whole then too, and the next start goes on from there.
    """
    if not config.spool.has_job:
        raise Failed(
            f"spool.after: {config.spool.after} says that there is no job, and the gateway takes files "
            "away itself: set it to archive, and restart the gateway, before this job"
        )
    stop = stop_event or threading.Event()
    internal = config.data_dir / "lake" / INTERNAL
    try:
        held = lock(internal / "lock", "gateway spark")
    except Locked as why:
        raise Failed(str(why)) from None
    except OSError as why:
        raise Failed(f"{why.filename or internal}: {why.strerror or why}") from None
    try:
        _told(
            config,
            spark,
            stop,
            report,
            available_now=available_now,
            open_day=open_day,
        )
    finally:
        held.release()


def _told(
    config: Any,
    spark: SparkSession | None,
    stop: threading.Event,
    report: progress.Report,
    *,
    available_now: bool,
    open_day: bool,
) -> None:
    """Run, and report how it ended: also why it never came to a batch."""
    health = Health(config.data_dir / "lake")
    failed: str | None = "ended by an error"
    try:
        health.begin()
        _work(
            config,
            spark,
            stop,
            health,
            report,
            available_now=available_now,
            open_day=open_day,
        )
        failed = None
    except (Stopped, KeyboardInterrupt):  # PySpark's own way to deal with ^C
        failed = None
        report(_stopped(config))
        raise
    except OSError as why:
        failed = _reason(why)
        raise Failed(failed) from why
    except BaseException as why:
        failed = str(why) if isinstance(why, Failed) else _reason(why)
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
    open_day: bool,
) -> None:
    internal = config.data_dir / "lake" / INTERNAL
    mine, ours = None, spark is None
    try:
        report({"state": "starting"})
        if spark is None:
            health.say(doing="starting Java")
            spark = mine = start_session(config)
            if stop.is_set():
                report(_stopped(config))
                return
        health.say(doing="waiting for the Java of another job")
        with _JavaLock(spark, internal / "lock-java", stop):
            health.say(doing="looking at what the last one left")
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
        raise Failed(_reason(why)) from why
    finally:
        if mine is not None:
            _quietly(mine.stop)


def lacking(config: Any, why: ModuleNotFoundError) -> Failed:
    """What to install where a package is not there."""
    extra = kind_of(config.spark.sink).extra
    return Failed(f"no Python package {why.name}: pip install 'gateway[{extra}]'")


def noise(config: Any, whose: str = "java") -> Path:
    """Where what Java itself says goes."""
    return Path(config.data_dir / "lake" / INTERNAL / f"{whose}.log")


def _stopped(config: Any) -> dict[str, Any]:
    return {"state": "stopped", "java": str(noise(config))}


def start_session(config: Any, whose: str = "java") -> SparkSession:
    """Spark with what the configuration's sink needs, or a reason why not.

    What Java itself says goes to the file of that name (`noise`).
    Raises `Broken`, `java.NoJava`, ModuleNotFoundError, and what Spark raises.
    """
    import pyspark

    version = pyspark.__version__
    kind = kind_of(config.spark.sink)
    more = kind.settings(config.spark, config.data_dir, version)
    more = formats.merged(more, s3a.for_tasks(config, version))
    warehouse = config.data_dir / "lake" / INTERNAL / "warehouse"
    return session.start(config.spark, warehouse, more, noise(config, whose))


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
            job.expire()
            if not stop.is_set():
                job.maintain()
        job.stop()
        job.clean()
        job.say(last=True)
    except (Py4JJavaError, PySparkException) as why:
        _quietly(job.stop)
        raise Failed(_reason(why)) from why
    except (Py4JError, ConnectionError) as why:
        raise Failed(job.java_ended(why)) from why
    except BaseException:
        _quietly(job.stop)
        raise


class _Turn:
    """Something that is done now and then, and a third of the time at the most: beside a
    week of files that wait a look takes seconds, and the batches need the CPU, too.
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
    """On the way out there is a better reason than that this failed too."""
    try:
        last()
    except Exception as why:
        _log.debug("%s", why)


def _reason(why: BaseException) -> str:
    """The lines that matter of an exception that may have come through Java."""
    text = str(why).strip() or type(why).__name__
    if isinstance(why, (Broken, HandOverFailed, java.NoJava)):
        return text
    text = text.partition("\n=== Streaming Query ===")[0]
    lines = [line for line in text.splitlines() if not line.startswith("\tat ")]
    return f"{type(why).__name__}: {' '.join(lines[:3])[:1000]}"


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


def start(options: argparse.Namespace) -> int:
    """Run with these options; returns 0 (stopped), 1 (failed) or 2 (wrong use)."""
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
            run(config, stop_event=stop, available_now=options.once, report=report)
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
