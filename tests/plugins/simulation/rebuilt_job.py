"""The Spark job of rebuilt machines, and whoever deletes events: of their parts only Spark
itself is played.
"""

import contextlib
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from operator import eq
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.spark.bucket.inbox import Inbox
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ranges
from gateway.spark.commit.parquet import ParquetSink
from gateway.spark.commit.partition import Busy
from gateway.spark.commit.sink import Plan
from gateway.spark.files.cleaner import Cleaner
from gateway.spark.files.overlaps import Overlap, Overlaps
from gateway.spark.files.poison import Poison, make_readable
from gateway.spark.later.deleted_ranges import DeletedRanges, named_in
from gateway.spark.later.erasure import Locations, carry_out
from gateway.spark.run.checkpoint import Checkpoint
from gateway.spark.run.completing import Completing
from gateway.store.directories import Directories
from gateway.store.names import Life, SpoolFile
from gateway.store.objects.bucket import ARCHIVE, BucketError
from gateway.store.readers import complete, deleted
from gateway.store.readers.complete import Completeness
from played_spark import PowerCut, SparkLogs
from simulation.judge import Broken
from simulation.rebuilt_lives import NODE

__all__ = ["Job"]


@dataclass
class Job:
    """The Spark job, of whose parts only Spark itself is played."""

    world: Any
    root: Path
    queries: int = 0
    cut: str | None = None
    logs: SparkLogs = field(init=False)

    def __post_init__(self) -> None:
        self.data = self.root / "job"
        self.logs = SparkLogs(self.data / "checkpoint" / "events")
        self._begin_query()
        self.restart()

    def _begin_query(self) -> None:
        shutil.rmtree(self.logs.path, ignore_errors=True)
        self.queries += 1
        self.logs.query = f"0badcafe-0000-4000-8000-{self.queries:012d}"
        self.logs.begin()
        self.entry = -1

    def restart(self) -> None:
        """As after a kill."""
        self.cut = None
        disk, lake, inbox = Lake(), self.data / "lake", self.data / "inbox"
        checkpoint = Checkpoint(self.logs.path, disk)
        self.sink = ParquetSink(
            lake, inbox, checkpoint, disk, write=self._write, point=self._point
        )
        self.sink.recover()
        self.inbox = Inbox(
            self.world.bucket,
            inbox,
            disk,
            lambda: self.sink.ledger,
            archived=self.world.archived,
            most_bytes=1 << 20,
            clock=lambda: self.world.now,
            at_once=map,
            whole=not self.world.elsewhere,
            deleted=DeletedRanges(lake),
        )
        self.inbox._footer_bytes = 64  # files are small here
        self.poison = Poison(inbox, self.data / "poison", disk, self.sink)
        self.inbox.copies.recover()
        self.completing = Completing(
            Directories.under(self.data),
            self.sink,
            lambda: self.inbox.endings.heard,
            lambda: self.inbox.waiting,
            300.0,
            lambda: self.world.wall,
            lambda: self.world.now,
        )
        self.overlaps = Overlaps(
            lake, inbox, self.data / "archive", disk, self.sink, self.poison,
            self.world.bucket, self.inbox,
        )  # fmt: skip
        self._new_cleaner()
        self.clean()
        self.sink.learn((), self.inbox.endings.ends)

    def _new_cleaner(self) -> None:
        disk = Lake()
        self.cleaner = Cleaner(
            self.data / "inbox",
            None,
            Checkpoint(self.logs.path, disk),
            self.sink.has_all,
            disk,
            doubtful=self._is_doubtful,
        )

    def _is_doubtful(self, file: SpoolFile) -> bool:
        again = file.name in self.inbox.copies.again
        return again and not self.sink.is_compared(file)

    def _point(self, name: str) -> None:
        if name == self.cut:
            raise PowerCut

    def _write(self, rows: Any, folder: Path, plan: Plan) -> None:
        """What Spark makes of the files of a batch: their rows with whole names."""
        place = folder / "table=events/protocol=plain/date=2026-03-01"
        place.mkdir(parents=True)
        for number, file in enumerate(plan.files):
            found = pq.ParquetFile(self._content(file.name)).read(
                columns=["node", "lsn", "received_at", "payload", "flaw"]
            )
            lsns = found["lsn"].to_pylist()
            kept = [
                not plan.without.covers(
                    SpoolFile(file.node, file.incarnation, lsn, lsn)
                )
                for lsn in lsns
            ]
            by = pa.array([file.incarnation or None] * len(lsns), pa.string())
            found = found.append_column("incarnation", by).filter(pa.array(kept))
            pq.write_table(found, place / f"part-{number}.parquet")

    def _content(self, name: str) -> Path | pa.BufferReader:
        """What a task reads; a cluster's looks for what is as large as the driver says."""
        path = self.data / "inbox" / name
        if not self.world.elsewhere:
            return path
        there = self.world.bucket.objects.get(name, b"")
        if len(there) != path.stat().st_size:
            raise OSError(f"{name} is not what it was")
        return pa.BufferReader(there)

    def look(self) -> None:
        """At the bucket."""
        with contextlib.suppress(BucketError):
            self.inbox.look()
            self.sink.learn((), self.inbox.endings.ends)
        said = self.sink.ledger.complete.days
        self.completing.look(now=True)
        if days := self.sink.ledger.complete.days - said:
            self.world.tell(f"job: {days} are complete")

    def batch(self) -> None:
        """Some of the files that Spark has not taken, in any order."""
        checkpoint = Checkpoint(self.logs.path, Lake())
        taken = checkpoint.names()
        new = [
            path.name
            for path in sorted((self.data / "inbox").glob("events-*"))
            if path.name not in taken
        ]
        if not new:
            return
        chance = self.world.chance
        chance.shuffle(new)
        some = new[: chance.randint(1, 4)]
        if turns := [name for name in new if name in self.overlaps.in_turns]:
            some = turns[:1]
        number = checkpoint.committed + 1
        self.entry += 1
        self.logs.source(self.entry, some)
        self.logs.offset(number, self.entry)
        self.world.tell(f"job: batch {number}: {some}")
        known, before = self.sink.ledger.complete, self.sink.ledger.committed
        try:
            self._take(number)
            self._see_that_late_ones_are_told(known, before)
        except Overlap as why:
            self.world.tell(f"job: {why}")
            with contextlib.suppress(BucketError):
                self.overlaps.settle(why.files)
            self._begin_query()
            self.sink.recover()
            self._new_cleaner()
        except OSError as why:
            self.world.tell(f"job: {why}")
            with contextlib.suppress(BucketError):
                make_readable(self.sink.batch_files, self.inbox, self.poison.examine)
            self.renew()
        else:
            self.logs.commit(number)

    def _see_that_late_ones_are_told(self, known: Completeness, before: Ranges) -> None:
        """A batch has no event of a day that was said to be complete, or takes that back."""
        ledger = self.sink.ledger
        for by, lsn, came in self.world.acknowledged():
            life, day = Life(NODE, by), complete.day_of(came)
            new = ledger.committed.of_life(life) - before.of_life(life)
            back = (one.taken_back.get(day, 0) for one in (known, ledger.complete))
            if new.covers(lsn, lsn) and known.days.covers(day, day) and eq(*back):
                raise Broken(
                    f"{lsn} of {by} came late, on day {day}, and nobody says so"
                )
        for path in (self.data / "lake").glob(f"*/{complete.MARKER}*"):
            if not ledger.complete.has(date.fromisoformat(path.name[-10:])):
                raise Broken(f"{path.name} is there, and the ledger has not said it")

    def _take(self, number: int) -> None:
        try:
            self.sink(None, number)
        except PowerCut:
            self.world.tell(f"job: killed at {self.cut}")
            self.restart()
            self.sink(None, number)  # Spark repeats it

    def clean(self) -> None:
        """Take out what is done; begin anew where a name was given again."""
        self.cleaner.run()
        if self.cleaner.overlooked:
            self.world.tell(f"job: overlooks {self.cleaner.overlooked}")
            self.renew()

    def renew(self) -> None:
        """The checkpoint is lost, or thrown away."""
        self._begin_query()
        self.restart()

    def delete(self) -> None:
        """What somebody asks for is deleted everywhere, or what a kill has cut off."""
        chance, lake = self.world.chance, self.data / "lake"
        record = next(iter(deleted.unfinished(lake)), None)
        if record is None:
            rows = sorted((row["incarnation"], row["lsn"]) for row in self._rows())
            if not rows:
                return
            at, events = chance.randrange(len(rows)), Ranges()
            for by, lsn in rows[at : at + chance.randint(1, 5)]:
                events.add(SpoolFile("gw", by, lsn, lsn).life, lsn, lsn)
            record = deleted.Deletion(
                f"{chance.getrandbits(32):08x}", "asked", "somebody", self.world.wall,
                "asked for", events=events.plain(), done=False,
            )  # fmt: skip
            deleted.save(Lake(), lake, record)
            self.world.tell(f"job: somebody deletes {events.plain()}")
        folders = ("lake", "inbox", "archive", "retained", "poison", "journal")
        places = Locations(
            *(self.data / name for name in folders), bucket=self.world.bucket
        )
        cut = chance.choice((0, 0, chance.randint(1, 8)))

        def point(name: str) -> None:
            nonlocal cut
            cut -= 1
            if not cut:
                self.world.tell(f"job: the deletion is killed at {name}")
                raise PowerCut

        with contextlib.suppress(PowerCut, Busy, BucketError):
            record = carry_out(places, Lake(), record, point=point)
            self.world.tell(f"job: {record.id} is deleted: {record.done}")

    @property
    def deletes(self) -> int:
        """How many deletions have begun and not ended."""
        return len(deleted.unfinished(self.data / "lake"))

    def deleted(self) -> Ranges:
        """The events that were asked to go."""
        return named_in(deleted.deletions(self.data / "lake"))

    def _rows(self) -> Iterator[dict[str, Any]]:
        """What is in the table."""
        columns = ["incarnation", "lsn", "payload", "flaw"]
        for path in (self.data / "lake" / "events").rglob("*.parquet"):
            yield from pq.ParquetFile(path).read(columns).to_pylist()

    def rows(self) -> Counter[bytes]:
        """How often each payload is in the table."""
        return Counter(row["payload"] for row in self._rows())

    def archived(self) -> set[bytes]:
        """Payloads that the bucket's archive has in clear."""
        found: set[bytes] = set()
        for name, data in self.world.bucket.objects.items():
            if name.startswith(f"{ARCHIVE}/events-"):
                rows = pq.read_table(pa.BufferReader(data), columns=["payload"])
                found.update(rows["payload"].to_pylist())
        return found
