"""Table formats: what Delta and Iceberg have in common as kinds of tables.

A jar of a format fits one minor version of Spark.  With another one, rows may be written
that nothing can read: so versions are compared before anything is written.  Jars come
from Maven Central, pinned, or from a folder where there is no network.
"""

from __future__ import annotations

import contextlib
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gateway.sink import Kind
from gateway.spark.commit.ledger import Broken
from gateway.tables import EVENTS

if TYPE_CHECKING:
    import pyarrow as pa

    from gateway.config.spark import Spark
    from gateway.sdk.section import Place
    from gateway.spark.commit.lakedisk import LakeDisk
    from gateway.spark.commit.ledger import Ranges
    from gateway.spark.commit.shared import SharedTable, Table
    from gateway.spark.commit.sink import Parts, Sink
    from gateway.spark.later.days import Rewritten, RowsMade
    from gateway.store.readers.deleted import Deletion

#: Settings that are lists: what the user has there stays beside ours.
_LISTS = (
    "spark.jars",
    "spark.jars.packages",
    "spark.jars.excludes",
    "spark.sql.extensions",
)

_JOB = re.compile(r"[a-z0-9_]{1,64}")
"""A table is called by it, and catalogs take names for one that differ in their case only."""

_COUNTS_DDL = (
    "window_start bigint, window_end bigint, listener string, channel string, protocol"
    " string, date string, `table` string, events bigint, payload_bytes bigint, flawed bigint"
)
"""Counts that are taken back, as they are written down; instants in microseconds."""


class Format(Kind):
    """A kind whose tables take rows and the ledger in one commit."""

    abilities = frozenset(
        {
            "adopt",
            "backfill",
            "elsewhere",
            "expire",
            "maintain",
            "rows",
            "shared",
            "tables",
        }
    )
    trigger = "1m"  # a commit takes a second or more, and stays in the table's history
    version: ClassVar[str]
    jars: ClassVar[Mapping[str, str]]
    """Maven coordinates, by minor version of Spark."""
    needs: ClassVar[str]
    """A Java class that is there if the jars are."""
    conf: ClassVar[Mapping[str, str]]
    excludes: ClassVar[tuple[str, ...]] = ()
    """Packages that Maven would bring and Spark has itself, mostly newer."""
    beside: ClassVar[tuple[str, ...]] = ()
    """File names, up to the version, of the jars that belong to it."""

    def misfits(self, spark: Spark) -> Iterator[tuple[Place, str]]:
        yield from super().misfits(spark)
        if spark.job is not None and spark.tables:
            yield (
                ("tables",),
                "is for one job alone (spark.job), which divides its events",
            )
        if spark.job is not None and not _JOB.fullmatch(spark.job):
            yield ("job",), f"must be small letters, digits and _, not {spark.job!r}"
        for place, given in spark.partitions():
            if "date" not in given:
                why = "must have date: what is over is compacted, and filled, by days"
                yield place, why

    @abstractmethod
    def events(self, config: Any, spark: Any, name: str = "") -> SharedTable:
        """The table `events`, or the one by rule of that *name*."""

    @staticmethod
    def partitions(config: Any, name: str) -> Sequence[str]:
        """The partitions of the table by rule of that *name*, or of `events`, where it begins."""
        rule = config.spark.tables.get(name)
        usual: Sequence[str] = config.spark.partition_by
        return usual if rule is None or rule.partition_by is None else rule.partition_by

    @abstractmethod
    def counts(self, config: Any, spark: Any) -> SharedTable:
        """The table `stats`, which no other job has."""

    def tables(self, config: Any, spark: Any) -> tuple[Table, Table]:
        """The tables of events, as one, and of `stats`."""
        from gateway.spark.commit.divided import Divided
        from gateway.store.readers.lake import tables_of

        events, counts = self.events(config, spark), self.counts(config, spark)
        known = tables_of(config.data_dir / "lake").with_all(config.spark.tables)
        if not known.by_rule:
            return events, counts
        rules = config.spark.tables
        make = partial(self.events, config, spark)
        return Divided(events, make, known.by_rule, rules), counts

    def _claim(self, config: Any, disk: LakeDisk, events: Table) -> dict[str, str]:
        """Make the lake that of this sink; the words of the claim."""
        from gateway.spark.commit import one_sink

        wanted = {"sink": self.name, "table": events.name}
        if events.job:
            wanted["job"] = events.job
        one_sink.claim(config.data_dir / "lake", disk, wanted)
        return wanted

    def fits(self, spark: str) -> bool:
        """Whether there is a jar for Spark version *spark*."""
        return minor(spark) in self.jars

    def check_spark(self, version: str) -> None:
        self.coordinate(version)

    def coordinate(self, spark: str) -> str:
        """The jar for Spark version *spark*.  Raises `Broken` where there is none."""
        if not self.fits(spark):
            fitting = " or ".join(sorted(self.jars))
            raise Broken(
                f"spark.sink: {self.name} needs Spark {fitting} ({self.name} {self.version}"
                f" has no jar for another), this is {spark}: pip install"
                f" 'gateway[{self.extra}]'"
            )
        return self.jars[minor(spark)]

    def settings(self, spark: Any, data_dir: Path, version: str) -> dict[str, str]:
        del data_dir
        coordinate = self.coordinate(version)
        # Counts of a batch are few rows; by default two hundred tasks add them up.
        found = {"spark.sql.shuffle.partitions": "4", **self.conf}
        if spark.jars_directory is None:
            found["spark.jars.packages"] = coordinate
            if self.excludes:
                found["spark.jars.excludes"] = ",".join(self.excludes)
        else:
            folder = Path(spark.jars_directory)
            found["spark.jars"] = jars_in(folder, coordinate, self.beside)
        return found

    def make(self, parts: Parts) -> Sink:
        from gateway.spark.commit import one_sink
        from gateway.spark.commit.commits import CommitSink
        from gateway.spark.rows import tables
        from gateway.spark.run import query
        from gateway.spark.source import spool_of

        config, spark, disk = parts.config, parts.spark, parts.disk
        lake = config.data_dir / "lake"
        read = query.whole_reader(config, spark)
        self.check(spark)
        events, counts = self.tables(config, spark)
        wanted = self._claim(config, disk, events)
        return CommitSink(
            lake,
            spool_of(config),
            parts.checkpoint,
            disk,
            events=events,
            stats=counts,
            read=read,
            count=lambda rows: tables.counted(rows, config.spark.stats_window),
            settle=lambda state: one_sink.settle(lake, disk, {**wanted, **state}),
            most_partitions=config.spark.most_partitions,
            rules=config.spark.tables,
            done=parts.done,
        )

    def maintain(
        self,
        config: Any,
        spark: Any,
        disk: LakeDisk,
        days: float,
        *,
        thorough: bool = True,
    ) -> Iterator[str]:
        from gateway.spark.commit import one_sink
        from gateway.spark.commit.partition import without_job
        from gateway.store.system.lock import Locked

        lake = config.data_dir / "lake"
        self.check(spark)
        events, counts = self.tables(config, spark)
        wanted = self._claim(config, disk, events)
        for table in (events, counts):
            yield from table.maintain(days=days, thorough=thorough)
        # A job that runs says so itself, with its next batch.
        with contextlib.suppress(Locked), without_job(lake, "gateway spark maintain"):
            one_sink.settle(lake, disk, {**wanted, **events.state()})

    def counts_back(
        self, config: Any, spark: Any, wanted: Ranges
    ) -> list[tuple[str, pa.Table]]:
        """The counts of these events, negative, in one table."""
        import pyarrow as pa

        from gateway.spark.later.erasure import as_sql
        from gateway.spark.rows import tables

        events, _ = self.tables(config, spark)
        names = ("window_start", "window_end")
        found = []
        # By name: by a condition with the time in it, they might be others by now.
        for condition in as_sql(wanted):
            mine = events.rows().where(condition)
            rows = tables.counted(mine, config.spark.stats_window)
            plain = rows.selectExpr(
                *(f"unix_micros({name}) AS {name}" for name in names),
                *("listener", "channel", "protocol", "cast(date AS string) AS date"),
                *(["`table`"] if "table" in rows.columns else []),
                *(f"-{one} AS {one}" for one in ("events", "payload_bytes", "flawed")),
            )
            found += [row.asDict() for row in plain.collect()]
        return [("", pa.Table.from_pylist(found))] if found else []

    def check_counted(self, config: Any, spark: Any) -> None:
        """Raise `Busy` if a crash has left events uncounted: counts would be taken back that
        are none.
        """
        from gateway.spark.commit.closing import Closing
        from gateway.spark.commit.commits import opened
        from gateway.spark.commit.divided import Divided
        from gateway.spark.commit.lakedisk import Lake
        from gateway.spark.commit.partition import Busy
        from gateway.spark.commit.shared import Lost
        from gateway.spark.later.deleted_ranges import DeletedRanges
        from gateway.store.objects.s3 import bucket_of

        events, counts = self.tables(config, spark)
        lake = config.data_dir / "lake"
        gone, closing = (
            DeletedRanges(lake)(),
            Closing(lake, Lake(), bucket_of(config.spool)),
        )
        ledger = opened(events, closing, None, gone)
        there = ledger.committed
        if isinstance(events, Divided) and events.begun(ledger)[1] is not None:
            raise Busy(
                f"a batch of {events.name} is not finished: start gateway spark, with --once"
                " if it is not to stay, and then this again"
            )
        with contextlib.suppress(Lost):
            counted = closing.whole(counts.open()).committed
            if not there.minus(counted).minus(gone):
                return
        raise Busy(
            f"{counts.name} does not count just what {events.name} has: start gateway"
            " spark, with --once if it is not to stay, and then this again"
        )

    def delete(self, config: Any, spark: Any, disk: LakeDisk, record: Deletion) -> None:
        """Delete the events of *record* from the table, and take their counts back; may be
        done again.  No job runs meanwhile.
        """
        import pyarrow.parquet as pq

        from gateway.spark.commit import one_sink
        from gateway.spark.commit.closing import Closing
        from gateway.spark.commit.commits import opened
        from gateway.spark.commit.ledger import Ranges
        from gateway.spark.later.deleted_ranges import DeletedRanges
        from gateway.spark.later.erasure import as_sql
        from gateway.store.objects.s3 import bucket_of
        from gateway.store.readers.deleted import counts_of

        lake = config.data_dir / "lake"
        events, counts = self.tables(config, spark)
        wanted = self._claim(config, disk, events)
        closing = Closing(lake, disk, bucket_of(config.spool))
        opened(events, closing, None, DeletedRanges(lake)())
        for condition in as_sql(Ranges(record.events)):
            events.delete(condition)
        folder = counts_of(lake, record.id)
        if disk.exists(folder):
            ledger = counts.open()
            if ledger.taken_back != record.id:
                plain = pq.read_table(folder / "0").to_pylist()
                rows = spark.createDataFrame(plain, _COUNTS_DDL)
                names = ("window_start", "window_end")
                micros = {one: f"timestamp_micros({one}) AS {one}" for one in names}
                back = rows.selectExpr(
                    *(
                        micros.get(one, f"`{one}`")
                        for one in counts.rows().columns
                        if one != "date"
                    ),
                    "cast(date AS date) AS date",
                )
                number = ledger.sequence + 1
                after = replace(ledger, sequence=number, taken_back=record.id)
                counts.append(back, after)
            disk.remove_tree(folder)
        one_sink.settle(lake, disk, {**wanted, **events.state()})

    def check_alone(self, config: Any, spark: Any) -> None:
        """Raise `Busy` if others write the table, which can not be purged then."""
        from gateway.spark.commit.partition import Busy

        events, _ = self.tables(config, spark)
        if others := events.others():
            jobs = ", ".join(
                sorted({job or "one without a name" for job in others.values()})
            )
            raise Busy(
                f"{events.name}: other jobs write it, too ({jobs}), and would lose what they"
                " write at this moment: stop all of them, and have the format remove its"
                " earlier versions by itself (docs/spark.md, several jobs on one table)"
            )

    def purge(self, config: Any, spark: Any) -> Iterator[str]:
        """Remove what the table had in earlier versions from its files.

        No program may read one of these, or write, meanwhile.
        """
        self.check_alone(config, spark)
        events, _ = self.tables(config, spark)
        yield from events.purge()

    def backfill(
        self,
        config: Any,
        spark: Any,
        disk: LakeDisk,
        names: Collection[str],
        tables: Collection[str] = (),
    ) -> Iterator[Rewritten]:
        from gateway.spark.later import backfill

        self.check(spark)
        events, _ = self.tables(config, spark)
        self._claim(config, disk, events)
        for name, table in each_of(events):
            if not tables or name in tables:
                yield from backfill.overwrite_days(spark, config, name, table, names)

    def rewrite(
        self, config: Any, spark: Any, disk: LakeDisk, make: RowsMade, word: str
    ) -> Iterator[Rewritten]:
        from gateway.spark.later import days

        del word
        self.check(spark)
        events, _ = self.tables(config, spark)
        self._claim(config, disk, events)
        for _, table in each_of(events):
            yield from days.overwrite(spark, table, make)

    def adopt(
        self, config: Any, spark: Any, disk: LakeDisk, old: Path
    ) -> Iterator[str]:
        """Take the rows of the Parquet folders below *old* into tables that begin.

        Says what was done.  Raises as `adopt.adopt`.
        """
        from gateway.spark.commit import one_sink
        from gateway.spark.later import adopt

        lake = config.data_dir / "lake"
        self.check(spark)
        events, counts = self.tables(config, spark)
        wanted = self._claim(config, disk, events)
        yield from adopt.adopt(spark, disk, old, lake, events, counts)
        one_sink.settle(lake, disk, {**wanted, **events.state()})

    def check(self, spark: Any) -> None:
        """Raise `Broken` unless the running session *spark* has what it needs."""
        coordinate = self.coordinate(spark.version)
        if not has_class(spark, self.needs):
            exclude = f" --exclude-packages {','.join(self.excludes)}"
            raise Broken(
                f"spark.sink: {self.name}: Spark was started without its jars: give"
                f" spark-submit --packages {coordinate}"
                f"{exclude if self.excludes else ''}, or --jars"
            )
        extension = self.conf["spark.sql.extensions"]
        if extension not in (spark.conf.get("spark.sql.extensions", "") or ""):
            raise Broken(
                f"spark.sink: {self.name}: Spark was started without --conf"
                f" spark.sql.extensions={extension}"
            )


def each_of(events: Table) -> Iterator[tuple[str, Table]]:
    """The tables that are one for the sink, by name."""
    from gateway.spark.commit.divided import Divided

    return events.each() if isinstance(events, Divided) else iter([(EVENTS, events)])


def stats_of(events: str, job: str) -> str:
    """The table of counts beside that of events: each job has its own, for counts do not say
    whose they are.
    """
    return f"{events}_stats_{job}" if job else f"{events}_stats"


def has_class(spark: Any, name: str) -> bool:
    """Whether Spark was started with the jar that has this class."""
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # noqa: SLF001
    try:
        loader.loadClass(name)
    except Exception:  # py4j's
        return False
    return True


def minor(version: str) -> str:
    """`4.1` of `4.1.2`."""
    return ".".join(version.split(".")[:2])


def jars_in(folder: Path, coordinate: str, beside: Sequence[str] = ()) -> str:
    """All jars of *folder*, as `spark.jars` has them.

    That of *coordinate* must be among them, and one for each name in *beside*, up to its
    version.  Raises `Broken`.
    """
    _, artifact, number = coordinate.split(":")
    wanted = f"{artifact}-{number}.jar"
    jars = sorted(folder.glob("*.jar"))
    # Ivy's own folder, from which they are copied, puts the group before the name.
    names = [path.name for path in jars]
    if not any(name == wanted or name.endswith(f"_{wanted}") for name in names):
        raise Broken(f"spark.jars_directory: {folder} has no {wanted} ({coordinate})")
    for start in beside:
        if not any(start in name for name in names):
            raise Broken(f"spark.jars_directory: {folder} has no {start}….jar")
    return ",".join(path.absolute().as_uri() for path in jars)


def merged(ours: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """*own* over *ours*; of settings that are lists, both."""
    both = {**ours, **own}
    for name in _LISTS:
        if name in ours and name in own:
            parts = [*ours[name].split(","), *own[name].split(",")]
            both[name] = ",".join(dict.fromkeys(part.strip() for part in parts))
    return both
