"""The job as it runs: the query, and what goes on around it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gateway.config.tables import columns_of_all
from gateway.figures.reported import MOST_PATHS, Reported
from gateway.sink import kind_of
from gateway.spark.bucket.inbox import Inbox
from gateway.spark.commit import partition
from gateway.spark.commit.closing import Closing
from gateway.spark.commit.fingerprints import Fingerprints
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken
from gateway.spark.commit.sink import Committed, Parts
from gateway.spark.files import heap, s3a
from gateway.spark.files.cleaner import Cleaner
from gateway.spark.files.incomplete import IncompleteBatches
from gateway.spark.files.overlaps import Overlaps
from gateway.spark.files.poison import Poison
from gateway.spark.jvm import session
from gateway.spark.later import deletion
from gateway.spark.later.deleted_ranges import DeletedRanges
from gateway.spark.run import accepting, orders, progress
from gateway.spark.run.checkpoint import Checkpoint
from gateway.spark.run.completing import Completing
from gateway.spark.run.failure import Failed, reason
from gateway.spark.run.health import Health, Waiting
from gateway.spark.run.housekeeping import Housekeeping
from gateway.spark.source import limit_of, spool_of
from gateway.store.directories import Directories
from gateway.store.names import SpoolFile
from gateway.store.node import removal_clock
from gateway.store.node.removal_clock import RemovalClock, Seen
from gateway.store.objects.bucket import Bucket, BucketError
from gateway.store.objects.s3 import bucket_of
from gateway.store.readers import deleted, job_word
from gateway.store.readers.job_word import JobWriter
from gateway.store.readers.lake import INTERNAL, health_path
from gateway.store.system.statefile import StateFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("gateway.spark")

_INBOX_BATCHES = 4  # of a bucket's files are here at once
_LOOK_SECONDS, _LOOKED_AT = 300.0, 300
"""How often some events are asked for paths without a column, and how many."""
_FINISH = 600.0  # between attempts at a deletion of which something is left
_FINISH_TIMES = 10  # or so many times as long as it took: meanwhile there is no batch


class Job:
    """The parts of a job, as `gateway.spark.job.run` makes them, whose thread alone uses it.

    Its attributes are these parts; each has its own work, and this class their order.
    """

    def __init__(
        self,
        config: Any,
        spark: SparkSession,
        health: Health,
        report: progress.Report,
        *,
        open_day: bool = True,
    ) -> None:
        from gateway.spark.rows import tables
        from gateway.spark.rows.columns import Columns
        from gateway.spark.run import query

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
        fingerprints = Fingerprints(self._lake, config.spark.deduplicate_horizon)
        self._fingerprints = fingerprints if config.spark.deduplicate else None
        checkpoint = Checkpoint(config.data_dir / "checkpoint" / "events", self._disk)
        kind = kind_of(config.spark.sink)
        resent = None if self._fingerprints is None else self._fingerprints.resent
        sink = kind.make(
            Parts(config, spark, checkpoint, self._disk, self._note, resent)
        )
        self._sink = sink
        bucket = bucket_of(config.spool)
        sink.closing = Closing(self._lake, self._disk, bucket)
        self._query = query.Query(
            spark,
            sink,
            checkpoint,
            self._spool,
            query.stream_of(config, spark),
            lambda arriving: tables.events(
                arriving, config.spark.body, Columns.of(config.spark)
            ),
            limit=self._limit,
            trigger=config.spark.trigger,
        )
        self._cleaner = self._new_cleaner()
        self._inbox = inbox = self._new_inbox(spark)
        self._completing = Completing(
            Directories.of(config),
            sink,
            None if inbox is None else lambda: inbox.endings.heard,
            lambda: self._cleaner.waiting() if inbox is None else inbox.waiting,
            config.spark.audit.silent_after,
            unknown_since=Reported.read(health_path(self._lake)).number(
                "complete_unknown_since"
            ),
        )
        poison = Poison(self._spool, config.data_dir / "poison", self._disk, sink)
        self.incomplete = IncompleteBatches(
            self._spool,
            poison,
            Overlaps(
                self._lake,
                self._spool,
                config.data_dir / "archive",
                self._disk,
                sink,
                poison,
                bucket_of(config.spool),
                self._inbox,
            ),
            heap.Suspects(
                self._lake / INTERNAL / "heap.json",
                self._disk,
                heap.key_of(config.spark),
            ),
            sink,
            self._inbox,
            health,
        )
        self._upto: Mapping[str, int] | None = None
        """Where the bucket ended at the start, if no more than that is to be read."""
        self._deleted = (
            sink.deleted
            if isinstance(sink.deleted, DeletedRanges)
            else DeletedRanges(self._lake)
        )
        self._finish_at = time.monotonic() + _FINISH
        """When deletions of which something was left are gone on with."""
        self._looked = -_LOOK_SECONDS
        self._available_now = False
        ledger = self._lake / INTERNAL / f"{sink.name}.json"
        clock = StateFile(self._lake / INTERNAL / removal_clock.NAME, Seen, self._disk)
        self._time = RemovalClock(
            lambda: clock.read()[0],
            clock.write,
            lambda text: _log.warning("%s", text),
            lambda: self._disk.modified(ledger),
        )
        self.house = Housekeeping(
            config, spark, kind, sink, self._disk, self._time, open_day=open_day
        )

    def _limit(self) -> Mapping[str, int]:
        if self.incomplete.one_by_one:
            return {"max_files": 1}
        return limit_of(self._spool, self._config.spark.max_bytes_per_trigger)

    def _note(self, committed: Committed) -> None:
        self._committed.append(committed)
        if self._fingerprints is not None:
            self._fingerprints.committed()
        self._health.committed(committed, self._sink.seconds)

    def _new_cleaner(self) -> Cleaner:
        spool = self._config.spool
        archived = spool.after == "archive" and spool.bucket is None
        return Cleaner(
            self._spool,
            self._config.data_dir / "archive" if archived else None,
            self._query.checkpoint,
            self._sink.has_all,
            self._disk,
            self._come_again,
            self._is_doubtful,
        )

    def _is_doubtful(self, file: SpoolFile) -> bool:
        """Whether a file was fetched again, and not compared yet."""
        inbox = self._inbox
        if inbox is None or file.name not in inbox.copies.again:
            return False
        return not self._sink.is_compared(file)

    def _come_again(self, files: Sequence[SpoolFile]) -> None:
        """Tell the deleted ranges of what goes to the archive."""
        self._deleted.come_again(self._disk, files)

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
            deleted=DeletedRanges(self._lake),
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
        partition.finish(self._lake, self._disk)
        for one in deleted.unfinished(self._lake):
            _log.warning(
                "%s is not finished: it is gone on with in ten minutes", one.id
            )
        for text in orders.dropped(self._lake, self._disk):
            _log.warning("%s", text)
        self.incomplete.finish()
        self.clean()
        if self._overlooks():
            self._query.checkpoint.retire()
        self._learn()
        if self._inbox is not None:
            self._inbox.copies.recover()
            if available_now:
                self._upto = self._inbox.listing.newest()
                self._inbox.look(upto=self._upto)
            else:
                self._inbox.start()
        self._start_query()
        self._health.say(state="running")

    def _start_query(self) -> None:
        self._query.start(available_now=self._available_now)
        self._cleaner = self._new_cleaner()  # the query may have begun anew

    def _recover(self) -> None:
        try:
            self._sink.recover()
        except Exception as why:
            # A batch may have to be read again, and one of its files be damaged.
            if not self.incomplete.move_aside(why):
                raise
            self._sink.recover()

    def over(self) -> bool:
        """Whether the query has done all there was.  Raises `Failed`.

        A query that a spool file has stopped begins again without that file.
        """
        active = self._query.active  # before its failure, which may come in between
        why = self._query.failure
        if why is None:
            return not active and not self._goes_on()
        self._query.stop()  # its end need not be that of the batch in the sink
        if not self.incomplete.move_aside(why):
            if not self.incomplete.suspect(why):
                raise Failed(f"{self._sink.name}: {reason(why)}") from why
            self._sink.recover()
            self.incomplete.give_up()
        self._renew()
        return False

    def _goes_on(self) -> bool:
        """Whether, with `--once` and a bucket, more of what was there is to be read."""
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

    def clean(self) -> None:
        """Take out of the spool what is committed, and the long log with it."""
        self._cleaner.run()

    def tend(self) -> None:
        """Do what is to be done now and then between batches."""
        session.bound(session.noise_of(self._config))
        self.clean()
        waiting = self._cleaner.waiting()
        fit = self.incomplete.settle({file.name for file in waiting})
        self._look(waiting)
        if self._query.active and (fit or self._query.stale or self._overlooks()):
            _log.info("beginning a new checkpoint")
            self._query.stop()
            self.clean()
            self._renew()
        if self._query.active and self._query.waits_for_the_day():
            _log.warning("the clock was set back: the query is started again")
            self._query.stop()
            self._start_query()
        if not self._deletions():
            self.house.tend()
        self._health.note(
            clock_ahead_seconds=round(self._time.ahead_seconds),
            expiry_problem=self.house.expiry.problem,
            **self._deleted.counts(),
        )
        self._learn()
        self._look_whether_complete()
        self._health.beat(self._sink.ledger, self._waiting, busy=self._sink.busy)

    def _look(self, waiting: Sequence[SpoolFile]) -> None:
        """Ask the newest of these files, now and then, for paths without a column."""
        from gateway.spark.rows import suggestion

        if not waiting or time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        newest = max(waiting, key=lambda file: file.last)
        found = suggestion.without_column(
            [self._spool / newest.name], columns_of_all(self._config.spark), _LOOKED_AT
        )
        self._health.note(paths=found[:MOST_PATHS], more_paths=len(found[MOST_PATHS:]))
        self._looked = time.monotonic()

    def _deletions(self) -> bool:
        """Do what is ordered, and now and then what could not be finished, between two
        batches; whether something waits for that.
        """
        ordered = orders.waiting(self._lake)
        left = self._deleted.counts()["deletions_unfinished"]
        if not ordered and not (left and time.monotonic() >= self._finish_at):
            return False
        if self.house.busy:
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
        self._start_query()
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
        ends = {} if self._inbox is None else dict(self._inbox.endings.ends)
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

    def _look_whether_complete(self, *, now: bool = False) -> None:
        """Look up to which moment the tables are complete, if it is time, or *now*."""
        if (words := self._completing.look(now=now)) is not None:
            self._health.note(**words)

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

    def stop(self) -> None:
        """Stop between two batches; what was not committed comes again."""
        self._query.stop()
        self.house.stop()
        if self._inbox is not None:
            self._inbox.stop()
            self._inbox.tend(most_bytes=0)  # what is committed by now goes
        self._learn()
        self._look_whether_complete(now=True)
