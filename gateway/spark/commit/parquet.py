"""How a micro-batch becomes files of tables, once: two phases on a file system.

Spark runs a batch again after a crash, and its own Parquet sink leaves half-written
and doubled files that only Spark knows to skip.  Here a file under lake/<table>/ is
whole and counted from the moment it has its name, for any reader:

    lake/.gateway/staging/events/<batch>/data/…    Spark writes here; no reader looks
    lake/.gateway/staging/events/<batch>/manifest  which file gets which name: once
                                                   this is there the batch *will* be
    lake/<table>/protocol=…/date=…/part-…          one rename each
    lake/.gateway/events.json                      the ledger: the batch is done
    (staging/events/<batch> goes)

A crash before the manifest leaves only staging, which is wiped, and Spark runs the
batch again.  A crash after it leaves names to be given, which `recover` does before
Spark starts.  Names say which commit and query they are of, so giving one twice
changes nothing.  Everything is synced before what rests on it.

What it does not hide: while the renames of one batch are under way a reader may see
some of its files and not yet the others.  `reading.files` leaves those out.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from attrs import define
from attrs import field as attribute

from gateway.sdk.arrow import footer_of
from gateway.spark.commit import marks
from gateway.spark.commit.lakedisk import LakeDisk, sync
from gateway.spark.commit.ledger import Broken, Ledger, Ranges, write_json
from gateway.spark.commit.sink import Committed, Plan, Sink, shortfall
from gateway.spark.files.overlaps import Prints, prints_in
from gateway.spark.later.deleted_ranges import DeletedRanges
from gateway.spark.rows.stats import Counted
from gateway.store.lsns import Lsns
from gateway.store.names import Life
from gateway.store.node.incarnation import Record
from gateway.store.readers.lake import INTERNAL
from gateway.tables import QUARANTINE, STATS, Tables

if TYPE_CHECKING:
    from gateway.config.tables import TableByRule
    from gateway.spark.later.days import Rewritten

_SENT = ("body", "payload")


@contextmanager
def publishing(lake: Path) -> Iterator[None]:
    """Held, by one process at a time, while names below the tables change."""
    fd = os.open(
        lake / INTERNAL / "publishing", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640
    )
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def give_names(
    lake: Path,
    disk: LakeDisk,
    staged: Path,
    moves: Iterable[tuple[str, str]],
    remove: Iterable[str] = (),
    point: Callable[[str], None] = lambda name: None,
) -> None:
    """Give files of the folder *staged* their names below *lake*, and take away the names in
    *remove* before; may be done again.  A folder that is empty then goes.

    Raises `Broken` if a file has neither its old name nor its new one, OSError.
    """
    with publishing(lake):
        gone = [lake / name for name in remove]
        for path in gone:
            disk.unlink(path)
        left = {path.parent for path in gone if disk.exists(path.parent)}
        for folder in sorted(left):
            disk.sync_directory(folder)
        folders: set[Path] = set()
        for number, goal in moves:
            source, target = staged / number, lake / goal
            if target.parent not in folders:
                disk.make_directory(target.parent)
                folders.add(target.parent)
            if disk.exists(source):
                disk.rename(source, target)
            elif not disk.exists(target):
                raise Broken(
                    f"{target}: neither there nor in staging ({staged}); someone else"
                    f" writes to {lake}"
                )
            point("named")
        for folder in sorted(folders):
            disk.sync_directory(folder)
        for folder in sorted(left):
            if not disk.names(folder):
                disk.remove_tree(folder)


def check_shared(lake: Path, spark: Any) -> None:
    """Raise `Broken` unless what executors write is there for this process, too.

    Renames, syncs and listings are done here, of files that executors have written.
    """
    if spark.sparkContext.master.startswith("local"):
        return
    probe = lake / INTERNAL / "probe"
    written = spark.range(1).coalesce(1).write.mode("overwrite")
    try:
        written.parquet(f"file://{probe.absolute()}")
        seen = any(path.stat().st_size for path in probe.rglob("*.parquet"))
    except OSError:
        seen = False
    finally:
        shutil.rmtree(probe, ignore_errors=True)
    if not seen:
        raise Broken(
            f"spark.sink: parquet needs a POSIX file system that gateway spark and all"
            f" executors share, and {lake} is none: what an executor of"
            f" {spark.sparkContext.master} writes there is not seen here. Take"
            " spark.sink: iceberg or delta, with spark.table on a file system that all"
            " of them reach"
        )


@define(eq=False, slots=False)
class ParquetSink(Sink):
    """Folders of Parquet files, one below the other, on a file system that all share.

    *write* puts a batch into a folder as table=…/protocol=…/date=…/*.parquet;
    *count* makes rows of `stats` of the files; *find_resent* says which events in
    them were there before.  *rules* are those by which *write* puts rows into tables: the
    ledger names each of these before it has any.
    """

    _write: Callable[[Any, Path, Plan], None]
    _count: Callable[[list[tuple[str, Path]]], Counted] | None = None
    _find_resent: Callable[[list[Path]], Ranges] | None = None
    _rules: Mapping[str, TableByRule] = attribute(factory=dict)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._staging = self._lake / INTERNAL / "staging" / self.name
        self.deleted = DeletedRanges(self._lake)

    def recover(self) -> None:
        self._disk.make_directory(self._staging)
        if not self._disk.exists(self._path):
            if self._any_rows():
                raise Broken(
                    f"{self._lake} has tables, but {self._path} is gone: what is in"
                    " them is not known. Restore it from a backup, or rebuild the tables"
                )
            # From here on a file of a table without a ledger is a fault.
            self._write_down(Ledger())
        self.ledger = self.closing.whole(Ledger.load(self._disk, self._path))
        for name in self._disk.names(self._staging):
            manifest = self._staging / name / "manifest"
            if self._disk.exists(manifest):
                self._publish(json.loads(self._disk.read(manifest)))
            self._disk.remove_tree(self._staging / name)
        self._know(self._rules)
        self.failure = None
        self._check_behind()

    def expire(
        self, before: Mapping[str, date], stop: Callable[[], bool]
    ) -> Iterator[Rewritten]:
        from gateway.spark.later import expiry

        yield from expiry.expire(self._lake, self._disk, before, stop=stop)

    def _take(self, rows: Any, batch: int) -> Committed | None:
        self._point("begun")
        query = self._checkpoint.query
        files = self._checkpoint.batch_files(batch)
        _, row_bytes, records, *_ = self.looked_at(files)
        took = Ranges.of(files)
        if query == self.ledger.query and batch <= self.ledger.batch:
            self._check_repeated(batch, took)
            return None
        self.check_apart(files)
        without = self.left_out(took)
        plan = Plan(files, without, row_bytes=row_bytes)
        staged = self._staging / str(batch)
        moves, counted = self._stage(rows, staged, plan)
        if counted.rows != (expected := len(took) - len(plan.without)):
            raise shortfall(batch, expected, counted.rows)
        # Which files this batch is must survive whatever the manifest survives.
        first, last = (self._checkpoint.offset(n) for n in (batch - 1, batch))
        self._checkpoint.sync(range(batch, batch + 1), range(first + 1, last + 1))
        self._point("logs synced")
        manifest = {
            "arrived": sorted(self.arrived(files, without)),
            "query": query,
            "batch": batch,
            "sequence": self.ledger.sequence + 1,
            "took": took.plain(),
            "files": [file.name for file in files],
            "records": [[*life, *record] for life, record in records.items()],
            "moves": moves,
            "types": {**self.ledger.types, **self.types},
        }
        write_json(self._disk, staged / "manifest", manifest)
        self._point("decided")
        self._publish(manifest)
        self._disk.remove_tree(staged)
        self._point("done")
        return Committed(batch, counted.rows, len(files), counted.misfits)

    def known(self, wanted: Mapping[Life, Lsns]) -> Iterator[tuple[Life, Prints]]:
        from gateway.spark.commit.partition import files_of
        from gateway.spark.later.erasure import Wanted, masked

        files = files_of(self._lake, *self.ledger.tables.of_events)
        for life, lsns in wanted.items():
            events = Ranges()
            events.add_all(life, lsns)
            columns = ["node", "incarnation", "lsn", "received_at", *_SENT, "flaw"]
            found = masked(files, Wanted(events), columns)
            yield life, Prints.of(one for _, rows in found for one in prints_in(rows))

    def _stage(
        self, rows: Any, staged: Path, plan: Plan
    ) -> tuple[list[tuple[str, str]], _Staged]:
        """Have the rows written and synced: (number, goal) of each file; what it is."""
        made = self._written(rows, staged, plan)
        if self._find_resent is not None:
            flawed = f"table={QUARANTINE}"
            events = [path for path, inside in made if inside[0] != flawed]
            resent = self._find_resent(events)
            if resent:
                # Rare, so that writing the batch once more costs nothing to speak of.
                made = self._written(rows, staged, replace(plan, resent=resent))
        self._point("written")
        total = _Staged()
        moves: list[tuple[str, str]] = []
        for path, inside in made:
            total.rows += footer_of(path).num_rows
            folder = "/".join(inside[:-1]).removeprefix("table=")
            moves.append(self._numbered(path, folder, staged, len(moves)))
        self._point("synced")
        if self._count is not None:
            # With the table where there are several of events that are fine.
            depth = slice(0 if self.ledger.tables.by_rule else 1, 2)
            counted = self._count(
                [
                    ("/".join(goal.split("/")[depth]), staged / number)
                    for number, goal in moves
                ]
            )
            total.misfits = counted.misfits
            for partition, table in sorted(counted.tables.items()):
                path = staged / "stats.parquet"
                pq.write_table(table, path, compression="zstd")
                moves.append(
                    self._numbered(path, f"{STATS}/{partition}", staged, len(moves))
                )
        self._disk.sync_directory(staged)
        self._point("staged")
        return moves, total

    def _written(
        self, rows: Any, staged: Path, plan: Plan
    ) -> list[tuple[Path, tuple[str, ...]]]:
        """Files with rows, and their places: (table=…, protocol=…, date=…, name)."""
        self._disk.remove_tree(staged)
        self._disk.make_directory(staged)
        data = staged / "data"
        self._write(rows, data, plan)
        found = []
        for path in self._disk.tree(data):
            inside = path.relative_to(data).parts
            hidden = any(part.startswith((".", "_")) for part in inside)
            if not hidden and self._disk.size(path) and footer_of(path).num_rows:
                found.append((path, inside))
        return found

    def _numbered(
        self, path: Path, folder: str, staged: Path, number: int
    ) -> tuple[str, str]:
        """Sync a file and give it a number; all in one folder, so one is to sync."""
        sync(self._disk, path)
        self._disk.rename(path, staged / str(number))
        sequence = f"{self.ledger.sequence + 1:010d}"
        query = str(self._checkpoint.query)[:8]
        return str(number), f"{folder}/part-{sequence}-{query}-{number}.parquet"

    def _publish(self, manifest: dict[str, Any]) -> None:
        """Give the files their names and write it down; may be done again."""
        query, batch = manifest["query"], manifest["batch"]
        if query == self.ledger.query and batch <= self.ledger.batch:
            return
        staged = self._staging / str(batch)
        moves = manifest["moves"]
        self.take_back(manifest.get("arrived", ()))
        give_names(self._lake, self._disk, staged, moves, point=self._point)
        self._point("published")
        records = {
            Life(node, by): Record(*record) for node, by, *record in manifest["records"]
        }
        after = self.after(query, batch, Ranges(manifest["took"]), records)
        types = manifest.get("types", self.ledger.types)
        self._write_down(replace(after, types=types))
        self._point("in ledger")

    def roots(self) -> Iterator[marks.Folder]:
        return marks.tables(self._lake, self._disk)

    def _any_rows(self) -> bool:
        return any(
            path.suffix == ".parquet"
            for table in Tables(tuple(self._rules)).of_events
            for path in self._disk.tree(self._lake / table)
        )

    def _check_behind(self) -> None:
        """Every batch that Spark has committed was in the ledger before."""
        query, batch = self._checkpoint.query, self._checkpoint.committed
        if batch < 0 or (query == self.ledger.query and batch <= self.ledger.batch):
            return
        raise Broken(
            f"{self._lake} is older than {self._checkpoint.path}: that is at batch"
            f" {batch}, the tables have"
            f" {self.ledger.batch if query == self.ledger.query else 'none of it'}. If"
            " they were deleted or restored, remove the checkpoint too and put what is"
            " missing from archive back into spool"
        )

    def _check_repeated(self, batch: int, took: Ranges) -> None:
        """Spark repeats its last batch and no other, with the same files."""
        if batch != self.ledger.batch or took != self.ledger.latest:
            raise Broken(
                f"{self._checkpoint.path} is older than the tables: it is at batch"
                f" {batch}, they have {self.ledger.batch}. Remove it; nothing will"
                " be doubled"
            )


@dataclass
class _Staged:
    rows: int = 0
    misfits: int = 0
